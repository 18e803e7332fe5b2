// tutti/plugins/net-ib/settings.h: the options, and their values.
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include <array>
#include <string>
#include <vector>

namespace tutti::net_ib {

using plugin::Host;
using std::chrono::nanoseconds;

extern const std::array<tutti_option, 30> option_table; // ends with {}

// What the rail of a port is, where the selection does not say it.
enum class Rails { pci, name, guid, none };

struct Settings {
  std::string disabled_by;     // what says that no device is to be used, "" = nothing
  std::string hca, hca_origin; // NCCL_IB_HCA's grammar, and where it came from
  bool merge = false;          // ports of one adapter (or those that merge_ports lists) are one device with several rails
  std::string merge_ports;
  Rails rails = Rails::pci;
  bool failover = true;             // other ports take over for one that went down
  int gid_index = -1;               // -1 = automatic
  int roce_version = 0, family = 0; // 0 = 2 before 1; AF_*, 0 = IPv4 before IPv6
  std::string addr_range;           // CIDR, "" = any
  uint8_t service_level = 0, traffic_class = 0;
  uint16_t pkey = 0; // 0 = the one at pkey_index
  int pkey_index = 0;
  uint8_t timeout = 20, retry_count = 7, rnr_retry = 7, min_rnr_timer = 12; // in the units of ibv_qp_attr
  uint32_t mtu = 0;                                                         // bytes, 0 = the port's
  uint32_t qps_per_connection = 1;
  bool split_data = true;    // over QPs and rails; else messages take turns
  uint32_t split_min = 0;    // bytes of a share, at least
  uint32_t inline_bytes = 0; // messages up to it are copied into the work request
  bool relaxed_ordering = true;
  uint32_t max_inflight = 64; // calls per endpoint and direction
  bool use_dmabuf = true;
  bool return_async_events = true;                      // a fatal event of a device ends what uses it; else it is only logged
  nanoseconds connect_timeout{0}, link_down_timeout{0}; // how long all rails may be down before an endpoint fails
};

// Reads the options; throws what is wrong with a value, and where it came from.
Settings read_settings(const Host &host);

} // namespace tutti::net_ib
