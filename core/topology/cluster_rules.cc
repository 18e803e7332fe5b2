#include "topology/cluster.h"
#include <algorithm>

namespace tutti {
namespace {

// The option's choices are names of kinds.
PathKind level_of(const Config &config, std::string_view key) {
  const std::string name = config.text(key);
  PathKind kind = PathKind::loc;
  while (kind != PathKind::dis && kind_name(kind) != name) kind = static_cast<PathKind>(static_cast<int>(kind) + 1);
  return kind;
}

} // namespace

ClusterRules cluster_rules(const Config &config) {
  constexpr int kUseful = 16; // more cost threads and memory and gain nothing on any host seen
  ClusterRules r;
  r.min_channels = static_cast<int>(config.number("coll.min_channels"));
  const auto most = static_cast<int>(config.number("coll.max_channels"));
  r.max_channels = std::max(r.min_channels, std::min(most, kUseful));
  r.cross_nic = static_cast<int>(config.number("net.cross_nic"));
  r.merge_port = config.text("net.merge_level") == "PORT";
  if (!r.merge_port) r.merge = level_of(config, "net.merge_level");
  r.p2p_level = level_of(config, "topology.p2p_level");
  r.gdr_level = level_of(config, "topology.gdr_level");
  r.pxn = config.number("topology.pxn_disable") == 0;
  return r;
}

} // namespace tutti
