#include "bootstrap/hostlist.h"
#include <algorithm>
#include <charconv>

namespace tutti::boot {
namespace {

constexpr size_t kMaxName = 255;

Status wrong(std::string_view text, std::string_view why) {
  return fail(Code::invalid_usage, "\"{}\" is no list of hosts: {}", text.substr(0, kMaxName), why).phase("bootstrap");
}

bool number(std::string_view digits, uint64_t *out) {
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), *out);
  return problem == std::errc() && end == digits.data() + digits.size() && !digits.empty();
}

// Up to the comma that separates hosts; brackets hold commas of their own.
std::string_view next_item(std::string_view *rest) {
  size_t at = 0;
  bool inside = false;
  while (at < rest->size() && (inside || (*rest)[at] != ',')) {
    if ((*rest)[at] == '[') inside = true;
    if ((*rest)[at] == ']') inside = false;
    at++;
  }
  const std::string_view item = rest->substr(0, at);
  rest->remove_prefix(std::min(at + 1, rest->size()));
  return item;
}

// "1-3,07": the texts; a number is as wide as the lower end of its range.
const char *expand_ranges(std::string_view text, size_t limit, std::vector<std::string> *out) {
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    const std::string_view low = part.substr(0, dash), high = dash == part.npos ? low : part.substr(dash + 1);
    uint64_t from = 0, to = 0;
    if (low.size() > kMaxName || !number(low, &from) || !number(high, &to)) return "between [ and ] stand numbers and ranges";
    if (to < from) return "a range ends before it begins";
    if (to - from >= limit || out->size() + (to - from) >= limit) return "it names too many";
    for (uint64_t i = 0; i <= to - from; i++) out->push_back(fmt::format("{:0{}}", from + i, low.size()));
    if (comma == text.npos) return nullptr;
    text.remove_prefix(comma + 1);
  }
}

const char *expand_item(std::string_view item, size_t limit, std::vector<std::string> *out) {
  if (item.empty()) return "a name is empty";
  std::vector<std::string> names{""};
  while (!item.empty()) {
    const size_t open = item.find('[');
    const std::string_view plain = item.substr(0, open);
    for (const char c : plain)
      if (static_cast<unsigned char>(c) <= 32 || c == ']' || c == 127)
        return "a name holds a blank, an unprintable character or a lone ]";
    for (std::string &n : names)
      if ((n += plain).size() > kMaxName) return "a name is too long";
    if (open == item.npos) break;
    item.remove_prefix(open + 1);
    const size_t close = item.find(']');
    if (close == item.npos) return "a [ is not closed";
    std::vector<std::string> numbers, longer;
    if (const char *why = expand_ranges(item.substr(0, close), limit, &numbers)) return why;
    if (names.size() * numbers.size() > limit) return "it names too many";
    for (const std::string &n : names)
      for (const std::string &digits : numbers) longer.push_back(n + digits);
    names = std::move(longer);
    item.remove_prefix(close + 1);
  }
  if (out->size() + names.size() > limit) return "it names too many";
  out->insert(out->end(), names.begin(), names.end());
  return nullptr;
}

} // namespace

Result<std::vector<std::string>> expand_hostlist(std::string_view text, size_t limit) {
  std::vector<std::string> out;
  std::string_view rest = text;
  do {
    const std::string_view item = next_item(&rest);
    const bool more = !text.empty() && item.data() + item.size() != text.data() + text.size(); // a comma followed
    if (const char *why = expand_item(item, limit, &out)) return wrong(text, why);
    if (more && rest.empty()) return wrong(text, "it ends with a comma");
  } while (!rest.empty());
  return out;
}

Result<int> tasks_on_node(std::string_view text, int node) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid_usage, "\"{}\" is no list of task counts: {}", text.substr(0, kMaxName), why).phase("bootstrap");
  };
  std::string_view rest = text;
  uint64_t first = 0; // node that the next count begins with
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string_view part = rest.substr(0, comma);
    uint64_t tasks = 0, nodes = 1;
    if (const size_t open = part.find("(x"); open != part.npos) {
      if (part.back() != ')' || !number(part.substr(open + 2, part.size() - open - 3), &nodes) || nodes == 0 ||
          nodes > kMaxHosts)
        return bad("a repetition reads COUNT(xNODES)");
      part = part.substr(0, open);
    }
    if (!number(part, &tasks) || tasks > INT32_MAX) return bad("a count is no number");
    if (static_cast<uint64_t>(node) < first + nodes) return static_cast<int>(tasks);
    first += nodes;
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
  }
  return bad(fmt::format("it has {} nodes, this is node {}", first, node));
}

} // namespace tutti::boot
