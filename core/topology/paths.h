// tutti/core/topology/paths.h: the way from each node of a machine to each other one.
#pragma once
#include "topology/machine.h"
#include <string_view>
#include <vector>

namespace tutti {

// Closest first; the first that is not worse decides.
//   LOC the same node         NVL NVLinks, also over a switch   NVB NVLinks over another GPU   C2C GPU and processor on one
//   board PIX at most one switch    PXB several PCI switches          P2C C2C, then PCI              PXN NVLink to a GPU near
//   the NIC PHB over the processor    SYS between NUMA nodes            NET network                    DIS none
enum class PathKind : uint8_t { loc, nvl, nvb, c2c, pix, pxb, p2c, pxn, phb, sys, net, dis };
std::string_view kind_name(PathKind kind);

struct Path {
  PathKind kind = PathKind::dis;
  double gbps = 0;             // of the narrowest link
  double expansion = 1;        // bytes on its links per byte
  double latency_us = 0;       // sum over its links
  std::vector<int> links = {}; // in order; its size is the number of hops
};

struct PathRules {
  bool nvlink = true; // false: only what goes without
  bool pxn = true;
};

// The best path of each pair: lowest kind, then highest bandwidth, then fewest hops, then first in order of the links. O(n *
// kinds * bandwidths * links).
class Paths {
public:
  explicit Paths(const Machine &machine, PathRules rules = {});
  const Path &between(int from, int to) const { return paths_[static_cast<size_t>(from) * nodes_ + static_cast<size_t>(to)]; }

private:
  void from(const Machine &machine, int source, PathRules rules);
  void mirror(const Machine &machine, int from, int to);
  void add_pxn(const Machine &machine, int gpu, int net);
  Path &at(int from, int to) { return paths_[static_cast<size_t>(from) * nodes_ + static_cast<size_t>(to)]; }
  size_t nodes_;
  std::vector<Path> paths_;
};

} // namespace tutti
