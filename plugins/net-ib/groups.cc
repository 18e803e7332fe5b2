// tutti/plugins/net-ib/groups.cc
#include "groups.h"
#include "selection.h"
#include <numeric>
#include <tuple>

namespace tutti::net_ib {

using plugin::text;
using Group = std::vector<Candidate>;

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool less_by_name(const Port &a, const Port &b) {
  return a.device == b.device ? a.port < b.port : natural_less(a.device, b.device);
}

// By PCI address; those that have none come last, by name.
bool less_by_pci(const Port &a, const Port &b) {
  if (a.pci == b.pci) return less_by_name(a, b);
  return a.pci.empty() == b.pci.empty() ? a.pci < b.pci : b.pci.empty();
}

bool less_by_guid(const Port &a, const Port &b) {
  return a.guid == b.guid ? less_by_name(a, b) : a.guid < b.guid;
}

auto order_of(Rails rails) {
  return rails == Rails::name ? less_by_name : rails == Rails::guid ? less_by_guid : less_by_pci;
}

// Two functions over one physical port share its wire: together they are no faster, and down together.
bool same_wire(const Port &a, const Port &b) {
  return a.guid != 0 && a.guid == b.guid;
}

bool may_join(const Group &group, const Port &port) {
  if (group.size() >= max_rails) return false;
  const Port &first = group.front().port;
  return first.adapter == port.adapter && first.ethernet == port.ethernet && first.speed_mbps == port.speed_mbps &&
         std::none_of(group.begin(), group.end(), [&](const Candidate &c) { return same_wire(c.port, port); });
}

bool named(const std::vector<PortRule> &rules, const Port &port) {
  return std::any_of(rules.begin(), rules.end(), [&](const PortRule &r) { return r.matches(port.device, port.port); });
}

// The ports that merge_ports lists as one device, in its order. What cannot be joined is left alone.
std::vector<Group> take_listed(const Settings &settings, std::vector<Candidate> &rest, Found &found) {
  std::vector<Group> out;
  for (const std::vector<PortRule> &rules : parse_merge_groups(settings.merge_ports).groups) {
    Group group;
    for (const PortRule &rule : rules) {
      bool hit = false;
      for (auto c = rest.begin(); c != rest.end();) {
        if (!rule.matches(c->port.device, c->port.port)) {
          ++c;
          continue;
        }
        hit = true;
        if (group.size() == max_rails || (!group.empty() && group.front().port.ethernet != c->port.ethernet)) {
          found.notes.push_back(text(c->port.name(), " is not merged with ", group.front().port.name(), ": ",
                                     group.size() == max_rails ? text("a device has at most ", max_rails, " ports")
                                                               : std::string("one is Ethernet, the other InfiniBand")));
          ++c;
          continue;
        }
        group.push_back(std::move(*c));
        c = rest.erase(c);
      }
      const bool twice = std::any_of(out.begin(), out.end(), [&](const Group &g) {
        return std::any_of(g.begin(), g.end(), [&](const Candidate &c) { return named({rule}, c.port); });
      });
      if (!hit && !twice) found.unmatched.push_back(text("merge_ports: ", rule.text));
    }
    if (!group.empty()) out.push_back(std::move(group));
  }
  return out;
}

std::vector<Group> make_groups(const Settings &settings, std::vector<Candidate> rest, Found &found) {
  const auto less = order_of(settings.rails);
  std::sort(rest.begin(), rest.end(), [&](const Candidate &a, const Candidate &b) { return less(a.port, b.port); });
  std::vector<Group> groups = take_listed(settings, rest, found);
  const auto listed = static_cast<std::ptrdiff_t>(groups.size());
  for (Candidate &c : rest) {
    const auto joined = std::find_if(groups.begin() + listed, groups.end(),
                                     [&](const Group &g) { return settings.merge && may_join(g, c.port); });
    if (joined == groups.end())
      groups.push_back({std::move(c)});
    else
      joined->push_back(std::move(c));
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const Group &a, const Group &b) { return less(a.front().port, b.front().port); });
  return groups;
}

// A path from a spare port to the peer has to exist: the same kind of network, and for InfiniBand the same subnet.
bool can_replace(const Port &lost, const Port &spare) {
  if (lost.ethernet != spare.ethernet || same_wire(lost, spare)) return false;
  if (!lost.ethernet) return lost.gid.global.subnet_prefix == spare.gid.global.subnet_prefix;
  return lost.roce_version == spare.roce_version && is_ipv4(lost.gid) == is_ipv4(spare.gid);
}

// Nearest first: the same NUMA node, then the next rails in turn, so that those of several devices that fail differ.
void add_spares(std::vector<Device> &devices) {
  const size_t n = devices.size();
  std::vector<std::vector<Port>> spares(n);
  for (size_t d = 0; d < n; d++) {
    const Port &own = devices[d].own.front();
    std::vector<Port> &out = spares[d];
    for (size_t step = 1; step < n; step++)
      for (const Port &p : devices[(d + step) % n].own)
        if (std::all_of(devices[d].own.begin(), devices[d].own.end(), [&](const Port &o) { return can_replace(o, p); }))
          out.push_back(p);
    std::stable_partition(out.begin(), out.end(), [&](const Port &p) { return p.numa_node == own.numa_node; });
    if (out.size() > max_spares) out.resize(max_spares);
  }
  for (size_t d = 0; d < n; d++) devices[d].spare = std::move(spares[d]);
}

std::string name_of(const std::vector<Port> &own) {
  std::string all;
  for (const Port &p : own) all += text(all.empty() ? "" : "+", p.name());
  constexpr size_t room = 63; // of tutti_net_dev::name
  return all.size() <= room ? all : text(own.front().name(), "+", own.size() - 1, " ports");
}

} // namespace

bool natural_less(const std::string &a, const std::string &b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto number = [](const std::string &s, size_t &at) {
        uint64_t n = 0;
        for (; at < s.size() && is_digit(s[at]); at++) n = n * 10 + static_cast<uint64_t>(s[at] - '0');
        return n;
      };
      const uint64_t x = number(a, i), y = number(b, j);
      if (x != y) return x < y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      i++, j++;
    }
  }
  return std::tuple(a.size() - i, a.size()) < std::tuple(b.size() - j, b.size());
}

std::vector<Device> make_devices(const Settings &settings, std::vector<Candidate> candidates, Found &found) {
  std::vector<Device> out;
  int rail = 0;
  for (Group &group : make_groups(settings, std::move(candidates), found)) {
    Device d;
    for (Candidate &c : group) {
      if (c.port.rail < 0 && settings.rails != Rails::none) c.port.rail = rail;
      if (c.usable) d.own.push_back(std::move(c.port));
    }
    rail++;
    if (d.own.empty()) continue;
    d.name = name_of(d.own);
    out.push_back(std::move(d));
  }
  if (settings.failover) add_spares(out);
  return out;
}

} // namespace tutti::net_ib
