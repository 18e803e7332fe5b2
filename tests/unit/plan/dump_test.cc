// Drawings of a plan.
#include "plans.h"
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace plans;

TEST_CASE("the text of a ring reads like its description") {
  const std::string text = dump_text(*build("ring", {TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false})[1]);
  CHECK(text.find("all_reduce by ring, rank 1 of 4: 1 group, 4 chunks per block, 0 scratch, depth >= 2\n") == 0);
  CHECK(text.find("x2    recv 0/0 (+) pre(IN[3 -1 mod 4]), send 2/0") != std::string::npos);
  CHECK(text.find("post(recv 0/0 (+) pre(IN[1])) -> OUT[1], send 2/0") != std::string::npos);
}

TEST_CASE("JSON holds every rank, lane and step") {
  const PlanSet plans = build("direct", {TUTTI_COLL_ALL_REDUCE, 3, -1, 2, TUTTI_REQ_MANY_SLICES | TUTTI_REQ_IN_PLACE, false});
  const auto j = nlohmann::json::parse(dump_json(plans));
  CHECK(j["coll"] == "all_reduce");
  REQUIRE(j["plans"].size() == 3);
  REQUIRE(j["plans"][2]["lanes"].size() == 6);
  CHECK(j["plans"][2]["lanes"][0]["steps"][0]["after"][0]["lane"] == 2);
  CHECK(j["plans"][1]["lanes"][1]["steps"][0]["src_pos"] == 1);
}

TEST_CASE("dot has one edge per link, with the chunks in their order") {
  const std::string dot = dump_dot(build("ring", {TUTTI_COLL_ALL_REDUCE, 3, -1, 1, 0, false}));
  CHECK(dot.find("digraph plan {") == 0);
  CHECK(dot.find("  0 -> 1 [label=\"2 +1 +0 2\"];") != std::string::npos);
}
