// Protocol `pull` over a network that reads its peers' registered memory.
#include "cases.h"
#include "fake_net.h"
#include "transport/net_link.h"
#include "transport/regions.h"
#include <array>
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint32_t kMany = TUTTI_REQ_MANY_SLICES;

Iface<tutti_proto_v1> pull() {
  return *registry().named<tutti_proto_v1>(TUTTI_PROTO, "pull");
}

std::shared_ptr<const Config> patient() {
  return config_with({{"TUTTI_TIMEOUT", "20s"}});
}

std::vector<Case> cases(bool registered) {
  std::vector<Case> list;
  for (const char *algo : {"direct", "ring"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_BROADCAST,
                                  TUTTI_COLL_REDUCE, TUTTI_COLL_ALL_TO_ALL})
      for (const bool in_place : {false, true}) {
        const bool rooted = coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_REDUCE;
        if (in_place && coll != TUTTI_COLL_ALL_REDUCE && coll != TUTTI_COLL_ALL_GATHER) continue;
        if (coll == TUTTI_COLL_ALL_TO_ALL && *algo == 'r') continue;
        const uint32_t flags = kMany | (in_place ? uint32_t(TUTTI_REQ_IN_PLACE) : 0u);
        Case c{algo, coll, 3, 30'000, 32 << 10, 4, in_place, 1, flags, 0, rooted ? 1 : -1};
        c.proto = pull();
        c.registered = registered;
        list.push_back(c);
        c.count = 7, c.flags &= ~kMany;
        list.push_back(c);
        c.count = 5003, c.slot = 8192, c.offset = 3, c.depth = 2, c.flags |= kMany;
        list.push_back(c);
      }
  return list;
}

uint64_t wrong_in(Iface<tutti_net_v1> net, const std::vector<Case> &list, std::vector<LinkTraffic> *traffic = nullptr) {
  Threads world(3, patient(), 1, net, true);
  std::atomic<uint64_t> wrong{0};
  world.run([&](int r) {
    for (const Case &c : list) wrong += run_case(c, r, world.engine(r));
  });
  if (traffic) *traffic = world.engine(0).traffic();
  return wrong;
}

} // namespace

TEST_CASE("every collective is right by pull over a network, between large and small messages") {
  const uint64_t before = fake_net_gets();
  std::vector<LinkTraffic> traffic;
  CHECK(wrong_in(fake_rma_net(), cases(true), &traffic) == 0);
  CHECK(fake_net_gets() > before);
  uint64_t lent_out = 0, lent_in = 0;
  for (const LinkTraffic &l : traffic) {
    CHECK(l.wire_bytes >= l.bytes); // what is read goes over the network all the same
    (l.sending ? lent_out : lent_in) += l.lent_bytes;
  }
  CHECK(lent_out > 0);
  CHECK(lent_in > 0);
  CHECK(fake_net_violations() == 0);
  CHECK(fake_net_registered() == 0);
}

TEST_CASE("memory without a registration is sent, not lent") {
  const uint64_t before = fake_net_gets();
  CHECK(wrong_in(fake_rma_net(), cases(false)) == 0);
  CHECK(fake_net_gets() == before);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("a network that reads no peer's memory carries pull as simple") {
  CHECK(wrong_in(fake_net(), cases(true)) == 0);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("an operation ends only when its peers have read what it lent, and then nothing uses its memory") {
  {
    const uint64_t before = fake_net_gets();
    fake_net_latency(std::chrono::milliseconds(2));
    Threads world(2, patient(), 1, fake_rma_net(), true);
    std::atomic<int> good{0};
    constexpr uint64_t count = 20'000;
    world.run([&](int r) {
      const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, r, 2, 0, 1, kMany));
      Selection sel;
      sel.proto = pull();
      sel.slot_bytes = 16 << 10;
      sel.depth = 4;
      const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
      if (!bound.ok()) return;
      int right = 0;
      for (uint64_t round = 1; round <= 5; round++) {
        auto *at = static_cast<float *>(*regions::allocate(count * sizeof(float)));
        for (uint64_t i = 0; i < count; i++) at[i] = r == 0 ? static_cast<float>(i + round) : -1;
        const OpArgs args = args_of(*plan, r == 0 ? at : nullptr, at, count, TUTTI_DT_FLOAT32, 0, round);
        const bool done = world.engine(r).run(*bound, args).ok();
        if (r == 0) // whoever reads it now reads something else
          for (uint64_t i = 0; i < count; i++) at[i] = -2;
        bool same = done;
        for (uint64_t i = 0; r == 1 && i < count; i++) same &= at[i] == static_cast<float>(i + round);
        right += same;
        (void)regions::release(at); // its registration goes first
      }
      good += right == 5;
    });
    CHECK(good == 2);
    CHECK(fake_net_gets() == before + 5 * 5); // 80,000 bytes in slots of 16 KiB
    fake_net_latency({});
  }
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("who cannot be told that his memory has been read says why, at once") {
  constexpr uint64_t count = 100'000, acks = 8 * 16; // bytes for what eight calls receive
  fake_net_refuse(acks);
  Status status[2];
  {
    Threads world(2, patient(), 1, fake_rma_net(), true);
    world.run([&](int r) {
      const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, r, 2, 0));
      Selection sel;
      sel.proto = pull();
      sel.slot_bytes = 512 << 10;
      sel.depth = 4;
      const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
      auto *at = static_cast<float *>(*regions::allocate(count * sizeof(float)));
      if (bound.ok()) status[r] = world.engine(r).run(*bound, args_of(*plan, at, at, count, TUTTI_DT_FLOAT32, 0, 1));
      CHECK(regions::release(at).ok());
    });
  }
  fake_net_refuse(0);
  REQUIRE(!status[0].ok());
  INFO(status[0].error().line());
  CHECK(status[0].error().line().find("registering 128 bytes") != std::string::npos);
  CHECK(status[0].code() != Code::timeout);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("who cannot end because a peer does not read names it") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "1s"}}), 1, fake_rma_net(), true);
  constexpr uint64_t count = 20'000;
  auto *at = static_cast<float *>(*regions::allocate(count * sizeof(float)));
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, 0, 2, 0));
  const auto theirs = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, 1, 2, 0));
  Selection sel;
  sel.proto = pull();
  sel.slot_bytes = 128 << 10;
  sel.depth = 4;
  const auto bound = world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  const auto waiting = world.engine(1).bind(theirs, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  REQUIRE(bound.ok());
  REQUIRE(waiting.ok());
  const Status s = world.engine(0).run(*bound, args_of(*plan, at, at, count, TUTTI_DT_FLOAT32, 0, 1));
  REQUIRE(!s.ok());
  INFO(s.error().line());
  CHECK(s.error().line().find("rank 1") != std::string::npos);
  CHECK(regions::release(at).ok());
  CHECK(fake_net_violations() == 0);
}

namespace {

// What rank 0 lends to rank 1 in one message; of the descriptor, or of what comes back, one bit is turned.
std::array<Status, 2> lend_damaged(uint64_t bytes, uint64_t at, bool checksums) {
  constexpr uint64_t count = 20'000;
  std::array<Status, 2> status;
  {
    Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}, {"TUTTI_NET_CHECKSUM", checksums ? "1" : "0"}}), 1, fake_rma_net(),
                  true);
    fake_net_damage(bytes, at);
    world.run([&](int r) {
      const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, r, 2, 0));
      Selection sel;
      sel.proto = pull();
      sel.slot_bytes = 128 << 10;
      sel.depth = 4;
      const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
      auto *data = static_cast<float *>(*regions::allocate(count * sizeof(float)));
      Status &s = status[static_cast<size_t>(r)];
      for (uint64_t number = 1; bound.ok() && s.ok() && number <= 2; number++)
        s = world.engine(r).run(*bound, args_of(*plan, data, data, count, TUTTI_DT_FLOAT32, 0, number));
      CHECK(regions::release(data).ok());
    });
  }
  fake_net_damage(0, 0);
  CHECK(fake_net_registered() == 0);
  return status;
}

constexpr uint64_t kHeader = sizeof(NetHeader), kLentMessage = kHeader + sizeof(NetDescriptor);

} // namespace

TEST_CASE("with checksums a damaged descriptor is an error, and nothing is read from where it points") {
  const uint64_t before = fake_net_gets();
  const auto status = lend_damaged(kLentMessage, kHeader, true); // of the address
  REQUIRE(!status[1].ok());
  CHECK_MESSAGE(status[1].error().line().find("message 1 from rank 0") != std::string::npos, status[1].error().line());
  CHECK(status[1].error().line().find("was damaged on its way") != std::string::npos);
  CHECK(fake_net_gets() == before);
}

TEST_CASE("with checksums a damaged word that memory has been read is an error") {
  const auto status = lend_damaged(kHeader, 0, true);
  REQUIRE(!status[0].ok());
  CHECK_MESSAGE(status[0].error().line().find("from rank 1 (0 bytes") != std::string::npos, status[0].error().line());
  CHECK(status[0].error().line().find("was damaged on its way") != std::string::npos);
}

TEST_CASE("a peer that says it has read what was never lent to it is refused") {
  const auto status = lend_damaged(kHeader, 5, false);
  REQUIRE(!status[0].ok());
  CHECK_MESSAGE(status[0].error().line().find("rank 1 says that it has read message") != std::string::npos,
                status[0].error().line());
  CHECK(status[0].error().line().find("the last that is lent to it is message 1") != std::string::npos);
}
