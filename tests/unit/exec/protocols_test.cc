// The protocols whose lines carry their signal, as plugins: every algorithm over each of them, no step by the handler that can
// do everything, and the same bits as with "simple".
#include "base/types.h"
#include "cases.h"
#include "exec/bound.h"
#include "tutti/plugin/cxx/plugin.hpp"
#include <bit>
#include <cmath>
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr const char *kProtocols[] = {"ll", "ll8", "ll128", "pull"}; // beside simple
constexpr uint32_t kMany = TUTTI_REQ_MANY_SLICES;

Iface<tutti_proto_v1> proto(const char *name) {
  return *registry().named<tutti_proto_v1>(TUTTI_PROTO, name);
}

// A tree that uses what ring and direct leave out: rank 1 reduces two children and passes on only, rank 0 reduces and fans out,
// rank 1 fans out what it received. In a reduce to rank 0 rank 1 relays what it does not keep.
//        0
//      1   2
//     3 4
tutti_status tree_supports(void *, const tutti_algo_request *) noexcept {
  return TUTTI_OK;
}
tutti_status tree_plan(void *, const tutti_algo_request *req, const tutti_plan_builder *to) noexcept {
  using namespace tutti::plugin;
  PlanWriter w;
  w.shape(*req, 1);
  auto lane = w.lane();
  const int me = req->rank;
  if (req->coll == TUTTI_COLL_REDUCE) { // 0 <- 1 <- 2
    if (me == 2) lane.to(1).step().src(in(0)).preop().send();
    if (me == 1) {
      lane.from(2).to(0, 0).to(0, 1);
      lane.step().src(in(0)).preop().send(0);
      lane.step().recv().sized_as(in(0)).send(1);
    }
    if (me == 0) {
      lane.from(1, 0).from(1, 1);
      lane.step().src(in(0)).preop().recv(0, 2).reduce().position(0).postop().store(out(0));
    }
    return w.emit(*to);
  }
  if (me == 0) {
    lane.from(1).from(2).to(1).to(2);
    lane.step().src(in(0)).preop().recv(0, 2).reduce().position(0).postop().store(out(0)).send(0, 2);
  } else if (me == 1) {
    lane.from(3).from(4).from(0).to(0).to(3).to(4);
    lane.step().src(in(0)).preop().recv(0, 2).reduce().position(1).send(0);
    lane.step().recv(2).store(out(0)).send(1, 2);
  } else {
    const int up = me == 2 ? 0 : 1;
    lane.from(up).to(up);
    lane.step().src(in(0)).preop().send();
    lane.step().recv().store(out(0));
  }
  return w.emit(*to);
}
constexpr tutti_algo_v1 tree_table() {
  tutti_algo_v1 t{};
  t.struct_size = sizeof t;
  t.name = "tree of a test";
  t.supports = tree_supports;
  t.plan = tree_plan;
  return t;
}
constexpr tutti_algo_v1 kTree = tree_table();

std::vector<Iface<tutti_algo_v1>> algorithms() {
  auto all = registry().all<tutti_algo_v1>(TUTTI_ALGO);
  all.push_back({all.front().plugin, &kTree});
  return all;
}

// Collectives of `algo` on n ranks that every rank has a plan for.
std::vector<std::shared_ptr<const Plan>> plans_of(const Iface<tutti_algo_v1> &algo, int n, tutti_coll coll, uint32_t flags) {
  std::vector<std::shared_ptr<const Plan>> out;
  if (algo.table == &kTree && !(coll == TUTTI_COLL_ALL_REDUCE && n == 5) && !(coll == TUTTI_COLL_REDUCE && n == 3)) return out;
  const bool rooted =
      coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_REDUCE || coll == TUTTI_COLL_GATHER || coll == TUTTI_COLL_SCATTER;
  for (int r = 0; r < n; r++) {
    auto plan = build_plan(algo, PlanRequest::simple(coll, r, n, rooted ? 0 : -1, 1, flags));
    if (!plan.ok()) return {};
    out.push_back(*plan);
  }
  return out;
}

Selection selection_of(const Iface<tutti_proto_v1> &p, const Plan &plan, uint32_t slot) {
  Selection sel;
  sel.proto = p;
  sel.slot_bytes = slot;
  sel.depth = std::max(4u, std::bit_ceil(plan.min_depth));
  return sel;
}

// Floats whose sums and products depend on the order, and zeros of both signs; no NaN, of two of which the CPU chooses one.
float value(int rank, uint64_t i) {
  if (i % 7 == 0) return (i / 7 + static_cast<uint64_t>(rank)) % 2 ? -0.0f : 0.0f;
  return std::ldexp(1.0f + static_cast<float>((i * 2654435761u + static_cast<uint64_t>(rank) * 40503u) % 8191) / 8192.0f,
                    static_cast<int>((i + 3 * static_cast<uint64_t>(rank)) % 9) - 4);
}
// Such a value as an element of a 16-bit type, its fraction cut: every sum of two has to be rounded.
uint16_t value16(tutti_dtype dtype, int rank, uint64_t i) {
  const auto bits = std::bit_cast<uint32_t>(value(rank, i));
  if (dtype == TUTTI_DT_BFLOAT16) return static_cast<uint16_t>(bits >> 16);
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fff'ffff; // a zero or a normal number of float16
  return static_cast<uint16_t>(sign | (magnitude ? (magnitude >> 13) - ((127 - 15) << 10) : 0));
}
// The same of an 8-bit type, from the half.
uint8_t value8(tutti_dtype dtype, int rank, uint64_t i) {
  const uint16_t half = value16(TUTTI_DT_FLOAT16, rank, i), magnitude = half & 0x7fff;
  if (dtype == TUTTI_DT_FLOAT8E5M2) return static_cast<uint8_t>(half >> 8);
  return static_cast<uint8_t>((half >> 8 & 0x80) | (magnitude ? (magnitude >> 7) - ((15 - 7) << 3) : 0));
}
void fill(std::vector<std::byte> *to, tutti_dtype dtype, int rank, uint64_t first) {
  const uint64_t size = dtype_bytes(dtype);
  for (uint64_t i = 0; i < to->size() / size; i++) {
    const float whole = value(rank, first + i);
    const uint16_t half = value16(dtype, rank, first + i);
    const uint8_t quarter = value8(dtype, rank, first + i);
    const void *const from = size == 4   ? static_cast<const void *>(&whole)
                             : size == 2 ? static_cast<const void *>(&half)
                                         : &quarter;
    std::memcpy(to->data() + i * size, from, size);
  }
}

struct Operation {
  tutti_dtype dtype = TUTTI_DT_FLOAT32;
  tutti_redop op = TUTTI_RED_SUM;
  uint64_t count = 1;
  bool in_place = false, average = false;
};

using Outputs = std::vector<std::vector<std::byte>>; // of each rank
Outputs outputs(const std::vector<std::shared_ptr<const Plan>> &plans, const Iface<tutti_proto_v1> &p, const Operation &o) {
  const auto n = static_cast<int>(plans.size());
  Threads world(n, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Outputs out(plans.size());
  std::atomic<int> good{0};
  world.run([&](int r) {
    const Plan &plan = *plans[static_cast<size_t>(r)];
    const auto ranks = static_cast<uint32_t>(n);
    auto &mine = out[static_cast<size_t>(r)];
    const uint64_t bytes = o.count * dtype_bytes(o.dtype);
    std::vector<std::byte> in(bytes * coll_in_blocks(plan.request.coll, ranks));
    mine.assign(bytes * coll_out_blocks(plan.request.coll, ranks), std::byte{0xff});
    const auto bound = world.engine(r).bind(plans[static_cast<size_t>(r)], selection_of(p, plan, 256), o.dtype, o.op);
    if (!bound.ok()) return;
    bool ok = true;
    for (uint64_t turn = 1; turn <= 3; turn++) { // the last turn's lines are still in the slots
      fill(&in, o.dtype, r, turn);
      if (o.in_place) mine = in;
      OpArgs a = args_of(plan, o.in_place ? mine.data() : in.data(), mine.data(), o.count, o.dtype, o.op, turn);
      if (o.average) a.postop_divisor = ranks;
      ok &= world.engine(r).run(*bound, a).ok();
    }
    good += ok;
  });
  CHECK(good == n);
  return out;
}

constexpr tutti_coll kColls[] = {TUTTI_COLL_ALL_REDUCE,     TUTTI_COLL_REDUCE,     TUTTI_COLL_BROADCAST, TUTTI_COLL_ALL_GATHER,
                                 TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_ALL_TO_ALL, TUTTI_COLL_GATHER,    TUTTI_COLL_SCATTER};

} // namespace

TEST_CASE("every algorithm gives the same bits over every protocol as over simple slots, in rank order for every reduction") {
  for (const auto &algo : algorithms())
    for (const int n : {2, 3, 5})
      for (const tutti_coll coll : kColls)
        for (const uint64_t count : {uint64_t{1}, uint64_t{501}}) {
          const auto plans = plans_of(algo, n, coll, count > 100 ? kMany : 0u);
          if (plans.empty()) continue;
          const bool in_place = coll == TUTTI_COLL_ALL_REDUCE && count > 100;
          for (const tutti_redop op : {TUTTI_RED_SUM, TUTTI_RED_PROD, TUTTI_RED_MAX, TUTTI_RED_MIN}) {
            if (op != TUTTI_RED_SUM && !coll_reduces(coll)) continue;
            const Operation o{TUTTI_DT_FLOAT32, op, count, in_place};
            const Outputs want = outputs(plans, simple_proto(), o);
            for (const char *name : kProtocols) {
              INFO(algo.table->name << " " << coll_name(coll) << " " << redop_name(op) << " on " << n << ", " << count
                                    << " over " << name);
              CHECK(outputs(plans, proto(name), o) == want);
            }
          }
        }
}

// "direct" and the tree have steps that combine several received operands at once, which are rounded once.
TEST_CASE("16-bit floats are rounded over every protocol where they are over simple slots, averages too") {
  for (const auto &algo : algorithms())
    for (const int n : {3, 5}) {
      const auto plans = plans_of(algo, n, TUTTI_COLL_ALL_REDUCE, kMany);
      if (plans.empty()) continue;
      for (const tutti_dtype dtype : {TUTTI_DT_FLOAT16, TUTTI_DT_BFLOAT16, TUTTI_DT_FLOAT8E4M3, TUTTI_DT_FLOAT8E5M2})
        for (const tutti_redop op : {TUTTI_RED_SUM, TUTTI_RED_PROD})
          for (const bool average : {false, true}) {
            if (average && op != TUTTI_RED_SUM) continue;
            const Operation o{dtype, op, 501, false, average};
            const Outputs want = outputs(plans, simple_proto(), o);
            for (const char *name : kProtocols) {
              INFO(algo.table->name << " " << dtype_name(dtype) << (average ? " average" : " ") << redop_name(op) << " on " << n
                                    << " over " << name);
              CHECK(outputs(plans, proto(name), o) == want);
            }
          }
    }
}

TEST_CASE("steps of one chunk per message have a handler of their own over every protocol in memory") {
  for (const char *name : {"ll", "pull"})
    for (const auto &algo : algorithms())
      for (const int n : {2, 3, 5}) {
        Threads world(n);
        for (const tutti_coll coll : kColls) {
          const auto plans = plans_of(algo, n, coll, kMany);
          for (size_t r = 0; r < plans.size(); r++) {
            const auto bound = world.engine(static_cast<int>(r))
                                   .bind(plans[r], selection_of(proto(name), *plans[r], 256), TUTTI_DT_FLOAT32, TUTTI_RED_MAX);
            REQUIRE(bound.ok());
            for (const Lane &lane : (*bound)->lanes)
              for (const BoundStep &s : lane.plain) {
                const tutti_step &step = s.cold->step;
                INFO(algo.table->name << " " << coll_name(coll) << " ops " << step.ops << ", " << step.recv_count << " in "
                                      << step.send_count << " out");
                const bool several = step.src.count > 1 || step.dst.count > 1; // gathered and scattered
                CHECK((several || s.handler != run_composed));
              }
          }
        }
      }
}

TEST_CASE("collectives between processes give the same as arithmetic over every protocol, and pre- and post-operations too") {
  std::vector<Case> list;
  for (const char *name : kProtocols)
    for (const char *algo : {"direct", "ring"})
      for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER})
        for (const uint32_t offset : {0u, 3u}) {
          Case c{algo, coll, 3, 3001, 448, 4, false, 2, kMany, offset};
          c.proto = proto(name);
          list.push_back(c);
          c.average = coll == TUTTI_COLL_ALL_REDUCE;
          if (c.average) list.push_back(c);
        }
  CHECK(forked(3, [&](int rank, Engine &e) {
    for (const Case &c : list)
      if (run_case(c, rank, e) != 0) return 1;
    return 0;
  }));
}

TEST_CASE("where some links are a network, those take simple slots and the rest of the plan its protocol") {
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  REQUIRE(net.ok());
  for (const char *name : kProtocols) {
    const auto run = [&](int rank, Engine &e) {
      for (const char *algo : {"direct", "ring"}) {
        Case c{algo, TUTTI_COLL_ALL_REDUCE, 3, 3001, 448, 4, false, 1, kMany};
        c.proto = proto(name);
        if (run_case(c, rank, e) != 0) return 1;
      }
      return e.link_class(rank ? 0 : 1) == LinkClass::net ? 0 : 2;
    };
    CHECK(forked(3, run, config_with({{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_TIMEOUT", "20s"}}), {}, *net));
  }
}

TEST_CASE("protocols whose lines differ only in where the word lies have rings of their own") {
  Threads world(2);
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 2));
  const auto first_ring = [&](const tutti_proto_v1 &table) {
    const Selection sel = selection_of({proto("ll").plugin, &table}, *plan, 256);
    const auto bound = world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    REQUIRE(bound.ok());
    return (*bound)->lanes.front().recv.front().ring;
  };
  const tutti_proto_v1 word_last = *proto("ll").table;
  tutti_proto_v1 word_first = word_last;
  word_first.flag_offset = 0;
  const Ring *const ring = first_ring(word_last);
  CHECK(first_ring(word_first) != ring);
  CHECK(first_ring(word_last) == ring);
}

TEST_CASE("lines from before the sequence wrapped are never taken for new ones") {
  CHECK(slot_word(5, 7) != slot_word(5 + (uint64_t{1} << 32), 7));
  CHECK(uint32_t(slot_word(uint64_t{1} << 32, 7)) == 0);
  CHECK(slot_word(uint64_t{1} << 32, 7) != 0);
  CHECK(signature_in(slot_word(uint64_t{3} << 32 | 9, 0xabcd'ef01), uint64_t{3} << 32 | 9) == 0xabcd'ef01);
  for (const char *name : {"simple", "ll", "ll8", "ll128", "pull"}) {
    constexpr int n = 2;
    Threads world(n, config_with({{"TUTTI_TIMEOUT", "20s"}}));
    std::atomic<int> good{0}, arrived{0};
    world.run([&](int r) {
      const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, r, n));
      const auto bound = world.engine(r).bind(plan, selection_of(proto(name), *plan, 1024), TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
      if (!bound.ok()) return void(arrived += 2);
      std::vector<float> in(256), out(256);
      bool ok = true;
      const auto turn = [&](uint64_t number, uint64_t count) {
        for (uint64_t i = 0; i < count; i++) in[i] = static_cast<float>(r + 1) * static_cast<float>(number + i);
        out.assign(256, -1.0f);
        ok &= world.engine(r).run(*bound, args_of(*plan, in.data(), out.data(), count, TUTTI_DT_FLOAT32, 0, number)).ok();
        for (uint64_t i = 0; i < count; i++) ok &= out[i] == 3.0f * static_cast<float>(number + i);
      };
      for (uint64_t k = 1; k <= 4; k++) turn(k, 256); // every slot's lines
      arrived++;
      while (arrived < n) std::this_thread::yield();
      for (const Lane &lane : (*bound)->lanes) { // as after many messages of one line
        for (const BoundLink &l : lane.recv) l.ring->seq = (uint64_t{1} << 32) - 4;
        for (const BoundLink &l : lane.send) l.ring->seq = l.ring->credit = (uint64_t{1} << 32) - 4;
      }
      arrived++;
      while (arrived < 2 * n) std::this_thread::yield();
      for (uint64_t k = 5; k <= 8; k++) turn(k, 1);
      for (uint64_t k = 9; k <= 16; k++) turn(k, 256); // in the slots lie lines of the same numbers, a lap ago
      good += ok;
    });
    CHECK_MESSAGE(good == n, std::string(name));
  }
}
