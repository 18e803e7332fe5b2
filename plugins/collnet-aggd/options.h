// tutti/plugins/collnet-aggd/options.h: the options, and their values.
#pragma once
#include "sockets.h"
#include "tutti/plugin/cxx/host.hpp"

namespace tutti::aggd {

using plugin::Host;

extern const std::array<tutti_option, 10> option_table; // ends with {}

struct Options {
  std::vector<std::string> servers; // one daemon for each shard
  Key key{};
  uint32_t window = 0, chunk = 0, least_chunk = 0, outstanding = 0, progress_ms = 0;
  milliseconds connect{0}, silence{0};
};

// Throws what is wrong with a value, and where it came from. Reads the key.
Options read_options(const Host &host);

} // namespace tutti::aggd
