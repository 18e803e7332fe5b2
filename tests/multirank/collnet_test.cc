// In-network reduction through the public API: a collnet plugin that reduces in shared memory, and can be told to refuse, to
// run out of what it granted, and to die.
#include "operations.h"
#include "text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

using Env = std::vector<std::string>;

Env with(Env more) {
  more.emplace_back("TUTTI_PLUGIN_PATH=" FAKE_DIR); // of two the first holds
  more.emplace_back("TUTTI_CALIBRATE=off");
  return more;
}

// Ranks 0 .. n - 1 on hosts: host[r] is rank r's.
int run_on_hosts(const std::vector<int> &host, const Env &environment, const Body &body, bool init = true) {
  return run_processes(static_cast<int>(host.size()), {.env = environment, .limit = std::chrono::seconds(120), .init = false},
                       [&](Rank &r, const tuttiUniqueId &id) {
                         setenv("TUTTI_HOSTID", std::to_string(host[static_cast<size_t>(r.rank)]).c_str(), 1);
                         const tuttiResult_t made = tuttiCommInitRank(&r.comm, r.n, id, r.rank);
                         if (init && !EXPECT_OK(r, made)) return;
                         body(r);
                       });
}

nlohmann::json explained(Rank &r, const char *coll, size_t count) {
  std::vector<char> text(1 << 17);
  if (!EXPECT_OK(r, tuttiCommExplain(r.comm, coll, count, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data());
}

// What is against some way of running it.
bool refused(Rank &r, const char *coll, size_t count, const char *reason) {
  const auto e = explained(r, coll, count);
  bool said = false;
  for (const auto &way : e["ways"]) said |= has(way.value("refused", ""), reason);
  return said;
}

bool by_collnet(Rank &r, const char *coll, size_t count) {
  const auto e = explained(r, coll, count);
  return e.contains("algo") && e["algo"].get<std::string>().starts_with("collnet");
}

void every_collective(Rank &r) {
  EXPECT(r, by_collnet(r, "all_reduce", 100));
  EXPECT(r, by_collnet(r, "reduce", 100));
  EXPECT(r, by_collnet(r, "broadcast", 100));
  EXPECT(r, !by_collnet(r, "all_gather", 100));
  for (const size_t count : {1ul, 100ul, 3001ul, 40'000ul})
    for (const Coll c : kAllColls)
      for (const bool in_place : {false, true}) {
        if (in_place && !has_in_place(c)) continue;
        run_case(r, {c, tuttiFloat32, tuttiSum, count, in_place, 0, r.n - 1});
      }
  for (const auto type : {tuttiInt8, tuttiUint64, tuttiFloat16, tuttiBfloat16, tuttiFloat64})
    for (const int op : {int(tuttiSum), int(tuttiProd), int(tuttiMax), int(tuttiMin), int(tuttiAvg), kPreMul}) {
      run_case(r, {Coll::all_reduce, type, op, 777, op == int(tuttiMax), 3});
      run_case(r, {Coll::reduce, type, op, 777, false, 0, 1 % r.n});
    }
  EXPECT_OK(r, tuttiBarrier(r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
}

// Sums of `count` numbers that depend on the turn; wrong ones are counted, unless the call fails.
tuttiResult_t sum(Rank &r, int turn, size_t count, size_t *wrong) {
  const int of_ranks = r.n * (r.n - 1) / 2;
  std::vector<float> in(count), out(count);
  for (size_t i = 0; i < count; i++) in[i] = static_cast<float>(r.rank + turn + static_cast<int>(i % 16));
  tuttiResult_t s = tuttiAllReduce(in.data(), out.data(), count, tuttiFloat32, tuttiSum, r.comm, nullptr);
  if (s == tuttiSuccess) s = tuttiCommSynchronize(r.comm);
  for (size_t i = 0; s == tuttiSuccess && i < count; i++)
    *wrong += out[i] != static_cast<float>(of_ranks + r.n * (turn + static_cast<int>(i % 16)));
  return s;
}

const Env kRequired{"TUTTI_COLLNET_ENABLE=required"}, kPreferred{"TUTTI_COLLNET_ENABLE=preferred"};

Env and_also(Env a, const Env &b) {
  a.insert(a.end(), b.begin(), b.end());
  return with(std::move(a));
}

} // namespace

TEST_CASE("every collective is right through groups, and what they do not serve goes another way") {
  CHECK(run_on_hosts({0, 1}, and_also(kRequired, {}), every_collective) == 0);
  CHECK(run_on_hosts({0, 0, 1, 1, 1}, and_also(kRequired, {}), every_collective) == 0);
}

TEST_CASE("chains inside hosts and many slices are right, whatever a group was granted") {
  CHECK(run_on_hosts({0, 1, 0, 1}, and_also(kRequired, {"NCCL_ALGO=CollnetChain", "TUTTI_SLOT_BYTES=1024"}),
                     every_collective) == 0);
  CHECK(run_on_hosts({0, 1, 1}, and_also(kRequired, {"FAKE_COLLNET_OUTSTANDING=2", "TUTTI_SLOT_BYTES=1024"}),
                     every_collective) == 0);
  CHECK(run_on_hosts({0, 1, 1}, and_also(kRequired, {"FAKE_COLLNET_WINDOW=8192"}), every_collective) == 0);
}

TEST_CASE("buffers are registered where a group needs that") {
  CHECK(run_on_hosts({0, 1, 1}, and_also(kRequired, {"FAKE_COLLNET_REGISTERED=1"}), every_collective) == 0);
}

TEST_CASE("where a group wants buffers and sizes aligned, odd ones are right too") {
  for (const char *unit : {"FAKE_COLLNET_ALIGN=8", "FAKE_COLLNET_ALIGN=64"})
    CHECK_MESSAGE(run_on_hosts({0, 1, 1}, and_also(kRequired, {unit, "FAKE_COLLNET_REGISTERED=1"}),
                               [](Rank &r) {
                                 every_collective(r);
                                 for (const size_t count : {1, 3, 1001}) { // from an odd address
                                   std::vector<signed char> in(count + 1, static_cast<signed char>(r.rank)), out(count + 1);
                                   EXPECT_OK(r, tuttiAllReduce(in.data() + 1, out.data() + 1, count, tuttiInt8, tuttiSum,
                                                               r.comm, nullptr));
                                   EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                                   for (size_t i = 1; i <= count; i++) EXPECT(r, out[i] == 3);
                                 }
                               }) == 0,
                  unit);
}

TEST_CASE("operations that wait for their turn are posted ahead, and stay apart") {
  CHECK(run_on_hosts({0, 1, 2}, and_also(kRequired, {}), [](Rank &r) {
          constexpr int kOps = 100, kCount = 16;
          std::vector<int> in(kOps * kCount), out(kOps * kCount);
          for (int round = 0; round < 5; round++) {
            for (int i = 0; i < kOps * kCount; i++) in[i] = r.rank + i + round;
            for (int op = 0; op < kOps; op++)
              EXPECT_OK(r, tuttiAllReduce(&in[op * kCount], &out[op * kCount], kCount, tuttiInt32, tuttiSum, r.comm, nullptr));
            EXPECT_OK(r, tuttiCommSynchronize(r.comm));
            int wrong = 0;
            for (int i = 0; i < kOps * kCount; i++) wrong += out[i] != r.n * (r.n - 1) / 2 + r.n * (i + round);
            EXPECT(r, wrong == 0);
          }
          int chained = 1; // each reads what the one before wrote
          for (int op = 0; op < 10; op++)
            EXPECT_OK(r, tuttiAllReduce(&chained, &chained, 1, tuttiInt32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          EXPECT(r, chained == 59049); // 3 to the 10th
        }) == 0);
}

TEST_CASE("without a setting nobody is asked, and a refusal of one rank holds for all, with one reason") {
  CHECK(run_on_hosts({0, 1}, with({}), [](Rank &r) {
          const auto e = explained(r, "all_reduce", 16);
          EXPECT(r, !e["collnet"]["used"].get<bool>());
          EXPECT(r, has(e["collnet"]["why"].get<std::string>(), "\"off\""));
          size_t wrong = 0;
          EXPECT_OK(r, sum(r, 1, 1000, &wrong));
          EXPECT(r, wrong == 0);
        }) == 0);
  CHECK(run_on_hosts({0, 1, 1}, and_also(kPreferred, {"FAKE_COLLNET_REFUSE=1:all 4 places are taken by job 7"}), [](Rank &r) {
          const auto e = explained(r, "all_reduce", 16);
          const std::string why = e["collnet"]["why"];
          EXPECT(r, !e["collnet"]["used"].get<bool>());
          EXPECT(r, has(why, "rank 0"));
          EXPECT(r, has(why, "member 1 was refused: all 4 places are taken by job 7"));
          bool said = false;
          for (const auto &way : e["ways"])
            said |= way["algo"] == "collnet_direct" && has(way.value("refused", ""), "all 4 places are taken");
          EXPECT(r, said);
          size_t wrong = 0;
          EXPECT_OK(r, sum(r, 1, 1000, &wrong));
          EXPECT(r, wrong == 0);
        }) == 0);
}

TEST_CASE("a head goes by the device of its NIC's rail") {
  for (const std::string device : {"fake0:", "fake1:"}) {
    const char *rails = device == "fake0:" ? "FAKE_COLLNET_RAILS=0,7" : "FAKE_COLLNET_RAILS=7,0";
    CHECK(run_on_hosts({0, 1}, and_also(kPreferred, {rails, "FAKE_COLLNET_REFUSE=0:see the device"}), [&](Rank &r) {
            const auto e = explained(r, "all_reduce", 16);
            if (!e["topology"].contains("ports")) return; // no NIC is known here
            EXPECT(r, has(e["collnet"]["why"].get<std::string>(), device));
          }) == 0);
  }
}

// The others wait for a member that has failed, or have just stopped waiting: neither is the reason.
TEST_CASE("the member that failed says why, and not those that wait for it") {
  for (const Env &others : {Env{}, Env{"FAKE_COLLNET_DEADLINE=1"}}) {
    const Env refused = and_also({"FAKE_COLLNET_REFUSE_ALONE=2:the key does not fit"}, others);
    CHECK(run_on_hosts({0, 1, 2}, and_also(kPreferred, refused), [](Rank &r) {
            const std::string why = explained(r, "all_reduce", 16)["collnet"]["why"];
            EXPECT(r, has(why, "rank 2") && has(why, "the key does not fit"));
          }) == 0);
  }
}

TEST_CASE("where it is required, what is against it is an error of all ranks") {
  for (const char *fault : {"FAKE_COLLNET_REFUSE=1:no room", "FAKE_COLLNET_NO_DEVICE=1"})
    CHECK_MESSAGE(run_on_hosts(
                      {0, 1, 1}, and_also(kRequired, {fault}),
                      [](Rank &r) {
                        const std::string error = tuttiGetLastError(nullptr);
                        EXPECT(r, has(error, "coll.collnet is \"required\""));
                        EXPECT(r, has(error, "no room") || has(error, "none was wanted"));
                      },
                      false) == 0,
                  fault);
}

TEST_CASE("types that groups do not reduce go another way") {
  CHECK(run_on_hosts({0, 1}, and_also(kRequired, {"FAKE_COLLNET_DTYPES=0x80"}), [](Rank &r) { // float32 only
          for (const auto type : {tuttiFloat32, tuttiInt32, tuttiFloat64})
            for (const Coll c : {Coll::all_reduce, Coll::reduce, Coll::broadcast}) run_case(r, {c, type, tuttiSum, 5000});
          EXPECT_OK(r, tuttiBarrier(r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
        }) == 0);
}

TEST_CASE("members that were granted different limits use groups all the same") {
  CHECK(run_on_hosts({0, 1, 2}, and_also(kRequired, {"FAKE_COLLNET_UNEVEN=1"}), [](Rank &r) {
          every_collective(r);
          const auto e = explained(r, "all_reduce", 16);
          EXPECT(r, e["collnet"]["window_bytes"] == 1 << 19);
          EXPECT(r, e["collnet"]["outstanding"] == 4);
        }) == 0);
}

TEST_CASE("what aggregators can take is weighed by collective, where it is known") {
  CHECK(run_on_hosts({0, 1}, and_also(kPreferred, {"FAKE_COLLNET_HOST_MBPS=1000"}), [](Rank &r) { // B is not known
          EXPECT(r, !refused(r, "all_reduce", 1 << 22, "aggregators of"));
        }) == 0);
  CHECK(
      run_on_hosts({0, 1, 2, 3}, and_also(kPreferred, {"FAKE_COLLNET_MBPS=3000", "FAKE_COLLNET_HOST_MBPS=1000"}), [](Rank &r) {
        EXPECT(r, explained(r, "all_reduce", 16)["collnet"]["aggregators_mbps"] == 3000);
        EXPECT(r, !refused(r, "all_reduce", 1 << 22,
                           "aggregators of 3000 Mbit/s")); // 1.33 times a copy, where hosts among themselves take 1.5
        EXPECT(r, refused(r, "reduce", 1 << 22, "aggregators of 3000 Mbit/s")); // ... and here 1
        EXPECT(r, refused(r, "broadcast", 1 << 22, "aggregators of 3000 Mbit/s"));
      }) == 0);
}

TEST_CASE("aggregators that all hosts share are declined for long messages, with the reason") {
  CHECK(
      run_on_hosts({0, 1, 2, 3}, and_also(kPreferred, {"FAKE_COLLNET_MBPS=1000", "FAKE_COLLNET_HOST_MBPS=1000"}), [](Rank &r) {
        EXPECT(r, explained(r, "all_reduce", 1 << 20)["collnet"]["used"].get<bool>());
        EXPECT(r, !by_collnet(r, "all_reduce", 1 << 20));
        EXPECT(r, refused(r, "all_reduce", 1 << 20, "aggregators of 1000 Mbit/s for 4 hosts"));
      }) == 0);
  CHECK(run_on_hosts({0, 1, 2, 3}, and_also(kPreferred, {"FAKE_COLLNET_MBPS=8000", "FAKE_COLLNET_HOST_MBPS=1000"}),
                     [](Rank &r) { EXPECT(r, !refused(r, "all_reduce", 1 << 20, "aggregators of")); }) == 0);
}

TEST_CASE("when the aggregator dies, operations without a result fail, and the next ones run without it and are right") {
  for (const std::vector<int> &hosts : {std::vector{0, 1, 2}, std::vector{0, 0, 1, 1}})
    CHECK(
        run_on_hosts(hosts, and_also(kPreferred, {"FAKE_COLLNET_DIE=7", "TUTTI_ALGO=all_reduce:collnet_direct"}), [](Rank &r) {
          EXPECT(r, by_collnet(r, "all_reduce", 500));
          size_t wrong = 0;
          int failed = 0, last = -1;
          for (int turn = 0; turn < 30; turn++) {
            if (sum(r, turn, 500, &wrong) == tuttiSuccess) continue;
            failed++, last = turn;
            EXPECT(r, has(tuttiGetLastError(r.comm), "the aggregator is lost"));
          }
          EXPECT(r, wrong == 0);
          EXPECT(r, failed >= 1 && failed <= 3);
          EXPECT(r, last < 10);
          const auto e = explained(r, "all_reduce", 500);
          EXPECT(r, !e["collnet"]["used"].get<bool>());
          EXPECT(r, has(e["collnet"]["why"].get<std::string>(), "the aggregator is lost"));
          for (const Coll c : kAllColls) run_case(r, {c, tuttiFloat32, tuttiSum, 1000});
        }) == 0);
}

// Operations that fail alone are told to those who wait for them, and not to a call that only waits for room in the queue.
TEST_CASE("calls behind a full queue are made though operations before them have failed, and no failure is forgotten") {
  for (const bool grouped : {false, true})
    CHECK_MESSAGE(run_on_hosts({0, 1, 2}, and_also(kPreferred, {"FAKE_COLLNET_DIE=7", "TUTTI_ALGO=all_reduce:collnet_direct"}),
                               [&](Rank &r) {
                                 constexpr int kOps = 4 * 128; // of which a queue holds 128
                                 std::vector<int> in(kOps), out(kOps, -1);
                                 if (grouped) EXPECT_OK(r, tuttiGroupStart());
                                 for (int op = 0; op < kOps; op++) {
                                   in[op] = r.rank + op;
                                   EXPECT_OK(r, tuttiAllReduce(&in[op], &out[op], 1, tuttiInt32, tuttiSum, r.comm, nullptr));
                                 }
                                 if (grouped) EXPECT_OK(r, tuttiGroupEnd());
                                 int told = 0, wrong = 0;
                                 while (told < kOps && tuttiCommSynchronize(r.comm) == tuttiRemoteError) told++;
                                 EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                                 for (int op = 0; op < kOps; op++) wrong += out[op] != 3 + 3 * op;
                                 EXPECT(r, told < 128);
                                 EXPECT(r, wrong <= told);
                                 int all = told; // some rank may have had all its results
                                 EXPECT_OK(r, tuttiAllReduce(&all, &all, 1, tuttiInt32, tuttiSum, r.comm, nullptr));
                                 EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                                 EXPECT(r, all >= 1);
                                 size_t wrong_after = 0;
                                 EXPECT_OK(r, sum(r, 1, 500, &wrong_after)); // in step
                                 EXPECT(r, wrong_after == 0);
                               }) == 0,
                  grouped);
}

// No plugin says so: the operation's own deadline ends the groups, and nobody else.
TEST_CASE("a group that gives neither a result nor a reason is given up when the operation's time is over") {
  const Env stops{"FAKE_COLLNET_STOP=3", "TUTTI_TIMEOUT=1500ms", "TUTTI_ALGO=all_reduce:collnet_direct"};
  CHECK(run_on_hosts({0, 0, 1, 1, 2}, and_also(kPreferred, stops), [](Rank &r) {
          size_t wrong = 0;
          for (int turn = 0; turn < 3; turn++) EXPECT_OK(r, sum(r, turn, 500, &wrong));
          EXPECT(r, sum(r, 3, 500, &wrong) == tuttiRemoteError);
          EXPECT(r, has(tuttiGetLastError(r.comm), "collnet group 0"));
          for (int turn = 4; turn < 8; turn++) EXPECT_OK(r, sum(r, turn, 500, &wrong));
          EXPECT(r, wrong == 0);
        }) == 0);
  CHECK(run_on_hosts({0, 1, 1}, and_also(kRequired, stops), [](Rank &r) {
          size_t wrong = 0;
          for (int turn = 0; turn < 3; turn++) EXPECT_OK(r, sum(r, turn, 500, &wrong));
          EXPECT(r, sum(r, 3, 500, &wrong) != tuttiSuccess);
          const std::string error = tuttiGetLastError(r.comm);
          EXPECT(r, has(error, "no progress for") && has(error, "collnet group 0"));
          EXPECT(r, wrong == 0);
        }) == 0);
}

TEST_CASE("a rank that has not called is what a timeout names, not the groups that wait for it") {
  CHECK(
      run_on_hosts({0, 1, 2}, and_also(kPreferred, {"TUTTI_TIMEOUT=1s", "TUTTI_ALGO=all_reduce:collnet_direct"}), [](Rank &r) {
        size_t wrong = 0;
        EXPECT_OK(r, sum(r, 0, 500, &wrong));
        tuttiResult_t state = tuttiSuccess;
        while (r.rank == 2 && state == tuttiSuccess) { // late, and then it learns what the others say
          EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        EXPECT(r, sum(r, 1, 500, &wrong) != tuttiSuccess);
        EXPECT(r, has(tuttiGetLastError(r.comm), "rank 2 has not called it"));
      }) == 0);
}

const char *const kTwoWays = // without groups
    "TUTTI_COLL_CLASS=ops=all_reduce max_bytes=1K algo=collnet_direct,tree; ops=all_reduce min_bytes=2K algo=collnet_direct";

// Operation 3 waits behind 2, which is lost. What rank 0 calls after it, of a size that the same groups serve and that runs in
// another way without them, is no business of operation 3.
TEST_CASE("an operation that was called before a loss runs in the way of its own size, whatever is called after it") {
  CHECK(run_on_hosts({0, 1, 2},
                     and_also(kPreferred,
                              {"FAKE_COLLNET_DIE=1", "TUTTI_PROTO=simple", "TUTTI_SLOT_BYTES=64K", "TUTTI_DEPTH=8", kTwoWays}),
                     [](Rank &r) {
                       EXPECT(r, by_collnet(r, "all_reduce", 16));
                       EXPECT(r, by_collnet(r, "all_reduce", 4096));
                       size_t wrong = 0;
                       EXPECT_OK(r, sum(r, 1, 16, &wrong));
                       std::vector<int> small(16, 1), big(4096, 1);
                       const auto add = [&](std::vector<int> &v) {
                         EXPECT_OK(r, tuttiAllReduce(v.data(), v.data(), v.size(), tuttiInt32, tuttiSum, r.comm, nullptr));
                       };
                       if (r.rank != 0)
                         std::this_thread::sleep_for(std::chrono::milliseconds(100)); // rank 0 has called all three by then
                       add(small), add(small);
                       if (r.rank == 0) add(big);
                       EXPECT(r, tuttiCommSynchronize(r.comm) == tuttiRemoteError); // operation 2
                       small.assign(16, 1); // what it holds after a loss is anybody's guess
                       if (r.rank != 0) add(big);
                       EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                       for (const int v : big) wrong += v != r.n;
                       EXPECT(r, wrong == 0);
                     }) == 0);
}

TEST_CASE("a broadcast has several slices in flight at all members") {
  const Env pairs{"FAKE_COLLNET_PAIRS=1024", "TUTTI_SLOT_BYTES=1024", "TUTTI_ALGO=broadcast:collnet_direct",
                  "TUTTI_TIMEOUT=10s"};
  for (const auto &host : {std::vector{0, 1, 2}, std::vector{0, 0, 1, 1}})
    CHECK(run_on_hosts(host, and_also(kRequired, pairs), [](Rank &r) {
            for (const int root : {0, r.n - 1}) run_case(r, {Coll::broadcast, tuttiFloat32, tuttiSum, 5001, false, 0, root});
          }) == 0);
}

// Rank 0 has called the next operation while the others have not: all the same, all members post the slices of this one first.
TEST_CASE("nothing is posted ahead before all slices of the present operation have been") {
  const Env env{"TUTTI_PLUGIN_PATH=" FAKE_DIR ":" ONE_LANE_DIR, "TUTTI_ALGO=all_reduce:one_lane", "TUTTI_PROTO=simple",
                "TUTTI_SLOT_BYTES=1024"};
  CHECK(run_on_hosts({0, 1}, and_also(kRequired, env), [](Rank &r) {
          std::vector<int> big(1024, 1), small(16, 1);
          const auto add = [&](std::vector<int> &v) {
            EXPECT_OK(r, tuttiAllReduce(v.data(), v.data(), v.size(), tuttiInt32, tuttiSum, r.comm, nullptr));
          };
          if (r.rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100)); // rank 0 waits for the first slice
          add(big);
          if (r.rank == 1) EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          add(small);
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          int wrong = 0;
          for (const int v : big) wrong += v != r.n;
          for (const int v : small) wrong += v != r.n;
          EXPECT(r, wrong == 0);
        }) == 0);
}

// For the thread sanitizer: the progress thread closes the groups while links to them are made.
TEST_CASE("plans for further sizes are bound while the groups are lost") {
  CHECK(run_on_hosts({0, 1, 2}, and_also(kPreferred, {"FAKE_COLLNET_DIE=2", "TUTTI_ALGO=all_reduce:collnet_direct"}),
                     [](Rank &r) {
                       std::vector<std::vector<int>> data;
                       for (size_t count = 1; count <= 1 << 16; count *= 2) data.emplace_back(count, 1);
                       for (auto &v : data) {
                         EXPECT_OK(r, tuttiAllReduce(v.data(), v.data(), v.size(), tuttiInt32, tuttiSum, r.comm, nullptr));
                         std::this_thread::sleep_for(std::chrono::milliseconds(5)); // the progress thread runs it
                       }
                       for (int failed = 0; failed < 20 && tuttiCommSynchronize(r.comm) != tuttiSuccess;) failed++;
                       EXPECT(r, has(explained(r, "all_reduce", 16)["collnet"]["why"].get<std::string>(), "lost: "));
                       int after = 1;
                       EXPECT_OK(r, tuttiAllReduce(&after, &after, 1, tuttiInt32, tuttiSum, r.comm, nullptr));
                       EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                       EXPECT(r, after == r.n);
                     }) == 0);
}

// Ranks that are no members of a group know what it was granted as well: they neither wait for members that cannot, nor go
// without them.
TEST_CASE("slots that a call asks for are cut to what groups were granted") {
  const auto asking = [](Rank &r, uint64_t slot) {
    tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
    c.slotBytes = slot;
    EXPECT_OK(r, tuttiCallConfigBegin(&c));
    size_t wrong = 0;
    const tuttiResult_t s = sum(r, 0, 400'000, &wrong);
    EXPECT_OK(r, tuttiCallConfigEnd());
    EXPECT(r, wrong == 0);
    return s;
  };
  CHECK(run_on_hosts({0, 0, 1, 1}, and_also(kRequired, {"FAKE_COLLNET_WINDOW=1048576"}), [&](Rank &r) {
          for (const uint64_t slot : {1024, 1 << 20, 4 << 20}) EXPECT_OK(r, asking(r, slot));
        }) == 0);
  CHECK(run_on_hosts({0, 0, 1, 1}, and_also(kPreferred, {"FAKE_COLLNET_WINDOW=1024"}), [&](Rank &r) {
          const std::string why = explained(r, "all_reduce", 16)["collnet"]["why"];
          EXPECT(r, has(why, "2 posts of 1024 bytes at once are needed, granted are 8 of"));
          EXPECT_OK(r, asking(r, 1 << 20));
        }) == 0);
}

TEST_CASE("where it is required, all ranks end when the aggregator dies, and say why") {
  CHECK(run_on_hosts({0, 1, 1}, and_also(kRequired, {"FAKE_COLLNET_DIE=3"}), [](Rank &r) {
          size_t wrong = 0;
          tuttiResult_t s = tuttiSuccess;
          for (int turn = 0; turn < 30 && s == tuttiSuccess; turn++) s = sum(r, turn, 500, &wrong);
          EXPECT(r, s != tuttiSuccess);
          EXPECT(r, wrong == 0);
          EXPECT(r, has(tuttiGetLastError(r.comm), "the aggregator is lost"));
        }) == 0);
}
