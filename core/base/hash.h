// tutti/core/base/hash.h: FNV-1a, the same on all ranks and hosts. It finds differences and keeps nobody out.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

constexpr uint64_t fnv1a(std::string_view text) {
  uint64_t h = 0xcbf2'9ce4'8422'2325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3ull;
  return h;
}
inline uint64_t fnv1a(std::span<const std::byte> bytes) {
  return fnv1a({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
}

} // namespace tutti
