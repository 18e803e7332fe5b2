// tutti/plugins/net-ib/groups.h: devices of one or several ports, their rails and what may take over for them.
#pragma once
#include "ports.h"

namespace tutti::net_ib {

// A port that the settings select, whether or not it can be used now.
struct Candidate {
  Port port;
  bool usable = false;
};

// Devices in the order of rails. Rails are numbered with the ports that cannot be used now, so that those of other hosts mean
// the same; a device none of whose ports can be used is left out.
std::vector<Device> make_devices(const Settings &settings, std::vector<Candidate> candidates, Found &found);

// "mlx5_2" before "mlx5_10".
bool natural_less(const std::string &a, const std::string &b);

} // namespace tutti::net_ib
