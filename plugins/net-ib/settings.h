// tutti/plugins/net-ib/settings.h: the options, and their values.
#pragma once
#include "tutti/plugin/cxx/host.hpp"
#include <string>
#include <vector>

namespace tutti::net_ib {

using plugin::Host;
using std::chrono::nanoseconds;

struct Settings {
  std::string hca;    // NCCL_IB_HCA's grammar
  bool merge = false; // ports of one adapter (or those that merge_ports lists) are one device with several rails
  std::string merge_ports;
  bool failover = true;             // other ports take over for one that went down
  int gid_index = -1;               // -1 = automatic
  int roce_version = 2, family = 0; // AF_*, 0 = any
  std::string addr_range;           // CIDR, "" = any
  uint8_t service_level = 0, traffic_class = 0;
  uint16_t pkey = 0xffff;
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
  nanoseconds connect_timeout{0}, link_down_timeout{0}; // how long all rails may be down before an endpoint fails
};

// Reads the options; throws what is wrong with a value, and where it came from.
Settings read_settings(const Host &host);

} // namespace tutti::net_ib
