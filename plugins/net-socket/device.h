// tutti/plugins/net-socket/device.h: devices are interfaces, with the addresses that may be used.
#pragma once
#include "settings.h"
#include "tutti/plugin/cxx/netif.hpp"
#include "tutti/plugin/net.h"
#include <optional>

namespace tutti::net_socket {

using Address = netif::Address;

struct Device {
  netif::Interface interface; // its addresses: those that the settings allow, at least one
  bool veth = false;          // leads to another namespace of this host
};

// What the settings allow now, best first; when there is none, `why` says so.
std::vector<Device> find_devices(const Settings &settings, std::string &why);
void describe(const Device &device, tutti_net_dev &out);
bool same_network(const Address &mine, const Address &other);
bool is_own(const Address &address); // of an interface here, so that packets to it leave no interface
// Whether packets to this address stay inside the host.
bool stays_on_host(const Device &device, const Address &peer);

} // namespace tutti::net_socket
