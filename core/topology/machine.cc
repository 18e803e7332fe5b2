#include "topology/machine.h"
#include <algorithm>
#include <fmt/format.h>

namespace tutti {

std::string one_line(std::string_view text) {
  std::string out(text);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return out;
}

std::string_view kind_name(NodeKind kind) {
  static constexpr std::string_view kNames[] = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET"};
  return kNames[static_cast<size_t>(kind)];
}
std::string_view kind_name(LinkKind kind) {
  static constexpr std::string_view kNames[] = {"LOC", "NVL", "C2C", "PCI", "SYS", "NET"};
  return kNames[static_cast<size_t>(kind)];
}

std::string MachineNode::label() const {
  if (kind == NodeKind::gpu || kind == NodeKind::cpu) return fmt::format("{}/{}", kind_name(kind), number);
  return fmt::format("{}/{}", kind_name(kind), id);
}

int Machine::add(MachineNode node) {
  nodes_.push_back(std::move(node));
  out_.emplace_back();
  return static_cast<int>(nodes_.size()) - 1;
}

void Machine::connect(int from, int to, LinkKind kind, double gbps, uint32_t lanes) {
  if (const int old = find_link(from, to, kind); old >= 0) {
    MachineLink &l = links_[static_cast<size_t>(old)];
    l.gbps += gbps;
    l.lanes += lanes;
    return;
  }
  out_[static_cast<size_t>(from)].push_back(static_cast<int>(links_.size()));
  links_.push_back({from, to, kind, gbps, lanes});
}

void Machine::connect_both(int a, int b, LinkKind kind, double gbps, uint32_t lanes) {
  connect(a, b, kind, gbps, lanes);
  connect(b, a, kind, gbps, lanes);
}

int Machine::find(NodeKind kind, std::string_view id) const {
  for (size_t i = 0; i < nodes_.size(); i++)
    if (nodes_[i].kind == kind && nodes_[i].id == id) return static_cast<int>(i);
  return -1;
}

int Machine::find_link(int from, int to, LinkKind kind) const {
  for (int i : links_from(from))
    if (link(i).to == to && link(i).kind == kind) return i;
  return -1;
}

std::vector<int> Machine::of_kind(NodeKind kind) const {
  std::vector<int> found;
  for (size_t i = 0; i < nodes_.size(); i++)
    if (nodes_[i].kind == kind) found.push_back(static_cast<int>(i));
  std::stable_sort(found.begin(), found.end(), [this](int a, int b) { return node(a).number < node(b).number; });
  return found;
}

int Machine::cpu_of(int i) const {
  while (i >= 0 && node(i).kind != NodeKind::cpu) i = node(i).parent;
  return i;
}

double Machine::gbps_up(int i) const {
  for (int l : links_from(i))
    if (link(l).to == node(i).parent) return link(l).gbps;
  return 0;
}

double Machine::latency_us(const MachineLink &l) const {
  switch (l.kind) {
  case LinkKind::nvl:
  case LinkKind::c2c:
    return kNvlinkUs;
  case LinkKind::pci:
    return l.gbps < kLocGbps ? kPciUs : 0; // else within a chip
  case LinkKind::sys:
    return kSysUs;
  case LinkKind::net: {
    const double known = std::max(node(l.from).latency_us, node(l.to).latency_us);
    return known > 0 ? known / 2 : kPortUs;
  }
  default:
    return 0;
  }
}

std::vector<int> Machine::places() const {
  if (std::vector<int> gpus = of_kind(NodeKind::gpu); !gpus.empty()) return gpus;
  std::vector<int> cpus = of_kind(NodeKind::cpu), nics = of_kind(NodeKind::nic);
  return cpus.size() < 2 && nics.size() > 1 ? nics : cpus;
}

double nvlink_gbps(int sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12.0;
  return sm >= 70 ? 20.0 : 18.0;
}

double xgmi_gbps(int gcn) {
  if (gcn >= 940) return 48.0;
  return gcn >= 910 ? 36.0 : 24.0;
}

double pci_gbps(double gigatransfers, int width) {
  // Payload of one lane in units of 100 Mbit/s, which the table of the field keeps at 6/8 of the raw rate.
  static constexpr struct {
    double rate, lane;
  } kGenerations[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
  for (const auto &g : kGenerations)
    if (gigatransfers == g.rate) return width * g.lane / 80;
  return 0;
}

double sys_gbps(std::string_view arch, std::string_view vendor, int family, int model) {
  if (arch == "ppc64" || arch == "ppc64le") return 32;
  if (arch == "arm64" || arch == "aarch64") return 6;
  if (vendor == "AuthenticAMD") return 16;
  if (vendor == "CentaurHauls" || vendor == "  Shanghai  ") return family > 7 || (family == 7 && model >= 0x5b) ? 9 : 6;
  if (vendor != "GenuineIntel") return 0;
  if (family > 6 || model == 0xad || model >= 0xcf) return 40; // Granite Rapids, Emerald Rapids
  if (model >= 0x8f) return 22;                                // Sapphire Rapids
  return model >= 0x55 ? 10 : 6;                               // Skylake to Ice Lake; before
}

} // namespace tutti
