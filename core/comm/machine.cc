#include "comm/machine.h"
#include "log/log.h"
#include "topology/cluster.h"
#include "topology/detect.h"
#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>

namespace tutti {
namespace {

using log::Subsys;

uint64_t digest_of(std::span<const std::byte> bytes) { // FNV-1a
  uint64_t h = 0xcbf2'9ce4'8422'2325ull;
  for (const std::byte b : bytes) h = (h ^ static_cast<uint8_t>(b)) * 0x100'0000'01b3ull;
  return h ? h : 1;
}

// "mlx5_0:1" of a plugin is port 1 of <net name="mlx5_0">.
bool same_port(const std::string &name, std::string_view device) {
  return name == device || name == device.substr(0, device.find(':'));
}

std::string busid_of(const tutti_net_dev &dev) {
  const std::string_view path = dev.pci;
  return normal_busid(path.substr(path.rfind('/') + 1));
}

// Copies a machine without some of its nodes.
class Copier {
public:
  Copier(const Machine &from, const std::vector<bool> &dropped) : from_(from), place_(from.nodes().size(), -1) {
    for (size_t i = 0; i < place_.size(); i++)
      if (!dropped[i]) place_[i] = to_.add(from.node(static_cast<int>(i)));
    for (const int i : place_)
      if (i >= 0 && to_.node(i).parent >= 0) to_.node(i).parent = place_[static_cast<size_t>(to_.node(i).parent)];
    for (const MachineLink &l : from.links())
      if (const int a = at(l.from), b = at(l.to); a >= 0 && b >= 0) to_.connect(a, b, l.kind, l.gbps, l.lanes);
    for (const std::string &note : from.notes()) to_.note(note);
  }
  int at(int node) const { return place_[static_cast<size_t>(node)]; }
  Machine take() { return std::move(to_); }
  Machine &to() { return to_; }

private:
  const Machine &from_;
  std::vector<int> place_;
  Machine to_;
};

// A device that the machine's description does not name.
void add_device(Machine &m, const NetDev &dev) {
  const tutti_net_dev &d = dev.info;
  int nic = -1;
  if (const std::string busid = busid_of(d); !busid.empty()) nic = m.find(NodeKind::nic, busid);
  if (nic < 0) {
    int cpu = d.numa_node >= 0 ? m.find(NodeKind::cpu, std::to_string(d.numa_node)) : -1;
    const std::vector<int> all = m.of_kind(NodeKind::cpu);
    if (cpu < 0 && all.size() > 1) m.note(fmt::format("{}: its NUMA node is not known: the first one assumed", d.name));
    if (cpu < 0) cpu = all.front();
    nic = m.add({.kind = NodeKind::nic, .id = fmt::format("net {}", d.name), .parent = cpu});
    m.connect_both(nic, cpu, LinkKind::pci, kLocGbps);
  }
  const int port = m.add({.kind = NodeKind::net,
                          .id = d.name,
                          .number = static_cast<int>(dev.number),
                          .parent = nic,
                          .rail = d.rail,
                          .latency_us = d.latency_ns / 1000.0});
  m.connect_both(port, nic, LinkKind::net, static_cast<double>(d.speed_mbps ? d.speed_mbps : 10'000) / 8000);
}

Result<std::shared_ptr<const HostMachine>> describe(const Config &config, Iface<tutti_net_v1> net) {
  const auto t0 = Clock::now();
  auto out = std::make_shared<HostMachine>();
  MachineFile file;
  if (const std::string &path = config.text("topology.file"); !path.empty()) {
    TUTTI_ASSIGN(read, MachineFile::read(path));
    file = std::move(read);
  }
  TUTTI_ASSIGN(notes, complete_machine(&file));
  if (const std::string path = expand_path(config, "topology.dump_file"); !path.empty()) TUTTI_TRY(file.write(path));
  TUTTI_ASSIGN(machine, file.machine());
  if (net) {
    TUTTI_ASSIGN(devices, rail_devices(net));
    machine = with_devices(machine, devices, net.table->name);
  }
  out->notes = std::move(notes);
  out->notes.insert(out->notes.end(), machine.notes().begin(), machine.notes().end());
  out->encoded = encode_machine(machine);
  out->digest = digest_of(out->encoded);
  out->machine = std::move(machine);
  out->took_ms = std::chrono::duration<double, std::milli>(Clock::now() - t0).count();
  log::info(Subsys::graph, "this host was described in {:.1f} ms: {} NUMA nodes, {} GPUs, {} network ports", out->took_ms,
            out->machine.of_kind(NodeKind::cpu).size(), out->machine.of_kind(NodeKind::gpu).size(),
            out->machine.of_kind(NodeKind::net).size());
  for (const std::string &note : out->notes) log::info(Subsys::graph, "note: {}", note);
  return std::shared_ptr<const HostMachine>(std::move(out));
}

} // namespace

std::string expand_path(const Config &config, const char *key) {
  const std::string &text = config.text(key);
  return text.empty() ? text : log::expand_file(text);
}

uint32_t numa_nodes() {
  std::ifstream in("/sys/devices/system/node/online"); // "0-1,3"
  std::string text;
  std::getline(in, text);
  uint32_t count = 0;
  for (const char *at = text.data(), *end = at + text.size(); at < end; at++) {
    uint32_t first = 0, last = 0;
    auto r = std::from_chars(at, end, first);
    if (r.ec != std::errc()) break;
    last = first;
    if (r.ptr < end && *r.ptr == '-') r = std::from_chars(r.ptr + 1, end, last);
    count += last - first + 1;
    at = r.ptr;
  }
  return std::max(1u, count);
}

Result<std::vector<NetDev>> rail_devices(Iface<tutti_net_v1> net) {
  const auto turn = plugin_setup(net.plugin);
  uint32_t count = 0;
  void *state = net.plugin ? net.plugin->state : nullptr;
  if (const tutti_status s = net.table->device_count(state, &count); s < 0)
    return plugin_error(*net.plugin, s, "listing devices");
  std::vector<NetDev> out;
  for (uint32_t i = 0; i < count; i++) {
    NetDev d{i, {}};
    d.info.struct_size = sizeof d.info;
    if (const tutti_status s = net.table->device_info(state, i, &d.info); s < 0)
      return plugin_error(*net.plugin, s, fmt::format("describing device {}", i));
    out.push_back(d);
  }
  const auto here = [](const NetDev &d) { return (d.info.flags & TUTTI_NET_LOOPBACK) != 0; };
  if (!std::all_of(out.begin(), out.end(), here)) std::erase_if(out, here);
  return out;
}

Machine with_devices(const Machine &machine, std::span<const NetDev> devices, std::string_view net) {
  const std::vector<int> ports = machine.of_kind(NodeKind::net);
  std::vector<int> port_of(devices.size(), -1);
  std::vector<bool> dropped(machine.nodes().size(), false);
  for (const int port : ports) {
    size_t i = 0;
    while (i < devices.size() && (port_of[i] >= 0 || !same_port(machine.node(port).id, devices[i].info.name))) i++;
    if (i < devices.size())
      port_of[i] = port;
    else
      dropped[static_cast<size_t>(port)] = true;
  }
  Copier copy(machine, dropped);
  for (const int port : ports)
    if (dropped[static_cast<size_t>(port)])
      copy.to().note(fmt::format("port {} is left out: network {} has no such device", machine.node(port).id, net));
  for (size_t i = 0; i < devices.size(); i++) {
    if (port_of[i] < 0) {
      add_device(copy.to(), devices[i]);
      continue;
    }
    MachineNode &node = copy.to().node(copy.at(port_of[i]));
    node.number = static_cast<int>(devices[i].number);
    node.id = devices[i].info.name;
    if (node.rail < 0) node.rail = devices[i].info.rail;
    if (node.latency_us <= 0) node.latency_us = devices[i].info.latency_ns / 1000.0;
  }
  return copy.take();
}

Result<std::shared_ptr<const HostMachine>> host_machine(const Config &config, Iface<tutti_net_v1> net) {
  static std::mutex mutex; // guards known
  static auto *known = new std::map<const void *, Result<std::shared_ptr<const HostMachine>>>;
  std::lock_guard lock(mutex);
  const auto it = known->find(net.table);
  if (it != known->end()) return it->second;
  return known->emplace(net.table, describe(config, net)).first->second;
}

} // namespace tutti
