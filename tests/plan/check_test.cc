// The first-party algorithms are right: by the checker, by random schedules, and by running them on real data.
#include "executor.h"
#include <array>
#include <chrono>
#include <doctest/doctest.h>

using namespace plans;

namespace {

std::string first_finding(const PlanSet &plans, const CheckOptions &options) {
  const auto found = check_plans(plans, options);
  return found.empty() ? "" : found[0].rule + ": " + found[0].text;
}

void check_all(std::string_view algorithm, std::span<const int> sizes, size_t at_least) {
  size_t checked = 0;
  for_cases(sizes, [&](const Case &c) {
    const PlanSet plans = build(algorithm, c);
    if (plans.empty()) return;
    for (uint32_t depth : {2u, 3u, 8u}) {
      CheckOptions o;
      o.depth = depth;
      o.in_place = c.flags & TUTTI_REQ_IN_PLACE;
      o.slices = 3;
      CHECK_MESSAGE(first_finding(plans, o) == "", algorithm << " " << c.name() << " depth=" << depth);
      checked++;
    }
  });
  CHECK(checked >= at_least);
}

void run_all(std::string_view algorithm, std::span<const int> sizes) {
  for_cases(sizes, [&](const Case &c) {
    const PlanSet plans = build(algorithm, c);
    if (plans.empty()) return;
    const bool bytes = !coll_reduces(c.coll);
    for (uint64_t block : {uint64_t{0}, uint64_t{8}, uint64_t{64}, bytes ? uint64_t{1001} : uint64_t{1000}, uint64_t{4096}}) {
      if (c.coll == TUTTI_COLL_BARRIER) block = 8;
      RunOptions o;
      o.block = block;
      o.in_place = c.flags & TUTTI_REQ_IN_PLACE;
      o.run.slice_bytes = 128;
      o.run.reverse = block % 16 == 8;
      CHECK_MESSAGE(run_and_verify(plans, o) == "", algorithm << " " << c.name() << " block=" << block);
    }
  });
}

} // namespace

TEST_CASE("the plans of every algorithm are right for every collective, size, root and number of channels that it offers") {
  REQUIRE(algorithms().size() >= 2);
  for (const std::string &name : algorithms()) {
    const bool general = name == "ring" || name == "direct";
    check_all(name, std::array{2, 3, 4, 5, 8, 13}, general ? 1000 : 1);
    if (general) check_all(name, std::array{16, 33}, 200);
  }
}

TEST_CASE("the plans of every algorithm give the right bytes, whatever the counts, slices and order of lanes") {
  for (const std::string &name : algorithms()) run_all(name, std::array{2, 3, 5, 8});
}

TEST_CASE("the plans of every algorithm are right in random schedules") {
  for (const std::string &name : algorithms())
    for_cases(std::array{2, 3, 4, 5, 8}, [&](const Case &c) {
      const PlanSet plans = build(name, c);
      if (plans.empty()) return;
      CHECK_MESSAGE(run_seeds(plans, c.flags & TUTTI_REQ_IN_PLACE, 0, 4) == "", name << " " << c.name());
    });
}

TEST_CASE("direct combines in one order, whatever the channels and the length; a ring begins each chunk at another rank") {
  const auto stats_of = [](std::string_view name, const Case &c) {
    PlanStats stats;
    CHECK(check_plans(build(name, c), {}, &stats).empty());
    return stats;
  };
  for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE, TUTTI_COLL_REDUCE_SCATTER}) {
    const int root = coll == TUTTI_COLL_REDUCE ? 2 : -1;
    const uint64_t id = stats_of("direct", {coll, 5, root, 1, 0, false}).order_id;
    CHECK(id != 0);
    for (uint32_t channels = 1; channels <= 3; channels++)
      for (const uint32_t flags : {0u, uint32_t{TUTTI_REQ_MANY_SLICES}}) {
        const PlanStats s = stats_of("direct", {coll, 5, root, channels, flags, false});
        CHECK(s.order == CombineOrder::one);
        CHECK(s.order_id == id);
      }
  }
  CHECK(stats_of("ring", {TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false}).order == CombineOrder::by_chunk);
  CHECK(stats_of("ring", {TUTTI_COLL_ALL_GATHER, 4, -1, 1, 0, false}).order == CombineOrder::none);
}

TEST_CASE("a ring deadlocks with one slot per link, and the checker names who waits for whom") {
  const PlanSet plans = build("ring", {TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false});
  CheckOptions o;
  o.depth = 1;
  const auto found = check_plans(plans, o);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rule == "deadlock");
  CHECK(found[0].text.find("waits for room in its link to rank") != std::string::npos);
  RunOptions r;
  r.block = 4096;
  r.run.depth = 1;
  r.run.slice_bytes = 128;
  CHECK(run_and_verify(plans, r).find("waits for ever") != std::string::npos);
}

TEST_CASE("all ends of every link have the same fingerprint") {
  for_cases(std::array{2, 5}, [&](const Case &c) {
    for (std::string_view algorithm : {"ring", "direct"}) {
      const PlanSet plans = build(algorithm, c);
      for (const auto &p : plans)
        for (const PlanLane &lane : p->lanes)
          for (const tutti_link &l : lane.send) {
            const tutti_link back{p->request.rank, l.conn, l.flags};
            for (const auto &reader : plans)
              if (l.flags & TUTTI_LINK_MULTICAST ? reader != p : reader->request.rank == l.peer)
                CHECK(p->fingerprint(l, false) == reader->fingerprint(back, true));
          }
    }
  });
}

TEST_CASE("a 1024-rank ring is checked in a moment, and its cost is what the method says") {
  const PlanSet plans = build("ring", {TUTTI_COLL_ALL_REDUCE, 1024, -1, 1, 0, false});
  PlanStats stats;
  const auto start = std::chrono::steady_clock::now();
  CHECK(check_plans(plans, {}, &stats).empty());
  MESSAGE("1024 ranks: " << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() << " s");
  CHECK(stats.rounds == 2 * 1023);
  CHECK(stats.bytes_per_byte == doctest::Approx(2.0 * 1023 / 1024));
  CHECK(plans[7]->lanes[0].steps.size() == 5);
}
