// tutti/plugins/net-ib/counters.h: what a port counts itself: in sysfs, and the statistics of its network interface, where
// pauses are counted.
#pragma once
#include "ports.h"
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tutti::net_ib {

struct Counter {
  std::string name;           // as the device's own tools call it
  const char *hint = nullptr; // what a rising value means; null: nothing is wrong
  uint64_t value = 0;
};

// Statistics of a network interface by name (ethtool -S), as far as they are readable.
using Statistics = std::vector<std::pair<std::string, uint64_t>>;
Statistics interface_statistics(const std::string &netdev);
using Asker = std::function<bool(void *)>; // one request of the ethtool interface, which begins with a command
Statistics ethtool_statistics(const Asker &ask);

// Of the interface, only what has a hint: it has hundreds of others.
std::vector<Counter> read_counters(const Port &port, const std::string &sysfs = "/sys",
                                   Statistics (*statistics)(const std::string &) = interface_statistics);

// What it means that the counter of this name rises; null: not known, or nothing is wrong.
const char *counter_hint(std::string_view name);

} // namespace tutti::net_ib
