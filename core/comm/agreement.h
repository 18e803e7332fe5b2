// tutti/core/comm/agreement.h: what all ranks must have alike, compared once at set-up. A difference is an error on every rank
// that names the rank, the thing and both values.
#pragma once
#include "bootstrap/bootstrap.h"
#include "plugin/registry.h"
#include "topology/topology.h"
#include <string>
#include <utility>
#include <vector>

namespace tutti {

struct RankFacts {
  // (thing, value), in one order on all ranks; compared.
  std::vector<std::pair<std::string, std::string>> agreed;
  CpuSet cpus = CpuSet::from_words({});
  // Of the lowest rank of a host, where channels are searched: digest of the host's description, or why there is none; else
  // 0, "". Not compared.
  uint64_t machine = 0;
  std::string machine_error;

  Bytes encode() const;
  static Result<RankFacts> decode(std::span<const std::byte> data);
};

// Version, every loaded algorithm and protocol, the chosen tuner and net (may be empty), and the configuration that must agree.
RankFacts make_facts(const Config &config, const Registry &registry, Iface<tutti_tuner_v1> tuner, Iface<tutti_net_v1> net);
// The differences of this rank from rank 0, the most telling first.
Status compare_facts(const RankFacts &first, int rank, const RankFacts &other);

} // namespace tutti
