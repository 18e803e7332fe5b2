// Prints GB/s (bytes read and written) of the kernels beside memcpy, in cache and in memory.
#include "base/types.h"
#include "exec/kernels.h"
#include <algorithm>
#include <chrono>
#include <cstring>
#include <fmt/core.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

template <class Body> double best_seconds(size_t bytes, Body body) {
  const int runs = static_cast<int>(std::clamp<size_t>((size_t{64} << 20) / (bytes + 64), 3, 200000));
  double best = 1e9;
  for (int rep = 0; rep < 5; ++rep) {
    const auto start = Clock::now();
    for (int i = 0; i < runs; ++i) {
      body();
      asm volatile("" ::: "memory");
    }
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / runs);
  }
  return best;
}

void line(std::string_view what, size_t bytes, size_t moved, double seconds, double memcpy_seconds) {
  fmt::print("{:<28} {:>9} B {:>9.1f} ns {:>7.1f} GB/s {:>6.2f} x memcpy\n", what, bytes, seconds * 1e9,
             static_cast<double>(moved) / seconds * 1e-9,
             static_cast<double>(moved) / seconds / (2.0 * static_cast<double>(bytes) / memcpy_seconds));
}

} // namespace

int main() {
  const auto *svc = tutti::host_reduce_service();
  fmt::print("target {}\n", tutti::simd_target());
  const size_t most = 32u << 20;
  std::vector<uint8_t> a(most), b(most), c(most), d(most);
  for (size_t bytes : {size_t{8}, size_t{64}, size_t{1000}, size_t{8192}, size_t{65536}, size_t{1} << 20, most}) {
    const double base = best_seconds(bytes, [&] { memcpy(c.data(), a.data(), bytes); });
    line("memcpy", bytes, 2 * bytes, base, base);
    for (uint32_t flags : {0u, uint32_t{TUTTI_KERNEL_NONTEMPORAL}}) {
      const char *nt = flags ? " nt" : "";
      const auto copy = svc->copy(flags);
      line(fmt::format("copy{}", nt), bytes, 2 * bytes, best_seconds(bytes, [&] { copy(c.data(), a.data(), bytes); }), base);
      for (tutti_dtype t :
           {TUTTI_DT_FLOAT32, TUTTI_DT_FLOAT16, TUTTI_DT_BFLOAT16, TUTTI_DT_FLOAT8E4M3, TUTTI_DT_FLOAT8E5M2, TUTTI_DT_INT8}) {
        const auto fn = svc->reduce(t, TUTTI_RED_SUM, flags);
        line(fmt::format("sum {}{}", tutti::dtype_name(t), nt), bytes, 3 * bytes,
             best_seconds(bytes, [&] { fn(c.data(), a.data(), b.data(), bytes); }), base);
      }
      const auto max = svc->reduce(TUTTI_DT_FLOAT32, TUTTI_RED_MAX, flags);
      line(fmt::format("max float{}", nt), bytes, 3 * bytes,
           best_seconds(bytes, [&] { max(c.data(), a.data(), b.data(), bytes); }), base);
      const auto fn2 = svc->reduce2(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, flags);
      line(fmt::format("sum2 float{}", nt), bytes, 4 * bytes,
           best_seconds(bytes, [&] { fn2(c.data(), d.data(), a.data(), b.data(), bytes); }), base);
    }
  }
  return 0;
}
