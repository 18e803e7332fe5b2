// Copies: every length and alignment, nothing outside the destination touched.
#include "targets.h"
#include <cstring>
#include <vector>

namespace {

void check_copy(tutti_copy_fn fn, size_t bytes, size_t to, size_t from) {
  std::vector<uint8_t> src(bytes + from + 1), dst(bytes + to + 128, 0xee);
  for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<uint8_t>(i * 31 + 7);
  fn(dst.data() + to, src.data() + from, bytes);
  bool fine = std::memcmp(dst.data() + to, src.data() + from, bytes) == 0;
  for (size_t i = 0; i < to; ++i) fine &= dst[i] == 0xee;
  for (size_t i = to + bytes; i < dst.size(); ++i) fine &= dst[i] == 0xee;
  if (!fine) FAIL_CHECK("copy of " << bytes << " bytes to offset " << to << " from offset " << from);
}

} // namespace

TEST_CASE("copies of every length up to 2 KiB and around the prefetch distance are exact") {
  for_each_target([] {
    for (uint32_t flags : {0u, uint32_t{TUTTI_KERNEL_NONTEMPORAL}}) {
      const auto fn = tutti::host_reduce_service()->copy(flags);
      REQUIRE(bool(fn));
      for (size_t n = 0; n <= 2200; ++n) check_copy(fn, n, n % 67, n * 5 % 61);
      for (size_t n : {2303u, 2304u, 2305u, 4095u, 4096u, 4097u, 70001u})
        for (size_t shift : {0u, 1u, 3u, 16u, 63u, 64u}) check_copy(fn, n, shift, 64 - shift);
    }
  });
}

TEST_CASE("a copy onto itself changes nothing") {
  for_each_target([] {
    for (uint32_t flags : {0u, uint32_t{TUTTI_KERNEL_NONTEMPORAL}})
      for (size_t n : {0u, 1u, 7u, 64u, 100u, 200u, 255u, 5000u}) {
        std::vector<uint8_t> v(n + 3);
        for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint8_t>(i * 13);
        const auto before = v;
        tutti::host_reduce_service()->copy(flags)(v.data() + 3, v.data() + 3, n);
        CHECK(v == before);
      }
  });
}
