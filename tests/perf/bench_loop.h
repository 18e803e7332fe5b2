/* tests/perf/bench_loop.h: the one loop around every contender and bound of ./dev bench.
 * Two ranks, each its own process, meet in a mapped file: barrier, maximum over ranks, cache-line probe. Nothing of a contender
 * is used for that. Per block: probe, (write every input line, operate) x n, (write every input line) x n, probe; what is
 * reported is the difference per operation, the maximum over ranks. C11 and C++. */
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

enum { BENCH_FILE_BYTES = 64 << 20, BENCH_RANKS = 2, BENCH_LINE = 128 };

typedef struct bench_meet {
  char arrive[BENCH_RANKS][BENCH_LINE];
  char probe[BENCH_RANKS][BENCH_LINE];
  double value[BENCH_RANKS][16];
  char note[1024]; /* free for the contender: an id, a port */
  char pad[4096];
  char data[]; /* for bounds: slots and flags */
} bench_meet;

typedef struct bench {
  bench_meet *meet;
  int rank;
  uint64_t turn, probe_turn;
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

/* Every wait ends: a peer that died must not leave the other spinning. */
static inline void bench_wait(const void *at, uint64_t v) {
  for (uint64_t spins = 0; bench_get(at) < v; ++spins)
    if (spins % (1 << 20) == (1 << 20) - 1) {
      static double since = 0;
      if (since == 0) since = bench_now();
      if (bench_now() - since > 60e6) _exit(3);
    }
}
static inline void bench_barrier(bench *b) {
  bench_set(b->meet->arrive[b->rank], ++b->turn);
  bench_wait(b->meet->arrive[1 - b->rank], b->turn);
}
static inline double bench_max(bench *b, double v) {
  b->meet->value[b->rank][0] = v;
  bench_barrier(b);
  const double other = b->meet->value[1 - b->rank][0];
  bench_barrier(b);
  return v > other ? v : other;
}
/* One-way latency of a cache line between the two ranks' cores, ns. */
static inline double bench_probe(bench *b) {
  double best = 1e9;
  for (int burst = 0; burst < 5; ++burst) {
    bench_barrier(b);
    const double t0 = bench_now();
    for (int i = 0; i < 200; ++i) {
      const uint64_t v = ++b->probe_turn;
      if (b->rank == 0) {
        bench_set(b->meet->probe[0], v);
        bench_wait(b->meet->probe[1], v);
      } else {
        bench_wait(b->meet->probe[0], v);
        bench_set(b->meet->probe[1], v);
      }
    }
    const double ns = (bench_now() - t0) / 400 * 1e3;
    if (ns < best) best = ns;
  }
  return bench_max(b, best);
}
static inline char bench_class(double ns) {
  return ns < 35 ? 'S' : ns < 120 ? 'L' : 'X';
}

static inline int bench_open(bench *b, const char *path, int rank) {
  memset(b, 0, sizeof *b);
  b->rank = rank;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  b->meet = (bench_meet *)mmap(NULL, BENCH_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if ((void *)b->meet == MAP_FAILED) return -1;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((unsigned)rank, &set);
  return sched_setaffinity(0, sizeof set, &set);
}

/* sum over both ranks of `bytes` of float32 from in to out; 0 = done. */
typedef int (*bench_op)(void *ctx, const float *in, float *out, size_t count);

static inline void bench_write(float *in, size_t count, float v) {
  for (size_t i = 0; i < count; i += 16) in[i] = v;
  __asm__ volatile("" ::: "memory");
}

/* Prints one line per size and run: {"bytes": .., "us": .., "before": ns, "after": ns}. */
static inline int bench_run(bench *b, bench_op op, void *ctx, const char *sizes, int runs, double target_ms) {
  char list[512];
  snprintf(list, sizeof list, "%s", sizes);
  char *save = NULL;
  for (char *s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
    const size_t bytes = strtoull(s, NULL, 10), count = bytes / 4;
    float *in = NULL, *out = NULL;
    if (posix_memalign((void **)&in, 4096, bytes + 4096) || posix_memalign((void **)&out, 4096, bytes + 4096)) return 1;
    for (size_t i = 0; i < count; ++i) in[i] = (float)(b->rank + 1 + (int)(i % 7)), out[i] = -1;
    bench_barrier(b);
    if (op(ctx, in, out, count)) return 1;
    for (size_t i = 0; i < count; ++i)
      if (out[i] != (float)(3 + 2 * (int)(i % 7))) {
        fprintf(stderr, "rank %d: wrong result at %zu of %zu\n", b->rank, i, count);
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
    free(in);
    free(out);
  }
  return 0;
}
#endif
