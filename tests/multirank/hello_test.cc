#include "operations.h"
#include "ranks.h"
#include <cstdlib>
#include <doctest/doctest.h>

using namespace support;

static void sum(Rank &r) {
  std::vector<float> in(1000, static_cast<float>(r.rank + 1)), out(1000);
  EXPECT_OK(r, tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  for (float v : out)
    if (!EXPECT(r, v == 0.5F * static_cast<float>(r.n * (r.n + 1)))) break;
}

TEST_CASE("two threads sum a vector") {
  CHECK(run_threads(2, sum) == 0);
}
TEST_CASE("two processes sum a vector over shared memory") {
  CHECK(run_processes(2, sum) == 0);
}
TEST_CASE("two processes sum a vector over sockets") {
  CHECK(run_processes(2, sum, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}
TEST_CASE("a rank that ends before its body has is a failure, whatever its status") {
  CHECK(run_processes(2, {.init = false}, [](Rank &r, const tuttiUniqueId &) {
          if (r.rank == 1) std::_Exit(0);
        }) == 1);
}
