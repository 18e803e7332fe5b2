// tutti/plugins/collnet-aggd/options.h: the options, and their values.
#pragma once
#include "sockets.h"
#include "tutti/plugin/cxx/host.hpp"

namespace tutti::aggd {

using plugin::Host;

extern const std::array<tutti_option, 10> option_table; // ends with {}

struct Options {
  std::vector<std::string> servers; // one daemon for each shard
  std::string key_file, key_origin, servers_origin;
  uint32_t window = 0, chunk = 0, least_chunk = 0, outstanding = 0, progress_ms = 0;
  milliseconds connect{0}, silence{0};
  std::string key_name() const; // 'key_file "/etc/k" (tutti.toml:4)', for messages
  // The key, if daemons can be asked at all. Else `why` not: who is never asked to reduce here needs neither of them.
  std::optional<Key> key(std::string &why) const;
};

Options read_options(const Host &host);

} // namespace tutti::aggd
