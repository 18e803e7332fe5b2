// tutti/core/topology/topology.h: hosts, cores and rank orders of one communicator; the same on every rank.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// CPUs that a process may run on, as a bit mask of 64-bit words.
class CpuSet {
public:
  static CpuSet of_this_process(); // sched_getaffinity; one CPU when the kernel will not tell
  static CpuSet from_words(std::span<const uint64_t> words) { return CpuSet({words.begin(), words.end()}); }
  std::span<const uint64_t> words() const { return words_; }
  uint32_t count() const;
  void add(const CpuSet &other);

private:
  explicit CpuSet(std::vector<uint64_t> words) : words_(std::move(words)) {}
  std::vector<uint64_t> words_;
};

// What a rank contributes.
struct TopologyInput {
  uint64_t host = 0; // equal = same host
  CpuSet cpus = CpuSet::from_words({});
};

struct Cluster; // cluster.h

struct Topology {
  uint32_t node_count = 0;
  std::vector<int32_t> node_of_rank; // nodes are numbered by their lowest rank
  std::vector<uint32_t> ranks_on_node, cores_on_node;
  std::vector<int32_t> ring_order;          // each rank once: ranks of a host adjacent, else in rank order
  std::vector<std::vector<int32_t>> groups; // of a collnet: by group, its member on each node; empty: there is none
  std::shared_ptr<const Cluster> cluster;   // channels that were searched; null: ring_order for all, no trees
  uint32_t max_ppn() const;
  uint32_t min_cores() const;
  bool oversubscribed() const; // some host has more ranks than cores
};

// ranks[r] is rank r's contribution; at least one.
Topology make_topology(std::span<const TopologyInput> ranks);

} // namespace tutti
