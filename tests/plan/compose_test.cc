// Plans made of other plans are as right as any.
#include "plan/compose.h"
#include "plans.h"
#include <array>
#include <doctest/doctest.h>
#include <tutti/plugin/cxx/plugin.hpp>

using namespace plans;

namespace {

namespace plugin = tutti::plugin;

// A broadcast between two ranks: all chunks in one message on a link with the given number.
template <int Chunks, int Conn> struct OneMessage {
  static constexpr plugin::Info info{Conn         ? "algo-far"
                                     : Chunks > 3 ? "algo-wide"
                                                  : "algo-thirds",
                                     "0.1.0", "tests", "Apache-2.0", "chunks in one message"};
  static constexpr const char *algo_name = Conn ? "far" : Chunks > 3 ? "wide" : "thirds";
  explicit OneMessage(const plugin::Host &) {}
  void supports(const tutti_algo_request &) const {}
  void plan(const tutti_algo_request &req, plugin::PlanWriter &w) const {
    w.shape(req, Chunks);
    auto lane = w.lane();
    if (req.rank == req.root)
      lane.to(1 - req.rank, Conn).step().src(plugin::in(0, Chunks)).store(plugin::out(0, Chunks)).send();
    else
      lane.from(1 - req.rank, Conn).step().recv().store(plugin::out(0, Chunks));
  }
};

// Has itself for a stage.
struct Again {
  static constexpr plugin::Info info{"algo-again", "0.1.0", "tests", "Apache-2.0", "composes itself"};
  static constexpr const char *algo_name = "again";
  explicit Again(const plugin::Host &h) : host(h), service(h.need<tutti_host_plan_v1>(TUTTI_HOST_PLAN)) {}
  void supports(const tutti_algo_request &) const {}
  void plan(const tutti_algo_request &req, const tutti_plan_builder &out) const {
    const int32_t both[] = {0, 1};
    const tutti_stage stage{"again", both, 2, -1, req.coll, 0};
    throw plugin::Error(service.compose(host.c(), &req, &stage, 1, sizeof stage, &out), "");
  }
  plugin::Host host;
  const tutti_host_plan_v1 &service;
};

// Before the registry is first asked.
[[maybe_unused]] const bool kLinkedIn = [] {
  Registry::add_static(&plugin::detail::Descriptor<OneMessage<40000, 0>>::value);
  Registry::add_static(&plugin::detail::Descriptor<OneMessage<3, 0>>::value);
  Registry::add_static(&plugin::detail::Descriptor<OneMessage<1, 0x2000>>::value);
  Registry::add_static(&plugin::detail::Descriptor<Again>::value);
  return true;
}();

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

TEST_CASE("a composition that composes itself ends with a reason") {
  const auto plan = build_plan(algo("again"), request({TUTTI_COLL_ALL_REDUCE, 2, -1, 1, 0, false}, 0));
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.status().error().message.find("does one have itself for a stage") != std::string::npos);
}

TEST_CASE("numbers that a composed plan has no room for are refused, not cut off") {
  const auto error = [](const char *first, const char *second) {
    const auto p = composed({TUTTI_COLL_BROADCAST, 3, 0, 1, 0, false}, 0, [&](int) {
      return std::vector<ComposeStage>{{algo(first), {0, 1}, 0, TUTTI_COLL_BROADCAST},
                                       {algo(second), {0, 2}, 0, TUTTI_COLL_BROADCAST}};
    });
    return p.ok() ? std::string() : p.status().error().message;
  };
  CHECK(error("wide", "wide") == "");
  CHECK(error("wide", "thirds").find("stage 0 (broadcast by wide among 2 ranks): needs messages of 120000 chunks") == 0);
  CHECK(error("direct", "far").find("stage 1 (broadcast by far among 2 ranks): numbers its links up to 8192") == 0);
  CHECK_THROWS_WITH_AS(plugin::in(0, 70000), "a step or link with count 70000, which is not in 0..65535", plugin::Error);
}

// A call as a plugin makes it.
TEST_CASE("a bad call of compose() is refused with a reason, and tells a misfit from a broken contract") {
  const Plugin &caller = *algo("ring").plugin;
  const PlanRequest q = request({TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false}, 0);
  const RequestView view(q);
  const int32_t ranks[] = {0, 1, 2, 3}, twice[] = {0, 1, 1, 3}, outside[] = {0, 1, 2, 7};
  const auto call = [&](const tutti_algo_request *req, const tutti_stage *stages, uint32_t n, uint32_t stride,
                        tutti_status want) -> std::string {
    PlanBuilder builder(q);
    const tutti_status s = host_plan_service()->compose(&caller.host, req, stages, n, stride, builder.builder());
    CHECK(s == want);
    CHECK(builder.error().ok()); // nothing of it reached the builder
    return s == TUTTI_OK ? "" : plugin_error(caller, s, "compose").error().message;
  };
  const auto refused = [&](const tutti_stage &stage, const char *why, tutti_status want = TUTTI_ERR_INVALID) {
    const std::string text = call(view.c(), &stage, 1, sizeof stage, want);
    CHECK_MESSAGE(text.find(why) != std::string::npos, text);
  };
  const tutti_stage good{"ring", ranks, 4, -1, TUTTI_COLL_ALL_REDUCE, 0};
  CHECK(call(view.c(), &good, 1, sizeof good, TUTTI_OK) == "");

  refused({"nope", ranks, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "there is: ");
  refused({"nope", ranks, 1, -1, TUTTI_COLL_ALL_REDUCE, 0}, "there is: "); // where the stage does nothing, too
  refused({nullptr, ranks, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "algorithm NULL");
  refused({"ring", nullptr, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "4 members (NULL)");
  refused({"ring", ranks, -1, -1, TUTTI_COLL_ALL_REDUCE, 0}, "-1 members of 4 ranks");
  refused({"ring", ranks, 5, -1, TUTTI_COLL_ALL_REDUCE, 0}, "5 members of 4 ranks");
  refused({"ring", twice, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "member 1 is listed twice");
  refused({"ring", outside, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "member 7 is not in 0..3");
  refused({"ring", ranks, 4, 4, TUTTI_COLL_BROADCAST, 0}, "root 4 is no position");
  refused({"ring", ranks, 4, -1, TUTTI_COLL_BROADCAST, 0}, "root -1 is no position");
  refused({"ring", ranks, 4, -1, TUTTI_COLL_ALL_GATHER, 0}, "none of which reduces", TUTTI_ERR_UNSUPPORTED);
  refused({"bruck", ranks, 4, -1, TUTTI_COLL_ALL_REDUCE, 0}, "alltoall only", TUTTI_ERR_UNSUPPORTED);

  call(view.c(), &good, 1, sizeof good - 8, TUTTI_ERR_INVALID);
  call(view.c(), nullptr, 1, sizeof good, TUTTI_ERR_INVALID);
  call(view.c(), &good, 9, sizeof good, TUTTI_ERR_INVALID);
  call(nullptr, &good, 1, sizeof good, TUTTI_ERR_INVALID);
  CHECK(host_plan_service()->compose(&caller.host, view.c(), &good, 1, sizeof good, nullptr) == TUTTI_ERR_INVALID);
  CHECK(host_plan_service()->compose(nullptr, view.c(), &good, 1, sizeof good, nullptr) == TUTTI_ERR_INVALID);
  const auto with = [&](const std::function<void(tutti_algo_request &)> &change) {
    tutti_algo_request bad = *view.c();
    change(bad);
    CHECK(call(&bad, &good, 1, sizeof good, TUTTI_ERR_INVALID) != "");
  };
  with([](auto &r) { r.nranks = -4; });
  with([](auto &r) { r.rank = 4; });
  with([](auto &r) { r.root = 2; });
  with([](auto &r) { r.node_of_rank = nullptr; });
  with([](auto &r) { r.node_count = 0; });
  with([](auto &r) { r.channel_stride = 8; });
  with([](auto &r) { r.coll = 77; });
}

TEST_CASE("a composed plan that the builder refuses is an error of its own: no other one may be tried on that builder") {
  const Plugin &caller = *algo("ring").plugin;
  const PlanRequest q = request({TUTTI_COLL_ALL_REDUCE, 4, -1, 1, 0, false}, 0);
  const RequestView view(q);
  const int32_t ranks[] = {0, 1, 2, 3};
  const tutti_stage stage{"ring", ranks, 4, -1, TUTTI_COLL_ALL_REDUCE, 0};
  PlanBuilder used(q);
  CHECK(host_plan_service()->compose(&caller.host, view.c(), &stage, 1, sizeof stage, used.builder()) == TUTTI_OK);
  CHECK(host_plan_service()->compose(&caller.host, view.c(), &stage, 1, sizeof stage, used.builder()) == TUTTI_ERR_INTERNAL);
}
