#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <doctest/doctest.h>

using namespace tuner;

static tutti_tune_query query(tutti_coll coll, uint64_t bytes, int nranks, uint32_t link) {
  tutti_tune_query q{};
  q.struct_size = sizeof q;
  q.coll = coll;
  q.bytes = bytes;
  q.nranks = nranks;
  q.transport = link;
  return q;
}
static std::string refused(std::string_view text) {
  try {
    parse_table(text, "t.csv");
  } catch (const tutti::plugin::Error &e) {
    return e.what();
  }
  return "";
}

TEST_CASE("the built-in table answers every query with sane slots") {
  const auto rules = parse_table(built_in_table(), "built-in");
  for (tutti_coll c = 0; c < TUTTI_COLL_COUNT; c++)
    for (uint64_t bytes = 1; bytes < uint64_t(1) << 47; bytes *= 2)
      for (int n : {2, 8, 9, 64, 5000})
        for (uint32_t link = 0; link < 3; link++) {
          const auto q = query(c, bytes, n, link);
          const bool answered = std::any_of(rules.begin(), rules.end(), [&](const Rule &r) { return r.fits(q); });
          CHECK_MESSAGE((answered || c == TUTTI_COLL_BARRIER || c == TUTTI_COLL_SEND_RECV), c);
        }
}
TEST_CASE("the built-in table has no private memory of other processes read: not all memory can be") {
  for (const Rule &r : parse_table(built_in_table(), "built-in")) {
    const bool pulls = std::any_of(r.ways.begin(), r.ways.end(), [](const Way &w) { return w.proto == "pull"; });
    if (pulls && (r.links & ~(1u << TUTTI_LINK_CLASS_LOCAL))) CHECK((r.flags & TUTTI_CAND_SHARED_ONLY));
  }
}
TEST_CASE("comments and blank lines are skipped, units are powers of 1024") {
  const auto rules = parse_table("# nothing\n\n all_reduce|reduce, 64K, *, shm, ring/simple direct, 2, 1M, 4 # why\n", "t.csv");
  REQUIRE(rules.size() == 1);
  CHECK(rules[0].max_bytes == 65536);
  CHECK(rules[0].slot_bytes == 1 << 20);
  CHECK(rules[0].ways.size() == 2);
  CHECK(rules[0].ways[0].proto == "simple");
  CHECK(rules[0].fits(query(TUTTI_COLL_REDUCE, 65536, 9, TUTTI_LINK_CLASS_SHM)));
  CHECK(!rules[0].fits(query(TUTTI_COLL_REDUCE, 65537, 9, TUTTI_LINK_CLASS_SHM)));
  CHECK(!rules[0].fits(query(TUTTI_COLL_BROADCAST, 8, 9, TUTTI_LINK_CLASS_SHM)));
  CHECK(!rules[0].fits(query(TUTTI_COLL_REDUCE, 8, 9, TUTTI_LINK_CLASS_NET)));
}
TEST_CASE("a bad rule is refused with its line, the value and what is allowed") {
  CHECK(refused("\nall_reduce, *, *, *, ring, 1, 8K\n").find("t.csv:2: 7 columns") == 0);
  CHECK(refused("nothing, *, *, *, ring, 1, 8K, 4").find("\"nothing\"") != std::string::npos);
  CHECK(refused("*, *, *, *, ring, 1, 8K, 3").find("power of two") != std::string::npos);
  CHECK(refused("*, 5X, *, *, ring, 1, 8K, 4").find("\"5X\"") != std::string::npos);
  CHECK(refused("*, *, *, *, ring, 99, 8K, 4").find("1 to 64") != std::string::npos);
}
TEST_CASE("a ninth column says how output is stored") {
  CHECK(parse_table("*, *, *, *, ring, 1, 8K, 4, nt\n", "t.csv").at(0).flags == TUTTI_CAND_NONTEMPORAL);
  CHECK(parse_table("*, *, *, *, ring, 1, 8K, 4, cached\n", "t.csv").at(0).flags == 0);
  CHECK(parse_table("*, *, *, *, ring, 1, 8K, 4, nt+shared\n", "t.csv").at(0).flags ==
        (TUTTI_CAND_NONTEMPORAL | TUTTI_CAND_SHARED_ONLY));
  CHECK(refused("*, *, *, *, ring, 1, 8K, 4, nt+").find("\"nt+\"") != std::string::npos);
  CHECK(refused("*, *, *, *, ring, 1, 8K, 4, hot").find("\"hot\"") != std::string::npos);
}
TEST_CASE("a rule that names protocols holds only where one of its ways is offered") {
  const auto rules = parse_table("*, *, *, *, ring/pull direct/pull, 1, 8K, 4\n*, *, *, *, ring, 1, 8K, 4\n", "t.csv");
  tutti_candidate offers[2]{};
  offers[0].algo = "tree", offers[0].proto = "pull";
  offers[1].algo = "ring", offers[1].proto = "simple";
  CHECK_FALSE(rules[0].offered(offers, 2, sizeof offers[0]));
  CHECK(rules[1].offered(offers, 2, sizeof offers[0]));
  CHECK(rules[1].offered(offers, 1, sizeof offers[0])); // an order of preference, no matter what is left
  offers[0].algo = "direct";
  CHECK(rules[0].offered(offers, 2, sizeof offers[0]));
}
