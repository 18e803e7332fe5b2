#include "tools/tune_table.h"
#include "base/utf8.h"
#include "tools/cli.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fmt/ranges.h>
#include <fstream>

namespace tutti::tools::tune {
namespace {

constexpr double kWorthALine = 4; // times the best
constexpr size_t kFewestLines = 4;

// The largest size class that still belongs to the smaller of two measured sizes.
uint64_t boundary(uint64_t smaller, uint64_t larger) {
  const auto mean = std::sqrt(static_cast<double>(smaller)) * std::sqrt(static_cast<double>(larger));
  return std::max(smaller, std::bit_floor(static_cast<uint64_t>(mean)));
}

// What nobody would want is not worth a line.
void drop_losers(Point &p) {
  const double limit = kWorthALine * p.ranking.front().us;
  while (p.ranking.size() > kFewestLines && p.ranking.back().us > limit) p.ranking.pop_back();
}

void join(TableRule &rule, const Point &p) {
  rule.sizes.push_back(p.bytes);
  std::erase_if(rule.ways, [&](TableRule::Entry &e) {
    const auto hit = std::find_if(p.ranking.begin(), p.ranking.end(), [&](const TimedWay &t) { return t.way.kin(e.way); });
    if (hit == p.ranking.end()) return true;
    e.way = hit->way;
    e.us.push_back(hit->us);
    return false;
  });
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (char c : valid_utf8(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out + '"';
}

std::string size_toml(uint64_t bytes) {
  return bytes < 1024 ? fmt::format("{}", bytes) : fmt::format("\"{}\"", size_text(bytes));
}

// About four digits, and always a fraction, as TOML wants one.
std::string time_toml(double us) {
  return us < 10 ? fmt::format("{:.3f}", us) : us < 1000 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}.0", us);
}

// What most ways have stands in the rule: one channel, cached stores, no private memory of others read.
std::string entry_text(const TableRule::Entry &e) {
  std::vector<std::string> times;
  for (double us : e.us) times.push_back(time_toml(us));
  return fmt::format("  {{ algo = \"{}\", proto = \"{}\", {}slot = {}, depth = {}{}, time_us = [{}] }},\n", e.way.algo,
                     e.way.proto, e.way.channels == 1 ? "" : fmt::format("channels = {}, ", e.way.channels),
                     size_toml(e.way.slot_bytes), e.way.depth, e.way.nontemporal ? ", stores = \"nt\"" : "",
                     fmt::join(times, ", "));
}

// How much a way asks for beyond the plainest.
int extras(const Way &way) {
  return (way.proto != "simple") + (way.channels > 1) + way.nontemporal;
}

void sort_by_time(std::vector<TimedWay> &ways) {
  std::stable_sort(ways.begin(), ways.end(), [](const TimedWay &a, const TimedWay &b) { return a.us < b.us; });
}

} // namespace

std::string way_name(const Way &way) {
  return fmt::format("{}/{}", way.algo, way.proto);
}
std::string way_text(const Way &way) {
  return fmt::format("{}, {} channel{}, slots {} x {}{}", way_name(way), way.channels, way.channels == 1 ? "" : "s", way.depth,
                     size_text(way.slot_bytes), way.nontemporal ? ", nt" : "");
}

void settle(Point &p, const std::vector<TimedWay> &again, double within) {
  std::vector<TimedWay> both;
  for (const TimedWay &second : again)
    for (const TimedWay &first : p.finalists)
      if (first.way == second.way) both.push_back({first.way, std::sqrt(first.us * second.us)});
  if (both.empty()) return;
  sort_by_time(both);
  const double limit = both.front().us * (1 + within);
  const auto end = std::find_if(both.begin(), both.end(), [&](const TimedWay &t) { return t.us > limit; });
  std::stable_sort(both.begin(), end, [](const TimedWay &a, const TimedWay &b) { return extras(a.way) < extras(b.way); });
  for (TimedWay &t : both) t.us = std::max(t.us, both.front().us);
  std::vector<TimedWay> ranking;
  for (const std::vector<TimedWay> *list : {&both, &p.ranking})
    for (const TimedWay &t : *list)
      if (std::none_of(ranking.begin(), ranking.end(), [&](const TimedWay &r) { return r.way.kin(t.way); }))
        ranking.push_back(t);
  for (TimedWay &t : ranking) t.us = std::max(t.us, ranking.front().us);
  sort_by_time(ranking);
  p.ranking = std::move(ranking);
}

std::vector<TableRule> merge_points(std::vector<Point> points) {
  std::erase_if(points, [](const Point &p) { return p.ranking.empty(); });
  for (Point &p : points) drop_losers(p);
  std::stable_sort(points.begin(), points.end(),
                   [](const Point &a, const Point &b) { return a.op != b.op ? a.op < b.op : a.bytes < b.bytes; });
  std::vector<TableRule> out;
  for (const Point &p : points) {
    const bool follows = !out.empty() && out.back().op == p.op;
    if (follows && out.back().ways.front().way == p.ranking.front().way) {
      join(out.back(), p);
      continue;
    }
    TableRule r;
    r.op = p.op;
    r.sizes = {p.bytes};
    for (const TimedWay &t : p.ranking) r.ways.push_back({t.way, {t.us}});
    if (follows) {
      out.back().max_bytes = boundary(out.back().sizes.back(), p.bytes);
      r.min_bytes = out.back().max_bytes + 1;
    }
    out.push_back(std::move(r));
  }
  return out;
}

std::string table_text(const About &about, const Layout &layout, const std::vector<TableRule> &rules) {
  std::string out =
      fmt::format("# Measured by {}: the tuner reads it as plugin.tuner.file (TUTTI_PLUGIN_TUNER_FILE).\n[about]\n", kWriter);
  out += fmt::format("written_by = \"{}\"\nversion = {}\ndate = {}\nmachine = {}\nhosts = {}\ncommand = {}\n", kWriter,
                     toml_string(about.version), toml_string(about.date), toml_string(about.machine), toml_string(about.hosts),
                     toml_string(about.command));
  out += fmt::format("ranks = {}\n", layout.ranks);
  if (about.interrupted) out += "interrupted = true\n";
  for (const TableRule &r : rules) {
    out += fmt::format("\n[[rule]]\ncoll = \"{}\"\n", r.op);
    if (r.min_bytes > 0) out += fmt::format("min_bytes = {}\n", r.min_bytes);
    if (r.max_bytes != UINT64_MAX) out += fmt::format("max_bytes = {}\n", size_toml(r.max_bytes));
    out += fmt::format("ranks = {}\nhosts = {}\nppn = {}\n", layout.ranks, layout.hosts, layout.ppn);
    if (layout.cores > 0) out += fmt::format("cores = {}\n", layout.cores);
    if (!layout.links.empty()) out += fmt::format("links = \"{}\"\n", layout.links);
    std::vector<std::string> sizes;
    for (uint64_t s : r.sizes) sizes.push_back(size_toml(s));
    out += fmt::format("sizes = [{}]\nchannels = 1\nstores = \"cached\"\nshared = true\nways = [\n", fmt::join(sizes, ", "));
    for (const auto &e : r.ways) out += entry_text(e);
    out += "]\n";
  }
  return out;
}

Status may_write(const std::string &path, bool force) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (fs::exists(path, ec)) {
    if (!fs::is_regular_file(path, ec)) return fail(Code::invalid_argument, "--out {}: is no regular file", path);
    std::ifstream in(path);
    std::string line;
    bool own = false;
    for (int n = 0; n < 10 && std::getline(in, line); n++) own |= line == fmt::format("written_by = \"{}\"", kWriter);
    if (!own && !force)
      return fail(Code::invalid_argument, "--out {}: exists and was not written by {}; name another file, or give --force",
                  path, kWriter);
  }
  const fs::path folder = fs::absolute(path, ec).parent_path();
  if (access(folder.c_str(), W_OK) != 0)
    return fail_errno(errno, fmt::format("--out {}: cannot write in {}", path, folder.string()));
  return {};
}

} // namespace tutti::tools::tune
