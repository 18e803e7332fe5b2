// The formulas of `tutti plan volume` against bytes that are counted: in simulations of real plans, and in a fat tree that is
// built.
#include "plan/simulate.h"
#include "plans.h"
#include "tools/perf.h"
#include "tools/plan_volume.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <map>
#include <nlohmann/json.hpp>

using namespace plans;
using namespace tutti::tools;

namespace {

double value(const VolumeArgs &args, std::string_view what) {
  const auto all = volumes(args);
  REQUIRE_MESSAGE(all.ok(), (all.ok() ? "" : all.status().error().message));
  for (const Volume &v : *all)
    if (v.what.find(what) == 0) return v.value;
  FAIL("no line of topic " << args.topic << " begins with " << what);
  return -1;
}
VolumeArgs about(const char *topic, int n, uint64_t bytes) {
  VolumeArgs a;
  a.topic = topic;
  a.ranks = n;
  a.bytes = bytes;
  return a;
}

// What ranks send and receive in a simulation.
struct Counted {
  std::vector<double> sent, received;
  double rounds = 0;
  double all() const {
    double sum = 0;
    for (const double b : sent) sum += b;
    return sum;
  }
  double busiest() const { return *std::max_element(sent.begin(), sent.end()); }
  bool alike() const { return busiest() == *std::min_element(sent.begin(), sent.end()); }
};
Counted counted(std::string_view algorithm, tutti_coll coll, int n, uint64_t bytes, int root = -1, uint32_t flags = 0) {
  const PlanSet plans = build(algorithm, {coll, n, root, 1, flags, false});
  REQUIRE(!plans.empty());
  PlanStats stats;
  REQUIRE(check_plans(plans, {}, &stats).empty());
  SimulateOptions options;
  options.bytes = bytes;
  const auto s = simulate(plans, options);
  REQUIRE(s.ok());
  Counted c{std::vector<double>(static_cast<size_t>(n)), std::vector<double>(static_cast<size_t>(n)), 1.0 * stats.rounds};
  for (size_t w = 0; w < s->wires.size(); w++) {
    c.sent[static_cast<size_t>(s->wires[w].src)] += static_cast<double>(s->wire_bytes[w]);
    c.received[static_cast<size_t>(s->wires[w].dst)] += static_cast<double>(s->wire_bytes[w]);
  }
  return c;
}
uint64_t for_ranks(int n) { // bytes that cut into equal chunks
  return static_cast<uint64_t>(n) * 4096;
}

} // namespace

TEST_CASE("what the formulas say of a ring is what its plans send") {
  for (const int n : {2, 3, 4, 8, 17, 64}) {
    CAPTURE(n);
    const VolumeArgs args = about("ring", n, for_ranks(n));
    const Counted reduce = counted("ring", TUTTI_COLL_ALL_REDUCE, n, args.bytes);
    CHECK(reduce.alike());
    CHECK(value(args, "all_reduce, sent per rank") == doctest::Approx(reduce.busiest()));
    CHECK(value(args, "all_reduce, all ranks together") == reduce.all());
    CHECK(value(args, "all_reduce, messages") == reduce.rounds);
    for (const tutti_coll coll : {TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_ALL_GATHER}) {
      const Counted half = counted("ring", coll, n, args.bytes);
      CHECK(half.alike());
      CHECK(value(args, "reduce_scatter or all_gather, sent per rank") == doctest::Approx(half.busiest()));
      CHECK(value(args, "reduce_scatter or all_gather, all ranks together") == half.all());
      CHECK(value(args, "reduce_scatter or all_gather, messages") == half.rounds);
    }
    for (const tutti_coll coll : {TUTTI_COLL_BROADCAST, TUTTI_COLL_REDUCE}) {
      const Counted rooted = counted("ring", coll, n, args.bytes, n / 2);
      CHECK(value(args, "broadcast or reduce, sent by the busiest rank") == rooted.busiest());
      CHECK(value(args, "broadcast or reduce, all ranks together") == rooted.all());
    }
  }
}

TEST_CASE("what the formulas say of the double binary tree is what its plans send") {
  for (const int n : {2, 3, 4, 5, 7, 8, 16, 31, 33, 64, 200}) {
    CAPTURE(n);
    const VolumeArgs args = about("tree", n, for_ranks(n));
    const Counted reduce = counted("tree", TUTTI_COLL_ALL_REDUCE, n, args.bytes);
    CHECK(value(args, "all_reduce, sent by the busiest rank") == reduce.busiest());
    CHECK(value(args, "all_reduce, all ranks together") == reduce.all());
    CHECK(value(args, "all_reduce, messages") == reduce.rounds);
    for (const tutti_coll coll : {TUTTI_COLL_BROADCAST, TUTTI_COLL_REDUCE}) {
      const Counted rooted = counted("tree", coll, n, args.bytes, 0);
      CHECK(value(args, "broadcast or reduce, sent by the busiest rank") == rooted.busiest());
      CHECK(value(args, "broadcast or reduce, all ranks together") == rooted.all());
    }
  }
}

// No plan has a switch in it; a rank that all others send to, and that sends the sum to all, stands in for it.
TEST_CASE("a switch that adds up leaves each rank its buffer to send and the result to receive") {
  for (const int n : {2, 8, 31}) {
    CAPTURE(n);
    const VolumeArgs args = about("collnet", n, 4096 * static_cast<uint64_t>(n + 1));
    const Counted up = counted("direct", TUTTI_COLL_REDUCE, n + 1, args.bytes, n);
    const Counted down = counted("direct", TUTTI_COLL_BROADCAST, n + 1, args.bytes, n);
    for (size_t r = 0; r < static_cast<size_t>(n); r++) {
      CHECK(value(args, "all_reduce in the switches, sent") == up.sent[r] + down.sent[r]);
      CHECK(value(args, "all_reduce in the switches, received") == up.received[r] + down.received[r]);
    }
    const double ring = value(about("ring", n, args.bytes), "all_reduce, sent per rank");
    CHECK(value(args, "of what a ring sends") == doctest::Approx(static_cast<double>(args.bytes) / ring));
  }
}

TEST_CASE("data parallel training sends what rings for its collectives send") {
  for (const int n : {2, 4, 8, 64}) {
    CAPTURE(n);
    VolumeArgs args = about("ddp", n, 0);
    args.parameters = static_cast<double>(for_ranks(n)) / 2;
    args.element = 2;
    const uint64_t model = for_ranks(n);
    const Counted reduce = counted("ring", TUTTI_COLL_ALL_REDUCE, n, model);
    const double scatter = counted("ring", TUTTI_COLL_REDUCE_SCATTER, n, model).busiest();
    const double gather = counted("ring", TUTTI_COLL_ALL_GATHER, n, model).busiest();
    CHECK(value(args, "all_reduce of gradients") == reduce.busiest());
    CHECK(value(args, "all ranks together") == reduce.all());
    for (const char *topic : {"zero1", "zero2"}) {
      args.topic = topic;
      CHECK(value(args, "reduce_scatter of gradients, all_gather") == scatter + gather);
    }
    args.topic = "zero3";
    CHECK(value(args, "all_gather of parameters twice, reduce_scatter") == scatter + 2 * gather);
  }
}

TEST_CASE("tensor parallel layers send what rings for their four all_reduces send") {
  VolumeArgs args = about("tensor", 2, 0);
  args.batch = 2, args.seq = 16, args.hidden = 64, args.layers = 3, args.element = 4;
  for (const int t : {2, 4, 8}) {
    args.tensor = t;
    const auto buffer = static_cast<uint64_t>(value(args, "one all_reduce of activations"));
    CHECK(buffer == 2 * 16 * 64 * 4);
    const double one = counted("ring", TUTTI_COLL_ALL_REDUCE, t, buffer).busiest();
    CHECK(value(args, "per layer") == 4 * one);
    CHECK(value(args, "per step") == 3 * 4 * one);
  }
}

TEST_CASE("a pipeline sends each micro-batch over each boundary, forward and backward") {
  VolumeArgs args = about("pipeline", 2, 0);
  args.batch = 8, args.seq = 16, args.hidden = 64, args.stages = 4, args.element = 2;
  for (const int m : {0, 2, 8}) {
    args.micro_batches = m;
    const int parts = m ? m : args.stages;
    const auto message = static_cast<uint64_t>(value(args, "one message"));
    CHECK(message * static_cast<uint64_t>(parts) == 8 * 16 * 64 * 2);
    const double hop = counted("direct", TUTTI_COLL_BROADCAST, 2, message, 0).all(); // from one rank to the next
    CHECK(value(args, "sent by an inner stage") == 2 * parts * hop);
    CHECK(value(args, "all stages together") == 2 * parts * (args.stages - 1) * hop);
  }
  args.stages = 2; // a first and a last one, and none between
  const auto two = volumes(args);
  REQUIRE(two.ok());
  for (const Volume &v : *two) CHECK_MESSAGE(v.what.find("inner stage") == std::string::npos, v.what);
}

// What the factors mean: bytes through the busiest port of the best schedule, per byte of the size column.
TEST_CASE("bus bandwidth factors are those of tutti perf, and what the busiest rank of the best plan moves") {
  const auto all = volumes(about("busbw", 8, 0));
  REQUIRE(all.ok());
  size_t with_data = 0;
  for (const perf::Operation *op : perf::all_operations()) with_data += op->has_data;
  CHECK(all->size() == with_data);
  struct Measure {
    const char *name, *algorithm;
    tutti_coll coll;
    int root;
    bool receives;
    double at_8;
  };
  constexpr Measure kMeasures[] = {{"all_reduce", "ring", TUTTI_COLL_ALL_REDUCE, -1, false, 1.75},
                                   {"all_gather", "ring", TUTTI_COLL_ALL_GATHER, -1, false, 0.875},
                                   {"reduce_scatter", "ring", TUTTI_COLL_REDUCE_SCATTER, -1, false, 0.875},
                                   {"broadcast", "ring", TUTTI_COLL_BROADCAST, 0, false, 1},
                                   {"reduce", "ring", TUTTI_COLL_REDUCE, 0, false, 1},
                                   {"alltoall", "pairwise", TUTTI_COLL_ALL_TO_ALL, -1, false, 0.875},
                                   {"gather", "direct", TUTTI_COLL_GATHER, 0, true, 0.875},
                                   {"scatter", "direct", TUTTI_COLL_SCATTER, 0, false, 0.875}};
  for (const Measure &m : kMeasures) {
    CAPTURE(m.name);
    const std::string line = std::string(m.name) + ",";
    CHECK(value(about("busbw", 8, 0), line) == m.at_8);
    for (const int n : {2, 5, 8, 32}) {
      const double factor = value(about("busbw", n, 0), line);
      CHECK(factor == perf::find_operation(m.name)->factor.of(n));
      const Counted c = counted(m.algorithm, m.coll, n, for_ranks(n), m.root);
      const double moved = m.receives ? *std::max_element(c.received.begin(), c.received.end()) : c.busiest();
      CHECK(factor * static_cast<double>(for_ranks(n)) == doctest::Approx(moved));
    }
  }
}

TEST_CASE("a fat tree of k-port switches has the hosts, switches and cables that one gets by building it") {
  for (const int k : {2, 4, 6, 16}) {
    CAPTURE(k);
    std::map<std::string, int> ports; // in use, of each switch
    int hosts = 0, cables = 0;
    const auto connect = [&](const std::string &a, const std::string &b) {
      cables++;
      for (const auto &end : {a, b})
        if (!end.empty()) ports[end]++;
    };
    const auto name = [](const char *level, int a, int b) { return fmt::format("{} {} {}", level, a, b); };
    for (int pod = 0; pod < k; pod++)
      for (int i = 0; i < k / 2; i++)
        for (int j = 0; j < k / 2; j++) {
          connect(name("edge", pod, i), ""); // a host
          hosts++;
          connect(name("edge", pod, i), name("middle", pod, j));
          connect(name("middle", pod, i), name("core", i, j));
        }
    for (const auto &port : ports) CHECK_MESSAGE(port.second == k, port.first);
    const auto level = [&](const char *first) {
      return std::count_if(ports.begin(), ports.end(), [&](const auto &p) { return p.first.starts_with(first); });
    };
    VolumeArgs args = about("fat-tree", 2, 0);
    args.ports = k;
    CHECK(value(args, "hosts") == hosts);
    CHECK(value(args, "switches") == static_cast<double>(ports.size()));
    CHECK(value(args, "switches of the core") == static_cast<double>(level("core")));
    CHECK(value(args, "switches at the edge") == static_cast<double>(level("edge")));
    CHECK(value(args, "switches at the edge") == static_cast<double>(level("middle")));
    CHECK(value(args, "cables") == cables);
  }
}

TEST_CASE("each volume comes with formula, inputs and result, as text and as JSON") {
  const auto all = volumes(VolumeArgs());
  REQUIRE(all.ok());
  const auto j = nlohmann::json::parse(volume_text(*all, true));
  const std::string text = volume_text(*all, false);
  REQUIRE(j.size() == all->size());
  for (size_t i = 0; i < j.size(); i++) {
    const Volume &v = (*all)[i];
    CHECK(j[i]["value"] == v.value);
    CHECK(j[i]["inputs"].size() == v.inputs.size());
    CHECK(text.find(v.formula) != std::string::npos);
    for (const auto &[letter, given] : v.inputs) {
      CHECK(v.formula.find(letter) != std::string::npos);
      CHECK(j[i]["inputs"][std::string(1, letter)] == given);
    }
  }
  // The letters of a formula are its inputs: none is missing.
  for (const Volume &v : *all) {
    std::string rest = v.formula;
    for (const char *word : {"floor", "log2", "min"})
      if (const size_t at = rest.find(word); at != std::string::npos) rest.erase(at, std::string(word).size());
    for (const char c : rest)
      if (std::isalpha(static_cast<unsigned char>(c)))
        CHECK_MESSAGE(std::any_of(v.inputs.begin(), v.inputs.end(), [&](const auto &in) { return in.first == c; }), v.formula);
  }
}

TEST_CASE("a topic that is none and a switch with an odd number of ports are refused") {
  VolumeArgs args;
  args.topic = "rings";
  REQUIRE_FALSE(volumes(args).ok());
  CHECK(volumes(args).status().error().message.find("no topic \"rings\"; all, or one of busbw, ring, tree") == 0);
  args.topic = "fat-tree";
  args.ports = 5;
  CHECK_FALSE(volumes(args).ok());
  args.topic = "ring";
  CHECK(volumes(args).ok());
}
