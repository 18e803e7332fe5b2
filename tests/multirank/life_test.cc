// From set-up to the end of communicators: non-blocking calls, aborts, splits, misuse.
#include "fair_time.h"
#include "operations.h"
#include "text.h"
#include <csignal>
#include <doctest/doctest.h>
#include <thread>

using namespace support;

namespace {

tuttiResult_t poll(Rank &r, tuttiComm_t comm) {
  tuttiResult_t state = tuttiInProgress;
  while (state == tuttiInProgress) {
    EXPECT_OK(r, tuttiCommGetAsyncError(comm, &state));
    std::this_thread::yield();
  }
  return state;
}

tuttiConfig_t non_blocking() {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

tuttiResult_t sum(Rank &r, tuttiComm_t comm) {
  float x = 1;
  const tuttiResult_t e = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, comm, nullptr);
  if (e != tuttiSuccess) return e;
  const tuttiResult_t done = tuttiCommSynchronize(comm);
  if (done == tuttiSuccess) EXPECT(r, x == static_cast<float>(r.n));
  return done;
}

// Every call that may not block, from set-up to finalize.
void never_blocks(Rank &r, const tuttiUniqueId &id) {
  const tuttiConfig_t config = non_blocking();
  EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config) == tuttiInProgress);
  float x = 1;
  if (r.rank == 0) { // the others may be a moment away, so this rank is still at it or has finished
    const tuttiResult_t e = tuttiAllReduce(&x, &x, 0, tuttiFloat32, tuttiSum, r.comm, nullptr);
    EXPECT(r, e == tuttiInvalidUsage || e == tuttiSuccess);
  } else {
    EXPECT_OK(r, poll(r, r.comm));
    EXPECT_OK(r, tuttiAllReduce(&x, &x, 0, tuttiFloat32, tuttiSum, r.comm, nullptr));
  }
  EXPECT_OK(r, poll(r, r.comm));
  if (r.rank == 0) EXPECT_OK(r, sum(r, r.comm));
  if (r.rank != 0) EXPECT_OK(r, sum(r, r.comm));

  tuttiComm_t child = nullptr;
  const tuttiResult_t split = tuttiCommSplit(r.comm, r.rank == 1 ? TUTTI_SPLIT_NOCOLOR : 0, 0, &child, &config);
  EXPECT(r, split == tuttiInProgress);
  EXPECT(r, (child == nullptr) == (r.rank == 1));
  EXPECT_OK(r, poll(r, r.comm)); // the parent is busy until the split is over
  if (child) {
    EXPECT_OK(r, poll(r, child));
    int n = 0;
    EXPECT_OK(r, tuttiCommCount(child, &n));
    EXPECT(r, n == r.n - 1);
    EXPECT(r, tuttiCommFinalize(child) == tuttiInProgress);
    EXPECT_OK(r, poll(r, child));
    EXPECT_OK(r, tuttiCommDestroy(child));
  }
  EXPECT_OK(r, sum(r, r.comm));
  EXPECT(r, tuttiCommFinalize(r.comm) == tuttiInProgress);
  EXPECT_OK(r, poll(r, r.comm));
  EXPECT(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, nullptr) == tuttiInvalidUsage);
}

} // namespace

TEST_CASE("with blocking = 0 set-up, split and finalize return at once and are polled") {
  CHECK(run_processes(3, {.init = false}, never_blocks) == 0);
}
TEST_CASE("a non-blocking set-up that cannot succeed is an error when polled, and the handle can be destroyed") {
  CHECK(run_processes(2, {.env = {"TUTTI_INIT_TIMEOUT=2s"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 1) return;
          const tuttiConfig_t config = non_blocking();
          EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config) == tuttiInProgress);
          EXPECT(r, poll(r, r.comm) == tuttiTimeout);
          says(r, tuttiGetLastError(r.comm), {"missing: 1"});
        }) == 0);
}
TEST_CASE("abort ends a set-up that goes on in the background at once, its thread too") {
  CHECK(run_processes(3, {.env = {"TUTTI_INIT_TIMEOUT=6s"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 2) return; // never joins
          if (r.rank == 0) {
            EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) != tuttiSuccess);
            return;
          }
          const int threads = live_threads();
          const tuttiConfig_t config = non_blocking();
          EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config) == tuttiInProgress);
          const FairTime time;
          EXPECT_OK(r, tuttiCommAbort(r.comm));
          EXPECT(r, time.seconds() < 1);
          r.comm = nullptr;
          while (live_threads() > threads + 1) std::this_thread::yield(); // the bootstrap's service thread stays
          EXPECT(r, time.seconds() < 3);
        }) == 0);
}

TEST_CASE("sixty-four ranks of one thread are set up, used and destroyed one after the other") {
  Watchdog dog("one thread, 64 ranks", std::chrono::seconds(60));
  constexpr int n = 64;
  std::vector<tuttiComm_t> comms(n);
  Rank boss{0, n};
  REQUIRE(tuttiCommInitAll(comms.data(), n, nullptr) == tuttiSuccess);
  std::vector<int> x(n, 1);
  EXPECT_OK(boss, tuttiGroupStart());
  for (size_t i = 0; i < n; i++) EXPECT_OK(boss, tuttiAllReduce(&x[i], &x[i], 1, tuttiInt32, tuttiSum, comms[i], nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  EXPECT_OK(boss, tuttiStreamSynchronize(nullptr)); // all that this thread enqueued
  CHECK(x == std::vector<int>(n, n));
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("one thread finalizes its ranks in a group, after which each is destroyed on its own") {
  Watchdog dog("grouped finalize", std::chrono::seconds(30));
  tuttiComm_t comms[3];
  Rank boss{0, 3};
  REQUIRE(tuttiCommInitAll(comms, 3, nullptr) == tuttiSuccess);
  EXPECT_OK(boss, tuttiGroupStart());
  for (auto c : comms) EXPECT_OK(boss, tuttiCommFinalize(c));
  EXPECT_OK(boss, tuttiGroupEnd());
  for (auto c : comms) EXPECT(boss, tuttiCommFinalize(c) == tuttiInvalidUsage);
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("destroying ranks with an operation that a peer never joins returns that error from the last call") {
  Watchdog dog("destroy with an error", std::chrono::seconds(60));
  Rank boss{0, 2};
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeoutMs = 300;
  tuttiComm_t comms[2];
  EXPECT_OK(boss, tuttiGroupStart());
  for (int i = 0; i < 2; i++) EXPECT_OK(boss, tuttiCommInitRankConfig(&comms[i], 2, id, i, &config));
  EXPECT_OK(boss, tuttiGroupEnd());
  float x[8] = {}, y[8] = {};
  EXPECT_OK(boss, tuttiAllReduce(x, y, 8, tuttiFloat32, tuttiSum, comms[0], nullptr));
  EXPECT_OK(boss, tuttiCommDestroy(comms[0])); // cannot know yet
  EXPECT(boss, tuttiCommDestroy(comms[1]) != tuttiSuccess);
  says(boss, tuttiGetLastError(nullptr), {"rank "});
  CHECK(boss.failures == 0);
}

TEST_CASE("ranks meet through several roots, and ids that do not fit the call are refused") {
  Watchdog dog("several roots", std::chrono::seconds(30));
  Rank boss{0, 5};
  std::vector<tuttiUniqueId> ids(3);
  for (auto &id : ids) EXPECT_OK(boss, tuttiGetUniqueId(&id));
  std::vector<tuttiComm_t> comms(5);
  EXPECT(boss, tuttiCommInitRankScalable(&comms[0], 2, 0, 3, ids.data(), nullptr) == tuttiInvalidArgument);
  says(boss, tuttiGetLastError(nullptr), {"3 ids for 2 ranks"});
  EXPECT(boss, tuttiCommInitRankScalable(&comms[0], 2, 0, 1, nullptr, nullptr) == tuttiInvalidArgument);
  EXPECT_OK(boss, tuttiGroupStart());
  for (int r = 0; r < 5; r++)
    EXPECT_OK(boss, tuttiCommInitRankScalable(&comms[static_cast<size_t>(r)], 5, r, 3, ids.data(), nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  std::vector<int> x(5, 1);
  EXPECT_OK(boss, tuttiGroupStart());
  for (size_t i = 0; i < 5; i++) EXPECT_OK(boss, tuttiAllReduce(&x[i], &x[i], 1, tuttiInt32, tuttiSum, comms[i], nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  EXPECT_OK(boss, tuttiStreamSynchronize(nullptr));
  CHECK(x == std::vector<int>(5, 5));
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}

TEST_CASE("two splits of one communicator in one group run one after the other") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiComm_t a = nullptr, b = nullptr;
          EXPECT_OK(r, tuttiGroupStart());
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &a, nullptr));
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, -r.rank, &b, nullptr));
          EXPECT_OK(r, tuttiGroupEnd());
          int rank = -1;
          EXPECT_OK(r, tuttiCommUserRank(b, &rank));
          EXPECT(r, rank == r.n - 1 - r.rank);
          EXPECT_OK(r, sum(r, a));
          EXPECT_OK(r, sum(r, b));
          EXPECT_OK(r, tuttiCommDestroy(a));
          EXPECT_OK(r, tuttiCommDestroy(b));
        }) == 0);
}
TEST_CASE("nested groups hold set-up calls and operations of several communicators") {
  Watchdog dog("nested groups", std::chrono::seconds(30));
  Rank boss{0, 2};
  tuttiUniqueId ids[2];
  tuttiComm_t comms[2][2] = {};
  for (auto &id : ids) EXPECT_OK(boss, tuttiGetUniqueId(&id));
  EXPECT_OK(boss, tuttiGroupStart());
  for (int c = 0; c < 2; c++) {
    EXPECT_OK(boss, tuttiGroupStart());
    for (int i = 0; i < 2; i++) EXPECT_OK(boss, tuttiCommInitRank(&comms[c][i], 2, ids[c], i));
    EXPECT_OK(boss, tuttiGroupEnd());
  }
  EXPECT_OK(boss, tuttiGroupEnd());
  int x[2][2] = {{1, 2}, {10, 20}};
  EXPECT_OK(boss, tuttiGroupStart());
  for (int c = 0; c < 2; c++)
    for (int i = 0; i < 2; i++)
      EXPECT_OK(boss, tuttiAllReduce(&x[c][i], &x[c][i], 1, tuttiInt32, tuttiSum, comms[c][i], nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  EXPECT_OK(boss, tuttiStreamSynchronize(nullptr));
  CHECK((x[0][0] == 3 && x[0][1] == 3 && x[1][0] == 30 && x[1][1] == 30));
  for (auto &pair : comms)
    for (auto c : pair) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("a rank that dies during a split is named to the others, whose parent has failed too") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        // All are set up once the first sum is there; it may already meet the end of rank 2.
                        if (r.rank == 2) EXPECT_OK(r, sum(r, r.comm)), raise(SIGKILL);
                        (void)sum(r, r.comm);
                        tuttiComm_t child = nullptr;
                        EXPECT(r, tuttiCommSplit(r.comm, 0, r.rank, &child, nullptr) == tuttiRemoteError);
                        EXPECT(r, child == nullptr);
                        says(r, tuttiGetLastError(r.comm), {"rank 2"});
                        EXPECT(r, sum(r, r.comm) == tuttiRemoteError);
                        tuttiCommAbort(r.comm);
                        r.comm = nullptr;
                      },
                      {.may_die = {2}}) == 0);
}

// Others may still be in the split when the first one is out of it.
TEST_CASE("a communicator outlives one that was split off it and aborted at once") {
  CHECK(run_processes(4, [](Rank &r) {
          for (int i = 0; i < 20; i++) {
            tuttiComm_t child = nullptr;
            const tuttiResult_t made = tuttiCommSplit(r.comm, 0, r.rank, &child, nullptr);
            EXPECT(r, (made == tuttiSuccess || made == tuttiRemoteError));
            if (made == tuttiSuccess) EXPECT_OK(r, tuttiCommAbort(child));
            EXPECT_OK(r, sum(r, r.comm));
          }
        }) == 0);
}

TEST_CASE("handles that were destroyed or never were are refused, and so are operations after the end") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiStream_t stream = nullptr;
          tuttiEvent_t event = nullptr;
          float x = 1;
          EXPECT_OK(r, tuttiStreamCreate(&stream));
          EXPECT(r, tuttiStreamWaitEvent(nullptr, event) == tuttiInvalidArgument);
          EXPECT(r, tuttiEventQuery(event) == tuttiInvalidArgument);
          alignas(16) unsigned char junk[256] = {};
          EXPECT(r, tuttiCommSynchronize(reinterpret_cast<tuttiComm_t>(junk)) == tuttiInvalidArgument);
          EXPECT(r, tuttiStreamSynchronize(reinterpret_cast<tuttiStream_t>(junk)) == tuttiInvalidArgument);
          EXPECT(r, tuttiWorkWait(reinterpret_cast<tuttiWork_t>(junk)) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, reinterpret_cast<tuttiStream_t>(junk)) ==
                        tuttiInvalidArgument);
          EXPECT(r, tuttiMemFree(junk + 16) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommDestroy(reinterpret_cast<tuttiComm_t>(junk)) == tuttiInvalidArgument);
          EXPECT_OK(r, sum(r, r.comm));
          EXPECT_OK(r, tuttiCommFinalize(r.comm));
          EXPECT(r, sum(r, r.comm) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(r.comm), {"finalized"});
          tuttiComm_t child = nullptr;
          EXPECT(r, tuttiCommSplit(r.comm, 0, 0, &child, nullptr) == tuttiInvalidUsage);
          EXPECT_OK(r, tuttiStreamDestroy(stream));
        }) == 0);
}
