#include "fair_time.h"
#include "ranks.h"
#include "text.h"
#include <csignal>
#include <cstring>
#include <doctest/doctest.h>
#include <thread>
#include <unistd.h>

using namespace support;

namespace {

std::string last_error(Rank &r) {
  return tuttiGetLastError(r.comm);
}

tuttiResult_t sum(Rank &r, size_t count, tuttiDataType_t type = tuttiFloat32, tuttiRedOp_t op = tuttiSum) {
  std::vector<double> in(count, 1), out(count);
  const tuttiResult_t enqueued = tuttiAllReduce(in.data(), out.data(), count, type, op, r.comm, nullptr);
  return enqueued == tuttiSuccess ? tuttiCommSynchronize(r.comm) : enqueued;
}

// Calls until one fails: at the latest when the peer's end is noticed.
// The first call may be the one already: a rank can end while others still read what it sent.
tuttiResult_t sum_until_error(Rank &r, size_t count) {
  for (;;)
    if (const tuttiResult_t e = sum(r, count); e != tuttiSuccess) return e;
}

void abandon(Rank &r) {
  tuttiCommAbort(r.comm);
  r.comm = nullptr;
}

void expect_death_of(Rank &r, int dead, tuttiResult_t e) {
  EXPECT(r, e == tuttiRemoteError);
  tuttiErrorInfo info{};
  info.size = sizeof info;
  EXPECT_OK(r, tuttiCommGetLastError(r.comm, &info));
  if (!EXPECT(r, info.peer == dead)) std::fprintf(stderr, "peer %d: %s\n", info.peer, info.message);
  abandon(r);
}

} // namespace

TEST_CASE("arguments out of range are refused with the value and the range, and the communicator lives on") {
  CHECK(run_threads(2, [](Rank &r) {
          float x[8] = {}, y[8] = {};
          EXPECT(r,
                 tuttiAllReduce(x, y, 8, static_cast<tuttiDataType_t>(17), tuttiSum, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "type 17") && has(last_error(r), "0 to 11"));
          EXPECT(r, tuttiBroadcast(x, y, 8, tuttiFloat32, 2, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "root 2") && has(last_error(r), "0 to 1"));
          EXPECT(r,
                 tuttiAllReduce(x, y, 8, tuttiFloat32, static_cast<tuttiRedOp_t>(99), r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllReduce(nullptr, y, 8, tuttiFloat32, tuttiSum, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllReduce(x, x + 1, 4, tuttiFloat32, tuttiSum, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "overlap"));
          EXPECT(r, tuttiSend(x, 1, tuttiFloat32, -1, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllReduce(x, y, SIZE_MAX / 2, tuttiFloat32, tuttiSum, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllReduce(x, y, 8, tuttiFloat32, tuttiSum, nullptr, nullptr) == tuttiInvalidArgument);
          const size_t none[2] = {}, displs[2] = {0, SIZE_MAX}, counts[2] = {0, 1};
          EXPECT_OK(r, tuttiAlltoAllV(x, none, displs, y, none, displs, tuttiFloat32, r.comm, nullptr));
          EXPECT(r, tuttiAlltoAllV(x, none, none, y, counts, displs, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "rdispls[1] 18446744073709551615"));
          const size_t two[2] = {2, 2}, same[2] = {1, 2}, far[2] = {0, SIZE_MAX};
          EXPECT(r, tuttiAllGatherV(x, y, nullptr, nullptr, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllGatherV(x, y, two, same, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "all_gather_v: the blocks of ranks 0 and 1 overlap"));
          EXPECT(r, tuttiAllGatherV(x, y, two, far, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "displs[1] 18446744073709551615"));
          EXPECT(r, tuttiAllGatherV(x, y, far, nullptr, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiAllGatherV(y + 1, y, two, nullptr, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "sendbuff overlaps the block of rank 0 in recvbuff; in place means"));
          EXPECT(r, tuttiAllGatherV(nullptr, y, two, nullptr, tuttiFloat32, r.comm, nullptr) == tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "sendbuff is NULL"));
          EXPECT(r, tuttiReduceScatterV(nullptr, y, two, nullptr, tuttiFloat32, tuttiSum, r.comm, nullptr) ==
                        tuttiInvalidArgument);
          EXPECT(r, has(last_error(r), "reduce_scatter_v: sendbuff is NULL, but the counts are not all 0"));
          EXPECT_OK(r, tuttiReduceScatterV(nullptr, nullptr, none, nullptr, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiAllReduce(nullptr, nullptr, 0, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, sum(r, 8));
        }) == 0);
}

// The same sum of all blocks; rank 0 thinks that rank 1's is the longer one.
static void disagree_on_blocks(Rank &r, tuttiResult_t (*call)(Rank &, const size_t *)) {
  const size_t mine[2] = {r.rank == 0 ? 100u : 200u, r.rank == 0 ? 200u : 100u};
  tuttiResult_t e = call(r, mine);
  if (e == tuttiSuccess) e = tuttiCommSynchronize(r.comm);
  EXPECT(r, e == tuttiInvalidUsage || e == tuttiRemoteError);
  says(r, last_error(r), {"_v #1 (300 float", "rank 0 calls", "rank 1 calls"});
  abandon(r);
}
static float blocks_in[400], blocks_out[2][400];
static void disagree_on_gathered_blocks(Rank &r) {
  disagree_on_blocks(r, [](Rank &q, const size_t *counts) {
    return tuttiAllGatherV(blocks_in, blocks_out[q.rank], counts, nullptr, tuttiFloat32, q.comm, nullptr);
  });
}
static void disagree_on_scattered_blocks(Rank &r) {
  disagree_on_blocks(r, [](Rank &q, const size_t *counts) {
    return tuttiReduceScatterV(blocks_in, blocks_out[q.rank], counts, nullptr, tuttiFloat32, tuttiSum, q.comm, nullptr);
  });
}
TEST_CASE("ranks that disagree on the sizes of blocks both learn of both calls") {
  for (const Body &body : {Body(disagree_on_gathered_blocks), Body(disagree_on_scattered_blocks)}) {
    CHECK(run_threads(2, body) == 0);
    CHECK(run_processes(2, body) == 0);
    CHECK(run_processes(2, body, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
  }
}

static void disagree(Rank &r) {
  const tuttiResult_t e = r.rank == 0 ? sum(r, 100) : sum(r, 200);
  EXPECT(r, e == tuttiInvalidUsage || e == tuttiRemoteError);
  says(r, last_error(r), {"(100 float", "(200 float"});
  abandon(r);
}
TEST_CASE("threads that disagree on the count both learn of both calls") {
  CHECK(run_threads(2, disagree) == 0);
}
TEST_CASE("processes that disagree on the count both learn of both calls") {
  CHECK(run_processes(2, disagree) == 0);
}
TEST_CASE("ranks that disagree on the count over sockets both learn of both calls") {
  CHECK(run_processes(2, disagree, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}

static void die_in_the_middle(Rank &r) {
  if (r.rank == 1) EXPECT_OK(r, sum(r, 1000)), raise(SIGKILL);
  expect_death_of(r, 1, sum_until_error(r, 1000));
}
TEST_CASE("a rank killed between operations is named by the others") {
  CHECK(run_processes(4, die_in_the_middle, {.may_die = {1}}) == 0);
  CHECK(run_processes(3, die_in_the_middle, {.env = {"TUTTI_SHM_DISABLE=1"}, .may_die = {1}}) == 0);
}
TEST_CASE("a rank killed inside a long operation is named by the others") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        std::thread killer;
                        if (r.rank == 2)
                          killer =
                              std::thread([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)), raise(SIGKILL); });
                        expect_death_of(r, 2, sum_until_error(r, 1 << 20));
                      },
                      {.may_die = {2}}) == 0);
}
TEST_CASE("a rank killed before it joins is named by the others") {
  CHECK(
      run_processes(3, {.env = {"TUTTI_INIT_TIMEOUT=3s"}, .may_die = {1}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
        if (r.rank == 1) raise(SIGKILL);
        EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) != tuttiSuccess);
        EXPECT(r, r.comm == nullptr);
        says(r, tuttiGetLastError(nullptr), {"2 of 3 ranks checked in", "missing: 1"});
      }) == 0);
}
TEST_CASE("a stopped rank is named by the others when their time is up") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT_OK(r, sum(r, 10));
                        if (r.rank == 1) {
                          EXPECT_OK(r, sum(r, 10)); // ends when the others have ended the first
                          // A child of its own wakes it at the end, when the others have said what they had to.
                          if (const pid_t self = getpid(); fork() == 0) {
                            std::this_thread::sleep_for(std::chrono::seconds(8));
                            kill(self, SIGCONT);
                            std::_Exit(0);
                          }
                          raise(SIGSTOP);
                          return abandon(r);
                        }
                        const tuttiResult_t e = sum_until_error(r, 10);
                        EXPECT(r, e == tuttiTimeout || e == tuttiRemoteError);
                        says(r, last_error(r), {"rank 1", "does not answer"});
                        abandon(r);
                      },
                      {.env = {"TUTTI_TIMEOUT=500ms"}}) == 0);
}
TEST_CASE("a rank killed while the others finalize is named by them") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        if (r.rank == 1) EXPECT_OK(r, sum(r, 10)), raise(SIGKILL);
                        const tuttiResult_t e = sum(r, 10);
                        expect_death_of(r, 1, e == tuttiSuccess ? tuttiCommFinalize(r.comm) : e);
                      },
                      {.may_die = {1}}) == 0);
}

TEST_CASE("abort returns within a second and ends the other ranks' operations") {
  CHECK(run_threads(3, [](Rank &r) {
          if (r.rank == 0) {
            EXPECT_OK(r, sum(r, 10));
            const FairTime time;
            abandon(r);
            EXPECT(r, time.seconds() < 1);
          } else
            expect_death_of(r, 0, sum_until_error(r, 10));
        }) == 0);
}
TEST_CASE("abort from another thread ends a waiting call") {
  CHECK(run_threads(2, [](Rank &r) {
          if (r.rank == 1) {
            EXPECT(r, sum_until_error(r, 10) == tuttiRemoteError);
            return abandon(r);
          }
          std::thread other(
              [comm = r.comm] { std::this_thread::sleep_for(std::chrono::milliseconds(20)), tuttiCommAbort(comm); });
          EXPECT(r, sum_until_error(r, 10) != tuttiSuccess);
          other.join();
          r.comm = nullptr;
        }) == 0);
}
TEST_CASE("aborts may meet groups, calls and queries of other threads") {
  Watchdog dog("aborts against calls", std::chrono::seconds(60));
  for (int round = 0; round < 25; round++) {
    constexpr size_t n = 2;
    tuttiComm_t comms[n];
    REQUIRE(tuttiCommInitAll(comms, n, nullptr) == tuttiSuccess);
    std::vector<std::thread> threads;
    for (tuttiComm_t comm : comms) {
      threads.emplace_back([comm] { // the owner
        std::vector<float> x(300, 1);
        for (tuttiResult_t e = tuttiSuccess; e == tuttiSuccess;) {
          tuttiGroupStart();
          for (int i = 0; i < 200 && e == tuttiSuccess; i++)
            e = tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, tuttiMax, comm, nullptr);
          if (const tuttiResult_t end = tuttiGroupEnd(); e == tuttiSuccess) e = end;
          if (e == tuttiSuccess) e = tuttiCommSynchronize(comm);
        }
      });
      threads.emplace_back([comm] {
        for (tuttiResult_t state = tuttiSuccess; state == tuttiSuccess;)
          if (tuttiCommGetAsyncError(comm, &state) != tuttiSuccess) break;
        (void)tuttiGetLastError(comm);
      });
      threads.emplace_back([comm, round] {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
        tuttiCommAbort(comm);
      });
    }
    for (auto &t : threads) t.join();
    for (tuttiComm_t comm : comms) CHECK(tuttiCommAbort(comm) == tuttiInvalidArgument); // only one of two wins
  }
}
TEST_CASE("after an abort nothing touches the buffers any more") {
  for (int round = 0; round < 8; round++)
    CHECK(run_threads(2, [&](Rank &r) {
            constexpr size_t count = 8 << 20;
            void *x = nullptr, *y = nullptr;
            EXPECT_OK(r, tuttiMemAlloc(&x, count * sizeof(float)));
            EXPECT_OK(r, tuttiMemAlloc(&y, count * sizeof(float)));
            const tuttiResult_t e = tuttiAllReduce(x, y, count, tuttiFloat32, tuttiSum, r.comm, nullptr);
            EXPECT(r, e == tuttiSuccess || r.rank == 1); // which may come after the abort
            if (r.rank == 0) {
              std::this_thread::sleep_for(std::chrono::milliseconds(round));
              abandon(r);
            } else if (tuttiCommSynchronize(r.comm) != tuttiSuccess)
              abandon(r);
            // Unmapped: whoever still copies ends the process.
            EXPECT_OK(r, tuttiMemFree(x));
            EXPECT_OK(r, tuttiMemFree(y));
            if (r.comm) abandon(r);
          }) == 0);
}
