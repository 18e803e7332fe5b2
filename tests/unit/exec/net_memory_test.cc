// Nets that need registrations: which memory messages go from and to, and when it is posted and let go.
#include "cases.h"
#include "fake_net.h"
#include "transport/regions.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint64_t kCount = 60'000; // floats: 240 KB in slots of 64 KiB
constexpr uint32_t kSlot = 64 << 10;

// Memory of tuttiMemAlloc, freed with it.
struct Shared {
  explicit Shared(uint64_t floats) : at(static_cast<float *>(*regions::allocate(floats * sizeof(float)))) {}
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;
  ~Shared() { (void)regions::release(at); }
  float *at;
};

struct Two {
  Threads world;
  explicit Two(std::initializer_list<std::pair<const std::string, std::string>> settings = {})
      : world(2, config_with(settings), 1, fake_net(), true) {}

  // in -> out on both ranks, `times` times; true when all sums are right.
  bool all_reduce(const char *algo, float *(&in)[2], float *(&out)[2], uint64_t count, int times = 1, uint32_t slot = kSlot) {
    std::atomic<int> good{0};
    world.run([&](int r) {
      const uint32_t many = count * sizeof(float) > slot ? uint32_t(TUTTI_REQ_MANY_SLICES) : 0u;
      const auto plan = plan_of(algo, PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, r, 2, -1, 1, many));
      Selection sel;
      sel.proto = simple_proto();
      sel.slot_bytes = slot;
      sel.depth = 4;
      const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
      if (!bound.ok()) return;
      for (int t = 0; t < times; t++) {
        for (uint64_t i = 0; i < count; i++) in[r][i] = static_cast<float>(i % 100 + static_cast<uint64_t>(r + t));
        if (!world.engine(r).run(*bound, args_of(*plan, in[r], out[r], count, TUTTI_DT_FLOAT32, 0, next[r]++)).ok()) return;
        for (uint64_t i = 0; i < count; i++)
          if (out[r][i] != static_cast<float>(2 * (i % 100) + 1 + 2 * static_cast<uint64_t>(t))) return;
      }
      good++;
    });
    return good == 2;
  }
  uint64_t next[2] = {1, 1};
};

} // namespace

TEST_CASE("messages go straight from and to memory of tuttiMemAlloc, which is registered once") {
  {
    Two two;
    Shared in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.at, in1.at}, *out[] = {out0.at, out1.at};
    fake_net_watch(in0.at, kCount * sizeof(float));
    CHECK(two.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() > 0);
    const uint64_t held = fake_net_registered();
    CHECK(two.all_reduce("direct", in, out, kCount, 5));
    CHECK(fake_net_registered() == held);
    CHECK(two.all_reduce("ring", in, out, kCount)); // uses up what was posted ahead
    fake_net_watch(out1.at, kCount * sizeof(float));
    CHECK(two.all_reduce("ring", in, out, kCount, 2));
    CHECK(fake_net_inside() == 2 * (2 + 2)); // of each operation two messages leave from home, and all that can land there do
  }
  CHECK(fake_net_registered() == 0);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("memory that nobody told the library of is staged, until it is registered, and again when it no longer is") {
  {
    Two two;
    std::vector<float> in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.data(), in1.data()}, *out[] = {out0.data(), out1.data()};
    fake_net_watch(in0.data(), kCount * sizeof(float));
    CHECK(two.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() == 0);
    const uint64_t before = fake_net_registered();
    two.world.engine(0).keep(1, in0.data(), kCount * sizeof(float));
    CHECK(fake_net_registered() == before + 1); // at once
    CHECK(two.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() > 0);
    const uint64_t held = fake_net_registered();
    CHECK(two.world.engine(0).forget(1).ok());
    CHECK(fake_net_registered() == held - 1);
    fake_net_watch(in0.data(), kCount * sizeof(float));
    CHECK(two.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() == 0);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("memory that is freed has no registration left, and the same address is registered anew") {
  {
    Two two;
    std::vector<float> out0(kCount), in1(kCount), out1(kCount);
    float *out[] = {out0.data(), out1.data()};
    const float *first = nullptr;
    uint64_t held = 0;
    int again = 0;
    for (int round = 0; round < 8; round++) {
      Shared in0(kCount);
      again += in0.at == first;
      first = in0.at;
      float *in[] = {in0.at, in1.data()};
      fake_net_watch(in0.at, kCount * sizeof(float));
      CHECK(two.all_reduce("direct", in, out, kCount));
      CHECK(fake_net_inside() > 0);
      if (round == 0) held = fake_net_registered();
      CHECK(fake_net_registered() == held);
    }
    CHECK(again > 0); // or this test shows nothing
    CHECK(fake_net_registered() == held - 1);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("memory is freed by one thread while others run operations on other memory") {
  {
    Two two;
    Shared in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.at, in1.at}, *out[] = {out0.at, out1.at};
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) {
        const Shared mine(1000);
        two.world.engine(0).keep(7, mine.at, 4000);
        (void)two.world.engine(0).forget(7);
      }
    });
    CHECK(two.all_reduce("direct", in, out, kCount, 20));
    stop = true;
    other.join();
  }
  CHECK(fake_net_violations() == 0);
}

namespace {

// A rank's part of an all_gather from and to one piece of memory, straight from and to which its messages go.
Result<uint64_t> begin_gather(Two &two, int r, float *at) {
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_GATHER, r, 2, -1, 1, TUTTI_REQ_MANY_SLICES));
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = kSlot;
  sel.depth = 4;
  TUTTI_ASSIGN(bound, two.world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM));
  return two.world.engine(r).enqueue(bound, args_of(*plan, at, at + kCount, kCount, TUTTI_DT_FLOAT32, 0, two.next[r]++));
}

} // namespace

TEST_CASE("memory that is freed on a failed communicator is registered no more, and another one registers it anew") {
  enum class End { stopped, peer_gone, freed_too_early };
  for (const End end : {End::stopped, End::peer_gone, End::freed_too_early}) {
    CAPTURE(static_cast<int>(end));
    Two well;
    Shared in1(kCount), out0(kCount), out1(kCount), theirs(3 * kCount);
    auto *mine = static_cast<float *>(*regions::allocate(3 * kCount * sizeof(float)));
    {
      Two two;
      two.world.run([&](int r) {
        const auto seq = begin_gather(two, r, r ? theirs.at : mine);
        CHECK((seq.ok() && two.world.engine(r).wait(*seq).ok()));
      });
      fake_net_watch(mine, 3 * kCount * sizeof(float));
      REQUIRE(begin_gather(two, 0, mine).ok()); // of which rank 1 knows nothing: no message leaves
      for (int i = 0; i < 20'000 && fake_net_inside() < 4; i++) {
        (void)two.world.engine(0).progress();
        std::this_thread::yield();
      }
      REQUIRE(fake_net_inside() >= 4);
      if (end == End::stopped) {
        Error e;
        e.message = "stopped by the test";
        two.world.engine(0).fail(e);
      }
      if (end == End::peer_gone) two.world.engines[0][1].reset();
      const auto began = Clock::now();
      CHECK(regions::release(mine).ok());
      if (end != End::freed_too_early) CHECK(Clock::now() - began < std::chrono::seconds(4)); // nothing is waited out
      CHECK(two.world.engine(0).failed());
      two.world.engines[0][1].reset();
      CHECK(fake_net_registered() == 0); // the memory's, and all others of rank 0
      if (end == End::freed_too_early)
        CHECK(two.world.engine(0).error().error().message.find("freed while the network still uses it") != std::string::npos);
    }
    std::vector<std::unique_ptr<Shared>> taken; // what else the system finds first
    do taken.push_back(std::make_unique<Shared>(3 * kCount));
    while (taken.back()->at != mine && taken.size() < 100);
    const Shared &again = *taken.back();
    CHECK(again.at == mine); // or the rest shows little
    float *in[] = {again.at, in1.at}, *out[] = {out0.at, out1.at};
    fake_net_watch(again.at, kCount * sizeof(float));
    CHECK(well.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() > 0);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("where a device can pin no more, messages are staged and operations go on") {
  fake_net_pinnable(200'000);
  {
    Two two;
    Shared in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.at, in1.at}, *out[] = {out0.at, out1.at};
    fake_net_watch(in0.at, kCount * sizeof(float));
    CHECK(two.all_reduce("direct", in, out, kCount, 2, 16 << 10));
    CHECK(fake_net_inside() == 0);
  }
  fake_net_pinnable(~0ull);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("net.registrations = 0 keeps users' memory out of the network") {
  {
    Two two({{"TUTTI_NET_REGISTRATIONS", "0"}});
    Shared in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.at, in1.at}, *out[] = {out0.at, out1.at};
    fake_net_watch(in0.at, kCount * sizeof(float));
    CHECK(two.all_reduce("direct", in, out, kCount));
    CHECK(fake_net_inside() == 0);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("buffers for the next messages are posted before their operation is called, whatever its sizes will be") {
  {
    Two two;
    std::vector<float> in0(kCount), out0(kCount), in1(kCount), out1(kCount);
    float *in[] = {in0.data(), in1.data()}, *out[] = {out0.data(), out1.data()};
    CHECK(fake_net_waiting() == 0);
    CHECK(two.all_reduce("direct", in, out, 100));
    CHECK(fake_net_waiting() == 2 * 8);               // as many as the device takes
    CHECK(two.all_reduce("direct", in, out, kCount)); // header and payload come in a buffer each
    CHECK(two.all_reduce("direct", in, out, 8));
    CHECK(two.all_reduce("direct", in, out, 3000, 3));
    CHECK(two.all_reduce("ring", in, out, 100));
    CHECK(two.all_reduce("ring", in, out, kCount, 2));
    CHECK(two.all_reduce("ring", in, out, 100, 2));
  }
  CHECK(fake_net_waiting() == 0);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE(
    "while a message lands at home the next one may, where nothing touches its place before, and else waits for its step") {
  const auto together = [](const char *algo, tutti_coll coll, bool in_place) {
    Case c{algo, coll, 3, 60'000, 16 << 10, 4, in_place, 1, TUTTI_REQ_MANY_SLICES};
    if (in_place) c.flags |= TUTTI_REQ_IN_PLACE;
    if (coll == TUTTI_COLL_BROADCAST) c.root = 0;
    c.registered = true;
    Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
    fake_net_watch(reinterpret_cast<void *>(uintptr_t(1)), ~0ull >> 1); // all memory
    std::atomic<uint64_t> wrong{0};
    fake_net_latency(std::chrono::milliseconds(1)); // so that receivers wait
    world.run([&](int r) { wrong += run_case(c, r, world.engine(r), 1); });
    fake_net_latency({});
    CHECK(wrong == 0);
    return fake_net_together();
  };
  CHECK(together("ring", TUTTI_COLL_BROADCAST, false) == 2);
  CHECK(together("ring", TUTTI_COLL_ALL_GATHER, false) == 2);
  CHECK(together("ring", TUTTI_COLL_ALL_GATHER, true) == 2);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("a rank that ends in order is no error for a peer that has buffers waiting for it") {
  Two two;
  std::vector<float> from(100, 3), to(100);
  const auto broadcast = [&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, r, 2, 1));
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = kSlot;
    sel.depth = 4;
    const auto bound = two.world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    REQUIRE(bound.ok());
    const OpArgs args = args_of(*plan, r == 1 ? from.data() : nullptr, to.data(), 100, TUTTI_DT_FLOAT32, 0, two.next[r]++);
    return two.world.engine(r).run(*bound, args);
  };
  two.world.run([&](int r) { CHECK(broadcast(r).ok()); });
  CHECK(fake_net_waiting() == 8);
  CHECK(broadcast(1).ok()); // into a buffer that waits
  two.world.engines[0][1].reset();
  std::fill(to.begin(), to.end(), 0.f);
  CHECK(broadcast(0).ok()); // though the other buffers have failed by now
  CHECK(std::all_of(to.begin(), to.end(), [](float v) { return v == 3; }));
  CHECK(two.world.engine(0).error().ok());
}

TEST_CASE("no counters are read, which takes time, for the end of a rank that is needed no more") {
  Threads world(3, config_with({}), 1, fake_net(), true);
  std::vector<float> from(100, 3), to(100);
  uint64_t number = 0;
  const auto begin = [&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_REDUCE, r, 3, 0));
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = kSlot;
    sel.depth = 4;
    const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    REQUIRE(bound.ok());
    const auto seq =
        world.engine(r).enqueue(*bound, args_of(*plan, from.data(), r ? nullptr : to.data(), 100, TUTTI_DT_FLOAT32, 0, number));
    REQUIRE(seq.ok());
    return *seq;
  };
  number = 1;
  world.run([&](int r) { CHECK(world.engine(r).wait(begin(r)).ok()); });
  number = 2;
  CHECK(world.engine(1).wait(begin(1)).ok()); // into a buffer that waits
  world.engines[0][1].reset();
  const uint64_t read = fake_net_counters_read();
  const uint64_t seq = begin(0);
  for (int i = 0; i < 20'000 && fake_net_waiting() > 8; i++) { // until those for more of rank 1 have failed
    (void)world.engine(0).progress();
    std::this_thread::yield();
  }
  CHECK(fake_net_waiting() == 8);
  CHECK(world.engine(2).wait(begin(2)).ok());
  CHECK(world.engine(0).wait(seq).ok());
  CHECK(fake_net_counters_read() == read);
  CHECK(std::all_of(to.begin(), to.end(), [](float v) { return v == 9; }));
}

namespace {

// Of rank 0, whose peer has gone.
std::string hint_of_error() {
  Two two;
  std::vector<float> in0(kCount), out0(kCount), in1(kCount), out1(kCount);
  float *in[] = {in0.data(), in1.data()}, *out[] = {out0.data(), out1.data()};
  CHECK(two.all_reduce("direct", in, out, kCount));
  fake_net_lose(5);
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2, -1, 1, TUTTI_REQ_MANY_SLICES));
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = kSlot;
  sel.depth = 4;
  const auto bound = two.world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  REQUIRE(bound.ok());
  two.world.engines[0][1].reset(); // its endpoints go
  fake_net_rename(false);
  const Status s = two.world.engine(0).run(*bound, args_of(*plan, in0.data(), out0.data(), kCount, TUTTI_DT_FLOAT32, 0, 9));
  REQUIRE(!s.ok());
  return s.error().hint;
}

} // namespace

TEST_CASE("an error of a device names its counters that have risen since, and no others") {
  const std::string hint = hint_of_error();
  CHECK(hint.find("since this communicator began fake0 has counted lost +5 (somebody pulled the plug)") != std::string::npos);
  CHECK(hint.find("moved") == std::string::npos);
}

TEST_CASE("counters are not compared with those of another device that has the number by now") {
  fake_net_rename(true); // until the communicator has been made
  const std::string hint = hint_of_error();
  CAPTURE(hint);
  CHECK(hint.find("has counted") == std::string::npos);
}
