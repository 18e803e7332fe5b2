// hwloc says which NUMA nodes, PCI devices and bridges there are and how they hang together; sysfs says what they are.
#include "topology/detect.h"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <hwloc.h>
#include <pugixml.hpp>
#include <sys/utsname.h>

namespace tutti {
namespace {

namespace fs = std::filesystem;
using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;

struct TopologyDeleter {
  void operator()(hwloc_topology *t) const { hwloc_topology_destroy(t); }
};
using Hwloc = std::unique_ptr<hwloc_topology, TopologyDeleter>;

Result<Hwloc> load_hwloc(const DetectFrom &from) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail(Code::system, "hwloc cannot be initialized");
  Hwloc t(raw);
  // Not: what starts whole device runtimes; and libpciaccess, which leaks and tells no more than sysfs does.
  for (const char *other : {"opencl", "cuda", "nvml", "rsmi", "levelzero", "gl", "pci"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, other);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (!from.hwloc_xml.empty() && hwloc_topology_set_xml(raw, from.hwloc_xml.c_str()) != 0)
    return fail(Code::invalid_argument, "{}: hwloc cannot read it", from.hwloc_xml);
  if (hwloc_topology_load(raw) != 0) return fail(Code::system, "hwloc cannot see this machine");
  return t;
}

std::string first_line(const fs::path &path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

void set_missing(pugi::xml_node e, const char *name, const std::string &value) {
  if (!value.empty() && !*e.attribute(name).value())
    (e.attribute(name) ? e.attribute(name) : e.append_attribute(name)).set_value(value.c_str());
}

// The kernel's form: words of 32 bits, the highest first.
std::string mask_text(hwloc_const_bitmap_t set) {
  std::string out;
  for (int word = std::max(0, hwloc_bitmap_last(set)) / 32; word >= 0; word--) {
    uint32_t bits = 0;
    for (unsigned b = 0; b < 32; b++)
      if (hwloc_bitmap_isset(set, static_cast<unsigned>(word) * 32 + b)) bits |= 1u << b;
    out += fmt::format("{}{:08x}", out.empty() ? "" : ",", bits);
  }
  return out;
}

std::string busid_of(const PciAttributes &a) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", a.domain, a.bus, a.dev, a.func);
}

class Detector {
public:
  Detector(MachineFile *file, const DetectFrom &from, hwloc_topology_t hwloc)
      : system_(file->system()), from_(from), hwloc_(hwloc) {}
  std::vector<std::string> run() {
    processors();
    for (hwloc_obj_t dev = nullptr; (dev = hwloc_get_next_pcidev(hwloc_, dev));) device(dev);
    nvidia();
    for (pugi::xml_node cpu : system_.children("cpu")) describe_below(cpu);
    lonely_interfaces();
    if (seen_ == 0) notes_.push_back("no PCI devices of note are visible here: GPUs and NICs, if there are any, are hidden");
    return std::move(notes_);
  }

private:
  using Element = pugi::xml_node;
  fs::path pci_path(const std::string &busid) const { return fs::path(from_.sysfs) / "bus/pci/devices" / busid; }

  Element cpu_element(int numa) {
    const std::string id = std::to_string(numa);
    if (Element e = system_.find_child_by_attribute("cpu", "numaid", id.c_str())) return e;
    Element e = system_.append_child("cpu");
    e.append_attribute("numaid") = numa;
    return e;
  }

  void processors() {
    utsname name{};
    uname(&name);
    std::string arch = name.machine;
    if (arch == "aarch64") arch = "arm64";
    if (arch.starts_with("ppc64")) arch = "ppc64";
    const int nodes = hwloc_get_nbobjs_by_type(hwloc_, HWLOC_OBJ_NUMANODE);
    for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(hwloc_, HWLOC_OBJ_NUMANODE, node));) {
      if (nodes > 1 && hwloc_bitmap_iszero(node->cpuset)) continue; // memory only
      Element e = cpu_element(static_cast<int>(node->os_index));
      set_missing(e, "affinity", mask_text(node->cpuset));
      set_missing(e, "arch", arch);
      const hwloc_obj_t package = hwloc_get_next_obj_covering_cpuset_by_type(hwloc_, node->cpuset, HWLOC_OBJ_PACKAGE, nullptr);
      const auto info = [&](const char *key) -> std::string {
        const char *text = hwloc_obj_get_info_by_name(package ? package : hwloc_get_root_obj(hwloc_), key);
        return text ? text : "";
      };
      set_missing(e, "vendor", info("CPUVendor"));
      set_missing(e, "familyid", info("CPUFamilyNumber"));
      set_missing(e, "modelid", info("CPUModelNumber"));
      if (!*e.attribute("vendor").value())
        notes_.push_back(fmt::format("NUMA node {}: the maker of the processor is not visible", node->os_index));
    }
    if (nodes == 1 && hwloc_get_nbobjs_by_type(hwloc_, HWLOC_OBJ_PACKAGE) > 1)
      notes_.push_back("one NUMA node for several processors: taken as one");
  }

  static bool matters(const PciAttributes &a) {
    const unsigned top = a.class_id >> 8;
    if (top == 0x02 || a.class_id == 0x1200) return true;
    // Displays of makers of accelerators; consoles of server boards and of virtual machines are none.
    return top == 0x03 && (a.vendor_id == 0x10de || a.vendor_id == 0x1002 || a.vendor_id == 0x8086);
  }

  Element find(Element in, const std::string &busid) const {
    return in.find_node([&](const Element &e) {
      return std::string_view(e.name()) == "pci" && normal_busid(e.attribute("busid").value()) == busid;
    });
  }

  void device(hwloc_obj_t dev) {
    const PciAttributes &a = dev->attr->pcidev;
    const std::string busid = busid_of(a);
    const bool known = !find(system_, busid).empty();
    if (!known && !matters(a)) return;
    seen_++;
    Element e = known ? find(system_, busid) : parent_of(dev).append_child("pci");
    if (!known) e.append_attribute("busid") = busid.c_str();
    set_missing(e, "class", fmt::format("0x{:04x}00", a.class_id));
    set_missing(e, "vendor", fmt::format("0x{:04x}", a.vendor_id));
    set_missing(e, "device", fmt::format("0x{:04x}", a.device_id));
    if ((a.class_id >> 8) == 0x02) ports(e, dev);
  }

  // Above a device: port of a switch, the switch, port, switch, ..., port of the processor. Only switches are places of their
  // own.
  Element parent_of(hwloc_obj_t dev) {
    std::vector<hwloc_obj_t> bridges;
    hwloc_obj_t at = dev->parent;
    for (; at && at->type == HWLOC_OBJ_BRIDGE; at = at->parent)
      if (at->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) bridges.push_back(at);
    Element parent = cpu_element(numa_of(dev));
    for (size_t i = bridges.size(); i-- > 0;) {
      if (i % 2 == 0) continue;
      const std::string busid = busid_of(bridges[i]->attr->bridge.upstream.pci);
      Element e = find(system_, busid);
      if (!e) {
        e = parent.append_child("pci");
        e.append_attribute("busid") = busid.c_str();
        e.append_attribute("class") = "0x060400";
      }
      parent = e;
    }
    return parent;
  }

  int numa_of(hwloc_obj_t dev) {
    const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(hwloc_, dev);
    if (near && near->nodeset && hwloc_bitmap_weight(near->nodeset) == 1) return hwloc_bitmap_first(near->nodeset);
    const std::string text = first_line(pci_path(busid_of(dev->attr->pcidev)) / "numa_node");
    if (const int numa = std::atoi(text.c_str()); !text.empty() && numa >= 0) return numa;
    const hwloc_obj_t first = hwloc_get_obj_by_type(hwloc_, HWLOC_OBJ_NUMANODE, 0);
    notes_.push_back(fmt::format("{}: its NUMA node is not visible: the first one assumed", busid_of(dev->attr->pcidev)));
    return first ? static_cast<int>(first->os_index) : 0;
  }

  int next_port() const {
    int next = 0;
    for (const pugi::xpath_node &n : system_.select_nodes("//net"))
      next = std::max(next, n.node().attribute("dev").as_int(-1) + 1);
    return next;
  }
  void add_port(Element nic, const std::string &name, const std::string &mbps, const std::string &port,
                const std::string &guid) {
    Element net = nic.append_child("net");
    const int dev = next_port();
    net.append_attribute("name") = name.c_str();
    net.append_attribute("dev") = dev;
    set_missing(net, "speed", std::atoi(mbps.c_str()) > 0 ? mbps : "");
    set_missing(net, "port", port);
    set_missing(net, "guid", guid);
  }

  void ports(Element e, hwloc_obj_t dev) {
    if (e.child("nic")) return; // the file knows better
    std::vector<std::string> interfaces, adapters;
    for (hwloc_obj_t os = dev->io_first_child; os; os = os->next_sibling) {
      if (os->type != HWLOC_OBJ_OS_DEVICE) continue;
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK) interfaces.emplace_back(os->name);
      if (os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) adapters.emplace_back(os->name);
    }
    if (interfaces.empty() && adapters.empty()) return;
    Element nic = e.append_child("nic");
    for (const std::string &name : adapters) {
      const fs::path at = fs::path(from_.sysfs) / "class/infiniband" / name;
      std::vector<std::string> numbers;
      std::error_code ec;
      for (const auto &p : fs::directory_iterator(at / "ports", ec)) numbers.push_back(p.path().filename());
      std::sort(numbers.begin(), numbers.end());
      for (const std::string &port : numbers) { // "200 Gb/sec (4X HDR)"
        const double gigabits = std::strtod(first_line(at / "ports" / port / "rate").c_str(), nullptr);
        std::string guid = first_line(at / "node_guid");
        guid.erase(std::remove(guid.begin(), guid.end(), ':'), guid.end());
        add_port(nic, name, fmt::format("{:.0f}", gigabits * 1000), port, guid.empty() ? "" : "0x" + guid);
      }
    }
    for (const std::string &name : interfaces)
      if (adapters.empty()) add_port(nic, name, first_line(fs::path(from_.sysfs) / "class/net" / name / "speed"), "", "");
  }

  // Speed and class of what is in the file, where sysfs knows it.
  void describe_below(Element e) {
    for (Element child : e.children("pci")) {
      const fs::path at = pci_path(normal_busid(child.attribute("busid").value()));
      for (const char *name : {"class", "vendor", "device", "subsystem_vendor", "subsystem_device"})
        set_missing(child, name, first_line(at / name));
      std::string speed = first_line(at / "max_link_speed"), width = first_line(at / "max_link_width");
      if (pci_gbps(parse_gigatransfers(speed), 1) > 0) set_missing(child, "link_speed", speed);
      if (const int lanes = std::atoi(width.c_str()); lanes > 0 && lanes <= 32) set_missing(child, "link_width", width);
      describe_below(child);
    }
  }

  void nvidia() {
    bool any = false;
    for (const pugi::xpath_node &n : system_.select_nodes("//pci[@vendor='0x10de']"))
      any |= std::string_view(n.node().attribute("class").value()).starts_with("0x03");
    std::vector<NvGpu> gpus;
    std::string why_not;
    if (!any || !from_.nvml) return;
    if (!nvidia_gpus(&gpus, &why_not)) {
      notes_.push_back(why_not + ": NVLinks and compute capabilities are not known");
      return;
    }
    const auto is_gpu = [&](const std::string &id) {
      return std::any_of(gpus.begin(), gpus.end(), [&](const NvGpu &g) { return g.busid == id; });
    };
    for (const NvGpu &g : gpus) {
      Element pci = find(system_, g.busid);
      if (!pci) {
        notes_.push_back(fmt::format("{}: NVIDIA's library names this GPU, but it is not visible on PCI", g.busid));
        continue;
      }
      Element gpu = pci.child("gpu") ? pci.child("gpu") : pci.append_child("gpu");
      set_missing(gpu, "dev", std::to_string(g.dev));
      set_missing(gpu, "sm", std::to_string(g.sm));
      if (gpu.child("nvlink")) continue;
      for (const NvGpu::Link &l : g.links) {
        Element link = gpu.append_child("nvlink");
        // Switches are often hidden from virtual machines; what is no GPU is taken as one.
        std::string cls = first_line(pci_path(l.target) / "class");
        if (cls.empty()) cls = is_gpu(l.target) ? "0x030200" : "0x068000";
        link.append_attribute("target") = l.target.c_str();
        link.append_attribute("count") = l.count;
        link.append_attribute("tclass") = cls.c_str();
      }
    }
  }

  // Without any NIC on PCI: what carries traffic all the same, as in containers.
  void lonely_interfaces() {
    if (!system_.select_nodes("//net").empty()) return;
    std::vector<std::string> names;
    std::error_code ec;
    for (const auto &e : fs::directory_iterator(fs::path(from_.sysfs) / "class/net", ec))
      if (first_line(e.path() / "operstate") == "up") names.push_back(e.path().filename());
    std::sort(names.begin(), names.end());
    Element cpu = system_.child("cpu");
    if (names.empty() || !cpu) return;
    Element nic = cpu.append_child("nic");
    for (const std::string &name : names)
      add_port(nic, name, first_line(fs::path(from_.sysfs) / "class/net" / name / "speed"), "", "");
    notes_.push_back("no NIC is visible on PCI: interfaces are taken as close to the first NUMA node");
  }

  Element system_;
  const DetectFrom &from_;
  hwloc_topology_t hwloc_;
  std::vector<std::string> notes_;
  int seen_ = 0;
};

} // namespace

Result<std::vector<std::string>> complete_machine(MachineFile *file, const DetectFrom &from) {
  TUTTI_ASSIGN(hwloc, load_hwloc(from));
  return Detector(file, from, hwloc.get()).run();
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") || line.starts_with("CPU part")) {
      const size_t colon = line.find(':');
      return colon == line.npos ? line : line.substr(std::min(line.size(), colon + 2));
    }
  return "unknown processor";
}

} // namespace tutti
