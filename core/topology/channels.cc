#include "topology/channels.h"
#include "topology/optimum.h"
#include "topology/ports.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

std::vector<Head> find_heads(const Machine &machine, const std::vector<int> &places) {
  std::vector<Head> heads;
  std::vector<std::string> notes;
  if (places.empty() || machine.node(places.front()).kind == NodeKind::nic) return heads;
  for (const Port &p : find_ports(machine, places, {.slow = true}, &notes)) heads.push_back({p.nodes.front(), p.nearest});
  return heads;
}

// A ring begins at place 0; a chain at the end that is closer to a port, channel i preferring port i.
void turn(Channels *c) {
  for (Laid &ring : c->rings.channels) {
    const auto first = std::find(ring.order.begin(), ring.order.end(), 0) - ring.order.begin();
    std::rotate(ring.order.begin(), ring.order.begin() + first, ring.order.end());
    std::rotate(ring.hops.begin(), ring.hops.begin() + first, ring.hops.end());
  }
  for (size_t i = 0; i < c->chains.channels.size() && !c->heads.empty(); i++) {
    Laid &chain = c->chains.channels[i];
    if (chain.order.back() != c->heads[i % c->heads.size()].place) continue;
    std::reverse(chain.order.begin(), chain.order.end());
    std::reverse(chain.hops.begin(), chain.hops.end());
  }
}

PathKind worst_of(const Packing &p, const Routes &routes) {
  PathKind worst = PathKind::loc;
  for (const Laid &laid : p.channels)
    for (const Hop &h : laid.hops) worst = std::max(worst, routes.between(h.from, h.to)[static_cast<size_t>(h.route)].kind);
  return worst;
}

nlohmann::json laid_json(const Packing &p, const Routes &routes) {
  nlohmann::json all = nlohmann::json::array();
  for (const Laid &laid : p.channels) {
    nlohmann::json hops = nlohmann::json::array();
    for (const Hop &h : laid.hops) {
      const Route &r = routes.between(h.from, h.to)[static_cast<size_t>(h.route)];
      hops.push_back({{"from", h.from}, {"to", h.to}, {"type", kind_name(r.kind)}, {"links", r.links}});
    }
    all.push_back({{"order", laid.order}, {"hops", hops}});
  }
  return {{"channels", all}, {"gbps", p.gbps}, {"total_gbps", p.total()}, {"bound_gbps", p.bound}};
}

// Between GPUs (without any, processors), NICs and ports.
nlohmann::json paths_json(const Machine &machine, const Paths &paths) {
  std::vector<int> ends = machine.of_kind(NodeKind::gpu);
  if (ends.empty()) ends = machine.of_kind(NodeKind::cpu);
  for (const NodeKind kind : {NodeKind::nic, NodeKind::net})
    for (int node : machine.of_kind(kind)) ends.push_back(node);
  nlohmann::json all = nlohmann::json::array();
  for (int a : ends)
    for (int b : ends)
      if (const Path &p = paths.between(a, b); a != b && p.kind != PathKind::dis)
        all.push_back({{"from", a}, {"to", b}, {"type", kind_name(p.kind)}, {"gbps", p.gbps}, {"latency_us", p.latency_us}});
  return all;
}

} // namespace

Channels search_channels(const Machine &machine, const PackRules &rules) {
  Channels c;
  c.places = machine.places();
  c.optimum = allgather_optimum(machine, c.places);
  const Routes routes(machine, c.places);
  PackRules with = rules;
  if (c.optimum > 0) with.bound = std::min({with.bound, c.optimum, crossing_bound(machine, c.places)});
  c.rings = pack(Pattern::ring, machine, routes, with);
  c.chains = pack(Pattern::chain, machine, routes, with);
  c.heads = find_heads(machine, c.places);
  turn(&c);
  return c;
}

std::vector<Graph> graphs_of(const Machine &machine, const Channels &c) {
  const Routes routes(machine, c.places);
  const auto dev = [&](int place) { return machine.node(c.places[static_cast<size_t>(place)]).number; };
  const auto graph = [&](int id, int pattern, const Packing &p) {
    Graph g{id, pattern, p.gbps, worst_of(p, routes), {}};
    for (const Laid &laid : p.channels) {
      g.channels.emplace_back();
      for (int place : laid.order) g.channels.back().gpus.push_back(dev(place));
    }
    return g;
  };
  Graph collnet{2, Graph::kCollnet, 0, PathKind::loc, {}};
  const Paths paths(machine, {.nvlink = true, .pxn = false});
  for (const Head &h : c.heads) {
    const Path &p = paths.between(c.places[static_cast<size_t>(h.place)], h.port);
    collnet.gbps = collnet.channels.empty() ? p.gbps : std::min(collnet.gbps, p.gbps);
    collnet.worst = std::max(collnet.worst, p.kind);
    collnet.channels.push_back({{dev(h.place)}, {std::max(0, machine.node(h.port).number)}});
    for (int place = 0; place < static_cast<int>(c.places.size()); place++)
      if (place != h.place) collnet.channels.back().gpus.push_back(dev(place));
  }
  return {graph(0, Graph::kRing, c.rings), graph(1, Graph::kTree, c.chains), collnet};
}

Result<Packing> lay_graph(const Graph &graph, const Machine &machine, const Channels &c, const std::string &name) {
  const Routes routes(machine, c.places);
  if (c.places.size() < 2 || !routes.connected())
    return fail(Code::invalid_argument, "{}: this machine has no two places that reach each other", name);
  std::vector<std::vector<int>> orders;
  for (size_t i = 0; i < graph.channels.size(); i++) {
    std::vector<int> order;
    for (int dev : graph.channels[i].gpus) {
      const auto at = std::find_if(c.places.begin(), c.places.end(), [&](int p) { return machine.node(p).number == dev; });
      const int place = static_cast<int>(at - c.places.begin());
      if (at == c.places.end())
        return fail(Code::invalid_argument, "{}: graph {} channel {}: this machine has no {}", name, graph.id, i, dev);
      if (std::find(order.begin(), order.end(), place) != order.end())
        return fail(Code::invalid_argument, "{}: graph {} channel {}: {} twice", name, graph.id, i, dev);
      order.push_back(place);
    }
    if (order.size() != c.places.size())
      return fail(Code::invalid_argument, "{}: graph {} channel {}: {} of {} places", name, graph.id, i, order.size(),
                  c.places.size());
    orders.push_back(std::move(order));
  }
  if (orders.empty()) return Packing{};
  return lay_orders(graph.pattern == Graph::kRing ? Pattern::ring : Pattern::chain, machine, routes, orders);
}

std::string machine_json(const Machine &machine, const Paths &paths, const Channels &c) {
  using nlohmann::json;
  json out{{"nodes", json::array()}, {"links", json::array()}, {"places", c.places}, {"notes", machine.notes()}};
  for (const MachineNode &n : machine.nodes()) {
    json node{{"type", kind_name(n.kind)}, {"id", n.id}, {"label", n.label()}};
    if (n.number >= 0) node["number"] = n.number;
    if (n.parent >= 0) node["parent"] = n.parent;
    if (n.rail >= 0) node["rail"] = n.rail;
    if (n.latency_us > 0) node["latency_us"] = n.latency_us;
    out["nodes"].push_back(std::move(node));
  }
  for (const MachineLink &l : machine.links())
    out["links"].push_back({{"from", l.from}, {"to", l.to}, {"type", kind_name(l.kind)}, {"gbps", l.gbps}});
  out["paths"] = paths_json(machine, paths);
  const Routes routes(machine, c.places);
  out["rings"] = laid_json(c.rings, routes);
  out["chains"] = laid_json(c.chains, routes);
  out["heads"] = json::array();
  for (const Head &h : c.heads) out["heads"].push_back({{"port", h.port}, {"place", h.place}});
  out["allgather_optimum_gbps"] = c.optimum;
  return out.dump(2) + "\n";
}

std::string machine_dot(const Machine &machine) {
  std::string out = "graph machine {\n  node [shape=box, fontname=\"sans-serif\"];\n";
  for (size_t i = 0; i < machine.nodes().size(); i++) {
    const MachineNode &n = machine.nodes()[i];
    out += fmt::format("  n{} [label=\"{}\"{}];\n", i, n.label(), n.kind == NodeKind::gpu ? ", style=bold" : "");
  }
  for (const MachineLink &l : machine.links()) {
    const int back = machine.find_link(l.to, l.from, l.kind);
    const bool same = back >= 0 && machine.link(back).gbps == l.gbps;
    if (same && l.from > l.to) continue; // both ways are one line
    out += fmt::format("  n{} -- n{} [label=\"{} {:g}\"{}];\n", l.from, l.to, kind_name(l.kind), l.gbps,
                       same ? "" : ", dir=forward");
  }
  return out + "}\n";
}

} // namespace tutti
