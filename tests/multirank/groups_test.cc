#include "operations.h"
#include <doctest/doctest.h>
#include <numeric>

using namespace support;

namespace {

// Everybody sends `count` numbers to everybody, itself included, in one group.
void exchange(Rank &r, size_t count) {
  const auto n = static_cast<size_t>(r.n);
  std::vector<int> out(n * count), in(n * count, -1);
  for (size_t p = 0; p < n; p++)
    for (size_t i = 0; i < count; i++)
      out[p * count + i] = static_cast<int>(static_cast<size_t>(r.rank) * 1'000'000 + p * 1000 + i % 1000);
  EXPECT_OK(r, tuttiGroupStart());
  for (size_t p = 0; p < n; p++) {
    EXPECT_OK(r, tuttiSend(&out[p * count], count, tuttiInt32, static_cast<int>(p), r.comm, nullptr));
    EXPECT_OK(r, tuttiRecv(&in[p * count], count, tuttiInt32, static_cast<int>(p), r.comm, nullptr));
  }
  EXPECT_OK(r, tuttiGroupEnd());
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  for (size_t p = 0; p < n; p++)
    for (size_t i = 0; i < count; i++)
      if (!EXPECT(r, in[p * count + i] == static_cast<int>(p * 1'000'000 + static_cast<size_t>(r.rank) * 1000 + i % 1000)))
        return;
}

void exchanges(Rank &r) {
  for (size_t count : {1ul, 100ul, 70'000ul}) exchange(r, count);
}

// Two messages to a peer, grouped on one side and not on the other.
void grouped_differently(Rank &r) {
  std::vector<int> a(50'000, 1), b(10, 2), x(50'000), y(10);
  if (r.rank == 0) {
    tuttiGroupStart();
    EXPECT_OK(r, tuttiSend(a.data(), a.size(), tuttiInt32, 1, r.comm, nullptr));
    EXPECT_OK(r, tuttiSend(b.data(), b.size(), tuttiInt32, 1, r.comm, nullptr));
    EXPECT_OK(r, tuttiGroupEnd());
  } else {
    EXPECT_OK(r, tuttiRecv(x.data(), x.size(), tuttiInt32, 0, r.comm, nullptr));
    EXPECT_OK(r, tuttiRecv(y.data(), y.size(), tuttiInt32, 0, r.comm, nullptr));
  }
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  if (r.rank == 1) EXPECT(r, x == a && y == b);
}

// Two gathers and a scatter of blocks of different sizes in one group, whose tables go before it ends.
void blocks_in_group(Rank &r) {
  const auto n = static_cast<size_t>(r.n), me = static_cast<size_t>(r.rank);
  std::vector<int> own(n, r.rank + 1), all(n * n, -1), most(n * n, -1), ones(n * n, r.rank), sums(n, -1);
  EXPECT_OK(r, tuttiGroupStart());
  for (int turn = 0; turn < 2; turn++) {
    std::vector<size_t> counts, displs;
    for (size_t p = 0; p < n; p++) counts.push_back(turn ? n - p : p), displs.push_back(p * n);
    std::vector<int> &to = turn ? most : all;
    EXPECT_OK(r, tuttiAllGatherV(own.data(), to.data(), counts.data(), displs.data(), tuttiInt32, r.comm, nullptr));
    if (turn)
      EXPECT_OK(r, tuttiReduceScatterV(ones.data(), sums.data(), counts.data(), displs.data(), tuttiInt32, tuttiSum, r.comm,
                                       nullptr));
  }
  EXPECT_OK(r, tuttiGroupEnd());
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  for (size_t p = 0; p < n; p++)
    for (size_t i = 0; i < n; i++) {
      EXPECT(r, all[p * n + i] == (i < p ? static_cast<int>(p) + 1 : -1));
      EXPECT(r, most[p * n + i] == (i < n - p ? static_cast<int>(p) + 1 : -1));
    }
  for (size_t i = 0; i < n; i++) EXPECT(r, sums[i] == (i < n - me ? r.n * (r.n - 1) / 2 : -1));
}

} // namespace

TEST_CASE("a group of sends and receives makes progress together") {
  for (int n : {1, 2, 5}) CHECK(run_threads(n, exchanges) == 0);
  CHECK(run_processes(3, exchanges) == 0);
  CHECK(run_processes(3, exchanges, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}
TEST_CASE("a group may hold operations on blocks of different sizes, whose tables need not outlive the calls") {
  for (int n : {1, 2, 5}) CHECK(run_threads(n, blocks_in_group) == 0);
  CHECK(run_processes(3, blocks_in_group) == 0);
}
TEST_CASE("ranks may group the same messages differently") {
  CHECK(run_threads(2, grouped_differently) == 0);
  CHECK(run_processes(2, grouped_differently) == 0);
}
TEST_CASE("one thread drives all ranks of its process") {
  Watchdog dog("one thread, four ranks", std::chrono::seconds(30));
  constexpr int n = 4;
  tuttiComm_t comms[n];
  Rank boss{0, n};
  REQUIRE(tuttiCommInitAll(comms, n, nullptr) == tuttiSuccess);
  float x[n];
  std::iota(x, x + n, 1.0f);
  for (int round = 0; round < 3; round++) {
    std::iota(x, x + n, 1.0f);
    EXPECT_OK(boss, tuttiGroupStart());
    for (int i = 0; i < n; i++) EXPECT_OK(boss, tuttiAllReduce(x + i, x + i, 1, tuttiFloat32, tuttiSum, comms[i], nullptr));
    EXPECT_OK(boss, tuttiGroupEnd());
    for (auto c : comms) EXPECT_OK(boss, tuttiCommSynchronize(c));
    for (float v : x) CHECK(v == 10.0f);
  }
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("one thread's group may hold more operations of each rank than a queue") {
  Watchdog dog("a long group", std::chrono::seconds(30));
  constexpr int n = 3;
  constexpr size_t ops = 300;
  tuttiComm_t comms[n];
  Rank boss{0, n};
  REQUIRE(tuttiCommInitAll(comms, n, nullptr) == tuttiSuccess);
  std::vector<std::vector<int>> x(n, std::vector<int>(ops, 1));
  std::vector<int> token(n, -1);
  EXPECT_OK(boss, tuttiGroupStart());
  for (size_t i = 0; i < n; i++) // all of a rank before the first of the next
    for (size_t k = 0; k < ops; k++)
      EXPECT_OK(boss, tuttiAllReduce(&x[i][k], &x[i][k], 1, tuttiInt32, tuttiSum, comms[i], nullptr));
  const int seven = 7;
  EXPECT_OK(boss, tuttiSend(&seven, 1, tuttiInt32, 1, comms[0], nullptr));
  EXPECT_OK(boss, tuttiRecv(&token[1], 1, tuttiInt32, 0, comms[1], nullptr));
  EXPECT_OK(boss, tuttiGroupEnd());
  EXPECT_OK(boss, tuttiStreamSynchronize(nullptr));
  for (const auto &v : x) CHECK(v == std::vector<int>(ops, n));
  CHECK(token[1] == 7);
  for (auto c : comms) EXPECT_OK(boss, tuttiCommDestroy(c));
  CHECK(boss.failures == 0);
}
TEST_CASE("an error inside a group is what its end returns, and nothing of the group starts") {
  CHECK(run_threads(2, [](Rank &r) {
          float x = 1;
          tuttiGroupStart();
          tuttiGroupStart();
          EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT(r, tuttiAllReduce(&x, &x, 1, static_cast<tuttiDataType_t>(77), tuttiSum, r.comm, nullptr) ==
                        tuttiInvalidArgument);
          EXPECT(r, tuttiGroupEnd() == tuttiInvalidArgument);
          EXPECT(r, tuttiGroupEnd() == tuttiInvalidArgument);
          EXPECT(r, x == 1);
          EXPECT(r, tuttiGroupEnd() == tuttiInvalidUsage);
          EXPECT_OK(r, tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          EXPECT(r, x == 2);
        }) == 0);
}
TEST_CASE("a tree of splits works and parents stay usable") {
  const auto tree = [](Rank &r) {
    tuttiComm_t half = nullptr, none = nullptr;
    EXPECT_OK(r, tuttiCommSplit(r.comm, r.rank % 2, -r.rank, &half, nullptr));
    EXPECT_OK(r, tuttiCommSplit(r.comm, r.rank == 0 ? TUTTI_SPLIT_NOCOLOR : 0, 0, &none, nullptr));
    EXPECT(r, (none == nullptr) == (r.rank == 0));
    Rank child{0, 0, half};
    EXPECT_OK(r, tuttiCommUserRank(half, &child.rank));
    EXPECT_OK(r, tuttiCommCount(half, &child.n));
    run_all(child, {3, 5000}, false);
    run_all(r, {17}, false);
    r.failures += child.failures;
    EXPECT_OK(r, tuttiCommDestroy(half));
    EXPECT_OK(r, tuttiCommDestroy(none));
  };
  CHECK(run_threads(5, tree) == 0);
  CHECK(run_processes(4, tree) == 0);
}
