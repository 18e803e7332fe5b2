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

// topology.file completed by what is found here, or what is found here; written to topology.dump_file. The first call of a
// process for a network does it, later ones get the same, errors too. Those of files name file:line. net may be empty. [any]
Result<std::shared_ptr<const HostMachine>> host_machine(const Config &config, Iface<tutti_net_v1> net);

// The devices that reach other hosts; when there are none, those that do not.
struct NetDev {
  uint32_t number = 0; // of the plugin
  tutti_net_dev info{};
};
Result<std::vector<NetDev>> rail_devices(Iface<tutti_net_v1> net);
// `machine` with the devices in the place of its ports. A port of the same name stays where it is and as fast as the machine
// says; other devices go to the NIC with their PCI address, else beside their NUMA node; ports that are no device are left out.
Machine with_devices(const Machine &machine, std::span<const NetDev> devices, std::string_view net);

uint32_t numa_nodes();                                          // that are online; 1 where the system does not tell
std::string expand_path(const Config &config, const char *key); // a setting that is a path, %h and %p replaced; "" = not set

} // namespace tutti
