// tutti/plugins/collnet-aggd/daemon/peer.cc: a connection from its first byte to its place in a group.
#include "group.h"
#include <cerrno>
#include <sys/epoll.h>

namespace tutti::aggd {

Peer::Peer(Server &server, Fd socket, std::string from_whom)
    : fd(std::move(socket)), from(std::move(from_whom)), server_(server) {
  tune(fd.get(), {0, server.settings().silence});
  server.watch(fd, this);
  server.strangers().enter(*this);
  server.peers++;
}

Peer::~Peer() {
  if (fd) server_.peers--;
}

void Peer::close() {
  if (fd) server_.peers--;
  closed = true;
  fd.reset();
  leave();
  stage_ = Stage::closing;
  if (group) group->lost(*this);
}

void Peer::crowded_out() {
  stranger("too many others wait to prove that they belong");
}

void Peer::stranger(const char *what) {
  server_.stranger(from, what);
  close();
}

void Peer::on_events(uint32_t events) {
  if (closed) return;
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable = true;
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) hung_up = true;
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable = true;
  if (group) return server_.runnable(group);
  if (stage_ == Stage::closing) return close_down();
  greet();
}

// What still comes is dropped, but no more of it than others can wait for: tick() goes on.
void Peer::close_down() {
  static std::array<char, 64 << 10> drop;
  const ssize_t n = readable ? ::recv(fd.get(), drop.data(), drop.size(), MSG_DONTWAIT) : -1;
  if (readable && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))) return close();
  if (n < 0 && errno == EAGAIN) readable = false;
  (void)flush();
}

void Peer::greet() {
  using T = Transfer::Step;
  T step = T::done;
  if (stage_ == Stage::hello && (step = in_.receive(fd.get(), &hello_, sizeof hello_)) == T::done) {
    if (!is_hello(hello_)) return stranger("it speaks another protocol");
    role_ = hello_.role;
    challenge_ = make_challenge(server_.settings().key, hello_);
    if (challenge_.version == 0) server_.counters().wrong_version++;
    // The first bytes of a connection always fit into its buffer.
    if (::send(fd.get(), &challenge_, sizeof challenge_, MSG_NOSIGNAL | MSG_DONTWAIT) != ssize_t{sizeof challenge_})
      return close();
    if (challenge_.version == 0) return close();
    stage_ = Stage::proof;
  }
  if (stage_ == Stage::proof && step == T::done && (step = in_.receive(fd.get(), &proof_, sizeof proof_)) == T::done) {
    if (!proves(server_.settings().key, hello_, challenge_, proof_)) {
      server_.counters().wrong_key++;
      return stranger("it has another key");
    }
    stage_ = Stage::join;
    leave();
  }
  if (stage_ == Stage::join && step == T::done) return read_join();
  if (step == T::again) return;
  stage_ == Stage::proof ? stranger("it went when it had seen this daemon's proof: it has another key, or died") : close();
}

void Peer::read_join() {
  using T = Transfer::Step;
  T step = T::done;
  if (!has_header_) {
    step = in_.receive(fd.get(), &header_, sizeof header_);
    if (step == T::done) {
      if (!check_header(header_, 0, 0).empty() || header_.kind != Kind::join || header_.bytes > 256)
        return refuse({Reason::unsupported, Field::none, -1, 0, 0, "the first frame is no join"});
      has_header_ = true;
      body_.resize(padded(header_.bytes));
    }
  }
  if (has_header_ && step == T::done) step = in_.receive(fd.get(), body_.data(), body_.size());
  if (step == T::again) return;
  if (step != T::done) return close();
  const auto join = aggd::read_join({reinterpret_cast<const uint8_t *>(body_.data()), header_.bytes});
  if (!join || (role_ == Role::daemon) != (join->member < 0))
    return refuse({Reason::unsupported, Field::none, -1, 0, 0, "the join makes no sense"});
  stage_ = Stage::in_group;
  server_.join(*this, role_, *join);
}

bool Peer::flush() {
  while (!front_.empty() && writable && fd) {
    const ssize_t n = ::send(fd.get(), front_.data(), front_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      writable = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) error = errno, front_.clear();
      break;
    }
    front_.erase(0, static_cast<size_t>(n));
  }
  if (front_.empty() && stage_ == Stage::closing && fd) ::shutdown(fd.get(), SHUT_WR);
  return front_.empty();
}

void Peer::refuse(const Fault &fault) {
  server_.counters().refused++;
  server_.of_refusals.say(log::Level::info, fmt::format("{}: refused: {}: {}", from, reason_name(fault.reason), fault.text));
  say(frame(fault));
  group = nullptr;
  stage_ = Stage::closing;
  close_at_ = Clock::now() + server_.settings().linger;
  (void)flush();
}

void Peer::tick(Clock::time_point now) {
  if (closed || group) return;
  if (stage_ == Stage::closing ? now >= close_at_ : now >= since_ + server_.settings().handshake) {
    if (stage_ != Stage::closing && !proved()) return stranger("it said too little for too long");
    close();
  } else if (stage_ == Stage::closing) {
    close_down();
  }
}

} // namespace tutti::aggd
