// All ranks are on one host: rank 0 listens at an abstract unix-domain name made of the job's, and gives its unique id to
// whoever connects and runs as the same user. Both ends learn the other's user from the kernel, so a name that can be guessed
// is enough.
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "bootstrap/rendezvous.h"
#include "log/log.h"
#include <atomic>
#include <cstring>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/un.h>

namespace tutti::boot {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
  explicit Name(std::string_view text) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address); }
};

// The user of the process at the other end; of the one that listens, seen from the one that connected.
std::optional<ucred> other_end(int fd) {
  ucred who{};
  socklen_t n = sizeof who;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0) return {};
  return who;
}

// The listener of rank 0. Lives on the service thread, until all ranks have joined.
class Desk : public std::enable_shared_from_this<Desk> {
public:
  Desk(TrackedFd fd, const tuttiUniqueId &id) : fd_(std::move(fd)), id_(id) {}
  void open() {
    const Status s = Service::get().add(
        fd_.get(), EPOLLIN, [self = shared_from_this()](uint32_t) { self->answer(); }, &token_);
    if (!s.ok()) log::error(log::Subsys::bootstrap, "{}", s.error().message);
  }
  void close() {
    Service::get().remove(token_);
    fd_.reset();
  }

private:
  void answer() {
    sockaddr_storage from{};
    for (;;) {
      const TrackedFd caller = TrackedFd::accept(fd_.get(), &from);
      if (!caller) return;
      const auto who = other_end(caller.get());
      if (who && who->uid == geteuid()) // 128 bytes into an empty buffer never wait
          [[maybe_unused]]
        const ssize_t n = ::send(caller.get(), id_.internal, sizeof id_.internal, MSG_NOSIGNAL | MSG_DONTWAIT);
      else
        log::write_once(log::Level::warn, log::Subsys::bootstrap, "other-user",
                        fmt::format("pid {} of user {} asked for this job's unique id and did not get it", who ? who->pid : -1,
                                    who ? static_cast<int64_t>(who->uid) : -1));
    }
  }
  TrackedFd fd_;
  const tuttiUniqueId id_;
  uint64_t token_ = 0;
};

Result<tuttiUniqueId> hand_out(const std::string &text, const Config &config) {
  TrackedFd fd = TrackedFd::socket(AF_UNIX, SOCK_STREAM);
  if (!fd) return fail_errno(errno, "cannot open a unix-domain socket").phase("bootstrap");
  const Name name(text);
  if (bind(fd.get(), name.get(), name.length) != 0 || ::listen(fd.get(), 4096) != 0)
    return fail_errno(errno, "cannot listen at unix:" + text)
        .phase("bootstrap")
        .hint("is there a second rank 0 of this job? TUTTI_COMM_ID=host:port names another place to meet");
  TUTTI_ASSIGN(id, new_id(config));
  const tuttiUniqueId raw = encode(id);
  const auto desk = std::make_shared<Desk>(std::move(fd), raw);
  auto r = start_root(config, id, false, [desk] { desk->close(); });
  if (!r.ok()) return std::move(r.status());
  Service::get().post([desk] { desk->open(); });
  return raw;
}

// An id from rank 0; timeout when it is not there yet, other errors are final.
Result<tuttiUniqueId> ask(const std::string &text, Deadline deadline) {
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(errno, "cannot open a unix-domain socket").phase("bootstrap");
  const Name name(text);
  if (connect(fd.get(), name.get(), name.length) != 0) // EAGAIN: its backlog is full
    return fail(Code::timeout, "nobody listens at unix:{}", text);
  const auto who = other_end(fd.get());
  if (!who || who->uid != geteuid())
    return bad(fmt::format("what listens at unix:{} belongs to user {}, pid {}: it is not rank 0 of this job", text,
                           who ? static_cast<int64_t>(who->uid) : -1, who ? who->pid : -1))
        .hint("set TUTTI_COMM_ID=host:port, the same for all ranks");
  tuttiUniqueId id;
  size_t got = 0;
  while (got < sizeof id.internal) {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, deadline.left_ms()) <= 0) return fail(Code::timeout, "rank 0 (pid {}) does not answer", who->pid);
    const ssize_t n = read(fd.get(), id.internal + got, sizeof id.internal - got);
    if (n <= 0) return fail(Code::timeout, "rank 0 (pid {}) ended", who->pid);
    got += static_cast<size_t>(n);
  }
  return id;
}

} // namespace

Result<tuttiUniqueId> id_from_host(const std::string &job, const Config &config, int rank, int nranks, Deadline deadline) {
  static std::atomic<uint32_t> calls{0}; // every rank makes the same ones in the same order
  const uint32_t generation = calls.fetch_add(1);
  if (nranks == 1) return Bootstrap::create_id(config);
  const std::string text =
      fmt::format("tutti-job-{:016x}", hash_u64("tutti job", fmt::format("{}/{}/{}", job, geteuid(), generation)));
  if (rank == 0) return hand_out(text, config);
  for (;;) {
    auto id = ask(text, deadline);
    if (id.ok() || id.status().code() != Code::timeout) return id;
    if (deadline.expired())
      return fail(Code::timeout, "rank 0 has not offered its unique id within {}: {}", seconds(deadline.span()),
                  id.status().error().message)
          .phase("bootstrap")
          .peer(0)
          .hint("is it on this host, in the same network namespace? if not, set TUTTI_COMM_ID=host:port");
    std::this_thread::sleep_for(std::min<Nanos>(kPoll, deadline.left()));
  }
}

} // namespace tutti::boot
