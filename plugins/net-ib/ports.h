// tutti/plugins/net-ib/ports.h: what there is to send through. A port is one port of an RDMA device with the GID that it uses;
// a device of this plugin is one port, or several of them together (rails).
#pragma once
#include "settings.h"
#include "verbs.h"

namespace tutti::net_ib {

struct Port {
  std::string device; // "mlx5_0"
  uint8_t port = 1;
  uint64_t guid = 0;     // of the physical port; 0 = unknown
  bool ethernet = false; // RoCE; else InfiniBand, with a LID
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024; // active
  uint32_t speed_mbps = 0;    // 0 = unknown
  int gid_index = -1;         // -1: none needed (InfiniBand within one subnet)
  ibv_gid gid{};
  std::string gid_text; // "::ffff:10.0.0.1"
  uint16_t pkey_index = 0;
  std::string pci; // sysfs path, "" = unknown
  int numa_node = -1;
  int rail = -1;
  bool global_routing() const { return ethernet || gid_index >= 0; }
  std::string name() const { return device + ":" + std::to_string(port); }
};

// A device of this plugin. own: data goes over all of them at once; spare: they take over when none of its own works.
struct Device {
  std::string name; // "mlx5_0:1", "mlx5_0:1+mlx5_1:1"
  std::vector<Port> own, spare;
};

// Those that the settings select and that can be used now; `why` says why there is none, and names what was declined with the
// reason. Looks again at every call.
std::vector<Device> find_devices(const Settings &settings, Verbs &verbs, std::string &why);

// The GID to use now, by the settings: the index may have changed since. False: there is none; `why` says what there is.
bool choose_gid(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why);

} // namespace tutti::net_ib
