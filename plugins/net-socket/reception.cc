// tutti/plugins/net-socket/reception.cc
#include "reception.h"
#include "context.h"

namespace tutti::net_socket {

constexpr size_t strangers_kept = 96;
constexpr size_t guests_per_receiver = 8;
constexpr int backlog = 128;
constexpr int accepts_per_turn = 32;
using Clock = std::chrono::steady_clock;

bool Reception::before(const Address &a, const Address &b) {
  return std::memcmp(&a.storage, &b.storage, sizeof a.storage) < 0;
}

uint16_t Reception::listen(const Address &at) {
  if (const auto known = ports_.find(at); known != ports_.end()) return known->second;
  uint16_t port = 0;
  try {
    Fd fd = make_listener(ctx_.settings(), at, backlog);
    ctx_.watch(fd, &watch_);
    port = port_of(local_address(fd.get()));
    fds_.push_back(std::move(fd));
  } catch (const plugin::Error &e) {
    ctx_.host().debug("connections that get lost will not be resumed here: ", e.what());
  }
  return ports_[at] = port;
}

const Secret *Reception::find(void *self, const ResumeHello &hello) {
  const auto &all = static_cast<Reception *>(self)->receivers_;
  const auto it = all.find(hello.connection);
  return it != all.end() && it->second->has_stream(hello.index) ? &it->second->secret() : nullptr;
}

void Reception::take_guests() {
  watch_.readable = false;
  for (const Fd &from : fds_)
    for (int i = 0; i < accepts_per_turn; ++i) {
      Fd fd(accept4(from.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd || i + 1 == accepts_per_turn) watch_.readable |= fd || !would_block(errno); // none free: later
      if (!fd) break;
      if (guests_.size() == strangers_kept + guests_per_receiver * receivers_.size()) {
        refuse(ctx_.host(), guests_.front().fd.get(), "too many connections that do not prove themselves");
        guests_.erase(guests_.begin());
      }
      guests_.push_back({std::move(fd), Clock::now(), ResumeAcceptor(ctx_.encryption()), std::make_unique<Watched>()});
      ctx_.watch(guests_.back().fd, guests_.back().watch.get());
    }
}

bool Reception::serve(Guest &g) {
  const Step s = g.handshake.advance(g.fd, find, this);
  if (s == Step::again && Clock::now() < g.since + ctx_.settings().handshake_timeout) return true;
  if (s == Step::denied) refuse(ctx_.host(), g.fd.get(), "it does not know the secret of a connection that was lost");
  if (s != Step::verified) return false;
  const auto it = receivers_.find(g.handshake.hello().connection);
  if (it == receivers_.end()) return false;
  const auto say = [](void *guest, uint64_t position) {
    auto &self = *static_cast<Guest *>(guest);
    return self.handshake.finish(self.fd, position);
  };
  Fd &fd = g.fd;
  it->second->resume(g.handshake.hello(), fd, say, &g);
  return false;
}

void Reception::drive() noexcept {
  try {
    if (watch_.readable) take_guests();
    for (size_t i = 0; i < guests_.size();)
      if (serve(guests_[i]))
        ++i;
      else
        guests_.erase(guests_.begin() + static_cast<long>(i));
  } catch (const std::exception &e) {
    ctx_.host().debug("a lost connection could not be resumed: ",
                      e.what()); // out of descriptors or memory: the peer tries again
  }
}

} // namespace tutti::net_socket
