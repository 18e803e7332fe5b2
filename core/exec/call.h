// tutti/core/exec/call.h: a call as its user made it, for signatures and messages.
#pragma once
#include "tutti/plugin/base.h"
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti {

struct CallInfo {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  tutti_dtype dtype = TUTTI_DT_FLOAT32;
  uint32_t op = 0; // tuttiRedOp_t as given, premul sums as tuttiNumOps
  int32_t root = -1;
  uint64_t count = 0;  // elements as given; of alltoallv and groups: 0, where all ranks know all blocks: their sum
  uint64_t number = 0; // of this communicator's operations, from 1
  uint64_t table = 0;  // digest of all blocks' counts where all ranks know them; 0 = blocks are alike, or known to some only
  uint32_t timeout_ms = 0;   // of the call alone; 0 = as the communicator's
  const char *tag = nullptr; // the user's own, up to kTagBytes; copied by whoever keeps the call
};
constexpr size_t kTagBytes = 63;
std::string describe(const CallInfo &call); // "all_reduce #12 (262144 float sum) [tag]"
inline uint32_t mix32(uint64_t v) {
  v *= 0x9e37'79b9'7f4a'7c15ull;
  v ^= v >> 29;
  v *= 0xbf58'476d'1ce4'e5b9ull;
  return static_cast<uint32_t>(v >> 32);
}
// Odd; the same on ranks that make the same call.
inline uint32_t call_signature(const CallInfo &c) {
  if (c.coll == TUTTI_COLL_SEND_RECV) return mix32(TUTTI_COLL_SEND_RECV) | 1u; // ranks may group them differently
  const uint64_t head = uint64_t(c.coll) << 48 | uint64_t(c.dtype) << 40 | uint64_t(c.op & 0xff) << 32 | uint32_t(c.root);
  return mix32((head ^ (c.count + 0x1234'5678'9abcull) * 0xd6e8'feb8'6659'fd93ull) + c.table) | 1u;
}

// A copy of a call's tag.
struct Tag {
  std::array<char, kTagBytes + 1> text{};
  void set(const char *from) {
    const size_t n = strnlen(from, kTagBytes);
    std::memcpy(text.data(), from, n);
    text[n] = 0;
  }
};

} // namespace tutti
