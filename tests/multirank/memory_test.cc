// What the library costs a job in memory, as the kernel counts it: buffers, plans, threads, plugins, code.
#include "operations.h"
#include <doctest/doctest.h>
#include <fstream>

using namespace support;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kOwnMemoryOnly = false; // shadow memory is counted, too
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr bool kOwnMemoryOnly = false;
#else
constexpr bool kOwnMemoryOnly = true;
#endif
#else
constexpr bool kOwnMemoryOnly = true;
#endif

namespace {

// Resident memory of this process; what n processes share counts for a n-th in each, so that a job's sum is right.
uint64_t resident_kib() {
  std::ifstream in("/proc/self/smaps_rollup");
  for (std::string word; in >> word;)
    if (uint64_t kib = 0; word == "Pss:" && in >> kib) return kib;
  return 0;
}

void every_operation(Rank &r) {
  for (const Coll c : kAllColls)
    for (const size_t bytes : {8ul, 1000ul, 8192ul, 65'536ul}) {
      const bool whole = c == Coll::all_reduce || c == Coll::reduce || c == Coll::broadcast || c == Coll::send_recv;
      run_case(r, {c, tuttiUint8, tuttiSum, bytes / (whole ? 1 : 8)});
    }
}

} // namespace

TEST_CASE("a job of eight ranks with messages up to 64 KiB grows by at most 64 MiB of resident memory") {
  if (!kOwnMemoryOnly) return;
  CHECK(run_processes(8, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          const uint64_t before = resident_kib();
          if (!EXPECT(r, before > 0) || !EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
          every_operation(r);
          const uint64_t now = resident_kib();
          uint64_t mine = now > before ? now - before : 0, all = 0;
          EXPECT_OK(r, tuttiAllReduce(&mine, &all, 1, tuttiUint64, tuttiSum, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          EXPECT(r, all > 1024); // that something was measured
          if (!EXPECT(r, all <= 64u << 10) || r.rank == 0)
            std::fprintf(stderr, "resident memory of 8 ranks grew by %llu KiB\n", static_cast<unsigned long long>(all));
        }) == 0);
}
