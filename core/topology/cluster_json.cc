#include "topology/cluster.h"
#include <nlohmann/json.hpp>

namespace tutti {

std::string cluster_json(const Cluster &cluster) {
  using nlohmann::json;
  json out{{"ring_gbps_per_channel", cluster.ring_gbps},
           {"tree_gbps_per_channel", cluster.tree_gbps},
           {"crossed", cluster.crossed},
           {"host_order", cluster.host_order},
           {"new_rank", cluster.new_rank},
           {"why", cluster.why},
           {"hosts", json::array()},
           {"channels", json::array()}};
  for (const ClusterHost &h : cluster.hosts) {
    json ports = json::array();
    for (const ClusterPort &p : h.ports)
      ports.push_back({{"devs", p.devs},
                       {"name", p.name},
                       {"rail", p.rail},
                       {"gbps", p.gbps},
                       {"latency_us", p.latency_us},
                       {"head", p.head}});
    out["hosts"].push_back({{"name", h.name}, {"ranks", h.ranks}, {"ports", ports}});
  }
  for (const ClusterChannel &c : cluster.channels) {
    json hosts = json::array();
    for (const ClusterChannel::Use &u : c.hosts)
      hosts.push_back(
          {{"port_in", u.port_in}, {"port_out", u.port_out}, {"port_tree", u.port_tree}, {"head", u.head}, {"rail", u.rail}});
    out["channels"].push_back({{"ring", c.ring}, {"parent", c.parent}, {"children", c.children}, {"hosts", hosts}});
  }
  return out.dump(2) + "\n";
}

} // namespace tutti
