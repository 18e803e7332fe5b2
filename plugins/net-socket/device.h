// tutti/plugins/net-socket/device.h: devices are interfaces with one address each.
#pragma once
#include "settings.h"
#include "tutti/plugin/cxx/netif.hpp"
#include "tutti/plugin/net.h"
#include <optional>

namespace tutti::net_socket {

using Address = netif::Address;

struct Device {
  std::string name; // "eth0", "eth0#2" for its further addresses
  netif::Interface interface;
  Address address;
  bool veth = false; // leads to another namespace of this host
};

// What the settings allow now, best first; when there is none, `why` says so.
std::vector<Device> find_devices(const Settings &settings, std::string &why);
void describe(const Device &device, tutti_net_dev &out);
// Whether packets to this address stay inside the host.
bool stays_on_host(const Device &device, const Address &peer);

} // namespace tutti::net_socket
