// tutti/core/comm/select/collnet_facts.h: what the ranks of a communicator have agreed on about in-network reduction; the same
// on all of them.
#pragma once
#include "tutti/plugin/collnet.h"
#include <fmt/format.h>
#include <string>

namespace tutti {

struct CollnetFacts {
  bool on = false;                               // all ranks use it
  bool required = false;                         // for all that it serves, and set-up fails without it
  std::string origin;                            // of coll.collnet
  std::string why;                               // why it is not used; "" while it is
  std::string where;                             // "aggd1:4797": the plugin's name and what it says of group 0
  uint32_t groups = 0, hosts = 0, host_mbps = 0; // host_mbps: of the slowest member's link; 0 = unknown
  tutti_collnet_caps caps{};                     // what all groups have in common; bandwidth of all of them together

  // How much longer a byte takes than its way over a host's link, because the aggregators are shared.
  double crowding() const {
    if (caps.bandwidth_mbps == 0 || host_mbps == 0) return 1;
    const double all = static_cast<double>(hosts) * host_mbps / static_cast<double>(caps.bandwidth_mbps);
    return all > 1 ? all : 1;
  }
  // The same of the best that hosts do among themselves.
  double without() const { return hosts > 1 ? 2.0 * (hosts - 1) / hosts : 1; }
  // So many posts of so many bytes at once.
  bool holds(uint64_t posts, uint64_t bytes) const {
    return posts <= caps.max_outstanding && (caps.max_bytes == 0 || bytes <= caps.max_bytes) &&
           (caps.window_bytes == 0 || posts * bytes <= caps.window_bytes);
  }
  std::string granted() const {
    const auto limit = [](uint64_t n) { return n ? fmt::format("{}", n) : std::string("any number of"); };
    return fmt::format("granted are {} of at most {} bytes, {} bytes together", caps.max_outstanding, limit(caps.max_bytes),
                       limit(caps.window_bytes));
  }
  bool reduces(tutti_dtype dtype, tutti_redop op) const { return caps.dtype_ops >> (dtype * 4 + op) & 1; }
  bool serves(tutti_coll coll) const {
    return caps.colls >> (coll == TUTTI_COLL_BARRIER ? tutti_coll{TUTTI_COLL_ALL_REDUCE} : coll) & 1;
  }
};

} // namespace tutti
