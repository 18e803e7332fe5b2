#include "tools/topo.h"
#include <algorithm>
#include <cctype>

namespace tutti::tools {
namespace {

// "00000000,0000ff01" -> "0,8-15"
std::string cpu_list(std::string_view mask) {
  std::string digits;
  for (char c : mask)
    if (c != ',') digits += c;
  std::vector<int> cpus;
  for (size_t i = 0; i < digits.size(); i++) {
    const size_t bits =
        std::string_view("0123456789abcdef").find(static_cast<char>(std::tolower(digits[digits.size() - 1 - i])));
    for (size_t b = 0; b < 4 && bits < 16; b++)
      if (bits >> b & 1) cpus.push_back(static_cast<int>(i * 4 + b));
  }
  std::string out;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) end++;
    out += fmt::format("{}{}", out.empty() ? "" : ",", cpus[i]);
    if (end > i) out += fmt::format("-{}", cpus[end]);
    i = end + 1;
  }
  return out.empty() ? "?" : out;
}

std::string link_text(const Machine &m, int child) {
  for (int id : m.links_from(child))
    if (const MachineLink &l = m.link(id); l.to == m.node(child).parent)
      return l.gbps >= kLocGbps ? "" : fmt::format("  {} {:g} GB/s", kind_name(l.kind), l.gbps);
  return "";
}

// "  NVL 20 GB/s to GPU/1,2,3", alike ones together.
std::string side_links(const Machine &m, int node) {
  std::vector<std::pair<std::string, std::string>> groups;
  for (int id : m.links_from(node)) {
    const MachineLink &l = m.link(id);
    if (l.kind != LinkKind::nvl && l.kind != LinkKind::sys && l.kind != LinkKind::c2c) continue;
    const std::string label = m.node(l.to).label();
    const size_t slash = label.find('/') + 1;
    const std::string key = fmt::format("  {} {:g} GB/s to {}", kind_name(l.kind), l.gbps, label.substr(0, slash));
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto &g) { return g.first == key; });
    if (known == groups.end())
      groups.emplace_back(key, label.substr(slash));
    else
      known->second += "," + label.substr(slash);
  }
  std::string out;
  for (const auto &[key, ends] : groups) out += key + ends;
  return out;
}

void add_node(const Machine &m, int node, int depth, std::string *out) {
  const MachineNode &n = m.node(node);
  *out += fmt::format("{:{}}{}", "", 2 * depth, n.label());
  if (n.kind == NodeKind::gpu) *out += fmt::format(" {}", n.id);
  if (n.kind == NodeKind::gpu && n.rank >= 0) *out += fmt::format(" rank {}", n.rank);
  if (n.kind == NodeKind::net) *out += fmt::format(" dev {}", n.number);
  if (n.kind == NodeKind::cpu && !n.affinity.empty()) *out += fmt::format("  cores {}", cpu_list(n.affinity));
  if (n.parent >= 0) *out += link_text(m, node);
  *out += side_links(m, node) + "\n";
  for (int i = 0; i < static_cast<int>(m.nodes().size()); i++)
    if (m.node(i).parent == node) add_node(m, i, depth + 1, out);
}

std::string cell(const Machine &m, const Path &p, Show show) {
  if (show == Show::latency && p.kind != PathKind::dis && !p.links.empty()) return fmt::format("{:.3g}", p.latency_us);
  if (show != Show::kind) return p.links.empty() ? (p.kind == PathKind::dis ? "-" : "X") : fmt::format("{:.4g}", p.gbps);
  if (p.kind == PathKind::loc && p.links.empty()) return "X";
  if (p.kind != PathKind::nvl) return std::string(kind_name(p.kind));
  uint32_t lanes = m.link(p.links.front()).lanes;
  for (int l : p.links) lanes = std::min(lanes, m.link(l).lanes);
  return fmt::format("NV{}", lanes);
}

std::string hop_order(const Machine &m, const Channels &c, const Laid &laid) {
  std::string out;
  for (int place : laid.order) out += fmt::format(" {:3}", m.node(c.places[static_cast<size_t>(place)]).number);
  return out;
}

std::string packing_text(std::string_view what, const Machine &m, const Channels &c, const Packing &p) {
  if (p.channels.empty()) return fmt::format("{}: none\n", what);
  std::string out = fmt::format("{}: {} channels x {:.4g} GB/s = {:.4g} GB/s; no set of them reaches more than {:.4g}\n", what,
                                p.channels.size(), p.gbps, p.total(), p.bound);
  for (size_t i = 0; i < p.channels.size(); i++) out += fmt::format("  {:2}:{}\n", i, hop_order(m, c, p.channels[i]));
  return out;
}

} // namespace

std::string machine_tree(const Machine &machine) {
  std::string out;
  for (int i = 0; i < static_cast<int>(machine.nodes().size()); i++)
    if (machine.node(i).parent < 0) add_node(machine, i, 0, &out);
  return out;
}

std::string machine_matrix(const Machine &machine, const Paths &paths, Show show) {
  std::vector<int> shown = machine.of_kind(NodeKind::gpu);
  if (shown.empty()) shown = machine.of_kind(NodeKind::cpu);
  const size_t main = shown.size();
  for (int nic : machine.of_kind(NodeKind::nic)) shown.push_back(nic);
  const auto name = [&](size_t i) {
    return i < main ? machine.node(shown[i]).label().erase(3, 1) : fmt::format("NIC{}", i - main);
  };
  std::string out = fmt::format("{:6}", "");
  for (size_t i = 0; i < shown.size(); i++) out += fmt::format(" {:>6}", name(i));
  out += show == Show::gbps ? "   (GB/s)\n" : show == Show::latency ? "   (us)\n" : "  NUMA  cores\n";
  for (size_t i = 0; i < shown.size(); i++) {
    out += fmt::format("{:6}", name(i));
    for (int to : shown) out += fmt::format(" {:>6}", cell(machine, paths.between(shown[i], to), show));
    const int cpu = machine.cpu_of(shown[i]);
    if (show == Show::kind && cpu >= 0)
      out += fmt::format("  {:4}  {}", machine.node(cpu).number, cpu_list(machine.node(cpu).affinity));
    out += "\n";
  }
  for (size_t i = main; i < shown.size() && show == Show::kind; i++) {
    out += fmt::format("{} = {}", name(i), machine.node(shown[i]).id);
    for (int port : machine.of_kind(NodeKind::net))
      if (machine.node(port).parent == shown[i]) out += fmt::format(" {}", machine.node(port).id);
    out += "\n";
  }
  return out;
}

std::string path_legend() {
  return "Legend:\n"
         "  X    = itself\n"
         "  NV#  = # bonded NVLinks (xGMI), direct or over a switch of them\n"
         "  NVB  = NVLinks over another GPU\n"
         "  C2C  = chip-to-chip link between processor and GPU;  P2C = that, then PCI\n"
         "  PIX  = at most one PCI bridge\n"
         "  PXB  = several PCI bridges, not the processor\n"
         "  PHB  = over the processor's PCI host bridge\n"
         "  SYS  = over the link between NUMA nodes\n"
         "  DIS  = no way\n"
         "  us   = one way of a small message: 0.3 for each NVLink or C2C, 0.5 PCI, 0.25 between NUMA nodes; estimates\n";
}

std::string channels_text(const Machine &machine, const Channels &c) {
  if (c.places.size() < 2) return fmt::format("{} place of ranks: channels need two\n", c.places.size());
  const std::string_view unit = kind_name(machine.node(c.places.front()).kind);
  std::string out =
      fmt::format("{} places of ranks ({}s); an allgather reaches at most {:.4g} GB/s on any schedule, its rings {:.1f} %\n",
                  c.places.size(), unit, c.optimum, c.optimum > 0 ? 100 * c.rings.total() / c.optimum : 0.0);
  out += packing_text("rings", machine, c, c.rings) + packing_text("chains", machine, c, c.chains);
  for (const Head &h : c.heads)
    out += fmt::format("head of {}: {}\n", machine.node(h.port).label(),
                       machine.node(c.places[static_cast<size_t>(h.place)]).label());
  return out;
}

} // namespace tutti::tools
