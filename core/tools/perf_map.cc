// `tutti perf --heatmap`: what operations move between ranks.
#include "tools/cli.h"
#include "tools/map_svg.h"
#include "tools/perf_rank.h"
#include <algorithm>
#include <cstring>

namespace tutti::tools::perf {
namespace {

// This rank's part of the map of `comm`, so far.
commmap::Map traffic_of(tuttiComm_t comm) {
  size_t needed = 0;
  require(tuttiCommTraffic(comm, nullptr, 0, &needed), comm, "asking for what was sent");
  std::string text(needed, 0);
  require(tuttiCommTraffic(comm, text.data(), text.size(), nullptr), comm, "asking for what was sent");
  text.resize(needed - 1);
  auto map = commmap::parse(text, "tuttiCommTraffic");
  if (!map.ok()) throw Failure{map.status().error().line()};
  return std::move(*map);
}

std::string heatmap_title(const Args &a, int nranks) {
  const std::string sizes = a.min_bytes == a.max_bytes ? fmt::format("{}B", size_text(a.min_bytes))
                                                       : fmt::format("one of each size from {}B to {}B", size_text(a.min_bytes),
                                                                     size_text(a.max_bytes));
  return fmt::format("{}, {}, {} ranks", a.op, sizes, nranks);
}

} // namespace

void Rank::count_traffic(const Call &call) {
  const commmap::Map before = traffic_of(comm_);
  start(call);
  wait();
  commmap::Map after = traffic_of(comm_);
  commmap::RankPart &part = after[0].ranks.at(group_rank_);
  commmap::subtract(part, before[0].ranks.at(group_rank_));
  if (moved_.empty())
    moved_ = std::move(after);
  else
    commmap::add(moved_[0].ranks.at(group_rank_), part);
}

// All ranks together; rank 0 writes and tells.
bool Rank::write_heatmap() {
  std::string mine = commmap::to_json(moved_);
  const uint64_t size = mine.size();
  const std::vector<char> raw = gather(&size, sizeof size);
  std::vector<uint64_t> sizes(static_cast<size_t>(nranks_));
  std::memcpy(sizes.data(), raw.data(), raw.size());
  const size_t largest = *std::max_element(sizes.begin(), sizes.end());
  mine.resize(largest, ' ');
  const std::vector<char> all = gather(mine.data(), largest);
  if (rank_ != 0) return true;
  commmap::Map map;
  Status s;
  for (int r = 0; r < nranks_ && s.ok(); r++) {
    const std::string origin = fmt::format("rank {}", r);
    auto one = commmap::parse({all.data() + static_cast<size_t>(r) * largest, largest}, origin);
    s = one.ok() ? commmap::merge(map, std::move(*one), origin) : one.status();
  }
  for (const std::string &path : args_.heatmap)
    if (s.ok() && (s = commmap::write(map, path, heatmap_title(args_, nranks_))).ok())
      fmt::print("# Communication map    : {}\n", path);
  if (!s.ok()) print_error("--heatmap: " + s.error().message);
  return s.ok();
}

} // namespace tutti::tools::perf
