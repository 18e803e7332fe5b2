#include "operations.h"
#include <cstdlib>
#include <doctest/doctest.h>

using namespace support;

namespace {

// Around slots and their lines, odd, and long enough for many slices.
std::vector<size_t> counts() {
  std::vector<size_t> out{0, 1, 3, 14, 15, 257, 2048, 2049, 4097, 40'001};
  if (full()) out.insert(out.end(), {7, 16, 17, 1023, 16'384, 16'385, 262'145, 1'000'003});
  return out;
}

void everything(Rank &r) {
  run_all(r, counts(), full());
}
void types(Rank &r) {
  run_all(r, {1, 5, 2500}, true);
}

} // namespace

TEST_CASE("every operation is right for every number of threads up to eight and for thirteen") {
  for (int n : {1, 2, 3, 4, 5, 7, 8, 13}) CHECK_MESSAGE(run_threads(n, everything) == 0, n);
}
TEST_CASE("every type and reduction is right on three threads") {
  CHECK(run_threads(3, types) == 0);
}
TEST_CASE("every operation is right over shared memory") {
  CHECK(run_processes(2, everything) == 0);
  CHECK(run_processes(4, everything) == 0);
}
TEST_CASE("every type and reduction is right over shared memory") {
  CHECK(run_processes(2, types) == 0);
}
TEST_CASE("every operation is right over sockets") {
  CHECK(run_processes(2, everything, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
  CHECK(run_processes(3, everything, {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
}
TEST_CASE("every operation is right with any algorithm that supports it") {
  for (const char *algo :
       {"TUTTI_ALGO=^ring", "TUTTI_ALGO=allreduce:ring;allgather:ring;reducescatter:ring;broadcast:ring;reduce:ring"})
    CHECK_MESSAGE(run_processes(4, everything, {.env = {algo}}) == 0, algo);
}
TEST_CASE("several channels give the same results") {
  CHECK(run_processes(3, everything, {.env = {"TUTTI_MIN_CHANNELS=3"}}) == 0);
}
TEST_CASE("several MiB are right on two processes") {
  CHECK(run_processes(2, [](Rank &r) {
          for (Coll c : kAllColls) run_case(r, {c, tuttiFloat32, tuttiSum, (3u << 20) + 7});
        }) == 0);
}
