// tutti/plugins/net-ib/sysfs.h: what the kernel's files say about a device. Everything may be missing: a soft device has no
// `device` link, a container may have no sysfs at all.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::net_ib {

class Sysfs {
public:
  explicit Sysfs(std::string root) : root_(std::move(root)) {}

  // First line of a file below the root, "" when it cannot be read.
  std::string line(const std::string &path) const;
  std::vector<std::string> list(const std::string &folder) const; // sorted
  static std::string port(const std::string &device, unsigned port) {
    return "/class/infiniband/" + device + "/ports/" + std::to_string(port);
  }

  // The network interface that a GID belongs to, else the one that a soft device was made on.
  std::string netdev(const std::string &device, unsigned port, int gid_index) const;
  // Below stacked interfaces (VLAN, bond of one): the one that has the hardware.
  std::string lower_netdev(const std::string &netdev) const;

  // Folder of the PCI function that the device (or its network interface) belongs to, "" when there is none.
  std::string pci(const std::string &device, const std::string &netdev) const;
  // Of a virtual function: the physical one; else `pci` itself.
  std::string physical(const std::string &pci) const;
  int numa_node(const std::string &pci) const;
  uint64_t node_guid(const std::string &device) const;
  uint64_t node_guid_of(const std::string &pci) const; // of the RDMA device on that function
  // From "100 Gb/sec (4X EDR)": what the port runs at; 0 = unknown.
  uint32_t speed_mbps(const std::string &device, unsigned port) const;

private:
  std::string real(const std::string &path) const;
  std::string root_;
};

} // namespace tutti::net_ib
