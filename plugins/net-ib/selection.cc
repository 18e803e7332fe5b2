// tutti/plugins/net-ib/selection.cc
#include "selection.h"
#include <algorithm>
#include <charconv>

namespace tutti::net_ib {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// The pieces between separators, without blanks around them; empty ones are left out.
std::vector<std::string_view> pieces(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (const std::string_view piece = trimmed(text.substr(at, end - at)); !piece.empty()) out.push_back(piece);
    at = end + 1;
  }
  return out;
}

bool to_number(std::string_view text, int first, int last, int &out) {
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), out);
  return err == std::errc() && end == text.data() + text.size() && out >= first && out <= last;
}

// "device[:port[:rail[:plane]]]"; says what is wrong with it.
std::string parse_rule(std::string_view text, PortRule &out) {
  out.text = text;
  const auto wrong = [&](const char *why) { return "\"" + std::string(text) + "\": " + why; };
  if (text.front() == '^') return wrong("the ^ stands once, before the first entry, and excludes all of them");
  if (text.front() == '=') {
    out.exact = true;
    text.remove_prefix(1);
  }
  std::string_view fields[4];
  size_t n = 0;
  for (size_t at = 0; at <= text.size() && n < 4; n++) {
    const size_t end = std::min(text.find(':', at), text.size());
    fields[n] = text.substr(at, end - at);
    at = end + 1;
    if (n == 3 && end != text.size()) return wrong("there are more than four fields; an entry is device:port:rail");
  }
  out.device = fields[0];
  if (out.device.empty()) return wrong("there is no name of a device");
  if (n > 1 && !to_number(fields[1], 1, 254, out.port)) return wrong("the port is no number from 1 to 254");
  if (n > 2 && !to_number(fields[2], 0, 1023, out.rail)) return wrong("the rail is no number from 0 to 1023");
  if (int plane = 0; n > 3 && !to_number(fields[3], 0, 1023, plane)) return wrong("the plane is no number from 0 to 1023");
  return "";
}

} // namespace

bool PortRule::matches(std::string_view name, unsigned number) const {
  if (port >= 0 && static_cast<unsigned>(port) != number) return false;
  return exact ? name == device : name.substr(0, device.size()) == device;
}

int Selection::rule_of(std::string_view name, unsigned number) const {
  for (size_t i = 0; i < rules.size(); i++)
    if (rules[i].matches(name, number)) return static_cast<int>(i);
  return -1;
}

bool Selection::selects(std::string_view name, unsigned number) const {
  return rules.empty() || (rule_of(name, number) >= 0) != exclude;
}

Selection parse_selection(std::string_view text) {
  Selection out;
  text = trimmed(text);
  if (!text.empty() && text.front() == '^') {
    out.exclude = true;
    text.remove_prefix(1);
  }
  bool exact = false;
  if (text = trimmed(text); !text.empty() && text.front() == '=') {
    exact = true;
    text.remove_prefix(1);
  }
  for (const std::string_view piece : pieces(text, ',')) {
    PortRule rule;
    rule.exact = exact;
    if (out.error = parse_rule(piece, rule); !out.error.empty()) return out;
    out.rules.push_back(std::move(rule));
  }
  if (out.rules.empty() && (out.exclude || exact)) out.error = "there is no entry after the sign";
  return out;
}

MergeGroups parse_merge_groups(std::string_view text) {
  MergeGroups out;
  for (const std::string_view group : pieces(text, ';')) {
    std::vector<PortRule> rules;
    for (const std::string_view piece : pieces(group, ',')) {
      PortRule rule;
      if (out.error = parse_rule(piece, rule); !out.error.empty()) return out;
      rule.exact = true;
      rules.push_back(std::move(rule));
    }
    if (rules.empty()) continue;
    out.groups.push_back(std::move(rules));
  }
  return out;
}

} // namespace tutti::net_ib
