// tutti/plugins/net-socket/connector.cc
#include "connector.h"
#include <poll.h>

namespace tutti::net_socket {

using plugin::fail;
using Clock = std::chrono::steady_clock;

constexpr auto stagger = std::chrono::milliseconds(150); // an address that answers at all answers within this, mostly

Connector::Connector(Context &ctx, const Blob &blob, bool resumes)
    : ctx_(ctx), secret_(blob.secret), resumes_(resumes), listener_(blob.listener), begin_(Clock::now()) {
  randombytes_buf(id_.data(), id_.size());
  std::vector<Address> places = blob_places(blob, ctx.devices().front().interface.index);
  // Neighbours first: no router is needed, and none can send us astray.
  std::stable_partition(places.begin(), places.end(), [&](const Address &to) {
    for (const Device &d : ctx.devices())
      for (const Address &a : d.interface.addresses)
        if (same_network(a, to)) return true;
    return false;
  });
  for (const Address &to : places) add(attempts_, to, 0);
  race();
}

void Connector::add(Attempts &list, const Address &to, uint16_t index) {
  auto a = std::make_unique<Attempt>();
  a->to = to;
  a->local = ctx_.stays_here(to);
  a->own = is_own(to);
  a->index = index;
  list.push_back(std::move(a));
}

void Connector::start(Attempt &a) {
  a.fd = make_socket(ctx_.settings(), a.to.family());
  a.connected = false;
  a.begun = Clock::now();
  tune_connection(a.fd.get(), ctx_.settings(), a.local);
  a.handshake =
      std::make_unique<ConnectorHandshake>(make_hello(a.index, static_cast<uint16_t>(1 + ctx_.settings().data_sockets()),
                                                      resumes_on(a), ctx_.settings().min_task, id_, ctx_.wires().self()),
                                           secret_, ctx_.encryption());
  if (::connect(a.fd.get(), a.to.get(), a.to.length()) != 0 && errno != EINPROGRESS && errno != EINTR) return retry(a, errno);
  ctx_.watch(a.fd, &a.watch);
}

// Refused or unreachable may mean that the peer or its interface is not up yet; anything else is final.
void Connector::retry(Attempt &a, int err) {
  a.fd.reset();
  a.given = false;
  if (err == ECONNREFUSED && accepted(a)) return;
  const bool transient = err == ECONNREFUSED || err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH ||
                         err == ECONNRESET || err == ECONNABORTED || err == EADDRNOTAVAIL;
  a.dead = !transient || a.tries >= ctx_.settings().retries;
  ++a.tries;
  a.why = plugin::text(errno_text(err), " after ", a.tries, a.tries == 1 ? " attempt" : " attempts");
  a.next = Clock::now() + ctx_.settings().retry_sleep * a.tries;
}

// What the network has swallowed. The listener takes another socket of the same connection in the place of this one.
void Connector::try_anew(Attempt &a) {
  if (a.connected) a.patience = std::min(2 * a.patience, longest_answer_limit);
  ++a.unanswered;
  a.why = plugin::text("no answer to ", a.unanswered, a.unanswered == 1 ? " attempt" : " attempts");
  abandon(a.fd.get());
  a.fd.reset();
  a.given = false;
  a.next = Clock::now();
}

// A listener that has got the proof may have accepted and closed, though its word of that was lost. Then the connection is one
// that has been lost, and is looked for where those come back: this socket stands for it until somebody uses it.
bool Connector::accepted(Attempt &a) {
  if (!a.proved || !resumes_on(a)) return false;
  a.fd = make_socket(ctx_.settings(), a.to.family());
  return a.done = true;
}

// An endpoint begins when the peer's kernel has the proof: before that, nothing there knows of the connection.
bool Connector::delivered(Attempt &a) {
  if (all_acknowledged(a.fd.get())) return true;
  pollfd p{a.fd.get(), 0, 0};
  if (poll(&p, 1, 0) > 0)
    retry(a, ECONNRESET);
  else if (Clock::now() >= a.begun + a.patience)
    try_anew(a);
  return a.done;
}

Step Connector::advance(Attempt &a) {
  if (!a.fd) {
    if (Clock::now() < a.next) return Step::again;
    start(a);
    if (!a.fd || a.done) return Step::again;
  }
  if (!a.connected) {
    pollfd p{a.fd.get(), POLLOUT, 0};
    if (poll(&p, 1, 0) <= 0) {
      if (Clock::now() >= a.begun + syn_limit) try_anew(a);
      return Step::again;
    }
    int err = 0;
    socklen_t len = sizeof err;
    getsockopt(a.fd.get(), SOL_SOCKET, SO_ERROR, &err, &len);
    if (err) return retry(a, err), Step::again;
    a.connected = true;
  }
  const Step s = a.handshake->advance(a.fd);
  switch (s) {
  case Step::denied:
    a.fd.reset();
    a.dead = a.denied = true;
    a.why = "what listens there does not know the secret of the address: not a rank of this job";
    break;
  case Step::closed:
    retry(a, ECONNRESET); // a listener that is full closes; so does one that is gone
    break;
  case Step::failed:
    retry(a, a.handshake->error());
    break;
  case Step::again:
    if (Clock::now() >= a.begun + a.patience) try_anew(a);
    break;
  default:
    break;
  }
  return s;
}

// The control socket: starts what is due, until one has found the listener.
void Connector::race() {
  bool hope = false, untried = false;
  for (size_t i = 0; i < attempts_.size(); ++i) {
    Attempt &a = *attempts_[i];
    if (a.dead) continue;
    hope = true;
    const bool begun = a.fd || a.tries;
    if (!begun && untried && Clock::now() < begin_ + stagger * static_cast<int>(i)) break;
    if (advance(a) == Step::verified) {
      a.handshake->confirm();
      control_ = std::move(attempts_[i]);
      attempts_.clear();
      for (uint32_t k = 1; k <= ctx_.settings().data_sockets(); ++k) add(data_, control_->to, static_cast<uint16_t>(k));
      return;
    }
    untried |= a.tries == 0;
  }
  if (!hope) give_up();
}

bool Connector::finish(Attempt &a) {
  if (a.done) return true;
  if (!a.given) {
    const Step s = advance(a);
    if (!a.dead && s == Step::verified) a.handshake->confirm();
    if (s == Step::done) a.given = a.proved = true;
  }
  a.done |= a.given && delivered(a);
  if (a.dead) give_up();
  return a.done;
}

bool Connector::advance() {
  if (!control_) race();
  bool all = control_ && finish(*control_);
  for (auto &a : data_) all &= finish(*a);
  if (all) return true;
  if (Clock::now() < begin_ + ctx_.settings().connect_timeout) return false;
  fail(TUTTI_ERR_TIMEOUT, "no connection to ", failures(), " after ",
       std::chrono::duration_cast<std::chrono::seconds>(ctx_.settings().connect_timeout).count(), " s");
}

// "10.0.0.1:4711 (eth0): Connection refused after 3 attempts; 10.1.0.1:4712 (eth1)"
std::string Connector::failures() const {
  std::string out;
  const auto add = [&](const Attempt &a) {
    if (!out.empty()) out += "; ";
    out += plugin::text(endpoint_text(a.to), " (", ctx_.device_towards(a.to).interface.name, ")");
    if (!a.why.empty()) out += ": " + a.why;
  };
  if (control_) add(*control_);
  for (const auto &a : attempts_) add(*a);
  for (const auto &a : data_)
    if (a->dead) add(*a);
  return out;
}

void Connector::give_up() const {
  const auto denied = [](const auto &a) { return a->denied; };
  const bool stranger = std::any_of(attempts_.begin(), attempts_.end(), denied) ||
                        std::any_of(data_.begin(), data_.end(), denied) || (control_ && control_->denied);
  fail(stranger ? TUTTI_ERR_DENIED : TUTTI_ERR_REMOTE, "cannot connect to ", failures());
}

std::shared_ptr<Wire> Connector::take_control() {
  auto wire = std::make_shared<Wire>();
  wire->fd = std::move(control_->fd);
  wire->connection = id_;
  wire->peer = listener_;
  return wire;
}

std::vector<Fd> Connector::take_data() {
  std::vector<Fd> out;
  for (auto &a : data_) out.push_back(std::move(a->fd));
  return out;
}

} // namespace tutti::net_socket
