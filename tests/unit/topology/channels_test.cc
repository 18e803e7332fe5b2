#include "topology/channels.h"
#include "topology/machine_file.h"
#include "topology/optimum.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <numeric>

using namespace tutti;

namespace {

Machine load(const std::string &name) {
  auto file = MachineFile::read(std::string(TUTTI_SOURCE_DIR) + "/tests/data/topology/" + name);
  REQUIRE(file.ok());
  auto machine = file->machine();
  REQUIRE(machine.ok());
  return std::move(machine).value();
}

// All GPUs on one switch of the given bandwidth each: whatever order, a ring carries just that.
Machine star(int gpus, double gbps) {
  Machine m;
  const int sw = m.add({.kind = NodeKind::nvs, .id = "0"});
  for (int i = 0; i < gpus; i++)
    m.connect_both(m.add({.kind = NodeKind::gpu, .id = std::to_string(i), .number = i}), sw, LinkKind::nvl, gbps);
  return m;
}
// Each GPU joined to each other.
Machine mesh(int gpus, double gbps) {
  Machine m;
  for (int i = 0; i < gpus; i++) m.add({.kind = NodeKind::gpu, .id = std::to_string(i), .number = i});
  for (int a = 0; a < gpus; a++)
    for (int b = 0; b < a; b++) m.connect_both(a, b, LinkKind::nvl, gbps);
  return m;
}

double brute_force(Shape shape, size_t n, const std::vector<double> &cost) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  const Hamilton h(shape, n);
  double least = 1e300;
  do least = std::min(least, h.cost_of(order, cost));
  while (std::next_permutation(order.begin(), order.end()));
  return least;
}

} // namespace

TEST_CASE("the cheapest ring and chain are what trying all orders finds") {
  uint32_t seed = 7;
  for (size_t n = 2; n <= 7; n++)
    for (Shape shape : {Shape::ring, Shape::chain}) {
      std::vector<double> cost(n * n);
      for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) {
          cost[a * n + b] = static_cast<double>((seed = seed * 1664525 + 1013904223) >> 20);
          if (shape == Shape::chain && b < a) cost[a * n + b] = cost[b * n + a];
        }
      const Hamilton h(shape, n);
      const std::vector<int> order = h.cheapest(cost);
      CHECK(h.cost_of(order, cost) == doctest::Approx(brute_force(shape, n, cost)));
      CHECK(h.lower_bound(order, cost) == doctest::Approx(h.cost_of(order, cost)));
      std::vector<int> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      for (size_t i = 0; i < n; i++) CHECK(sorted[i] == static_cast<int>(i));
    }
}
TEST_CASE("above the exact sizes a ring still visits all, and no bound is above its cost") {
  const size_t n = Hamilton::kMostExact + 8;
  std::vector<double> cost(n * n);
  for (size_t a = 0; a < n; a++) // on a circle: neighbours are 1 apart
    for (size_t b = 0; b < n; b++) {
      const size_t d = a > b ? a - b : b - a;
      cost[a * n + b] = static_cast<double>(std::min(d, n - d));
    }
  const Hamilton h(Shape::ring, n);
  const std::vector<int> order = h.cheapest(cost);
  CHECK(h.cost_of(order, cost) == doctest::Approx(static_cast<double>(n)));
  CHECK(h.lower_bound(order, cost) == doctest::Approx(static_cast<double>(n)));
}
TEST_CASE("the bound of an allgather is that of the narrowest set of nodes") {
  const Machine m = star(4, 10);
  CHECK(allgather_optimum(m, m.places()) == doctest::Approx(10));
  const Machine full = mesh(5, 3);
  CHECK(allgather_optimum(full, full.places()) == doctest::Approx(12));
  // Two pairs behind one link of 8: two blocks must come out of two places, 3 * 8 / 2.
  Machine pairs;
  const int left = pairs.add({.kind = NodeKind::pci, .id = "l"}), right = pairs.add({.kind = NodeKind::pci, .id = "r"});
  pairs.connect_both(left, right, LinkKind::pci, 8);
  for (int i = 0; i < 4; i++)
    pairs.connect_both(pairs.add({.kind = NodeKind::gpu, .id = std::to_string(i), .number = i}), i < 2 ? left : right,
                       LinkKind::pci, 100);
  CHECK(allgather_optimum(pairs, pairs.places()) == doctest::Approx(12));
  CHECK(crossing_bound(pairs, pairs.places()) == doctest::Approx(8)); // a ring passes the link once, whatever it holds
  CHECK(crossing_bound(full, full.places()) == doctest::Approx(12));
  const Machine one = star(1, 10);
  CHECK(allgather_optimum(one, one.places()) == 0);
}
TEST_CASE("rings reach the bound where it is known that they can") {
  for (int gpus : {2, 3, 8, 16, 20, 72, 100}) {
    const Channels c = search_channels(star(gpus, 50));
    CHECK(c.rings.total() == doctest::Approx(50));
    CHECK(c.rings.channels.size() == 1);
  }
  for (int gpus : {3, 4, 5, 8}) { // n-1 rings use every link of a mesh; of 4, n-1 do not and 6 do
    const Channels c = search_channels(mesh(gpus, 20), {.enough = 1});
    CHECK(c.rings.total() == doctest::Approx(20 * (gpus - 1)));
  }
}
TEST_CASE("few channels are preferred when more would gain little") {
  const Channels c = search_channels(load("two_switches.xml"));
  CHECK(c.rings.channels.size() == 2);
  CHECK(c.rings.gbps == doctest::Approx(40));
  CHECK(c.rings.bound >= 80);
  CHECK(c.rings.bound <= c.optimum * (1 + 1e-9));
  const Channels many = search_channels(load("two_switches.xml"), {.min_channels = 5});
  CHECK(many.rings.channels.size() >= 5);
}
TEST_CASE("a search gives the same answer every time, and the graph file of it reads back") {
  const Machine m = load("two_switches.xml");
  const Channels a = search_channels(m), b = search_channels(m);
  const std::string xml = graph_xml(graphs_of(m, a));
  CHECK(xml == graph_xml(graphs_of(m, b)));
  const auto read = parse_graphs(xml, "g.xml");
  REQUIRE(read.ok());
  REQUIRE(read->size() == 3);
  CHECK(graph_xml(*read) == xml);
  const auto laid = lay_graph((*read)[0], m, a, "g.xml");
  REQUIRE(laid.ok());
  CHECK(laid->total() == doctest::Approx(a.rings.total()));
  const auto chains = lay_graph((*read)[1], m, a, "g.xml");
  REQUIRE(chains.ok());
  CHECK(chains->total() > 0.9 * a.chains.total());
}
TEST_CASE("each port has a head close to it, and equally close ones are shared fairly") {
  const Machine m = load("two_switches.xml");
  const Channels c = search_channels(m);
  REQUIRE(c.heads.size() == 2);
  CHECK(m.node(c.heads[0].port).id == "mlx5_0");
  CHECK(m.node(c.places[static_cast<size_t>(c.heads[0].place)]).number == 0);
  CHECK(m.node(c.places[static_cast<size_t>(c.heads[1].place)]).number == 2);
  Machine two = star(3, 10);
  const int nic = two.add({.kind = NodeKind::nic, .id = "n"});
  two.connect_both(nic, 0, LinkKind::pci, 24);
  for (const char *port : {"a", "b"})
    two.connect_both(two.add({.kind = NodeKind::net, .id = port, .parent = nic}), nic, LinkKind::net, 25);
  const Channels shared = search_channels(two);
  REQUIRE(shared.heads.size() == 2);
  CHECK(shared.heads[0].place != shared.heads[1].place);
}
TEST_CASE("wrong graph files are refused with the line, and graphs of other machines with what does not fit") {
  const auto message = [](const std::string &text) {
    const auto r = parse_graphs(text, "g.xml");
    return r.ok() ? "" : r.status().error().message;
  };
  CHECK(message("<graphs version=\"1\"><graph>").starts_with("g.xml:1: not well-formed"));
  CHECK(message("<system version=\"1\"/>").starts_with("g.xml:1: <system>: a graph file has <graphs>"));
  CHECK(message("<graphs version=\"1\">\n<graph pattern=\"4\"/></graphs>").starts_with("g.xml:2: <graph>: id=\"\""));
  const std::string open = "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" typeintra=\"NVL\" nchannels=\"1\">\n";
  CHECK(message(open + "<channel><gpu dev=\"x\"/></channel></graph></graphs>").starts_with("g.xml:3: <gpu>: dev=\"x\""));
  CHECK(message(open + "</graph></graphs>").starts_with("g.xml:2: <graph>: nchannels=\"1\", but there are 0"));
  CHECK(message("<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" typeintra=\"FAR\"/></graphs>")
            .starts_with("g.xml:2: <graph>: typeintra"));
  const Machine m = load("two_switches.xml");
  const Channels c = search_channels(m);
  const auto laid = [&](std::vector<int> gpus) {
    const auto r = lay_graph({.channels = {{std::move(gpus), {}}}}, m, c, "g");
    return r.ok() ? "" : r.status().error().message;
  };
  CHECK(laid({0, 1, 2, 3}) == "");
  CHECK(laid({0, 1, 2}) == "g: graph 0 channel 0: 3 of 4 places");
  CHECK(laid({0, 1, 1, 3}) == "g: graph 0 channel 0: 1 twice");
  CHECK(laid({0, 1, 2, 9}) == "g: graph 0 channel 0: this machine has no 9");
}
TEST_CASE("places that do not reach each other have no rings") {
  Machine m;
  m.add({.kind = NodeKind::gpu, .id = "a", .number = 0});
  m.add({.kind = NodeKind::gpu, .id = "b", .number = 1});
  const Channels c = search_channels(m);
  CHECK(c.rings.channels.empty());
  CHECK(c.optimum == 0);
}
