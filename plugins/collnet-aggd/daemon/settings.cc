// tutti/plugins/collnet-aggd/daemon/settings.cc
#include "settings.h"
#include "base/file.h"
#include "config/toml_source.h"
#include <algorithm>
#include <map>

namespace tutti::aggd {
namespace {

constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs, kMinute = 60 * kSecond;

// clang-format off
const std::vector<Option> kOptions = {
    {.key = "aggd.listen", .type = TUTTI_OPT_STRING_LIST, .default_value = "*",
     .help = "addresses to listen at: host, host:port or [v6]:port; * is every address; the port is 4797 unless written"},
    {.key = "aggd.key_file", .help = "file with the key that members and daemons share: 16 to 4096 bytes, mode 0600, owned by the daemon's user or root; required"},
    {.key = "aggd.parent", .help = "the daemon above this one, host:port; empty: this one is the root of its groups"},
    {.key = "aggd.admin", .default_value = "/run/tutti-aggd/admin.sock",
     .help = "Unix socket that answers `tutti-aggd status` of the same user and of root; empty: none"},
    {.key = "aggd.metrics", .help = "host:port that answers with metrics in Prometheus' text format; empty: off"},
    {.key = "aggd.bandwidth_mbps", .type = TUTTI_OPT_INT, .default_value = "0",
     .help = "Mbit/s of this daemon's link, which ranks weigh against their own; 0: not known", .min = 0, .max = 100'000'000},
    {.key = "aggd.log_level", .default_value = "info", .help = "what goes to standard error", .choices = "debug|info|warn|error"},
    {.key = "limits.memory", .type = TUTTI_OPT_BYTES, .default_value = "1GiB",
     .help = "all windows of all groups together; reserved when members join, never exceeded", .min = 256 << 10, .max = int64_t{1} << 46},
    {.key = "limits.memory_per_job", .type = TUTTI_OPT_BYTES, .default_value = "0",
     .help = "the share of it that one job may hold; 0: half", .min = 0, .max = int64_t{1} << 46},
    {.key = "limits.window", .type = TUTTI_OPT_BYTES, .default_value = "4MiB",
     .help = "largest window of a member; granted are powers of two", .min = least_window, .max = most_window},
    {.key = "limits.outstanding", .type = TUTTI_OPT_INT, .default_value = "256", .help = "posts of a group in flight", .min = 1, .max = 65536},
    {.key = "limits.members", .type = TUTTI_OPT_INT, .default_value = "1024", .help = "members of a group", .min = 1, .max = most_members},
    {.key = "limits.groups", .type = TUTTI_OPT_INT, .default_value = "256", .help = "groups at a time", .min = 1, .max = 1 << 20},
    {.key = "limits.groups_per_job", .type = TUTTI_OPT_INT, .default_value = "64", .help = "groups of one job at a time", .min = 1, .max = 1 << 20},
    {.key = "limits.strangers", .type = TUTTI_OPT_INT, .default_value = "64",
     .help = "connections that have not proved themselves yet; above it the oldest goes", .min = 1, .max = 4096},
    {.key = "limits.connections", .type = TUTTI_OPT_INT, .default_value = "8192", .help = "connections at a time", .min = 2, .max = 1 << 20},
    {.key = "timeouts.handshake", .type = TUTTI_OPT_DURATION, .default_value = "2s",
     .help = "a connection that has not proved itself by then is closed", .min = 10 * kMs, .max = kMinute},
    {.key = "timeouts.progress", .type = TUTTI_OPT_DURATION, .default_value = "10min",
     .help = "longest that a group may ask for between two chunks; a member that holds one up for longer is given up",
     .min = 100 * kMs, .max = 24 * 60 * kMinute},
    {.key = "timeouts.silence", .type = TUTTI_OPT_DURATION, .default_value = "10s",
     .help = "a peer whose host answers nothing for this long is gone", .min = kSecond, .max = 60 * kMinute},
    {.key = "timeouts.drain", .type = TUTTI_OPT_DURATION, .default_value = "30s",
     .help = "after SIGTERM: how long groups may go on before they are told to end", .min = 0, .max = 24 * 60 * kMinute},
    {.key = "timeouts.linger", .type = TUTTI_OPT_DURATION, .default_value = "2s",
     .help = "how long the last words to a member may take", .min = 100 * kMs, .max = kMinute},
};
// clang-format on

class Values {
public:
  explicit Values(std::map<std::string, Setting> values) : values_(std::move(values)) {}
  const Setting &operator[](const char *key) const { return values_.at(key); }
  uint32_t u32(const char *key) const { return static_cast<uint32_t>(values_.at(key).number); }
  milliseconds ms(const char *key) const { return milliseconds(values_.at(key).number / kMs); }

private:
  std::map<std::string, Setting> values_;
};

Result<std::map<std::string, Setting>> collect(std::string_view text, const std::string &name) {
  std::map<std::string, Setting> out;
  std::vector<std::string> keys;
  for (const Option &o : kOptions) {
    keys.push_back(o.key);
    TUTTI_ASSIGN(value, config::parse_setting(o, config::raw_from_api(o.key, o.default_value, "default")));
    out[o.key] = std::move(value);
  }
  TUTTI_ASSIGN(entries, config::read_toml(text, name));
  for (const config::TomlEntry &e : entries) {
    if (e.key.empty()) continue;
    const std::string key = e.table + "." + e.key;
    const auto option = std::find_if(kOptions.begin(), kOptions.end(), [&](const Option &o) { return o.key == key; });
    if (option == kOptions.end() || e.item >= 0)
      return config::bad("{}: [{}] has no key {}{} the tables are [aggd], [limits] and [timeouts]", e.raw.origin, e.table,
                         config::quoted(e.key), config::did_you_mean(key, keys));
    TUTTI_ASSIGN(value, config::parse_setting(*option, e.raw));
    out[key] = std::move(value);
  }
  return out;
}

Result<Place> look_up(const Setting &setting, const std::string &key, const std::string &text, bool passive) {
  std::string why;
  auto place = resolve(text, passive, why);
  if (!place) return config::bad("{}: {} = {}{}", setting.origin, key, config::quoted(text), why);
  return std::move(*place);
}

uint16_t port_of(const Address &a) {
  return a.raw.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in &>(a.raw).sin_port
                                    : reinterpret_cast<const sockaddr_in6 &>(a.raw).sin6_port;
}
Address with_port(Address a, uint16_t port) {
  (a.raw.ss_family == AF_INET ? reinterpret_cast<sockaddr_in &>(a.raw).sin_port
                              : reinterpret_cast<sockaddr_in6 &>(a.raw).sin6_port) = port;
  return a;
}
bool is_any(const Address &a) {
  const std::string text = with_port(a, 0).text();
  return text == "0.0.0.0:0" || text == "[::]:0";
}
bool is_local(const Address &a) { // nobody may bind to what is another host's
  const Fd fd(::socket(a.raw.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Address bound = with_port(a, 0);
  return fd && ::bind(fd.get(), reinterpret_cast<const sockaddr *>(&bound.raw), bound.size) == 0;
}

// What connects to it reaches one of the places.
bool is_own(const Address &address, std::span<const Place> places) {
  for (const Place &place : places)
    for (const Address &at : place.addresses)
      if (port_of(at) != 0 && port_of(at) == port_of(address) &&
          (at.text() == address.text() || (is_any(at) && at.raw.ss_family == address.raw.ss_family && is_local(address))))
        return true;
  return false;
}

} // namespace

std::span<const Option> daemon_options() {
  return kOptions;
}

Result<Settings> parse_settings(std::string_view text, const std::string &name, bool resolving) {
  TUTTI_ASSIGN(collected, collect(text, name));
  const Values v(std::move(collected));
  Settings s;
  s.file = name;
  s.admin = v["aggd.admin"].text;
  s.bandwidth_mbps = v.u32("aggd.bandwidth_mbps");
  s.log_level = static_cast<int>(v["aggd.log_level"].number) + 1; // of log::Level
  s.memory = static_cast<uint64_t>(v["limits.memory"].number);
  s.memory_per_job = static_cast<uint64_t>(v["limits.memory_per_job"].number);
  // Two members have a window each, and their results one; what goes up to a parent has one, too.
  const uint64_t least = (v["aggd.parent"].text.empty() ? 3 : 4) * uint64_t{least_window};
  if (s.memory_per_job == 0) s.memory_per_job = std::max(s.memory / 2, std::min(s.memory, least));
  for (const auto &[limit, bytes] : {std::pair("memory", s.memory), std::pair("memory_per_job", s.memory_per_job)})
    if (bytes < least)
      return config::bad("{}: {} = {} KiB has no room for a group of two members, who take {} KiB",
                         v[fmt::format("limits.{}", limit).c_str()].origin, limit, bytes >> 10, least >> 10);
  s.window = std::bit_floor(v.u32("limits.window"));
  s.outstanding = v.u32("limits.outstanding");
  s.members = v.u32("limits.members");
  s.groups = v.u32("limits.groups");
  s.groups_per_job = v.u32("limits.groups_per_job");
  s.strangers = v.u32("limits.strangers");
  s.connections = v.u32("limits.connections");
  s.handshake = v.ms("timeouts.handshake");
  s.progress = v.ms("timeouts.progress");
  s.silence = v.ms("timeouts.silence");
  s.drain = v.ms("timeouts.drain");
  s.linger = v.ms("timeouts.linger");
  if (s.admin.size() > 100)
    return config::bad("{}: admin is longer than the 100 bytes that a socket's path may have", v["aggd.admin"].origin);
  if (!resolving) return s;
  const Setting &listen = v["aggd.listen"], &key = v["aggd.key_file"];
  if (listen.list.empty()) return config::bad("{}: listen is empty; name at least one address", listen.origin);
  for (const std::string &text_of : listen.list) {
    TUTTI_ASSIGN(place, look_up(listen, "listen", text_of, true));
    s.listen.push_back(std::move(place));
  }
  if (const Setting &parent = v["aggd.parent"]; !parent.text.empty()) {
    TUTTI_ASSIGN(place, look_up(parent, "parent", parent.text, false));
    if (std::any_of(place.addresses.begin(), place.addresses.end(), [&](const Address &a) { return is_own(a, s.listen); }))
      return config::bad("{}: parent = {} is this daemon itself (listen = {})", parent.origin, config::quoted(parent.text),
                         listen.text);
    s.parent = std::move(place);
  }
  if (const Setting &metrics = v["aggd.metrics"]; !metrics.text.empty()) {
    TUTTI_ASSIGN(place, look_up(metrics, "metrics", metrics.text, true));
    if (!place.with_port)
      return config::bad("{}: metrics = {} has no port; write one, as in 127.0.0.1:9797", metrics.origin,
                         config::quoted(metrics.text));
    s.metrics = std::move(place);
  }
  if (key.text.empty()) return config::bad("{}: [aggd] key_file is missing: members prove with it that they belong", name);
  std::string why;
  const auto bytes = read_key(key.text, why);
  if (!bytes) return config::bad("{}: key_file {}{}", key.origin, config::quoted(key.text), why);
  s.key = *bytes;
  s.key_name = fmt::format("key_file {} ({})", config::quoted(key.text), key.origin);
  return s;
}

Result<Settings> read_settings(const std::string &path, bool resolving) {
  TUTTI_ASSIGN(text, read_file(path, 1 << 20));
  return parse_settings(text, path, resolving);
}

} // namespace tutti::aggd
