#include "tools/info_channels.h"
#include "comm/channels.h"
#include "comm/select/limits.h"
#include "comm/startup.h"
#include "tools/topo.h"
#include <algorithm>
#include <nlohmann/json.hpp>

namespace tutti::tools {
namespace {

// Ranks in blocks, which is how launchers place them, each free to run where this process is.
ClusterInput input_of(const Machine &machine, const ChannelJob &job) {
  ClusterInput in;
  in.machines.push_back(machine);
  for (int h = 0; h < job.hosts; h++) in.hosts.push_back({0, fmt::format("host {}", h), ""});
  for (int r = 0; r < job.ranks; r++)
    in.ranks.push_back(
        {static_cast<int>(int64_t{r} * job.hosts / job.ranks), {Seat::Kind::cpus, -1, CpuSet::of_this_process()}});
  return in;
}

Result<std::shared_ptr<const Cluster>> search(const Config &config, const Registry &registry, const ChannelJob &job) {
  Iface<tutti_net_v1> net;
  std::string why;
  if (job.hosts > 1) {
    TUTTI_ASSIGN(chosen, choose_net(config, registry, &why));
    if (!chosen) return fail(Code::invalid_usage, "no network plugin has a device: {}", why);
    net = chosen;
  }
  NetSurvey survey(net);
  TUTTI_ASSIGN(machine, host_machine(config, survey));
  TUTTI_ASSIGN(cluster, search_cluster(config, input_of(machine->machine, job)));
  return std::make_shared<const Cluster>(std::move(cluster));
}

std::string indented(const std::string &text) {
  std::string out = "  ";
  for (size_t i = 0; i < text.size(); i++) {
    out += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) out += "  ";
  }
  return out;
}

ChannelLimits limits_of(const Config &config, const Topology &topology) {
  return channel_limits(static_cast<uint32_t>(config.number("coll.min_channels")),
                        static_cast<uint32_t>(config.number("coll.max_channels")), topology);
}

// What operations will have: the tuner chooses within it.
std::string limits_text(const Config &config, const Topology &topology) {
  const ChannelLimits l = limits_of(config, topology);
  const std::string set = fmt::format("coll.min_channels {}, coll.max_channels {}", l.min, l.max);
  if (topology.node_count > 1)
    return fmt::format(
        "proposed: {} for long messages, {} for short ones; at most {} unless more were measured to be faster\n  {}\n",
        l.proposed, l.min, l.unmeasured, set);
  return fmt::format("proposed: {}, as ranks of one host share its memory; the tuner may take more ({})\n", l.proposed, set);
}

} // namespace

Status print_channels(const Config &config, const Registry &registry, ChannelJob job) {
  if (job.ranks == 0) job.ranks = std::max(2, static_cast<int>(CpuSet::of_this_process().count()) * job.hosts);
  if (job.ranks < job.hosts) return fail(Code::invalid_usage, "{} ranks are too few for {} hosts", job.ranks, job.hosts);
  std::vector<TopologyInput> ranks;
  for (int r = 0; r < job.ranks; r++) ranks.push_back({static_cast<uint64_t>(int64_t{r} * job.hosts / job.ranks)});
  Topology topology = make_topology(ranks);
  const std::string nothing = nothing_to_choose(config, job.ranks, job.hosts == 1);
  if (nothing.empty()) {
    TUTTI_ASSIGN(cluster, search(config, registry, job));
    topology.cluster = cluster;
  }
  if (job.json) {
    nlohmann::ordered_json out{{"ranks", job.ranks}, {"hosts", job.hosts}};
    out["searched"] = nothing.empty() ? nlohmann::ordered_json::parse(cluster_json(*topology.cluster)) : nullptr;
    if (!nothing.empty()) out["why"] = nothing;
    const ChannelLimits l = limits_of(config, topology);
    out["channels"] = {{"least", l.min}, {"proposed", l.proposed}, {"most", l.unmeasured}, {"most_measured", l.max}};
    fmt::print("{}\n", out.dump(2));
    return {};
  }
  fmt::print("channels of a job of {} ranks on {} host{} like this\n", job.ranks, job.hosts, job.hosts == 1 ? "" : "s");
  if (!nothing.empty()) fmt::print("  {}\n", nothing);
  if (nothing.empty()) fmt::print("{}", indented(cluster_text(*topology.cluster)));
  fmt::print("  {}", limits_text(config, topology));
  return {};
}

} // namespace tutti::tools
