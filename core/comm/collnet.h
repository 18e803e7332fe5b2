// tutti/core/comm/collnet.h: groups of a collnet for a communicator: offered, joined and agreed on by all ranks, or by none.
#pragma once
#include "comm/collnet_offer.h"
#include "comm/select/collnet_facts.h"
#include "config/config.h"
#include "exec/engine.h"
#include "plugin/registry.h"
#include "topology/topology.h"

namespace tutti {

struct ClusterPort;

// By group, the member on each node: the heads of channels, as far as they differ.
std::vector<std::vector<int32_t>> collnet_heads(const Topology &topology);

class CollnetSetup {
public:
  CollnetSetup(Bootstrap &bootstrap, Engine &engine, const Config &config, const Registry &registry, const Topology &topology,
               uint64_t job, uint32_t net_mbps)
      : bootstrap_(bootstrap), engine_(engine), config_(config), registry_(registry), topology_(topology), job_(job),
        net_mbps_(net_mbps) {}
  // An error where it is required and cannot be had, on all ranks the same.
  Result<CollnetFacts> run(Deadline deadline);

private:
  using Offer = CollnetOffer;
  bool wanted();
  Status open(Iface<tutti_collnet_v1> *collnet);
  uint32_t choose_device(const Iface<tutti_collnet_v1> &collnet, uint32_t count) const;
  const ClusterPort *port() const;
  Offer offer();
  Result<std::vector<Offer>> join(std::span<const Offer> offers, Deadline deadline);
  Status begin_groups(std::span<const Offer> offers, CollnetPort &port, Nanos limit);
  static void wait_for_groups(CollnetPort &port, Deadline round, Deadline patience, Offer *mine);
  Result<std::vector<Offer>> exchange(const Offer &mine, Deadline deadline, std::string_view what);
  bool agree(std::span<const Offer> offers);
  void combine(std::span<const Offer> offers);
  bool member(size_t group) const;

  Bootstrap &bootstrap_;
  Engine &engine_;
  const Config &config_;
  const Registry &registry_;
  const Topology &topology_;
  const uint64_t job_;
  const uint32_t net_mbps_; // of this host's network, for plugins that do not know; 0 = unknown
  std::vector<std::vector<int32_t>> heads_;
  CollnetFacts facts_;
};

} // namespace tutti
