// tutti/plugins/collnet-aggd/options.cc
#include "options.h"

namespace tutti::aggd {

constexpr int64_t ms = 1'000'000;
constexpr size_t most_servers = 64;

// key, default, help, further names, choices, min, max, type
const std::array<tutti_option, 10> option_table = {{
    {"servers", "", "daemons to reduce at, host or host:port: one, or several that share the data; empty: none", nullptr,
     nullptr, 0, 0, TUTTI_OPT_STRING_LIST, 0},
    {"key_file", "", "file with the key of the daemons, 16 to 4096 bytes, mode 0600", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING,
     0},
    {"window", "1MiB", "bytes in flight that each daemon is asked for", nullptr, nullptr, least_window, most_window,
     TUTTI_OPT_BYTES, 0},
    {"chunk", "128KiB", "largest piece that a post is cut into; it is cut into 16 where that is smaller", nullptr, nullptr, 64,
     most_chunk, TUTTI_OPT_BYTES, 0},
    {"chunk_min", "16KiB", "smallest piece that a post is cut into", nullptr, nullptr, 64, most_chunk, TUTTI_OPT_BYTES, 0},
    {"outstanding", "64", "posts in flight that the daemons are asked for", nullptr, nullptr, 1, 4096, TUTTI_OPT_INT, 0},
    {"connect_timeout", "5s", "a daemon that does not answer by then is unreachable", nullptr, nullptr, 10 * ms, 600'000 * ms,
     TUTTI_OPT_DURATION, 0},
    {"progress_timeout", "5min",
     "a member that has not posted for this long what others wait for is given up; the daemon may grant less", nullptr, nullptr,
     100 * ms, 86'400'000 * ms, TUTTI_OPT_DURATION, 0},
    {"silence", "10s", "a daemon whose host answers nothing for this long is gone", nullptr, nullptr, 1000 * ms, 3'600'000 * ms,
     TUTTI_OPT_DURATION, 0},
    {},
}};

Options read_options(const Host &host) {
  const auto millis = [&](const char *key) { return std::chrono::duration_cast<milliseconds>(host.get_duration(key)); };
  Options o;
  o.servers = host.get_list("servers");
  o.window = std::bit_floor(static_cast<uint32_t>(host.get_bytes("window")));
  o.chunk = static_cast<uint32_t>(host.get_bytes("chunk")) / 64 * 64;
  o.least_chunk = static_cast<uint32_t>(host.get_bytes("chunk_min")) / 64 * 64;
  o.outstanding = static_cast<uint32_t>(host.get_int("outstanding"));
  o.connect = millis("connect_timeout");
  o.progress_ms = static_cast<uint32_t>(millis("progress_timeout").count());
  o.silence = millis("silence");
  o.servers_origin = host.origin("servers");
  o.key_file = host.get_string("key_file");
  o.key_origin = host.origin("key_file");
  return o;
}

std::string Options::key_name() const {
  return "key_file \"" + key_file + "\" (" + key_origin + ")";
}

std::optional<Key> Options::key(std::string &why) const {
  if (servers.empty())
    return why = "no servers are set: [plugin.collnet-aggd] servers names the daemons to reduce at", std::nullopt;
  if (servers.size() > most_servers) {
    why = "servers (" + servers_origin + ") names " + std::to_string(servers.size()) + " daemons; at most " +
          std::to_string(most_servers) + " share the data";
    return {};
  }
  if (key_file.empty()) {
    why = "servers (" + servers_origin + ") is set and key_file is not: it names the file with the daemons' key";
    return {};
  }
  std::string wrong;
  auto out = read_key(key_file, wrong);
  if (!out) why = key_name() + wrong;
  return out;
}

} // namespace tutti::aggd
