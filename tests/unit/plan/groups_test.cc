// Collnet groups in plans: who may post to one, what makes one of the members' links, and what it takes.
#include "plan/groups.h"
#include "plan/simulate.h"
#include "plans.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace plans;

namespace {

PlanSet direct(tutti_coll coll, int n, int hosts, uint32_t channels = 1, uint32_t flags = 0) {
  const int root = coll_has_root(coll) ? 0 : -1;
  PlanSet out = build("collnet_direct", {coll, n, root, channels, flags | TUTTI_REQ_COLLNET, false, hosts});
  REQUIRE(!out.empty());
  return out;
}

// The first finding once `change` has spoilt the plan of `rank`.
std::string finding(PlanSet plans, size_t rank, const std::function<void(Plan &)> &change) {
  Plan copy = *plans[rank];
  change(copy);
  auto again = rebuild(copy);
  if (!again.ok()) return "malformed: " + again.status().error().message;
  plans[rank] = *again;
  const auto found = check_plans(plans);
  return found.empty() ? "" : found[0].rule + ": " + found[0].text;
}

bool has(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("only the head of a channel may post to its group, by one link each way") {
  const PlanSet plans = direct(TUTTI_COLL_ALL_REDUCE, 4, 4);
  const auto refused = [&](const std::function<void(tutti_link &)> &change) {
    return finding(plans, 2, [&](Plan &p) { change(p.lanes[0].send[0]); });
  };
  CHECK(has(refused([](tutti_link &l) { l.peer = 1; }), "group 1 is not in 0..0"));
  CHECK(has(refused([](tutti_link &l) { l.conn = 3; }), "conn 3 of a link to a group is not 0"));
  CHECK(has(refused([](tutti_link &l) { l.flags |= TUTTI_LINK_MULTICAST; }), "are not known"));
  CHECK(has(finding(plans, 2, [](Plan &p) { p.request.channel[0].head = 1; }), "rank 2 is no member of group 0"));
  CHECK(has(finding(plans, 2, [](Plan &p) { p.request.flags = 0; }), "the request offers no collnet"));
}

TEST_CASE("a member that leaves out a post, or what comes back, is named") {
  const PlanSet all = direct(TUTTI_COLL_ALL_REDUCE, 3, 3);
  CHECK(has(finding(all, 1,
                    [](Plan &p) {
                      p.lanes[0].recv.clear();
                      p.lanes[0].steps.pop_back();
                    }),
            "link: rank 1 does not receive from group 0; in all_reduce all members send and receive"));
  CHECK(has(finding(all, 2, [](Plan &p) { p.lanes[0].steps.insert(p.lanes[0].steps.begin(), p.lanes[0].steps[0]); }),
            "link: rank 2 sends to group 0 other messages than rank 0, or in another order"));
  const PlanSet down = direct(TUTTI_COLL_BROADCAST, 3, 3);
  CHECK(check_plans(down).empty());
  CHECK(has(finding(down, 1,
                    [](Plan &p) {
                      p.lanes[0].send.push_back({0, 0, TUTTI_LINK_REDUCING});
                      p.lanes[0].steps[0].ops |= TUTTI_STEP_SEND;
                      p.lanes[0].steps[0].send_count = 1;
                    }),
            "link: rank 1 sends to group 0; in broadcast the member of the root's host sends"));
}

TEST_CASE("who waits for a group before posting to it waits for ever") {
  const std::string found =
      finding(direct(TUTTI_COLL_ALL_REDUCE, 3, 3), 1, [](Plan &p) { std::swap(p.lanes[0].steps[0], p.lanes[0].steps[1]); });
  CHECK(has(found, "deadlock: "));
  CHECK(has(found, "rank 1 lane 0 step 0 (slice 0, iteration 0) waits for a message from group 0"));
}

TEST_CASE("each host sends and receives a message once, and two messages follow one another") {
  for (const int n : {2, 4, 8}) {
    PlanStats stats;
    CHECK(check_plans(direct(TUTTI_COLL_ALL_REDUCE, n, n), {}, &stats).empty());
    CHECK(stats.rounds == 2);
    CHECK(stats.bytes_per_byte == doctest::Approx(1));
  }
  PlanStats stats; // 3 ranks on each host: one round in, one out
  CHECK(check_plans(direct(TUTTI_COLL_ALL_REDUCE, 9, 3), {}, &stats).empty());
  CHECK(stats.rounds == 4);
}

TEST_CASE("the simulation has the time of the formula, with aggregators of any speed and depth") {
  SimulateOptions o;
  o.bytes = 1 << 20;
  o.slice = 1 << 14;
  o.depth = 64;
  o.net = {5e-6, 1e9};
  const PlanSet plans = direct(TUTTI_COLL_ALL_REDUCE, 4, 4, 1, TUTTI_REQ_MANY_SLICES);
  const double wire = static_cast<double>(o.bytes) / 1e9, slice = static_cast<double>(o.slice) / 1e9;
  const auto time = [&] {
    auto s = simulate(plans, o);
    REQUIRE_MESSAGE(s.ok(), (s.ok() ? "" : s.status().error().message));
    return std::move(*s);
  };
  CHECK(time().seconds == doctest::Approx(2 * 5e-6 + wire + 2 * slice).epsilon(0.02));
  o.group_depth = 3;
  CHECK(time().seconds == doctest::Approx(6 * 5e-6 + wire + 2 * slice).epsilon(0.02));
  o.group_depth = 1;
  o.group_beta = 1e9; // one host's speed for all four
  const Simulation crowded = time();
  CHECK(crowded.seconds == doctest::Approx(4 * wire).epsilon(0.1));
  CHECK(crowded.ranks.back() == "group 0");
  uint64_t out = 0;
  for (size_t w = 0; w < crowded.wires.size(); w++) out += crowded.wires[w].src == 2 ? crowded.wire_bytes[w] : 0;
  CHECK(out == o.bytes);
}

TEST_CASE("drawings and dumps show the group") {
  const PlanSet plans = direct(TUTTI_COLL_ALL_REDUCE, 2, 2);
  CHECK(has(dump_text(*plans[0]), "send group 0/0"));
  CHECK(has(dump_json(plans), "\"reducing\": true"));
  CHECK(has(dump_dot(plans), "0 -> group0"));
  SimulateOptions o;
  o.bytes = 4096;
  const auto s = simulate(plans, o);
  REQUIRE(s.ok());
  const auto svg = draw_svg(plans, *s);
  REQUIRE(svg.ok());
  CHECK(has(*svg, ">group 0</text>"));
}
