// What plans cost, against the formulas of their algorithms.
#include "comm/select/plan_cost.h"
#include "plans.h"
#include <doctest/doctest.h>

using namespace plans;

namespace {

Topology host(uint32_t ranks, uint32_t cores) {
  std::vector<TopologyInput> inputs(ranks);
  std::vector<uint64_t> words((cores + 63) / 64);
  for (uint32_t c = 0; c < cores; c++) words[c / 64] |= uint64_t(1) << c % 64;
  for (auto &i : inputs) i.cpus = CpuSet::from_words(words);
  return make_topology(inputs);
}

PlanCost cost(std::string_view algo, const Case &c, const Topology &t) {
  PlanSource source;
  source.coll = c.coll;
  source.topology = &t;
  const PlanSet set = build(algo, c);
  auto out = cost_of_plans(set, source);
  REQUIRE_MESSAGE(out.ok(), (out.ok() ? "" : out.status().error().message));
  return *out;
}

} // namespace

TEST_CASE("probe") {
  for (const uint32_t n : {4u, 8u, 16u}) {
    const Topology t = host(n, 2);
    for (const char *algo : {"direct", "ring", "rhd", "tree", "pat", "bruck", "pairwise", "binomial"})
      for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_ALL_TO_ALL, TUTTI_COLL_BROADCAST})
        for (const uint32_t flags : {0u, 3u << 1}) {
          (void)flags;
          for (const uint32_t f : {0u, uint32_t(TUTTI_REQ_MANY_SLICES)}) {
            if (flags || build(algo, {coll, int(n), coll == TUTTI_COLL_BROADCAST ? 0 : -1, 1, f, false}).empty()) continue;
            {
              const auto c = cost(algo, {coll, int(n), coll == TUTTI_COLL_BROADCAST ? 0 : -1, 1, f, false}, t);
              MESSAGE(algo, " ", coll, " n=", n, " f=", f, " rounds ", c.quick.rounds(), "/", c.broad.rounds(), " turns ", c.turns, " busiest ",
                      c.busiest.bytes(), " msgs ", c.busiest.messages(), " path ", c.broad.work.bytes(), " red ", c.broad.work.reduced, " qmsg ", c.quick.work.messages());
            }
          }
        }
  }
}
