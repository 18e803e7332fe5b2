// Networks that need their buffers registered, through the public API: a net that checks every buffer carries whole jobs.
#include "forbid.h"
#include "operations.h"
#include "text.h"
#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace support;

namespace {

const std::vector<std::string> kStrict = {"TUTTI_SHM_DISABLE=1", "TUTTI_NET=strict", "TUTTI_PLUGIN_PATH=" STRICT_DIR};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.end(), kStrict.begin(), kStrict.end());
  return more;
}

constexpr size_t kCount = 100'000;

// A sum of all ranks in memory that the caller made: `turn` changes what is added up.
void reduce(Rank &r, float *in, float *out, int turn) {
  for (size_t i = 0; i < kCount; i++) in[i] = static_cast<float>(r.rank + turn + static_cast<int>(i % 64));
  EXPECT_OK(r, tuttiAllReduce(in, out, kCount, tuttiFloat32, tuttiSum, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  size_t wrong = 0;
  for (size_t i = 0; i < kCount; i++)
    wrong += out[i] != 0.5F * static_cast<float>(r.n * (r.n - 1) + 2 * r.n * (turn + static_cast<int>(i % 64)));
  EXPECT(r, wrong == 0);
}

// Memory of tuttiMemAlloc that comes and goes, at the same addresses; memory of the user's that is registered and is not.
void memory_of_all_kinds(Rank &r) {
  for (int turn = 0; turn < 4; turn++) {
    void *in = nullptr, *out = nullptr;
    if (!EXPECT_OK(r, tuttiMemAlloc(&in, kCount * sizeof(float))) || !EXPECT_OK(r, tuttiMemAlloc(&out, kCount * sizeof(float))))
      return;
    reduce(r, static_cast<float *>(in), static_cast<float *>(out), turn);
    reduce(r, static_cast<float *>(in), static_cast<float *>(in), turn); // in place
    EXPECT_OK(r, tuttiMemFree(in));
    EXPECT_OK(r, tuttiMemFree(out));
  }
  std::vector<float> mine(kCount), result(kCount);
  reduce(r, mine.data(), result.data(), 1);
  void *handle = nullptr, *other = nullptr;
  EXPECT_OK(r, tuttiCommRegister(r.comm, mine.data(), kCount * sizeof(float), &handle));
  EXPECT_OK(r, tuttiCommRegister(r.comm, result.data(), kCount * sizeof(float), &other));
  reduce(r, mine.data(), result.data(), 2);
  EXPECT_OK(r, tuttiCommDeregister(r.comm, handle));
  reduce(r, mine.data(), result.data(), 3);
} // what is left ends with the communicator

} // namespace

TEST_CASE("every operation is right over a network that needs registrations, small and large, one after the other") {
  const auto every = [](Rank &r) {
    for (const size_t count : {1ul, 1000ul, 40'000ul, 7ul})
      for (const Coll c : kAllColls) run_case(r, {c, tuttiFloat32, tuttiSum, count});
  };
  CHECK(run_processes(3, every, {.env = kStrict}) == 0);
}

TEST_CASE("memory of any kind may be used, freed, made again and deregistered") {
  CHECK(run_processes(2, memory_of_all_kinds, {.env = kStrict}) == 0);
  CHECK(run_processes(2, memory_of_all_kinds, {.env = with({"TUTTI_NET_REGISTRATIONS=1"})}) == 0);
  CHECK(run_processes(3, memory_of_all_kinds, {.env = with({"TUTTI_ALGO=ring"})}) == 0);
}

TEST_CASE("the same by pull: peers read registered memory, and all else is sent") {
  for (const char *algo : {"TUTTI_ALGO=direct", "TUTTI_ALGO=ring"})
    CHECK(run_processes(3, {.env = with({"TUTTI_PROTO=pull", algo}), .init = false}, [](Rank &r, const tuttiUniqueId &id) {
            let_siblings_read();
            if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
            std::vector<char> text(1 << 16);
            EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", kCount, tuttiFloat32, text.data(), text.size()));
            says(r, text.data(), {"\"proto\":\"pull\""});
            memory_of_all_kinds(r);
          }) == 0);
}

TEST_CASE("two communicators register the same memory, and one of them may end") {
  const auto both = [](Rank &r) {
    tuttiComm_t second = nullptr;
    if (!EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &second, nullptr))) return;
    void *in = nullptr, *out = nullptr;
    if (!EXPECT_OK(r, tuttiMemAlloc(&in, kCount * sizeof(float)))) return;
    if (!EXPECT_OK(r, tuttiMemAlloc(&out, kCount * sizeof(float)))) return;
    auto *x = static_cast<float *>(in), *y = static_cast<float *>(out);
    reduce(r, x, y, 1);
    std::swap(r.comm, second);
    reduce(r, x, y, 2);
    EXPECT_OK(r, tuttiCommDestroy(r.comm));
    r.comm = second;
    reduce(r, x, y, 3);
    EXPECT_OK(r, tuttiMemFree(in));
    EXPECT_OK(r, tuttiMemFree(out));
  };
  CHECK(run_processes(2, both, {.env = kStrict}) == 0);
}
