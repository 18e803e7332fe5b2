#include "base/crc32c.h"
#include <boost/crc.hpp>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tutti {
namespace {

using Reflected = boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true>;

constexpr uint32_t reflect(uint32_t x) {
  uint32_t out = 0;
  for (int i = 0; i < 32; i++) out |= (x >> i & 1) << (31 - i);
  return out;
}

#if defined(__x86_64__)
// One result every three cycles: about 8 GB/s.
__attribute__((target("sse4.2"))) uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t bytes) {
  uint64_t c = ~crc;
  for (; bytes >= 8; at += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof word);
    c = _mm_crc32_u64(c, word);
  }
  auto rest = static_cast<uint32_t>(c);
  for (; bytes > 0; at++, bytes--) rest = _mm_crc32_u8(rest, *at);
  return ~rest;
}
#endif

} // namespace

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes) {
  Reflected state(reflect(~crc)); // it keeps the remainder the other way round
  state.process_bytes(data, bytes);
  return state.checksum();
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes) {
#if defined(__x86_64__)
  static const bool fast = __builtin_cpu_supports("sse4.2");
  if (fast) return by_instruction(crc, static_cast<const uint8_t *>(data), bytes);
#endif
  return crc32c_portable(crc, data, bytes);
}

} // namespace tutti
