#include "comm/channels.h"
#include "base/file.h"
#include "comm/channel_graphs.h"
#include "log/log.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace tutti {
namespace {

using log::Subsys;

const uint64_t kMachineTag = make_tag(MsgKind::internal, 0x6d61'6368);

// Indices into `names`, which grows by what it lacks.
std::vector<uint32_t> devices_of(const ClusterHost &host, int32_t port, std::vector<std::string> *names) {
  std::vector<uint32_t> out;
  if (port < 0) return out;
  const ClusterPort &p = host.ports[static_cast<size_t>(port)];
  for (size_t i = 0; i < p.devs.size(); i++) {
    if (p.devs[i] < 0) continue;
    const auto at = std::find(names->begin(), names->end(), p.dev_names[i]);
    out.push_back(static_cast<uint32_t>(at - names->begin()));
    if (at == names->end()) names->push_back(p.dev_names[i]);
  }
  return out;
}

bool several_devices(const Cluster &cluster) {
  return std::any_of(cluster.hosts.begin(), cluster.hosts.end(), [](const ClusterHost &host) {
    std::set<std::string_view> devs;
    for (const ClusterPort &port : host.ports)
      for (size_t i = 0; i < port.devs.size(); i++)
        if (port.devs[i] >= 0) devs.insert(port.dev_names[i]);
    return devs.size() > 1;
  });
}

// A host of which nothing is known.
Machine blank_machine() {
  Machine m;
  m.add({.kind = NodeKind::cpu, .id = "0", .number = 0});
  return m;
}

Status write_graphs(const std::string &path, const ClusterInput &input, const Cluster &cluster) {
  TUTTI_ASSIGN(graphs, graphs_of(input, cluster));
  return replace_file(path, graph_xml(graphs));
}

} // namespace

bool files_named(const Config &config) {
  for (const char *key : {"topology.file", "topology.dump_file", "topology.graph_file", "topology.graph_dump_file"})
    if (!config.text(key).empty()) return true;
  return false;
}

std::string nothing_to_choose(const Config &config, int nranks, bool one_host) {
  if (nranks == 1) return "one rank";
  if (!one_host || files_named(config)) return "";
  if (nranks == 2) return "two ranks of one host have one order";
  return numa_nodes() > 1 ? "" : "all ranks are on one host with one NUMA node, equally near to each other";
}

Result<Cluster> search_cluster(const Config &config, const ClusterInput &input) {
  TUTTI_ASSIGN(cluster, make_cluster(input, cluster_rules(config)));
  if (const std::string path = expand_path(config, "topology.graph_file"); !path.empty()) {
    TUTTI_ASSIGN(graphs, read_graphs(path));
    const auto most = static_cast<size_t>(config.number("coll.max_channels"));
    TUTTI_TRY(take_graphs(graphs, path, input, most, &cluster));
  }
  return cluster;
}

std::string ChannelSearch::nothing() const {
  const Bootstrap &b = bootstrap_;
  bool one_host = true;
  for (int r = 1; r < b.nranks(); r++) one_host &= b.peer(r).host == b.peer(0).host;
  return nothing_to_choose(*config_, b.nranks(), one_host);
}

void ChannelSearch::describe(RankFacts *mine) {
  const int me = bootstrap_.rank();
  for (int r = 0; r < me; r++)
    if (bootstrap_.peer(r).host == bootstrap_.peer(me).host) return;
  if (!files_named(*config_) && !nothing().empty()) return;
  auto machine = host_machine(*config_, survey_);
  if (machine.ok()) {
    here_ = *machine;
    mine->machine = here_->digest;
  } else if (files_named(*config_)) {
    const Setting &file = config_->setting("topology.file");
    mine->machine_error = file.text.empty() ? "" : fmt::format("{}: ", file.origin);
    mine->machine_error += machine.status().error().line();
  } else {
    log::info(Subsys::graph, "this host cannot be described: {}", machine.status().error().line());
  }
}

Status ChannelSearch::check(std::span<const RankFacts> facts, const Bootstrap &bootstrap) {
  for (size_t r = 0; r < facts.size(); r++)
    if (!facts[r].machine_error.empty())
      return fail(Code::invalid_usage, "host {}: {}", bootstrap.peer(static_cast<int>(r)).hostname, facts[r].machine_error)
          .peer(static_cast<int>(r))
          .phase("topology");
  return {};
}

Result<ClusterInput> ChannelSearch::gather(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline) {
  ClusterInput in;
  std::map<uint64_t, int> machine_of; // by digest
  const auto add = [&](uint64_t digest, Machine machine) {
    machine_of[digest] = static_cast<int>(in.machines.size());
    in.machines.push_back(std::move(machine));
  };
  if (here_) add(here_->digest, here_->machine);
  for (size_t r = 0; r < facts.size(); r++) {
    const uint64_t digest = facts[r].machine;
    if (digest == 0 || machine_of.contains(digest)) continue;
    TUTTI_ASSIGN(message, bootstrap_.recv(static_cast<int>(r), kMachineTag, deadline, "describing hosts"));
    auto machine = decode_machine(message.data);
    if (!machine.ok()) return std::move(machine.status()).peer(static_cast<int>(r));
    add(digest, std::move(*machine));
  }
  in.hosts.resize(topology.node_count);
  std::vector<bool> seen(topology.node_count, false);
  for (size_t r = 0; r < facts.size(); r++) {
    const auto node = static_cast<size_t>(topology.node_of_rank[r]);
    if (!seen[node]) { // its lowest rank
      seen[node] = true;
      if (!machine_of.contains(facts[r].machine)) add(facts[r].machine, blank_machine());
      in.hosts[node].machine = machine_of[facts[r].machine];
      in.hosts[node].name = bootstrap_.peer(static_cast<int>(r)).hostname;
    }
    in.ranks.push_back({static_cast<int>(node), {Seat::Kind::cpus, -1, facts[r].cpus}});
  }
  return in;
}

Result<ChannelPlan> ChannelSearch::search(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline) {
  ChannelPlan plan;
  if (const std::string why = nothing(); !why.empty()) {
    plan.why.push_back(why);
    return plan;
  }
  TUTTI_ASSIGN(input, gather(facts, topology, deadline));
  TUTTI_ASSIGN(cluster, search_cluster(*config_, input));
  if (const std::string path = expand_path(*config_, "topology.graph_dump_file"); !path.empty())
    TUTTI_TRY(write_graphs(path, input, cluster));
  plan.why = cluster.why;
  plan.cluster = std::make_shared<const Cluster>(std::move(cluster));
  return plan;
}

Result<Bytes> ChannelSearch::run(std::span<const RankFacts> facts, const Topology &topology, Deadline deadline) {
  const int me = bootstrap_.rank();
  if (me == 0) {
    auto plan = search(facts, topology, deadline);
    if (plan.ok()) return plan->encode();
    if (bootstrap_.failed()) return bootstrap_.failure();
    return ChannelPlan::encode_refusal(plan.status());
  }
  const uint64_t mine = facts[static_cast<size_t>(me)].machine;
  if (mine == 0 || !nothing().empty()) return Bytes();
  for (int r = 0; r < me; r++)
    if (facts[static_cast<size_t>(r)].machine == mine) return Bytes();
  TUTTI_TRY(bootstrap_.send(0, kMachineTag, here_->encoded));
  return Bytes();
}

NetRoutes net_routes(const Cluster &cluster, const Topology &topology, int rank) {
  const auto host = static_cast<size_t>(topology.node_of_rank[static_cast<size_t>(rank)]);
  std::vector<std::string> names;
  std::vector<NetRoutes::Channel> channels;
  for (const ClusterChannel &c : cluster.channels) {
    NetRoutes::Channel out;
    const size_t n = c.ring.size();
    const auto at = static_cast<size_t>(std::find(c.ring.begin(), c.ring.end(), rank) - c.ring.begin());
    out.before = c.ring[(at + n - 1) % n];
    out.after = c.ring[(at + 1) % n];
    out.tree = c.children[static_cast<size_t>(rank)];
    if (c.parent[static_cast<size_t>(rank)] >= 0) out.tree.push_back(c.parent[static_cast<size_t>(rank)]);
    const ClusterChannel::Use &use = c.hosts[host];
    out.in = devices_of(cluster.hosts[host], use.port_in, &names);
    out.out = devices_of(cluster.hosts[host], use.port_out, &names);
    out.by_tree = devices_of(cluster.hosts[host], use.port_tree, &names);
    channels.push_back(std::move(out));
  }
  std::vector<NetRoutes::Spot> spots;
  std::vector<uint32_t> ranks_on(topology.node_count, 0);
  for (const int32_t node : topology.node_of_rank)
    spots.push_back({ranks_on[static_cast<size_t>(node)]++, static_cast<uint32_t>(node)});
  return {std::move(names), std::move(channels), std::move(spots), several_devices(cluster)};
}

std::string ranks_text(std::span<const int32_t> ranks) {
  constexpr size_t kMost = 64;
  std::string out;
  for (size_t i = 0; i < std::min(ranks.size(), kMost); i++) out += fmt::format("{}{}", i ? " " : "", ranks[i]);
  return ranks.size() > kMost ? fmt::format("{} ... ({} ranks)", out, ranks.size()) : out;
}

std::string channel_text(const Cluster &cluster, size_t channel) {
  constexpr size_t kMost = 8; // hosts
  const ClusterChannel &c = cluster.channels[channel];
  std::string out = "ring " + ranks_text(c.ring), hosts;
  for (size_t h = 0; h < std::min(c.hosts.size(), kMost); h++) {
    const ClusterChannel::Use &use = c.hosts[h];
    if (use.port_in < 0 || use.port_out < 0) continue;
    const auto &ports = cluster.hosts[h].ports;
    const std::string &in = ports[static_cast<size_t>(use.port_in)].name,
                      &leaves = ports[static_cast<size_t>(use.port_out)].name;
    hosts += fmt::format("{}{} {}", hosts.empty() ? "; " : ", ", cluster.hosts[h].name, in);
    if (in != leaves) hosts += " -> " + leaves;
  }
  if (!hosts.empty() && c.hosts.size() > kMost) hosts += fmt::format(" ... ({} hosts)", c.hosts.size());
  return out + hosts;
}

std::string reordering(const Cluster &cluster, const Topology &topology) {
  std::vector<int32_t> ring = cluster.channels.front().ring;
  std::rotate(ring.begin(), std::find(ring.begin(), ring.end(), topology.ring_order.front()), ring.end());
  if (ring == topology.ring_order) return "";
  return fmt::format("ring order: {} -> {}", ranks_text(topology.ring_order), ranks_text(ring));
}

} // namespace tutti
