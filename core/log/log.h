// tutti/core/log/log.h: log lines with level, subsystem and rank. spdlog is behind it and in no other header.
#pragma once
#include <chrono>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::log {

enum class Level { trace, debug, info, warn, error, off };
// The field's subsystem names; a bit each.
enum class Subsys : uint32_t {
  init = 1u << 0,
  bootstrap = 1u << 1,
  env = 1u << 2,
  coll = 1u << 3,
  p2p = 1u << 4,
  shm = 1u << 5,
  net = 1u << 6,
  graph = 1u << 7,
  tuning = 1u << 8,
  plugin = 1u << 9,
  alloc = 1u << 10,
  proxy = 1u << 11,
  destroy = 1u << 12,
  all = ~0u,
};

struct Settings {
  Level level = Level::warn;
  uint32_t subsys = ~0u;
  std::string file;                // "" = stderr; %h host, %p pid
  std::string timestamp = "%F %T"; // strftime, and %1f to %9f for digits of the second; "" = no time
  // How long a line may wait where whoever is to read it does not; then it is lost, and counted.
  std::chrono::milliseconds patience{1000};
};
void configure(const Settings &settings); // once config is known; before it, warnings go to stderr

bool enabled(Level level, Subsys subsys);
void write(Level level, Subsys subsys, std::string_view text); // one line; adds time, host, pid, rank

// Rank shown by lines of this thread; -1 = none.
class ScopedRank {
public:
  explicit ScopedRank(int rank);
  ~ScopedRank();
  ScopedRank(const ScopedRank &) = delete;
  ScopedRank &operator=(const ScopedRank &) = delete;

private:
  int previous_;
};

std::string_view level_name(Level level);
std::optional<uint32_t> subsys_bit(std::string_view name); // any case; "ALL"; nullopt = no such name
std::string subsys_names();                                // for messages, separated by spaces
// %h host, %p process, %%, and what `more` has beside them. Anything else stays.
std::string expand_file(std::string_view pattern, std::span<const std::pair<char, std::string>> more = {});
std::string format_time(std::string_view format, std::chrono::system_clock::time_point now);

// At most once per key and process: for conditions a stranger could repeat.
void write_once(Level level, Subsys subsys, std::string_view key, std::string_view text);

template <class... A> void info(Subsys s, fmt::format_string<A...> f, A &&...a) {
  if (enabled(Level::info, s)) write(Level::info, s, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> void warn(Subsys s, fmt::format_string<A...> f, A &&...a) {
  if (enabled(Level::warn, s)) write(Level::warn, s, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> void error(Subsys s, fmt::format_string<A...> f, A &&...a) {
  if (enabled(Level::error, s)) write(Level::error, s, fmt::format(f, std::forward<A>(a)...));
}
template <class... A> void debug(Subsys s, fmt::format_string<A...> f, A &&...a) {
  if (enabled(Level::debug, s)) write(Level::debug, s, fmt::format(f, std::forward<A>(a)...));
}

} // namespace tutti::log
