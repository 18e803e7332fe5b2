// What the algorithms promise beyond being right: on several hosts, in rounds and bytes, and in bits.
#include "plans.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <doctest/doctest.h>

using namespace plans;

namespace {

// host[r]: the node of rank r. Empty when the algorithm does not serve it; then on no rank.
PlanSet on_hosts(const std::string &algorithm, Case c, const std::vector<int32_t> &host) {
  c.n = static_cast<int>(host.size());
  PlanSet out;
  for (int r = 0; r < c.n; r++) {
    PlanRequest q = request(c, r);
    q.node_of_rank = host;
    const bool served = algo_supports(algo(algorithm), q).ok();
    CHECK((r == 0 || served == (out.size() == static_cast<size_t>(r))));
    if (!served) continue;
    auto plan = build_plan(algo(algorithm), q);
    REQUIRE_MESSAGE(plan.ok(), algorithm << " " << c.name() << ": " << (plan.ok() ? "" : plan.status().error().message));
    out.push_back(*plan);
  }
  return out;
}

std::string wrong(const PlanSet &plans, bool in_place) {
  CheckOptions o;
  o.in_place = in_place;
  o.slices = 3;
  if (const auto found = check_plans(plans, o); !found.empty()) return found[0].rule + ": " + found[0].text;
  RunOptions run;
  run.in_place = in_place;
  run.block = plans[0]->request.coll == TUTTI_COLL_BARRIER ? 8 : 1000;
  run.run.slice_bytes = 128;
  return run_and_verify(plans, run);
}

PlanStats stats(const std::string &algorithm, const Case &c) {
  PlanStats s;
  const PlanSet plans = build(algorithm, c);
  REQUIRE(!plans.empty());
  CHECK(check_plans(plans, {}, &s).empty());
  return s;
}

uint32_t log2_up(int n) {
  uint32_t bits = 0;
  while (1 << bits < n) bits++;
  return bits;
}

// The all_reduce of one block per rank under an operation that shows every change of order, per 8-byte element; and every
// change of where a step ends, when it rounds there.
std::vector<uint64_t> bits_of(const PlanSet &plans, size_t elements, uint64_t slice, bool rounds) {
  const size_t n = plans.size(), blocks = coll_in_blocks(plans[0]->request.coll, static_cast<uint32_t>(n));
  std::vector<std::vector<uint64_t>> in(n), out(n);
  std::vector<RankBuffers> buffers;
  for (size_t r = 0; r < n; r++) {
    for (size_t i = 0; i < blocks * elements; i++) in[r].push_back(r * 1'000'003 + 17); // alike in all elements
    out[r].resize(elements);
    buffers.push_back({reinterpret_cast<const uint8_t *>(in[r].data()), reinterpret_cast<uint8_t *>(out[r].data()),
                       BufferShape{static_cast<uint32_t>(blocks), elements * 8, nullptr, nullptr},
                       BufferShape{1, elements * 8, nullptr, nullptr}});
  }
  Arithmetic a;
  a.reduce = [](uint8_t *acc, const uint8_t *x, uint64_t bytes) {
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
      uint64_t u, v;
      std::memcpy(&u, acc + i, 8);
      std::memcpy(&v, x + i, 8);
      u = (u ^ (v << 1)) * 0x9e3779b97f4a7c15u + (u >> 7); // neither commutative nor associative
      std::memcpy(acc + i, &u, 8);
    }
  };
  if (rounds)
    a.round = [](uint8_t *acc, uint64_t bytes) {
      for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t u;
        std::memcpy(&u, acc + i, 8);
        u = (u * 31 + 7) & ~uint64_t{0xfff};
        std::memcpy(acc + i, &u, 8);
      }
    };
  InterpretOptions o;
  o.slice_bytes = slice;
  const Status s = interpret(plans, buffers, a, o);
  REQUIRE_MESSAGE(s.ok(), (s.ok() ? "" : s.error().message));
  std::vector<uint64_t> all;
  for (const auto &rank : out) all.insert(all.end(), rank.begin(), rank.end());
  return all;
}

} // namespace

TEST_CASE("every algorithm is right whatever the hosts are") {
  const std::vector<std::vector<int32_t>> layouts = {
      {0, 0, 1, 1},          {0, 1, 0, 1}, {0, 0, 0, 1}, {0, 1, 1, 0, 2}, {0, 1, 2, 3, 4, 5}, {0, 0, 0, 1, 1, 1, 2, 2, 2},
      {0, 0, 1, 1, 1, 2, 3}, {0, 1}};
  for (const std::string &algorithm : algorithms())
    for (const auto &host : layouts) {
      const int n = static_cast<int>(host.size());
      for (tutti_coll coll = 0; coll <= TUTTI_COLL_BARRIER; coll++)
        for (const int root : coll_has_root(coll) ? std::vector<int>{0, n / 2, n - 1} : std::vector<int>{-1})
          for (const uint32_t flags : {0u, 2u, 4u, 6u}) {
            if ((flags & TUTTI_REQ_IN_PLACE) && !has_in_place_form(coll)) continue;
            const Case c{coll, n, root, flags == 2 ? 1u : 2u, flags, false};
            const PlanSet plans = on_hosts(algorithm, c, host);
            if (plans.empty()) continue;
            CHECK_MESSAGE(wrong(plans, flags & TUTTI_REQ_IN_PLACE) == "",
                          algorithm << " " << c.name() << " hosts " << host.back() + 1);
          }
    }
}

// What tuttiAllGatherV and tuttiReduceScatterV build on: a chunk of these two stands for its own block wherever it goes.
TEST_CASE("searched trees are followed by all_reduce of several channels and by barrier, and are right in any shape") {
  const auto built = [](tutti_coll coll, int n, uint32_t channels, uint32_t flags) {
    PlanSet out;
    for (int r = 0; r < n; r++) {
      PlanRequest q = request({coll, n, -1, channels, flags, true}, r);
      for (int i = 0; i < n; i++) q.node_of_rank[static_cast<size_t>(i)] = i / 2;
      for (size_t c = 0; c < channels; c++) { // heaps of two, three, ... children over the channel's ring
        const auto &order = q.channel[c].order;
        const int wide = static_cast<int>(c) + 2,
                  at = static_cast<int>(std::find(order.begin(), order.end(), r) - order.begin());
        if (at > 0) q.channel[c].tree_parent = order[static_cast<size_t>((at - 1) / wide)];
        for (int i = wide * at + 1; i <= wide * at + wide && i < n; i++)
          q.channel[c].tree_children.push_back(order[static_cast<size_t>(i)]);
      }
      auto plan = build_plan(algo("tree"), q);
      REQUIRE_MESSAGE(plan.ok(), (plan.ok() ? "" : plan.status().error().message));
      out.push_back(*plan);
    }
    return out;
  };
  const auto follows = [](const PlanSet &plans) {
    for (const auto &plan : plans)
      for (const PlanLane &lane : plan->lanes) {
        const PlanRequest::Channel &c = plan->request.channel[lane.group];
        for (const auto *links : {&lane.recv, &lane.send})
          for (const tutti_link &l : *links)
            if (l.peer != c.tree_parent &&
                std::find(c.tree_children.begin(), c.tree_children.end(), l.peer) == c.tree_children.end())
              return false;
      }
    return true;
  };
  for (const int n : {2, 3, 4, 7, 16, 17})
    for (const uint32_t channels : {1u, 2u, 3u})
      for (const uint32_t flags : {0u, 2u, 4u, 6u}) {
        const PlanSet plans = built(TUTTI_COLL_ALL_REDUCE, n, channels, flags);
        CHECK_MESSAGE(wrong(plans, flags & TUTTI_REQ_IN_PLACE) == "", n << " ranks, " << channels << " channels");
        if (n > 4) CHECK(follows(plans) == (channels > 1));
        if (flags == 0) {
          const PlanSet barrier = built(TUTTI_COLL_BARRIER, n, channels, 0);
          CHECK(wrong(barrier, false) == "");
          CHECK(follows(barrier));
        }
      }
}

TEST_CASE("all_gather and reduce_scatter are right for blocks of different sizes, some empty, without being asked for that") {
  const std::vector<std::vector<int32_t>> layouts = {{0, 0},       {0, 0, 0},       {0, 0, 0, 0, 0, 0},
                                                     {0, 0, 1, 1}, {0, 1, 2, 3, 4}, {0, 0, 0, 1, 1, 1}};
  int composed = 0;
  for (const std::string &algorithm : algorithms())
    for (const auto &host : layouts)
      for (const tutti_coll coll : {tutti_coll{TUTTI_COLL_ALL_GATHER}, tutti_coll{TUTTI_COLL_REDUCE_SCATTER}})
        for (const uint32_t flags : {0u, 2u, 4u, 6u})
          for (const uint32_t channels : {1u, 3u}) {
            const Case c{coll, static_cast<int>(host.size()), -1, channels, flags, false};
            const PlanSet plans = on_hosts(algorithm, c, host);
            if (plans.empty()) continue;
            composed += algorithm == "hier" && host.back() > 0;
            for (const uint64_t block : {uint64_t{8}, uint64_t{1000}, uint64_t{5000}}) {
              RunOptions run;
              run.unequal = true;
              run.block = block;
              run.in_place = flags & TUTTI_REQ_IN_PLACE;
              run.run.slice_bytes = 128;
              CHECK_MESSAGE(run_and_verify(plans, run) == "",
                            algorithm << " " << c.name() << " hosts " << host.back() + 1 << " block " << block);
            }
          }
  CHECK(composed > 0);
}

TEST_CASE("a hierarchical plan serves every collective but alltoall on equal hosts, and sends each byte across once per host") {
  const std::vector<int32_t> host = {0, 0, 0, 0, 1, 1, 1, 1};
  for (tutti_coll coll = 0; coll <= TUTTI_COLL_BARRIER; coll++) {
    const PlanSet plans = on_hosts("hier", {coll, 8, coll_has_root(coll) ? 2 : -1, 1, 0, false}, host);
    CHECK(plans.empty() == (coll == TUTTI_COLL_ALL_TO_ALL));
  }
  const PlanSet plans = on_hosts("hier", {TUTTI_COLL_BROADCAST, 8, 2, 1, 0, false}, host);
  int across = 0;
  for (const auto &p : plans)
    for (const PlanLane &lane : p->lanes)
      for (const tutti_link &l : lane.send)
        across += host[static_cast<size_t>(p->request.rank)] != host[static_cast<size_t>(l.peer)];
  CHECK(across <= 2); // of the two trees, each with its half
}

TEST_CASE("rounds and bytes are what the methods say") {
  for (const int n : {2, 3, 5, 8, 13, 16, 64}) {
    const uint32_t rounds = log2_up(n);
    const bool power = (n & (n - 1)) == 0;
    for (const tutti_coll coll : {tutti_coll{TUTTI_COLL_ALL_GATHER}, tutti_coll{TUTTI_COLL_REDUCE_SCATTER}}) {
      const PlanStats s = stats("pat", {coll, n, -1, 1, 0, false});
      CHECK(s.rounds == rounds);
      CHECK(s.bytes_per_byte == doctest::Approx(double(n - 1) / n));
      CHECK(stats("pat", {coll, n, -1, 1, TUTTI_REQ_MANY_SLICES, false}).bytes_per_byte == doctest::Approx(double(n - 1) / n));
      CHECK(stats("rhd", {coll, n, -1, 1, 0, false}).rounds <= rounds + (power ? 0 : 2));
    }
    CHECK(stats("rhd", {TUTTI_COLL_ALL_REDUCE, n, -1, 1, 0, false}).rounds <= (power ? rounds : rounds + 1));
    if (power)
      CHECK(stats("rhd", {TUTTI_COLL_ALL_REDUCE, n, -1, 1, TUTTI_REQ_MANY_SLICES, false}).bytes_per_byte ==
            doctest::Approx(2.0 * (n - 1) / n));
    CHECK(stats("bruck", {TUTTI_COLL_ALL_TO_ALL, n, -1, 1, 0, false}).rounds == rounds);
    CHECK(stats("pairwise", {TUTTI_COLL_ALL_TO_ALL, n, -1, 1, 0, false}).bytes_per_byte == doctest::Approx(double(n - 1) / n));
    for (const tutti_coll coll : {tutti_coll{TUTTI_COLL_BROADCAST}, tutti_coll{TUTTI_COLL_REDUCE},
                                  tutti_coll{TUTTI_COLL_GATHER}, tutti_coll{TUTTI_COLL_SCATTER}})
      for (const int root : {0, n / 2, n - 1}) CHECK(stats("binomial", {coll, n, root, 1, 0, false}).rounds <= rounds);
    CHECK(stats("tree", {TUTTI_COLL_ALL_REDUCE, n, -1, 1, 0, false}).rounds <= 2 * rounds);
    CHECK(stats("tree", {TUTTI_COLL_ALL_REDUCE, n, -1, 1, 0, false}).bytes_per_byte <= 2);
    CHECK(stats("tree", {TUTTI_COLL_BROADCAST, n, n / 2, 1, 0, false}).rounds <= rounds + 1);
    CHECK(stats("tree", {TUTTI_COLL_BROADCAST, n, n / 2, 1, 0, false}).bytes_per_byte <= 1);
  }
}

TEST_CASE("an operation of a few bytes between two ranks is one message each way at most, and nothing waits for its way back") {
  const auto sends = [](const PlanSet &plans) {
    uint32_t n = 0;
    for (const auto &p : plans)
      for (const PlanLane &lane : p->lanes)
        for (const tutti_step &s : lane.steps) n += s.repeat * s.send_count;
    return n;
  };
  for (const tutti_coll coll : {tutti_coll{TUTTI_COLL_BROADCAST}, tutti_coll{TUTTI_COLL_REDUCE}, tutti_coll{TUTTI_COLL_GATHER},
                                tutti_coll{TUTTI_COLL_SCATTER}})
    for (const int root : {0, 1}) {
      const PlanSet plans = build("direct", {coll, 2, root, 1, 0, false});
      CHECK(sends(plans) == 1);
      CHECK(plans[static_cast<size_t>(1 - root)]->lanes.size() == 1);
      CHECK(plans[static_cast<size_t>(1 - root)]->lanes[0].steps.size() == 1);
    }
  for (const tutti_coll coll : {tutti_coll{TUTTI_COLL_ALL_REDUCE}, tutti_coll{TUTTI_COLL_BARRIER},
                                tutti_coll{TUTTI_COLL_ALL_GATHER}, tutti_coll{TUTTI_COLL_REDUCE_SCATTER}})
    CHECK(sends(build("direct", {coll, 2, -1, 1, 0, false})) == 2);
}

// docs/determinism.md, the column "for another count".
TEST_CASE(
    "algorithms whose order of additions depends on the ranks alone give the same bits for every form, count and channel") {
  struct Promise {
    const char *algorithm;
    tutti_coll coll;
    bool rounded = true; // of types, too, that are rounded at the end of each step
  };
  for (const Promise &p : {Promise{"rhd", TUTTI_COLL_ALL_REDUCE}, Promise{"direct", TUTTI_COLL_ALL_REDUCE},
                           Promise{"rhd", TUTTI_COLL_REDUCE_SCATTER}, Promise{"direct", TUTTI_COLL_REDUCE_SCATTER},
                           Promise{"pat", TUTTI_COLL_REDUCE_SCATTER, false}, Promise{"direct", TUTTI_COLL_REDUCE},
                           Promise{"binomial", TUTTI_COLL_REDUCE}})
    for (const int n : {2, 3, 5, 6, 8, 13}) {
      const bool rooted = coll_has_root(p.coll);
      const auto result = [&](uint32_t channels, uint32_t flags, size_t elements, uint64_t slice) {
        const auto all =
            bits_of(build(p.algorithm, {p.coll, n, rooted ? n / 2 : -1, channels, flags, false}), elements, slice, p.rounded);
        std::vector<uint64_t> per_rank; // the same in all elements of a rank
        for (int r = 0; r < n; r++) {
          const size_t at = static_cast<size_t>(r) * elements;
          if (rooted && r != n / 2) continue;
          for (size_t i = 0; i < elements; i++) CHECK(all[at + i] == all[at]);
          per_rank.push_back(all[at]);
        }
        return per_rank;
      };
      const auto once = result(1, 0, 1, 4096);
      CHECK_MESSAGE(result(1, TUTTI_REQ_MANY_SLICES, 500, 64) == once, p.algorithm << " n=" << n << " in slices");
      CHECK_MESSAGE(result(3, TUTTI_REQ_MANY_SLICES, 777, 128) == once, p.algorithm << " n=" << n << " in channels");
      if (p.coll == TUTTI_COLL_ALL_REDUCE)
        for (const uint64_t bits : once) CHECK(bits == once[0]);
    }
}
