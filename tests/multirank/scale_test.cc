// Many ranks: how long set-up takes, what it holds, and whether an operation over all of them is right.
#include "ranks.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <doctest/doctest.h>
#include <fstream>
#include <sys/resource.h>
#include <thread>

using namespace support;

namespace {

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * 4096 / (1 << 20);
}

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct Held {
  double seconds = 0, cpu = 0, mib = 0;
  int fds = 0;
};

// `threads` ranks of this process, each in a thread of its own: set up, one sum over all, and the end.
void ranks_of_process(Rank &process, const tuttiUniqueId &id, int threads, Held *held) {
  const int n = process.n * threads;
  const double before = resident_mib();
  const double cpu_before = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  std::atomic<int> failures{0};
  std::barrier all(threads, [&]() noexcept {
    if (held->fds == 0)
      *held = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), cpu_seconds() - cpu_before,
               resident_mib() - before, open_fds()};
  });
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; t++)
    workers.emplace_back([&, t] {
      Rank r{process.rank * threads + t, n};
      const bool up = EXPECT_OK(r, tuttiCommInitRank(&r.comm, n, id, r.rank));
      all.arrive_and_wait();
      int x = 1;
      if (up && EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, r.comm, nullptr))) {
        EXPECT_OK(r, tuttiCommSynchronize(r.comm));
        EXPECT(r, x == n);
      }
      if (up) EXPECT_OK(r, tuttiCommDestroy(r.comm));
      failures += r.failures;
    });
  for (auto &w : workers) w.join();
  process.failures += failures;
}

void report(const Rank &process, int threads, const Held &held) {
  if (process.rank == 0)
    std::printf("%d ranks in %d processes: set up in %.1f s; of one process %.1f s of a core, %.0f MiB, %d descriptors\n",
                process.n * threads, process.n, held.seconds, held.cpu, held.mib, held.fds);
}

} // namespace

TEST_CASE("hundreds of thread ranks in four processes are set up with few descriptors and little memory: 256, or 512 with "
          "TEST_FULL") {
  const int threads = full() ? 128 : 64;
  CHECK(run_processes(4, {.env = {"TUTTI_ALGO=tree"}, .limit = std::chrono::seconds(240), .init = false},
                      [threads](Rank &process, const tuttiUniqueId &id) {
                        const rlimit usual{1024, 1024};
                        EXPECT(process, setrlimit(RLIMIT_NOFILE, &usual) == 0);
                        Held held;
                        ranks_of_process(process, id, threads, &held);
                        EXPECT(process, held.fds < 100);
#ifndef TUTTI_SANITIZED // whose own memory it would be
                        EXPECT(process, held.mib < 8 * threads);
#endif
                        report(process, threads, held);
                      }) == 0);
}
