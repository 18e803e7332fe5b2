// What the end of a rank does to many others, aborts, and what communicators leave behind.
#include "fair_time.h"
#include "recover.h"
#include <csignal>
#include <doctest/doctest.h>
#include <functional>
#include <malloc.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace support;

// ---- many ranks, threads in processes

namespace {

constexpr int kThreads = 8; // of each process

void in_threads(Rank &process, const tuttiUniqueId &id, const std::function<void(Rank &)> &fn) {
  std::vector<tuttiComm_t> comms(kThreads);
  EXPECT_OK(process, tuttiGroupStart());
  for (int i = 0; i < kThreads; i++)
    EXPECT_OK(process, tuttiCommInitRank(&comms[size_t(i)], process.n * kThreads, id, process.rank * kThreads + i));
  EXPECT_OK(process, tuttiGroupEnd());
  std::vector<std::thread> threads;
  std::vector<Rank> ranks;
  for (int i = 0; i < kThreads; i++) ranks.push_back({process.rank * kThreads + i, process.n * kThreads, comms[size_t(i)]});
  for (Rank &r : ranks) threads.emplace_back([&r, &fn] { fn(r); });
  for (auto &t : threads) t.join();
  for (const Rank &r : ranks) process.failures += r.failures;
}

// One rank fails; all others are out of what they wait for within a second.
void fails_for_all(Rank &process, const tuttiUniqueId &id, const std::function<void(Rank &)> &fault) {
  in_threads(process, id, [&](Rank &r) {
    EXPECT_OK(r, sums_right(r, r.comm, 100));
    if (r.rank == 11) EXPECT_OK(r, sums_right(r, r.comm, 100)); // so that all have left the first
    if (r.rank == 11) fault(r);
    if (!r.comm) return;
    const FairTime time;
    tuttiResult_t e = tuttiSuccess;
    while (e == tuttiSuccess) e = sums_right(r, r.comm, 100);
    EXPECT(r, e == tuttiRemoteError || e == tuttiInvalidUsage); // a call after a revoke
    EXPECT(r, time.seconds() < 1);
    says(r, last_error(r.comm), {"rank 11"});
    leave(r, r.comm);
  });
}

} // namespace

TEST_CASE("an error of one rank ends what 31 others wait for within a second: aborted, revoked, an argument in a group") {
  const auto run = [](const std::function<void(Rank &)> &fault) {
    return run_processes(4, {.init = false}, [&](Rank &r, const tuttiUniqueId &id) { fails_for_all(r, id, fault); });
  };
  const auto abort = [](Rank &r) { leave(r, std::exchange(r.comm, nullptr)); };
  CHECK(run(abort) == 0);
  CHECK(run([](Rank &r) { EXPECT_OK(r, tuttiCommRevoke(r.comm, 0)); }) == 0);
  CHECK(run([&](Rank &r) {
          float x = 1;
          EXPECT_OK(r, tuttiGroupStart());
          EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT(r, tuttiAllReduce(&x, &x, 1, tuttiDataType_t(77), tuttiSum, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiGroupEnd() == tuttiInvalidArgument); // nothing has begun, and the others wait
          abort(r);
        }) == 0);
}
TEST_CASE("a process of many ranks that is killed ends what all others wait for within a second, and they go on") {
  CHECK(run_processes(4, {.may_die = {1}, .init = false}, [](Rank &p, const tuttiUniqueId &id) {
          in_threads(p, id, [](Rank &r) {
            if (r.rank == 11) EXPECT_OK(r, sums_right(r, r.comm, 100)), raise(SIGKILL);
            tuttiResult_t e = tuttiSuccess;
            while (e == tuttiSuccess) {
              const FairTime time;
              e = sums_right(r, r.comm, 100);
              EXPECT(r, time.seconds() < 1);
            }
            EXPECT(r, e == tuttiRemoteError);
            tuttiComm_t next = nullptr;
            const FairTime time;
            EXPECT_OK(r, tuttiCommShrink(r.comm, nullptr, 0, &next, nullptr, 0));
            EXPECT(r, time.seconds() < 5);
            leave(r, r.comm);
            go_on(r, next, 3 * kThreads, r.rank < kThreads ? r.rank : r.rank - kThreads);
          });
        }) == 0);
}

// ---- aborts

TEST_CASE(
    "an abort from another thread is over within a second, during set-up, split and finalize, and only the first counts") {
  Watchdog dog("aborts", std::chrono::seconds(60));
  Rank boss{0, 2};
  const auto quick = [&](tuttiComm_t comm) {
    const FairTime time;
    std::thread other([&] { EXPECT_OK(boss, tuttiCommAbort(comm)); });
    other.join();
    EXPECT(boss, time.seconds() < 1);
    EXPECT(boss, tuttiCommAbort(comm) == tuttiInvalidArgument);
  };
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.blocking = 0;
  tuttiUniqueId id;
  tuttiComm_t alone = nullptr;
  EXPECT_OK(boss, tuttiGetUniqueId(&id)); // the other rank never comes
  EXPECT(boss, tuttiCommInitRankConfig(&alone, 2, id, 0, &config) == tuttiInProgress);
  quick(alone);
  for (const bool split : {true, false}) {
    tuttiComm_t comms[2], child = nullptr;
    REQUIRE(tuttiCommInitAll(comms, 2, nullptr) == tuttiSuccess);
    std::thread owner([&] { // waits for rank 1, which does not call
      const tuttiResult_t e = split ? tuttiCommSplit(comms[0], 0, 0, &child, nullptr) : tuttiCommFinalize(comms[0]);
      EXPECT(boss, e != tuttiSuccess);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    quick(comms[0]);
    owner.join();
    quick(comms[1]);
  }
  CHECK(boss.failures == 0);
}
TEST_CASE("an abort does not wait for a peer that is stopped") {
  for (const auto &env : kWays)
    CHECK(run_processes(2,
                        [](Rank &r) {
                          EXPECT_OK(r, sums_right(r, r.comm));
                          if (r.rank == 1) {
                            if (const pid_t self = getpid(); fork() == 0) {
                              std::this_thread::sleep_for(std::chrono::seconds(4));
                              kill(self, SIGCONT);
                              std::_Exit(0);
                            }
                            raise(SIGSTOP);
                            return leave(r, std::exchange(r.comm, nullptr));
                          }
                          std::this_thread::sleep_for(std::chrono::milliseconds(200));
                          std::vector<float> x(1 << 20, 1); // more than the links hold
                          EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
                          std::thread owner([comm = r.comm] { (void)tuttiCommSynchronize(comm); });
                          std::this_thread::sleep_for(std::chrono::milliseconds(200));
                          const FairTime time;
                          leave(r, std::exchange(r.comm, nullptr));
                          EXPECT(r, time.seconds() < 2);
                          owner.join();
                        },
                        {.env = env}) == 0);
}

static void come_and_go(int times, bool fail) {
  for (int i = 0; i < times; i++) {
    tuttiComm_t comms[3];
    REQUIRE(tuttiCommInitAll(comms, 3, nullptr) == tuttiSuccess);
    float x[3] = {1, 1, 1};
    tuttiGroupStart();
    for (int k = 0; k < 3; k++) tuttiAllReduce(&x[k], &x[k], 1, tuttiFloat32, tuttiSum, comms[k], nullptr);
    REQUIRE(tuttiGroupEnd() == tuttiSuccess);
    REQUIRE(tuttiStreamSynchronize(nullptr) == tuttiSuccess);
    if (fail && i % 3 == 0) REQUIRE(tuttiCommRevoke(comms[1], 0) == tuttiSuccess);
    if (fail && i % 3 == 1) {
      REQUIRE(tuttiCommAbort(comms[2]) == tuttiSuccess);
      comms[2] = nullptr;
    }
    if (fail && i % 3 == 2) {
      tuttiComm_t next[2] = {};
      const int two = 2;
      tuttiGroupStart();
      for (int k = 0; k < 2; k++) tuttiCommShrink(comms[k], &two, 1, &next[k], nullptr, TUTTI_SHRINK_ABORT);
      REQUIRE(tuttiGroupEnd() == tuttiSuccess);
      for (tuttiComm_t c : next) tuttiCommDestroy(c);
    }
    for (tuttiComm_t c : comms) tuttiCommDestroy(c);
  }
}
TEST_CASE("two hundred communicators that fail and end leave no descriptor, thread or memory") {
  Watchdog dog("come and go", std::chrono::seconds(100));
  come_and_go(20, true);
  const int fds = open_fds(), threads = live_threads();
  const auto held = mallinfo2().uordblks;
  come_and_go(200, true);
  // What ended last may be on its way out.
  for (int i = 0; i < 200 && (open_fds() > fds || live_threads() > threads); i++)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(open_fds() <= fds);
  CHECK(live_threads() <= threads);
  const auto now = mallinfo2().uordblks;
  CHECK(now < held + (1 << 20)); // 5 KiB each
}
