// tutti/core/tools/topo.h: how `tutti topo` shows a machine as text.
#pragma once
#include "topology/channels.h"
#include "topology/cluster.h"
#include <string>

namespace tutti::tools {

std::string machine_tree(const Machine &machine);
// As `nvidia-smi topo -m` has it: GPUs and NICs against each other, cores and NUMA node of each.
enum class Show { kind, gbps, latency };
std::string machine_matrix(const Machine &machine, const Paths &paths, Show show);
std::string path_legend();
std::string channels_text(const Machine &machine, const Channels &channels);

// Rings, trees, heads, NICs and new ranks of several hosts. Of many ranks the first hosts only.
std::string cluster_text(const Cluster &cluster);

} // namespace tutti::tools
