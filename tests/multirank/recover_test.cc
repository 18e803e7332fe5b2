// Ranks that go and come: revoke, shrink, grow, and what is left behind.
#include "fair_time.h"
#include "recover.h"
#include <csignal>
#include <doctest/doctest.h>
#include <functional>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace support;

TEST_CASE("a revoke from another thread ends what all ranks wait for, and names who revoked") {
  CHECK(run_threads(4, [](Rank &r) {
          if (r.rank == 3) {
            EXPECT_OK(r, sums_right(r, r.comm));
            EXPECT_OK(r, tuttiCommRevoke(r.comm, TUTTI_REVOKE_DEFAULT));
          } else {
            EXPECT(r, until_error(r, r.comm) != tuttiSuccess);
            says(r, last_error(r.comm), {"rank 3 revoked the communicator"});
          }
          float x = 1;
          EXPECT(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, nullptr) == tuttiInvalidUsage);
          says(r, last_error(), {"rank 3 revoked the communicator", "tuttiCommShrink"});
          EXPECT(r, tuttiSend(&x, 1, tuttiFloat32, 0, r.comm, nullptr) == tuttiInvalidUsage);
          tuttiComm_t child = nullptr;
          EXPECT(r, tuttiCommSplit(r.comm, 0, 0, &child, nullptr) == tuttiInvalidUsage);
          tuttiResult_t state = tuttiSuccess;
          EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
          EXPECT(r, state == tuttiRemoteError);
          EXPECT(r, size_of(r.comm) == 4);
          EXPECT_OK(r, tuttiCommRevoke(r.comm, 0)); // once more, by all
        }) == 0);
}
TEST_CASE("a revoke while the owner waits returns within a second, and its flags are checked") {
  for (const auto &env : kWays)
    CHECK(run_processes(3,
                        [](Rank &r) {
                          EXPECT_OK(r, sums_right(r, r.comm));
                          EXPECT(r, tuttiCommRevoke(r.comm, 7) == tuttiInvalidArgument);
                          std::thread other;
                          if (r.rank == 0)
                            other = std::thread([&r] {
                              std::this_thread::sleep_for(std::chrono::milliseconds(50));
                              const FairTime time;
                              EXPECT_OK(r, tuttiCommRevoke(r.comm, 0));
                              EXPECT(r, time.seconds() < 1);
                            });
                          if (r.rank != 2) EXPECT(r, until_error(r, r.comm) != tuttiSuccess);
                          if (r.rank == 2) // has nothing to do with it until it calls
                            while (sums_right(r, r.comm) == tuttiSuccess) std::this_thread::yield();
                          if (other.joinable()) other.join();
                          says(r, last_error(r.comm), {"rank 0 revoked the communicator"});
                          tuttiComm_t next = nullptr;
                          EXPECT_OK(r, tuttiCommShrink(r.comm, nullptr, 0, &next, nullptr, TUTTI_SHRINK_DEFAULT));
                          go_on(r, next, 3, r.rank);
                        },
                        {.env = env}) == 0);
}

TEST_CASE("a healthy communicator shrinks by list, and goes on beside the new one") {
  CHECK(run_threads(5, [](Rank &r) {
          EXPECT_OK(r, sums_right(r, r.comm));
          const int out[] = {3, 1};
          if (r.rank != 1 && r.rank != 3) {
            tuttiComm_t next = nullptr;
            EXPECT_OK(r, tuttiCommShrink(r.comm, out, 2, &next, nullptr, TUTTI_SHRINK_DEFAULT));
            go_on(r, next, 3, r.rank / 2);
          }
          EXPECT_OK(r, sums_right(r, r.comm));
        }) == 0);
}
static void shrink_after_death(Rank &r, const int *list, int n, int flags) {
  if (r.rank == 1) EXPECT_OK(r, sums_right(r, r.comm)), raise(SIGKILL);
  EXPECT(r, until_error(r, r.comm) == tuttiRemoteError);
  tuttiComm_t next = nullptr;
  EXPECT_OK(r, tuttiCommShrink(r.comm, list, n, &next, nullptr, flags));
  leave(r, r.comm);
  r.comm = nullptr;
  go_on(r, next, 3, r.rank - (r.rank > 1));
}
TEST_CASE("those who are left after a death go on, with a list") {
  static const int dead = 1;
  for (const auto &env : kWays)
    CHECK(run_processes(4, [](Rank &r) { shrink_after_death(r, &dead, 1, TUTTI_SHRINK_ABORT); },
                        {.env = env, .may_die = {1}}) == 0);
}
TEST_CASE("those who are left after a death go on, without a list") {
  for (const auto &env : kWays)
    CHECK(run_processes(4, [](Rank &r) { shrink_after_death(r, nullptr, 0, 0); }, {.env = env, .may_die = {1}}) == 0);
}
TEST_CASE("a death of rank 0, which others would have asked, is survived, and so are two more in the middle of the shrink") {
  for (const auto &env : kWays)
    CHECK(run_processes(6,
                        [](Rank &r) {
                          if (r.rank == 0) EXPECT_OK(r, sums_right(r, r.comm)), raise(SIGKILL);
                          EXPECT(r, until_error(r, r.comm) == tuttiRemoteError);
                          std::thread killer;
                          if (r.rank == 1 || r.rank == 4)
                            killer = std::thread([&r] {
                              std::this_thread::sleep_for(std::chrono::milliseconds(3 * r.rank));
                              raise(SIGKILL);
                            });
                          tuttiComm_t now = r.comm;
                          // Whoever dies after the new one has come about ends that one, so: until sums are right.
                          for (int round = 0; round < 4; round++) {
                            tuttiComm_t next = nullptr;
                            if (!EXPECT_OK(r, tuttiCommShrink(now, nullptr, 0, &next, nullptr, 0))) break;
                            leave(r, now);
                            now = next;
                            std::this_thread::sleep_for(std::chrono::milliseconds(100));
                            if (sums_right(r, now) == tuttiSuccess && size_of(now) == 3) break;
                          }
                          r.comm = nullptr;
                          go_on(r, now, 3, r.rank == 2 ? 0 : r.rank == 3 ? 1 : 2);
                        },
                        {.env = env, .may_die = {0, 1, 4}}) == 0);
}
TEST_CASE("a stopped rank is left behind, and finds out when it wakes") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT_OK(r, sums_right(r, r.comm));
                        if (r.rank == 0) {
                          if (const pid_t self = getpid(); fork() == 0) { // wakes it when the others are done
                            std::this_thread::sleep_for(std::chrono::seconds(6));
                            kill(self, SIGCONT);
                            std::_Exit(0);
                          }
                          raise(SIGSTOP);
                          EXPECT(r, until_error(r, r.comm) != tuttiSuccess);
                          tuttiComm_t next = nullptr;
                          EXPECT(r, tuttiCommShrink(r.comm, nullptr, 0, &next, nullptr, 0) == tuttiRemoteError);
                          says(r, last_error(), {"ranks 1, 2 went on without rank 0"});
                          return leave(r, std::exchange(r.comm, nullptr));
                        }
                        EXPECT(r, until_error(r, r.comm) != tuttiSuccess);
                        tuttiComm_t next = nullptr;
                        EXPECT_OK(r, tuttiCommShrink(r.comm, nullptr, 0, &next, nullptr, 0));
                        EXPECT(r, size_of(next) == 2);
                        EXPECT_OK(r, sums_right(r, next));
                        EXPECT_OK(r, tuttiCommDestroy(next));
                        std::this_thread::sleep_for(std::chrono::seconds(7)); // its parent is there when rank 0 asks
                        leave(r, std::exchange(r.comm, nullptr));
                      },
                      {.env = {"TUTTI_TIMEOUT=500ms", "TUTTI_SHRINK_TIMEOUT=4s"}}) == 0);
}
TEST_CASE("ranks that give different lists all learn of both") {
  CHECK(run_threads(5, [](Rank &r) {
          const int out[] = {3, 4};
          tuttiComm_t next = nullptr;
          if (r.rank < 3) {
            EXPECT(r, tuttiCommShrink(r.comm, out, r.rank == 1 ? 1 : 2, &next, nullptr, 0) == tuttiInvalidUsage);
            says(r, last_error(), {"rank 0 excludes ranks 3, 4, rank 1 excludes rank 3"});
            EXPECT(r, next == nullptr);
          }
          EXPECT_OK(r, sums_right(r, r.comm)); // nothing is lost
        }) == 0);
}
TEST_CASE("a rank that others exclude, and that calls nevertheless, is told who excludes it") {
  CHECK(run_threads(4, [](Rank &r) {
          const int three = 3, one = 1;
          tuttiComm_t next = nullptr;
          if (r.rank == 3) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.shrinkTimeoutMs = 1000;
            const tuttiResult_t e = tuttiCommShrink(r.comm, &one, 1, &next, &config, 0);
            EXPECT(r, e == tuttiInvalidUsage || e == tuttiTimeout); // before the others have met, or after
            if (e == tuttiInvalidUsage)
              says(r, last_error(), {"rank 0 excludes rank 3, and rank 3 wants to go on without rank 1"});
            else
              says(r, last_error(), {"missing: 0, 2", "ranks 0-2 went on without rank 3 before"});
            return;
          }
          EXPECT_OK(r, tuttiCommShrink(r.comm, &three, 1, &next, nullptr, 0));
          go_on(r, next, 3, r.rank);
        }) == 0);
}
TEST_CASE("a rank that does not call is named when the time of a list is up, and so is a dead one that is not on it") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT_OK(r, sums_right(r, r.comm));
                        const int out[] = {0};
                        tuttiComm_t next = nullptr;
                        tuttiConfig_t brief = TUTTI_CONFIG_INITIALIZER;
                        brief.shrinkTimeoutMs = 500;
                        if (r.rank == 1) {
                          EXPECT(r, tuttiCommShrink(r.comm, out, 1, &next, &brief, 0) == tuttiTimeout);
                          says(r, last_error(), {"shrink: 1 of 2 ranks called it within 0.5 s", "missing: 2"});
                        }
                        EXPECT_OK(r, sums_right(r, r.comm)); // which all wait for
                        if (r.rank == 0) raise(SIGKILL);
                        EXPECT(r, until_error(r, r.comm) == tuttiRemoteError);
                        const int other[] = {1};
                        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                        config.shrinkTimeoutMs = 10'000;
                        if (r.rank == 2) {
                          EXPECT(r, tuttiCommShrink(r.comm, other, 1, &next, &config, 0) == tuttiRemoteError);
                          says(r, last_error(), {"rank 0 ", "has gone, and is not excluded (rank 1 is)"});
                        }
                        leave(r, std::exchange(r.comm, nullptr));
                      },
                      {.may_die = {0}}) == 0);
}
TEST_CASE("what cannot be shrunk is refused with the value") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiComm_t next = nullptr;
          const int me = r.rank, far = 2, twice[] = {1 - r.rank, 1 - r.rank};
          const auto refused = [&](const int *list, int n, tuttiComm_t *out, int flags, const char *text) {
            EXPECT(r, tuttiCommShrink(r.comm, list, n, out, nullptr, flags) == tuttiInvalidArgument);
            says(r, last_error(), {text});
          };
          refused(&me, 1, &next, 0, "the rank that calls");
          refused(&far, 1, &next, 0, "exclude[0] is 2; ranks are 0 to 1");
          refused(twice, 2, &next, 0, "2 ranks to exclude of 2");
          refused(nullptr, 1, &next, 0, "exclude is NULL, but n is 1");
          refused(&far, 0, &next, 0, "exclude is a list, but n is 0");
          refused(&me, 1, nullptr, 0, "newcomm is NULL");
          refused(&me, 1, &next, 2, "flags 2");
          EXPECT_OK(r, sums_right(r, r.comm));
        }) == 0);
}
TEST_CASE("a shrink that does not block is polled, and several ranks of one thread shrink in a group") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.blocking = 0;
          tuttiComm_t next = nullptr;
          EXPECT(r, tuttiCommShrink(r.comm, nullptr, 0, &next, &config, 0) == tuttiInProgress);
          tuttiResult_t state = tuttiInProgress;
          while (state == tuttiInProgress) EXPECT_OK(r, tuttiCommGetAsyncError(next, &state));
          EXPECT_OK(r, state);
          EXPECT_OK(r, sums_right(r, next));
          EXPECT_OK(r, tuttiCommDestroy(next));
        }) == 0);
  Watchdog dog("group of shrinks", std::chrono::seconds(30));
  Rank boss{0, 3};
  tuttiComm_t comms[3], next[2] = {};
  REQUIRE(tuttiCommInitAll(comms, 3, nullptr) == tuttiSuccess);
  const int two = 2;
  EXPECT_OK(boss, tuttiGroupStart());
  for (int i = 0; i < 2; i++) EXPECT_OK(boss, tuttiCommShrink(comms[i], &two, 1, &next[i], nullptr, 0));
  EXPECT_OK(boss, tuttiGroupEnd());
  int x[2] = {1, 2};
  EXPECT_OK(boss, tuttiGroupStart());
  for (int i = 0; i < 2; i++) EXPECT_OK(boss, tuttiAllReduce(&x[i], &x[i], 1, tuttiInt32, tuttiSum, next[i], nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  EXPECT_OK(boss, tuttiStreamSynchronize(nullptr));
  CHECK((x[0] == 3 && x[1] == 3));
  for (auto c : next) EXPECT_OK(boss, tuttiCommDestroy(c));
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("an abort ends a shrink that waits for others") {
  CHECK(run_threads(2, [](Rank &r) {
          if (r.rank == 0) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.blocking = 0;
            tuttiComm_t next = nullptr;
            EXPECT(r, tuttiCommShrink(r.comm, nullptr, 0, &next, &config, 0) == tuttiInProgress);
            const FairTime time;
            EXPECT_OK(r, tuttiCommAbort(next));
            tuttiResult_t state = tuttiInProgress;
            while (state == tuttiInProgress) EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state)); // until it is out of it
            EXPECT(r, time.seconds() < 1);
          }
          EXPECT_OK(r, sums_right(r, r.comm));
        }) == 0);
}

namespace {

// The id of a grow goes to the new ranks by a pipe that all inherit; here through a rank of a communicator that has them all.
void grow(Rank &r, int old) {
  tuttiComm_t all = r.comm, base = nullptr, grown = nullptr;
  EXPECT_OK(r, tuttiCommSplit(all, r.rank < old ? 0 : TUTTI_SPLIT_NOCOLOR, 0, &base, nullptr));
  tuttiUniqueId id{};
  if (r.rank == 1) EXPECT_OK(r, tuttiCommGetUniqueId(base, &id));
  EXPECT_OK(r, tuttiBcast(&id, sizeof id, tuttiUint8, 1, all, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(all));
  if (base)
    EXPECT_OK(r, tuttiCommGrow(base, r.n, r.rank == 1 ? &id : nullptr, -1, &grown, nullptr));
  else
    EXPECT_OK(r, tuttiCommGrow(nullptr, r.n, &id, r.rank, &grown, nullptr));
  go_on(r, grown, r.n, r.rank);
  if (!base) return;
  go_on(r, base, old, r.rank);
}

} // namespace

TEST_CASE("new ranks join, old ones keep their numbers, and the smaller communicator works on") {
  CHECK(run_threads(5, [](Rank &r) { grow(r, 2); }) == 0);
  for (const auto &env : kWays) CHECK(run_processes(4, [](Rank &r) { grow(r, 3); }, {.env = env}) == 0);
}
TEST_CASE("an id of a grow serves once") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.initTimeoutMs = 1500;
          tuttiComm_t base = nullptr;
          EXPECT_OK(r, tuttiCommSplit(r.comm, r.rank < 2 ? 0 : TUTTI_SPLIT_NOCOLOR, 0, &base, nullptr));
          tuttiUniqueId id{};
          if (r.rank == 0) EXPECT_OK(r, tuttiCommGetUniqueId(base, &id));
          EXPECT_OK(r, tuttiBcast(&id, sizeof id, tuttiUint8, 0, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          for (const bool first : {true, false}) {
            tuttiComm_t grown = nullptr;
            const tuttiResult_t e = tuttiCommGrow(base, 3, base && r.rank ? nullptr : &id, base ? -1 : 2, &grown, &config);
            EXPECT(r, (e == tuttiSuccess) == first);
            if (first) go_on(r, grown, 3, r.rank);
          }
          if (base) go_on(r, base, 2, r.rank);
        }) == 0);
}
TEST_CASE("old ranks that grow while another splits are told of it, and do not go on out of step") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.initTimeoutMs = 700;
          tuttiComm_t other = nullptr;
          if (r.rank == 2) {
            EXPECT(r, tuttiCommSplit(r.comm, 0, 0, &other, &config) != tuttiSuccess);
          } else {
            tuttiUniqueId id{};
            if (r.rank == 0) EXPECT_OK(r, tuttiCommGetUniqueId(r.comm, &id));
            EXPECT(r, tuttiCommGrow(r.comm, 4, r.rank ? nullptr : &id, -1, &other, &config) != tuttiSuccess);
          }
          says(r, last_error(), {"rank"});
          EXPECT(r, other == nullptr);
        }) == 0);
}
TEST_CASE("an old rank that does not grow is named, and the communicator that it left out of step ends") {
  CHECK(run_threads(3, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.initTimeoutMs = 700;
          if (r.rank != 2) {
            tuttiUniqueId id{};
            if (r.rank == 0) EXPECT_OK(r, tuttiCommGetUniqueId(r.comm, &id));
            tuttiComm_t grown = nullptr;
            EXPECT(r, tuttiCommGrow(r.comm, 4, r.rank ? nullptr : &id, -1, &grown, &config) != tuttiSuccess);
            EXPECT(r, last_error().find("2") != std::string::npos);
          }
          EXPECT(r, until_error(r, r.comm) != tuttiSuccess);
          tuttiComm_t child = nullptr;
          EXPECT(r, tuttiCommSplit(r.comm, 0, 0, &child, nullptr) != tuttiSuccess);
        }) == 0);
}
TEST_CASE("a new rank that never comes is named at the deadline") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.initTimeoutMs = 700;
          tuttiUniqueId id{};
          if (r.rank == 0) EXPECT_OK(r, tuttiCommGetUniqueId(r.comm, &id));
          tuttiComm_t grown = nullptr;
          const tuttiUniqueId *const mine = r.rank == 0 ? &id : nullptr;
          EXPECT(r, tuttiCommGrow(r.comm, 4, mine, -1, &grown, &config) == tuttiTimeout);
          says(r, last_error(), {"2 of 4 ranks checked in", "missing: 2, 3"});
          EXPECT(r, grown == nullptr);
          EXPECT_OK(r, sums_right(r, r.comm));
          EXPECT(r, tuttiCommGrow(r.comm, 4, mine, -1, &grown, &config) != tuttiSuccess);
          EXPECT_OK(r, sums_right(r, r.comm));
        }) == 0);
}
TEST_CASE("ranks that grow differently, or by nothing, are told") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiComm_t grown = nullptr;
          tuttiUniqueId id{};
          EXPECT(r, tuttiCommGrow(r.comm, 2, nullptr, -1, &grown, nullptr) == tuttiInvalidArgument);
          says(r, last_error(), {"grow: 2 ranks are no more than the 2 there are"});
          EXPECT(r, tuttiCommGrow(r.comm, 3, nullptr, 1, &grown, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommGrow(r.comm, 3, nullptr, -1, &grown, nullptr) == tuttiInvalidUsage);
          says(r, last_error(), {"none of the 2 old ranks gave a unique id"});
          EXPECT_OK(r, tuttiCommGetUniqueId(r.comm, &id));
          EXPECT(r, tuttiCommGrow(r.comm, 3, &id, -1, &grown, nullptr) == tuttiInvalidUsage);
          says(r, last_error(), {"ranks 0 and 1 gave different unique ids"});
          EXPECT(r, tuttiCommGrow(r.comm, 3 + r.rank, r.rank ? nullptr : &id, -1, &grown, nullptr) == tuttiInvalidUsage);
          says(r, last_error(), {"rank 0 wants 3 ranks, rank 1 wants 4"});
          EXPECT_OK(r, sums_right(r, r.comm));
        }) == 0);
}

// ---- deadlines

TEST_CASE("a call has a deadline of its own, and who has not called is named") {
  CHECK(run_threads(2, [](Rank &r) {
          EXPECT_OK(r, sums_right(r, r.comm));
          if (r.rank == 1) {
            tuttiResult_t state = tuttiSuccess;
            while (state == tuttiSuccess) EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
            EXPECT(r, state == tuttiRemoteError);
            says(r, last_error(r.comm), {"all_reduce #2", "waits for rank 1"}); // though it has called nothing
            return leave(r, std::exchange(r.comm, nullptr));
          }
          tuttiCallConfig_t call = TUTTI_CALL_CONFIG_INITIALIZER;
          call.timeoutMs = -1;
          EXPECT(r, tuttiCallConfigBegin(&call) == tuttiInvalidArgument);
          says(r, last_error(), {"timeoutMs: -1"});
          call.timeoutMs = 200;
          EXPECT_OK(r, tuttiCallConfigBegin(&call));
          const FairTime time;
          EXPECT(r, sums_right(r, r.comm) == tuttiTimeout);
          EXPECT(r, time.seconds() < 5); // core.timeout is ten minutes
          EXPECT_OK(r, tuttiCallConfigEnd());
          says(r, last_error(r.comm), {"all_reduce #2", "waits for rank 1", "has not called it"});
          leave(r, std::exchange(r.comm, nullptr));
        }) == 0);
}
TEST_CASE("a rank that does not finalize is named to all when the time for that is up") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT_OK(r, sums_right(r, r.comm));
                        if (r.rank == 1) {
                          tuttiResult_t state = tuttiSuccess;
                          while (state == tuttiSuccess) EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
                        } else {
                          const tuttiResult_t e = tuttiCommFinalize(r.comm);
                          EXPECT(r, e == tuttiTimeout || e == tuttiRemoteError);
                        }
                        says(r, last_error(r.comm), {"finalize: 2 of 3 ranks came within 0.3 s; missing: 1"});
                        leave(r, std::exchange(r.comm, nullptr));
                      },
                      {.env = {"TUTTI_FINALIZE_TIMEOUT=300ms"}}) == 0);
}
