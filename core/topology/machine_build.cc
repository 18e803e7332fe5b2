// From the elements of a topology file to the graph. Two passes: nodes with the links to their parents, then links that name a
// target.
#include "topology/machine_file.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <pugixml.hpp>
#include <set>

namespace tutti {

class MachineBuilder {
public:
  explicit MachineBuilder(const MachineFile &file) : file_(file) {}
  Result<Machine> build();

private:
  using Element = pugi::xml_node;
  Status add_cpu(Element e);
  Status add_pci(Element e, int parent, int depth);
  Status add_device(Element e, MachineNode node, int parent, int depth);
  Status add_nics(Element e, int parent, const std::string &id, double gbps);
  Status add_ports(Element e, int nic);
  Status connect_targets();
  Status connect_nvlink(Element e, int gpu, bool xgmi);
  Status connect_c2c(Element e, int gpu);
  void connect_cpus();
  void mirror_nvlinks();
  int nvswitch();

  Status bad(Element e, std::string_view what) const {
    return fail(Code::invalid_argument, "{}: <{}>: {}", where(e), e.name(), one_line(what));
  }
  Status integer(Element e, const char *attribute, int64_t low, int64_t high, int64_t fallback, int64_t *out) const;
  Status microseconds(Element e, const char *attribute, double *out) const;
  Status busid(Element e, const char *attribute, std::string *out) const;
  double link_gbps(Element e, int64_t width);
  std::string where(Element e) const { // what detection has added is on no line
    const int line = file_.line(e.offset_debug());
    return line > 0 ? fmt::format("{}:{}", file_.name_, line) : file_.name_;
  }

  const MachineFile &file_;
  Machine machine_;
  std::set<std::string> busids_;
  std::set<int64_t> numas_, gpu_devs_, net_devs_;
  std::vector<Element> cpus_;
  struct Gpu {
    Element element;
    int node, sm, gcn;
  };
  std::vector<Gpu> gpus_;
  std::vector<std::pair<Element, int>> switches_; // PCI elements that may have <pcilink>
  int unknown_speeds_ = 0, missing_devs_ = 0;
};

namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostNodes = 512; // the field knows 256; paths between all take memory and time of the square

enum class PciClass { bridge, nvswitch, gpu, nic, other };
PciClass pci_class(std::string_view text) {
  const unsigned long code = std::strtoul(std::string(text).c_str(), nullptr, 16) >> 8; // class and subclass
  if (code == 0x0604) return PciClass::bridge;
  if (code == 0x0680) return PciClass::nvswitch;
  if (code == 0x0300 || code == 0x0302 || code == 0x0380 || code == 0x1200) return PciClass::gpu;
  return (code >> 8) == 0x02 ? PciClass::nic : PciClass::other;
}

} // namespace

Status MachineBuilder::integer(Element e, const char *attribute, int64_t low, int64_t high, int64_t fallback,
                               int64_t *out) const {
  const std::string_view text = e.attribute(attribute).value();
  *out = fallback;
  if (text.empty()) return {};
  const std::string copy(text);
  char *end = nullptr;
  errno = 0;
  *out = std::strtoll(copy.c_str(), &end, copy.starts_with("0x") ? 16 : 10);
  if (errno == 0 && *end == 0 && *out >= low && *out <= high) return {};
  return bad(e, fmt::format("{}=\"{}\": a number from {} to {} is wanted", attribute, text, low, high));
}

Status MachineBuilder::microseconds(Element e, const char *attribute, double *out) const {
  const std::string text = e.attribute(attribute).value();
  char *end = nullptr;
  *out = std::strtod(text.c_str(), &end);
  if (*end == 0 && *out >= 0 && *out <= 1e6) return {};
  return bad(e, fmt::format("{}=\"{}\": microseconds from 0 to 1000000 are wanted", attribute, text));
}

Status MachineBuilder::busid(Element e, const char *attribute, std::string *out) const {
  const std::string_view text = e.attribute(attribute).value();
  *out = normal_busid(text);
  if (out->empty()) return bad(e, fmt::format("{}=\"{}\": a PCI address like 0000:1b:00.0 is wanted", attribute, text));
  return {};
}

// The files of virtual machines often leave the speed out, or say "Unknown".
double MachineBuilder::link_gbps(Element e, int64_t width) {
  const double known = pci_gbps(parse_gigatransfers(e.attribute("link_speed").value()), static_cast<int>(width));
  unknown_speeds_ += known == 0;
  return known > 0 ? known : pci_gbps(8, static_cast<int>(width));
}

Status MachineBuilder::add_cpu(Element e) {
  int64_t numa = 0, family = 0, model = 0;
  if (!e.attribute("numaid")) return bad(e, "numaid is missing");
  if (machine_.nodes().size() >= kMostNodes) return bad(e, fmt::format("more than {} devices", kMostNodes));
  TUTTI_TRY(integer(e, "numaid", -1, 1 << 16, 0, &numa));
  TUTTI_TRY(integer(e, "familyid", 0, 1 << 16, 0, &family));
  TUTTI_TRY(integer(e, "modelid", 0, 1 << 16, 0, &model));
  if (!numas_.insert(numa).second) return bad(e, fmt::format("numaid=\"{}\" twice", numa));
  const bool intel = std::string_view(e.attribute("vendor").value()) == "GenuineIntel";
  cpus_.push_back(e);
  const int cpu = machine_.add({.kind = NodeKind::cpu,
                                .id = std::to_string(numa),
                                .number = static_cast<int>(numa),
                                .affinity = one_line(e.attribute("affinity").value()),
                                .intel = intel});
  for (Element child : e.children("pci")) TUTTI_TRY(add_pci(child, cpu, 1));
  return add_nics(e, cpu, fmt::format("cpu{}", numa), kLocGbps); // NICs without a PCI device
}

Status MachineBuilder::add_pci(Element e, int parent, int depth) {
  MachineNode node;
  if (depth > kMostDepth) return bad(e, fmt::format("more than {} levels of PCI devices", kMostDepth));
  if (machine_.nodes().size() >= kMostNodes) return bad(e, fmt::format("more than {} devices", kMostNodes));
  TUTTI_TRY(busid(e, "busid", &node.id));
  if (!busids_.insert(node.id).second) { // so in files of real machines, of switches: two boards were joined by hand
    if (e.child("gpu")) return bad(e, fmt::format("busid=\"{}\" twice", node.id));
    machine_.note(fmt::format("{}: busid=\"{}\" twice: both are kept", where(e), node.id));
  }
  if (const std::string_view cls = e.attribute("class").value(); !cls.empty()) {
    int64_t ignored = 0;
    TUTTI_TRY(integer(e, "class", 0, 0xffffff, 0, &ignored));
  }
  node.parent = parent;
  return add_device(e, std::move(node), parent, depth);
}

Status MachineBuilder::add_device(Element e, MachineNode node, int parent, int depth) {
  int64_t width = 0;
  TUTTI_TRY(integer(e, "link_width", 0, 64, 16, &width));
  const double gbps = link_gbps(e, width > 0 ? width : 16);
  const PciClass cls = pci_class(e.attribute("class").value());
  if (Element gpu = e.child("gpu"); gpu || cls == PciClass::gpu) {
    node.kind = NodeKind::gpu;
    node.by_class = !gpu;
    int64_t dev = -1, rank = -1, sm = 0, gcn = 0;
    TUTTI_TRY(integer(gpu, "dev", -1, 1 << 16, -1, &dev));
    TUTTI_TRY(integer(gpu, "rank", -1, 1 << 30, -1, &rank));
    TUTTI_TRY(integer(gpu, "sm", 0, 10'000, 0, &sm));
    TUTTI_TRY(integer(gpu, "gcn", 0, 100'000, 0, &gcn));
    if (dev >= 0 && !gpu_devs_.insert(dev).second) return bad(gpu, fmt::format("dev=\"{}\" twice", dev));
    node.number = static_cast<int>(dev);
    node.rank = static_cast<int>(rank);
    missing_devs_ += dev < 0;
    const int added = machine_.add(std::move(node));
    machine_.connect_both(added, parent, LinkKind::pci, gbps);
    gpus_.push_back({gpu, added, static_cast<int>(sm), static_cast<int>(gcn)});
    return {};
  }
  if (e.child("nic") || cls == PciClass::nic) {
    if (e.child("nic")) return add_nics(e, parent, node.id, gbps);
    node.kind = NodeKind::nic;
    node.by_class = true;
    machine_.connect_both(machine_.add(std::move(node)), parent, LinkKind::pci, gbps);
    return {};
  }
  const int added = machine_.add(std::move(node));
  machine_.connect_both(added, parent, LinkKind::pci, gbps);
  switches_.emplace_back(e, added);
  for (Element child : e.children("pci")) TUTTI_TRY(add_pci(child, added, depth + 1));
  return {};
}

Status MachineBuilder::add_nics(Element e, int parent, const std::string &id, double gbps) {
  int count = 0;
  for (Element nic : e.children("nic")) {
    if (machine_.nodes().size() >= kMostNodes) return bad(nic, fmt::format("more than {} devices", kMostNodes));
    MachineNode node{.kind = NodeKind::nic, .id = count == 0 ? id : fmt::format("{}#{}", id, count), .parent = parent};
    count++;
    const int added = machine_.add(std::move(node));
    machine_.connect_both(added, parent, LinkKind::pci, gbps);
    TUTTI_TRY(add_ports(nic, added));
  }
  return {};
}

Status MachineBuilder::add_ports(Element e, int nic) {
  for (Element net : e.children("net")) {
    int64_t dev = 0, mbps = 0, rail = -1;
    if (!net.attribute("dev")) return bad(net, "dev is missing");
    if (machine_.nodes().size() >= kMostNodes) return bad(net, fmt::format("more than {} devices", kMostNodes));
    TUTTI_TRY(integer(net, "dev", 0, 1 << 16, 0, &dev));
    TUTTI_TRY(integer(net, "speed", -1, 1'000'000'000, 0, &mbps));
    TUTTI_TRY(integer(net, "rail", -1, 1 << 16, -1, &rail));
    double latency = 0;
    TUTTI_TRY(microseconds(net, "latency", &latency));
    if (!net_devs_.insert(dev).second) machine_.note(fmt::format("{}: dev=\"{}\" twice: both are kept", where(net), dev));
    std::string name = one_line(net.attribute("name").value());
    if (name.empty()) name = fmt::format("net{}", dev);
    if (mbps <= 0) machine_.note(fmt::format("{}: speed of {} is not known: 10 Gbit/s assumed", where(net), name));
    const int port = machine_.add({.kind = NodeKind::net,
                                   .id = name,
                                   .number = static_cast<int>(dev),
                                   .parent = nic,
                                   .rail = static_cast<int>(rail),
                                   .latency_us = latency});
    machine_.connect_both(port, nic, LinkKind::net, static_cast<double>(mbps > 0 ? mbps : 10'000) / 8000);
  }
  return {};
}

int MachineBuilder::nvswitch() {
  const auto all = machine_.of_kind(NodeKind::nvs); // switches of a host act as one
  return all.empty() ? machine_.add({.kind = NodeKind::nvs, .id = "0", .number = 0}) : all.front();
}

Status MachineBuilder::connect_nvlink(Element e, int gpu, bool xgmi) {
  const auto &g = *std::find_if(gpus_.begin(), gpus_.end(), [gpu](const Gpu &x) { return x.node == gpu; });
  std::string target;
  int64_t count = 0;
  TUTTI_TRY(busid(e, "target", &target));
  TUTTI_TRY(integer(e, "count", 1, 1024, 1, &count));
  const double gbps = static_cast<double>(count) * (xgmi ? xgmi_gbps(g.gcn) : nvlink_gbps(g.sm));
  const auto lanes = static_cast<uint32_t>(count);
  if (const int peer = machine_.find(NodeKind::gpu, target); peer >= 0) {
    if (peer == gpu) return bad(e, fmt::format("target=\"{}\" is the GPU itself", target));
    machine_.connect(gpu, peer, LinkKind::nvl, gbps, lanes);
    return {};
  }
  const std::string_view tclass = e.attribute("tclass").value();
  if (pci_class(tclass) == PciClass::nvswitch) {
    machine_.connect_both(gpu, nvswitch(), LinkKind::nvl, gbps, lanes);
  } else if (pci_class(tclass) == PciClass::gpu) {
    machine_.note(fmt::format("{}: {} is no GPU of this host: link left out", where(e), target));
  } else { // to the processor, as POWER9 has it
    const int cpu = machine_.cpu_of(gpu);
    machine_.connect_both(gpu, cpu, LinkKind::nvl, gbps, lanes);
  }
  return {};
}

Status MachineBuilder::connect_c2c(Element e, int gpu) {
  int64_t megabytes = 0, count = 0;
  TUTTI_TRY(integer(e, "bw", 1, 100'000'000, 0, &megabytes));
  TUTTI_TRY(integer(e, "count", 1, 1024, 1, &count));
  if (megabytes == 0) return bad(e, "bw is missing");
  const int cpu = machine_.cpu_of(gpu);
  machine_.connect_both(gpu, cpu, LinkKind::c2c, static_cast<double>(megabytes * count) / 1000, static_cast<uint32_t>(count));
  return {};
}

Status MachineBuilder::connect_targets() {
  for (const Gpu &g : gpus_) {
    for (Element e : g.element.children("nvlink")) TUTTI_TRY(connect_nvlink(e, g.node, false));
    for (Element e : g.element.children("xgmi")) TUTTI_TRY(connect_nvlink(e, g.node, true));
    for (Element e : g.element.children("c2c")) TUTTI_TRY(connect_c2c(e, g.node));
  }
  for (const auto &[element, node] : switches_) {
    for (Element e : element.children("pcilink")) {
      std::string target;
      TUTTI_TRY(busid(e, "target", &target));
      if (const int peer = machine_.find(NodeKind::pci, target); peer >= 0 && peer != node)
        machine_.connect(node, peer, LinkKind::loc, kLocGbps);
      else
        machine_.note(fmt::format("{}: {} is no switch of this host: link left out", where(e), target));
    }
  }
  return {};
}

// A file may name a link at one of its ends only.
void MachineBuilder::mirror_nvlinks() {
  for (size_t i = 0; i < machine_.links().size(); i++) {
    const MachineLink l = machine_.links()[i];
    if (l.kind != LinkKind::nvl || machine_.find_link(l.to, l.from, LinkKind::nvl) >= 0) continue;
    machine_.connect(l.to, l.from, LinkKind::nvl, l.gbps, l.lanes);
    machine_.note(fmt::format("{}: link from {} to {} is named at one end only: taken as both ways", file_.name_,
                              machine_.node(l.from).label(), machine_.node(l.to).label()));
  }
}

void MachineBuilder::connect_cpus() {
  const std::vector<int> cpus = machine_.of_kind(NodeKind::cpu);
  if (cpus.size() < 2) return;
  const Element e = cpus_.front();
  double gbps = sys_gbps(e.attribute("arch").value(), e.attribute("vendor").value(), e.attribute("familyid").as_int(),
                         e.attribute("modelid").as_int());
  if (gbps == 0) {
    gbps = 10;
    machine_.note(fmt::format("{}: kind of processor is not known: 10 GB/s between NUMA nodes assumed", where(e)));
  }
  for (size_t a = 0; a < cpus.size(); a++)
    for (size_t b = a + 1; b < cpus.size(); b++) machine_.connect_both(cpus[a], cpus[b], LinkKind::sys, gbps);
}

Result<Machine> MachineBuilder::build() {
  const Element system = file_.system();
  for (Element cpu : system.children("cpu")) TUTTI_TRY(add_cpu(cpu));
  if (cpus_.empty()) return bad(system, "no <cpu> in it");
  TUTTI_TRY(connect_targets());
  mirror_nvlinks();
  connect_cpus();
  if (unknown_speeds_ > 0)
    machine_.note(fmt::format("{}: {} PCI devices without a known link_speed: 8 GT/s assumed", file_.name_, unknown_speeds_));
  if (missing_devs_ > 0)
    machine_.note(
        fmt::format("{}: {} GPUs known by their PCI class only: numbered in order of the file", file_.name_, missing_devs_));
  int next = 0;
  for (const Gpu &g : gpus_) {
    MachineNode &node = machine_.node(g.node);
    if (node.number >= 0) continue;
    while (gpu_devs_.contains(next)) next++;
    node.number = next++;
  }
  return std::move(machine_);
}

Result<Machine> MachineFile::machine() const {
  return MachineBuilder(*this).build();
}

} // namespace tutti
