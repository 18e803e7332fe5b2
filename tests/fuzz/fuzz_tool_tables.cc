// Texts that tools read: pass lines of `tutti perf --expect`, what the library explains, the ways that rank 0 of `tutti tune`
// tells, sizes; and the table that `tutti tune` makes of what it measured must be one that the tuner takes.
#include "cut.h"
#include "table.h"
#include "tools/cli.h"
#include "tools/perf.h"
#include "tools/perf_expect.h"
#include "tools/tune_ways.h"
#include "tutti/plugin/cxx/host.hpp"
#include <algorithm>
#include <tuple>

using namespace tutti;
using namespace tutti::tools;

// Names of operations that pass lines may speak of; nothing is run here.
std::vector<const perf::Operation *> tutti::tools::perf::all_operations() {
  static const Operation all_reduce = {"all_reduce", true, false, true, true, nullptr, nullptr, {}, false};
  static const Operation broadcast = {"broadcast", false, true, true, true, nullptr, nullptr, {}, false};
  return {&all_reduce, &broadcast};
}

namespace {

void written_table(fuzz::Input in) {
  std::vector<tune::Point> points;
  static const char *const ops[] = {"all_reduce", "broadcast"}, *const algos[] = {"ring", "tree"};
  for (int n = 0; n < 12 && !in.empty(); n++) {
    tune::Point p;
    p.op = ops[in.below(2)];
    p.bytes = uint64_t{1} << in.below(40);
    for (uint32_t w = 1 + in.below(3); w > 0; w--)
      p.ranking.push_back(
          {{algos[in.below(2)], "simple", 1 + in.below(4), 1024u << in.below(8), 2u << in.below(4), in.below(2) == 1},
           1.0 + in.byte()});
    points.push_back(std::move(p));
  }
  std::sort(points.begin(), points.end(),
            [](const auto &a, const auto &b) { return std::tie(a.op, a.bytes) < std::tie(b.op, b.bytes); });
  points.erase(std::unique(points.begin(), points.end(),
                           [](const auto &a, const auto &b) { return a.op == b.op && a.bytes == b.bytes; }),
               points.end()); // a size is measured once
  const auto rules = tune::merge_points(points);
  const std::string text =
      tune::table_text({"0", std::string(in.rest()), "n", "today", "tutti tune"}, {2, 1, 2, 2, "shm"}, rules);
  try {
    (void)tuner::parse_table(text, "written");
  } catch (const plugin::Error &) {
    std::abort(); // whatever the machine is called
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  switch (in.below(5)) {
  case 0:
    if (const auto lines = perf::parse_pass_lines(in.rest(), "fuzz"); fuzz::good(lines))
      for (const auto &l : *lines) (void)l.text(), (void)l.serves("all_reduce"), (void)l.fits_link("ib");
    break;
  case 1:
    if (const auto e = read_explanation(std::string(in.rest())); fuzz::good(e)) {
      (void)decided_text(*e);
      for (const auto &w : tune::usable_ways(*e)) (void)tune::variants(w, e->bytes, 4);
    }
    break;
  case 2: {
    const auto ways = tune::decode_ways(std::string(in.rest()));
    if (!fuzz::good(ways)) break;
    const auto again = tune::decode_ways(tune::encode_ways(*ways));
    fuzz::expect(again.ok() && *again == *ways);
    break;
  }
  case 3:
    if (const auto bytes = parse_size(in.rest()); fuzz::good(bytes)) {
      const auto again = parse_size(size_text(*bytes));
      fuzz::expect(again.ok() && *again == *bytes);
    }
    break;
  default:
    written_table(in);
    break;
  }
  return 0;
}
