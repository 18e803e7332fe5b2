// tutti/core/comm/channel_graphs.h: a job's channels as a graph file of the field, and from one.
#pragma once
#include "topology/cluster.h"

namespace tutti {

// As on rank 0's host: graph 0 the rings, 1 the trees' chains, of places that have ranks.
Result<std::vector<Graph>> graphs_of(const ClusterInput &input, const Cluster &cluster);

// The file's orders in the place of those searched, on every host: a channel for each of graph 0, up to `most`, and the
// bandwidths that it states. Ports that it does not name, and trees that it does not have, stay as searched. Errors name file,
// graph, channel and host when an order does not visit each place that has ranks once.
Status take_graphs(const std::vector<Graph> &graphs, const std::string &file, const ClusterInput &input, size_t most,
                   Cluster *cluster);

} // namespace tutti
