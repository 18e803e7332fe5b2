// tutti/core/comm/machine.h: this host as the search of channels sees it, described once per process and network.
#pragma once
#include "bootstrap/bootstrap.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "topology/machine.h"
#include "tutti/plugin/net.h"
#include <memory>

namespace tutti {

struct HostMachine {
  Machine machine;                // its ports are devices of the network, numbered as there
  Bytes encoded;                  // equal machines, equal bytes
  uint64_t digest = 0;            // of those; never 0
  std::vector<std::string> notes; // what was assumed or left out
  double took_ms = 0;
};

// topology.file completed by what is found here, or what is found here, with the network's devices as ports (net_devices.h);
// written to topology.dump_file. The first call of a process for a network that succeeds does it, later ones get the same.
// Errors of files name file:line. net may be empty. [any]
Result<std::shared_ptr<const HostMachine>> host_machine(const Config &config, Iface<tutti_net_v1> net);

// What the plugin says of its devices, each at its number.
Result<std::vector<tutti_net_dev>> net_devices(Iface<tutti_net_v1> net);

uint32_t numa_nodes();                                          // that are online; 1 where the system does not tell
std::string expand_path(const Config &config, const char *key); // a setting that is a path, %h and %p replaced; "" = not set

} // namespace tutti
