#include "cases.h"
#include "fake_net.h"
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<Case> cases() {
  std::vector<Case> out;
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  for (const char *algo : {"direct", "ring"})
    for (const int n : {2, 3, 5})
      for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER}) {
        out.push_back({algo, coll, n, 1, 4096, 4});
        out.push_back({algo, coll, n, 14, 64, 2});
        out.push_back({algo, coll, n, 1001, 256, 4, false, 1, many, 4});
        out.push_back({algo, coll, n, 5003, 1024, 8, coll != TUTTI_COLL_REDUCE_SCATTER, 2, many});
        out.push_back({algo, coll, n, 20000, 4096, 4, false, 3, many, 1});
      }
  for (const int n : {2, 4})
    for (const int root : {0, 1}) {
      out.push_back({"direct", TUTTI_COLL_ALL_TO_ALL, n, 777, 512, 4, false, 1, many});
      out.push_back({"direct", TUTTI_COLL_BROADCAST, n, 5000, 512, 4, false, 1, many, 0, root});
      out.push_back({"direct", TUTTI_COLL_REDUCE, n, 5000, 512, 4, false, 1, many, 0, root});
      out.push_back({"direct", TUTTI_COLL_GATHER, n, 1003, 512, 4, false, 1, many, 4, root});
      out.push_back({"direct", TUTTI_COLL_SCATTER, n, 1003, 512, 4, false, 1, many, 4, root});
      out.push_back({"ring", TUTTI_COLL_BROADCAST, n, 5000, 512, 4, false, 2, many, 0, root});
      out.push_back({"ring", TUTTI_COLL_REDUCE, n, 5000, 512, 4, false, 2, many, 0, root});
    }
  return out;
}

} // namespace

TEST_CASE("collectives between threads give the same as arithmetic, at odd sizes, slices, channels and alignments") {
  for (const Case &c : cases()) REQUIRE(right_on_threads(c));
}

TEST_CASE("a rank receives from more ranks than any table of fixed size would hold") {
  Case c{"direct", TUTTI_COLL_REDUCE, 300, 5, 64, 2, false, 1, 0, 0, 0};
  CHECK(right_on_threads(c));
  c.average = true;
  CHECK(right_on_threads(c));
}

TEST_CASE("a plan gets the depth it was proved with, whatever credits lag, or is refused") {
  const auto far = [](bool net) {
    return Threads(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, net ? fake_net() : Iface<tutti_net_v1>{}, net);
  };
  auto plan = std::make_shared<Plan>(*plan_of("ring", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2)));
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = 4096;
  sel.depth = plan->min_depth = 8;
  {
    Threads world = far(false);
    const auto bound = world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    REQUIRE(bound.ok());
    CHECK(world.engine(0).bound_summary(*bound).find("slots 16 x 4096") != std::string::npos);
  }
  Threads world = far(true);
  CHECK(world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM).ok());
  sel.depth = plan->min_depth = 16; // the device takes 8
  const auto refused = world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  REQUIRE(!refused.ok());
  CHECK(refused.status().error().message.find("needs 16 messages under way to rank 1, the network takes 8") !=
        std::string::npos);
}

TEST_CASE("collectives between processes give the same as arithmetic") {
  for (const int n : {2, 3})
    CHECK(forked(n, [n](int rank, Engine &engine) {
      for (const Case &c : cases())
        if (c.n == n && run_case(c, rank, engine) != 0) {
          std::fprintf(stderr, "%s coll %u count %lu\n", c.algo.c_str(), c.coll, static_cast<unsigned long>(c.count));
          return 1;
        }
      return 0;
    }));
}

TEST_CASE("collectives over a network give the same as arithmetic, small and large, staged and from user memory") {
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  REQUIRE(net.ok());
  const auto config = config_with({{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_TIMEOUT", "20s"}});
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  const std::vector<Case> list{
      {"direct", TUTTI_COLL_ALL_REDUCE, 3, 1, 4096, 4},
      {"direct", TUTTI_COLL_ALL_REDUCE, 3, 100001, 32768, 4, false, 1, many, 4},
      {"ring", TUTTI_COLL_ALL_REDUCE, 3, 60000, 16384, 4, true, 2, many},
      {"ring", TUTTI_COLL_ALL_GATHER, 3, 60000, 16384, 2, false, 1, many},
      {"ring", TUTTI_COLL_REDUCE_SCATTER, 3, 60000, 16384, 8, false, 1, many},
      {"direct", TUTTI_COLL_ALL_TO_ALL, 3, 60000, 16384, 4, false, 1, many},
      {"ring", TUTTI_COLL_BROADCAST, 3, 60000, 16384, 4, false, 2, many, 0, 1},
  };
  CHECK(forked(
      3,
      [&](int rank, Engine &engine) {
        for (const Case &c : list)
          if (run_case(c, rank, engine) != 0) {
            std::fprintf(stderr, "net: %s coll %u count %lu\n", c.algo.c_str(), c.coll, static_cast<unsigned long>(c.count));
            return 1;
          }
        return engine.link_class(rank ? 0 : 1) == LinkClass::net ? 0 : 2;
      },
      config, {}, *net));
}

TEST_CASE(
    "pre- and post-operations meet every path: direct, ring, slices, channels, in place, between processes, over a network") {
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  std::vector<Case> list;
  for (const char *algo : {"direct", "ring"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_REDUCE})
      for (const bool average : {false, true})
        for (const uint64_t count : {uint64_t{14}, uint64_t{3001}}) {
          Case c{algo, coll, 3, count, 512, 4, false, 1, count > 100 ? many : 0u, 4, coll == TUTTI_COLL_REDUCE ? 1 : -1};
          c.average = average;
          c.factor = average ? 0 : 3;
          list.push_back(c);
          c.channels = 2;
          c.in_place = coll == TUTTI_COLL_ALL_REDUCE;
          list.push_back(c);
        }
  for (const Case &c : list) REQUIRE(right_on_threads(c));
  const auto all = [&](int rank, Engine &e) {
    for (const Case &c : list)
      if (run_case(c, rank, e) != 0) return 1;
    return 0;
  };
  CHECK(forked(3, all));
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  CHECK(forked(3, all, config_with({{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_TIMEOUT", "20s"}}), {}, *net));
}

TEST_CASE("stores past the caches are right for every alignment and odd size") {
  for (const uint32_t offset : {0u, 1u, 3u, 4u, 17u, 63u})
    for (const uint64_t count : {uint64_t{1}, uint64_t{37}, uint64_t{4099}})
      for (const char *algo : {"direct", "ring"})
        REQUIRE(right_on_threads(
            {algo, TUTTI_COLL_ALL_REDUCE, 2, count, 4096, 4, false, 1, TUTTI_REQ_MANY_SLICES | kNonTemporal, offset}));
}

TEST_CASE("an alltoall with tables moves blocks of every size, empty ones too, and gaps stay untouched") {
  constexpr int n = 3;
  const auto bytes_of = [](int from, int to) { return static_cast<uint64_t>((from * 5 + to * 3) % 4) * 700 + (from == to); };
  Threads world(n);
  std::atomic<int> good{0};
  world.run([&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_TO_ALL, r, n));
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = 512;
    sel.depth = 4;
    const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_UINT8, TUTTI_RED_SUM);
    constexpr uint64_t room = 4096;
    std::vector<uint8_t> in(n * room), out(n * room, 0xee);
    uint64_t send[n], recv[n], offset[n];
    for (int q = 0; q < n; q++) {
      send[q] = bytes_of(r, q);
      recv[q] = bytes_of(q, r);
      offset[q] = static_cast<uint64_t>(n - 1 - q) * room; // in another order than the ranks
      for (uint64_t i = 0; i < send[q]; i++) in[offset[q] + i] = static_cast<uint8_t>(r * 16 + q);
    }
    OpArgs a = args_of(*plan, in.data(), out.data(), 0, TUTTI_DT_UINT8, 0, 1);
    a.in_shape = {n, 0, send, offset};
    a.out_shape = {n, 0, recv, offset};
    const auto seq = world.engine(r).enqueue(*bound, a);
    std::fill(send, send + n, 99); // the tables were copied
    bool ok = seq.ok() && world.engine(r).wait(*seq).ok();
    for (int q = 0; q < n; q++)
      for (uint64_t i = 0; i < room; i++)
        ok &= out[offset[q] + i] == (i < bytes_of(q, r) ? static_cast<uint8_t>(q * 16 + r) : 0xee);
    good += ok;
  });
  CHECK(good == n);
}

TEST_CASE("a device that wants registrations and posted buffers, and takes few calls, gets what net.h promises") {
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  std::vector<Case> list;
  for (const char *algo : {"direct", "ring"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER}) {
      list.push_back({algo, coll, 3, 5, 4096, 4});
      list.push_back({algo, coll, 3, 30001, 16384, 16, false, 2, many, 4});
    }
  list.push_back({"direct", TUTTI_COLL_ALL_TO_ALL, 3, 9000, 8192, 4, false, 1, many});
  const uint64_t before = fake_net_messages();
  {
    Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
    std::atomic<uint64_t> wrong{0};
    world.run([&](int r) {
      for (const Case &c : list) wrong += run_case(c, r, world.engine(r));
    });
    CHECK(wrong == 0);
    CHECK(fake_net_messages() > before);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("what a rank sent last arrives although it never calls again") {
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "5s"}, {"TUTTI_PROGRESS_THREAD", "false"}}), 1, *net, true);
  std::atomic<uint64_t> wrong{0};
  world.run([&](int r) {
    wrong += run_case({"direct", TUTTI_COLL_BROADCAST, 2, 100, 4096, 4, false, 1, 0, 0, 0}, r, world.engine(r), 1);
  });
  CHECK(wrong == 0);
}

TEST_CASE("plans share one temporary memory, and what passes the cap is refused without harm") {
  Threads world(2, config_with({{"TUTTI_MEMORY_CAP", "1MiB"}}));
  Engine &e = world.engine(0);
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = 4096;
  sel.depth = 4;
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2));
  REQUIRE(e.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM).ok());
  const uint64_t one = e.usage().bytes;
  for (const tutti_redop op : {TUTTI_RED_MAX, TUTTI_RED_MIN, TUTTI_RED_PROD}) // the same links
    REQUIRE(e.bind(plan, sel, TUTTI_DT_FLOAT32, op).ok());
  CHECK(e.usage().bytes == one);
  sel.slot_bytes = 1 << 20;
  const auto refused = e.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == Code::invalid_usage);
  CHECK(!e.failed());
}
