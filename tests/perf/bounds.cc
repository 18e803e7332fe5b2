// tests/perf/bounds.cc: what the hardware allows, in the loop of bench_loop.h. bounds KIND MEET-FILE RANK SIZES RUNS TARGET-MS
// clang-format off
//   slot                one message of up to 64 KiB in a slot whose first line carries the flag, 64 slots deep: one exchange
//   staged-CHUNK-DEPTH  private buffers: each rank copies its input through shared slots and adds the peer's
//   halves-CHUNK-DEPTH  reduce-scatter and all-gather: a rank adds one half and writes the result to its output and to a slot
//   ...-nt              the output goes past the caches
//   mapped-CHUNK        buffers that the peer maps: a rank adds one half of both inputs and copies the half the peer added
//   mapped-CHUNK-1      ... adds both inputs, all of it
//   tcp-PIECE           one exchange of the whole vector over one loopback connection (cubic, polled), added as it comes
// clang-format on
#include "bench_loop.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <utility>
#include <vector>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace {

constexpr size_t region_bytes = 14 << 20; // of one rank's slots
constexpr size_t ahead = 512;             // floats: what costs is taking a slot's lines back from the peer's cache

void fetch(float *p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1, 3);
#endif
}
#if defined(__AVX512F__)
using Vec = __m512;
Vec load(const float *p) {
  return _mm512_loadu_ps(p);
}
void store(float *p, Vec v) {
  _mm512_storeu_ps(p, v);
}
void stream(float *p, Vec v) {
  _mm512_stream_ps(p, v);
}
Vec plus(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
#elif defined(__AVX__)
using Vec = __m256;
Vec load(const float *p) {
  return _mm256_loadu_ps(p);
}
void store(float *p, Vec v) {
  _mm256_storeu_ps(p, v);
}
void stream(float *p, Vec v) {
  _mm256_stream_ps(p, v);
}
Vec plus(Vec a, Vec b) {
  return _mm256_add_ps(a, b);
}
#else
using Vec = float;
Vec load(const float *p) {
  return *p;
}
void store(float *p, Vec v) {
  *p = v;
}
void stream(float *p, Vec v) {
  *p = v;
}
Vec plus(Vec a, Vec b) {
  return a + b;
}
#endif
constexpr size_t lanes = sizeof(Vec) / sizeof(float), // NOLINT(bugprone-sizeof-expression): a vector, or one float
    step = 64;                                        // floats; outputs are aligned by the loop

void copy(float *to, const float *from, size_t n) { // into a slot
  for (size_t k = 0; k < std::min(n, ahead); k += 16) fetch(to + k);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    if (i + ahead < n)
      for (size_t k = 0; k < step; k += 16) fetch(to + i + ahead + k);
    for (size_t k = 0; k < step; k += lanes) store(to + i + k, load(from + i + k));
  }
  for (; i < n; ++i) to[i] = from[i];
}
template <bool NT> void take(float *to, const float *from, size_t n) {
  size_t i = 0;
  for (; i + step <= n; i += step)
    for (size_t k = 0; k < step; k += lanes)
      NT ? stream(to + i + k, load(from + i + k)) : store(to + i + k, load(from + i + k));
  for (; i < n; ++i) to[i] = from[i];
}
template <bool NT> void add(float *out, const float *a, const float *b, size_t n) {
  size_t i = 0;
  for (; i + step <= n; i += step)
    for (size_t k = 0; k < step; k += lanes) {
      const Vec v = plus(load(a + i + k), load(b + i + k));
      NT ? stream(out + i + k, v) : store(out + i + k, v);
    }
  for (; i < n; ++i) out[i] = a[i] + b[i];
}
template <bool NT> void add2(float *out, float *slot, const float *a, const float *b, size_t n) {
  for (size_t k = 0; k < std::min(n, ahead); k += 16) fetch(slot + k);
  size_t i = 0;
  for (; i + step <= n; i += step) {
    if (i + ahead < n)
      for (size_t k = 0; k < step; k += 16) fetch(slot + i + ahead + k);
    for (size_t k = 0; k < step; k += lanes) {
      const Vec v = plus(load(a + i + k), load(b + i + k));
      NT ? stream(out + i + k, v) : store(out + i + k, v);
      store(slot + i + k, v);
    }
  }
  for (; i < n; ++i) out[i] = slot[i] = a[i] + b[i];
}

// A FIFO of one direction in the mapped file. The flag of a slot sits in its first line.
struct Fifo {
  char *slots = nullptr, *taken = nullptr; // `taken`: slots that the reader has done with, on a line of its own
  size_t stride = 0;
  uint64_t depth = 0, seq = 0, credit = 0;
  char *slot() { return slots + seq % depth * stride; }
  float *data() { return reinterpret_cast<float *>(slot() + 64); }
  bool room() { return seq - credit < depth || (credit = bench_get(taken), seq - credit < depth); }
  void publish() { bench_set(slot() + 56, seq + 1), ++seq; }
  bool ready() { return bench_get(slot() + 56) == seq + 1; }
  void consume() {
    ++seq;
    if (seq % std::max<uint64_t>(1, depth / 4) == 0) bench_set(taken, seq);
  }
};
struct Staged {
  bench *b;
  size_t chunk; // floats
  Fifo in[2], out[2];
};
Fifo fifo(bench *b, int writer, int which, size_t chunk_bytes, uint64_t depth) {
  Fifo f;
  f.taken = b->meet->data + (writer * 2 + which) * 4096;
  f.stride = (chunk_bytes + 64 + 127) / 128 * 128 + 128;
  f.slots = b->meet->data + 65536 + static_cast<size_t>(writer * 2 + which) * region_bytes;
  f.depth = depth;
  return f;
}

int slot(void *ctx, const float *in, float *out, size_t n) {
  Staged &s = *static_cast<Staged *>(ctx);
  Fifo &w = s.out[0], &r = s.in[0];
  const bool small = n <= 14; // beside the flag
  while (!w.room()) {
  }
  float *to = small ? reinterpret_cast<float *>(w.slot()) : w.data();
  if (small)
    for (size_t i = 0; i < n; ++i) to[i] = in[i];
  else
    copy(to, in, n);
  w.publish();
  while (!r.ready()) {
  }
  const float *from = small ? reinterpret_cast<float *>(r.slot()) : r.data();
  if (small)
    for (size_t i = 0; i < n; ++i) out[i] = in[i] + from[i];
  else
    add<false>(out, in, from, n);
  r.consume();
  return 0;
}

template <bool NT> int staged(void *ctx, const float *in, float *out, size_t count) {
  Staged &s = *static_cast<Staged *>(ctx);
  const uint64_t chunks = (count + s.chunk - 1) / s.chunk;
  const auto length = [&](uint64_t k) { return std::min(s.chunk, count - k * s.chunk); };
  for (uint64_t got = 0, sent = 0; got < chunks;) {
    if (s.in[0].ready()) {
      const size_t from = got * s.chunk;
      add<NT>(out + from, in + from, s.in[0].data(), length(got));
      s.in[0].consume(), ++got;
    } else if (sent < chunks && s.out[0].room()) {
      copy(s.out[0].data(), in + sent * s.chunk, length(sent));
      s.out[0].publish(), ++sent;
    }
    if (sent < chunks && sent <= got && s.out[0].room()) {
      copy(s.out[0].data(), in + sent * s.chunk, length(sent));
      s.out[0].publish(), ++sent;
    }
  }
#if defined(__SSE2__)
  if (NT) _mm_sfence();
#endif
  return 0;
}

template <bool NT> int halves(void *ctx, const float *in, float *out, size_t count) {
  Staged &s = *static_cast<Staged *>(ctx);
  const size_t half = std::min(count, (count / 2 + 15) / 16 * 16), mine = s.b->rank ? half : 0, theirs = s.b->rank ? 0 : half;
  const size_t mine_n = s.b->rank ? count - half : half, their_n = count - mine_n;
  size_t sent = 0, added = 0, got = 0;
  while (added < mine_n || got < their_n) {
    if (got < their_n && s.in[1].ready()) {
      const size_t n = std::min(s.chunk, their_n - got);
      take<NT>(out + theirs + got, s.in[1].data(), n);
      s.in[1].consume(), got += n;
    }
    if (added < mine_n && s.in[0].ready() && s.out[1].room()) {
      const size_t n = std::min(s.chunk, mine_n - added);
      add2<NT>(out + mine + added, s.out[1].data(), in + mine + added, s.in[0].data(), n);
      s.out[1].publish(), s.in[0].consume(), added += n;
    }
    if (sent < their_n && s.out[0].room()) {
      const size_t n = std::min(s.chunk, their_n - sent);
      copy(s.out[0].data(), in + theirs + sent, n);
      s.out[0].publish(), sent += n;
    }
  }
#if defined(__SSE2__)
  if (NT) _mm_sfence();
#endif
  return 0;
}

// Both ranks' buffers, mapped by both. Buffers are taken in the order in, out.
struct Mapped : bench {
  size_t chunk = 0; // floats
  int fd[2] = {-1, -1};
  float *peers[2] = {nullptr, nullptr};
  int taken = 0;
  uint64_t turn_of_op = 0;
  uint64_t *word(int of, int which) { return reinterpret_cast<uint64_t *>(meet->data + (of * 2 + which) * 4096); }
};
void *take_mapped(bench *b, size_t bytes) {
  Mapped &m = *static_cast<Mapped *>(b);
  const int which = m.taken++ % 2, mine = memfd_create("bench", MFD_CLOEXEC);
  if (mine < 0 || ftruncate(mine, static_cast<off_t>(bytes))) return nullptr;
  const int at[2] = {getpid(), mine};
  memcpy(b->meet->note + 16 * b->rank, at, sizeof at);
  bench_barrier(b);
  int peer[2];
  memcpy(peer, b->meet->note + 16 * (1 - b->rank), sizeof peer);
  const std::string path = "/proc/" + std::to_string(peer[0]) + "/fd/" + std::to_string(peer[1]);
  const int theirs = open(path.c_str(), O_RDWR | O_CLOEXEC);
  bench_barrier(b); // both are open
  void *own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mine, 0);
  void *other = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, theirs, 0);
  close(mine);
  close(theirs);
  m.peers[which] = static_cast<float *>(other);
  return own == MAP_FAILED || other == MAP_FAILED ? nullptr : own;
}
void give_mapped(bench *b, void *p, size_t bytes) {
  Mapped &m = *static_cast<Mapped *>(b);
  munmap(p, bytes);
  for (float *&peer : m.peers)
    if (peer) {
      munmap(std::exchange(peer, nullptr), bytes);
      return;
    }
}
int mapped_whole(void *ctx, const float *in, float *out, size_t count) {
  Mapped &m = *static_cast<Mapped *>(ctx);
  const uint64_t turn = ++m.turn_of_op;
  const int me = m.rank, peer = 1 - me;
  bench_set(m.word(me, 0), turn);
  while (bench_get(m.word(peer, 0)) < turn) {
  }
  add<false>(out, in, m.peers[0], count);
  bench_set(m.word(me, 1), turn);
  while (bench_get(m.word(peer, 1)) < turn) {
  }
  return 0;
}
int mapped_halves(void *ctx, const float *in, float *out, size_t count) {
  Mapped &m = *static_cast<Mapped *>(ctx);
  const int me = m.rank, peer = 1 - me;
  const size_t half = std::min(count, (count / 2 + 15) / 16 * 16), mine = me ? half : 0, theirs = me ? 0 : half;
  const size_t mine_n = me ? count - half : half, their_n = count - mine_n;
  const uint64_t base = m.turn_of_op += count + 2; // words count what is done
  bench_set(m.word(me, 0), base);
  while (bench_get(m.word(peer, 0)) < base) {
  }
  size_t added = 0, got = 0;
  while (added < mine_n || got < their_n) {
    if (added < mine_n) {
      const size_t n = std::min(m.chunk, mine_n - added);
      add<false>(out + mine + added, in + mine + added, m.peers[0] + mine + added, n);
      added += n;
      bench_set(m.word(me, 0), base + added);
    }
    const uint64_t there = bench_get(m.word(peer, 0)) - base;
    while (got < their_n && (there >= std::min(their_n, got + m.chunk))) {
      const size_t n = std::min(m.chunk, their_n - got);
      take<false>(out + theirs + got, m.peers[1] + theirs + got, n);
      got += n;
    }
  }
  bench_set(m.word(me, 1), base);
  while (bench_get(m.word(peer, 1)) < base) {
  }
  return 0;
}

struct Tcp {
  int fd;
  size_t piece; // bytes
  std::vector<float> landing;
};

int tcp(void *ctx, const float *in, float *out, size_t count) {
  Tcp &t = *static_cast<Tcp *>(ctx);
  if (t.landing.size() < count) t.landing.resize(count);
  const char *s = reinterpret_cast<const char *>(in);
  char *const r = reinterpret_cast<char *>(t.landing.data());
  const size_t bytes = count * 4;
  for (size_t tx = 0, rx = 0, added = 0; tx < bytes || rx < bytes;) {
    if (tx < bytes) {
      const ssize_t k = send(t.fd, s + tx, std::min(bytes - tx, t.piece), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (k > 0)
        tx += static_cast<size_t>(k);
      else if (errno != EAGAIN)
        return 1;
    }
    if (rx < bytes) {
      const ssize_t k = recv(t.fd, r + rx, std::min(bytes - rx, t.piece), MSG_DONTWAIT);
      if (k > 0)
        rx += static_cast<size_t>(k);
      else if (k == 0 || errno != EAGAIN)
        return 1;
      const size_t whole = rx / 4;
      add<false>(out + added, in + added, t.landing.data() + added, whole - added);
      added = whole;
    }
  }
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
  if (bench_open(&b, argv[2], atoi(argv[3]), 2)) return 2;
  const int runs = atoi(argv[5]);
  const double target = atof(argv[6]);
  char kind[16] = "", flag[8] = "";
  unsigned chunk = 65536, depth = 64;
  if (sscanf(argv[1], "%15[a-z]-%u-%u-%7s", kind, &chunk, &depth, flag) < 1 || chunk < 64) return 2;
  const std::string name = kind;
  if (name == "tcp") {
    Tcp t{connect_loopback(&b), chunk, {}};
    return t.fd < 0 ? 1 : bench_run(&b, "all_reduce", tcp, &t, argv[4], runs, target);
  }
  if (name == "mapped") {
    Mapped m;
    static_cast<bench &>(m) = b;
    m.chunk = chunk / 4;
    m.take = take_mapped, m.give = give_mapped;
    return bench_run(&m, "all_reduce", depth == 1 ? mapped_whole : mapped_halves, &m, argv[4], runs, target);
  }
  if (depth < 2 || (chunk + 256) * depth > region_bytes) return 2;
  const int me = b.rank, peer = 1 - me;
  Staged s{&b,
           chunk / 4,
           {fifo(&b, peer, 0, chunk, depth), fifo(&b, peer, 1, chunk, depth)},
           {fifo(&b, me, 0, chunk, depth), fifo(&b, me, 1, chunk, depth)}};
  const bool nt = flag[0] != 0;
  const bench_op op = name == "slot"     ? slot
                      : name == "staged" ? (nt ? staged<true> : staged<false>)
                                         : (nt ? halves<true> : halves<false>);
  return bench_run(&b, "all_reduce", op, &s, argv[4], runs, target);
}
