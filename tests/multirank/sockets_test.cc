// Whole operations over sockets: how often they enter the kernel, and with how many bytes.
#include "operations.h"
#include "traffic.h"
#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <sys/socket.h>

using namespace support;

// Counts by standing before the C library. Sanitizers stand there already.
namespace {
std::atomic<int> sends{0}, received{0}; // the progress thread may lend a hand
std::atomic<int64_t> bytes_sent{0};
} // namespace
#ifdef TUTTI_SANITIZED
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;
namespace {
template <class F> F *real(const char *name) {
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
// Of TCP alone: the ranks also talk over the control channel.
bool counted(int fd) {
  int kind = 0;
  socklen_t len = sizeof kind;
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &kind, &len) == 0 && kind == 6;
}
} // namespace
extern "C" {
ssize_t send(int fd, const void *data, size_t n, int flags) {
  static auto *const fn = real<ssize_t(int, const void *, size_t, int)>("send");
  const bool counts = counted(fd);
  const ssize_t sent = fn(fd, data, n, flags);
  if (counts) sends++, bytes_sent += std::max<ssize_t>(sent, 0);
  return sent;
}
ssize_t sendmsg(int fd, const msghdr *msg, int flags) {
  static auto *const fn = real<ssize_t(int, const msghdr *, int)>("sendmsg");
  const bool counts = counted(fd);
  const ssize_t sent = fn(fd, msg, flags);
  if (counts) sends++, bytes_sent += std::max<ssize_t>(sent, 0);
  return sent;
}
ssize_t recv(int fd, void *data, size_t n, int flags) {
  static auto *const fn = real<ssize_t(int, void *, size_t, int)>("recv");
  const ssize_t got = fn(fd, data, n, flags);
  if (got > 0 && counted(fd)) received++;
  return got;
}
ssize_t recvmsg(int fd, msghdr *msg, int flags) {
  static auto *const fn = real<ssize_t(int, msghdr *, int)>("recvmsg");
  const ssize_t got = fn(fd, msg, flags);
  if (got > 0 && counted(fd)) received++;
  return got;
}
}
#endif

TEST_CASE("an all-reduce of a few bytes over sockets costs a rank one send and at most one successful receive") {
  if (!kCounts) return;
  ProcessOptions sockets;
  sockets.env = {"TUTTI_SHM_DISABLE=1"};
  CHECK(run_processes(
            2,
            [](Rank &r) {
              std::vector<float> x(2), y(2);
              const auto run = [&](int n) {
                for (int i = 0; i < n; ++i) {
                  x[0] = x[1] = static_cast<float>(i + r.rank);
                  EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), 2, tuttiFloat32, tuttiSum, r.comm, nullptr));
                  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                  EXPECT(r, y[0] == static_cast<float>(2 * i + 1));
                }
              };
              run(200); // connects, and both directions come to share a socket
              constexpr int times = 500;
              sends = received = 0;
              run(times);
              EXPECT(r, sends == times);
              EXPECT(r, received <= times);
            },
            sockets) == 0);
}

// The plugin puts 8 bytes before each buffer (its endpoint.h), and messages of more than 4 KiB are two: header and payload.
TEST_CASE("the bytes that a rank counts on the wire are those that its sockets take, but for the plugin's own 8 per buffer") {
  if (!kCounts) return;
  const auto body = [](Rank &r) {
    for (const size_t count : {2, 1000, 100'000}) {
      std::vector<float> x(count), y(count);
      const auto run = [&] {
        EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), count, tuttiFloat32, tuttiSum, r.comm, nullptr));
        EXPECT_OK(r, tuttiCommSynchronize(r.comm));
      };
      for (int i = 0; i < 20; i++) run(); // connects
      bytes_sent = 0;
      const Traffic t = traffic_of(r, [&] {
        for (int i = 0; i < 20; i++) run();
      });
      EXPECT(r, t.sent().bytes > 0);
      const int64_t buffers = t.sent().messages * (t.sent().bytes > 4096 * t.sent().messages ? 2 : 1);
      EXPECT(r, bytes_sent == t.sent().wire + 8 * buffers);
    }
  };
  CHECK(run_processes(2, body, {.env = {"TUTTI_SHM_DISABLE=1", "TUTTI_PLUGIN_NET_SOCKET_SOCKETS=1"}}) == 0);
}
