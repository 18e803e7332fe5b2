// tutti/core/comm/select/collnet_facts.h: what the ranks of a communicator have agreed on about in-network reduction; the same
// on all of them.
#pragma once
#include "base/types.h"
#include "tutti/plugin/collnet.h"
#include <fmt/format.h>
#include <string>

namespace tutti {

struct CollnetFacts {
  bool on = false;                               // all ranks use it
  bool required = false;                         // for all that it serves, and set-up fails without it
  std::string origin;                            // of coll.collnet
  std::string why;                               // why it is not used; "" while it is
  std::string where;                             // the plugin's name
  uint32_t groups = 0, hosts = 0, host_mbps = 0; // host_mbps: of the slowest member's link; 0 = unknown
  tutti_collnet_caps caps{};                     // what all groups have in common; bandwidth of all of them together

  // How much longer a byte takes than its way over a host's link, because the aggregators are shared.
  double crowding() const {
    if (caps.bandwidth_mbps == 0 || host_mbps == 0) return 1;
    const double all = static_cast<double>(hosts) * host_mbps / static_cast<double>(caps.bandwidth_mbps);
    return all > 1 ? all : 1;
  }
  // The same of the best that hosts do among themselves. What goes from or to a root passes each link once.
  double without(tutti_coll coll) const { return hosts > 1 && !coll_has_root(coll) ? 2.0 * (hosts - 1) / hosts : 1; }
  // For sizes that the network limits; with a root there is nothing to win, but also nothing to lose.
  bool pays(tutti_coll coll) const { return coll_has_root(coll) ? crowding() <= without(coll) : crowding() < without(coll); }
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
