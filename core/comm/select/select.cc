#include "comm/select/select.h"
#include "base/types.h"
#include "comm/select/limits.h"
#include "log/log.h"
#include "plan/chunks.h"
#include "plan/groups.h"
#include "plugin/guard.h"
#include <algorithm>

namespace tutti {
namespace {

// A communicator's links have a few geometries; each may take this part of the cap.
constexpr uint64_t kCapShare = 4;

template <class Table> std::vector<std::string> names_of(const std::vector<Iface<Table>> &ifaces) {
  std::vector<std::string> out;
  for (const auto &i : ifaces) out.emplace_back(i.table->name);
  return out;
}

uint32_t send_links(const Plan &plan) {
  uint32_t n = 0;
  for (const PlanLane &lane : plan.lanes) n += static_cast<uint32_t>(std::max(lane.send.size(), lane.recv.size()));
  return n;
}

} // namespace

Result<Selector> Selector::create(Input input) {
  Selector s(std::move(input));
  const auto algos = names_of(s.in_.registry->all<tutti_algo_v1>(TUTTI_ALGO));
  const auto protos = names_of(s.in_.registry->all<tutti_proto_v1>(TUTTI_PROTO));
  if (algos.empty() || protos.empty())
    return fail(Code::invalid_usage, "no {} plugin is loaded; `tutti info` shows what was searched and why files were skipped",
                algos.empty() ? "algorithm" : "protocol");
  TUTTI_TRY(s.read_filters("coll.algo", "algorithm", algos));
  TUTTI_TRY(s.read_filters("coll.proto", "protocol", protos));
  return s;
}

Status Selector::read_filters(const char *key, const char *what, std::span<const std::string> known) {
  for (const Setting *setting : in_.config->settings_of(key)) {
    TUTTI_ASSIGN(filter, NameFilter::parse(setting->text, setting->origin, what, known));
    filters_[setting] = std::move(filter);
    if (key == std::string_view("coll.algo")) algo_settings_.insert(setting);
  }
  return {};
}

const Setting &Selector::setting(const char *key, uint32_t row, uint64_t bytes) const {
  return in_.config->setting_for(key, coll_of_row(row), bytes);
}
const NameFilter &Selector::algos(uint32_t row, uint64_t bytes) const {
  return filters_.at(&setting("coll.algo", row, bytes));
}
const NameFilter &Selector::protos(uint32_t row, uint64_t bytes) const {
  return filters_.at(&setting("coll.proto", row, bytes));
}

// Links are those of rank 0, which is the root where there is one and so has most; where ranks share memory it may have fewer.
Selector::Support Selector::ask_support(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  const uint32_t flags = row == kRowV ? static_cast<uint32_t>(TUTTI_REQ_NONUNIFORM) : 0u;
  const PlanRequest request = make_request(*in_.topology, coll, 0, coll_has_root(coll) ? 0 : -1, 1, flags);
  const auto none = [](const Error &why) { return Support{why.message, 0, 0, 0, why.code != Code::invalid_usage}; };
  if (Status s = algo_supports(algo, request); !s.ok()) {
    const bool lacks_groups = in_.collnet && !in_.collnet->on && asks_for_groups(algo, coll);
    return lacks_groups ? Support{"collnet: " + in_.collnet->why, 0, 0, 0, false} : none(s.error());
  }
  auto plan = build_plan(algo, request);
  if (!plan.ok()) return none(plan.status().error());
  Support out{"", send_links(**plan), 0, 0, false};
  if (in_.topology->groups.empty()) return out;
  const PlanRequest of_member = make_request(*in_.topology, coll, in_.topology->groups[0][0], request.root, 1, flags);
  auto members = build_plan(algo, of_member);
  if (!members.ok()) return none(members.status().error());
  out.group_chunks = widest_group_message(**members);
  out.group_posts = (*members)->min_depth;
  return out;
}

// It would serve the collective if there were groups.
bool Selector::asks_for_groups(const Iface<tutti_algo_v1> &algo, tutti_coll coll) const {
  Topology with = *in_.topology;
  with.groups.emplace_back(with.node_count, 0);
  return algo_supports(algo, make_request(with, coll, 0, coll_has_root(coll) ? 0 : -1, 1, 0)).ok();
}

namespace {
constexpr double kHopUs = 8; // of a small message between hosts, where nothing better is known
}

std::string Selector::against_groups(const Iface<tutti_algo_v1> &algo, const Iface<tutti_proto_v1> &proto, uint32_t row,
                                     uint64_t bytes) const {
  const CollnetFacts &c = *in_.collnet;
  if (!c.serves(coll_of_row(row))) return fmt::format("collnet: its groups do not serve {}", row_name(row));
  if (const Support &s = support(algo, row); !c.holds(s.group_posts, uint64_t(s.group_chunks) * kMinSlot))
    return fmt::format("collnet: it needs {} posts of {} bytes at once, {}", s.group_posts, s.group_chunks * kMinSlot,
                       c.granted());
  if (proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR) return "when a collnet group is lost, memory would stay lent";
  if (adds(row) && mode(row) == Determinism::run && c.caps.repeat < TUTTI_COLLNET_REPEAT_RUN)
    return describe_determinism(determinism(row)) + ": bits of collnet groups differ from run to run";
  if (c.required || c.host_mbps == 0 || c.caps.bandwidth_mbps == 0) return "";
  const double wire_us = static_cast<double>(bytes) * 8 / c.host_mbps;
  const double latency_us = 2 * kHopUs * std::max(1u, c.caps.tree_depth) + c.caps.latency_ns * 1e-3;
  if (wire_us <= latency_us || c.pays(coll_of_row(row))) return "";
  return fmt::format("collnet: aggregators of {} Mbit/s for {} hosts of {} Mbit/s take {:.2f} times a message's way out of a "
                     "host, hosts among themselves {:.2f}",
                     c.caps.bandwidth_mbps, c.hosts, c.host_mbps, c.crowding(), c.without(coll_of_row(row)));
}

// A channel for each group. Of long messages slots of a sixteenth, but the window holds four: every post has costs of its own,
// in the aggregators and on the wire, which the model does not know. The window holds what plans are proved with in any case:
// by what all ranks know, for those that are no members would wait for members that cannot post.
template <class Way> void Selector::fit_groups(Way &w, uint32_t row, uint64_t bytes, const Limits &limits) const {
  const auto [chunks, posts] =
      std::pair<uint64_t, uint64_t>(support(w.algo, row).group_chunks, support(w.algo, row).group_posts);
  if (chunks == 0) return;
  const tutti_collnet_caps &c = in_.collnet->caps;
  w.channels = std::min(w.channels, static_cast<uint32_t>(in_.topology->groups.size()));
  const uint64_t window = c.window_bytes ? c.window_bytes : 1 << 20, longest = c.max_bytes ? c.max_bytes : UINT64_MAX;
  const uint64_t wanted = std::min({bytes / w.channels / 16, window / 4, longest}) / kChunkAlign * kChunkAlign;
  if (!limits.slot_bytes && !limits.buffer) w.slot_bytes = std::max(w.slot_bytes, static_cast<uint32_t>(wanted));
  const uint64_t most = std::min(longest, c.window_bytes ? c.window_bytes / posts : UINT64_MAX) / chunks;
  while (w.slot_bytes > kMinSlot && w.slot_bytes > most)
    w.slot_bytes = static_cast<uint32_t>(align_up(w.slot_bytes / 2, kChunkAlign));
}
template void Selector::fit_groups(Choice &, uint32_t, uint64_t, const Limits &) const;

// What is required holds for all that it serves: other ways are excluded, though a call may still ask for them.
void Selector::prefer_groups(std::vector<Rated> &ways, uint32_t row) const {
  if (!in_.collnet || !in_.collnet->on || !in_.collnet->required) return;
  const auto serves = [&](const Rated &w) { return w.reason.empty() && uses_groups(w.algo, row); };
  if (std::none_of(ways.begin(), ways.end(), serves)) return;
  for (Rated &w : ways) {
    if (!w.reason.empty() || uses_groups(w.algo, row)) continue;
    w.by_algo = true;
    w.reason = fmt::format("coll.collnet is \"required\" ({})", in_.collnet->origin);
  }
}

const Selector::Support &Selector::support(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const auto [it, fresh] = support_.try_emplace({algo.table, row});
  if (fresh) it->second = ask_support(algo, row);
  return it->second;
}

Selector::Limits Selector::limits(uint32_t row, uint64_t bytes) const {
  const auto value = [&](const char *key) { return setting(key, row, bytes).number; };
  Limits l{};
  l.channels = channel_limits(static_cast<uint32_t>(value("coll.min_channels")),
                              static_cast<uint32_t>(value("coll.max_channels")), *in_.topology);
  l.slot_bytes = static_cast<uint32_t>(value("coll.slot_bytes"));
  l.depth = static_cast<uint32_t>(value("coll.depth"));
  l.buffer = static_cast<uint64_t>(value("coll.buffer"));
  l.budget = static_cast<uint64_t>(in_.config->number("memory.cap")) / kCapShare;
  return l;
}

// Shrinks slots until the links of one geometry fit their part of the cap. A pure function of its arguments, which all ranks
// have alike.
template <class Way> void Selector::clamp_way(Way &way, uint32_t links, const Limits &l) {
  if (l.slot_bytes) way.slot_bytes = l.slot_bytes;
  if (l.depth) way.depth = l.depth;
  way.depth = std::bit_ceil(std::max(2u, way.depth));
  if (l.buffer) {
    while (way.depth > 2 && uint64_t(way.slot_bytes) * way.depth > l.buffer) way.depth /= 2;
    if (uint64_t(way.slot_bytes) * way.depth > l.buffer) way.slot_bytes = static_cast<uint32_t>(l.buffer / way.depth);
  }
  way.slot_bytes = std::max(kMinSlot, static_cast<uint32_t>(align_up(way.slot_bytes, kChunkAlign)));
  const uint64_t n = std::max<uint64_t>(1, uint64_t(links) * way.channels);
  while (way.depth > 2 && n * way.slot_bytes * way.depth > l.budget) way.depth /= 2;
  while (way.slot_bytes > kMinSlot && n * way.slot_bytes * way.depth > l.budget) way.slot_bytes /= 2;
  way.slot_bytes = static_cast<uint32_t>(align_up(way.slot_bytes, kChunkAlign));
}

void Selector::clamp(Rated &way, uint32_t links, const Limits &l) {
  way.channels = std::clamp(way.channels, l.channels.min, way.measured ? l.channels.max : l.channels.unmeasured);
  clamp_way(way, links, l);
}
void Selector::clamp(Choice &way, uint32_t links, const Limits &l) {
  way.channels = std::clamp(way.channels, l.channels.min, l.channels.max);
  clamp_way(way, links, l);
}

tutti_tune_query Selector::query_of(uint32_t row, uint64_t bytes, Ask ask) const {
  const Topology &t = *in_.topology;
  tutti_tune_query q{};
  q.struct_size = sizeof q;
  q.coll = coll_of_row(row);
  q.bytes = bytes;
  q.nranks = static_cast<int32_t>(t.node_of_rank.size());
  q.nnodes = static_cast<int32_t>(t.node_count);
  q.max_ppn = static_cast<int32_t>(t.max_ppn());
  q.min_cores = static_cast<int32_t>(t.min_cores());
  q.flags = t.oversubscribed() ? static_cast<uint32_t>(TUTTI_TUNE_OVERSUBSCRIBED) : 0u;
  q.transport = static_cast<uint32_t>(in_.slowest);
  if (ask == Ask::here) return q;
  if (ask == Ask::anywhere) q.nnodes = 1, q.max_ppn = q.nranks;
  q.min_cores = q.max_ppn;
  q.flags = TUTTI_TUNE_REPRODUCIBLE;
  q.transport = q.nnodes > 1 ? TUTTI_LINK_CLASS_NET : TUTTI_LINK_CLASS_SHM;
  return q;
}

// Cost, channels, slots and depth as the model has them: what the tuner is proposed, and what holds where it has no opinion.
void Selector::predict(uint32_t row, uint64_t bytes, Ask ask, const Limits &l, std::vector<Rated> &ways) const {
  const uint32_t channels = l.channels.proposal(bytes); // of the topology: the model knows one device
  for (Rated &w : ways) w.channels = channels;
  if (!in_.model) return;
  std::optional<CostModel> made_up;
  if (ask != Ask::here) made_up.emplace(in_.model->unloaded());
  const CostModel &model = made_up ? *made_up : *in_.model;
  const CostModel::Fixed fixed{channels, l.slot_bytes, l.depth};
  const uint32_t flags = row == kRowV ? static_cast<uint32_t>(TUTTI_REQ_NONUNIFORM) : 0u;
  for (Rated &w : ways) {
    auto e = model.propose(w.algo, w.proto, coll_of_row(row), flags, bytes, fixed);
    if (!e.ok()) {
      w.reason = fmt::format("nothing can be predicted for it: {}", e.status().error().message);
      w.by_algo = w.by_proto = false;
      continue;
    }
    w.cost_us = e->us;
    w.timed = true;
    w.channels = e->channels, w.slot_bytes = e->slot_bytes, w.depth = e->depth, w.flags = e->flags;
    w.estimate = *e;
  }
}

void Selector::ask_tuner(const tutti_tune_query &query, const Limits &limits, std::vector<Rated> &all) const {
  std::vector<Rated *> ways;
  for (Rated &w : all)
    if (w.can_run()) ways.push_back(&w);
  if (!in_.tuner || ways.empty()) return;
  std::vector<tutti_candidate> candidates;
  for (const Rated *w : ways) {
    tutti_candidate c{};
    c.algo = w->algo.table->name;
    c.proto = w->proto.table->name;
    c.channels = w->channels;
    c.min_channels = limits.channels.min;
    c.max_channels = limits.channels.max;
    c.cost_us = w->cost_us;
    c.slot_bytes = w->slot_bytes;
    c.depth = w->depth;
    c.flags = w->flags;
    candidates.push_back(c);
  }
  const auto status = guarded(in_.tuner.plugin, "rate", in_.tuner.table->rate, in_.tuner.plugin->state, &query,
                              candidates.data(), static_cast<uint32_t>(candidates.size()), sizeof(tutti_candidate));
  if (status < 0) {
    const auto why = plugin_error(*in_.tuner.plugin, status, "rating candidates");
    log::write_once(log::Level::warn, log::Subsys::tuning, std::string("tuner ") + in_.tuner.table->name,
                    why.error().line() + "; the core's own order holds");
    return;
  }
  for (size_t i = 0; i < ways.size(); i++) {
    const tutti_candidate &c = candidates[i];
    Rated &w = *ways[i];
    w.cost_us = c.cost_us;
    w.channels = c.channels;
    w.slot_bytes = c.slot_bytes;
    w.depth = c.depth;
    w.flags = c.flags & ~uint32_t{TUTTI_CAND_ORDER_ONLY | TUTTI_CAND_MEASURED};
    w.timed = !(c.flags & TUTTI_CAND_ORDER_ONLY) && c.cost_us > 0;
    w.measured = w.timed && (c.flags & TUTTI_CAND_MEASURED);
    if (c.note) w.note = c.note;
    if (c.cost_us >= 0) continue;
    w.reason = fmt::format("tuner \"{}\" forbids it for this size", in_.tuner.table->name);
    w.by_algo = w.by_proto = false;
  }
}

bool Selector::holds(const NameFilter &filter, uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  if (filter.named(coll) || !filter.forced(coll)) return true;
  const auto all = in_.registry->all<tutti_algo_v1>(TUTTI_ALGO);
  return std::any_of(all.begin(), all.end(), [&](const auto &algo) {
    return filter.allows(coll, algo.table->name) && support(algo, row).reason.empty();
  });
}

bool Selector::list_holds(uint32_t row, uint64_t bytes) const {
  return holds(algos(row, bytes), row);
}

std::string Selector::passed_over(uint32_t row, uint64_t bytes) const {
  if (list_holds(row, bytes)) return "";
  return fmt::format("{} lists no algorithm for it", algos(row, bytes).describe(coll_of_row(row)));
}

std::string Selector::impossible(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  if (const std::string &reason = support(algo, row).reason; !reason.empty()) return reason;
  if (fixes_order(row) && !own_order(algo, row).reason.empty())
    return fmt::format("{}: {}", describe_determinism(determinism(row)), own_order(algo, row).reason);
  return "";
}

// All ways, with what is against them but for the tuner's opinion and another way's order.
std::vector<Rated> Selector::list(uint32_t row, uint64_t bytes) const {
  const tutti_coll coll = coll_of_row(row);
  const NameFilter &allowed = algos(row, bytes), &allowed_protos = protos(row, bytes);
  const bool listed = list_holds(row, bytes);
  std::vector<Rated> ways;
  auto all_protos = in_.registry->all<tutti_proto_v1>(TUTTI_PROTO);
  // Of equal ways the first runs, so those for every size come first.
  std::stable_sort(all_protos.begin(), all_protos.end(),
                   [](const auto &a, const auto &b) { return a.table->signal < b.table->signal; });
  for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO)) {
    const std::string reason = impossible(algo, row);
    for (const auto &proto : all_protos) {
      const bool descriptors = proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR;
      Rated w;
      w.algo = algo;
      w.proto = proto;
      w.reason = reason;
      if (w.reason.empty() && uses_groups(algo, row)) w.reason = against_groups(algo, proto, row, bytes);
      if (w.reason.empty() && descriptors) w.reason = in_.no_pull;
      if (w.reason.empty() && descriptors && mode(row) == Determinism::run && adds(row) && !allowed_protos.forced(coll))
        w.reason = describe_determinism(determinism(row)) + ": every run finds out anew whether memory can be read";
      if (w.reason.empty()) {
        w.by_algo = listed && !allowed.allows(coll, algo.table->name);
        w.by_proto = !allowed_protos.allows(coll, proto.table->name);
      }
      if (w.by_proto) w.reason = "excluded by " + allowed_protos.describe(coll);
      if (w.by_algo) w.reason = "excluded by " + allowed.describe(coll);
      ways.push_back(std::move(w));
    }
  }
  prefer_groups(ways, row);
  return ways;
}

void Selector::rate_ways(uint32_t row, uint64_t bytes, std::vector<Rated> &ways) const {
  if (ways.empty()) return;
  const Limits bounds = limits(row, bytes);
  // Once the order is fixed, cores and links may choose what is fastest.
  const Ask ask = mode(row) == Determinism::run && adds(row) ? Ask::with_such_hosts : Ask::here;
  predict(row, bytes, ask, bounds, ways);
  ask_tuner(query_of(row, bytes, ask), bounds, ways);
  for (Rated &w : ways) {
    clamp(w, support(w.algo, row).links, bounds);
    fit_groups(w, row, bytes, bounds);
  }
}

std::vector<Rated> Selector::rate(uint32_t row, uint64_t bytes) const {
  std::vector<Rated> usable, excluded, refused;
  for (Rated &w : list(row, bytes)) {
    if (w.can_run() && fixes_order(row) && own_order(w.algo, row).id != row_order(row).id) {
      w.by_algo = w.by_proto = false; // a call may not set it aside either
      if (row_order(row).id)          // else nothing that is allowed has an order, and what excludes this way is the reason
        w.reason = fmt::format("{}: it combines in another order than {}, which all sizes have",
                               describe_determinism(determinism(row)), row_order(row).algo);
    }
    (w.reason.empty() ? usable : w.can_run() ? excluded : refused).push_back(std::move(w));
  }
  // A tuner's answer may depend on what else there is: what options exclude must not change it for the others.
  std::vector<Rated> all = usable;
  all.insert(all.end(), excluded.begin(), excluded.end());
  rate_ways(row, bytes, usable);
  if (!excluded.empty()) rate_ways(row, bytes, all);
  usable.insert(usable.end(), all.end() - static_cast<std::ptrdiff_t>(excluded.size()), all.end());
  const auto against = [](const Rated &w) { return w.can_run() ? (w.by_algo ? 1 : 0) + (w.by_proto ? 1 : 0) : 3; };
  std::stable_sort(usable.begin(), usable.end(), [&](const Rated &a, const Rated &b) {
    return against(a) != against(b) ? against(a) < against(b) : a.cost_us < b.cost_us;
  });
  usable.insert(usable.end(), refused.begin(), refused.end());
  return usable;
}

} // namespace tutti
