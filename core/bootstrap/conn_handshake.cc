// How a control connection comes to be: dialled or accepted, and the handshake. What goes over it is in conn.cc.
#include "bootstrap/conn.h"
#include "bootstrap/hub.h"
#include <cstring>
#include <sys/epoll.h>
#include <sys/un.h>

namespace tutti::boot {

void Conn::start(uint32_t events) {
  events_ = events;
  std::weak_ptr<Conn> weak = weak_from_this();
  const Status s = service_.add(
      fd_.get(), events,
      [weak](uint32_t e) {
        if (auto self = weak.lock()) self->ready(e);
      },
      &token_);
  allow(state_ == State::connecting ? dialling() : service_.hub().patience());
  if (!s.ok())
    service_.post([weak, s] {
      if (auto self = weak.lock()) self->lost(s);
    });
}

// How long the end that dials waits. A listener of this host has the connection in its queue, and a second one would not be
// answered sooner.
Nanos Conn::dialling() const {
  return (is_unix_ ? 4 : 1) * service_.hub().patience();
}

// For the rest of the handshake.
void Conn::allow(Nanos limit) {
  service_.cancel(timer_);
  timer_ = service_.at(Clock::now() + limit, [weak = weak_from_this(), limit] {
    if (auto self = weak.lock()) self->out_of_time(limit);
  });
}

// What has come is looked at first: it may be this thread that had no time.
void Conn::out_of_time(Nanos limit) {
  const Ptr self = shared_from_this();
  timer_ = 0;
  const State was = state_;
  const bool sealing = unsecured();
  if (was == State::wait_hello || was == State::wait_challenge || was == State::wait_proof || sealing) readable();
  if (state_ == was && sealing && !unsecured()) return;
  if (state_ == was) return lost(fail(Code::timeout, "no complete handshake within {}", seconds(limit)));
  if (timer_ == 0 && state_ == State::parked) allow(limit);
}

Conn::Ptr Conn::accepted(Service &service, TrackedFd fd, bool is_unix, std::string from) {
  Ptr c(new Conn(service, std::move(fd), is_unix, std::move(from)));
  c->state_ = State::wait_hello;
  c->start(EPOLLIN);
  return c;
}

Conn::Ptr Conn::dial(Service &service, const Target &target, const Hello &hello, const Secret &key) {
  const bool is_unix = !target.unix_name.empty();
  sockaddr_storage where{};
  socklen_t length = 0;
  if (is_unix) {
    auto *un = reinterpret_cast<sockaddr_un *>(&where);
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path + 1, target.unix_name.data(), target.unix_name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + target.unix_name.size());
  } else {
    where = target.endpoint.storage;
    length = target.endpoint.length();
  }
  TrackedFd fd = TrackedFd::socket(where.ss_family, SOCK_STREAM);
  int err = fd ? 0 : errno;
  if (err == EMFILE && more_fds()) {
    fd = TrackedFd::socket(where.ss_family, SOCK_STREAM);
    err = fd ? 0 : errno;
  }
  Ptr c(new Conn(service, std::move(fd), is_unix, target.text()));
  c->hello_ = hello;
  c->hello_.security = c->own_security();
  c->key_ = key;
  const Endpoint &source = target.source;
  if (err == 0 && source.family() != 0) {
    const int on = 1; // the port is chosen by connect(): more than one connection may leave from it
    setsockopt(c->fd_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(c->fd_.get(), reinterpret_cast<const sockaddr *>(&source.storage), source.length()) != 0) err = errno;
  }
  if (err == 0 && connect(c->fd_.get(), reinterpret_cast<const sockaddr *>(&where), length) != 0 && errno != EINPROGRESS)
    err = errno;
  if (err == 0) {
    c->start(EPOLLOUT);
    return c;
  }
  Status why = fail_errno(err, "cannot connect");
  if (err == EMFILE)
    why.error().message +=
        fmt::format("; the limit is {}: raise it (ulimit -n), or use fewer ranks per process", fd_limit_text());
  service.post([weak = std::weak_ptr<Conn>(c), why] {
    if (auto self = weak.lock()) self->lost(why);
  });
  return c;
}

// Bytes a remote end may have sent unread before it is authenticated.
size_t Conn::allowance() const {
  switch (state_) {
  case State::wait_hello:
    return kHelloBytes;
  case State::wait_challenge:
    return kChallengeBytes;
  case State::wait_proof:
    return kProofBytes;
  default:
    return 0;
  }
}

void Conn::handle_input() {
  while (state_ != State::open && state_ != State::closed && handshake_step()) {
  }
  if (state_ == State::open) parse_frames();
}

bool Conn::handshake_step() {
  const size_t need = allowance();
  if (need == 0 || in_.size() - in_at_ < need) return false;
  const auto bytes = std::span<const std::byte>(in_).subspan(in_at_, need);
  const Bytes data(bytes.begin(), bytes.end());
  in_.clear();
  in_at_ = 0;
  if (state_ == State::wait_hello) {
    const auto hello = decode_hello(data);
    if (!hello) {
      lost(fail(Code::remote, "what it sent is no greeting of this library"));
      return false;
    }
    hello_ = *hello;
    state_ = State::parked;
    if (on_hello) on_hello(hello_);
    return false;
  }
  if (state_ == State::wait_challenge) {
    const auto c = decode_challenge(data);
    if (!c) {
      lost(fail(Code::remote, "what answers there is not this library"));
      return false;
    }
    if (c->refusal == Refusal::wire) {
      lost(fail(Code::remote, "{} ({}, this one {})", text(c->refusal), c->wire, kWireVersion));
      return false;
    }
    if (c->refusal != Refusal::none) {
      lost(fail(Code::remote, "{}", text(c->refusal)));
      return false;
    }
    if (!same(c->mac, server_mac(key_, hello_, *c))) {
      queue_raw(encode_proof(Mac{})); // lets the other end say what is wrong, too
      lost(fail(Code::remote, "the process there does not know this job's key"));
      return false;
    }
    challenge_ = *c;
    state_ = State::verified;
    if (to_encrypt() && !(hello_.security & challenge_.security & kCanEncrypt)) {
      queue_raw(encode_proof(client_mac(key_, hello_, challenge_))); // it is to know who wants something else
      if (state_ == State::verified) disagree();
      return false;
    }
    if (on_verified) on_verified();
    return false;
  }
  const auto mac = decode_proof(data);
  if (!mac || !same(*mac, client_mac(key_, hello_, challenge_))) {
    lost(fail(Code::remote, "it does not know the job's key"));
    return false;
  }
  if (disagree()) return false;
  if (!to_encrypt()) return opened(), false;
  state_ = State::securing;
  begin_session(Tls::Role::server);
  return false;
}

void Conn::opened() {
  state_ = State::open;
  service_.cancel(timer_);
  timer_ = 0;
  if (on_open) on_open();
  if (state_ == State::open) update_events();
}

void Conn::admit(const Secret &key) {
  if (state_ != State::parked) return;
  key_ = key;
  Challenge &c = challenge_;
  random_bytes(c.nonce);
  c.security = own_security();
  c.mac = server_mac(key_, hello_, c);
  state_ = State::wait_proof;
  // The other end began to wait before this one, and believes itself connected as soon as it has sent its proof: it must not be
  // given up here while that may come.
  allow(2 * dialling());
  queue_raw(encode(c));
  if (state_ != State::closed) update_events();
}

void Conn::refuse(Refusal why) {
  if (state_ != State::parked) return;
  Challenge c;
  c.refusal = why;
  queue_raw(encode(c));
  if (state_ != State::closed) finish();
}

void Conn::prove() {
  if (state_ != State::verified) return;
  state_ = State::open;
  service_.cancel(timer_);
  timer_ = 0;
  queue_raw(encode_proof(client_mac(key_, hello_, challenge_)));
  if (state_ != State::closed && to_encrypt()) {
    allow(2 * dialling()); // for the session
    begin_session(Tls::Role::client);
  }
  if (state_ != State::closed) update_events();
}

} // namespace tutti::boot
