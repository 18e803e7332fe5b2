// tutti/core/topology/machine.h: one host as a graph of NUMA nodes, PCI switches, GPUs, NVSwitches, NICs and their ports.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

std::string one_line(std::string_view text); // what a file says, fit for a message: control characters as "?"

enum class NodeKind : uint8_t { gpu, pci, nvs, cpu, nic, net };
enum class LinkKind : uint8_t { loc, nvl, c2c, pci, sys, net };
std::string_view kind_name(NodeKind kind); // "GPU", "PCI", ...
std::string_view kind_name(LinkKind kind); // "LOC", "NVL", ...

struct MachineNode {
  NodeKind kind = NodeKind::pci;
  std::string id;            // PCI address; NUMA number; name of a port
  int number = -1;           // GPU: dev, CPU: NUMA number, NET: dev
  int rank = -1;             // GPU: as the file says
  int parent = -1;           // towards the CPU; -1: none
  std::string affinity = {}; // CPU: mask as in the kernel's files
  bool intel = false;        // CPU: traffic between devices through it costs more (kIntelExpansion)
  bool by_class = false;     // GPU, NIC: known by its PCI class only
  int rail = -1;             // NET: as the file says
  double latency_us = 0;     // NET: one way, small message, as the file says; 0: not known
  std::string label() const; // "GPU/0", "NIC/0000:0c:00.0"
};

// One direction of a link.
struct MachineLink {
  int from = 0, to = 0;
  LinkKind kind = LinkKind::loc;
  double gbps = 0;    // 1e9 bytes per second
  uint32_t lanes = 0; // NVL: number of bricks
};

// Bytes that a link carries per byte between two devices whose path passes an Intel CPU.
constexpr double kIntelExpansion = 6.0 / 5.0;
constexpr double kLocGbps = 5000.0;

// One way of a small message over a link, us: estimates, to compare ways with. The field's cost model has 0.6 for a hop between
// GPUs over NVLinks, 1 over PCI (two links each) and 2.7 between hosts (a port each); lines of cache between two L3s took 0.25
// where that was measured; C2C is taken as NVLink.
constexpr double kNvlinkUs = 0.3, kPciUs = 0.5, kSysUs = 0.25, kPortUs = 1.35;

class Machine {
public:
  int add(MachineNode node);
  // One direction; a second call for the same pair and kind adds its bandwidth.
  void connect(int from, int to, LinkKind kind, double gbps, uint32_t lanes = 0);
  void connect_both(int a, int b, LinkKind kind, double gbps, uint32_t lanes = 0);
  void note(std::string_view text) { notes_.push_back(one_line(text)); }

  const std::vector<MachineNode> &nodes() const { return nodes_; }
  const std::vector<MachineLink> &links() const { return links_; }
  const std::vector<int> &links_from(int node) const { return out_[static_cast<size_t>(node)]; }
  const MachineNode &node(int i) const { return nodes_[static_cast<size_t>(i)]; }
  MachineNode &node(int i) { return nodes_[static_cast<size_t>(i)]; }
  const MachineLink &link(int i) const { return links_[static_cast<size_t>(i)]; }
  int find(NodeKind kind, std::string_view id) const; // -1: none
  int find_link(int from, int to, LinkKind kind) const;
  std::vector<int> of_kind(NodeKind kind) const;
  int cpu_of(int node) const;     // itself or above it; -1: none
  double gbps_up(int node) const; // of its link to its parent; 0: none
  // Where ranks sit: GPUs, in order of dev; without any, CPUs; with fewer than two of those, NICs if there are several.
  std::vector<int> places() const;
  double latency_us(const MachineLink &link) const; // half of what the file says of a port: the other half is the peer's
  const std::vector<std::string> &notes() const { return notes_; } // what was assumed

private:
  std::vector<MachineNode> nodes_;
  std::vector<MachineLink> links_;
  std::vector<std::vector<int>> out_;
  std::vector<std::string> notes_;
};

// What is known of hardware whose files give no bandwidth. GB/s, one direction.
double nvlink_gbps(int sm);                       // per brick, by compute capability
double xgmi_gbps(int gcn);                        // per link, by the number of the architecture
double pci_gbps(double gigatransfers, int width); // 0: unknown generation
double sys_gbps(std::string_view arch, std::string_view vendor, int family, int model); // between sockets; 0: unknown

} // namespace tutti
