// How often a message enters the kernel.
#include "cut.h"
#include "pair.h"
#include <cerrno>
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

// Counts by standing before the C library. Sanitizers stand there already.
namespace {
struct Calls {
  int sends = 0, received = 0, vain = 0, waits = 0; // calls that brought bytes, and that brought none
};
Calls calls;
[[maybe_unused]] ssize_t counted(ssize_t n) {
  ++(n > 0 ? calls.received : calls.vain);
  return n;
}
} // namespace
#ifdef TUTTI_SANITIZED
constexpr bool counts = false;
#else
constexpr bool counts = true;
namespace {
template <class F> F *real(const char *name) {
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
} // namespace
extern "C" {
ssize_t send(int fd, const void *data, size_t n, int flags) {
  static auto *const fn = real<ssize_t(int, const void *, size_t, int)>("send");
  ++calls.sends;
  if (cut::swallows(fd, n)) return static_cast<ssize_t>(n);
  return fn(fd, data, cut::allowed(fd, n), flags);
}
ssize_t sendmsg(int fd, const msghdr *msg, int flags) {
  static auto *const fn = real<ssize_t(int, const msghdr *, int)>("sendmsg");
  ++calls.sends;
  if (!cut::watches(fd)) return fn(fd, msg, flags);
  return send(fd, msg->msg_iov[0].iov_base, msg->msg_iov[0].iov_len, flags); // in pieces
}
ssize_t recv(int fd, void *data, size_t n, int flags) {
  static auto *const fn = real<ssize_t(int, void *, size_t, int)>("recv");
  return counted(fn(fd, data, n, flags));
}
ssize_t recvmsg(int fd, msghdr *msg, int flags) {
  static auto *const fn = real<ssize_t(int, msghdr *, int)>("recvmsg");
  return counted(fn(fd, msg, flags));
}
int epoll_wait(int fd, epoll_event *events, int n, int ms) {
  static auto *const fn = real<int(int, epoll_event *, int, int)>("epoll_wait");
  ++calls.waits;
  return fn(fd, events, n, ms);
}
int poll(pollfd *fds, nfds_t n, int ms) {
  static auto *const fn = real<int(pollfd *, nfds_t, int)>("poll");
  ++calls.waits;
  return fn(fds, n, ms);
}
}
#endif

TEST_CASE("a message that has arrived takes one system call each way, header and payload together") {
  if (!counts) return;
  Pair p;
  std::vector<uint8_t> head(16), data = pattern(16384, 1), head_in(16), data_in(data.size());
  for (const size_t bytes : {size_t{8}, size_t{1000}, size_t{4096}, size_t{8192}, data.size()}) {
    // As the core sends: a header of its own, and the payload.
    const tutti_net_buf out[2] = {{head.data(), head.size(), nullptr, 0}, {data.data(), bytes, nullptr, 1}};
    const tutti_net_buf in[2] = {{head_in.data(), head_in.size(), nullptr, 0}, {data_in.data(), bytes, nullptr, 1}};
    REQUIRE(p.host.net().recv(p.rx, in, 2, nullptr, bytes) == TUTTI_OK);
    calls = {};
    REQUIRE(p.host.net().send(p.tx, out, 2, bytes) == TUTTI_OK);
    REQUIRE(p.a.drive() == 1); // gone whole
    CHECK(calls.sends == 1);
    REQUIRE(p.drive_until([&] { return p.b.has(bytes); }));
    CHECK(calls.received == 1);
    CHECK(calls.waits == 0);
    CHECK(std::equal(data.begin(), data.begin() + static_cast<std::ptrdiff_t>(bytes), data_in.begin()));
  }
}

TEST_CASE("messages that have arrived together take one system call") {
  if (!counts) return;
  Pair p;
  uint64_t out[10], in[10] = {};
  calls = {};
  for (uint64_t i = 0; i < 10; ++i) {
    out[i] = i;
    REQUIRE(p.send(&out[i], 8, i) == TUTTI_OK);
  }
  CHECK(calls.sends == 10);
  for (uint64_t i = 0; i < 10; ++i) REQUIRE(p.recv(&in[i], 8, 100 + i) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.b.has(109); }));
  CHECK(calls.received <= 2); // loopback delivers within the send call, but for what a busy machine puts off
  for (uint64_t i = 0; i < 10; ++i) CHECK(in[i] == i);
}
