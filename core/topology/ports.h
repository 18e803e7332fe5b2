// tutti/core/topology/ports.h: which ports of a host channels use: merged, on rails, the fast ones, each with a place next to
// it.
#pragma once
#include "topology/routes.h"
#include <string>
#include <vector>

namespace tutti {

struct Port {
  std::vector<int> nodes; // NET, or a NIC whose ports are not known; several are merged
  std::string name;       // "mlx5_0+mlx5_1"
  int rail = 0;
  double gbps = 0, latency_us = 0;
  int nearest = 0;                   // index of a place: of equally close ones that with the fewest ports
  PathKind distance = PathKind::dis; // to it
};

struct PortRules {
  PathKind merge = PathKind::loc; // ports as close as this are one (loc: none)
  bool merge_card = false;        // ports of one card (functions of one PCI device, or of one NIC) are one
  bool slow = false;              // also those that more ports would be slower with
};

// By rail. Rails are what the file says, else the order of the NICs' PCI addresses. `notes`: what was left out and why.
std::vector<Port> find_ports(const Machine &machine, const std::vector<int> &places, const PortRules &rules,
                             std::vector<std::string> *notes);

} // namespace tutti
