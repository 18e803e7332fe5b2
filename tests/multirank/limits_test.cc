#include "fair_time.h"
#include "operations.h"
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <new>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <thread>

using namespace support;

// Counts this thread's allocations.
static thread_local uint64_t allocations = 0;
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete" // both are replaced here, and pair
#endif
static thread_local int64_t refuse_after = INT64_MAX; // allocations of this thread
void *operator new(size_t n) {
  allocations++;
  if (refuse_after-- <= 0) throw std::bad_alloc();
  if (void *p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void *p) noexcept {
  std::free(p);
}
void operator delete(void *p, size_t) noexcept {
  std::free(p);
}

// Counts this thread's locks and what may enter the kernel, by standing before the C library. Sanitizers stand there already.
static thread_local uint64_t detours = 0;
#ifdef TUTTI_SANITIZED
constexpr bool kCountsDetours = false;
#else
constexpr bool kCountsDetours = true;
template <class F> static F *real(const char *name) {
  detours++;
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
extern "C" {
int pthread_mutex_lock(pthread_mutex_t *m) noexcept {
  static auto *const fn = real<int(pthread_mutex_t *)>("pthread_mutex_lock");
  detours++;
  return fn(m);
}
int sched_yield() noexcept {
  static auto *const fn = real<int()>("sched_yield");
  detours++;
  return fn();
}
int poll(pollfd *fds, nfds_t n, int ms) {
  static auto *const fn = real<int(pollfd *, nfds_t, int)>("poll");
  detours++;
  return fn(fds, n, ms);
}
int ppoll(pollfd *fds, nfds_t n, const timespec *limit, const sigset_t *mask) {
  static auto *const fn = real<int(pollfd *, nfds_t, const timespec *, const sigset_t *)>("ppoll");
  detours++;
  return fn(fds, n, limit, mask);
}
int nanosleep(const timespec *time, timespec *left) {
  static auto *const fn = real<int(const timespec *, timespec *)>("nanosleep");
  detours++;
  return fn(time, left);
}
long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long &x : a) x = va_arg(list, long);
  va_end(list);
  static auto *const fn = real<long(long, ...)>("syscall");
  detours++;
  return fn(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}
#endif

// None where the peer was late for long: it is asked what it does then, which takes memory.
template <class Fn> static uint64_t allocations_of(Fn &&fn) {
  const uint64_t before = allocations;
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1) ? allocations - before : 0;
}

TEST_CASE("a repeated operation allocates nothing") {
  CHECK(run_processes(2, [](Rank &r) {
          std::vector<float> x(256, 1), y(256);
          const auto once = [&](bool by_thread) {
            EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
            EXPECT_OK(r, by_thread ? tuttiStreamSynchronize(nullptr) : tuttiCommSynchronize(r.comm));
          };
          for (int i = 0; i < 300; i++) once(i % 2); // more than the queue is long
          uint64_t allocated = 0;
          for (int i = 0; i < 2000; i++) allocated += allocations_of([&] { once(i % 2); });
          EXPECT(r, allocated == 0);
        }) == 0);
}

TEST_CASE("a repeated operation whose peer is ready takes no lock and no system call") {
  // Without the progress thread: it may win an operation, or sleep and want waking, whenever the other ranks hold this one up.
  const ProcessOptions alone{.env = {"TUTTI_PROGRESS_THREAD=0"}};
  CHECK(run_processes(2, alone, [](Rank &r, const tuttiUniqueId &) {
          tuttiComm_t turns = nullptr; // keeps the order: a send finds room, a receive its message
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &turns, nullptr));
          const auto turn = [&] {
            int x = 1;
            EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, turns, nullptr));
            EXPECT_OK(r, tuttiCommSynchronize(turns));
          };
          std::vector<float> x(256, 1);
          uint64_t most = 0;
          for (int round = 0; round < 600; round++)
            for (int sender : {0, 1}) {
              const auto measured = [&](tuttiResult_t (*call)(tuttiComm_t, int, std::vector<float> &)) {
                const uint64_t before = detours;
                EXPECT_OK(r, call(r.comm, 1 - r.rank, x));
                EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                if (round >= 300) most = std::max(most, detours - before);
              };
              if (r.rank == sender)
                measured([](tuttiComm_t c, int to, std::vector<float> &v) {
                  return tuttiSend(v.data(), v.size(), tuttiFloat32, to, c, nullptr);
                });
              if (round > 0) turn(); // the first connects, which takes both
              if (r.rank != sender)
                measured([](tuttiComm_t c, int from, std::vector<float> &v) {
                  return tuttiRecv(v.data(), v.size(), tuttiFloat32, from, c, nullptr);
                });
              turn();
            }
          EXPECT(r, (most == 0 || !kCountsDetours));
          EXPECT_OK(r, tuttiCommDestroy(turns));
        }) == 0);
}

TEST_CASE("a repeated operation on a stream of the user allocates nothing") {
  CHECK(run_processes(2, [](Rank &r) {
          std::vector<float> x(256, 1), y(256);
          tuttiStream_t stream = nullptr;
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          const auto once = [&] {
            EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, stream));
            EXPECT_OK(r, tuttiStreamSynchronize(stream));
          };
          for (int i = 0; i < 300; i++) once();
          uint64_t allocated = 0;
          for (int i = 0; i < 300; i++) allocated += allocations_of(once);
          EXPECT(r, allocated == 0);
          EXPECT_OK(r, tuttiStreamDestroy(stream));
        }) == 0);
}
TEST_CASE("without memory a call returns an error, and no exception leaves it") {
  tuttiComm_t comm = nullptr;
  REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  int x = 1, y = 0, refused = 0;
  for (int64_t allowed = 0; allowed < 12; allowed++) {
    tuttiStream_t stream = nullptr;
    tuttiEvent_t event = nullptr;
    const auto without = [&](auto &&call) {
      refuse_after = allowed;
      const tuttiResult_t e = call();
      refuse_after = INT64_MAX;
      CHECK((e == tuttiSuccess || e == tuttiSystemError));
      refused += e != tuttiSuccess;
      return e;
    };
    without([&] { return tuttiStreamCreate(&stream); });
    without([&] { return tuttiEventCreate(&event); });
    CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
    CHECK(tuttiEventDestroy(event) == tuttiSuccess);
  }
  CHECK(refused > 0);
  refuse_after = 0; // an operation of a new kind needs memory
  CHECK(tuttiAllReduce(&x, &y, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiSystemError);
  refuse_after = INT64_MAX;
  CHECK(tuttiCommAbort(comm) == tuttiSuccess);
}

TEST_CASE("ever new patterns of sends and receives take no more memory than a few") {
  CHECK(run_processes(2, [](Rank &r) {
          const int peer = 1 - r.rank;
          uint64_t early = 0, late = 0;
          std::vector<int> out(1200), in(1200);
          const auto pattern = [&](size_t messages) {
            for (size_t i = 0; i < messages; i++) out[i] = static_cast<int>(messages * 7 + i);
            EXPECT_OK(r, tuttiGroupStart());
            for (size_t i = 0; i < messages; i++) {
              EXPECT_OK(r, tuttiSend(&out[i], 1, tuttiInt32, peer, r.comm, nullptr));
              EXPECT_OK(r, tuttiRecv(&in[i], 1, tuttiInt32, peer, r.comm, nullptr));
              EXPECT_OK(r, tuttiSend(&out[i], 1, tuttiInt32, r.rank, r.comm, nullptr)); // memory of the plan's own
              EXPECT_OK(r, tuttiRecv(&in[i], 1, tuttiInt32, r.rank, r.comm, nullptr));
            }
            EXPECT_OK(r, tuttiGroupEnd());
            EXPECT_OK(r, tuttiCommSynchronize(r.comm));
            for (size_t i = 0; i < messages; i++)
              if (!EXPECT(r, in[i] == out[i])) return;
          };
          for (size_t n = 1; n <= 260; n++) pattern(n);
          EXPECT_OK(r, tuttiCommMemory(r.comm, &early, nullptr));
          for (size_t n = 261; n <= 400; n++) pattern(n);
          EXPECT_OK(r, tuttiCommMemory(r.comm, &late, nullptr));
          EXPECT(r, late == early);
          for (size_t n = 1; n <= 20; n++) pattern(n); // what was forgotten comes back
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
  const FairTime time;
  std::atomic<bool> timely{true};
  CHECK(run_threads(
            64,
            [&](Rank &r) {
              if (time.seconds() > 3) timely = false;
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
          threads.reserve(n);
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
