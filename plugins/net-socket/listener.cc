// tutti/plugins/net-socket/listener.cc
#include "listener.h"

namespace tutti::net_socket {

constexpr size_t max_guests = 96; // all sockets of one connection, and some strangers
constexpr int backlog = 128;
constexpr int accepts_per_turn = 32;
using Clock = std::chrono::steady_clock;

Listener::Listener(Context &ctx, plugin::Address &addr)
    : NetObject(ctx.host()), ctx_(ctx), fd_(make_listener(ctx.settings(), ctx.device(), backlog)) {
  randombytes_buf(secret_.bytes, sizeof secret_.bytes);
  addr.set(make_blob(local_address(fd_.get()), secret_));
  ctx.watch(fd_.get(), &watch_);
  ctx.add_pending(this);
}

Listener::~Listener() {
  ctx_.remove_pending(this);
}

void Listener::refuse(const Guest &guest, std::string_view why) {
  if (refused_++ == 0)
    host().debug("refused a connection from ", endpoint_text(peer_address(guest.fd.get())), " at ",
                 endpoint_text(local_address(fd_.get())), ": ", why);
}

void Listener::take_guests() {
  for (int i = 0; i < accepts_per_turn; ++i) {
    Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return; // nobody, or one that has gone, or no descriptor free: later
    if (guests_.size() == max_guests) {
      refuse(guests_.front(), "too many connections that do not prove themselves");
      guests_.erase(guests_.begin());
    }
    guests_.push_back({std::move(fd), Clock::now(), AcceptorHandshake(secret_), std::make_unique<Watched>()});
    ctx_.watch(guests_.back().fd.get(), guests_.back().watch.get());
  }
}

// Sockets of one connection find each other by its id. A new id starts anew: the connector lost the old sockets.
void Listener::admit(Guest &guest) {
  const Hello &h = guest.handshake.hello();
  const bool same = !joined_.empty() && std::memcmp(h.connection, first_.connection, sizeof h.connection) == 0;
  if (!same) {
    joined_.clear();
    joined_.resize(h.count);
    first_ = h;
  }
  if (h.count != joined_.size()) return refuse(guest, "it states another number of sockets than its siblings");
  ctx_.watch(guest.fd.get(), joined_watch_.get());
  joined_[h.index] = std::move(guest.fd);
}

bool Listener::complete() const {
  return !joined_.empty() && std::all_of(joined_.begin(), joined_.end(), [](const Fd &f) { return static_cast<bool>(f); });
}

void Listener::drive() noexcept {
  if (!fd_ || complete()) return;
  try {
    take_guests();
    const auto oldest = Clock::now() - ctx_.settings().handshake_timeout;
    for (size_t i = 0; i < guests_.size();) {
      Guest &g = guests_[i];
      const Step s = g.handshake.advance(g.fd.get());
      if (s == Step::again && g.since > oldest) {
        ++i;
        continue;
      }
      if (s == Step::done)
        admit(g);
      else if (s == Step::denied)
        refuse(g, "it does not know this listener's secret");
      else
        refuse(g, s == Step::again ? "it said nothing in time" : "it went away");
      guests_.erase(guests_.begin() + static_cast<long>(i));
    }
  } catch (const std::exception &e) {
    host().debug("a connection could not be accepted: ", e.what()); // out of descriptors or memory: the connector tries again
  }
}

std::unique_ptr<Endpoint> Listener::accept() {
  if (!fd_) plugin::fail(TUTTI_ERR_INVALID, "this listener has accepted its endpoint");
  drive();
  if (!complete()) return nullptr;
  Fd control = std::move(joined_[0]);
  std::vector<Fd> data(std::make_move_iterator(joined_.begin() + 1), std::make_move_iterator(joined_.end()));
  joined_.clear();
  guests_.clear();
  fd_.reset();
  return make_receiver(ctx_, std::move(control), std::move(data), first_.min_task);
}

} // namespace tutti::net_socket
