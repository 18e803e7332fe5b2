// tutti/plugins/collnet-aggd/sockets.cc
#include "sockets.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <linux/tcp.h> // struct tcp_info as the kernel has it; netinet/tcp.h lacks what is new
#include <netdb.h>
#include <sys/epoll.h>
#include <system_error>

namespace tutti::aggd {
namespace {

std::string reason_of(int err) {
  return std::generic_category().message(err);
}

// "host:port" into its parts; a bare IPv6 address has no port.
bool split(const std::string &text, std::string &host, uint16_t &port, bool *with_port) {
  std::string digits;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string::npos) return false;
    host = text.substr(1, end - 1);
    if (end + 1 == text.size()) return !host.empty();
    if (text[end + 1] != ':') return false;
    digits = text.substr(end + 2);
  } else {
    const size_t colon = text.find(':');
    if (colon == std::string::npos || text.find(':', colon + 1) != std::string::npos) return host = text, !host.empty();
    host = text.substr(0, colon);
    digits = text.substr(colon + 1);
  }
  *with_port = true;
  const auto [at, err] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return err == std::errc() && at == digits.data() + digits.size() && !host.empty();
}

// "5" would be 0.0.0.5: nobody who writes numbers means that.
bool is_short(const std::string &host) {
  in_addr ip{};
  return host.find_first_not_of("0123456789.") == std::string::npos && ::inet_pton(AF_INET, host.c_str(), &ip) != 1;
}

} // namespace

void Fd::reset(int fd) {
  if (epoll_ >= 0) {
    ::epoll_ctl(std::exchange(epoll_, -1), EPOLL_CTL_DEL, fd_, nullptr);
    ::shutdown(fd_, SHUT_RDWR);
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

int Fd::watch(int epoll, void *target) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = target;
  if (::epoll_ctl(epoll, epoll_ >= 0 ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd_, &event) != 0) return errno;
  epoll_ = epoll;
  return 0;
}

std::string Address::text() const {
  char ip[INET6_ADDRSTRLEN] = "?";
  if (raw.ss_family == AF_INET) {
    const auto &a = reinterpret_cast<const sockaddr_in &>(raw);
    ::inet_ntop(AF_INET, &a.sin_addr, ip, sizeof ip);
    return std::string(ip) + ":" + std::to_string(ntohs(a.sin_port));
  }
  if (raw.ss_family == AF_INET6) {
    const auto &a = reinterpret_cast<const sockaddr_in6 &>(raw);
    ::inet_ntop(AF_INET6, &a.sin6_addr, ip, sizeof ip);
    return "[" + std::string(ip) + "]:" + std::to_string(ntohs(a.sin6_port));
  }
  return "?";
}

std::optional<Place> resolve(const std::string &text, bool passive, std::string &why) {
  std::string host;
  uint16_t port = default_port;
  Place out{text, {}, false};
  if (!split(text, host, port, &out.with_port) || is_short(host)) {
    why = " is no address like 10.0.0.1, aggd1:4797 or [fe80::1]:4797";
    return {};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo *found = nullptr;
  const int rc = ::getaddrinfo(host == "*" ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (rc != 0) {
    why = std::string(" cannot be resolved: ") + (rc == EAI_SYSTEM ? reason_of(errno) : ::gai_strerror(rc));
    return {};
  }
  for (const addrinfo *a = found; a; a = a->ai_next) {
    Address address;
    std::memcpy(&address.raw, a->ai_addr, a->ai_addrlen);
    address.size = a->ai_addrlen;
    out.addresses.push_back(address);
  }
  ::freeaddrinfo(found);
  return out;
}

void tune(int fd, const Tuning &tuning) {
  const auto set = [fd](int level, int name, int value) { (void)::setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  if (tuning.buffer != 0) {
    set(SOL_SOCKET, SO_SNDBUF, static_cast<int>(std::min<uint32_t>(tuning.buffer, 1 << 30)));
    set(SOL_SOCKET, SO_RCVBUF, static_cast<int>(std::min<uint32_t>(tuning.buffer, 1 << 30)));
  }
  if (tuning.keepalive.count() > 0) {
    const int every = std::max<int>(1, static_cast<int>(tuning.keepalive.count() / 4000));
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, std::max<int>(1, static_cast<int>(tuning.keepalive.count() / 2000)));
    set(IPPROTO_TCP, TCP_KEEPINTVL, every);
    set(IPPROTO_TCP, TCP_KEEPCNT, 8); // SilenceWatch is to speak first, and knows more
  }
}

bool is_silence(int err) {
  return err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH || err == EHOSTDOWN || err == ENETDOWN;
}

std::string why_lost(int err) {
  if (err == 0 || err == EPIPE || err == ECONNRESET) return "";
  return reason_of(err);
}

milliseconds SilenceWatch::look(int fd, Clock::time_point now) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool known = ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  // Not whether it was sent again: on a busy host that may be due only in seconds.
  const bool owed = known && info.tcpi_unacked != 0, asks = owed || (known && info.tcpi_probes != 0);
  const milliseconds heard(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
  if (!asks || (since_ != Clock::time_point{} && heard < now - since_)) since_ = {}; // something came after all
  if (!asks) return milliseconds(0);
  if (since_ == Clock::time_point{}) since_ = now;
  const auto asked = std::chrono::duration_cast<milliseconds>(now - since_);
  return owed ? asked : std::min(heard, 2 * asked); // an idle host is asked after half of the time that it may say nothing
}

Transfer::Step Transfer::send(int fd, const void *data, size_t bytes) {
  while (done_ < bytes) {
    const ssize_t n = ::send(fd, static_cast<const char *>(data) + done_, bytes - done_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Step::again;
      return error_ = errno, Step::failed;
    }
    done_ += static_cast<size_t>(n);
  }
  done_ = 0;
  return Step::done;
}

Transfer::Step Transfer::receive(int fd, void *data, size_t bytes) {
  while (done_ < bytes) {
    const ssize_t n = ::recv(fd, static_cast<char *>(data) + done_, bytes - done_, MSG_DONTWAIT);
    if (n == 0) return Step::closed;
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Step::again;
      return error_ = errno, Step::failed;
    }
    done_ += static_cast<size_t>(n);
  }
  done_ = 0;
  return Step::done;
}

Dialer::Dialer(const Place &place, Secret secret, Role role, const Tuning &tuning, Clock::time_point deadline,
               std::string limit)
    : place_(place), secret_(std::move(secret)), limit_(std::move(limit)), role_(role), tuning_(tuning), deadline_(deadline) {}

Dialer::Step Dialer::fail(Reason reason, const std::string &what) {
  fd_.reset();
  fault_ = {reason, Field::none, -1, 0, 0, what};
  return Step::failed;
}

// An address is told where it is not the name already.
std::string Dialer::connect_failed(const Address &to, int err) const {
  return (to.text() == place_.name ? "connect: " : "connect " + to.text() + ": ") + reason_of(err);
}

Dialer::Step Dialer::again_later(const std::string &what) {
  fd_.reset();
  stage_ = Stage::idle;
  transfer_ = {};
  last_ = what;
  tries_++;
  next_ = Clock::now() + milliseconds(tries_ % place_.addresses.size() ? 1 : 50);
  return Step::again;
}

Dialer::Step Dialer::start() {
  if (Clock::now() < next_) return Step::again;
  const Address &to = place_.addresses[tries_ % place_.addresses.size()];
  fd_.reset(::socket(to.raw.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd_) return fail(Reason::no_resource, "no socket for " + place_.name + ": " + reason_of(errno));
  tune(fd_.get(), tuning_);
  hello_ = make_hello(role_);
  stage_ = Stage::connecting;
  const int rc = ::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&to.raw), to.size);
  if (rc != 0 && errno != EINPROGRESS) return again_later(connect_failed(to, errno));
  return Step::again;
}

Dialer::Step Dialer::advance() {
  if (Clock::now() >= deadline_) {
    const auto ms = std::chrono::duration_cast<milliseconds>(deadline_ - begin_).count();
    const std::string state = stage_ == Stage::challenge ? "it took the connection and says nothing"
                              : last_.empty()            ? "it does not answer"
                                                         : last_;
    return fail(Reason::unreachable,
                "cannot reach " + place_.name + " in " + std::to_string(ms) + " ms (" + limit_ + "): " + state);
  }
  if (stage_ == Stage::idle) {
    start();
    if (stage_ == Stage::idle) return fault_.reason == Reason::none ? Step::again : Step::failed;
  }
  if (stage_ == Stage::connecting) {
    const Address &to = place_.addresses[tries_ % place_.addresses.size()];
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&to.raw), to.size) != 0 && errno != EISCONN) {
      if (errno == EALREADY || errno == EINPROGRESS) return Step::again;
      return again_later(connect_failed(to, errno));
    }
    stage_ = Stage::hello;
  }
  return greet();
}

Dialer::Step Dialer::greet() {
  using T = Transfer::Step;
  T step = T::done;
  if (stage_ == Stage::hello && (step = transfer_.send(fd_.get(), &hello_, sizeof hello_)) == T::done)
    stage_ = Stage::challenge;
  if (stage_ == Stage::challenge && step == T::done &&
      (step = transfer_.receive(fd_.get(), &challenge_, sizeof challenge_)) == T::done) {
    if (challenge_.magic != magic_hello) return fail(Reason::version, place_.name + " is no tutti-aggd");
    if (challenge_.version < version_first || challenge_.version > version_last)
      return fail(Reason::version, place_.name + " speaks versions " + std::to_string(challenge_.first) + " to " +
                                       std::to_string(challenge_.last) + ", this side " + std::to_string(version_first) +
                                       " to " + std::to_string(version_last));
    if (!proves(secret_.key, hello_, challenge_))
      return fail(Reason::auth, place_.name + " has another key than " + secret_.name + ": both must hold the same bytes");
    proof_ = make_proof(secret_.key, hello_, challenge_);
    stage_ = Stage::proof;
  }
  if (stage_ == Stage::proof && step == T::done) step = transfer_.send(fd_.get(), &proof_, sizeof proof_);
  if (step == T::again) return Step::again;
  if (step == T::done) return Step::ready;
  return again_later(step == T::closed ? "it closed the connection" : reason_of(transfer_.error()));
}

} // namespace tutti::aggd
