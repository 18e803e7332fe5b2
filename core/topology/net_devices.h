// tutti/core/topology/net_devices.h: the devices of a network plugin as ports of the host's NICs.
#pragma once
#include "topology/machine_file.h"
#include "tutti/plugin/net.h"
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Puts what device_info() says into the file: device i becomes <net dev="i">, so that a port's number is that of the device to
// open. It takes the place of the port of its name ("mlx5_0:1" is port 1 of mlx5_0), else of a port of its PCI device, else it
// is new. Speed, latency and rail that the file states stay. Ports that are no device of the plugin are removed; so is a device
// that reaches only this host when there are others. Returns what was assumed and removed, one line each.
std::vector<std::string> add_net_devices(MachineFile *file, std::span<const tutti_net_dev> devices);

} // namespace tutti
