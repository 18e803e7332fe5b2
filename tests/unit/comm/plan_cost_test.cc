// What plans cost, against the formulas of their algorithms.
#include "comm/select/plan_cost.h"
#include "plans.h"
#include <cmath>
#include <doctest/doctest.h>
#include <tutti/plugin/cxx/plugin.hpp>

using namespace plans;

namespace {

Topology hosts(uint32_t ranks, uint32_t cores, uint32_t per_host = ~0u) {
  std::vector<TopologyInput> inputs(ranks);
  std::vector<uint64_t> words((cores + 63) / 64);
  for (uint32_t c = 0; c < cores; c++) words[c / 64] |= uint64_t(1) << c % 64;
  for (uint32_t r = 0; r < ranks; r++) inputs[r] = {r / per_host, CpuSet::from_words(words)};
  return make_topology(inputs);
}

PlanSource source_of(tutti_coll coll, const Topology &t, uint32_t flags = 0) {
  PlanSource source;
  source.coll = coll;
  source.topology = &t;
  source.flags = flags;
  return source;
}
PlanCost cost(std::string_view algo, tutti_coll coll, int n, uint32_t flags = 0, const Topology *topology = nullptr) {
  const Topology alone = hosts(static_cast<uint32_t>(n), static_cast<uint32_t>(n));
  const Topology &t = topology ? *topology : alone;
  const bool root = coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_REDUCE;
  const PlanSet set = build(algo, {coll, n, root ? 0 : -1, 1, flags, false});
  auto out = cost_of_plans(set, source_of(coll, t, flags));
  REQUIRE_MESSAGE(out.ok(), (out.ok() ? "" : out.status().error().message));
  return *out;
}
doctest::Approx about(double value) {
  return doctest::Approx(value).epsilon(1e-4);
}
constexpr size_t kShm = index_of(LinkClass::shm), kNet = index_of(LinkClass::net), kLocal = index_of(LinkClass::local);
constexpr uint32_t kMany = TUTTI_REQ_MANY_SLICES;

} // namespace

TEST_CASE("a ring takes n - 1 rounds and carries (n - 1) / n of the bytes, twice for an all_reduce") {
  for (const int n : {2, 4, 7, 16}) {
    CAPTURE(n);
    const double part = double(n - 1) / n;
    const PlanCost gather = cost("ring", TUTTI_COLL_ALL_GATHER, n), reduce = cost("ring", TUTTI_COLL_ALL_REDUCE, n);
    CHECK(gather.quick.rounds() == n - 1);
    CHECK(gather.busiest.out[kShm] == about(part));
    CHECK(gather.busiest.in[kShm] == about(part));
    CHECK(gather.busiest.reduced == 0);
    CHECK(reduce.quick.rounds() == 2 * (n - 1));
    CHECK(reduce.broad.rounds() == 2 * (n - 1));
    CHECK(reduce.busiest.out[kShm] == about(2 * part));
    CHECK(reduce.busiest.reduced == about(part));
    CHECK(reduce.chunk == about(1.0 / n));
    CHECK(reduce.rings == 2);
  }
}

TEST_CASE("a chain carries all bytes on each of n - 1 hops, though no rank has more than one of either") {
  for (const int n : {2, 4, 8}) {
    const PlanCost c = cost("ring", TUTTI_COLL_BROADCAST, n);
    CHECK(c.broad.rounds() == n - 1);
    CHECK(c.broad.work.out[kShm] == about(n - 1));
    CHECK(c.broad.work.in[kShm] == about(n - 1));
    CHECK(c.busiest.bytes() == about(n > 2 ? 2 : 1));
  }
}

TEST_CASE("direct takes a round, or two for long messages, which then are divided") {
  for (const int n : {2, 4, 8, 16}) {
    CAPTURE(n);
    const PlanCost once = cost("direct", TUTTI_COLL_ALL_REDUCE, n), twice = cost("direct", TUTTI_COLL_ALL_REDUCE, n, kMany);
    CHECK(once.quick.rounds() == 1);
    CHECK(once.busiest.sent[kShm] == n - 1);
    CHECK(once.busiest.out[kShm] == about(n - 1));
    CHECK(once.busiest.reduced == about(n - 1));
    CHECK(twice.quick.rounds() == 2);
    CHECK(twice.busiest.out[kShm] == about(2.0 * (n - 1) / n));
    CHECK(twice.chunk == about(1.0 / n));
  }
}

TEST_CASE("what all others read is sent once") {
  for (const int n : {4, 8}) {
    const PlanCost c = cost("direct", TUTTI_COLL_ALL_REDUCE, n, TUTTI_REQ_MULTICAST);
    CHECK(c.busiest.sent[kShm] == 1);
    CHECK(c.busiest.out[kShm] == about(1));
    CHECK(c.busiest.received[kShm] == n - 1);
  }
}

TEST_CASE("halving and trees take as many rounds as their depth") {
  for (const int n : {2, 4, 8, 16}) {
    CAPTURE(n);
    const double depth = std::log2(n);
    CHECK(cost("rhd", TUTTI_COLL_ALL_REDUCE, n).quick.rounds() == depth);
    CHECK(cost("rhd", TUTTI_COLL_ALL_REDUCE, n, kMany).busiest.out[kShm] == about(2.0 * (n - 1) / n));
    CHECK(cost("binomial", TUTTI_COLL_BROADCAST, n).quick.rounds() == depth);
    CHECK(cost("bruck", TUTTI_COLL_ALL_TO_ALL, n).quick.rounds() == depth);
    CHECK(cost("pairwise", TUTTI_COLL_ALL_TO_ALL, n).quick.rounds() == n - 1);
  }
  CHECK(cost("tree", TUTTI_COLL_ALL_REDUCE, 8).quick.rounds() == 6); // three up, three down
}

TEST_CASE("messages are of the class of the link between their ranks") {
  const Topology t = hosts(8, 8, 4);
  const PlanCost c = cost("ring", TUTTI_COLL_ALL_GATHER, 8, 0, &t);
  CHECK(c.quick.rounds() == 7);
  CHECK(c.quick.hops[kNet] >= 1);
  CHECK(c.host.ranks == 4);
  CHECK(c.host.work.out[kNet] == about(7.0 / 8));     // one rank of a host sends to the other host
  CHECK(c.host.work.out[kShm] == about(3 * 7.0 / 8)); // three of them do not
  PlanSource source = source_of(TUTTI_COLL_ALL_GATHER, t);
  const int32_t process[] = {0, 0, 1, 1, 2, 2, 2, 2};
  source.process_of_rank = process;
  CHECK(source.between(0, 1) == LinkClass::local);
  CHECK(source.between(1, 2) == LinkClass::shm);
  CHECK(source.between(3, 4) == LinkClass::net);
  source.shm = false;
  CHECK(source.between(0, 1) == LinkClass::local);
  CHECK(source.between(1, 2) == LinkClass::net);
  const auto threads = cost_of_plans(build("ring", {TUTTI_COLL_ALL_GATHER, 8, -1, 1, 0, false}), source);
  REQUIRE(threads.ok());
  CHECK(threads->quick.hops[kLocal] + threads->quick.hops[kNet] == 7);
}

TEST_CASE("cores take turns only where ranks share them, and more of them where rounds follow one another") {
  const auto turns = [](const char *algo, tutti_coll coll, uint32_t n, uint32_t cores) {
    const Topology t = hosts(n, cores);
    return cost(algo, coll, static_cast<int>(n), 0, &t).turns;
  };
  CHECK(turns("direct", TUTTI_COLL_ALL_GATHER, 8, 8) == 0);
  const float direct = turns("direct", TUTTI_COLL_ALL_TO_ALL, 8, 2), rounds = turns("pairwise", TUTTI_COLL_ALL_TO_ALL, 8, 2);
  CHECK(direct >= 2);
  CHECK(rounds > 2 * direct);
  CHECK(turns("direct", TUTTI_COLL_ALL_TO_ALL, 16, 2) > direct);
  CHECK(turns("direct", TUTTI_COLL_ALL_TO_ALL, 8, 2) == direct); // chance is the same every time
}

TEST_CASE("a job of more ranks than are looked at costs about what all of its plans say") {
  const int n = 32;
  const Topology t = hosts(n, n);
  for (const char *name : {"ring", "direct", "rhd", "pat", "bruck", "pairwise", "tree"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_ALL_TO_ALL})
      for (const uint32_t flags : {0u, kMany}) {
        if (build(name, {coll, n, -1, 1, flags, false}).empty()) continue;
        CAPTURE(name);
        CAPTURE(coll);
        CAPTURE(flags);
        const PlanCost all = cost(name, coll, n, flags, &t);
        PlanSource source = source_of(coll, t, flags);
        source.algo = algo(name);
        const auto some = plan_cost(source);
        REQUIRE(some.ok());
        CHECK_FALSE((*some)->all_ranks);
        CHECK(all.all_ranks);
        // Some algorithms count steps of a rank as rounds, though messages of several ranks overlap.
        CHECK((*some)->quick.rounds() >= 0.7 * all.quick.rounds());
        CHECK((*some)->quick.rounds() <= 2 * all.quick.rounds());
        CHECK((*some)->busiest.bytes() == doctest::Approx(all.busiest.bytes()).epsilon(0.01));
        CHECK((*some)->host.work.bytes() == doctest::Approx(all.host.work.bytes()).epsilon(0.5));
        CHECK((*some)->chunk == about(all.chunk));
      }
}

TEST_CASE("what hosts reduce in collnet groups costs the same for any number of hosts, whatever the number of ranks") {
  for (const char *name : {"collnet_direct", "collnet_chain"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE, TUTTI_COLL_BROADCAST})
      for (const uint32_t per_host : {1u, 2u, 8u, 24u})
        for (const uint32_t count : {2u, 3u, 4u, 32u}) {
          CAPTURE(name);
          CAPTURE(coll);
          CAPTURE(per_host);
          CAPTURE(count);
          Topology t = hosts(per_host * count, 2, per_host);
          t.groups.emplace_back();
          for (uint32_t h = 0; h < count; h++) t.groups[0].push_back(static_cast<int32_t>((h + 1) * per_host - 1));
          PlanSource source = source_of(coll, t, kMany);
          source.algo = algo(name);
          const auto out = plan_cost(source);
          REQUIRE_MESSAGE(out.ok(), (out.ok() ? "" : out.status().error().message));
          const PlanCost &c = **out;
          const bool rooted = coll != TUTTI_COLL_ALL_REDUCE;
          CHECK(c.host.work.grouped == about(1)); // of a broadcast, on the root's host
          CHECK(c.host.work.out[kNet] <= about(1));
          CHECK(c.host.work.in[kNet] <= about(1));
          CHECK(c.quick.hops[kNet] == 2); // into the group and out
          const double local = std::string_view(name) == "collnet_chain" ? per_host - 1 : std::min(per_host - 1, 1u);
          if (!rooted) CHECK(c.quick.rounds() == 2 + 2 * local);
          CHECK(c.host.ranks == per_host);
          CHECK((c.turns > 0) == (per_host > 2));
        }
}

namespace {

tutti_status all_reduce_only(void *, const tutti_algo_request *q) noexcept {
  return q->coll == TUTTI_COLL_ALL_REDUCE ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}
tutti_status one_shot(void *, const tutti_algo_request *q, const tutti_plan_builder *out) noexcept {
  tutti::plugin::PlanWriter w;
  w.shape(*q, 1, 1);
  auto lane = w.lane(0);
  for (int r = 0; r < q->nranks; r++)
    if (r != q->rank) lane.from(r, 0).to(r, 0);
  lane.step().src(tutti::plugin::in(0)).preop().send(0, q->nranks - 1);
  lane.step()
      .src(tutti::plugin::in(0))
      .preop()
      .recv(0, q->nranks - 1)
      .reduce()
      .position(q->rank)
      .postop()
      .store(tutti::plugin::out(0));
  return w.emit(*out);
}
tutti_status knows_better(void *, const tutti_algo_request *, double *rounds, double *bytes) noexcept {
  *rounds = 77, *bytes = 2.5;
  return TUTTI_OK;
}
tutti_status knows_nothing(void *, const tutti_algo_request *, double *, double *) noexcept {
  return TUTTI_ERR_UNSUPPORTED;
}

} // namespace

TEST_CASE("an algorithm's own estimate counts where not all plans are looked at, and only there") {
  static const tutti_algo_v1 better = {sizeof(tutti_algo_v1), 0, "better", all_reduce_only, one_shot, knows_better};
  static const tutti_algo_v1 nothing = {sizeof(tutti_algo_v1), 0, "nothing", all_reduce_only, one_shot, knows_nothing};
  PlanSource source = source_of(TUTTI_COLL_ALL_REDUCE, {});
  const auto ask = [&](const tutti_algo_v1 &table, uint32_t n) {
    const Topology t = hosts(n, n);
    source.topology = &t;
    source.algo.plugin = algo("ring").plugin;
    source.algo.table = &table;
    auto out = plan_cost(source);
    REQUIRE_MESSAGE(out.ok(), (out.ok() ? "" : out.status().error().message));
    return **out;
  };
  CHECK(ask(better, 40).quick.rounds() == 77);
  CHECK(ask(better, 40).busiest.out[kShm] == about(2.5));
  CHECK(ask(better, 8).quick.rounds() == 1);
  CHECK(ask(nothing, 40).quick.rounds() == 1);
  CHECK(ask(nothing, 40).busiest.out[kShm] == about(39));
}
