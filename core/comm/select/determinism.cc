#include "comm/select/determinism.h"
#include "base/types.h"
#include "comm/select/table.h"
#include "topology/cluster.h"

namespace tutti {
namespace {

Topology on_one_host(size_t nranks) {
  std::vector<TopologyInput> ranks(nranks);
  return make_topology(ranks);
}
Topology each_on_its_own(size_t nranks) {
  std::vector<TopologyInput> ranks(nranks);
  for (size_t r = 0; r < nranks; r++) ranks[r].host = r;
  return make_topology(ranks);
}

// One way to ask for a plan, and what its order would depend on if it were another one than the first way's.
struct Variant {
  const Topology *topology;
  int root;
  uint32_t channels, flags;
  const char *differs_by;
};

struct Outcome {
  std::string reason;
  uint64_t id = 0;
};

Outcome order_of(const Iface<tutti_algo_v1> &algo, tutti_coll coll, const Variant &v) {
  std::vector<std::shared_ptr<const Plan>> plans;
  const auto n = static_cast<int>(v.topology->node_of_rank.size());
  for (int r = 0; r < n; r++) {
    auto plan = build_plan(algo, make_request(*v.topology, coll, r, v.root, v.channels, v.flags));
    if (!plan.ok()) return {plan.status().error().message};
    plans.push_back(std::move(*plan));
  }
  CheckOptions options;
  options.in_place = v.flags & TUTTI_REQ_IN_PLACE;
  PlanStats stats;
  if (const auto findings = check_plans(plans, options, &stats); !findings.empty())
    return {fmt::format("its plan is wrong: {}: {}", findings[0].rule, findings[0].text)};
  if (stats.order != CombineOrder::one)
    return {"it combines in another order from chunk to chunk, so bits depend on an element's place in the buffer"};
  return {"", stats.order_id};
}

} // namespace

Determinism determinism_of(const Setting &setting) {
  return static_cast<Determinism>(setting.number);
}

const Setting &strictest_determinism(const Config &config) {
  const Setting *out = &config.setting("coll.deterministic");
  for (uint32_t row = 0; row < kRows; row++)
    for (uint32_t b = 0; b < kBuckets; b++)
      if (const Setting &s = config.setting_for("coll.deterministic", coll_of_row(row), bytes_of(row, b));
          s.number > out->number)
        out = &s;
  return *out;
}

std::string describe_determinism(const Setting &s) {
  return fmt::format("deterministic = \"{}\" ({})", s.text, s.origin);
}

namespace {

// More channels than were searched follow the same ways again. Trees are for several hosts: on one, algorithms lay their own
// over the ranks, with fewer rounds than a chain of places has.
PlanRequest::Channel channel_of(const Topology &topology, int rank, uint32_t number) {
  PlanRequest::Channel out;
  if (!topology.cluster) {
    out.order = topology.ring_order;
    return out;
  }
  const auto me = static_cast<size_t>(rank);
  const ClusterChannel &from = topology.cluster->channels[number % topology.cluster->channels.size()];
  const ClusterChannel::Use &use = from.hosts[static_cast<size_t>(topology.node_of_rank[me])];
  out.order = from.ring;
  if (topology.node_count > 1) {
    out.tree_parent = from.parent[me];
    out.tree_children = from.children[me];
  }
  out.head = use.head;
  out.rail = use.rail;
  return out;
}

} // namespace

PlanRequest make_request(const Topology &topology, tutti_coll coll, int rank, int root, uint32_t channels, uint32_t flags) {
  if (!topology.groups.empty()) flags |= TUTTI_REQ_COLLNET;
  PlanRequest r;
  r.coll = coll;
  r.rank = rank;
  r.nranks = static_cast<int>(topology.node_of_rank.size());
  r.root = root;
  r.channels = channels;
  r.flags = flags;
  r.node_of_rank = topology.node_of_rank;
  for (uint32_t c = 0; c < channels; c++) {
    r.channel.push_back(channel_of(topology, rank, c));
    if (!topology.groups.empty())
      r.channel.back().head =
          topology.groups[c % topology.groups.size()][static_cast<size_t>(topology.node_of_rank[static_cast<size_t>(rank)])];
  }
  return r;
}

FixedOrder fixed_order(const Iface<tutti_algo_v1> &algo, tutti_coll coll, const Topology &topology, uint32_t min_channels,
                       uint32_t max_channels) {
  const size_t n = topology.node_of_rank.size();
  const int root = coll_has_root(coll) ? 0 : -1, last = static_cast<int>(n) - 1;
  const Topology together = on_one_host(n), apart = each_on_its_own(n);
  const uint32_t lo = min_channels, more = std::min(min_channels + 1, max_channels);
  constexpr uint32_t many = TUTTI_REQ_MANY_SLICES, in_place = TUTTI_REQ_IN_PLACE, multicast = TUTTI_REQ_MULTICAST;
  std::vector<Variant> variants{{&topology, root, lo, 0, ""},
                                {&topology, root, lo, many, "the length of the message"},
                                {&topology, root, lo, in_place, "whether it runs in place"},
                                {&topology, root, lo, many | in_place, "whether it runs in place"},
                                {&together, root, lo, 0, "the hosts of the ranks"},
                                {&together, root, lo, multicast, "whether the ranks share memory"},
                                {&together, root, lo, multicast | many, "whether the ranks share memory"},
                                {&apart, root, lo, 0, "the hosts of the ranks"}};
  if (more > lo) {
    variants.push_back({&topology, root, more, 0, "the number of channels"});
    variants.push_back({&topology, root, more, many, "the number of channels"});
  }
  if (root >= 0 && last > 0) {
    variants.push_back({&topology, last, lo, 0, "the root"});
    variants.push_back({&topology, last / 2, lo, many, "the root"});
  }
  FixedOrder out;
  for (const Variant &v : variants) {
    const Outcome found = order_of(algo, coll, v);
    if (!found.reason.empty()) return {0, found.reason};
    if (&v == &variants.front()) out.id = found.id;
    if (found.id != out.id) return {0, fmt::format("its order of combining depends on {}", v.differs_by)};
  }
  return out;
}

Status confirm_order(const PlanStats &stats, uint64_t order_id, const PlanRequest &request, std::string_view algo) {
  if (stats.order == CombineOrder::one && stats.order_id == order_id) return {};
  return fail(
             Code::internal,
             "algorithm \"{}\" combines {} of {} ranks with root {}, {} channels and flags {:#x} in another order than it does "
             "elsewhere, so coll.deterministic = \"size\" cannot be kept",
             algo, coll_name(request.coll), request.nranks, request.root, request.channels, request.flags)
      .hint("exclude it with coll.algo=^" + std::string(algo));
}

} // namespace tutti
