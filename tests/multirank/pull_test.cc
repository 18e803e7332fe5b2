// The protocol "pull" as users meet it: refused with a reason where it cannot be, memory of tuttiMemAlloc, registration.
#include "forbid.h"
#include "operations.h"
#include "text.h"
#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace support;

namespace {

constexpr size_t kCount = 50'000;

std::string explained(Rank &r, size_t count) {
  std::vector<char> text(1 << 16);
  EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", count, tuttiFloat32, text.data(), text.size()));
  return text.data();
}

// An all-reduce on memory of tuttiMemAlloc, out of place and in place.
void reduce_shared(Rank &r) {
  void *in = nullptr, *out = nullptr, *handle = nullptr;
  if (!EXPECT_OK(r, tuttiMemAlloc(&in, kCount * sizeof(float))) || !EXPECT_OK(r, tuttiMemAlloc(&out, kCount * sizeof(float))))
    return;
  EXPECT_OK(r, tuttiCommRegister(r.comm, in, kCount * sizeof(float), &handle));
  auto *x = static_cast<float *>(in), *y = static_cast<float *>(out);
  for (int turn = 0; turn < 3; turn++) {
    for (size_t i = 0; i < kCount; i++) x[i] = static_cast<float>(r.rank + turn + static_cast<int>(i % 64));
    float *const to = turn == 1 ? x : y;
    EXPECT_OK(r, tuttiAllReduce(x, to, kCount, tuttiFloat32, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    size_t wrong = 0;
    for (size_t i = 0; i < kCount; i++)
      wrong += to[i] != 0.5F * static_cast<float>(r.n * (r.n - 1) + 2 * r.n * (turn + static_cast<int>(i % 64)));
    EXPECT(r, wrong == 0);
  }
  EXPECT_OK(r, tuttiCommDeregister(r.comm, handle));
  EXPECT(r, tuttiCommDeregister(r.comm, handle) == tuttiInvalidArgument);
  EXPECT_OK(r, tuttiMemFree(in));
  EXPECT_OK(r, tuttiMemFree(out));
}

} // namespace

TEST_CASE("pull by name is refused on all ranks when one cannot read its peers, with that rank and the reason") {
  CHECK(run_processes(3, {.env = {"TUTTI_PROTO=pull"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          let_siblings_read(); // rank 1 is the only one that cannot
          if (r.rank == 1) forbid_reading_processes();
          EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(nullptr),
               {"TUTTI_PROTO", "pull", "rank 1 cannot read the memory of rank 0", "process_vm_readv"});
        }) == 0);
}

TEST_CASE("beside another protocol, pull is passed over where it cannot be, and the explanation says why") {
  CHECK(run_processes(2, {.env = {"TUTTI_PROTO=pull,simple"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          forbid_reading_processes();
          if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
          says(r, explained(r, kCount), {"\"proto\":\"simple\"", "cannot read the memory of rank"});
          reduce_shared(r);
        }) == 0);
}

TEST_CASE("memory of tuttiMemAlloc is pulled where nothing else may be read") {
  CHECK(run_processes(3, {.env = {"TUTTI_PROTO=pull", "TUTTI_SHM_PULL=mapped"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        forbid_reading_processes();
                        if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
                        says(r, explained(r, kCount), {"\"proto\":\"pull\""});
                        for (int i = 0; i < 3; i++) reduce_shared(r);
                      }) == 0);
  CHECK(run_processes(3, {.env = {"TUTTI_PROTO=pull"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          let_siblings_read();
          if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) reduce_shared(r);
        }) == 0);
}

TEST_CASE("registration refuses what is no buffer, and takes memory of any kind") {
  CHECK(run_threads(2, [](Rank &r) {
          std::vector<float> mine(100);
          void *handle = nullptr;
          EXPECT(r, tuttiCommRegister(r.comm, nullptr, 8, &handle) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommRegister(r.comm, mine.data(), 0, &handle) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommRegister(r.comm, mine.data(), SIZE_MAX, &handle) == tuttiInvalidArgument);
          EXPECT(r, tuttiCommRegister(r.comm, mine.data(), 8, nullptr) == tuttiInvalidArgument);
          EXPECT_OK(r, tuttiCommRegister(r.comm, mine.data(), 8, &handle));
          void *again = nullptr;
          EXPECT_OK(r, tuttiCommRegister(r.comm, mine.data(), 8, &again));
          EXPECT(r, handle != again);
          EXPECT_OK(r, tuttiCommDeregister(r.comm, handle));
          EXPECT(r, tuttiCommDeregister(r.comm, mine.data()) == tuttiInvalidArgument);
          reduce_shared(r);
        }) == 0);
}
