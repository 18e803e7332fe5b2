#include "topology/ports.h"
#include <algorithm>
#include <fmt/format.h>
#include <tuple>

namespace tutti {
namespace {

int nic_of(const Machine &m, int node) {
  return m.node(node).kind == NodeKind::net ? m.node(node).parent : node;
}

// "0000:1b:00.1#1" -> "0000:1b:00": functions of a card differ in what is cut off.
std::string_view card_of(std::string_view nic) {
  return nic.substr(0, nic.rfind('.'));
}

bool same_port(const Machine &m, const Paths &paths, int a, int b, const PortRules &rules) {
  const int x = nic_of(m, a), y = nic_of(m, b);
  const std::string &left = m.node(x).id, &right = m.node(y).id;
  if (rules.merge_card && (x == y || (left.find('.') != std::string::npos && card_of(left) == card_of(right)))) return true;
  return rules.merge != PathKind::loc && paths.between(x, y).kind <= rules.merge;
}

Port join(const Machine &m, const std::vector<int> &nodes) {
  Port p{.nodes = nodes, .name = {}, .rail = m.node(nodes.front()).rail};
  for (int node : nodes) {
    p.name += (p.name.empty() ? "" : "+") + m.node(node).id;
    p.gbps += m.gbps_up(node);
    p.latency_us = std::max(p.latency_us, m.node(node).latency_us);
  }
  return p;
}

// Numbers for those that the file gives none.
void number_rails(std::vector<Port> *ports) {
  int next = 0;
  for (Port &p : *ports) {
    if (p.rail >= 0) continue;
    while (std::any_of(ports->begin(), ports->end(), [&](const Port &q) { return q.rail == next; })) next++;
    p.rail = next;
  }
  std::stable_sort(ports->begin(), ports->end(), [](const Port &a, const Port &b) { return a.rail < b.rail; });
}

// Each ring loads all ports alike, so that k of them are as fast as k times the slowest.
void leave_out_slow(std::vector<Port> *ports, std::vector<std::string> *notes) {
  std::vector<double> speeds;
  for (const Port &p : *ports) speeds.push_back(p.gbps);
  std::sort(speeds.begin(), speeds.end(), std::greater<>());
  double best = 0, least = 0;
  for (size_t k = 0; k < speeds.size(); k++)
    if (const double sum = static_cast<double>(k + 1) * speeds[k]; sum > best) best = sum, least = speeds[k];
  std::string slow;
  std::erase_if(*ports, [&](const Port &p) {
    if (p.gbps < least) slow += fmt::format("{}{} ({:.4g} GB/s)", slow.empty() ? "" : ", ", p.name, p.gbps);
    return p.gbps < least;
  });
  if (!slow.empty()) notes->push_back(fmt::format("not used, as the others are faster alone: {}", slow));
}

void find_nearest(const Paths &paths, const std::vector<int> &places, std::vector<Port> *ports) {
  std::vector<int> heads(places.size());
  for (Port &p : *ports) {
    const auto rank_of = [&](int i) {
      const Path &path = paths.between(p.nodes.front(), places[static_cast<size_t>(i)]);
      return std::tuple(path.kind, -path.gbps, heads[static_cast<size_t>(i)], i);
    };
    p.nearest = 0;
    for (int i = 1; i < static_cast<int>(places.size()); i++)
      if (rank_of(i) < rank_of(p.nearest)) p.nearest = i;
    heads[static_cast<size_t>(p.nearest)]++;
    p.distance = paths.between(p.nodes.front(), places[static_cast<size_t>(p.nearest)]).kind;
  }
}

bool reaches_all(const Paths &paths, const std::vector<int> &places, int node) {
  return std::all_of(places.begin(), places.end(), [&](int place) {
    return paths.between(node, place).kind != PathKind::dis && paths.between(place, node).kind != PathKind::dis;
  });
}

} // namespace

std::vector<Port> find_ports(const Machine &machine, const std::vector<int> &places, const PortRules &rules,
                             std::vector<std::string> *notes) {
  if (places.empty()) return {};
  std::vector<int> nodes = machine.of_kind(NodeKind::net);
  if (nodes.empty()) {
    nodes = machine.of_kind(NodeKind::nic);
    if (!nodes.empty()) notes->push_back("ports of NICs are not known: as fast as their PCI links");
  }
  std::stable_sort(nodes.begin(), nodes.end(),
                   [&](int a, int b) { return machine.node(nic_of(machine, a)).id < machine.node(nic_of(machine, b)).id; });
  const Paths paths(machine, {.nvlink = true, .pxn = false});
  std::vector<std::vector<int>> groups;
  for (int node : nodes) {
    if (!reaches_all(paths, places, node)) {
      notes->push_back(fmt::format("{}: not used, as some ranks cannot reach it", machine.node(node).label()));
      continue;
    }
    const auto known = std::find_if(groups.begin(), groups.end(),
                                    [&](const auto &g) { return same_port(machine, paths, g.front(), node, rules); });
    if (known != groups.end())
      known->push_back(node);
    else
      groups.push_back({node});
  }
  std::vector<Port> ports;
  for (const auto &group : groups) ports.push_back(join(machine, group));
  if (!rules.slow) leave_out_slow(&ports, notes);
  number_rails(&ports);
  find_nearest(paths, places, &ports);
  return ports;
}

} // namespace tutti
