// tutti/plugins/net-ib/split.h: how a message is cut into shares for several queue pairs.
#pragma once
#include <algorithm>
#include <cstdint>

namespace tutti::net_ib {

// Shares are alike and begin at multiples of 4 KiB of the message, but for the last, which has the rest.
struct Split {
  static constexpr uint64_t alignment = 4096;
  uint64_t bytes = 0, share = 0;
  uint32_t count = 1;

  // At most `most` shares of at least `least` bytes each, unless the whole has less.
  static Split of(uint64_t bytes, uint32_t most, uint64_t least) {
    const uint64_t wanted = std::clamp<uint64_t>(bytes / std::max<uint64_t>(least, alignment), 1, std::max(1u, most));
    const uint64_t share = wanted == 1 ? bytes : ((bytes + wanted - 1) / wanted + alignment - 1) / alignment * alignment;
    return {bytes, share, share == 0 ? 1 : static_cast<uint32_t>((bytes + share - 1) / share)};
  }
  // Of a message that is known to have `count` shares of this size.
  uint64_t offset(uint32_t i) const { return i * share; }
  uint64_t length(uint32_t i) const { return std::min(share, bytes - offset(i)); }
};

} // namespace tutti::net_ib
