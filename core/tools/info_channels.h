// tutti/core/tools/info_channels.h: how many channels a job on hosts like this one would have, and why.
#pragma once
#include "config/config.h"
#include "plugin/registry.h"

namespace tutti::tools {

struct ChannelJob {
  int ranks = 0; // 0: one for each core
  int hosts = 1;
  bool json = false;
};
Status print_channels(const Config &config, const Registry &registry, ChannelJob job);

} // namespace tutti::tools
