#include "tables.h"

using namespace tuner;

namespace {

// Candidates as a newer core would pass them: longer than the plugin knows.
struct Wide {
  tutti_candidate known;
  char more[24];
};
Wide candidate(const char *algo, const char *proto, double cost) {
  Wide w{};
  w.known = {algo, proto, cost, 3, 1, 4, 32768, 16, TUTTI_CAND_NONTEMPORAL, nullptr};
  return w;
}
void rate_all(std::string_view toml, const tutti_tune_query &q, std::vector<Wide> &list) {
  static Table t; // notes live as long as the table
  t = parse_table(toml, "t.toml");
  rate(t, q, Candidates(&list[0].known, static_cast<uint32_t>(list.size()), sizeof(Wide)));
}
constexpr std::string_view kTimes =
    "[[rule]]\nmax_bytes = \"1M\"\nsizes = [\"1K\", \"16K\"]\nways = [\n"
    "  { algo = \"ring\", proto = \"ll\", channels = 9, slot = \"8K\", stores = \"cached\", time_us = [4.0, 16] },\n"
    "  { algo = \"tree\", time_us = [2.0, 32] },\n  \"direct\",\n]\n";

} // namespace

TEST_CASE("where no rule fits, or none of its ways can be had, candidates stay as they came") {
  for (const char *table :
       {"", "[[rule]]\ncoll = \"barrier\"\nways = [\"ring\"]\n", "[[rule]]\nways = [\"bruck\", \"ring/pull\"]\n"}) {
    std::vector<Wide> list = {candidate("ring", "ll", 7.5), candidate("tree", "ll", 0)};
    const auto before = list;
    rate_all(table, query_of(TUTTI_COLL_ALL_REDUCE, 8, 4, 1), list);
    CHECK(std::memcmp(list.data(), before.data(), sizeof(Wide) * list.size()) == 0);
  }
}
TEST_CASE("the first rule with a way that can be had decides") {
  std::vector<Wide> list = {candidate("ring", "ll", 1), candidate("tree", "ll", 2)};
  rate_all("[[rule]]\nways = [\"tree/pull\"]\n\n[[rule]]\nways = [\"tree\", \"ring\"]\n",
           query_of(TUTTI_COLL_ALL_REDUCE, 8, 4, 1), list);
  CHECK(list[1].known.cost_us < list[0].known.cost_us);
  CHECK(std::string(list[1].known.note) == "t.toml:4");
  CHECK((list[1].known.flags & TUTTI_CAND_ORDER_ONLY));
}
TEST_CASE("measured ways cost their time, listed ones without come behind them, and the rest in the core's order") {
  std::vector<Wide> list = {candidate("bruck", "ll", 0), candidate("pat", "ll", 0.5), candidate("direct", "ll", 0.1),
                            candidate("ring", "ll", 9),  candidate("tree", "ll", 9),  candidate("ring", "simple", 0.2)};
  rate_all(kTimes, query_of(TUTTI_COLL_ALL_REDUCE, 1024, 4, 1), list);
  const auto &[bruck, pat, direct, ring, tree, simple] =
      std::tie(list[0].known, list[1].known, list[2].known, list[3].known, list[4].known, list[5].known);
  CHECK((tree.cost_us == 2 && ring.cost_us == 4));
  CHECK(((tree.flags & TUTTI_CAND_MEASURED) && !(tree.flags & TUTTI_CAND_ORDER_ONLY)));
  CHECK((ring.cost_us < direct.cost_us && direct.cost_us < simple.cost_us && simple.cost_us < pat.cost_us &&
         pat.cost_us < bruck.cost_us));
  CHECK(((direct.flags & TUTTI_CAND_ORDER_ONLY) && (bruck.flags & TUTTI_CAND_ORDER_ONLY)));
  CHECK((!pat.note && std::string(direct.note) == "t.toml:1"));
}
TEST_CASE("a time between two measured sizes is reckoned and not called measured; outside them there is none") {
  std::vector<Wide> list = {candidate("ring", "ll", 1), candidate("tree", "ll", 1)};
  rate_all(kTimes, query_of(TUTTI_COLL_ALL_REDUCE, 4096, 4, 1), list);
  CHECK(list[0].known.cost_us == doctest::Approx(8));
  CHECK(list[1].known.cost_us == doctest::Approx(8));
  CHECK(!(list[0].known.flags & (TUTTI_CAND_MEASURED | TUTTI_CAND_ORDER_ONLY)));
  rate_all(kTimes, query_of(TUTTI_COLL_ALL_REDUCE, 8192, 4, 1), list);
  CHECK(list[0].known.cost_us < list[1].known.cost_us);
  rate_all(kTimes, query_of(TUTTI_COLL_ALL_REDUCE, 32768, 4, 1), list);
  CHECK((list[0].known.flags & TUTTI_CAND_ORDER_ONLY));
  CHECK(list[0].known.cost_us < list[1].known.cost_us);
}
TEST_CASE("a way sets the slots that it names, within the candidate's bounds, and leaves the others as proposed") {
  std::vector<Wide> list = {candidate("ring", "ll", 1), candidate("tree", "ll", 1), candidate("pat", "ll", 1)};
  rate_all(kTimes, query_of(TUTTI_COLL_ALL_REDUCE, 1024, 4, 1), list);
  CHECK((list[0].known.channels == 4 && list[0].known.slot_bytes == 8192 && list[0].known.depth == 16));
  CHECK(!(list[0].known.flags & TUTTI_CAND_NONTEMPORAL));
  for (size_t i : {1, 2}) {
    CHECK((list[i].known.channels == 3 && list[i].known.slot_bytes == 32768));
    CHECK((list[i].known.flags & TUTTI_CAND_NONTEMPORAL));
  }
}
