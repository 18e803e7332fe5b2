// tutti/plugins/collnet-aggd/daemon/settings.h: what the daemon's TOML file says.
#pragma once
#include "base/status.h"
#include "config/config.h"
#include "sockets.h"
#include <span>

namespace tutti::aggd {

struct Settings {
  std::string file; // where it came from, for messages
  std::vector<Place> listen;
  Key key{};
  std::string key_name; // 'key_file "/etc/k" (aggd.toml:3)', for messages
  std::optional<Place> parent;
  std::string admin; // path of the socket of `tutti-aggd status`; empty: none
  std::optional<Place> metrics;
  uint32_t bandwidth_mbps = 0;
  int log_level = 2;
  uint64_t memory = 0, memory_per_job = 0;
  uint32_t window = 0, outstanding = 0, members = 0, groups = 0, groups_per_job = 0, strangers = 0, connections = 0;
  milliseconds handshake{0}, progress{0}, silence{0}, drain{0}, linger{0};
};

// Every key of the file, for reading it and for docs/collnet.md.
std::span<const Option> daemon_options();
// Errors name file, line, value and what is allowed. `resolving`: also looks addresses up and reads the key.
Result<Settings> read_settings(const std::string &path, bool resolving);
Result<Settings> parse_settings(std::string_view text, const std::string &name, bool resolving);

} // namespace tutti::aggd
