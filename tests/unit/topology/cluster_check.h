// tests/unit/topology/cluster_check.h: judges channels over several hosts by what they say of themselves, with arithmetic of
// its own.
#pragma once
#include "topology/cluster.h"
#include "verifier.h"
#include <string>
#include <vector>

namespace verify {

// Empty when all is well: each rank once per ring and hosts in one piece; trees that span, chains inside hosts, at most two
// children hosts; NICs shared within one; one rail per channel where rings do not cross, and from host to host where they do.
std::string cluster_fault(const tutti::Cluster &cluster);

// The bandwidth of a channel on one host, as the verifier counts it, or one that is as high as claimed: gpu_of_rank[r] is the
// dev of rank r there.
double ring_each(const tutti::Cluster &cluster, size_t host, const Host &file, const std::vector<int> &gpu_of_rank);
double tree_each(const tutti::Cluster &cluster, size_t host, const Host &file, const std::vector<int> &gpu_of_rank);

} // namespace verify
