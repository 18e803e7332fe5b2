// tutti/plugins/net-ib/ports.h: what there is to send through. A port is one port of an RDMA device with the GID that it uses;
// a device of this plugin is one port, or several of them together (rails).
#pragma once
#include "settings.h"
#include "verbs.h"

namespace tutti::net_ib {

constexpr size_t max_rails = 4, max_spares = 2; // own and spare ports of a device

struct Port {
  std::string device; // "mlx5_0"
  uint8_t port = 1;
  uint64_t guid = 0;     // of the physical port; 0 = unknown
  bool ethernet = false; // RoCE; else InfiniBand, with a LID
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024; // to use: the active one, or less where the settings say so
  uint32_t max_message = 0;   // bytes of one request
  uint32_t speed_mbps = 0;    // 0 = unknown
  int gid_index = -1;         // -1: none needed (InfiniBand within one subnet)
  int roce_version = 0;       // of the GID
  ibv_gid gid{};              // on InfiniBand that of entry 0 where none is needed: it holds the subnet's prefix
  std::string gid_text;       // "::ffff:10.0.0.1"
  uint16_t pkey_index = 0;
  std::string pci;     // sysfs path, "" = unknown
  std::string adapter; // the same for all ports and functions of one adapter
  std::string netdev;  // of the GID, "" = unknown or InfiniBand
  int numa_node = -1;
  int rail = -1;
  bool global_routing() const { return ethernet || gid_index >= 0; }
  // Whether packets to this GID carry a global header, and the entry of the GID table that is their sender.
  bool needs_grh(const ibv_gid &peer) const {
    return global_routing() || peer.global.subnet_prefix != gid.global.subnet_prefix;
  }
  uint8_t sgid_index() const { return static_cast<uint8_t>(gid_index > 0 ? gid_index : 0); }
  std::string name() const { return device + ":" + std::to_string(port); }
};

// A device of this plugin. own: data goes over all of them at once; spare: they take over when none of its own works.
struct Device {
  std::string name; // "mlx5_0:1", "mlx5_0:1+mlx5_1:1"
  std::vector<Port> own, spare;
};

struct Found {
  std::vector<Device> devices;
  std::string why;                    // there is none
  std::vector<std::string> notes;     // of those in use: what a user should know about the choice
  std::vector<std::string> declined;  // "mlx5_1:1: its state is DOWN ..."
  std::vector<std::string> unmatched; // entries of the settings that name nothing
};

// Those that the settings select and that can be used now. Looks again at every call.
Found find_devices(const Settings &settings, Verbs &verbs, const std::string &sysfs = "/sys");

// The GID to use now, by the settings: the index may have changed since. False: there is none; `why` says what there is. True:
// `why` is empty, or says what is odd about the choice.
bool choose_gid(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why);

// Asks for state, LID, MTU, P_Key and GID again. Results as those of choose_gid; false also while the port is not active.
bool refresh_port(const Settings &settings, Verbs &verbs, ibv_context *context, Port &port, std::string &why);

uint32_t mtu_bytes(ibv_mtu mtu);
std::string gid_text(const ibv_gid &gid);
bool is_ipv4(const ibv_gid &gid); // an IPv4 address, mapped into IPv6

} // namespace tutti::net_ib
