// The simulation against closed formulas, and the picture made of it.
#include "plan/simulate.h"
#include "plans.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace plans;

namespace {

constexpr double kAlpha = 3e-6, kBeta = 1e9; // s, B/s

SimulateOptions options(uint64_t bytes, uint64_t slice = 0, uint32_t depth = 0) {
  SimulateOptions o;
  o.bytes = bytes;
  o.slice = slice;
  o.depth = depth;
  o.host = o.net = {kAlpha, kBeta};
  return o;
}
Simulation simulated(const PlanSet &plans, const SimulateOptions &o) {
  auto s = simulate(plans, o);
  REQUIRE_MESSAGE(s.ok(), (s.ok() ? "" : s.status().error().message));
  return std::move(*s);
}
double seconds(const PlanSet &plans, const SimulateOptions &o) {
  return simulated(plans, o).seconds;
}
doctest::Approx about(double value) {
  return doctest::Approx(value).epsilon(1e-9);
}

// Broadcast from rank 0 down a binomial tree, the largest subtree first.
PlanSet binomial_broadcast(int n) {
  PlanSet plans;
  for (int r = 0; r < n; r++) {
    PlanBuilder b(PlanRequest::simple(TUTTI_COLL_BROADCAST, r, n, 0));
    const tutti_plan_builder *t = b.builder();
    tutti_plan_shape shape{};
    shape.struct_size = sizeof shape;
    shape.in_chunks = shape.out_chunks = shape.groups = shape.lanes = 1;
    shape.min_depth = 2;
    t->begin(t->impl, &shape);
    std::vector<tutti_link> recv, send;
    if (r > 0) recv.push_back({r & (r - 1), 0, 0});
    for (int child = r ? (r & -r) / 2 : n / 2; child > 0; child /= 2) send.push_back({r + child, 0, 0});
    t->lane(t->impl, 0, recv.data(), static_cast<uint32_t>(recv.size()), send.data(), static_cast<uint32_t>(send.size()));
    tutti_step s{};
    s.ops = TUTTI_STEP_STORE | (r ? TUTTI_STEP_RECV : TUTTI_STEP_SRC) | (send.empty() ? 0u : uint32_t{TUTTI_STEP_SEND});
    s.repeat = 1;
    s.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
    if (r == 0) s.src = {TUTTI_BUF_IN, 1, 0, 0, 0};
    s.recv_count = static_cast<uint16_t>(recv.size());
    s.send_count = static_cast<uint16_t>(send.size());
    t->step(t->impl, &s, nullptr);
    auto plan = b.finish("binomial");
    REQUIRE(plan.ok());
    plans.push_back(*plan);
  }
  return plans;
}

} // namespace

TEST_CASE(
    "a ring all_reduce takes 2 (n - 1) (alpha + S / n / beta), and each of its links carries 2 (n - 1) / n of the bytes") {
  for (const int n : {2, 4, 8, 16}) {
    const uint64_t bytes = 64 * 1024;
    const auto s = simulated(build("ring", {TUTTI_COLL_ALL_REDUCE, n, -1, 1, 0, false}), options(bytes));
    CHECK(s.seconds == about(2.0 * (n - 1) * (kAlpha + static_cast<double>(bytes) / n / kBeta)));
    REQUIRE(s.wire_bytes.size() == static_cast<size_t>(n));
    for (const uint64_t b : s.wire_bytes) CHECK(b == 2 * static_cast<uint64_t>(n - 1) * bytes / static_cast<uint64_t>(n));
  }
}

TEST_CASE("a broadcast in one shot takes alpha + (n - 1) S / beta: the root's port is what limits it") {
  for (const int n : {2, 5, 8})
    CHECK(seconds(build("direct", {TUTTI_COLL_BROADCAST, n, 0, 1, 0, false}), options(1 << 16)) ==
          about(kAlpha + (n - 1) * 65536.0 / kBeta));
}

TEST_CASE("a binomial tree takes log2(n) (alpha + S / beta)") {
  for (const auto &[n, rounds] : {std::pair(2, 1), {4, 2}, {8, 3}, {64, 6}}) {
    const PlanSet plans = binomial_broadcast(n);
    REQUIRE(check_plans(plans).empty());
    CHECK(seconds(plans, options(1 << 16)) == about(rounds * (kAlpha + 65536.0 / kBeta)));
  }
}

TEST_CASE("slices go down a chain one behind the other") {
  const double slice = 4096 / kBeta;
  for (const int n : {2, 3, 6})
    CHECK(seconds(build("ring", {TUTTI_COLL_BROADCAST, n, 0, 1, 0, false}), options(16 * 4096, 4096, 64)) ==
          about((n - 1) * (kAlpha + slice) + 15 * slice));
}

TEST_CASE("two slots are too few for a long link: the sender waits for room") {
  const PlanSet plans = build("ring", {TUTTI_COLL_BROADCAST, 2, 0, 1, 0, false});
  const double slice = 1024 / kBeta; // shorter than alpha
  const auto s = simulated(plans, options(8 * 1024, 1024, 2));
  CHECK(s.seconds == about(4 * (kAlpha + slice) + slice));
  CHECK(std::any_of(s.critical.begin(), s.critical.end(), [&](const SimHop &h) {
    return !h.message && s.runs[static_cast<size_t>(h.number)].cause == SimRun::Cause::room;
  }));
}

TEST_CASE("links between hosts cost what links between hosts cost") {
  auto plans = build("ring", {TUTTI_COLL_BROADCAST, 2, 0, 1, 0, false});
  SimulateOptions o = options(1 << 16);
  o.net = {1e-3, 1e8};
  CHECK(seconds(plans, o) == about(kAlpha + 65536.0 / kBeta));
  for (auto &p : plans) {
    auto apart = std::make_shared<Plan>(*p);
    apart->request.node_of_rank = {0, 1};
    p = apart;
  }
  CHECK(seconds(plans, o) == about(1e-3 + 65536.0 / 1e8));
}

TEST_CASE(
    "the critical path has no gaps: it begins at 0, each hop begins when the last has ended, and it ends with the whole") {
  for (const std::string &name : algorithms())
    for (const uint32_t flags : {0u, uint32_t{TUTTI_REQ_MANY_SLICES}}) {
      const PlanSet plans = build(name, {TUTTI_COLL_ALL_REDUCE, 8, -1, 2, flags, false});
      if (plans.empty()) continue;
      CAPTURE(name);
      const auto s = simulated(plans, options(1 << 16, 2048));
      REQUIRE(!s.critical.empty());
      double now = 0;
      for (const SimHop &h : s.critical) {
        const auto at = static_cast<size_t>(h.number);
        const double begin = h.message ? s.messages[at].leaves : s.runs[at].begin;
        if (!h.message) CHECK(begin == about(now));
        if (h.message) CHECK(begin <= now * (1 + 1e-9)); // a message leaves before its step has ended
        now = h.message ? s.messages[at].arrives : s.runs[at].end;
      }
      CHECK(now == about(s.seconds));
    }
}

TEST_CASE("a picture is the same every time, and refused where it would show nothing") {
  const PlanSet plans = build("ring", {TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false});
  const auto draw = [&](const SimulateOptions &o) { return draw_svg(plans, simulated(plans, o)); };
  const auto svg = draw(options(1 << 16));
  REQUIRE(svg.ok());
  CHECK(*svg == *draw(options(1 << 16)));
  CHECK(svg->find("all_reduce by ring, 4 ranks") != std::string::npos);
  CHECK_FALSE(draw(options(1 << 20, 64)).ok());
  CHECK_FALSE(draw(options(0)).ok());
}

TEST_CASE("more slices, steps or messages than the limit are refused, not cut off") {
  const auto error = [](const PlanSet &plans, const SimulateOptions &o) {
    const auto s = simulate(plans, o);
    return s.ok() ? std::string() : s.status().error().message;
  };
  const PlanSet ring = build("ring", {TUTTI_COLL_ALL_REDUCE, 2, -1, 1, 0, false});
  CHECK(error(ring, options(uint64_t{16} << 30, 1)).find("8589934592 slices are too many") == 0); // 2^33: none in 32 bits
  SimulateOptions few = options(1 << 16);
  few.limit = 100;
  CHECK(error(ring, few) == "");
  const PlanSet direct = build("direct", {TUTTI_COLL_ALL_REDUCE, 16, -1, 1, 0, false});
  CHECK(simulated(direct, options(1 << 16)).runs.size() < few.limit);
  CHECK(error(direct, few).find("more than 100 steps or messages") == 0);
  few.limit = 3;
  CHECK(error(ring, few).find("more than 3 steps or messages") == 0);
}
