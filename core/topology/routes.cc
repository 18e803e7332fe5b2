#include "topology/routes.h"
#include <algorithm>

namespace tutti {
namespace {

// What an Intel processor adds is not on the wire.
Route route_of(const Machine &m, const Path &p) {
  Route r{p.links, p.expansion, p.kind};
  const auto wire = [&](int l) { return m.link(l).kind == LinkKind::net; };
  if (p.expansion == 1 || std::none_of(p.links.begin(), p.links.end(), wire)) return r;
  for (int l : p.links) r.shares.push_back(wire(l) ? 1 / p.expansion : 1);
  return r;
}

// As a path, or where that may not be taken, through the memory next to `cpu`.
Route by_level(const Machine &m, const Paths &paths, const Path &p, int from, int to, PathKind level, int cpu) {
  if (p.kind <= level || p.kind == PathKind::dis || cpu < 0) return route_of(m, p);
  const Path &in = paths.between(from, cpu), &out = paths.between(cpu, to);
  if (in.kind == PathKind::dis || out.kind == PathKind::dis) return route_of(m, p);
  Route r{in.links, 1, std::max({in.kind, out.kind, PathKind::phb})};
  r.links.insert(r.links.end(), out.links.begin(), out.links.end());
  return r;
}

// The ways of merged ports side by side.
Route joined(const Machine &m, const std::vector<int> &nodes, std::vector<Route> ways) {
  if (ways.size() == 1) return std::move(ways.front());
  double all = 0;
  for (int node : nodes) all += m.gbps_up(node);
  Route r{{}, 1, PathKind::loc};
  for (size_t i = 0; i < ways.size(); i++) {
    r.kind = std::max(r.kind, ways[i].kind);
    r.links.insert(r.links.end(), ways[i].links.begin(), ways[i].links.end());
    for (size_t l = 0; l < ways[i].links.size(); l++) r.shares.push_back(ways[i].bytes_on(l) * m.gbps_up(nodes[i]) / all);
  }
  return r;
}

} // namespace

Routes::Routes(const Machine &machine, const std::vector<int> &places, const Ports &ports, RouteRules rules)
    : outside_(!ports.empty()), n_(places.size() + outside_), ports_(ports.size()), all_(n_ * n_) {
  const Paths best(machine, {.nvlink = true, .pxn = false}), without(machine, {.nvlink = false, .pxn = false});
  const auto is_gpu = [&](int node) { return machine.node(node).kind == NodeKind::gpu; };
  for (size_t a = 0; a < places.size(); a++)
    for (size_t b = 0; b < places.size(); b++) {
      if (a == b) continue;
      const int from = places[a], to = places[b], cpu = is_gpu(from) && is_gpu(to) ? machine.cpu_of(from) : -1;
      const Path &p = best.between(from, to), &q = without.between(from, to);
      if (p.kind != PathKind::dis) at(a, b).push_back(by_level(machine, best, p, from, to, rules.p2p_level, cpu));
      if (p.kind == PathKind::nvb && q.kind != PathKind::dis)
        at(a, b).push_back(by_level(machine, best, q, from, to, rules.p2p_level, cpu));
    }
  if (!outside_) return;
  const Paths relayed(machine, {.nvlink = true, .pxn = rules.pxn});
  for (size_t port = 0; port < ports.size(); port++)
    for (size_t a = 0; a < places.size(); a++) {
      const int place = places[a], cpu = is_gpu(place) ? machine.cpu_of(place) : -1;
      std::vector<Route> in, out, over;
      for (int node : ports[port]) {
        in.push_back(by_level(machine, best, best.between(node, place), node, place, rules.gdr_level, cpu));
        out.push_back(by_level(machine, best, best.between(place, node), place, node, rules.gdr_level, cpu));
        over.push_back(route_of(machine, relayed.between(place, node)));
      }
      const auto add = [&](size_t from, size_t to, std::vector<Route> ways) {
        Route r = joined(machine, ports[port], std::move(ways));
        r.port = static_cast<int>(port);
        if (r.kind != PathKind::dis) at(from, to).push_back(std::move(r));
      };
      const bool relays = std::all_of(over.begin(), over.end(), [](const Route &r) { return r.kind == PathKind::pxn; });
      add(n_ - 1, a, std::move(in));
      add(a, n_ - 1, std::move(out));
      if (relays) add(a, n_ - 1, std::move(over));
    }
}

bool Routes::connected() const {
  for (size_t a = 0; a < n_; a++)
    for (size_t b = 0; b < n_; b++) {
      const size_t needed = a == b ? 0 : outside_ && (a == n_ - 1 || b == n_ - 1) ? ports_ : 1;
      if (all_[a * n_ + b].size() < needed) return false;
    }
  return true;
}

} // namespace tutti
