// Rounds over the control plane. In the first every member of a group says where it listens, or what is against it. Then it
// joins, and says what was granted, why not, or that it still waits, until all are ready or one has failed: who waits for a
// member that has failed would learn of it only by a deadline. All ranks see all answers and come to the same end.
#include "comm/collnet.h"
#include "comm/select/limits.h"
#include "log/log.h"
#include "plan/chunks.h"
#include "plugin/guard.h"
#include "topology/cluster.h"
#include "transport/collnet_port.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <tuple>

namespace tutti {
namespace {

constexpr auto kMostForGroups = std::chrono::seconds(30); // or a quarter of core.init_timeout
constexpr auto kPause = std::chrono::microseconds(200);
constexpr Nanos kFirstRound = std::chrono::milliseconds(50), kLongestRound = std::chrono::seconds(1); // of waiting for others
constexpr uint32_t kLeastOutstanding = 2; // what plans are proved with

} // namespace

std::vector<std::vector<int32_t>> collnet_heads(const Topology &t) {
  const size_t channels = t.cluster ? t.cluster->channels.size() : 1;
  std::vector<int32_t> lowest(t.node_count, -1);
  for (size_t r = t.node_of_rank.size(); r-- > 0;) lowest[static_cast<size_t>(t.node_of_rank[r])] = static_cast<int32_t>(r);
  std::vector<std::vector<int32_t>> out;
  for (size_t c = 0; c < channels; c++) {
    std::vector<int32_t> heads = lowest; // of hosts where no NIC is known
    for (size_t h = 0; t.cluster && h < t.node_count; h++)
      if (const int32_t head = t.cluster->channels[c].hosts[h].head; head >= 0) heads[h] = head;
    if (std::find(out.begin(), out.end(), heads) != out.end()) break; // nothing is gained by a second group of them
    out.push_back(std::move(heads));
  }
  return out;
}

bool CollnetSetup::member(size_t group) const {
  const int me = bootstrap_.rank();
  return heads_[group][static_cast<size_t>(topology_.node_of_rank[static_cast<size_t>(me)])] == me;
}

bool CollnetSetup::wanted() {
  const Setting &s = config_.setting("coll.collnet");
  facts_.origin = s.origin;
  facts_.required = s.text == "required";
  facts_.hosts = topology_.node_count;
  const Setting &least = config_.setting("coll.collnet_min_hosts");
  if (s.text == "off")
    facts_.why = fmt::format("coll.collnet is \"off\" ({})", s.origin);
  else if (facts_.hosts < static_cast<uint32_t>(least.number))
    facts_.why = fmt::format("{} host{}, fewer than coll.collnet_min_hosts {} ({})", facts_.hosts, facts_.hosts == 1 ? "" : "s",
                             least.number, least.origin);
  return facts_.why.empty();
}

// The NIC of the first channel that this rank speaks for; nullptr: none is known.
const ClusterPort *CollnetSetup::port() const {
  const auto node = static_cast<size_t>(topology_.node_of_rank[static_cast<size_t>(bootstrap_.rank())]);
  for (size_t g = 0; topology_.cluster && g < heads_.size(); g++)
    if (const int32_t p = topology_.cluster->channels[g].hosts[node].port_in; member(g) && p >= 0)
      return &topology_.cluster->hosts[node].ports[static_cast<size_t>(p)];
  return nullptr;
}

// The way into the aggregators' network that is this NIC, by name; else one of its rail; else one of any rail; else the first.
uint32_t CollnetSetup::choose_device(const Iface<tutti_collnet_v1> &collnet, uint32_t count) const {
  const ClusterPort *nic = port();
  uint32_t best = 0;
  int most = -1;
  const auto turn = plugin_setup(collnet.plugin);
  for (uint32_t i = 0; nic && i < count; i++) {
    tutti_collnet_dev dev{};
    dev.struct_size = sizeof dev;
    if (guarded(collnet.plugin, "device_info", collnet.table->device_info, collnet.plugin->state, i, &dev) < 0) continue;
    const std::string_view name(dev.name, strnlen(dev.name, sizeof dev.name));
    const bool same = name == nic->name || name.substr(0, name.find(':')) == nic->name; // "mlx5_0:1"
    const int fits = same ? 3 : dev.rail == nic->rail ? 2 : dev.rail < 0 ? 1 : 0;
    if (fits > most) best = i, most = fits;
  }
  return best;
}

// The plugin that collnet.name names, or the first that has a device, and this rank's way in.
Status CollnetSetup::open(Iface<tutti_collnet_v1> *collnet) {
  const Setting &name = config_.setting("collnet.name");
  auto all = registry_.all<tutti_collnet_v1>(TUTTI_COLLNET);
  if (!name.text.empty()) {
    TUTTI_ASSIGN(found, registry_.named<tutti_collnet_v1>(TUTTI_COLLNET, name.text));
    all = {found};
  }
  if (all.empty()) return fail(Code::invalid_usage, "no collnet plugin is loaded");
  if (const Setting &security = config_.setting("core.security"); security.text == "encrypted")
    return fail(Code::invalid_usage, "{} does not encrypt what it sends, and core.security is \"encrypted\" ({})",
                all.front().table->name, security.origin);
  std::string against;
  for (const auto &c : all) {
    uint32_t count = 0;
    tutti_status s = TUTTI_OK;
    {
      const auto turn = plugin_setup(c.plugin);
      s = guarded(c.plugin, "device_count", c.table->device_count, c.plugin->state, &count);
    }
    const Status why = plugin_error(*c.plugin, s < 0 ? s : tutti_status{TUTTI_ERR_UNSUPPORTED}, "looking for devices");
    if (s >= 0 && count > 0) {
      *collnet = c;
      return engine_.open_collnet(c, choose_device(c, count));
    }
    against += fmt::format("{}{} has no device: {}", against.empty() ? "" : "; ", c.table->name, why.error().message);
  }
  return fail(Code::invalid_usage, "{}", against);
}

CollnetOffer CollnetSetup::offer() {
  Offer o;
  bool any = false;
  for (size_t g = 0; g < heads_.size(); g++) any |= member(g);
  if (!any) return o;
  Iface<tutti_collnet_v1> collnet;
  if (Status s = open(&collnet); !s.ok()) {
    o.why = s.error().message;
    return o;
  }
  CollnetPort &port = *engine_.collnet();
  o.where = port.plugin_name();
  o.head.mbps = port.device().speed_mbps ? port.device().speed_mbps : net_mbps_;
  for (uint32_t g = 0; g < heads_.size() && o.why.empty(); g++) {
    if (!member(g)) continue;
    auto address = port.listen(g);
    if (address.ok())
      o.of_group[g] = std::move(*address);
    else
      o.why = address.status().error().message;
  }
  return o;
}

Status CollnetSetup::begin_groups(std::span<const Offer> offers, CollnetPort &port, Nanos limit) {
  tutti_collnet_config c{};
  c.struct_size = sizeof c;
  c.job_id = job_;
  c.deadline_ms = static_cast<uint32_t>(std::max<int64_t>(1, limit.count() / 1'000'000));
  // Half of what an operation may wait: the plugin, which knows who holds the others up, speaks before that is over.
  c.progress_ms =
      static_cast<uint32_t>(std::clamp<int64_t>(config_.duration("core.timeout").count() / 2'000'000, 1, INT32_MAX));
  for (uint32_t g = 0; g < heads_.size(); g++) {
    if (!member(g)) continue;
    std::vector<Bytes> addresses;
    for (const int32_t head : heads_[g]) addresses.push_back(offers[static_cast<size_t>(head)].of_group.at(g));
    TUTTI_TRY(port.join(g, addresses, heads_[g], c));
  }
  return {};
}

// Until the groups are ready, have failed, or the round is over. The plugin has a deadline of its own.
void CollnetSetup::wait_for_groups(CollnetPort &port, Deadline round, Deadline patience, Offer *mine) {
  while (true) {
    const auto ready = port.poll();
    if (!ready.ok()) {
      mine->why = ready.status().error().message;
      mine->head.reason = port.reason();
      return;
    }
    if (*ready) break;
    if (patience.expired()) {
      mine->why = fmt::format("its groups are neither ready nor failed after {} ms; see core.init_timeout (TUTTI_INIT_TIMEOUT)",
                              std::chrono::duration_cast<std::chrono::milliseconds>(patience.span()).count());
      mine->head.reason = TUTTI_COLLNET_TIMEOUT;
    }
    if (mine->refuses() || round.expired()) return;
    std::this_thread::sleep_for(kPause);
  }
  mine->head.ready = 1;
  mine->where = port.plugin_name();
  mine->device = port.device().name;
  for (const CollnetGroup *g : port.groups()) {
    const auto caps = std::as_bytes(std::span(&g->caps, 1));
    mine->of_group[g->number] = Bytes(caps.begin(), caps.end());
  }
}

Result<std::vector<CollnetOffer>> CollnetSetup::join(std::span<const Offer> offers, Deadline deadline) {
  const Nanos limit = std::min<Nanos>(kMostForGroups, config_.duration("core.init_timeout") / 4);
  const Deadline patience = Deadline::in(limit + limit / 2);
  CollnetPort *port = engine_.collnet();
  Offer mine;
  mine.head.ready = port ? 0 : 1;
  if (port)
    if (Status s = begin_groups(offers, *port, limit); !s.ok()) mine.why = s.error().message;
  for (Nanos round = kFirstRound;; round = std::min(2 * round, kLongestRound)) {
    if (mine.head.ready == 0 && !mine.refuses()) wait_for_groups(*port, Deadline::in(round), patience, &mine);
    TUTTI_ASSIGN(all, exchange(mine, deadline, "joining collnet groups"));
    if (std::any_of(all.begin(), all.end(), [](const Offer &o) { return o.refuses(); })) return all;
    if (std::all_of(all.begin(), all.end(), [](const Offer &o) { return o.head.ready == 1; })) return all;
  }
}

Result<std::vector<CollnetOffer>> CollnetSetup::exchange(const Offer &mine, Deadline deadline, std::string_view what) {
  TUTTI_ASSIGN(all, bootstrap_.allgather(mine.encode(), deadline, what));
  std::vector<Offer> out;
  for (size_t r = 0; r < all.size(); r++) {
    TUTTI_ASSIGN(o, Offer::decode(all[r], static_cast<int>(r)));
    out.push_back(std::move(o));
  }
  return out;
}

// Of the ranks that have something against it the one that knows most speaks for all, the lowest of several.
bool CollnetSetup::agree(std::span<const Offer> offers) {
  const auto name = [&](size_t r) { return fmt::format("rank {} ({})", r, bootstrap_.peer(static_cast<int>(r)).hostname); };
  int weight = 0;
  for (size_t r = 0; r < offers.size(); r++)
    if (offers[r].refuses() && offers[r].weight() > weight)
      weight = offers[r].weight(), facts_.why = fmt::format("{}: {}", name(r), offers[r].why);
  std::string plugin;
  for (size_t r = 0; r < offers.size() && facts_.why.empty(); r++) {
    const Offer &o = offers[r];
    if (o.where.empty()) continue;
    if (plugin.empty()) plugin = o.where;
    if (plugin != o.where) facts_.why = fmt::format("{} uses collnet {}, others {}", name(r), o.where, plugin);
  }
  return facts_.why.empty();
}

namespace {

// What all of them can do.
void restrict_to(const tutti_collnet_caps &c, tutti_collnet_caps &all) {
  const auto limit = [](uint64_t a, uint64_t b) { return a && b ? std::min(a, b) : std::max(a, b); }; // 0 = no limit
  all.colls &= c.colls;
  all.dtype_ops &= c.dtype_ops;
  all.max_bytes = limit(all.max_bytes, c.max_bytes);
  all.window_bytes = limit(all.window_bytes, c.window_bytes);
  all.max_outstanding = std::min(all.max_outstanding, c.max_outstanding);
  all.alignment = std::max(all.alignment, c.alignment);
  all.accumulate = std::min(all.accumulate, c.accumulate);
  all.repeat = std::min(all.repeat, c.repeat);
  all.tree_depth = std::max(all.tree_depth, c.tree_depth);
  all.latency_ns = std::max(all.latency_ns, c.latency_ns);
}

} // namespace

// Members of a group may have been granted different limits; what decides bytes and bits of a post they have alike. Groups
// that go through one device share its aggregators.
void CollnetSetup::combine(std::span<const Offer> offers) {
  tutti_collnet_caps &all = facts_.caps;
  std::map<std::string, tutti_collnet_caps> devices;
  for (uint32_t g = 0; g < heads_.size(); g++) {
    tutti_collnet_caps first{};
    for (const int32_t head : heads_[g]) {
      const Offer &o = offers[static_cast<size_t>(head)];
      tutti_collnet_caps c{};
      const Bytes &data = o.of_group.at(g);
      std::memcpy(&c, data.data(), std::min(sizeof c, data.size()));
      if (head == heads_[g].front()) {
        first = c;
        tutti_collnet_caps &of_device = devices.try_emplace(o.device, c).first->second;
        of_device.bandwidth_mbps = std::max(of_device.bandwidth_mbps, c.bandwidth_mbps);
        of_device.aggregators = std::max(of_device.aggregators, c.aggregators);
        if (g == 0) all = c;
      }
      const std::tuple<const char *, uint64_t, uint64_t> alike[] = {{"order_id", c.order_id, first.order_id},
                                                                    {"alignment", c.alignment, first.alignment}};
      for (const auto &[what, mine, theirs] : alike)
        if (facts_.why.empty() && mine != theirs)
          facts_.why =
              fmt::format("rank {} has {} {} in group {}, rank {} has {}", head, what, mine, g, heads_[g].front(), theirs);
      restrict_to(c, all);
    }
  }
  all.bandwidth_mbps = all.aggregators = 0;
  bool known = true;
  for (const auto &[name, c] : devices) {
    all.bandwidth_mbps += c.bandwidth_mbps, all.aggregators += c.aggregators;
    known &= c.bandwidth_mbps != 0;
  }
  if (!known) all.bandwidth_mbps = 0;
  if (facts_.why.empty() && !facts_.holds(kLeastOutstanding, kMinSlot))
    facts_.why = fmt::format("{} posts of {} bytes at once are needed, {}", kLeastOutstanding, kMinSlot, facts_.granted());
  // What users' buffers are not is made up for in slots, which are as long as this.
  if (facts_.why.empty() && all.alignment > 0 && kChunkAlign % all.alignment != 0)
    facts_.why = fmt::format("buffers and sizes have to be multiples of {} bytes; of 1, 2, 4 to {} they can be", all.alignment,
                             kChunkAlign);
}

Result<CollnetFacts> CollnetSetup::run(Deadline deadline) {
  if (wanted()) {
    heads_ = collnet_heads(topology_);
    TUTTI_ASSIGN(offers, exchange(offer(), deadline, "offering collnet groups"));
    if (agree(offers)) {
      TUTTI_ASSIGN(grants, join(offers, deadline));
      if (agree(grants)) combine(grants);
    }
    facts_.on = facts_.why.empty();
    for (const Offer &o : offers) {
      if (facts_.where.empty()) facts_.where = o.where;
      if (o.head.mbps && (facts_.host_mbps == 0 || o.head.mbps < facts_.host_mbps)) facts_.host_mbps = o.head.mbps;
    }
    facts_.groups = static_cast<uint32_t>(heads_.size());
    if (!facts_.on) engine_.close_collnet();
  }
  if (facts_.on || config_.setting("coll.collnet").text == "off") return facts_;
  if (facts_.required)
    return fail(Code::invalid_usage, "coll.collnet is \"required\" ({}), but: {}", facts_.origin, facts_.why)
        .hint("\"preferred\" does without where it cannot be had");
  const std::string line = fmt::format("comm {:#x}: collnet is not used: {}", bootstrap_.comm_id(), facts_.why);
  if (bootstrap_.rank() == 0)
    log::warn(log::Subsys::init, "{}", line);
  else
    log::info(log::Subsys::init, "{}", line);
  return facts_;
}

} // namespace tutti
