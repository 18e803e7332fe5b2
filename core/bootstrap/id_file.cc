// TUTTI_COMM_ID=file:PATH: rank 0 writes its unique id into a file that only this user may read.
#include "bootstrap/crypto.h"
#include "bootstrap/dialer.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "bootstrap/rendezvous.h"
#include <algorithm>
#include <fcntl.h>
#include <future>
#include <sys/stat.h>

namespace tutti::boot {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(50);
constexpr Nanos kPatience = std::chrono::seconds(1); // at first, with an id that may be a dead root's
constexpr Nanos kMostPatience = std::chrono::minutes(1);

// An id from an open file; AGAIN (timeout) when it is not there yet.
Result<UniqueId> read_id_file(const std::string &path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | (inherited(path) ? 0 : O_NOFOLLOW)));
  if (!fd)
    return errno == ENOENT ? fail(Code::timeout, "file {} does not exist", path) : fail_errno(errno, "cannot open " + path);
  struct stat st {};
  fstat(fd.get(), &st);
  if (!S_ISREG(st.st_mode)) return bad(fmt::format("{} is no regular file", path));
  if (!inherited(path) && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
    return bad(
        fmt::format("file {} belongs to user {} and has mode {:04o}: it must be this user's and mode 0600, it holds a secret",
                    path, st.st_uid, st.st_mode & 07777));
  tuttiUniqueId raw;
  if (pread(fd.get(), raw.internal, sizeof raw.internal, 0) != static_cast<ssize_t>(sizeof raw.internal))
    return fail(Code::timeout, "file {} is incomplete", path);
  auto id = decode(raw);
  wipe(std::as_writable_bytes(std::span(raw.internal)));
  return id;
}

Status write_id_file(const std::string &path, const tuttiUniqueId &id) {
  struct stat st;
  if (lstat(path.c_str(), &st) == 0 && !read_id_file(path).ok())
    return fail(Code::invalid_usage,
                "TUTTI_COMM_ID=file:{0}: {0} exists and holds no unique id of this user's; it is left as it is", path)
        .phase("bootstrap")
        .hint("name a file that does not exist");
  const std::string temporary = fmt::format("{}.{:016x}", path, random_u64());
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "cannot create " + temporary).phase("bootstrap");
  if (fchmod(fd.get(), 0600) != 0)
    return fail_errno(errno, "cannot set the mode of " + temporary).phase("bootstrap"); // of any umask
  const bool written = write(fd.get(), id.internal, sizeof id.internal) == static_cast<ssize_t>(sizeof id.internal);
  int err = written ? 0 : (errno ? errno : EIO);
  if (err == 0 && rename(temporary.c_str(), path.c_str()) != 0) err = errno;
  if (err == 0) return {};
  unlink(temporary.c_str());
  return fail_errno(err, "cannot write " + path).phase("bootstrap");
}

// Only the file of this very id: a later job may have replaced it.
void remove_id_file(const std::string &path, uint64_t base) {
  auto id = read_id_file(path);
  if (id.ok() && id.value().base == base) unlink(path.c_str());
}

} // namespace

Status probe_root(const UniqueId &id, const Config &config, int rank, Nanos patience, Deadline deadline) {
  Service &service = Service::get();
  Dialer::Job job = root_job(id, rank, config, std::min(deadline.at(), Clock::now() + patience));
  job.patient = false;
  job.prove = false;
  struct Answer {
    std::promise<Status> promise;
    std::shared_ptr<Dialer> dialer;
  };
  auto answer = std::make_shared<Answer>();
  auto future = answer->promise.get_future();
  service.post([&service, job, answer] {
    answer->dialer = Dialer::start(service, job, [answer](Result<Conn::Ptr> r) {
      answer->promise.set_value(r.ok() ? Status() : r.status());
      Service::get().post([answer] { answer->dialer = nullptr; });
    });
  });
  if (future.wait_until(deadline.at() + std::chrono::seconds(1)) != std::future_status::ready)
    return fail(Code::timeout, "no answer from the root");
  return future.get();
}

bool inherited(std::string_view path) {
  return path.starts_with("/proc/self/fd/") || path.starts_with("/dev/fd/");
}

Result<tuttiUniqueId> id_from_file(const std::string &path, const Config &config, int rank, uint32_t generation,
                                   Deadline deadline) {
  if (inherited(path)) { // the launcher made it and hosts the root
    TUTTI_ASSIGN(id, read_id_file(path));
    id.generation = generation;
    return encode(id);
  }
  if (rank == 0) {
    TUTTI_ASSIGN(id, new_id(config));
    auto r = start_root(config, id, false, [path, base = id.base] { remove_id_file(path, base); });
    if (!r.ok()) return std::move(r.status());
    const tuttiUniqueId raw = encode(id);
    TUTTI_TRY(write_id_file(path, raw));
    return raw;
  }
  std::string last;
  for (Nanos patience = kPatience;; patience = std::min(patience * 2, kMostPatience)) { // a crowded machine may take long
    auto id = read_id_file(path);
    if (id.ok()) {
      const Status alive = probe_root(id.value(), config, rank, patience, deadline);
      if (alive.ok()) return encode(id.value());
      last = fmt::format("the id in it leads nowhere (left by an earlier job?): {}", alive.error().message);
    } else {
      last = id.status().error().message;
      if (id.status().code() == Code::invalid_usage) return std::move(id.status());
    }
    if (deadline.expired()) break;
    std::this_thread::sleep_for(std::min<Nanos>(kPoll, deadline.left())); // a shared file system tells nobody
  }
  return fail(Code::timeout, "TUTTI_COMM_ID=file:{}: no usable unique id from rank 0 within {}: {}", path,
              seconds(deadline.span()), last)
      .phase("bootstrap")
      .peer(0);
}

} // namespace tutti::boot
