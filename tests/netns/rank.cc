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
