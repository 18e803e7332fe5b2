// One rank of the two-hosts test: joins from the environment and runs every operation.
#include "operations.h"
#include <doctest/doctest.h>

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
    for (const size_t count : {size_t{1'000'003}, size_t{400'000}})
      support::run_case(r, {coll, tuttiFloat32, tuttiSum, count});
  EXPECT_OK(r, tuttiCommDestroy(r.comm));
  CHECK(r.failures == 0);
}
