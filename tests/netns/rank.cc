// One rank of the two-hosts test: joins from the environment and runs every operation.
#include "operations.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

TEST_CASE("every operation is right between two hosts") {
  support::Watchdog dog("two hosts", std::chrono::seconds(90));
  support::Rank r;
  REQUIRE(EXPECT_OK(r, tuttiCommInitFromEnv(&r.comm, nullptr)));
  EXPECT_OK(r, tuttiCommUserRank(r.comm, &r.rank));
  EXPECT_OK(r, tuttiCommCount(r.comm, &r.n));
  support::run_all(r, {0, 1, 15, 5000, 70'001}, false);
  EXPECT_OK(r, tuttiCommDestroy(r.comm));
  CHECK(r.failures == 0);
}

TEST_CASE("long messages are right between two hosts") {
  support::Watchdog dog("two hosts, long messages", std::chrono::seconds(90));
  support::Rank r;
  REQUIRE(EXPECT_OK(r, tuttiCommInitFromEnv(&r.comm, nullptr)));
  EXPECT_OK(r, tuttiCommUserRank(r.comm, &r.rank));
  EXPECT_OK(r, tuttiCommCount(r.comm, &r.n));
  for (const support::Coll coll : {support::Coll::all_reduce, support::Coll::all_gather, support::Coll::reduce_scatter,
                                   support::Coll::broadcast, support::Coll::alltoall, support::Coll::send_recv})
    for (const size_t count : {size_t{1'000'003}, size_t{400'000}}) support::run_case(r, {coll, tuttiFloat32, tuttiSum, count});
  EXPECT_OK(r, tuttiCommDestroy(r.comm));
  CHECK(r.failures == 0);
}

// Tells the script how far this rank is.
static void note(const std::string &stop, const char *state, int rank) {
  std::ofstream(stop + "." + state + "." + std::to_string(rank));
}

// Until the file that TUTTI_TEST_STOP names is there. Whatever happens to the network meanwhile, no value may be wrong.
TEST_CASE("operations go on through outages") {
  support::Watchdog dog("outages", std::chrono::seconds(90));
  support::Rank r;
  REQUIRE(EXPECT_OK(r, tuttiCommInitFromEnv(&r.comm, nullptr)));
  EXPECT_OK(r, tuttiCommUserRank(r.comm, &r.rank));
  EXPECT_OK(r, tuttiCommCount(r.comm, &r.n));
  const char *stop = std::getenv("TUTTI_TEST_STOP");
  REQUIRE(stop);
  note(stop, "joined", r.rank);
  while (::access((std::string(stop) + ".go").c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  uint64_t ended = 0;
  for (uint64_t round = 1; !ended && r.failures == 0; round++) {
    const size_t count = round % 7 ? 3 + round % 5000 : 300'000;
    std::vector<uint64_t> x(count), y(count);
    for (size_t i = 0; i < count; i++) x[i] = round * 1000 + i + static_cast<uint64_t>(r.rank);
    EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), count, tuttiUint64, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    const auto n = static_cast<uint64_t>(r.n);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) wrong += y[i] != n * (round * 1000 + i) + n * (n - 1) / 2;
    EXPECT(r, wrong == 0);
    const uint64_t mine = ::access(stop, F_OK) == 0;
    EXPECT_OK(r, tuttiAllReduce(&mine, &ended, 1, tuttiUint64, tuttiMax, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    if (round == 30) note(stop, "running", r.rank); // connections of all kinds are there
  }
  EXPECT_OK(r, tuttiCommDestroy(r.comm));
  CHECK(r.failures == 0);
}
