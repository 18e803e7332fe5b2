// The cost model: what must hold for any constants.
#include "comm/select/model.h"
#include "plans.h"
#include <doctest/doctest.h>

using namespace plans;

namespace {

constexpr tutti_proto_v1 proto(tutti_proto_signal signal, uint32_t line = 1, uint32_t payload = 1, uint32_t atomic = 8) {
  return {sizeof(tutti_proto_v1), signal, "test", line, payload, atomic, 56, nullptr};
}
constexpr auto kCounter = proto(TUTTI_SIGNAL_COUNTER), kDescriptor = proto(TUTTI_SIGNAL_DESCRIPTOR);
constexpr auto kWords = proto(TUTTI_SIGNAL_IN_DATA, 64, 56, 64), kTorn = proto(TUTTI_SIGNAL_IN_DATA, 128, 56, 8);

CostModel::Input job(uint32_t ranks, uint32_t cores, uint32_t per_host = ~0u) {
  std::vector<TopologyInput> inputs(ranks);
  for (uint32_t r = 0; r < ranks; r++) {
    const uint64_t word = cores >= 64 ? ~0ull : (uint64_t(1) << cores) - 1;
    inputs[r] = {r / per_host, CpuSet::from_words({&word, 1})};
  }
  CostModel::Input in;
  in.topology = std::make_shared<const Topology>(make_topology(inputs));
  in.shared = per_host >= ranks;
  return in;
}
Estimate ask(const CostModel &model, const char *name, const tutti_proto_v1 &p, tutti_coll coll, uint64_t bytes,
             const CostModel::Fixed &fixed = {}) {
  Iface<tutti_proto_v1> proto;
  proto.plugin = algo(name).plugin;
  proto.table = &p;
  auto e = model.propose(algo(name), proto, coll, 0, bytes, fixed);
  REQUIRE_MESSAGE(e.ok(), (e.ok() ? "" : e.status().error().message));
  return *e;
}

} // namespace

TEST_CASE("more bytes never take less time") {
  for (const auto &in : {job(2, 2), job(4, 2), job(8, 2), job(8, 8), job(8, 8, 4)}) {
    const CostModel model(in);
    for (const char *name : {"direct", "ring", "rhd", "tree"})
      for (const auto *p : {&kCounter, &kDescriptor, &kWords, &kTorn}) {
        double before = 0;
        for (uint64_t bytes = 8; bytes <= uint64_t(1) << 30; bytes *= 2) {
          CAPTURE(name);
          CAPTURE(bytes);
          CostModel::Fixed fixed;
          fixed.slot_bytes = 16 << 10, fixed.depth = 8;
          const double us = ask(model, name, *p, TUTTI_COLL_ALL_REDUCE, bytes, fixed).us;
          // Where a plan for many slices takes over it may gain something.
          CHECK(us >= before * 0.5);
          if (bytes > 1 << 20) CHECK(us >= before);
          before = us;
        }
        CHECK(before > 1e3 * (1 << 30) / 1e9 / 100); // not faster than 100 GB/s
      }
  }
}

TEST_CASE("terms are what the time consists of") {
  const CostModel model(job(4, 4));
  for (const uint64_t bytes : {64, 65536, 1 << 24}) {
    const Estimate e = ask(model, "ring", kCounter, TUTTI_COLL_ALL_REDUCE, bytes);
    CHECK(e.latency_us + e.cpu_us + e.bandwidth_us + e.turns_us == doctest::Approx(e.us));
    CHECK(e.rounds == 6);
    CHECK(e.turns_us == 0);
    CHECK(e.text().find("6 rounds") != std::string::npos);
  }
  CHECK(ask(model, "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 64).bandwidth_us <
        ask(model, "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 64).latency_us);
  const Estimate shared = ask(CostModel(job(8, 2)), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 8);
  CHECK(shared.turns_us > 0);
  CHECK(shared.latency_us + shared.cpu_us + shared.bandwidth_us + shared.turns_us == doctest::Approx(shared.us));
}

TEST_CASE("ranks that share cores take longer") {
  for (const uint64_t bytes : {8, 8192, 1 << 20})
    for (const char *name : {"direct", "ring"})
      CHECK(ask(CostModel(job(8, 2)), name, kCounter, TUTTI_COLL_ALL_REDUCE, bytes).us >
            1.5 * ask(CostModel(job(8, 8)), name, kCounter, TUTTI_COLL_ALL_REDUCE, bytes).us);
}

TEST_CASE("few rounds win for short messages, few bytes for long ones") {
  const CostModel model(job(16, 16, 1)); // over a network
  const auto us = [&](const char *name, uint64_t bytes) { return ask(model, name, kCounter, TUTTI_COLL_ALL_REDUCE, bytes).us; };
  CHECK(us("rhd", 8) < us("ring", 8));
  CHECK(us("rhd", 1 << 10) < us("ring", 1 << 10));
  CHECK(us("ring", 1 << 28) < us("tree", 1 << 28));
}

TEST_CASE("words in the data cost bytes and looks, and save a line; what is lent is not copied into a slot") {
  const CostModel model(job(2, 2));
  const auto us = [&](const tutti_proto_v1 &p, uint64_t bytes) {
    return ask(model, "direct", p, TUTTI_COLL_ALL_GATHER, bytes).us;
  };
  CHECK(us(kWords, 1 << 20) > us(kCounter, 1 << 20));
  CHECK(us(kTorn, 1 << 20) > 1.5 * us(kWords, 1 << 20));
  CHECK(us(kDescriptor, 256) > us(kCounter, 256)); // another process is asked for it
  CostModel::Input threads = job(2, 2);
  threads.process_of_rank = {0, 0};
  const CostModel local(threads);
  CHECK(ask(local, "direct", kDescriptor, TUTTI_COLL_ALL_GATHER, 1 << 20).us <
        ask(local, "direct", kCounter, TUTTI_COLL_ALL_GATHER, 1 << 20).us);
}

TEST_CASE("a network's device bounds what a host sends") {
  CostModel::Input in = job(4, 2, 2);
  const double before = ask(CostModel(in), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 1 << 26).us;
  in.net.bytes_per_us = 125; // 1 Gbit/s
  const Estimate slow = ask(CostModel(in), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 1 << 26);
  CHECK(slow.us > before);
  CHECK(slow.us >= 1.5 * (1 << 26) / 125); // 2 (n - 1) / n of them
  in.net.latency_us = 500;
  CHECK(ask(CostModel(in), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 8).us > 1000);
}

TEST_CASE("what the user has fixed stays, and long messages get slots that short ones do not need") {
  const CostModel model(job(4, 4));
  CostModel::Fixed fixed;
  fixed.slot_bytes = 12 << 10, fixed.depth = 32, fixed.channels = 3;
  const Estimate e = ask(model, "ring", kCounter, TUTTI_COLL_ALL_REDUCE, 1 << 24, fixed);
  CHECK(e.slot_bytes == 12 << 10);
  CHECK(e.depth == 32);
  CHECK(e.channels == 3);
  CHECK(e.slices == doctest::Approx(std::ceil(double(1 << 24) / 12 / (12 << 10))));
  CHECK(ask(model, "direct", kCounter, TUTTI_COLL_ALL_REDUCE, 64).slot_bytes <
        ask(model, "direct", kCounter, TUTTI_COLL_ALL_REDUCE, 1 << 24).slot_bytes);
}

TEST_CASE("unloaded() depends on ranks and hosts alone") {
  CostModel::Input a = job(8, 2), b = job(8, 64);
  a.constants.link[1].latency_us = 5;
  a.process_of_rank = {0, 0, 1, 1, 2, 2, 3, 3};
  b.shm = false;
  for (const uint64_t bytes : {8, 1 << 16, 1 << 24})
    CHECK(ask(CostModel(a).unloaded(), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, bytes).text() ==
          ask(CostModel(b).unloaded(), "ring", kCounter, TUTTI_COLL_ALL_REDUCE, bytes).text());
}

TEST_CASE("constants survive their text, and other texts are refused") {
  CostConstants c;
  c.link[2].latency_us = 12.5, c.slot_factor[3] = 0.625, c.net_gbs = 3e7;
  const auto back = CostConstants::decode(c.encode());
  REQUIRE(back);
  CHECK(back->encode() == c.encode());
  CHECK(back->link[2].latency_us == 12.5);
  for (const std::string &bad :
       {std::string(), std::string("1 2 3"), c.encode() + " 1", c.encode() + "x",
        "-1" + c.encode().substr(c.encode().find(' ')), "nan" + c.encode().substr(c.encode().find(' '))})
    CHECK_FALSE(CostConstants::decode(bad));
  const CostModel::Device device{1e5 / 3, 1.234567890123};
  const auto same = CostModel::Device::decode(device.encode());
  REQUIRE(same);
  CHECK(same->bytes_per_us == device.bytes_per_us);
  CHECK(same->latency_us == device.latency_us);
  for (const char *bad : {"", "1", "1 2 3", "1 -2", "1 inf", "1 x"}) CHECK_FALSE(CostModel::Device::decode(bad));
}
