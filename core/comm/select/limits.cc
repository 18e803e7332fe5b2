#include "comm/select/limits.h"
#include "topology/cluster.h"
#include <algorithm>

namespace tutti {
namespace {

// Of a message, for each channel: below, a channel's own round costs more than a further NIC's bandwidth gives back.
constexpr uint64_t kShare = 128 << 10;

} // namespace

uint32_t ChannelLimits::proposal(uint64_t bytes) const {
  const auto shares = static_cast<uint32_t>(std::min<uint64_t>(bytes / kShare, proposed));
  return std::clamp(std::max(1u, shares), min, max);
}

ChannelLimits channel_limits(uint32_t min, uint32_t max, const Topology &topology) {
  ChannelLimits l;
  l.min = min;
  l.max = std::max(min, max);
  l.unmeasured = l.max;
  l.proposed = l.min;
  if (topology.cluster && topology.node_count > 1)
    l.unmeasured = l.proposed = std::clamp(static_cast<uint32_t>(topology.cluster->channels.size()), l.min, l.max);
  return l;
}

} // namespace tutti
