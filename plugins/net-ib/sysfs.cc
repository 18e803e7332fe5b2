// tutti/plugins/net-ib/sysfs.cc
#include "sysfs.h"
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>

namespace tutti::net_ib {
namespace {

bool is_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

// "0000:01:00.0", with a domain of four digits or more.
bool is_pci_address(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot + 2 != name.size() || dot < 10) return false;
  return name[dot - 3] == ':' && name[dot - 6] == ':' && is_hex(name.substr(dot - 2, 2)) && is_hex(name.substr(dot - 5, 2)) &&
         is_hex(name.substr(0, dot - 6)) && is_hex(name.substr(dot + 1));
}

// "0002:c903:00ab:cdef" -> a number.
uint64_t parse_guid(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ':'), text.end());
  return text.empty() || !is_hex(text) ? 0 : std::strtoull(text.c_str(), nullptr, 16);
}

} // namespace

std::string Sysfs::line(const std::string &path) const {
  std::string out;
  FILE *f = std::fopen((root_ + path).c_str(), "re");
  if (!f) return out;
  char buf[256];
  if (std::fgets(buf, sizeof buf, f)) out = buf; // some of these files refuse to be read, as those of empty GID entries
  std::fclose(f);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  return out;
}

std::vector<std::string> Sysfs::list(const std::string &folder) const {
  std::vector<std::string> out;
  if (DIR *d = opendir((root_ + folder).c_str())) {
    while (const dirent *e = readdir(d))
      if (e->d_name[0] != '.') out.emplace_back(e->d_name);
    closedir(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string Sysfs::real(const std::string &path) const {
  char buf[PATH_MAX];
  return realpath((root_ + path).c_str(), buf) ? buf : "";
}

std::string Sysfs::netdev(const std::string &device, unsigned port_number, int gid_index) const {
  if (gid_index >= 0)
    if (std::string name = line(port(device, port_number) + "/gid_attrs/ndevs/" + std::to_string(gid_index)); !name.empty())
      return name;
  return line("/class/infiniband/" + device + "/parent");
}

std::string Sysfs::lower_netdev(const std::string &netdev) const {
  std::string at = netdev;
  for (int depth = 0; depth < 4; depth++) {
    std::vector<std::string> below;
    for (const std::string &name : list("/class/net/" + at))
      if (name.rfind("lower_", 0) == 0) below.push_back(name.substr(6));
    if (below.size() != 1) break;
    at = below.front();
  }
  return at;
}

std::string Sysfs::pci(const std::string &device, const std::string &netdev) const {
  std::string at = real("/class/infiniband/" + device + "/device");
  if (at.empty() && !netdev.empty()) at = real("/class/net/" + lower_netdev(netdev) + "/device");
  // Auxiliary and virtio devices lie below their PCI function.
  for (size_t slash = at.rfind('/'); slash != std::string::npos && slash > 0; slash = at.rfind('/')) {
    if (is_pci_address(std::string_view(at).substr(slash + 1))) return at;
    at.resize(slash);
  }
  return "";
}

std::string Sysfs::physical(const std::string &pci) const {
  char buf[PATH_MAX];
  return !pci.empty() && realpath((pci + "/physfn").c_str(), buf) ? buf : pci;
}

int Sysfs::numa_node(const std::string &pci) const {
  if (pci.empty()) return -1;
  const std::string text = Sysfs("").line(pci + "/numa_node");
  return text.empty() ? -1 : std::atoi(text.c_str());
}

uint64_t Sysfs::node_guid(const std::string &device) const {
  return parse_guid(line("/class/infiniband/" + device + "/node_guid"));
}

uint64_t Sysfs::node_guid_of(const std::string &pci) const {
  const Sysfs absolute("");
  const std::vector<std::string> devices = absolute.list(pci + "/infiniband");
  return devices.empty() ? 0 : parse_guid(absolute.line(pci + "/infiniband/" + devices.front() + "/node_guid"));
}

uint32_t Sysfs::speed_mbps(const std::string &device, unsigned port_number) const {
  const std::string rate = line(port(device, port_number) + "/rate");
  char *end = nullptr;
  const double gigabits = std::strtod(rate.c_str(), &end);
  if (end == rate.c_str() || std::string_view(end).substr(0, 7) != " Gb/sec" || gigabits <= 0 || gigabits > 4e6) return 0;
  return static_cast<uint32_t>(gigabits * 1000 + 0.5);
}

} // namespace tutti::net_ib
