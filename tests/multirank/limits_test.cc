#include "operations.h"
#include <atomic>
#include <cstdlib>
#include <doctest/doctest.h>
#include <new>
#include <sys/resource.h>
#include <thread>

using namespace support;
using Clock = std::chrono::steady_clock;

// Counts this thread's allocations.
static thread_local uint64_t allocations = 0;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete" // both are replaced here, and pair
#endif
void *operator new(size_t n) {
  allocations++;
  if (void *p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void *p) noexcept {
  std::free(p);
}
void operator delete(void *p, size_t) noexcept {
  std::free(p);
}

TEST_CASE("a repeated operation allocates nothing") {
  CHECK(run_processes(2, [](Rank &r) {
          std::vector<float> x(256, 1), y(256);
          const auto once = [&] {
            EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
            EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          };
          for (int i = 0; i < 300; i++) once(); // more than the queue is long
          uint64_t made = 0;
          for (int i = 0; i < 1000; i++) {
            const uint64_t before = allocations;
            const auto start = Clock::now();
            once();
            // A wait of a millisecond and more notes whom it waits for, which may allocate.
            if (Clock::now() - start < std::chrono::milliseconds(1)) made += allocations - before;
          }
          if (!EXPECT(r, made == 0)) std::fprintf(stderr, "%llu allocations\n", static_cast<unsigned long long>(made));
        }) == 0);
}

TEST_CASE("eight ranks with messages up to 64 KiB take at most 64 MiB") {
  CHECK(run_processes(8, [](Rank &r) {
          for (Coll c : kAllColls)
            for (size_t bytes : {8ul, 1000ul, 8192ul, 65'536ul})
              run_case(r, {c, tuttiUint8, tuttiSum,
                           bytes / (c == Coll::all_reduce || c == Coll::reduce || c == Coll::broadcast || c == Coll::send_recv
                                        ? 1
                                        : 8)});
          uint64_t mine = 0, all = 0;
          EXPECT_OK(r, tuttiCommMemory(r.comm, &mine, nullptr));
          EXPECT_OK(r, tuttiAllReduce(&mine, &all, 1, tuttiUint64, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          if (!EXPECT(r, all <= 64ull << 20)) std::fprintf(stderr, "%llu bytes\n", static_cast<unsigned long long>(all));
          if (r.rank == 0)
            std::fprintf(stderr, "library memory of 8 ranks: %llu KiB\n", static_cast<unsigned long long>(all >> 10));
        }) == 0);
}

TEST_CASE("eight ranks work with 256 file descriptors each") {
  CHECK(run_processes(8, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          const rlimit few{256, 256};
          EXPECT(r, setrlimit(RLIMIT_NOFILE, &few) == 0);
          if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) run_all(r, {10, 10'000}, false);
        }) == 0);
}

TEST_CASE("sixty-four threads start within three seconds and finish every operation") {
  const auto start = Clock::now();
  std::atomic<bool> timely{true};
  CHECK(run_threads(
            64,
            [&](Rank &r) {
              if (Clock::now() - start > std::chrono::seconds(3)) timely = false;
              for (Coll c : kAllColls) run_case(r, {c, tuttiInt32, tuttiSum, 100});
            },
            std::chrono::seconds(110)) == 0);
  CHECK(timely);
}

TEST_CASE("thirty-two processes finish every operation") {
  CHECK(run_processes(32,
                      [](Rank &r) {
                        for (Coll c : kAllColls) run_case(r, {c, tuttiInt32, tuttiSum, 100});
                      },
                      {.limit = std::chrono::seconds(110)}) == 0);
}

TEST_CASE("nothing is left of destroyed communicators") {
  const auto once = [] { return run_threads(3, [](Rank &r) { run_all(r, {10}, false); }); };
  CHECK(once() == 0); // the service threads of the process stay
  const int fds = open_fds(), threads = live_threads();
  for (int i = 0; i < 3; i++) CHECK(once() == 0);
  CHECK(open_fds() <= fds);
  CHECK(live_threads() <= threads);
}

TEST_CASE("eight communicators used from threads in different orders do not deadlock") {
  CHECK(run_processes(3, [](Rank &r) {
          constexpr int n = 8;
          std::vector<tuttiComm_t> comms(n);
          for (auto &c : comms) EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &c, nullptr));
          const auto one = [&](tuttiComm_t c, int times) {
            Rank mine{r.rank, r.n, c};
            for (int i = 0; i < times; i++) run_case(mine, {Coll::all_reduce, tuttiInt64, tuttiSum, 3000});
            return mine.failures;
          };
          std::atomic<int> failures{0};
          std::vector<std::thread> threads;
          for (int i = 0; i < n; i++)
            threads.emplace_back([&, i] { failures += one(comms[static_cast<size_t>((i + r.rank * 3) % n)], 5); });
          for (auto &t : threads) t.join();
          // One thread, enqueued in another order on each rank.
          std::vector<std::vector<double>> x(n, std::vector<double>(20'000, 1));
          for (int i = 0; i < n; i++) {
            const auto k = static_cast<size_t>((i * 3 + r.rank) % n);
            EXPECT_OK(r, tuttiAllReduce(x[k].data(), x[k].data(), x[k].size(), tuttiFloat64, tuttiSum, comms[k], nullptr));
          }
          for (int i = 0; i < n; i++) {
            const auto k = static_cast<size_t>((i + r.rank) % n);
            EXPECT_OK(r, tuttiCommSynchronize(comms[k]));
            EXPECT(r, x[k].back() == r.n);
          }
          EXPECT(r, failures == 0);
          for (auto c : comms) EXPECT_OK(r, tuttiCommDestroy(c));
        }) == 0);
}
