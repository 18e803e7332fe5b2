#include "names.h"
#include <algorithm>
#include <charconv>
#include <numeric>
#include <vector>

namespace tuner {
namespace {

constexpr std::string_view kCollNames[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                                           "alltoall",   "gather", "scatter",   "barrier",    "sendrecv"};
constexpr std::string_view kLinkNames[] = {"local", "shm", "net"};
constexpr std::string_view kAlgoNames[] = {"ring", "direct",   "tree",           "rhd",          "pat", "bruck", "binomial",
                                           "hier", "pairwise", "collnet_direct", "collnet_chain"};
constexpr std::string_view kProtoNames[] = {"simple", "ll", "ll8", "ll128", "pull"};

// Letters to insert, delete, replace, or swap with their neighbour. Names are short.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); i++) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({above[j - 1] + (a[i - 1] != b[j - 1]), above[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

} // namespace

const Names kColls = kCollNames, kLinks = kLinkNames, kAlgos = kAlgoNames, kProtos = kProtoNames;

std::optional<uint32_t> position(Names names, std::string_view name) {
  const auto hit = std::find(names.begin(), names.end(), name);
  if (hit == names.end()) return std::nullopt;
  return static_cast<uint32_t>(hit - names.begin());
}

std::string joined(Names names) {
  std::string out;
  for (auto n : names) out += (out.empty() ? "" : ", ") + std::string(n);
  return out;
}

std::string_view nearest(Names names, std::string_view name) {
  constexpr size_t kMost = 2, kLongest = 64;
  std::string_view best;
  size_t least = kMost + 1;
  if (name.size() > kLongest) return {};
  for (auto n : names)
    if (const size_t d = distance(n, name); d < least && 2 * d < std::max(n.size(), name.size())) least = d, best = n;
  return best;
}

std::string did_you_mean(Names names, std::string_view name) {
  const auto near = nearest(names, name);
  return near.empty() ? "" : "; did you mean \"" + std::string(near) + "\"?";
}

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

std::optional<uint64_t> parse_bytes(std::string_view s) {
  uint64_t value = 0;
  const auto [end, err] = std::from_chars(s.data(), s.data() + s.size(), value);
  const std::string_view unit(end, static_cast<size_t>(s.data() + s.size() - end));
  const size_t power = unit.empty() ? 0 : std::string_view("KMGT").find(unit[0]) + 1;
  const bool known = unit.empty() || (power >= 1 && power <= 4 && (unit.size() == 1 || unit.substr(1) == "iB"));
  if (err != std::errc() || !known || value > (UINT64_MAX >> 10 * power)) return std::nullopt;
  return value << 10 * power;
}

std::optional<int64_t> parse_integer(std::string_view s) {
  int64_t value = 0;
  const auto [end, err] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (err != std::errc() || end != s.data() + s.size() || s.empty()) return std::nullopt;
  return value;
}

} // namespace tuner
