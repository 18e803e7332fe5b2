// tutti/core/comm/channels.h: the channels of a communicator. At set-up the lowest rank of each host describes it, rank 0
// searches and tells all (docs/adr/0012).
#pragma once
#include "comm/agreement.h"
#include "comm/machine.h"
#include "topology/cluster.h"
#include "transport/net_route.h"

namespace tutti {

struct ChannelPlan {
  std::shared_ptr<const Cluster> cluster; // null: nothing to choose
  std::vector<std::string> why;           // so many channels and such orders, one line each

  Bytes encode() const;
  // In place of a plan, from rank 0: all ranks return its error.
  static Bytes encode_refusal(const Status &why);
  // What rank 0 told. Ranks of one process that belong to one communicator share what comes out.
  static Result<std::shared_ptr<const ChannelPlan>> decode(std::span<const std::byte> told, uint64_t comm_id);
};

// One rank's part in the search, in the order of the calls.
class ChannelSearch {
public:
  ChannelSearch(Bootstrap &bootstrap, std::shared_ptr<const Config> config, NetSurvey &survey)
      : bootstrap_(bootstrap), config_(std::move(config)), survey_(survey) {}
  // For the facts that ranks compare: on a host's lowest rank, where there is something to choose or a file was named.
  void describe(RankFacts *mine);
  // Of a host whose description was asked for and is wrong, the same on all ranks.
  static Status check(std::span<const RankFacts> facts, const Bootstrap &bootstrap);
  // Rank 0: what all are to be told, errors included. The first rank with another machine than rank 0's sends it there.
  Result<Bytes> run(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline);

private:
  std::string nothing() const;
  Result<ClusterInput> gather(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline);
  Result<ChannelPlan> search(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline);

  Bootstrap &bootstrap_;
  std::shared_ptr<const Config> config_;
  NetSurvey &survey_;
  std::shared_ptr<const HostMachine> here_; // null where this rank described nothing
};

bool files_named(const Config &config); // of the topology
// Why a job has no channels to choose; "" = it has.
std::string nothing_to_choose(const Config &config, int nranks, bool one_host);
// What the settings make of these hosts, topology.graph_file included.
Result<Cluster> search_cluster(const Config &config, const ClusterInput &input);
// The ways of this rank's links over the network.
NetRoutes net_routes(const Cluster &cluster, const Topology &topology, int rank);
// "ring order: 0 1 2 3 -> 0 2 1 3"; "" where the search keeps the standard order.
std::string reordering(const Cluster &cluster, const Topology &topology);
// "ring 0 2 1 3; node1 eth0, node2 eth1 -> eth0": its order, and the ports of each host.
std::string channel_text(const Cluster &cluster, size_t channel);
// "0 2 1 3", of many the first ones.
std::string ranks_text(std::span<const int32_t> ranks);

} // namespace tutti
