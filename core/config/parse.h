// tutti/core/config/parse.h: text to typed values, with messages that name the value, its origin and what is allowed.
#pragma once
#include "config/config.h"

namespace tutti::config {

// A value as a source gave it.
struct Raw {
  std::string text;
  std::vector<std::string> items; // when is_list
  bool is_list = false;
  std::string origin; // "tutti.toml:12", "TUTTI_TIMEOUT"
  std::string label;  // how messages begin: "tutti.toml:12: core.timeout = \"x\"", "TUTTI_TIMEOUT=\"x\""
};
Raw raw_from_environment(const std::string &name, const std::string &value);
Raw raw_from_api(const std::string &key, const std::string &text, const std::string &origin);

Result<Setting> parse_setting(const Option &option, const Raw &raw);

// Numbers with units. Errors are half sentences ("has no unit; ...") without label.
Result<int64_t> parse_integer(std::string_view text);
Result<int64_t> parse_bytes(std::string_view text);
Result<int64_t> parse_duration(std::string_view text, std::string_view bare_unit);
std::string format_bytes(int64_t bytes);
std::string format_duration(int64_t nanos);

std::vector<std::string> split(std::string_view text, char separator); // trims; drops empty items
std::string lower(std::string_view text);
std::string upper_name(std::string_view text); // "net-socket" -> "NET_SOCKET"
std::string quoted(std::string_view text);     // printable and short enough for a message

size_t edit_distance(std::string_view a, std::string_view b); // insert, delete, replace, swap of neighbours
std::string nearest(std::string_view name, std::span<const std::string> candidates);      // "" = nothing is close
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates); // "; did you mean \"x\"?" or ";"

template <class... A> Status bad(fmt::format_string<A...> text, A &&...args) {
  return fail(Code::invalid_argument, text, std::forward<A>(args)...).phase("config");
}

} // namespace tutti::config
