// Places of a link: small and large ones in turn, what is posted for them ahead, and the empty messages that keep the order.
#include "cases.h"
#include "fake_net.h"
#include <doctest/doctest.h>
#include <random>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint32_t kSlot = 64 << 10, kMany = TUTTI_REQ_MANY_SLICES;
constexpr uint64_t kShort = 100, kLong = 60'000; // floats: one message, and four of up to a slot
constexpr uint64_t kSmallRoom = 4096 + 16;

struct Two {
  Threads world{2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true};
  bool all_reduce(uint64_t count, int times = 1) {
    const Case c{"direct", TUTTI_COLL_ALL_REDUCE, 2, count, kSlot, 4, false, 1, count * sizeof(float) > kSlot ? kMany : 0u};
    std::atomic<uint64_t> wrong{0};
    world.run([&](int r) { wrong += run_case(c, r, world.engine(r), times); });
    return wrong == 0;
  }
};

// The device of the communicators of one test.
struct Device {
  explicit Device(bool needs_mr) { fake_net_needs_mr(needs_mr); }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;
  ~Device() { fake_net_needs_mr(true); }
};

} // namespace

TEST_CASE("buffers are posted ahead in pairs of which only one has room for a long message") {
  {
    Two two;
    constexpr uint64_t pairs = 4; // as the device takes eight calls
    uint64_t links = 2;
    for (const uint64_t count : {kShort, kLong, kShort, kShort, kLong}) {
      CHECK(two.all_reduce(count));
      if (count == kLong) links = 4; // it has a second phase
      CHECK(fake_net_waiting() == links * 2 * pairs);
      CHECK(fake_net_waiting_bytes() == links * pairs * (kSmallRoom + kSlot));
    }
  }
  CHECK(fake_net_waiting_bytes() == 0);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("an empty message goes before a long one that follows an odd number of short ones, and before no other") {
  for (const bool needs_mr : {true, false}) {
    const Device device(needs_mr);
    Two two;
    const auto empty_in = [&](uint64_t count, int times) {
      const uint64_t before = fake_net_empty();
      CHECK(two.all_reduce(count, times));
      return fake_net_empty() - before;
    };
    CHECK(empty_in(kLong, 2) == 0);
    CHECK(empty_in(kShort, 1) == 0);
    CHECK(empty_in(kLong, 2) == 2); // one each way
    CHECK(empty_in(kShort, 2) == 0);
    CHECK(empty_in(kLong, 1) == 0);
    CHECK(empty_in(kShort, 3) == 0);
    CHECK(empty_in(kLong, 1) == 2);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("where messages might land at home, buffers are posted ahead as long as that is not registered") {
  {
    Two two;
    const auto broadcast = [&](bool registered) {
      Case c{"ring", TUTTI_COLL_BROADCAST, 2, kLong, kSlot, 4, false, 1, kMany};
      c.root = 0;
      c.registered = registered;
      std::atomic<uint64_t> wrong{0};
      two.world.run([&](int r) { wrong += run_case(c, r, two.world.engine(r), 3); });
      CHECK(wrong == 0);
    };
    broadcast(true);
    CHECK(fake_net_waiting() == 0);
    broadcast(false);
    CHECK(fake_net_waiting() == 8);
    broadcast(false);
    broadcast(true);
    CHECK(fake_net_waiting() == 0);
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("short and long messages in any order, at home and staged, arrive right") {
  std::mt19937 random(1);
  const auto draw = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 12; round++) {
    CAPTURE(round);
    const Device device(round % 3 != 0);
    const bool pull = round % 2;
    std::vector<Case> list;
    for (int i = 0; i < 24; i++) {
      constexpr tutti_coll colls[] = {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_BROADCAST,
                                      TUTTI_COLL_REDUCE_SCATTER};
      const tutti_coll coll = colls[draw(4)];
      const uint64_t count = draw(2) ? 1 + draw(900) : 1 + draw(25'000);
      Case c{draw(2) ? "direct" : "ring", coll, 3, count, 16 << 10, 4, false, 1, count > 900 ? kMany : 0u};
      if (coll == TUTTI_COLL_BROADCAST) c.root = static_cast<int>(draw(3));
      if (pull) c.proto = *registry().named<tutti_proto_v1>(TUTTI_PROTO, "pull");
      c.registered = draw(2);
      list.push_back(c);
    }
    Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, pull ? fake_rma_net() : fake_net(), true);
    const uint64_t before = fake_net_empty();
    fake_net_latency(std::chrono::milliseconds(draw(2)));
    std::atomic<uint64_t> wrong{0};
    world.run([&](int r) {
      for (const Case &c : list) wrong += run_case(c, r, world.engine(r), 1);
    });
    fake_net_latency({});
    CHECK(wrong == 0);
    CHECK(fake_net_empty() > before); // or the round shows little
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("where a device pins less than would be posted ahead, each message is posted for at its step") {
  fake_net_refuse(4 * kSlot); // those of four pairs
  {
    Two two;
    CHECK(two.all_reduce(kLong, 2));
    CHECK(two.all_reduce(kShort));
    CHECK(two.all_reduce(kLong, 2));
    CHECK(fake_net_waiting() == 0);
  }
  fake_net_refuse(0);
  CHECK(fake_net_violations() == 0);
}
