#include "comm/channel_graphs.h"
#include "topology/host_trees.h"
#include "topology/seats.h"
#include <algorithm>

namespace tutti {
namespace {

struct Place {
  int number = 0; // <gpu dev>, or that of its NUMA node
  const std::vector<int> *ranks = nullptr;
};

std::vector<Place> places_of(const ClusterInput &input, const SeatedHost &host) {
  const Machine &m = input.machines[static_cast<size_t>(host.machine)];
  std::vector<Place> out;
  for (size_t i = 0; i < host.places.size(); i++) out.push_back({m.node(host.places[i]).number, &host.ranks[i]});
  return out;
}

// Places in the order in which `ranks`, a part of a ring or a chain, comes to them first.
std::vector<int> visited(const std::vector<Place> &places, std::span<const int32_t> ranks) {
  std::vector<int> out;
  for (const int32_t rank : ranks)
    for (const Place &p : places)
      if (std::find(p.ranks->begin(), p.ranks->end(), rank) != p.ranks->end() &&
          std::find(out.begin(), out.end(), p.number) == out.end())
        out.push_back(p.number);
  return out;
}

PathKind worst_of(const Machine &m, const SeatedHost &host) {
  const Paths paths(m);
  PathKind worst = PathKind::loc;
  for (const int a : host.places)
    for (const int b : host.places) worst = std::max(worst, paths.between(a, b).kind);
  return worst;
}

std::string list_of(const std::vector<int> &numbers) {
  std::string out;
  for (const int n : numbers) out += fmt::format("{}{}", out.empty() ? "" : " ", n);
  return out;
}

// Lays the orders of a file over the hosts.
class Taker {
public:
  Taker(const std::string &file, const ClusterInput &input, const std::vector<SeatedHost> &hosts, Cluster *cluster)
      : file_(file), input_(input), hosts_(hosts), out_(cluster) {}

  Status rings(const Graph &graph, size_t count) {
    const std::vector<ClusterChannel> searched = out_->channels;
    out_->channels.clear();
    for (size_t i = 0; i < count; i++) {
      ClusterChannel c = searched[i % searched.size()];
      c.ring.clear();
      for (const int32_t h : out_->host_order) {
        TUTTI_ASSIGN(ranks, ranks_in_order(graph, i, static_cast<size_t>(h)));
        c.ring.insert(c.ring.end(), ranks.begin(), ranks.end());
        take_ports(graph.channels[i], static_cast<size_t>(h), &c.hosts[static_cast<size_t>(h)]);
      }
      out_->channels.push_back(std::move(c));
    }
    out_->ring_gbps = graph.gbps;
    return {};
  }

  Status trees(const Graph &graph) {
    for (size_t i = 0; i < out_->channels.size(); i++) {
      const std::vector<int> above = host_tree(static_cast<int>(hosts_.size()), static_cast<int>(i % 2));
      std::vector<std::vector<int>> chains;
      for (const int32_t h : out_->host_order) {
        TUTTI_ASSIGN(ranks, ranks_in_order(graph, i % graph.channels.size(), static_cast<size_t>(h)));
        chains.push_back(std::move(ranks));
      }
      std::vector<int32_t> &parent = out_->channels[i].parent;
      for (size_t k = 0; k < chains.size(); k++)
        for (size_t r = 0; r < chains[k].size(); r++)
          parent[static_cast<size_t>(chains[k][r])] = r > 0          ? chains[k][r - 1]
                                                      : above[k] < 0 ? -1
                                                                     : chains[static_cast<size_t>(above[k])].front();
    }
    out_->tree_gbps = graph.gbps;
    return {};
  }

private:
  Result<std::vector<int>> ranks_in_order(const Graph &graph, size_t channel, size_t host) const {
    const std::vector<Place> places = places_of(input_, hosts_[host]);
    const std::vector<int> &order = graph.channels[channel].gpus;
    std::vector<int> ranks, numbers;
    for (const Place &p : places) numbers.push_back(p.number);
    for (const int number : order)
      for (const Place &p : places)
        if (p.number == number) ranks.insert(ranks.end(), p.ranks->begin(), p.ranks->end());
    std::vector<int> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::sort(numbers.begin(), numbers.end());
    if (sorted == numbers) return ranks;
    return fail(Code::invalid_argument, "{}: graph {} channel {}: visits {}, but ranks of host {} are at {}", file_, graph.id,
                channel, order.empty() ? "nothing" : list_of(order), out_->hosts[host].name, list_of(numbers));
  }

  // <net dev>, the first in, the last out.
  void take_ports(const Graph::Channel &channel, size_t host, ClusterChannel::Use *use) const {
    if (channel.nets.empty()) return;
    const auto &ports = out_->hosts[host].ports;
    const auto port_of = [&](int dev, int32_t otherwise) {
      for (size_t i = 0; i < ports.size(); i++)
        if (std::find(ports[i].devs.begin(), ports[i].devs.end(), dev) != ports[i].devs.end()) return static_cast<int32_t>(i);
      return otherwise;
    };
    use->port_in = port_of(channel.nets.front(), use->port_in);
    use->port_out = port_of(channel.nets.back(), use->port_out);
    if (use->port_in >= 0) use->rail = ports[static_cast<size_t>(use->port_in)].rail;
  }

  const std::string &file_;
  const ClusterInput &input_;
  const std::vector<SeatedHost> &hosts_;
  Cluster *out_;
};

} // namespace

Result<std::vector<Graph>> graphs_of(const ClusterInput &input, const Cluster &cluster) {
  TUTTI_ASSIGN(hosts, seat_ranks(input));
  const auto host = static_cast<size_t>(input.ranks.front().host);
  const std::vector<Place> places = places_of(input, hosts[host]);
  const PathKind worst = worst_of(input.machines[static_cast<size_t>(hosts[host].machine)], hosts[host]);
  Graph rings{0, Graph::kRing, cluster.ring_gbps, worst, {}}, chains{1, Graph::kTree, cluster.tree_gbps, worst, {}};
  for (const ClusterChannel &c : cluster.channels) {
    Graph::Channel &ring = rings.channels.emplace_back();
    ring.gpus = visited(places, c.ring);
    const auto &ports = cluster.hosts[host].ports;
    for (const int32_t port : {c.hosts[host].port_in, c.hosts[host].port_out})
      if (port >= 0 && ports[static_cast<size_t>(port)].devs.front() >= 0)
        ring.nets.push_back(ports[static_cast<size_t>(port)].devs.front());
    std::vector<int32_t> chain; // from the rank whose parent is elsewhere, down
    const auto here = [&](int32_t r) { return r >= 0 && input.ranks[static_cast<size_t>(r)].host == static_cast<int>(host); };
    int32_t at = -1;
    for (size_t r = 0; r < c.parent.size(); r++)
      if (here(static_cast<int32_t>(r)) && !here(c.parent[r])) at = static_cast<int32_t>(r);
    while (at >= 0) {
      chain.push_back(at);
      const auto &below = c.children[static_cast<size_t>(at)];
      const auto next = std::find_if(below.begin(), below.end(), here);
      at = next == below.end() ? -1 : *next;
    }
    chains.channels.push_back({visited(places, chain), {}});
  }
  return std::vector<Graph>{std::move(rings), std::move(chains)};
}

Status take_graphs(const std::vector<Graph> &graphs, const std::string &file, const ClusterInput &input, size_t most,
                   Cluster *cluster) {
  TUTTI_ASSIGN(hosts, seat_ranks(input));
  Taker taker(file, input, hosts, cluster);
  const auto of = [&](int id) {
    return std::find_if(graphs.begin(), graphs.end(), [id](const Graph &g) { return g.id == id; });
  };
  const auto rings = of(0), trees = of(1);
  if (rings == graphs.end()) return fail(Code::invalid_argument, "{}: no graph 0, which holds the rings", file);
  const size_t there = rings->channels.size(), count = std::min(there, most);
  if (there == 0) return fail(Code::invalid_argument, "{}: graph 0 has no channel", file);
  TUTTI_TRY(taker.rings(*rings, count));
  const bool with_trees = trees != graphs.end() && !trees->channels.empty();
  if (with_trees) TUTTI_TRY(taker.trees(*trees));
  fill_children(cluster);
  if (count < there)
    cluster->why.push_back(fmt::format("{}: {} of {} channels, as max_channels is {}", file, count, there, most));
  cluster->why.push_back(fmt::format("rings{} of {} channels are those of {}", with_trees ? " and trees" : "", count, file));
  return {};
}

} // namespace tutti
