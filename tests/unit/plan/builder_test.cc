// The builder refuses malformed calls, and says which lane, step and field.
#include "plan/chunks.h"
#include "plan/refs.h"
#include <doctest/doctest.h>
#include <functional>

using namespace tutti;

namespace {

// Rank 0 of 2, all_reduce in one chunk: sends IN, then combines. `change` may spoil anything before it is handed over.
struct Draft {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  int rank = 0, root = -1;
  uint32_t max_lanes = 0;
  tutti_plan_shape shape{sizeof(tutti_plan_shape), 0, 1, 1, 0, 1, 1, 2, 0, 0, nullptr};
  uint32_t group = 0;
  std::vector<tutti_link> recv{{1, 0, 0}}, send{{1, 0, 0}};
  std::vector<tutti_step> steps;
  std::vector<tutti_dep> deps;
  Draft() {
    tutti_step s{};
    s.ops = TUTTI_STEP_SRC | TUTTI_STEP_PREOP | TUTTI_STEP_SEND;
    s.repeat = 1;
    s.src = {TUTTI_BUF_IN, 1, 0, 0, 0};
    s.send_count = 1;
    steps.push_back(s);
    s.ops = TUTTI_STEP_SRC | TUTTI_STEP_PREOP | TUTTI_STEP_RECV | TUTTI_STEP_REDUCE | TUTTI_STEP_POSTOP | TUTTI_STEP_STORE;
    s.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
    s.send_count = 0;
    s.recv_count = 1;
    steps.push_back(s);
  }
};

std::string error_of(const std::function<void(Draft &)> &change) {
  Draft d;
  change(d);
  PlanRequest q = PlanRequest::simple(d.coll, d.rank, 2, d.root);
  q.max_lanes = d.max_lanes;
  PlanBuilder b(q);
  const tutti_plan_builder *t = b.builder();
  t->begin(t->impl, &d.shape);
  t->lane(t->impl, d.group, d.recv.data(), static_cast<uint32_t>(d.recv.size()), d.send.data(),
          static_cast<uint32_t>(d.send.size()));
  for (const tutti_step &s : d.steps) t->step(t->impl, &s, d.deps.data());
  auto plan = b.finish("test");
  return plan.ok() ? "" : plan.status().error().message;
}

} // namespace

TEST_CASE("a well-formed plan is accepted") {
  CHECK(error_of([](Draft &) {}) == "");
}

TEST_CASE("malformed shapes are refused by field") {
  using S = tutti_plan_shape;
  const auto refused = [](auto member, auto value, const char *text) {
    CHECK(error_of([&](Draft &d) { d.shape.*member = value; }).find(text) != std::string::npos);
  };
  refused(&S::features, 1u, "features 0x1");
  refused(&S::in_chunks, 0u, "in_chunks 0");
  refused(&S::out_chunks, 2u, "1 chunks per block of IN, but 2 per block of OUT");
  refused(&S::groups, 0u, "groups 0");
  refused(&S::lanes, 0u, "lanes 0");
  refused(&S::lanes, 2u, "1 lanes, but the shape announced 2");
  refused(&S::min_depth, 1u, "min_depth 1");
  refused(&S::resident_lanes, 2u, "resident_lanes 2");
  refused(&S::scratch_chunks, 3u, "scratch_size[1]");
  CHECK(error_of([](Draft &d) { d.max_lanes = 1, d.shape.lanes = 2; }).find("max_lanes 1") != std::string::npos);
}

TEST_CASE("malformed links are refused by lane and place") {
  CHECK(error_of([](Draft &d) { d.recv[0].peer = 2; }) == "malformed plan: lane 0: receive link 0: peer 2 is not in 0..1");
  CHECK(error_of([](Draft &d) { d.send[0].peer = 0; }) == "malformed plan: lane 0: send link 0: peer 0 is the rank itself");
  CHECK(error_of([](Draft &d) { d.send.push_back(d.send[0]); }).find("already belongs") != std::string::npos);
  CHECK(error_of([](Draft &d) { d.send[0].conn = kP2pConn; }).find("conn 32768") != std::string::npos);
  CHECK(error_of([](Draft &d) { d.send[0].flags = TUTTI_LINK_MULTICAST; }).find("MULTICAST") != std::string::npos);
  CHECK(error_of([](Draft &d) { d.recv[0].flags = TUTTI_LINK_REDUCING; }).find("offers no collnet") != std::string::npos);
  CHECK(error_of([](Draft &d) { d.group = 1; }) == "malformed plan: lane 0: group 1 of 1");
}

TEST_CASE("malformed steps are refused by lane, step and field") {
  const auto refused = [](size_t step, const std::function<void(tutti_step &)> &change, const char *text) {
    const std::string error = error_of([&](Draft &d) { change(d.steps[step]); });
    CHECK_MESSAGE(error.find(fmt::format("lane 0 step {}: ", step)) != std::string::npos, error);
    CHECK_MESSAGE(error.find(text) != std::string::npos, error);
  };
  refused(
      0, [](tutti_step &s) { s.repeat = 0; }, "repeat 0");
  refused(
      0, [](tutti_step &s) { s.ops |= 1u << 9; }, "does not know");
  refused(
      0,
      [](tutti_step &s) {
        s.ops = TUTTI_STEP_SEND, s.src = {}, s.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
      },
      "no operand");
  refused(
      0, [](tutti_step &s) { s.ops &= ~uint32_t{TUTTI_STEP_SEND}, s.send_count = 0; }, "no effect");
  refused(
      0, [](tutti_step &s) { s.send_count = 2; }, "leave the lane's 1");
  refused(
      0, [](tutti_step &s) { s.repeat = 2, s.link_stride = 1; }, "link_stride 1");
  refused(
      0, [](tutti_step &s) { s.repeat = 2, s.link_stride = -1; }, "link_stride -1");
  refused(
      0, [](tutti_step &s) { s.ops |= TUTTI_STEP_REDUCE; }, "1 operands with REDUCE");
  refused(
      0, [](tutti_step &s) { s.src.first = 1; }, "src is IN chunk 1 at iteration 0, of 1");
  refused(
      0, [](tutti_step &s) { s.src.first = -1; }, "src is IN chunk -1");
  refused(
      0, [](tutti_step &s) { s.src.count = 0; }, "src.count is 0");
  refused(
      0, [](tutti_step &s) { s.ops &= ~uint32_t{TUTTI_STEP_PREOP}, s.src.buf = 3; }, "src.buf 3");
  refused(
      0,
      [](tutti_step &s) {
        s.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
      },
      "dst is set");
  refused(
      0, [](tutti_step &s) { s.reserved1 = 1; }, "reserved");
  refused(
      0, [](tutti_step &s) { s.dep_first = 1; }, "dep_first 1");
  refused(
      0, [](tutti_step &s) { s.src_pos = 1; }, "src_pos 1 of 1 operands");
  refused(
      1, [](tutti_step &s) { s.dst.buf = TUTTI_BUF_IN; }, "never written");
  refused(
      1, [](tutti_step &s) { s.ops &= ~uint32_t{TUTTI_STEP_REDUCE}; }, "2 operands without REDUCE");
  refused(
      1, [](tutti_step &s) { s.recv_count = 0; }, "RECV and recv_count 0 disagree");
}

TEST_CASE("steps must keep to the collective") {
  CHECK(error_of([](Draft &d) { d.coll = TUTTI_COLL_BROADCAST, d.root = 0; }).find("pre- or post-operation in broadcast") !=
        std::string::npos);
  CHECK(error_of([](Draft &d) { d.coll = TUTTI_COLL_REDUCE, d.root = 1; }).find("dst is OUT, which rank 0 does not have") !=
        std::string::npos);
  CHECK(error_of([](Draft &d) {
          d.coll = TUTTI_COLL_BROADCAST, d.root = 1;
          d.steps.resize(1);
          d.steps[0].ops &= ~uint32_t{TUTTI_STEP_PREOP};
        }).find("src is IN, which rank 0 does not have") != std::string::npos);
}

TEST_CASE("deps must exist, lie in another lane and form no cycle") {
  const auto with_dep = [](tutti_dep dep) { return error_of([&](Draft &d) { d.deps = {dep}, d.steps[0].dep_count = 1; }); };
  CHECK(with_dep({1, 0}).find("lane 1 step 0, which does not exist") != std::string::npos);
  CHECK(with_dep({0, 1}).find("in the lane itself") != std::string::npos);
  PlanBuilder b(PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2));
  const tutti_plan_builder *t = b.builder();
  Draft d;
  d.shape.lanes = 2;
  tutti_step s = d.steps[0];
  s.ops = TUTTI_STEP_SRC | TUTTI_STEP_PREOP | TUTTI_STEP_STORE;
  s.dst = {TUTTI_BUF_OUT, 1, 0, 0, 0};
  s.send_count = 0;
  s.dep_count = 1;
  t->begin(t->impl, &d.shape);
  for (uint32_t lane = 0; lane < 2; lane++) {
    const tutti_dep other{1 - lane, 0};
    t->lane(t->impl, 0, nullptr, 0, nullptr, 0);
    CHECK(t->step(t->impl, &s, &other) == TUTTI_OK);
  }
  auto plan = b.finish("test");
  REQUIRE(!plan.ok());
  CHECK(plan.status().error().message.find("cycle") != std::string::npos);
}

TEST_CASE("calls in the wrong order are refused, and the first error stays") {
  PlanBuilder b(PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2));
  const tutti_plan_builder *t = b.builder();
  Draft d;
  CHECK(t->step(t->impl, &d.steps[0], nullptr) == TUTTI_ERR_INVALID);
  CHECK(t->begin(t->impl, &d.shape) == TUTTI_ERR_INVALID);
  CHECK(b.error().error().message == "malformed plan: step() before lane()");
  CHECK(!b.finish("test").ok());
  PlanBuilder empty(PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2));
  CHECK(!empty.finish("test").ok());
}

TEST_CASE("chunks cover their buffer once, in steps of 64 bytes, whatever the sizes") {
  for (uint64_t bytes : {0, 1, 63, 64, 65, 1000, 4097})
    for (uint32_t pieces : {1u, 3u, 4u, 7u})
      for (uint32_t groups : {1u, 2u, 3u}) {
        BufferShape shape{2, bytes, nullptr, nullptr};
        uint64_t next = 0;
        for (uint32_t block = 0; block < 2; block++)
          for (uint32_t g = 0; g < groups; g++)
            for (uint32_t p = 0; p < pieces; p++) {
              const Span s = chunk_span(shape, pieces, groups, g, block * pieces + p);
              CHECK(s.offset == next);
              next += s.bytes;
              CHECK(((s.offset - block * bytes) % kChunkAlign == 0 || s.bytes == 0));
            }
        CHECK(next == 2 * bytes);
      }
}
