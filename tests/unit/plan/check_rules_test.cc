// Each rule of the checker, on plans that break just this one; and what the liveness pass says of plans that one can read.
#include "plans.h"
#include <doctest/doctest.h>

using namespace plans;

namespace {

// The plans with rank `rank`'s changed.
PlanSet changed(PlanSet plans, size_t rank, const std::function<void(Plan &)> &change) {
  Plan copy = *plans[rank];
  change(copy);
  auto again = rebuild(copy);
  REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.status().error().message));
  plans[rank] = *again;
  return plans;
}

bool reports(const PlanSet &plans, const std::string &rule, const std::string &text, CheckOptions o = {}) {
  std::string seen;
  for (const PlanFinding &f : check_plans(plans, o)) {
    if (f.rule == rule && f.text.find(text) != std::string::npos) return true;
    seen += f.rule + ": " + f.text + "\n";
  }
  MESSAGE("wanted " << rule << ": " << text << "; got:\n" << seen);
  return false;
}

const Case kRing{TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false};

} // namespace

TEST_CASE("a contribution that is taken twice is named, with rank and chunk") {
  // Rank 1 combines its operands of another chunk: one is in twice, another is missing.
  const PlanSet plans = changed(build("direct", kRing), 3, [](Plan &p) {
    p.lanes[0].steps[1].ops &= ~uint32_t{TUTTI_STEP_RECV | TUTTI_STEP_REDUCE};
    p.lanes[0].steps[1].recv_count = 0;
    p.lanes[0].steps[1].src_pos = 0;
    tutti_step drain = p.lanes[0].steps[1];
    drain.ops = TUTTI_STEP_SRC | TUTTI_STEP_PREOP | TUTTI_STEP_RECV | TUTTI_STEP_REDUCE | TUTTI_STEP_STORE;
    drain.recv_count = 3;
    p.lanes[0].steps.insert(p.lanes[0].steps.begin() + 1, drain);
  });
  CHECK(reports(plans, "result", "rank 3 chunk 0: contribution of rank 0 is missing"));
  const PlanSet twice = changed(build("direct", {TUTTI_COLL_ALL_REDUCE, 2, -1, 1, 2, false}), 1, [](Plan &p) {
    for (PlanLane &lane : p.lanes)
      for (tutti_step &s : lane.steps)
        if (s.ops & TUTTI_STEP_SEND && s.ops & TUTTI_STEP_STORE)
          s.recv_count = 1; // unchanged: only to be sure that it is there
  });
  CHECK(check_plans(twice).empty());
}

TEST_CASE("a ring that sends one chunk twice says so in the words of the guide") {
  const PlanSet plans = changed(build("ring", {TUTTI_COLL_ALL_REDUCE, 2, -1, 1, 0, false}), 0, [](Plan &p) {
    // Reduces its own contribution into what it already combined.
    tutti_step again = p.lanes[0].steps[1];
    again.ops = TUTTI_STEP_SRC | TUTTI_STEP_PREOP | TUTTI_STEP_RECV | TUTTI_STEP_REDUCE | TUTTI_STEP_POSTOP | TUTTI_STEP_STORE;
    again.src.first = again.dst.first = p.lanes[0].steps[2].dst.first;
    again.src.stride = again.dst.stride = 0;
    again.send_count = 0;
    p.lanes[0].steps[2] = again;
  });
  CHECK(reports(plans, "result", "contribution of rank 0 is in the result 2 times"));
}

TEST_CASE("operands in another order than on the other ranks are found") {
  const PlanSet plans = changed(build("direct", kRing), 2, [](Plan &p) { p.lanes[0].steps[1].src_pos = 0; });
  CHECK(reports(plans, "result", "rank 2 chunk 0: contributions are combined in another order than on rank "));
}

TEST_CASE("a missing pre- or post-operation is found") {
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps[0].ops &= ~uint32_t{TUTTI_STEP_PREOP}; }),
                "result", "rank 1 lane 0 step 0: passes on a contribution without its pre-operation"));
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps[1].ops &= ~uint32_t{TUTTI_STEP_PREOP}; }),
                "result", "combines a contribution without its pre-operation"));
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps[2].ops &= ~uint32_t{TUTTI_STEP_POSTOP}; }),
                "result", "the post-operation was not applied"));
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps[1].ops |= TUTTI_STEP_POSTOP; }), "result",
                "combines a value that has had the post-operation"));
}

TEST_CASE("an OUT chunk that is never written is found") {
  const PlanSet plans = changed(build("direct", {TUTTI_COLL_ALL_GATHER, 3, -1, 1, 0, false}), 0, [](Plan &p) {
    p.lanes[0].steps[0].ops &= ~uint32_t{TUTTI_STEP_STORE};
    p.lanes[0].steps[0].dst = {};
  });
  CHECK(reports(plans, "result", "rank 0 chunk 0: never written"));
  CheckOptions in_place; // there it is the same memory as IN
  in_place.in_place = true;
  CHECK(check_plans(plans, in_place).empty());
}

TEST_CASE("links without another end, and ends that count differently, are found") {
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].send[0].conn = 7; }), "link",
                "rank 1 sends to rank 2 (conn 7), which has no such receive link"));
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps.pop_back(); }), "link", "which expects 5"));
  CHECK(reports(changed(build("ring", kRing), 1, [](Plan &p) { p.lanes[0].steps[0].src.first = 2; }), "link",
                "expects the chunk with identity"));
}

TEST_CASE("lanes that share a chunk in no order are found, in place only where IN is OUT") {
  const Case c{TUTTI_COLL_ALL_REDUCE, 3, -1, 1, TUTTI_REQ_MANY_SLICES, false}; // without IN_PLACE, so without the dep
  const PlanSet plans = build("direct", c);
  CHECK(check_plans(plans).empty());
  CheckOptions in_place;
  in_place.in_place = true;
  CHECK(reports(plans, "order", "a dep is missing", in_place));
}

TEST_CASE("plans of different calls do not belong together") {
  PlanSet plans = build("ring", kRing);
  plans[2] = build("ring", {TUTTI_COLL_ALL_REDUCE, 4, -1, 2, 0, false})[2];
  CHECK(reports(plans, "shape", "rank 2: groups is 2, but 1 on rank 0"));
  plans[2] = nullptr;
  CHECK(reports(plans, "shape", "rank 2 has no plan"));
  CHECK(!check_plans({}).empty());
}

TEST_CASE("when blocks differ in size, a rank may not relay one whose size it does not know") {
  // Rank 0's block for rank 2 travels by way of rank 1, which names one of its own blocks for the size.
  const Case c{TUTTI_COLL_ALL_TO_ALL, 3, -1, 1, TUTTI_REQ_NONUNIFORM, false};
  PlanSet plans = build("direct", c);
  plans = changed(plans, 0, [](Plan &p) {
    tutti_step s = p.lanes[0].steps[1]; // the two sends, one by one; the second goes to rank 1 too
    s.repeat = 1;
    s.link_stride = 0;
    s.src = {TUTTI_BUF_IN, 1, 1, 0, 0};
    tutti_step t = s;
    t.src.first = 2;
    p.lanes[0].steps[1] = s;
    p.lanes[0].steps.insert(p.lanes[0].steps.begin() + 2, t);
  });
  plans = changed(plans, 1, [](Plan &p) {
    tutti_step relay{};
    relay.ops = TUTTI_STEP_RECV | TUTTI_STEP_SEND;
    relay.repeat = 1;
    relay.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
    relay.recv_count = relay.send_count = 1;
    p.lanes[0].steps.push_back(relay);
  });
  CHECK(!check_plans(plans).empty());
}

TEST_CASE("the liveness pass finds what one sees in the plan of a ring") {
  const auto life = build("ring", kRing)[1]->lanes[0].life;
  CHECK((life[0] & kSendHome) != 0);        // IN is never written ...
  CHECK((life[0] & kSendHomeInPlace) == 0); // ... but in place the result of this chunk comes back over it
  CHECK((life[2] & (kSendHome | kSendHomeInPlace)) == (kSendHome | kSendHomeInPlace)); // a finished chunk
  CHECK((life[3] & kRecvHome) != 0);
  CHECK((life[3] & kRecvEarly) != 0);              // nobody looks at OUT before ...
  CHECK((life[3] & kRecvEarlyInPlace) == 0);       // ... but in place the operand of this chunk was there
  CHECK((life[1] & (kSendHome | kRecvHome)) == 0); // partial sums have no home
}

TEST_CASE("a step of several chunks whose src reaches into its dst depends on the order in which they are moved") {
  const auto plans = changed(build("direct", {TUTTI_COLL_ALL_GATHER, 4, -1, 1, 0, false}), 1, [](Plan &p) {
    p.scratch_chunks = 3;
    p.scratch_size.assign(3, {TUTTI_BUF_OUT, 1});
    tutti_step s{};
    s.ops = TUTTI_STEP_SRC | TUTTI_STEP_STORE;
    s.repeat = 1;
    s.src = {TUTTI_BUF_SCRATCH, 2, 0, 0, 0};
    s.dst = {TUTTI_BUF_SCRATCH, 2, 1, 0, 0};
    p.lanes[0].steps.push_back(s);
  });
  CHECK(reports(plans, "order", "rank 1 lane 0 step 2: src and dst are the same memory in part"));
}
