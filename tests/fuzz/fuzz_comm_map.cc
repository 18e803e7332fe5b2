// Communication maps: files of ranks, put together and drawn. Input: files, each up to a byte 0xff.
#include "cut.h"
#include "tools/map_data.h"
#include "tools/map_svg.h"

using namespace tutti::tools::commmap;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  Map map;
  do {
    auto one = parse(in.piece(), "fuzz");
    if (!fuzz::good(one)) continue;
    (void)fuzz::good(merge(map, std::move(*one), "fuzz"));
  } while (!in.empty());
  for (const Comm &c : map) {
    fuzz::expect(c.nranks > 0 && c.nranks <= kMostRanks);
    const Pairs pairs(c);
    (void)imbalance(pairs);
    (void)imbalance(pairs.sent());
    fuzz::expect(by_host(c).size() <= static_cast<size_t>(c.nranks));
    fuzz::expect(missing(c).size() + c.ranks.size() == static_cast<size_t>(c.nranks));
  }
  size_t ranks = 0;
  for (const Comm &c : map) ranks += static_cast<size_t>(c.nranks);
  if (map.empty() || ranks > 4096) return 0;
  (void)fuzz::good(draw(map, "fuzz"));
  const std::string text = to_json(map);
  const auto again = parse(text, "again");
  fuzz::expect(again.ok() && to_json(*again) == text);
  return 0;
}
