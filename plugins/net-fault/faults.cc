// tutti/plugins/net-fault/faults.cc
#include "faults.h"
#include <charconv>

namespace tutti::net_fault {

using plugin::fail;

namespace {

constexpr std::pair<std::string_view, Kind> kinds[] = {{"delay", Kind::delay},     {"drop", Kind::drop},
                                                       {"corrupt", Kind::corrupt}, {"short", Kind::cut},
                                                       {"reset", Kind::reset},     {"half_open", Kind::half_open}};
constexpr std::pair<std::string_view, int64_t> units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};

template <class Number> bool whole(std::string_view text, Number &out) {
  const auto [end, err] = std::from_chars(text.data(), text.data() + text.size(), out);
  return err == std::errc() && end == text.data() + text.size();
}

bool duration(std::string_view text, std::chrono::nanoseconds &out) {
  const size_t digits = text.find_first_not_of("0123456789");
  int64_t n = 0;
  if (digits == std::string_view::npos || digits > 9 || !whole(text.substr(0, digits), n)) return false;
  for (const auto &[unit, factor] : units)
    if (text.substr(digits) == unit) return out = std::chrono::nanoseconds(n * factor), true;
  return false;
}

// What is left of the ':' of `rest`, which then begins behind it.
std::string_view take(std::string_view &rest) {
  const size_t end = std::min(rest.find(':'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

// "" or what is wrong.
std::string parse(std::string_view text, Fault &out) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) return "has no \"=\": write kind=when, like drop=0.01 or reset=after:100";
  const auto *kind =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const auto &k) { return k.first == text.substr(0, equals); });
  if (kind == std::end(kinds)) return "is no kind of fault: delay, drop, corrupt, short, reset, half_open";
  out.kind = kind->second;
  std::string_view rest = text.substr(equals + 1), when = take(rest);
  if (when == "after") {
    when = take(rest);
    if (!whole(when, out.after) || out.after < 0) return "wants a number of messages behind \"after:\"";
  } else if (!whole(when, out.probability) || !(out.probability >= 0 && out.probability <= 1))
    return "wants a probability from 0 to 1 or after:N behind \"=\"";
  if (rest.empty()) return {};
  if (out.kind == Kind::delay) return duration(rest, out.time) ? "" : "wants a duration like 500us, 5ms or 1s at its end";
  if (out.kind != Kind::corrupt) return "takes nothing behind its \"when\"";
  out.header = rest == "header";
  return out.header || rest == "payload" ? "" : "wants payload or header at its end";
}

} // namespace

const char *name_of(Kind kind) {
  for (const auto &[name, value] : kinds)
    if (value == kind) return name.data();
  return "";
}

std::vector<Fault> parse_faults(const std::string &text, const std::string &origin) {
  std::vector<Fault> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string_view part(text.data() + at, end - at);
    at = end + 1;
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    if (part.empty()) continue;
    Fault fault;
    if (const std::string wrong = parse(part, fault); !wrong.empty())
      fail(TUTTI_ERR_INVALID, "faults (", origin, "): \"", std::string(part), "\" ", wrong);
    out.push_back(fault);
  }
  return out;
}

// Mixes as splitmix64 does.
uint64_t Dice::roll(uint64_t message, uint64_t purpose) const {
  uint64_t x = seed;
  for (const uint64_t part : {rank, endpoint, message, purpose}) {
    x += 0x9e3779b97f4a7c15u + part;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return x;
}

bool Dice::strikes(const Fault &fault, uint64_t message, uint64_t purpose) const {
  if (fault.after >= 0) return message == static_cast<uint64_t>(fault.after);
  return static_cast<double>(roll(message, purpose) >> 11) * 0x1p-53 < fault.probability;
}

} // namespace tutti::net_fault
