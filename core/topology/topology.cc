#include "topology/topology.h"
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <sched.h>

namespace tutti {

CpuSet CpuSet::of_this_process() {
  // The kernel's mask may be longer than cpu_set_t on big machines: grow until it fits.
  for (size_t cpus = 1024; cpus <= 1u << 16; cpus *= 2) {
    std::vector<uint64_t> words(cpus / 64);
    if (sched_getaffinity(0, cpus / 8, reinterpret_cast<cpu_set_t *>(words.data())) == 0) {
      while (words.size() > 1 && words.back() == 0) words.pop_back();
      return CpuSet(std::move(words));
    }
  }
  return CpuSet({1});
}

uint32_t CpuSet::count() const {
  uint32_t n = 0;
  for (uint64_t w : words_) n += static_cast<uint32_t>(std::popcount(w));
  return n;
}

void CpuSet::add(const CpuSet &other) {
  words_.resize(std::max(words_.size(), other.words_.size()));
  for (size_t i = 0; i < other.words_.size(); i++) words_[i] |= other.words_[i];
}

uint32_t Topology::max_ppn() const {
  return *std::max_element(ranks_on_node.begin(), ranks_on_node.end());
}
uint32_t Topology::min_cores() const {
  return *std::min_element(cores_on_node.begin(), cores_on_node.end());
}

bool Topology::oversubscribed() const {
  for (uint32_t n = 0; n < node_count; n++)
    if (ranks_on_node[n] > cores_on_node[n]) return true;
  return false;
}

Topology make_topology(std::span<const TopologyInput> ranks) {
  Topology t;
  std::map<uint64_t, int32_t> node_of_host;
  std::vector<CpuSet> cpus;
  for (const TopologyInput &r : ranks) {
    const auto [it, fresh] = node_of_host.try_emplace(r.host, static_cast<int32_t>(t.node_count));
    if (fresh) {
      t.node_count++;
      t.ranks_on_node.push_back(0);
      cpus.push_back(r.cpus);
    }
    const auto node = static_cast<size_t>(it->second);
    t.node_of_rank.push_back(it->second);
    t.ranks_on_node[node]++;
    cpus[node].add(r.cpus);
  }
  for (const CpuSet &c : cpus) t.cores_on_node.push_back(std::max(1u, c.count()));
  t.ring_order.resize(ranks.size());
  std::iota(t.ring_order.begin(), t.ring_order.end(), 0);
  std::stable_sort(t.ring_order.begin(), t.ring_order.end(), [&](int32_t a, int32_t b) {
    return t.node_of_rank[static_cast<size_t>(a)] < t.node_of_rank[static_cast<size_t>(b)];
  });
  return t;
}

} // namespace tutti
