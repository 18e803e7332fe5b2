// tutti/core/comm/machine.h: this host as the search of channels sees it, described once per process, network and its devices.
#pragma once
#include "bootstrap/bootstrap.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "topology/machine.h"
#include "tutti/plugin/net.h"
#include <memory>
#include <optional>

namespace tutti {

struct HostMachine {
  Machine machine;                // its ports are devices of the network, numbered as there
  Bytes encoded;                  // equal machines, equal bytes
  uint64_t digest = 0;            // of those; never 0
  std::vector<std::string> notes; // what was assumed or left out
  double took_ms = 0;
};

// What the plugin says of its devices, each at its number. Asked once, when first needed: numbers are those of that moment.
class NetSurvey {
public:
  NetSurvey() = default; // of no network: no device
  explicit NetSurvey(Iface<tutti_net_v1> net) : net_(net) {}
  const Iface<tutti_net_v1> &net() const { return net_; }
  const Result<std::vector<tutti_net_dev>> &devices();

private:
  Iface<tutti_net_v1> net_;
  std::optional<Result<std::vector<tutti_net_dev>>> found_;
};

// topology.file completed by what is found here, or what is found here, with the network's devices as ports (net_devices.h);
// written to topology.dump_file. The first call of a process for a network that succeeds does it, later ones get the same for
// as long as the network has the same devices. Errors of files name file:line. [any]
Result<std::shared_ptr<const HostMachine>> host_machine(const Config &config, NetSurvey &survey);

uint32_t numa_nodes();                                          // that are online; 1 where the system does not tell
std::string expand_path(const Config &config, const char *key); // a setting that is a path, %h and %p replaced; "" = not set

} // namespace tutti
