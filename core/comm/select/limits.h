// tutti/core/comm/select/limits.h: how many channels a collective may have, and how many are proposed.
#pragma once
#include "topology/topology.h"

namespace tutti {

constexpr uint32_t kMinSlot = 1024; // bytes; of links, whatever limits say

struct ChannelLimits {
  uint32_t min = 1, max = 1; // of any way
  uint32_t unmeasured = 1;   // most of a way that nobody has measured
  uint32_t proposed = 1;     // to the tuner, for long messages
  uint32_t proposal(uint64_t bytes) const;
};
// From coll.min_channels and coll.max_channels. Across hosts a channel is a way of its own over NICs: as many as were searched
// are proposed, and more only where that was measured to be faster. On one host memory is shared: one is proposed, and the
// tuner is free.
ChannelLimits channel_limits(uint32_t min, uint32_t max, const Topology &topology);

} // namespace tutti
