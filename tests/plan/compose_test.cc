// Plans made of other plans are as right as any.
#include "plan/compose.h"
#include "plans.h"
#include <array>
#include <doctest/doctest.h>

using namespace plans;

namespace {

using StagesOf = std::function<std::vector<ComposeStage>(int rank)>;

std::vector<int32_t> all(int n) {
  std::vector<int32_t> v;
  for (int r = 0; r < n; r++) v.push_back(r);
  return v;
}
std::vector<int32_t> node_of(int rank, int per_node) {
  std::vector<int32_t> v;
  for (int i = 0; i < per_node; i++) v.push_back(rank / per_node * per_node + i);
  return v;
}
std::vector<int32_t> rail_of(int rank, int per_node, int nodes) {
  std::vector<int32_t> v;
  for (int i = 0; i < nodes; i++) v.push_back(i * per_node + rank % per_node);
  return v;
}

Result<std::shared_ptr<const Plan>> composed(const Case &c, int rank, const StagesOf &stages) {
  const PlanRequest q = request(c, rank);
  PlanBuilder builder(q);
  const auto list = stages(rank);
  const Status s = compose(q, list, builder.builder());
  if (!builder.error().ok()) return builder.error();
  if (!s.ok()) return s;
  return builder.finish("composed");
}

void verify(const Case &c, const StagesOf &stages) {
  PlanSet plans;
  for (int r = 0; r < c.n; r++) {
    auto p = composed(c, r, stages);
    REQUIRE_MESSAGE(p.ok(), c.name() << ": " << (p.ok() ? "" : p.status().error().message));
    plans.push_back(*p);
  }
  for (uint32_t depth : {2u, 4u}) {
    CheckOptions o;
    o.depth = depth;
    o.in_place = c.flags & TUTTI_REQ_IN_PLACE;
    const auto found = check_plans(plans, o);
    CHECK_MESSAGE(found.empty(), c.name() << " depth=" << depth << ": " << (found.empty() ? "" : found[0].text) << "\n"
                                          << dump_text(*plans[0]));
  }
  for (uint64_t block : {8, 1000, 8000}) {
    RunOptions o;
    o.block = block;
    o.in_place = c.flags & TUTTI_REQ_IN_PLACE;
    o.run.slice_bytes = 128;
    CHECK_MESSAGE(run_and_verify(plans, o) == "", c.name() << " block=" << block);
  }
}

} // namespace

TEST_CASE("all_reduce is reduce_scatter then all_gather, by any pair of algorithms") {
  for (const char *first : {"ring", "direct"})
    for (const char *second : {"ring", "direct"})
      for (int n : {2, 3, 5})
        for (uint32_t channels : {1u, 2u})
          for (uint32_t flags : {0u, 2u, 4u, 6u})
            verify({TUTTI_COLL_ALL_REDUCE, n, -1, channels, flags, n == 5}, [&](int) {
              return std::vector<ComposeStage>{{algo(first), all(n), -1, TUTTI_COLL_REDUCE_SCATTER},
                                               {algo(second), all(n), -1, TUTTI_COLL_ALL_GATHER}};
            });
}

TEST_CASE("a hierarchical all_reduce over two nodes is right") {
  for (int per_node : {2, 3, 4})
    for (const char *inside : {"ring", "direct"})
      for (const char *between : {"ring", "direct"})
        for (uint32_t flags : {0u, 2u, 4u, 6u}) {
          const int nodes = 2, n = nodes * per_node;
          verify({TUTTI_COLL_ALL_REDUCE, n, -1, 2, flags, false}, [&](int r) {
            return std::vector<ComposeStage>{{algo(inside), node_of(r, per_node), -1, TUTTI_COLL_REDUCE_SCATTER},
                                             {algo(between), rail_of(r, per_node, nodes), -1, TUTTI_COLL_ALL_REDUCE},
                                             {algo(inside), node_of(r, per_node), -1, TUTTI_COLL_ALL_GATHER}};
          });
        }
}

TEST_CASE("a broadcast goes to the leaders first, then to everybody") {
  const int per_node = 3, nodes = 2;
  verify({TUTTI_COLL_BROADCAST, 6, 1, 1, 0, false}, [&](int r) {
    std::vector<ComposeStage> s;
    const auto leaders =
        r % per_node == 1 ? rail_of(r, per_node, nodes) : std::vector<int32_t>{r}; // the others sit this one out
    s.push_back({algo("direct"), leaders, 0, TUTTI_COLL_BROADCAST});
    s.push_back({algo("ring"), node_of(r, per_node), 1, TUTTI_COLL_BROADCAST});
    return s;
  });
}

TEST_CASE("a rank that passes a stage by cuts its chunks as the stage's members do") {
  const int per_node = 3, nodes = 3; // the ring among leaders wants three chunks, which the others would not know of
  for (uint32_t flags : {0u, 2u, 4u, 6u})
    verify({TUTTI_COLL_ALL_REDUCE, 9, -1, 2, flags, false}, [&](int r) {
      return std::vector<ComposeStage>{{algo("direct"), node_of(r, per_node), 0, TUTTI_COLL_REDUCE},
                                       {algo("ring"), rail_of(0, per_node, nodes), -1, TUTTI_COLL_ALL_REDUCE},
                                       {algo("ring"), node_of(r, per_node), 0, TUTTI_COLL_BROADCAST}};
    });
}

TEST_CASE("what leaders gather, the ranks that pass by expect from them") {
  const int per_node = 2, nodes = 3;
  for (uint32_t flags : {0u, 4u})
    verify({TUTTI_COLL_ALL_GATHER, 6, -1, 1, flags, false}, [&](int r) {
      return std::vector<ComposeStage>{{algo("direct"), node_of(r, per_node), 0, TUTTI_COLL_GATHER},
                                       {algo("ring"), rail_of(0, per_node, nodes), -1, TUTTI_COLL_ALL_GATHER},
                                       {algo("direct"), node_of(r, per_node), 0, TUTTI_COLL_BROADCAST}};
    });
}

TEST_CASE("a composition that does not fit is refused, and the stage is named") {
  const auto error = [](const Case &c, std::vector<ComposeStage> stages) {
    auto p = composed(c, 0, [&](int) { return stages; });
    return p.ok() ? std::string() : p.status().error().message;
  };
  const Case reduce{TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false};
  CHECK(error(reduce, {{algo("ring"), all(4), -1, TUTTI_COLL_REDUCE_SCATTER}})
            .find("stage 0 (reduce_scatter by ring among 4 ranks): leaves") == 0);
  CHECK(error(reduce, {{algo("ring"), all(4), -1, TUTTI_COLL_ALL_GATHER}, {algo("ring"), all(4), -1, TUTTI_COLL_ALL_REDUCE}})
            .find("stage 1") == 0);
  CHECK(error(reduce, {{algo("ring"), {1, 2}, -1, TUTTI_COLL_ALL_REDUCE}}).find("no stage has rank 0") != std::string::npos);
  CHECK(error(reduce, {}).find("no stage") == 0);
  CHECK(error({TUTTI_COLL_ALL_GATHER, 4, -1, 1, 0, false}, {{algo("ring"), all(4), -1, TUTTI_COLL_ALL_REDUCE}})
            .find("reduces, but all_gather does not") != std::string::npos);
  CHECK(error({TUTTI_COLL_ALL_TO_ALL, 4, -1, 1, 0, false}, {{algo("direct"), all(4), -1, TUTTI_COLL_ALL_TO_ALL}}) != "");
}
