#include "fake_net.h"
#include "world.h"
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Call {
  std::string algo = "direct";
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  uint64_t count = 1024;
  tutti_dtype dtype = TUTTI_DT_FLOAT32;
  tutti_redop op = TUTTI_RED_SUM;
  int root = -1;
  uint32_t slot = 8192, depth = 4;
};

Result<const Bound *> bind_call(Engine &e, const Call &c, int rank, int n) {
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = c.slot;
  sel.depth = c.depth;
  return e.bind(plan_of(c.algo, PlanRequest::simple(c.coll, rank, n, c.root)), sel, c.dtype, c.op);
}

Status call(Engine &e, const Call &c, int rank, int n, uint64_t number) {
  auto bound = bind_call(e, c, rank, n);
  if (!bound.ok()) return bound.status();
  std::vector<double> in(c.count * static_cast<uint64_t>(n), 1), out(c.count * static_cast<uint64_t>(n));
  const auto plan = plan_of(c.algo, PlanRequest::simple(c.coll, rank, n, c.root));
  return e.run(*bound, args_of(*plan, in.data(), out.data(), c.count, c.dtype, c.op, number));
}

void disagree(const Call &a, const Call &b, const std::string &text_a, const std::string &text_b) {
  Threads world(2);
  Status status[2];
  const auto begin = Clock::now();
  world.run([&](int r) {
    Status first = call(world.engine(r), Call{}, r, 2, 1);
    if (!first.ok())
      status[r] = first;
    else
      status[r] = call(world.engine(r), r ? b : a, r, 2, 2);
  });
  for (int r = 0; r < 2; r++) {
    REQUIRE(!status[r].ok());
    CAPTURE(status[r].error().line());
    CHECK(status[r].error().message.find("rank 0 calls " + text_a) != std::string::npos);
    CHECK(status[r].error().message.find("rank 1 calls " + text_b) != std::string::npos);
  }
  CHECK(Clock::now() - begin < std::chrono::seconds(5));
}

} // namespace

TEST_CASE("each field in which two ranks' calls differ is an error on both that names both calls") {
  const std::string usual = "all_reduce #2 (1024 float sum)";
  Call other;
  other.count = 512;
  disagree({}, other, usual, "all_reduce #2 (512 float sum)");
  other = {};
  other.dtype = TUTTI_DT_INT32;
  disagree({}, other, usual, "all_reduce #2 (1024 int32 sum)");
  other = {};
  other.op = TUTTI_RED_MAX;
  disagree({}, other, usual, "all_reduce #2 (1024 float max)");
  other = {};
  other.coll = TUTTI_COLL_ALL_GATHER;
  disagree({}, other, usual, "all_gather #2 (1024 float)");
  other = {};
  other.slot = 256; // another size class: other rings
  other.count = 64;
  disagree({}, other, usual, "all_reduce #2 (64 float sum)");
}

TEST_CASE("calls that meet in no link are told apart within a second, over memory and over a network") {
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  REQUIRE(net.ok());
  for (const bool far : {false, true}) {
    Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, far ? *net : Iface<tutti_net_v1>{}, far);
    Status status[2];
    Clock::time_point begin;
    world.run([&](int r) {
      Call small; // links of both geometries exist already
      small.slot = 256;
      small.count = 64;
      status[r] = call(world.engine(r), Call{}, r, 2, 1);
      if (status[r].ok()) status[r] = call(world.engine(r), small, r, 2, 2);
      if (!status[r].ok()) return;
      if (r == 0) begin = Clock::now();
      small.count = 1024; // the same call, in other slots
      status[r] = call(world.engine(r), r ? small : Call{}, r, 2, 3);
    });
    const auto took = Clock::now() - begin;
    for (const Status &s : status) {
      REQUIRE(!s.ok());
      CAPTURE(s.error().line());
      CHECK(s.error().message.find("rank 0 calls all_reduce #3 (1024 float sum)") != std::string::npos);
      CHECK(s.error().message.find("rank 1 calls all_reduce #3 (1024 float sum)") != std::string::npos);
    }
    CHECK(took < std::chrono::seconds(3)); // one, on a machine that is not crowded
  }
}

TEST_CASE("a message that is too long for what its receiver waits for is an error on both that names both calls") {
  fake_net_acknowledge(true);
  Status status[2];
  {
    Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
    world.run([&](int r) {
      Call c;
      c.count = r ? 2048 : 512; // 8 KiB behind a header of its own, and 2 KiB with it
      status[r] = call(world.engine(r), c, r, 2, 1);
    });
  }
  fake_net_acknowledge(false);
  for (const Status &s : status) {
    REQUIRE(!s.ok());
    CAPTURE(s.error().line());
    CHECK(s.error().message.find("rank 0 calls all_reduce #1 (512 float sum)") != std::string::npos);
    CHECK(s.error().message.find("rank 1 calls all_reduce #1 (2048 float sum)") != std::string::npos);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("long against short, where a long message has an empty one before it, is an error on both that names both calls") {
  for (const bool acknowledged : {false, true}) {
    fake_net_acknowledge(acknowledged);
    Status status[2];
    const auto begin = Clock::now();
    {
      Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
      world.run([&](int r) {
        Call c;
        c.count = 256; // one message each way
        status[r] = call(world.engine(r), c, r, 2, 1);
        c.count = r ? 2048 : 512; // 8 KiB and 2 KiB
        if (status[r].ok()) status[r] = call(world.engine(r), c, r, 2, 2);
      });
    }
    fake_net_acknowledge(false);
    for (const Status &s : status) {
      REQUIRE(!s.ok());
      CAPTURE(s.error().line());
      CHECK(s.error().message.find("rank 0 calls all_reduce #2 (512 float sum)") != std::string::npos);
      CHECK(s.error().message.find("rank 1 calls all_reduce #2 (2048 float sum)") != std::string::npos);
    }
    CHECK(Clock::now() - begin < std::chrono::seconds(5));
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("a message that says it is lent, on a link that lends nothing, is refused") {
  Status status[2];
  {
    Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
    fake_net_forge();
    world.run([&](int r) { status[r] = call(world.engine(r), Call{}, r, 2, 1); });
  }
  REQUIRE((!status[0].ok() || !status[1].ok())); // who got its message whole may be done before it hears
  for (const Status &s : status)
    if (!s.ok()) CHECK(s.error().line().find("calls all_reduce #1 (1024 float sum)") != std::string::npos);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("a peer that is ahead on a slow network calls the same") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
  fake_net_latency(std::chrono::milliseconds(40));
  Status status[2];
  world.run([&](int r) {
    Call big, small; // in different slots: the request for the second link comes before what the first one carries
    big.coll = small.coll = TUTTI_COLL_BROADCAST;
    big.root = small.root = 1;
    small.slot = 256;
    small.count = 32;
    status[r] = call(world.engine(r), big, r, 2, 1);
    if (status[r].ok()) status[r] = call(world.engine(r), small, r, 2, 2);
  });
  fake_net_latency({});
  for (const Status &s : status) {
    if (!s.ok()) MESSAGE(s.error().line());
    CHECK(s.ok());
  }
}

TEST_CASE("a call without data against one with data is an error on both that names both") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Status with;
  world.run([&](int r) {
    if (r == 0) {
      with = call(world.engine(0), Call{}, 0, 2, 1);
    } else {
      CallInfo none;
      none.number = 1;
      world.engine(1).skip(none);
    }
  });
  REQUIRE(!with.ok());
  CHECK(with.error().message == "rank 0 calls all_reduce #1 (1024 float sum), rank 1 calls all_reduce #1 (0 float sum)");
  CHECK(world.engine(1).error().error().message == with.error().message);
}

TEST_CASE("a rank that sends nothing where another waits for something is named") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Status status[2];
  world.run([&](int r) {
    Call c;
    c.coll = TUTTI_COLL_ALL_TO_ALL;
    const auto bound = bind_call(world.engine(r), c, r, 2);
    std::vector<float> in(64), out(64);
    const auto plan = plan_of(c.algo, PlanRequest::simple(c.coll, r, 2));
    OpArgs a = args_of(*plan, in.data(), out.data(), 0, c.dtype, 0, 1);
    const uint64_t offset[2] = {0, 128}, some[2] = {64, 64}, none[2] = {0, 64}; // rank 1 sends nothing to rank 0
    a.in_shape = {2, 0, r ? none : some, offset};
    a.out_shape = {2, 0, some, offset};
    status[r] = world.engine(r).run(*bound, a);
  });
  CHECK(status[1].ok());
  REQUIRE(!status[0].ok());
  CAPTURE(status[0].error().line());
  CHECK(status[0].error().message.find("rank 1 has completed alltoall #1") != std::string::npos);
  CHECK(status[0].error().message.find("without sending what rank 0 waits for") != std::string::npos);
}

TEST_CASE("messages of one size but another type do not pass for each other") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Status status[2];
  world.run([&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_TO_ALL, r, 2));
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = 4096;
    sel.depth = 4;
    const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_UINT8, TUTTI_RED_SUM);
    std::vector<float> in(64), out(64);
    OpArgs a = args_of(*plan, in.data(), out.data(), 0, TUTTI_DT_UINT8, 0, 1);
    const uint64_t offset[2] = {0, 128}, bytes[2] = {64, 64}, floats[2] = {TUTTI_DT_FLOAT32, TUTTI_DT_FLOAT32},
                   ints[2] = {TUTTI_DT_INT32, TUTTI_DT_FLOAT32};
    a.in_shape = a.out_shape = {2, 0, bytes, offset};
    a.in_marks = r ? ints : floats;
    a.out_marks = floats;
    status[r] = world.engine(r).run(*bound, a);
  });
  CHECK(!status[0].ok());
  CHECK(world.engine(1).failed());
}

TEST_CASE("a rank that does not call is named with what it does when the wait expires") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "50ms"}}));
  Status late;
  world.run([&](int r) {
    const Status first = call(world.engine(r), Call{}, r, 2, 1);
    CHECK(first.ok());
    if (r == 0) late = call(world.engine(0), Call{}, 0, 2, 2);
  });
  REQUIRE(!late.ok());
  CHECK(late.code() == Code::timeout);
  CAPTURE(late.error().line());
  CHECK(late.error().message.find("all_reduce #2 (1024 float sum) made no progress") != std::string::npos);
  CHECK(late.error().message.find("rank 1 has not called it: it is idle after all_reduce #1") != std::string::npos);
  CHECK(world.engine(1).failed());
}

TEST_CASE("a link beyond the memory cap is refused with cap, use and what was asked") {
  Threads world(2, config_with({{"TUTTI_MEMORY_CAP", "1MiB"}}));
  Call big;
  big.slot = 1 << 20;
  const auto bound = bind_call(world.engine(0), big, 0, 2);
  REQUIRE(!bound.ok());
  CAPTURE(bound.status().error().line());
  CHECK(bound.status().error().message.find("of the cap of 1048576 bytes (memory.cap)") != std::string::npos);
  CHECK(world.engine(0).usage().bytes == 0);
}

TEST_CASE("fail() ends a wait at once, whichever thread calls it") {
  Threads world(2);
  std::atomic<bool> inside{false};
  Status s;
  world.run([&](int r) {
    if (r == 0) {
      inside = true;
      s = call(world.engine(0), Call{}, 0, 2, 1);
    } else {
      while (!inside) std::this_thread::yield();
      Error e;
      e.message = "stopped by the test";
      world.engine(0).fail(e);
    }
  });
  REQUIRE(!s.ok());
  CHECK(s.error().message == "stopped by the test");
}
