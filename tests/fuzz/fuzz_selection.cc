// Ways to run collectives: the table that rank 0 tells, coll.algo and coll.proto, the constants of the cost model on the wire
// and in their file.
#include "comm/select/calibrate.h"
#include "comm/select/grammar.h"
#include "comm/select/table.h"
#include "cut.h"

using namespace tutti;

namespace {

const Registry &no_plugins() {
  static const auto registry = [] {
    const auto config = Config::from("", "", {});
    auto loaded = Registry::load(*config, {});
    return std::move(*loaded);
  }();
  return *registry;
}

void table(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  if (const auto refusal = SelectionTable::refusal_in(bytes)) {
    fuzz::expect(refusal->size() + 1 == text.size() && refusal->find('\n') == refusal->npos);
    fuzz::expect(SelectionTable::refusal_in(SelectionTable::encode_refusal(*refusal)) == refusal);
    return;
  }
  const auto t = SelectionTable::decode(bytes, no_plugins());
  if (!fuzz::good(t)) return;
  for (uint32_t row = 0; row < kRows; row++)
    for (uint32_t b = 0; b < kBuckets; b++) {
      (void)t->at(row, b).refusal.size();
      for (const auto &w : t->ways(row, b).ways) fuzz::expect(w.choice < t->choices.size());
    }
  fuzz::expect(t->fits().ok());
  const auto again = SelectionTable::decode(t->encode(), no_plugins());
  fuzz::expect(again.ok() && again->encode() == t->encode());
}

void filter(std::string_view text) {
  const std::vector<std::string> known{"ring", "tree", "direct"};
  const auto f = NameFilter::parse(text, "TUTTI_ALGO", "algorithm", known);
  if (!fuzz::good(f)) return;
  for (tutti_coll coll = 0; coll < TUTTI_COLL_COUNT; coll++) {
    if (f->forced(coll)) fuzz::expect(f->allows(coll, "ring") || f->allows(coll, "tree") || f->allows(coll, "direct"));
    (void)f->describe(coll);
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz::Input in(data, size);
  switch (in.below(5)) {
  case 0:
    table(in.rest());
    break;
  case 1:
    filter(in.rest());
    break;
  case 2:
    if (const auto c = CostConstants::decode(in.rest())) fuzz::expect(CostConstants::decode(c->encode()).has_value());
    break;
  case 3:
    if (const auto d = CostModel::Device::decode(in.rest())) fuzz::expect(CostModel::Device::decode(d->encode()).has_value());
    break;
  default:
    (void)parse_costs(in.rest(), "this machine");
    break;
  }
  return 0;
}
