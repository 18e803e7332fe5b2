// tutti/core/transport/net_counters.h: what the devices of a net count themselves (tutti.net.counters/1).
#pragma once
#include "plugin/registry.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct NetCounter {
  std::string name;
  std::string hint; // what a rising value means; "" = nothing bad
  uint64_t value = 0;
};

// Of a device, in the plugin's order; empty where the plugin, or the device, counts nothing. [any thread]
std::vector<NetCounter> read_counters(const Plugin *plugin, uint32_t device);
// What has risen of that which has a hint: "out_of_sequence +12 (packets were lost on the way)"; "" = nothing.
std::string risen_counters(const std::vector<NetCounter> &before, const std::vector<NetCounter> &now);

} // namespace tutti
