/* tests/perf/bench_loop.h: the one loop around every contender and bound of ./dev bench.
 * Two to eight ranks, each its own process, meet in a mapped file: barrier, maximum over ranks, cache-line probe. Nothing of a
 * contender is used for that. Per block: probe, (write every input line, operate) x n, (write every input line) x n, probe;
 * what is reported is the difference per operation, the maximum over ranks. C11 and C++. */
#ifndef TUTTI_BENCH_LOOP_H
#define TUTTI_BENCH_LOOP_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BENCH_FILE_BYTES = 64 << 20, BENCH_MAX_RANKS = 8, BENCH_LINE = 128, BENCH_PROBED = 16 };

typedef struct bench_meet {
  char arrive[BENCH_MAX_RANKS][BENCH_LINE];
  char probe[2][BENCH_PROBED][4096 + BENCH_LINE];
  double value[BENCH_MAX_RANKS][16];
  char note[1024]; /* free for the contender: an id, a port */
  char pad[4096];
  char data[]; /* for bounds: slots and flags */
} bench_meet;

typedef struct bench {
  bench_meet *meet;
  int rank, ranks;
  uint64_t turn, probe_turn;
  void *(*take)(struct bench *, size_t); /* memory for the buffers; NULL = private memory */
  void (*give)(struct bench *, void *, size_t);
} bench;

static inline double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
static inline void bench_set(void *at, uint64_t v) {
  __atomic_store_n((uint64_t *)at, v, __ATOMIC_RELEASE);
}
static inline uint64_t bench_get(const void *at) {
  return __atomic_load_n((const uint64_t *)at, __ATOMIC_ACQUIRE);
}

/* Every wait ends: a peer that died must not leave the others spinning. With more ranks than cores it lets others run. */
static inline void bench_wait(const bench *b, const void *at, uint64_t v) {
  double since = 0;
  for (uint64_t spins = 1; bench_get(at) < v; ++spins) {
    if (b->ranks > 2 && spins % 64 == 0) spins < 4096 ? (void)sched_yield() : (void)usleep(20);
    if (spins % (b->ranks > 2 ? 1 << 12 : 1 << 20) != 0) continue;
    if (since == 0) since = bench_now();
    if (bench_now() - since > 60e6) _exit(3);
  }
}
static inline void bench_barrier(bench *b) {
  bench_set(b->meet->arrive[b->rank], ++b->turn);
  for (int r = 0; r < b->ranks; ++r) bench_wait(b, b->meet->arrive[r], b->turn);
}
static inline double bench_max(bench *b, double v) {
  b->meet->value[b->rank][0] = v;
  bench_barrier(b);
  for (int r = 0; r < b->ranks; ++r)
    if (b->meet->value[r][0] > v) v = b->meet->value[r][0];
  bench_barrier(b);
  return v;
}
/* One-way latency of a cache line between the cores of ranks 0 and 1, ns. Over several lines: on a mesh it depends on where a
 * line's home is, so that one line would put the same cores now into this class and now into that. */
static inline double bench_probe(bench *b) {
  double best = 1e9;
  for (int burst = 0; burst < 5; ++burst) {
    bench_barrier(b);
    const double t0 = bench_now();
    for (int i = 0; i < 200 && b->rank < 2; ++i) {
      const uint64_t v = ++b->probe_turn;
      if (b->rank == 0) bench_set(b->meet->probe[0][i % BENCH_PROBED], v);
      while (bench_get(b->meet->probe[1 - b->rank][i % BENCH_PROBED]) < v) {
      }
      if (b->rank == 1) bench_set(b->meet->probe[1][i % BENCH_PROBED], v);
    }
    const double ns = b->rank < 2 ? (bench_now() - t0) / 400 * 1e3 : 0;
    if (ns < best) best = ns;
  }
  return bench_max(b, best);
}
static inline int bench_open(bench *b, const char *path, int rank, int ranks) {
  memset(b, 0, sizeof *b);
  if (rank < 0 || ranks < 2 || ranks > BENCH_MAX_RANKS || rank >= ranks) return -1;
  b->rank = rank;
  b->ranks = ranks;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  b->meet = (bench_meet *)mmap(NULL, BENCH_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if ((void *)b->meet == MAP_FAILED) return -1;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((unsigned)(rank % sysconf(_SC_NPROCESSORS_ONLN)), &set);
  return sched_setaffinity(0, sizeof set, &set);
}

/* One operation on float32; `count` is the larger of a rank's two buffers. A broadcast is in place, from `in` of rank 0 to
 * `out` of the others. 0 = done. */
typedef int (*bench_op)(void *ctx, const float *in, float *out, size_t count);

static inline float bench_input(int rank, size_t i) {
  return (float)(rank + 1 + (int)(i % 7));
}
/* What rank `me` must find at out[i]; -1 = nothing. */
static inline float bench_expected(const char *op, int me, int ranks, size_t count, size_t i) {
  const size_t block = count / (size_t)ranks;
  const float sum = (float)(ranks * (ranks + 1) / 2);
  if (strcmp(op, "all_reduce") == 0) return sum + (float)ranks * (float)(i % 7);
  if (strcmp(op, "reduce") == 0) return me == 0 ? sum + (float)ranks * (float)(i % 7) : -1;
  if (strcmp(op, "broadcast") == 0) return me == 0 ? -1 : bench_input(0, i);
  if (strcmp(op, "all_gather") == 0) return bench_input((int)(i / block), i % block);
  if (strcmp(op, "alltoall") == 0) return bench_input((int)(i / block), (size_t)me * block + i % block);
  return i < block ? sum + (float)ranks * (float)(((size_t)me * block + i) % 7) : -1; /* reduce_scatter */
}

static inline void bench_write(float *in, size_t count, float v) {
  for (size_t i = 0; i < count; i += 16) in[i] = v;
  __asm__ volatile("" ::: "memory");
}

static inline float *bench_take(bench *b, size_t bytes) {
  void *p = NULL;
  if (b->take) return (float *)b->take(b, bytes);
  return posix_memalign(&p, 4096, bytes) ? NULL : (float *)p;
}
static inline void bench_give(bench *b, float *p, size_t bytes) {
  if (b->give)
    b->give(b, p, bytes);
  else
    free(p);
}

/* Prints one line per size and run: {"bytes": .., "us": .., "before": ns, "after": ns}. */
static inline int bench_run(bench *b, const char *name, bench_op op, void *ctx, const char *sizes, int runs, double target_ms) {
  char list[512];
  snprintf(list, sizeof list, "%s", sizes);
  char *save = NULL;
  for (char *s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
    const size_t bytes = strtoull(s, NULL, 10), count = bytes / 4;
    float *in = bench_take(b, bytes + 4096), *out = bench_take(b, bytes + 4096);
    if (!in || !out) return 1;
    for (size_t i = 0; i < count; ++i) in[i] = bench_input(b->rank, i), out[i] = -1;
    bench_barrier(b);
    if (op(ctx, in, out, count)) return 1;
    for (size_t i = 0; i < count; ++i)
      if (out[i] != bench_expected(name, b->rank, b->ranks, count, i)) {
        fprintf(stderr, "rank %d: %s: wrong result at %zu of %zu\n", b->rank, name, i, count);
        return 1;
      }
    int n = 2;
    for (double t = 0; t < target_ms * 250 && n < 400000; n *= 2) { /* doubles until a quarter of the target is reached */
      bench_barrier(b);
      const double t0 = bench_now();
      for (int i = 0; i < n; ++i) {
        bench_write(in, count, (float)i);
        if (op(ctx, in, out, count)) return 1;
      }
      t = bench_max(b, bench_now() - t0);
    }
    for (int r = 0; r < runs; ++r) {
      const double before = bench_probe(b);
      bench_barrier(b);
      double t0 = bench_now();
      for (int i = 0; i < n; ++i) {
        bench_write(in, count, (float)i);
        if (op(ctx, in, out, count)) return 1;
      }
      const double with = bench_max(b, bench_now() - t0);
      bench_barrier(b);
      t0 = bench_now();
      for (int i = 0; i < n; ++i) bench_write(in, count, (float)i);
      const double without = bench_max(b, bench_now() - t0);
      const double after = bench_probe(b);
      if (b->rank == 0)
        printf("{\"bytes\": %zu, \"us\": %.4f, \"before\": %.1f, \"after\": %.1f}\n", bytes, (with - without) / n, before,
               after);
    }
    fflush(stdout);
    bench_barrier(b);
    bench_give(b, in, bytes + 4096);
    bench_give(b, out, bytes + 4096);
  }
  return 0;
}
#endif
