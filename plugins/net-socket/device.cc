// tutti/plugins/net-socket/device.cc
#include "device.h"
#include <climits>

namespace tutti::net_socket {

constexpr uint32_t unknown_speed_mbps = 10000; // as the field assumes
constexpr uint64_t max_message = uint64_t{1} << 40;

namespace {

bool is_veth(const std::string &name) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ethtool_drvinfo info{};
  info.cmd = ETHTOOL_GDRVINFO;
  ifreq req{};
  name.copy(req.ifr_name, IFNAMSIZ - 1);
  req.ifr_data = reinterpret_cast<char *>(&info);
  const bool yes = ioctl(fd, SIOCETHTOOL, &req) == 0 && std::string_view(info.driver) == "veth";
  close(fd);
  return yes;
}

int read_numa_node(const std::string &name) {
  int node = -1;
  if (FILE *f = std::fopen(("/sys/class/net/" + name + "/device/numa_node").c_str(), "re")) {
    if (std::fscanf(f, "%d", &node) != 1) node = -1;
    std::fclose(f);
  }
  return node;
}

// "/sys/bus/pci/devices/0000:17:00.0", or "": a virtual card's folder lies below that of its function, and the whole path
// through the bridges may be longer than there is room.
std::string pci_path(const std::string &name) {
  char path[PATH_MAX];
  if (!realpath(("/sys/class/net/" + name + "/device").c_str(), path)) return "";
  for (std::string at = path; !at.empty(); at.resize(at.rfind('/'))) {
    const std::string last = at.substr(at.rfind('/') + 1);
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    int end = 0;
    if (std::sscanf(last.c_str(), "%x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4 &&
        static_cast<size_t>(end) == last.size())
      return "/sys/bus/pci/devices/" + last;
  }
  return "";
}

} // namespace

std::vector<Device> find_devices(const Settings &settings, std::string &why) {
  netif::Selection found = netif::select(settings.interface, settings.family);
  why = found.error;
  // Loopback serves when nothing else does, or when a rule names it.
  const bool elsewhere = std::any_of(found.choices.begin(), found.choices.end(),
                                     [](const netif::Choice &c) { return !c.interface.loopback && c.interface.running; });
  const bool automatic = settings.interface.empty() || settings.interface.front() == '^';
  std::vector<Device> out;
  for (netif::Choice &c : found.choices) {
    if (automatic && elsewhere && c.interface.loopback) continue;
    auto d = std::find_if(out.begin(), out.end(), [&](const Device &o) { return o.interface.name == c.interface.name; });
    if (d == out.end()) {
      d = out.insert(out.end(), Device{std::move(c.interface), false});
      d->veth = is_veth(d->interface.name);
    }
    // Link-local addresses come last; they serve when there is nothing else.
    if (d->interface.addresses.empty() || !c.address.link_local()) d->interface.addresses.push_back(c.address);
  }
  // A carrier may come or go at any time, so an interface without one is only a worse choice.
  std::stable_partition(out.begin(), out.end(), [](const Device &d) { return d.interface.running; });
  return out;
}

void describe(const Device &d, tutti_net_dev &out) {
  out.mem_kinds = TUTTI_MEM_HOST;
  d.interface.name.copy(out.name, sizeof out.name - 1);
  pci_path(d.interface.name).copy(out.pci, sizeof out.pci - 1);
  out.guid = 0xcbf29ce484222325u; // FNV-1a of the name
  for (const char c : d.interface.name) out.guid = (out.guid ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  out.max_message_bytes = max_message;
  out.speed_mbps = d.interface.speed_mbps > 0 ? static_cast<uint32_t>(d.interface.speed_mbps) : unknown_speed_mbps;
  out.max_inflight = 64;
  out.max_batch = 4;
  out.flags = TUTTI_NET_ENCRYPTS | (d.interface.loopback ? uint32_t{TUTTI_NET_LOOPBACK} : 0);
  out.numa_node = read_numa_node(d.interface.name);
  out.rail = -1;
}

bool same_network(const Address &mine, const Address &other) {
  if (mine.family() != other.family()) return false;
  netif::detail::Entry network;
  network.net = mine.storage;
  network.prefix = mine.prefix;
  return netif::detail::in_network(other, network);
}

bool is_own(const Address &address) {
  const std::string text = netif::to_text(address);
  for (const netif::Interface &i : netif::list(address.family()))
    for (const Address &a : i.addresses)
      if (netif::to_text(a) == text) return true;
  return false;
}

bool stays_on_host(const Device &device, const Address &peer) {
  return device.interface.loopback || device.veth || is_own(peer);
}

} // namespace tutti::net_socket
