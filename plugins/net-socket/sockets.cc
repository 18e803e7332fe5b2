// tutti/plugins/net-socket/sockets.cc
#include "sockets.h"
#include <atomic>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <random>
#include <sys/epoll.h>
#include <sys/ioctl.h>

namespace tutti::net_socket {

using plugin::fail;
using plugin::fail_errno;

namespace {

template <class Get> Address address_by(Get get, int fd) {
  Address a;
  socklen_t len = sizeof a.storage;
  if (get(fd, a.get(), &len) != 0) a.storage.ss_family = AF_INET;
  return a;
}

bool set_int(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

std::string congestion_of(int fd) {
  char name[32] = "";
  socklen_t len = sizeof name - 1;
  return getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 ? std::string(name) : std::string();
}

bool set_congestion(int fd, std::string_view name) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

} // namespace

int Fd::watch(int epoll, uint32_t events, void *target) {
  epoll_event e{events, {.ptr = target}};
  if (epoll_ctl(epoll, epoll_ == epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd_, &e) != 0) return errno;
  epoll_ = epoll;
  return 0;
}

void Fd::unwatch() {
  if (epoll_ >= 0) epoll_ctl(std::exchange(epoll_, -1), EPOLL_CTL_DEL, fd_, nullptr);
}

uint16_t port_of(const Address &a) {
  return ntohs(a.family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6 *>(&a.storage)->sin6_port
                                      : reinterpret_cast<const sockaddr_in *>(&a.storage)->sin_port);
}

void set_port(Address &a, uint16_t port) {
  if (a.family() == AF_INET6)
    reinterpret_cast<sockaddr_in6 *>(&a.storage)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in *>(&a.storage)->sin_port = htons(port);
}

std::string endpoint_text(const Address &a) {
  return netif::to_text(a, port_of(a));
}
Address local_address(int fd) {
  return address_by(getsockname, fd);
}
Address peer_address(int fd) {
  return address_by(getpeername, fd);
}
std::string errno_text(int err) {
  return std::generic_category().message(err);
}

ssize_t Fd::write(iovec *parts, int count) const {
  if (session_) return session_->write(parts, count);
  if (count == 1) return send(fd_, parts->iov_base, parts->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
  msghdr msg{};
  msg.msg_iov = parts;
  msg.msg_iovlen = static_cast<size_t>(count);
  return sendmsg(fd_, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t Fd::read(iovec *parts, int count) const {
  if (session_) return session_->read(parts, count);
  if (count == 1) return recv(fd_, parts->iov_base, parts->iov_len, MSG_DONTWAIT);
  msghdr msg{};
  msg.msg_iov = parts;
  msg.msg_iovlen = static_cast<size_t>(count);
  return recvmsg(fd_, &msg, MSG_DONTWAIT);
}

uint64_t Fd::unread() const {
  if (session_) return session_->drain();
  int bytes = 0;
  return ioctl(fd_, FIONREAD, &bytes) == 0 && bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
}

// The kernel counts sealed bytes, which are more than plain ones. A record that has come in part only counts as not come.
std::optional<uint64_t> Fd::unacknowledged() const {
  int bytes = 0;
  if (ioctl(fd_, SIOCOUTQ, &bytes) != 0 || bytes < 0) return {};
  return static_cast<uint64_t>(bytes) + (session_ && bytes > 0 ? Session::most_record : 0);
}

bool all_acknowledged(int fd) {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes == 0;
}

void acknowledge_at_once(int fd) {
  set_int(fd, IPPROTO_TCP, TCP_QUICKACK, 1);
}

int why_broken(int fd, int err) {
  if (err != EPIPE) return err;
  int pending = 0; // behind bytes that nobody has read yet
  socklen_t len = sizeof pending;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &pending, &len) == 0 && pending != 0) return pending;
  char byte;
  const ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && !would_block(errno) ? errno : closed_by_peer;
}

void abandon(int fd) {
  const linger at_once{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

bool may_come_back(int err) {
  switch (err) {
  case ECONNRESET:
  case ECONNABORTED:
  case ENOTCONN:
  case ETIMEDOUT:
  case EHOSTUNREACH:
  case EHOSTDOWN:
  case ENETUNREACH:
  case ENETDOWN:
  case ENETRESET:
    return true;
  default:
    return false;
  }
}

Fd make_socket(const Settings &s, int family) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    if (errno == EMFILE || errno == ENFILE)
      fail(TUTTI_ERR_NO_MEMORY, "cannot open a socket: ", errno_text(errno), " (ulimit -n limits open files)");
    fail_errno(errno, "cannot open a socket");
  }
  // Before connect and listen, or the window scale is fixed without them.
  if (s.sndbuf && !set_int(fd.get(), SOL_SOCKET, SO_SNDBUF, s.sndbuf)) fail_errno(errno, "sndbuf ", s.sndbuf);
  if (s.rcvbuf && !set_int(fd.get(), SOL_SOCKET, SO_RCVBUF, s.rcvbuf)) fail_errno(errno, "rcvbuf ", s.rcvbuf);
  return fd;
}

// Only the refusal of a congestion control is an error, and check_congestion() has found it before; the rest are hints.
void tune_connection(int fd, const Settings &s, bool local) {
  if (s.traffic_class >= 0) {
    set_int(fd, IPPROTO_IP, IP_TOS, s.traffic_class); // fails on an IPv6 socket, as the next does on an IPv4 one
    set_int(fd, IPPROTO_IPV6, IPV6_TCLASS, s.traffic_class);
    set_int(fd, SOL_SOCKET, SO_PRIORITY, std::min(s.traffic_class >> 5, 6)); // precedence; 7 needs a capability
  }
  set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (s.busy_poll_us) set_int(fd, SOL_SOCKET, SO_BUSY_POLL, s.busy_poll_us);
  if (s.congestion != "auto") set_congestion(fd, s.congestion);
  // bbr paces by a timer and halves the throughput of a path without a queue. Without privileges reno may be all there is.
  else if (local && congestion_of(fd).rfind("bbr", 0) == 0 && !set_congestion(fd, "cubic"))
    set_congestion(fd, "reno");
  if (s.user_timeout.count() > 0)
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
            static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(s.user_timeout).count()));
  if (s.keepalive.count() > 0) {
    const int idle = static_cast<int>(std::chrono::ceil<std::chrono::seconds>(s.keepalive).count());
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, idle / 5));
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 5);
  }
}

Fd make_listener(const Settings &s, const Address &address, int backlog) {
  const uint32_t count = s.port_first ? s.port_last - s.port_first + 1u : 1;
  // Ranks of one host start at different ports of the range.
  const uint32_t start = s.port_first ? static_cast<uint32_t>(getpid()) % count : 0;
  for (uint32_t i = 0; i < count; ++i) {
    Fd fd = make_socket(s, address.family());
    set_int(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.family() == AF_INET6) set_int(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    Address a = address;
    set_port(a, s.port_first ? static_cast<uint16_t>(s.port_first + (start + i) % count) : uint16_t{0});
    if (bind(fd.get(), a.get(), a.length()) == 0 && listen(fd.get(), backlog) == 0) return fd;
    const int err = errno;
    if (s.port_first && (err == EADDRINUSE || err == EACCES)) continue;
    fail_errno(err, "cannot listen at ", endpoint_text(a));
  }
  fail(TUTTI_ERR_SYSTEM, "no free port in port_range ", s.port_first, "-", s.port_last, " at ", netif::to_text(address));
}

void refuse(const Host &host, int fd, std::string_view why) {
  static std::atomic<bool> warned{false}; // base.h allows one line per process
  host.log(warned.exchange(true) ? TUTTI_LOG_DEBUG : TUTTI_LOG_WARN, "refused a connection from ",
           endpoint_text(peer_address(fd)), " at ", endpoint_text(local_address(fd)), ": ", why);
}

void check_congestion(const Settings &s, const Host &host) {
  if (s.congestion == "auto") return;
  const Fd fd = make_socket(s, AF_INET);
  if (set_congestion(fd.get(), s.congestion)) return;
  const int err = errno;
  char known[512] = "unknown";
  if (FILE *f = std::fopen("/proc/sys/net/ipv4/tcp_allowed_congestion_control", "re")) {
    if (std::fscanf(f, "%511[^\n]", known) != 1) known[0] = 0;
    std::fclose(f);
  }
  fail(TUTTI_ERR_INVALID, "congestion \"", s.congestion, "\" (", host.origin("congestion"), "): ", errno_text(err),
       "; allowed: ", known);
}

} // namespace tutti::net_socket
