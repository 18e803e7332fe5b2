// Which algorithms have one order of combining, and what the choice depends on under each value of coll.deterministic.
#include "two_algorithms.h"

using namespace tutti;
using namespace two;

TEST_CASE("an order that nothing moves is one, and its reverse another one") {
  const Topology t = of_hosts({1, 1, 1, 1});
  CHECK(order<never>(t).reason.empty());
  CHECK(order<never>(t).id != 0);
  CHECK(order<never>(t).id == order<never>(of_hosts({1, 2, 3, 3})).id);
  CHECK(order<always>(t).reason.empty());
  CHECK(order<always>(t).id != order<never>(t).id);
}
TEST_CASE("an order that depends on anything but the ranks is refused with what it depends on") {
  const Topology t = of_hosts({1, 1, 1, 1});
  CHECK(order<when_long>(t).reason.find("the length of the message") != std::string::npos);
  CHECK(order<in_place>(t).reason.find("in place") != std::string::npos);
  CHECK(order<with_channels>(t).reason.find("the number of channels") != std::string::npos);
  CHECK(order<with_hosts>(t).reason.find("the hosts") != std::string::npos);
}
TEST_CASE("a plan that does not keep the order that was promised is refused") {
  PlanStats stats;
  stats.order = CombineOrder::one;
  stats.order_id = 7;
  const PlanRequest request = PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 3);
  CHECK(confirm_order(stats, 7, request, "x").ok());
  CHECK(!confirm_order(stats, 8, request, "x").ok());
  stats.order = CombineOrder::by_chunk;
  CHECK(!confirm_order(stats, 7, request, "x").ok());
}
TEST_CASE("off: the tuner is told all, and each size runs by what is best for it") {
  select_with({}, [](const Selector &s) {
    CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, 64).algo.table->name) == "forth");
    CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, 1 << 20).algo.table->name) == "back");
    REQUIRE(!asked.empty());
    CHECK(asked[0].transport == TUTTI_LINK_CLASS_NET);
    CHECK(asked[0].min_cores == 1);
    CHECK(asked[0].flags == TUTTI_TUNE_OVERSUBSCRIBED);
    CHECK(s.determinism_note(TUTTI_COLL_ALL_REDUCE).empty());
  });
}
TEST_CASE("run: the tuner is told of the division into hosts alone, and that it may not measure") {
  select_with({{"TUTTI_DETERMINISTIC", "run"}}, [](const Selector &s) {
    (void)s.choose(TUTTI_COLL_ALL_REDUCE, 64);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].nnodes == 2);
    CHECK(asked[0].max_ppn == 2);
    CHECK(asked[0].min_cores == 2);
    CHECK(asked[0].flags == TUTTI_TUNE_REPRODUCIBLE);
    CHECK(asked[0].transport == TUTTI_LINK_CLASS_NET);
  });
}
TEST_CASE("size: one order for all sizes, found without a look at hosts; the rest says why not") {
  select_with({{"TUTTI_DETERMINISTIC", "size"}}, [](const Selector &s) {
    for (const uint64_t bytes : {8u, 1024u, 1u << 20})
      CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, bytes).algo.table->name) == "back");
    for (const tutti_tune_query &q : asked)
      if (q.flags & TUTTI_TUNE_REPRODUCIBLE) CHECK((q.nnodes == 1 && q.max_ppn == 3 && q.min_cores == 3));
    CHECK(asked.front().flags == TUTTI_TUNE_REPRODUCIBLE);
    const auto ways = s.rate(TUTTI_COLL_ALL_REDUCE, 64);
    REQUIRE(ways.size() == 6);
    CHECK(ways[3].reason ==
          "deterministic = \"size\" (TUTTI_DETERMINISTIC): it combines in another order than back, which all sizes have");
    CHECK(s.promised_order(TUTTI_COLL_ALL_REDUCE).has_value());
    CHECK(!s.promised_order(TUTTI_COLL_ALL_GATHER).has_value());
  });
}
TEST_CASE("size: protocols do not decide about the order: not which are allowed, nor whether memory can be read") {
  for (const std::string proto : {"", "plain", "lines", "lent", "^lent"})
    for (const std::string no_pull : {"", "it may not be read"}) {
      if (proto == "lent" && !no_pull.empty()) continue; // an error
      CAPTURE(proto);
      CAPTURE(no_pull);
      const auto all_forth = [](const Selector &s) {
        for (const uint64_t bytes : {8u, 1024u, 1u << 20})
          CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, bytes).algo.table->name) == "forth");
      };
      select_with({{"TUTTI_DETERMINISTIC", "size"}, {"TUTTI_PROTO", proto}}, all_forth, "protocols", no_pull.c_str());
    }
}
