// tutti/plugins/net-socket/listener.cc
#include "listener.h"

namespace tutti::net_socket {

constexpr size_t max_guests = 96; // all sockets of one connection, and some strangers
constexpr int backlog = 128;
constexpr int accepts_per_turn = 32;
using Clock = std::chrono::steady_clock;

Listener::Listener(Context &ctx, plugin::Address &addr) : NetObject(ctx.host()), ctx_(ctx) {
  randombytes_buf(secret_.bytes, sizeof secret_.bytes);
  Blob blob = make_blob(secret_, ctx.wires().self());
  listen_everywhere(blob);
  addr.set(blob);
  ctx.add_pending(this);
}

// On the device to use, and on the others for a peer that this one does not reach.
void Listener::listen_everywhere(Blob &blob) {
  std::optional<plugin::Error> first;
  for (const Device &d : ctx_.devices())
    for (const Address &a : d.interface.addresses) {
      if (blob.count == Blob::capacity) return;
      try {
        Fd fd = make_listener(ctx_.settings(), a, backlog);
        ctx_.watch(fd, &watch_);
        add_place(blob, local_address(fd.get()), ctx_.resume_port(a));
        fds_.push_back(std::move(fd));
      } catch (const plugin::Error &e) {
        host().debug(e.what(), " (", d.interface.name, ")");
        if (!first) first = e;
      }
    }
  if (fds_.empty()) throw *first;
}

Listener::~Listener() {
  ctx_.remove_pending(this);
}

void Listener::take_guests(int from) {
  for (int i = 0; i < accepts_per_turn; ++i) {
    Fd fd(accept4(from, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return; // nobody, or one that has gone, or no descriptor free: later
    if (guests_.size() == max_guests) {
      refuse(host(), guests_.front().fd.get(), "too many connections that do not prove themselves");
      guests_.erase(guests_.begin());
    }
    guests_.push_back(
        {std::move(fd), Clock::now(), AcceptorHandshake(secret_, ctx_.encryption()), std::make_unique<Watched>()});
    ctx_.watch(guests_.back().fd, guests_.back().watch.get());
  }
}

// Sockets of one connection find each other by its id. A new id starts anew: the connector lost the old sockets.
void Listener::admit(Guest &guest) {
  const Hello &h = guest.handshake.hello();
  const bool same = !joined_.empty() && h.connection == first_.connection;
  if (!same) {
    joined_.clear();
    joined_.resize(h.count);
    first_ = h;
  }
  if (h.count != joined_.size()) return refuse(host(), guest.fd.get(), "it states another number of sockets than its siblings");
  ctx_.watch(guest.fd, joined_watch_.get());
  joined_[h.index] = std::move(guest.fd);
}

bool Listener::complete() const {
  return !joined_.empty() && std::all_of(joined_.begin(), joined_.end(), [](const Fd &f) { return static_cast<bool>(f); });
}

void Listener::drive() noexcept {
  if (complete()) return;
  try {
    for (const Fd &fd : fds_) take_guests(fd.get());
    const auto oldest = Clock::now() - ctx_.settings().handshake_timeout;
    for (size_t i = 0; i < guests_.size();) {
      Guest &g = guests_[i];
      const Step s = g.handshake.advance(g.fd);
      if (s == Step::again && g.since > oldest) {
        ++i;
        continue;
      }
      if (s == Step::done)
        admit(g);
      else if (s == Step::denied)
        refuse(host(), g.fd.get(), "it does not know this listener's secret");
      else if (s == Step::again)
        refuse(host(), g.fd.get(), "it said nothing in time");
      else
        host().debug("a connection went away before it had proved itself"); // to be dialled anew
      guests_.erase(guests_.begin() + static_cast<long>(i));
    }
  } catch (const std::exception &e) {
    host().debug("a connection could not be accepted: ", e.what()); // out of descriptors or memory: the connector tries again
  }
}

std::unique_ptr<Endpoint> Listener::accept() {
  if (fds_.empty()) plugin::fail(TUTTI_ERR_INVALID, "this listener has accepted its endpoint");
  drive();
  if (!complete()) return nullptr;
  auto control = std::make_shared<Wire>();
  control->fd = std::move(joined_[0]);
  control->connection = first_.connection;
  control->peer = first_.from;
  std::vector<Fd> data(std::make_move_iterator(joined_.begin() + 1), std::make_move_iterator(joined_.end()));
  joined_.clear();
  guests_.clear();
  fds_.clear();
  const Origin origin{first_.connection, secret_, first_.resumes == 1};
  return make_receiver(ctx_, std::move(control), std::move(data), first_.min_task, origin);
}

} // namespace tutti::net_socket
