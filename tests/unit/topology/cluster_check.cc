#include "cluster_check.h"
#include <algorithm>
#include <map>
#include <set>

namespace verify {
namespace {

using tutti::Cluster;
using tutti::ClusterChannel;

std::vector<int> host_of_ranks(const Cluster &c) {
  std::vector<int> host(c.new_rank.size(), -1);
  for (size_t h = 0; h < c.hosts.size(); h++)
    for (int r : c.hosts[h].ranks) host.at(static_cast<size_t>(r)) = static_cast<int>(h);
  return host;
}

std::string ring_fault(const std::vector<int32_t> &ring, const std::vector<int> &host, size_t hosts) {
  const std::set<int32_t> all(ring.begin(), ring.end());
  if (ring.size() != host.size() || all.size() != host.size() || *all.begin() != 0)
    return "a ring does not visit each rank once";
  size_t changes = 0;
  for (size_t i = 0; i < ring.size(); i++)
    changes += host[static_cast<size_t>(ring[i])] != host[static_cast<size_t>(ring[(i + 1) % ring.size()])];
  return changes == (hosts == 1 ? 0 : hosts) ? "" : "a ring leaves a host and comes back";
}

std::string tree_fault(const ClusterChannel &c, const std::vector<int> &host) {
  size_t tops = 0;
  std::map<int, std::set<int>> child_hosts;
  for (size_t r = 0; r < c.parent.size(); r++) {
    size_t at = r, steps = 0;
    while (c.parent[at] >= 0 && steps++ <= c.parent.size()) at = static_cast<size_t>(c.parent[at]);
    if (steps > c.parent.size()) return "a tree has a circle";
    const int up = c.parent[r];
    tops += up < 0;
    if (up < 0) continue;
    const auto &siblings = c.children[static_cast<size_t>(up)];
    if (std::count(siblings.begin(), siblings.end(), static_cast<int>(r)) != 1) return "children are not those of the parents";
    if (host[r] != host[static_cast<size_t>(up)]) child_hosts[host[static_cast<size_t>(up)]].insert(host[r]);
  }
  for (const auto &[h, children] : child_hosts)
    if (children.size() > 2) return "a host has more than two children";
  return tops == 1 ? "" : "a tree has not one top";
}

std::string share_fault(const Cluster &c, size_t host) {
  const size_t ports = c.hosts[host].ports.size();
  if (ports == 0) return "";
  std::vector<int> in(ports), out(ports), tree(ports);
  for (const ClusterChannel &channel : c.channels) {
    const ClusterChannel::Use &u = channel.hosts[host];
    if (u.port_in < 0 || u.port_out < 0 || u.port_tree < 0) return "a channel has no NIC";
    in.at(static_cast<size_t>(u.port_in))++, out.at(static_cast<size_t>(u.port_out))++,
        tree.at(static_cast<size_t>(u.port_tree))++;
    if (!c.crossed && u.port_in != u.port_out) return "a ring leaves by another NIC";
    if (u.head != c.hosts[host].ports[static_cast<size_t>(u.port_tree)].head) return "a head is not that of its port";
  }
  for (const auto &used : {in, out, tree}) {
    const auto [least, most] = std::minmax_element(used.begin(), used.end());
    if (*most - *least > 1) return "NICs are not shared evenly";
  }
  return "";
}

// Where all hosts have the same rails.
std::string rail_fault(const Cluster &c) {
  std::set<std::set<int>> rails;
  for (const auto &h : c.hosts) {
    rails.emplace();
    std::set<int> own;
    for (const auto &p : h.ports) own.insert(p.rail);
    rails.insert(own);
  }
  rails.erase(std::set<int>{});
  if (rails.size() != 1 || c.hosts.front().ports.empty()) return "";
  for (const ClusterChannel &channel : c.channels)
    for (size_t i = 0; i + (c.crossed && c.hosts.size() % 2 == 1) < c.host_order.size(); i++) {
      const auto from = static_cast<size_t>(c.host_order[i]), to = static_cast<size_t>(c.host_order[(i + 1) % c.hosts.size()]);
      const auto &out = c.hosts[from].ports[static_cast<size_t>(channel.hosts[from].port_out)];
      const auto &in = c.hosts[to].ports[static_cast<size_t>(channel.hosts[to].port_in)];
      if (out.rail != in.rail) return "a ring changes its rail between two hosts";
    }
  return "";
}

// The ranks of a host in the order of the ring, from where the ring comes in.
std::vector<int> of_host(const std::vector<int32_t> &ring, const std::vector<int> &host, size_t wanted) {
  const auto inside = [&](size_t i) { return host[static_cast<size_t>(ring[i % ring.size()])] == static_cast<int>(wanted); };
  size_t first = 0;
  for (size_t i = 0; i < ring.size(); i++)
    if (inside(i) && !inside(i + ring.size() - 1)) first = i;
  std::vector<int> ranks;
  for (size_t i = first; i < first + ring.size() && inside(i); i++) ranks.push_back(ring[i % ring.size()]);
  return ranks;
}

std::string port_of(const Cluster &c, size_t host, int port) {
  return Host::port_name(c.hosts[host].ports[static_cast<size_t>(port)].devs.front());
}

std::vector<std::string> gpus_of(const std::vector<int> &ranks, const std::vector<int> &gpu_of_rank) {
  std::vector<std::string> names;
  for (int r : ranks) {
    const std::string gpu = Host::gpu_name(gpu_of_rank[static_cast<size_t>(r)]);
    if (names.empty() || names.back() != gpu) names.push_back(gpu);
  }
  return names;
}

} // namespace

std::string cluster_fault(const Cluster &c) {
  const std::vector<int> host = host_of_ranks(c);
  if (std::set<int>(c.new_rank.begin(), c.new_rank.end()).size() != c.new_rank.size()) return "new ranks repeat";
  if (c.channels.empty()) return "no channel";
  for (const ClusterChannel &channel : c.channels) {
    if (std::string f = ring_fault(channel.ring, host, c.hosts.size()); !f.empty()) return f;
    if (std::string f = tree_fault(channel, host); !f.empty()) return f;
  }
  for (size_t h = 0; h < c.hosts.size(); h++)
    if (std::string f = share_fault(c, h); !f.empty()) return f;
  return rail_fault(c);
}

double ring_each(const Cluster &c, size_t host, const Host &file, const std::vector<int> &gpu_of_rank) {
  const std::vector<int> hosts = host_of_ranks(c);
  std::vector<Walk> walks;
  for (const ClusterChannel &channel : c.channels) {
    Walk w{gpus_of(of_host(channel.ring, hosts, host), gpu_of_rank)};
    if (const ClusterChannel::Use &u = channel.hosts[host]; u.port_in >= 0) {
      w.stops.insert(w.stops.begin(), port_of(c, host, u.port_in));
      w.stops.push_back(port_of(c, host, u.port_out));
    } else if (c.hosts.size() == 1) {
      w.stops.push_back(w.stops.front());
    }
    walks.push_back(std::move(w));
  }
  return file.best_each(walks, c.ring_gbps * (1 - 1e-6));
}

double tree_each(const Cluster &c, size_t host, const Host &file, const std::vector<int> &gpu_of_rank) {
  const std::vector<int> hosts = host_of_ranks(c);
  std::vector<Walk> walks;
  for (const ClusterChannel &channel : c.channels) {
    for (int r : c.hosts[host].ranks) {
      const int up = channel.parent[static_cast<size_t>(r)];
      if (up < 0) continue;
      const std::string own = Host::gpu_name(gpu_of_rank[static_cast<size_t>(r)]);
      if (hosts[static_cast<size_t>(up)] == static_cast<int>(host)) {
        const std::string other = Host::gpu_name(gpu_of_rank[static_cast<size_t>(up)]);
        if (own != other) walks.push_back({{own, other, own}});
      } else if (channel.hosts[host].port_tree >= 0) {
        walks.push_back({{own, port_of(c, host, channel.hosts[host].port_tree), own}});
      }
    }
    for (size_t r = 0; r < channel.parent.size(); r++) { // those below on other hosts
      const int up = channel.parent[r];
      if (up < 0 || hosts[r] == static_cast<int>(host) || hosts[static_cast<size_t>(up)] != static_cast<int>(host)) continue;
      const std::string own = Host::gpu_name(gpu_of_rank[static_cast<size_t>(up)]);
      walks.push_back({{own, port_of(c, host, channel.hosts[host].port_tree), own}});
    }
  }
  return file.best_each(walks, c.tree_gbps * (1 - 1e-6));
}

} // namespace verify
