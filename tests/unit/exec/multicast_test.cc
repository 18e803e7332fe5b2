#include "cases.h"
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint32_t kMulticast = TUTTI_REQ_MULTICAST, kMany = TUTTI_REQ_MANY_SLICES, kInPlace = TUTTI_REQ_IN_PLACE;

// Two slots, so that writers meet the slowest reader's credit again and again.
std::vector<Case> cases(const char *proto) {
  const auto table = registry().named<tutti_proto_v1>(TUTTI_PROTO, proto);
  REQUIRE(table.ok());
  std::vector<Case> out;
  for (const int n : {3, 4, 8})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_BROADCAST, TUTTI_COLL_BARRIER}) {
      const int root = coll == TUTTI_COLL_BROADCAST ? 1 : -1;
      for (Case c : {Case{"direct", coll, n, 14, 64, 2, false, 1, kMulticast, 0, root},
                     Case{"direct", coll, n, 5003, 256, 2, false, 1, kMulticast | kMany, 0, root},
                     Case{"direct", coll, n, 20000, 4096, 4, false, 2, kMulticast | kMany, 4, root},
                     Case{"direct", coll, n, 1001, 512, 2, true, 1, kMulticast | kMany | kInPlace, 0, root}}) {
        if (coll == TUTTI_COLL_BARRIER && (c.in_place || c.count > 14)) continue;
        if (coll == TUTTI_COLL_BROADCAST && c.in_place) continue;
        if (coll == TUTTI_COLL_BARRIER) c.count = 0;
        c.proto = *table;
        out.push_back(c);
      }
    }
  return out;
}
constexpr const char *kProtocols[] = {"simple", "ll", "ll8", "ll128"};

const tutti_link *multicast_link(const Plan &plan) {
  for (const PlanLane &lane : plan.lanes)
    for (const tutti_link &l : lane.send)
      if (l.flags & TUTTI_LINK_MULTICAST) return &l;
  return nullptr;
}
std::shared_ptr<const Plan> plan_for(tutti_coll coll, int rank, int n, int root, uint32_t flags) {
  return plan_of("direct", PlanRequest::simple(coll, rank, n, root, 1, flags));
}

Status call(Engine &e, const Plan &plan, uint64_t count, uint64_t number, Iface<tutti_proto_v1> proto = simple_proto()) {
  Selection sel;
  sel.proto = proto;
  sel.slot_bytes = 256;
  sel.depth = 2;
  const auto bound = e.bind(std::make_shared<Plan>(plan), sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  if (!bound.ok()) return bound.status();
  std::vector<float> in(count * 8, 1), out(count * 8);
  return e.run(*bound, args_of(plan, in.data(), out.data(), count, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, number));
}

} // namespace

TEST_CASE("what goes to all is one link of three ranks and more, and an ordinary one of two") {
  CHECK(multicast_link(*plan_for(TUTTI_COLL_ALL_REDUCE, 0, 3, -1, kMulticast)) != nullptr);
  CHECK(multicast_link(*plan_for(TUTTI_COLL_ALL_REDUCE, 0, 2, -1, kMulticast)) == nullptr);
  CHECK(multicast_link(*plan_for(TUTTI_COLL_ALL_REDUCE, 0, 3, -1, 0)) == nullptr);
}

TEST_CASE("links with several readers carry what they should between threads, under every protocol of slots") {
  for (const char *proto : kProtocols)
    for (const Case &c : cases(proto)) {
      CAPTURE(proto);
      CAPTURE(c.n);
      CAPTURE(c.coll);
      CAPTURE(c.count);
      REQUIRE(right_on_threads(c));
    }
}

TEST_CASE("links with several readers carry what they should between processes") {
  for (const char *proto : kProtocols) {
    const std::vector<Case> all = cases(proto);
    for (const int n : {3, 4})
      CHECK_MESSAGE(forked(n,
                           [&](int rank, Engine &engine) {
                             for (size_t i = 0; i < all.size(); i++)
                               if (all[i].n == n && run_case(all[i], rank, engine) != 0) return static_cast<int>(10 + i);
                             return 0;
                           }),
                    proto);
  }
}

TEST_CASE("one link reaches threads of the sender's process and other processes") {
  for (const char *proto : kProtocols)
    for (const Case &c : cases(proto))
      if (c.n == 4) REQUIRE(right_on_threads(c, true));
}

TEST_CASE("a reader that comes when the sender has filled its slots and gone on finds every message") {
  Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  std::atomic<bool> sent{false};
  float last[3] = {};
  world.run([&](int r) {
    const auto plan = plan_for(TUTTI_COLL_BROADCAST, r, 3, 0, kMulticast);
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = 64;
    sel.depth = 4;
    if (r == 2)
      while (!sent.load()) std::this_thread::yield(); // not even bound
    const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    if (!bound.ok()) return;
    for (uint64_t i = 1; i <= 4; i++) {
      float value = r == 0 ? static_cast<float>(i) : 0;
      if (!world.engine(r).run(*bound, args_of(*plan, &value, &value, 1, TUTTI_DT_FLOAT32, 0, i)).ok()) return;
      last[r] += value;
    }
    if (r == 0) sent = true;
  });
  for (const float sum : last) CHECK(sum == 10);
}

TEST_CASE("a reader that does not come is named by the sender, whom it alone keeps waiting") {
  Threads world(3, config_with({{"TUTTI_TIMEOUT", "400ms"}}));
  Status status[3];
  world.run([&](int r) {
    const auto plan = plan_for(TUTTI_COLL_BROADCAST, r, 3, 0, kMulticast);
    for (uint64_t i = 1; i <= 5 && r != 2 && status[r].ok(); i++) status[r] = call(world.engine(r), *plan, 16, i);
  });
  REQUIRE(!status[0].ok());
  CAPTURE(status[0].error().line());
  CHECK(status[0].error().message.find("waits for rank 2 (send, slice 1 of 1)") != std::string::npos);
  CHECK(status[0].error().message.find("waits for rank 1") == std::string::npos);
}

TEST_CASE("a rank that calls another operation is found out through a link with several readers, and both calls are named") {
  struct Other { // of rank 1
    tutti_coll coll;
    int root;
    uint64_t count;
    const char *text;
  };
  for (const Other &other : {Other{TUTTI_COLL_ALL_REDUCE, -1, 8, "all_reduce #2 (8 float sum)"},
                             Other{TUTTI_COLL_ALL_GATHER, -1, 16, "all_gather #2 (16 float)"},
                             Other{TUTTI_COLL_REDUCE_SCATTER, -1, 16, "reduce_scatter #2 (16 float sum)"},
                             Other{TUTTI_COLL_BROADCAST, 1, 16, "broadcast #2 (16 float root 1)"}}) {
    Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}));
    Status status[3];
    const auto begin = Clock::now();
    world.run([&](int r) {
      const auto usual = plan_for(TUTTI_COLL_ALL_REDUCE, r, 3, -1, kMulticast);
      status[r] = call(world.engine(r), *usual, 16, 1);
      if (!status[r].ok()) return;
      const auto differs = plan_for(other.coll, r, 3, other.root, kMulticast);
      status[r] = r == 1 ? call(world.engine(r), *differs, other.count, 2) : call(world.engine(r), *usual, 16, 2);
    });
    CAPTURE(other.text);
    for (const int r : {0, 2}) {
      REQUIRE(!status[r].ok());
      CAPTURE(status[r].error().line());
      CHECK(status[r].error().message.find("all_reduce #2 (16 float sum)") != std::string::npos);
      CHECK(status[r].error().message.find(std::string("rank 1 calls ") + other.text) != std::string::npos);
    }
    if (other.root != 1) CHECK(!status[1].ok()); // a root sends and is done
    CHECK(Clock::now() - begin < std::chrono::seconds(5));
  }
}

TEST_CASE(
    "a plan with such links is refused by ranks that do not all share memory, and by protocols that leave payloads behind") {
  const auto pull = registry().named<tutti_proto_v1>(TUTTI_PROTO, "pull");
  REQUIRE(pull.ok());
  const auto plan = plan_for(TUTTI_COLL_ALL_REDUCE, 0, 3, -1, kMulticast);
  Threads near(3);
  CHECK(near.engine(0).shares_memory());
  CHECK(call(near.engine(0), *plan, 16, 1, *pull)
            .error()
            .message.find("needs slots that hold payloads, as those of protocol pull") != std::string::npos);
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  REQUIRE(net.ok());
  Threads far(3, nullptr, 1, *net, true);
  CHECK(!far.engine(0).shares_memory());
  CHECK(call(far.engine(0), *plan, 16, 1).error().message.find("needs ranks that all share memory") != std::string::npos);
}
