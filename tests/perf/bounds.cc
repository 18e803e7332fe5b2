// tests/perf/bounds.cc: what the hardware allows, in the loop of bench_loop.h. bounds KIND MEET-FILE RANK SIZES RUNS TARGET-MS
//   staged-CHUNK  private buffers: each rank copies its input through shared slots of CHUNK bytes, 8 deep, and adds the peer's
//   tcp           one exchange of the whole vector over one loopback connection (cubic, polled), then one addition
#include "bench_loop.h"
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <vector>

namespace {

constexpr size_t depth = 8, slots_bytes = 8 << 20;

void add(float *out, const float *a, const float *b, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

struct Staged {
  bench *b;
  size_t chunk; // floats
  uint64_t base = 0;
  char *full(int rank) { return b->meet->data + rank * 4096; }         // slots that rank has filled
  char *taken(int rank) { return b->meet->data + 8192 + rank * 4096; } // slots that rank has read
  float *slot(int rank, uint64_t k) {
    return reinterpret_cast<float *>(b->meet->data + 16384 + static_cast<size_t>(rank) * slots_bytes) + k % depth * chunk;
  }
};

int staged(void *ctx, const float *in, float *out, size_t count) {
  Staged &s = *static_cast<Staged *>(ctx);
  const int me = s.b->rank, peer = 1 - me;
  const uint64_t chunks = (count + s.chunk - 1) / s.chunk;
  uint64_t sent = 0;
  for (uint64_t got = 0; got < chunks;) {
    while (sent < chunks && sent < got + depth / 2) {
      const uint64_t k = s.base + sent;
      if (k >= depth) bench_wait(s.taken(peer), k - depth + 1);
      const size_t at = sent * s.chunk, n = count - at < s.chunk ? count - at : s.chunk;
      memcpy(s.slot(me, k), in + at, n * 4);
      bench_set(s.full(me), k + 1);
      ++sent;
      if (bench_get(s.full(peer)) > s.base + got) break;
    }
    const uint64_t k = s.base + got;
    bench_wait(s.full(peer), k + 1);
    const size_t at = got * s.chunk, n = count - at < s.chunk ? count - at : s.chunk;
    add(out + at, in + at, s.slot(peer, k), n);
    bench_set(s.taken(me), k + 1);
    ++got;
  }
  s.base += chunks;
  return 0;
}

struct Tcp {
  int fd;
  std::vector<float> landing;
};

int tcp(void *ctx, const float *in, float *out, size_t count) {
  Tcp &t = *static_cast<Tcp *>(ctx);
  if (t.landing.size() < count) t.landing.resize(count);
  const char *s = reinterpret_cast<const char *>(in);
  char *r = reinterpret_cast<char *>(t.landing.data());
  constexpr size_t piece = 256 << 10;
  for (size_t tx = count * 4, rx = count * 4; tx || rx;) {
    if (tx) {
      const ssize_t k = send(t.fd, s, tx < piece ? tx : piece, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (k > 0)
        s += k, tx -= static_cast<size_t>(k);
      else if (errno != EAGAIN)
        return 1;
    }
    if (rx) {
      const ssize_t k = recv(t.fd, r, rx < piece ? rx : piece, MSG_DONTWAIT);
      if (k > 0)
        r += k, rx -= static_cast<size_t>(k);
      else if (k == 0 || errno != EAGAIN)
        return 1;
    }
  }
  add(out, in, t.landing.data(), count);
  return 0;
}

int connect_loopback(bench *b) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t len = sizeof a;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (b->rank == 0) {
    if (bind(fd, reinterpret_cast<sockaddr *>(&a), sizeof a) || listen(fd, 1)) return -1;
    getsockname(fd, reinterpret_cast<sockaddr *>(&a), &len);
    memcpy(b->meet->note, &a, sizeof a);
    bench_barrier(b);
    const int peer = accept(fd, nullptr, nullptr);
    close(fd);
    fd = peer;
  } else {
    bench_barrier(b);
    memcpy(&a, b->meet->note, sizeof a);
    if (connect(fd, reinterpret_cast<sockaddr *>(&a), sizeof a)) return -1;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); // stays with the system's where there is none
  return fd;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 7) return 2;
  bench b;
  if (bench_open(&b, argv[2], atoi(argv[3]))) return 2;
  const int runs = atoi(argv[5]);
  const double target = atof(argv[6]);
  if (strncmp(argv[1], "staged-", 7) == 0) {
    Staged s{&b, static_cast<size_t>(atoi(argv[1] + 7)) / 4};
    if (s.chunk == 0 || s.chunk * 4 * depth > slots_bytes) return 2;
    return bench_run(&b, staged, &s, argv[4], runs, target);
  }
  Tcp t{connect_loopback(&b), {}};
  return t.fd < 0 ? 1 : bench_run(&b, tcp, &t, argv[4], runs, target);
}
