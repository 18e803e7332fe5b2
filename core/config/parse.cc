#include "config/parse.h"
#include "log/log.h"
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <numeric>

namespace tutti::config {
namespace {

constexpr size_t kShown = 80; // bytes of a bad value that a message repeats

struct Unit {
  std::string_view name;
  int64_t factor;
};
constexpr std::array<Unit, 12> kByteUnits{{{"", 1},
                                           {"b", 1},
                                           {"k", 1 << 10},
                                           {"kb", 1 << 10},
                                           {"kib", 1 << 10},
                                           {"m", 1 << 20},
                                           {"mb", 1 << 20},
                                           {"mib", 1 << 20},
                                           {"g", 1 << 30},
                                           {"gb", 1 << 30},
                                           {"gib", 1 << 30},
                                           {"tib", int64_t(1) << 40}}};
constexpr std::array<Unit, 7> kTimeUnits{{{"ns", 1},
                                          {"us", 1000},
                                          {"ms", 1000 * 1000},
                                          {"s", 1000 * 1000 * 1000},
                                          {"min", int64_t(60) * 1000 * 1000 * 1000},
                                          {"h", int64_t(3600) * 1000 * 1000 * 1000},
                                          {"d", int64_t(86400) * 1000 * 1000 * 1000}}};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

Result<int64_t> scaled(std::string_view digits, int64_t factor) {
  TUTTI_ASSIGN(n, parse_integer(digits));
  int64_t out = 0;
  if (__builtin_mul_overflow(n, factor, &out)) return bad("is too large");
  return out;
}

// Splits "4MiB" into "4" and "mib".
std::pair<std::string_view, std::string> number_and_unit(std::string_view text) {
  text = trim(text);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  size_t i = hex ? 2 : text.starts_with('-') ? 1 : 0;
  while (i < text.size() &&
         (hex ? std::isxdigit(static_cast<unsigned char>(text[i])) : std::isdigit(static_cast<unsigned char>(text[i]))))
    i++;
  return {text.substr(0, i), lower(trim(text.substr(i)))};
}

Result<int64_t> parse_bool(std::string_view text) {
  const std::string t = lower(trim(text));
  for (std::string_view yes : {"true", "1", "yes", "on"})
    if (t == yes) return int64_t(1);
  for (std::string_view no : {"false", "0", "no", "off"})
    if (t == no) return int64_t(0);
  return bad("is not a switch; allowed: true, false, 1, 0, yes, no, on, off");
}

std::string show_number(tutti_option_type type, int64_t value) {
  if (type == TUTTI_OPT_BYTES) return format_bytes(value);
  if (type == TUTTI_OPT_DURATION) return format_duration(value);
  return std::to_string(value);
}

Status check_range(const Option &option, int64_t value) {
  const bool open = option.min == 0 && option.max == 0;
  if (open && value < 0) return bad("is negative; allowed: 0 and more");
  if (!open && (value < option.min || value > option.max))
    return bad("is out of range; allowed: {} to {}", show_number(option.type, option.min),
               show_number(option.type, option.max));
  return {};
}

std::string_view bare_unit_of(std::string_view origin) {
  if (origin.ends_with("_MSEC")) return "ms";
  if (origin.ends_with("_USEC")) return "us";
  return "";
}

Result<int64_t> parse_number(const Option &option, const Raw &raw) {
  Result<int64_t> n = option.type == TUTTI_OPT_BOOL    ? parse_bool(raw.text)
                      : option.type == TUTTI_OPT_INT   ? parse_integer(raw.text)
                      : option.type == TUTTI_OPT_BYTES ? parse_bytes(raw.text)
                                                       : parse_duration(raw.text, bare_unit_of(raw.origin));
  if (n.ok() && option.type != TUTTI_OPT_BOOL) TUTTI_TRY(check_range(option, *n));
  return n;
}

// Replaces the text by the choice's own spelling and gives its index.
Result<int64_t> pick_choice(const Option &option, std::string &text) {
  const std::vector<std::string> choices = split(option.choices, '|');
  std::string want = lower(trim(text));
  for (const auto &pair : split(option.synonyms, '|'))
    if (pair.substr(0, pair.find('=')) == want) want = lower(pair.substr(pair.find('=') + 1));
  for (size_t i = 0; i < choices.size(); i++) {
    if (lower(choices[i]) != want) continue;
    text = choices[i];
    return static_cast<int64_t>(i);
  }
  return bad("is not allowed{} allowed: {}", did_you_mean(want, choices), fmt::join(choices, ", "));
}

// "INIT,NET" or "^COLL,P2P": the sign in front turns the whole list round.
Result<int64_t> parse_subsystems(const std::vector<std::string> &items) {
  uint32_t bits = 0;
  const bool exclude = !items.empty() && items[0].starts_with('^');
  for (size_t i = 0; i < items.size(); i++) {
    std::string_view name = items[i];
    if (name.starts_with('^')) {
      if (!exclude) return bad("mixes included and excluded subsystems; put one '^' in front of the whole list");
      name.remove_prefix(1);
    }
    const auto bit = log::subsys_bit(name);
    if (!bit) {
      const auto names = split(log::subsys_names(), ' ');
      return bad("names no subsystem with {}{} allowed: {}", quoted(name), did_you_mean(upper_name(name), names),
                 fmt::join(names, ", "));
    }
    bits |= *bit;
  }
  return static_cast<int64_t>(exclude ? ~bits : bits);
}

Status check_ports(std::string_view text) {
  const size_t dash = text.find('-');
  const auto lo = parse_integer(text.substr(0, dash));
  if (dash == std::string_view::npos && lo.ok() && *lo == 0) return {};
  const auto hi = dash == std::string_view::npos ? Result<int64_t>(Status(Error{})) : parse_integer(text.substr(dash + 1));
  if (!lo.ok() || !hi.ok() || *lo < 1 || *hi > 65535 || *lo > *hi)
    return bad("is no port range; allowed: 0 (any port), or LOW-HIGH with 1 <= LOW <= HIGH <= 65535");
  return {};
}

Status fill(const Option &option, const Raw &raw, Setting &out) {
  if (option.type == TUTTI_OPT_STRING_LIST) {
    out.list = raw.is_list ? raw.items : split(raw.text, option.separator);
    out.text = fmt::format("{}", fmt::join(out.list, std::string(1, option.separator)));
    if (option.grammar == Grammar::subsystems) {
      TUTTI_ASSIGN(bits, parse_subsystems(out.list));
      out.number = bits;
    }
    return {};
  }
  if (raw.is_list) return bad("is a list; {} takes one value", option.key);
  if (option.type != TUTTI_OPT_STRING) {
    TUTTI_ASSIGN(n, parse_number(option, raw));
    out.number = n;
    return {};
  }
  if (!option.choices.empty()) {
    TUTTI_ASSIGN(index, pick_choice(option, out.text));
    out.number = index;
  }
  if (option.grammar == Grammar::ports) TUTTI_TRY(check_ports(out.text));
  if (option.grammar == Grammar::timestamp && raw.origin.starts_with("NCCL_")) // there, '_' stands for a space
    std::replace(out.text.begin(), out.text.end(), '_', ' ');
  return {};
}

} // namespace

Result<Setting> parse_setting(const Option &option, const Raw &raw) {
  Setting out;
  out.text = raw.text;
  out.origin = raw.origin;
  if (Status s = fill(option, raw, out); !s.ok()) {
    s.error().message = raw.label + " " + s.error().message;
    return s;
  }
  return out;
}

Raw raw_from_environment(const std::string &name, const std::string &value) {
  return {value, {}, false, name, fmt::format("{}={}", name, quoted(value))};
}

Raw raw_from_api(const std::string &key, const std::string &text, const std::string &origin) {
  return {text, {}, false, origin, fmt::format("{}: {} = {}", origin, key, quoted(text))};
}

Result<int64_t> parse_integer(std::string_view text) {
  text = trim(text);
  const bool negative = text.starts_with('-');
  std::string_view digits = negative ? text.substr(1) : text;
  const bool hex = digits.starts_with("0x") || digits.starts_with("0X");
  if (hex) digits.remove_prefix(2);
  if (!hex && digits.size() > 1 && digits[0] == '0') return bad("starts with 0, which some read as octal; write it without");
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (error == std::errc::result_out_of_range) return bad("is too large");
  if (error != std::errc() || end != digits.data() + digits.size() || digits[0] == '-') return bad("is not a whole number");
  return negative ? -value : value;
}

Result<int64_t> parse_bytes(std::string_view text) {
  const auto [digits, unit] = number_and_unit(text);
  if (digits.empty()) return bad("is not a size; write 65536, \"64KiB\", \"4MiB\" or \"1GiB\"");
  for (const auto &u : kByteUnits)
    if (unit == u.name) return scaled(digits, u.factor);
  return bad("has the unknown unit {}; allowed: KiB, MiB, GiB, TiB (K, M, G mean the same)", quoted(unit));
}

Result<int64_t> parse_duration(std::string_view text, std::string_view bare_unit) {
  auto [digits, unit] = number_and_unit(text);
  if (digits.empty()) return bad("is not a duration; write \"200us\", \"100ms\", \"30s\" or \"10min\"");
  if (unit.empty() && digits == "0") return int64_t(0);
  if (unit.empty()) unit = bare_unit;
  if (unit.empty()) return bad("has no unit; allowed: ns, us, ms, s, min, h, d (\"{}s\" for seconds)", digits);
  for (const auto &u : kTimeUnits)
    if (unit == u.name) return scaled(digits, u.factor);
  return bad("has the unknown unit {}; allowed: ns, us, ms, s, min, h, d", quoted(unit));
}

std::string format_bytes(int64_t bytes) {
  for (const auto &[name, factor] : {std::pair{"GiB", int64_t(1) << 30}, {"MiB", int64_t(1) << 20}, {"KiB", int64_t(1) << 10}})
    if (bytes != 0 && bytes % factor == 0) return fmt::format("{}{}", bytes / factor, name);
  return std::to_string(bytes);
}

std::string format_duration(int64_t nanos) {
  if (nanos == 0) return "0";
  for (auto u = kTimeUnits.rbegin(); u != kTimeUnits.rend(); ++u)
    if (nanos % u->factor == 0) return fmt::format("{}{}", nanos / u->factor, u->name);
  return fmt::format("{}ns", nanos);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    if (const auto item = trim(text.substr(0, end)); !item.empty()) out.emplace_back(item);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char &c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string upper_name(std::string_view text) {
  std::string out(text);
  for (char &c : out) c = c == '-' || c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text.substr(0, kShown)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > kShown ? "...\"" : "\"");
}

// Optimal string alignment, three rows: O(|a| |b|) time, O(|b|) memory.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t(0));
  for (size_t i = 1; i <= a.size(); i++) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  constexpr size_t kLongest = 128; // names of options are shorter; bounds the work that a hostile file causes
  if (name.size() > kLongest) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const auto &c : candidates) {
    const size_t d = edit_distance(lower(name), lower(c));
    if (d < best_distance && d < std::max(name.size(), c.size())) best_distance = d, best = c;
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? ";" : fmt::format("; did you mean {}?", quoted(best));
}

} // namespace tutti::config
