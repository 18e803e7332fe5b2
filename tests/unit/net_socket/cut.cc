#include "cut.h"
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <set>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cut {

namespace {
int watched = -1;
long left = 0;
size_t swallowed = 0;
int swallows_left = 0;

sockaddr_in address(int (*get)(int, sockaddr *, socklen_t *), int fd) {
  sockaddr_in a{};
  socklen_t len = sizeof a;
  if (get(fd, reinterpret_cast<sockaddr *>(&a), &len) != 0) a.sin_family = AF_UNSPEC;
  return a;
}
} // namespace

#ifdef TUTTI_SANITIZED
const bool counts_bytes = false;
#else
const bool counts_bytes = true;
#endif

void check_apart(const std::function<int()> &fn) {
  check_apart(std::vector{fn});
}

void check_apart(const std::vector<std::function<int()>> &all) {
  constexpr int impossible = 77;
  std::vector<pid_t> children;
  for (const auto &fn : all) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(impossible);
    _exit(set_loopback(true) ? fn() : impossible);
  }
  for (size_t i = 0; i < children.size(); ++i) {
    CAPTURE(i);
    int status = 0;
    CHECK(waitpid(children[i], &status, 0) == children[i]);
    CHECK(WIFEXITED(status));
    if (WEXITSTATUS(status) == impossible)
      MESSAGE("skipped: no network namespaces here");
    else
      CHECK(WEXITSTATUS(status) == 0);
  }
}

bool set_loopback(bool up) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq req{};
  std::strcpy(req.ifr_name, "lo");
  bool ok = ioctl(fd, SIOCGIFFLAGS, &req) == 0;
  req.ifr_flags = static_cast<short>(up ? req.ifr_flags | IFF_UP : req.ifr_flags & ~IFF_UP);
  ok = ok && ioctl(fd, SIOCSIFFLAGS, &req) == 0;
  close(fd);
  return ok;
}

bool reset(int fd) {
  const sockaddr_in here = address(getsockname, fd), there = address(getpeername, fd);
  struct {
    nlmsghdr head;
    inet_diag_req_v2 req;
  } m{};
  m.head = {sizeof m, SOCK_DESTROY, NLM_F_REQUEST | NLM_F_ACK, 1, 0};
  m.req.sdiag_family = AF_INET;
  m.req.sdiag_protocol = IPPROTO_TCP;
  m.req.idiag_states = ~0u;
  m.req.id.idiag_sport = here.sin_port;
  m.req.id.idiag_dport = there.sin_port;
  m.req.id.idiag_src[0] = here.sin_addr.s_addr;
  m.req.id.idiag_dst[0] = there.sin_addr.s_addr;
  uint64_t cookie = 0; // this socket, and no other that has the same ports by now
  socklen_t len = sizeof cookie;
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) != 0) return false;
  m.req.id.idiag_cookie[0] = static_cast<uint32_t>(cookie);
  m.req.id.idiag_cookie[1] = static_cast<uint32_t>(cookie >> 32);
  const int nl = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  struct {
    nlmsghdr head;
    nlmsgerr err;
    char rest[256];
  } answer{};
  const bool ok = sendto(nl, &m, sizeof m, 0, reinterpret_cast<sockaddr *>(&kernel), sizeof kernel) == sizeof m &&
                  read(nl, &answer, sizeof answer) > 0 && answer.head.nlmsg_type == NLMSG_ERROR && answer.err.error == 0;
  close(nl);
  return ok;
}

int socket_of(const tutti_net_v1 &net, tutti_net_ep *ep) {
  char text[256] = "";
  net.ep_describe(ep, text, sizeof text);
  unsigned mine = 0, other = 0;
  if (std::sscanf(text, "127.0.0.1:%u %*s 127.0.0.1:%u", &mine, &other) != 2) return -1;
  for (int fd = 3; fd < 1000; ++fd)
    if (const sockaddr_in here = address(getsockname, fd), there = address(getpeername, fd);
        here.sin_family == AF_INET && there.sin_family == AF_INET && ntohs(here.sin_port) == mine &&
        ntohs(there.sin_port) == other)
      return fd;
  return -1;
}

std::vector<int> connections() {
  std::vector<int> out;
  std::set<uint16_t> seen;
  for (int fd = 3; fd < 1000; ++fd) {
    const sockaddr_in here = address(getsockname, fd), there = address(getpeername, fd);
    tcp_info info{};
    socklen_t len = sizeof info;
    if (here.sin_family != AF_INET || there.sin_family != AF_INET) continue;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 || info.tcpi_state != TCP_ESTABLISHED) continue;
    if (seen.count(there.sin_port)) continue;
    seen.insert(here.sin_port);
    out.push_back(fd);
  }
  return out;
}

void after(int fd, long bytes) {
  watched = fd;
  left = bytes;
}

void swallow(size_t bytes, int times) {
  swallowed = bytes;
  swallows_left = times;
}

bool swallows(int fd, size_t n) {
  if (swallows_left == 0 || n != swallowed) return false;
  --swallows_left;
  return reset(fd);
}

bool watches(int fd) {
  return fd == watched;
}

size_t allowed(int fd, size_t n) {
  if (fd != watched) return n;
  if (left == 0) {
    watched = -1;
    reset(fd);
    return n;
  }
  const size_t part = std::min(n, static_cast<size_t>(left));
  left -= static_cast<long>(part);
  return part;
}

} // namespace cut
