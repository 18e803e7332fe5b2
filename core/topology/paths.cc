// For each kind that a path may reach, and for each bandwidth from the highest down: a search in breadth over the links that
// are no worse. Whom it meets first has found its path.
#include "topology/paths.h"
#include <algorithm>
#include <array>

namespace tutti {
namespace {

struct Visit {
  int node;
  int via;    // link; -1 at the source
  int before; // index of the visit that it came from
  int depth;
  bool c2c; // passed such a link: then PCI after it is P2C
};

PathKind step_kind(const Machine &m, const MachineLink &l, bool after_c2c, bool over_gpu) {
  const NodeKind a = m.node(l.from).kind, b = m.node(l.to).kind;
  switch (l.kind) {
  case LinkKind::nvl:
    return over_gpu ? PathKind::nvb : PathKind::nvl;
  case LinkKind::c2c:
    return PathKind::c2c;
  case LinkKind::sys:
    return PathKind::sys;
  case LinkKind::pci:
    if (a == NodeKind::cpu || b == NodeKind::cpu) return after_c2c ? PathKind::p2c : PathKind::phb;
    return a == NodeKind::pci && b == NodeKind::pci ? PathKind::pxb : PathKind::pix;
  default:
    return PathKind::loc;
  }
}

// GPUs and NICs pass nothing on, but for the one GPU in the middle of NVB and the NIC in front of its ports.
bool may_pass(const Machine &m, const std::vector<Visit> &visits, const Visit &v, const MachineLink &next) {
  if (v.via < 0) return true;
  const NodeKind kind = m.node(v.node).kind;
  if (kind == NodeKind::net) return false;
  if (kind == NodeKind::nic) return m.node(next.to).kind == NodeKind::net || m.node(visits.front().node).kind == NodeKind::net;
  if (kind != NodeKind::gpu) return true;
  return v.depth == 1 && m.link(v.via).kind == LinkKind::nvl && m.node(visits.front().node).kind == NodeKind::gpu &&
         next.kind == LinkKind::nvl && m.node(next.to).kind == NodeKind::gpu;
}

std::vector<Visit> search(const Machine &m, int source, PathKind worst, double least_gbps, bool nvlink) {
  std::vector<Visit> visits{{source, -1, -1, 0, false}};
  std::vector<std::array<bool, 2>> seen(m.nodes().size());
  seen[static_cast<size_t>(source)] = {true, true};
  for (size_t i = 0; i < visits.size(); i++) {
    const Visit v = visits[i];
    for (int id : m.links_from(v.node)) {
      const MachineLink &l = m.link(id);
      if (l.gbps < least_gbps || (!nvlink && l.kind == LinkKind::nvl) || !may_pass(m, visits, v, l)) continue;
      const bool over_gpu = v.via >= 0 && m.node(v.node).kind == NodeKind::gpu;
      if (step_kind(m, l, v.c2c, over_gpu) > worst) continue;
      const bool c2c = v.c2c || l.kind == LinkKind::c2c;
      bool &known = seen[static_cast<size_t>(l.to)][c2c];
      if (known) continue;
      known = true;
      visits.push_back({l.to, id, static_cast<int>(i), v.depth + 1, c2c});
    }
  }
  return visits;
}

double expansion_of(const Machine &m, const std::vector<int> &links) {
  if (m.node(m.link(links.front()).from).kind == NodeKind::cpu || m.node(m.link(links.back()).to).kind == NodeKind::cpu)
    return 1;
  for (size_t i = 1; i < links.size(); i++)
    if (const MachineNode &n = m.node(m.link(links[i]).from); n.kind == NodeKind::cpu && n.intel) return kIntelExpansion;
  return 1;
}

void finish(const Machine &m, Path *p) {
  p->expansion = expansion_of(m, p->links);
  p->gbps = m.link(p->links.front()).gbps;
  for (int l : p->links) p->gbps = std::min(p->gbps, m.link(l).gbps);
  p->gbps /= p->expansion;
  p->latency_us = 0;
  for (int l : p->links) p->latency_us += m.latency_us(m.link(l));
}

} // namespace

std::string_view kind_name(PathKind kind) {
  static constexpr std::string_view kNames[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
  return kNames[static_cast<size_t>(kind)];
}

Paths::Paths(const Machine &machine, PathRules rules)
    : nodes_(machine.nodes().size()), paths_(machine.nodes().size() * machine.nodes().size()) {
  const int n = static_cast<int>(nodes_);
  for (int source = 0; source < n; source++) from(machine, source, rules);
  const auto is_gpu = [&](int i) { return machine.node(i).kind == NodeKind::gpu; };
  for (int gpu = 0; gpu < n; gpu++)
    for (int other = 0; other < n; other++)
      if (is_gpu(gpu) && !is_gpu(other)) mirror(machine, gpu, other);
  for (int gpu = 0; gpu < n; gpu++)
    for (int net = 0; net < n && rules.pxn; net++)
      if (is_gpu(gpu) && machine.node(net).kind == NodeKind::net) add_pxn(machine, gpu, net);
}

void Paths::from(const Machine &machine, int source, PathRules rules) {
  std::vector<double> levels;
  for (const MachineLink &l : machine.links()) levels.push_back(l.gbps);
  std::sort(levels.begin(), levels.end(), std::greater<>());
  levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
  at(source, source) = {PathKind::loc, kLocGbps};
  size_t found = 1;
  for (int kind = 0; kind <= static_cast<int>(PathKind::sys); kind++) {
    std::vector<bool> reached(nodes_);
    for (const Visit &v : search(machine, source, static_cast<PathKind>(kind), 0, rules.nvlink))
      reached[static_cast<size_t>(v.node)] = true;
    const auto all = static_cast<size_t>(std::count(reached.begin(), reached.end(), true));
    for (size_t i = 0; i < levels.size() && found < all; i++) {
      const double level = levels[i];
      const std::vector<Visit> visits = search(machine, source, static_cast<PathKind>(kind), level, rules.nvlink);
      for (const Visit &v : visits) {
        Path &p = at(source, v.node);
        if (p.kind != PathKind::dis) continue;
        found++;
        p.kind = static_cast<PathKind>(kind);
        for (const Visit *at = &v; at->via >= 0; at = &visits[static_cast<size_t>(at->before)]) p.links.push_back(at->via);
        std::reverse(p.links.begin(), p.links.end());
        finish(machine, &p);
      }
    }
  }
}

// Towards a GPU the same way as from it: only there is it seen whether PCI comes after C2C.
void Paths::mirror(const Machine &machine, int from, int to) {
  const Path &there = at(from, to);
  std::vector<int> links;
  for (auto l = there.links.rbegin(); l != there.links.rend(); ++l) {
    const MachineLink &forth = machine.link(*l);
    const int back = machine.find_link(forth.to, forth.from, forth.kind);
    if (back < 0) return;
    links.push_back(back);
  }
  if (links.empty()) return;
  Path &p = at(to, from);
  p.kind = there.kind;
  p.links = std::move(links);
  finish(machine, &p);
}

void Paths::add_pxn(const Machine &machine, int gpu, int net) {
  Path *best = nullptr;
  int by = -1;
  if (at(gpu, net).kind <= PathKind::pxn) return;
  for (int peer : machine.of_kind(NodeKind::gpu)) {
    if (at(gpu, peer).kind != PathKind::nvl || at(peer, net).kind > PathKind::p2c) continue;
    Path *p = &at(peer, net);
    if (best && (best->kind < p->kind || (best->kind == p->kind && best->gbps >= p->gbps))) continue;
    best = p;
    by = peer;
  }
  if (!best) return;
  Path joined{.kind = PathKind::pxn, .links = at(gpu, by).links};
  joined.links.insert(joined.links.end(), best->links.begin(), best->links.end());
  finish(machine, &joined);
  at(gpu, net) = std::move(joined);
}

} // namespace tutti
