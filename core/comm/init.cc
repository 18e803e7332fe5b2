// Set-up of a communicator: join, compare, choose, start the engine, share the selection.
#include "base/types.h"
#include "comm/agreement.h"
#include "comm/channels.h"
#include "comm/collnet.h"
#include "comm/communicator.h"
#include "comm/select/calibrate.h"
#include "comm/startup.h"
#include "log/log.h"
#include "ras/desk.h"
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <unistd.h>

namespace tutti {
namespace {

using log::Subsys;

// Long enough for a neighbour to forward what it has, short enough not to be a hang: this, or an eighth of core.init_timeout.
constexpr Nanos kFarewell = std::chrono::seconds(2);

std::string size_text(uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes && bytes % 1024 == 0) bytes /= 1024, unit++;
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

// Of the buckets [first, end): their largest sizes are the powers of two.
std::string size_range(uint32_t first, uint32_t end) {
  if (first == 0 && end == kBuckets) return "";
  const std::string low = size_text(uint64_t(1) << first);
  if (end == kBuckets) return fmt::format(" over {}", size_text(uint64_t(1) << (first - 1)));
  const std::string high = size_text(uint64_t(1) << (end - 1));
  return first == 0 ? fmt::format(" to {}", high) : first + 1 == end ? " " + low : fmt::format(" {}..{}", low, high);
}

uint64_t next_uid() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(2, std::memory_order_relaxed) + 2;
}

// Whether some pair of ranks shares no memory: the same answer on all ranks, so all name the same net.
bool needs_net(const Bootstrap &b, const Config &config) {
  const bool shm = !config.flag("shm.disable");
  for (int r = 1; r < b.nranks(); r++) {
    const PeerInfo &first = b.peer(0), &other = b.peer(r);
    if (other.host != first.host || (!shm && other.process != first.process)) return true;
  }
  return false;
}

// Two pieces in one message.
Bytes joined(std::span<const std::byte> a, std::span<const std::byte> b) {
  const uint64_t n = a.size();
  Bytes out(sizeof n + a.size() + b.size());
  std::memcpy(out.data(), &n, sizeof n);
  std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), out.begin() + sizeof n));
  return out;
}
std::optional<std::pair<Bytes, Bytes>> parted(std::span<const std::byte> both) {
  uint64_t n = 0;
  if (both.size() < sizeof n) return std::nullopt;
  std::memcpy(&n, both.data(), sizeof n);
  if (n > both.size() - sizeof n) return std::nullopt;
  const auto at = both.begin() + static_cast<ptrdiff_t>(sizeof n + n);
  return std::pair(Bytes(both.begin() + sizeof n, at), Bytes(at, both.end()));
}

// The devices of rank 0's host that channels use, as one; without channels the fastest. What cannot be asked bounds nothing.
CostModel::Device devices_in_use(NetSurvey &survey, const ClusterHost *host) {
  const auto &devices = survey.devices();
  if (!devices.ok()) {
    log::warn(Subsys::net, "cost model: network {} bounds nothing: {}", survey.net().table->name,
              devices.status().error().message);
    return {};
  }
  std::set<std::string_view> used;
  if (host)
    for (const ClusterPort &port : host->ports) used.insert(port.dev_names.begin(), port.dev_names.end());
  CostModel::Device all, fastest;
  for (const tutti_net_dev &d : *devices) {
    if (d.flags & TUTTI_NET_LOOPBACK) continue;
    const double speed = d.speed_mbps / 8.0, latency = d.latency_ns * 1e-3;
    if (speed > fastest.bytes_per_us) fastest = {speed, latency};
    if (speed <= 0 || !used.contains({d.name, strnlen(d.name, sizeof d.name)})) continue;
    all.latency_us = all.bytes_per_us > 0 ? std::min(all.latency_us, latency) : latency;
    all.bytes_per_us += speed;
  }
  return all.bytes_per_us > 0 ? all : fastest;
}

} // namespace

Communicator::Communicator(int rank, int nranks, InitOptions options)
    : uid_(next_uid()), from_split_(rank < 0), rank_(rank), nranks_(nranks), options_(std::move(options)),
      premul_salt_(static_cast<uint32_t>(uid_) & 0x7ffe) {} // keeps handles below INT_MAX

Communicator::~Communicator() {
  join_background();
  close();
}

Status Communicator::init(std::span<const tuttiUniqueId> ids) {
  const log::ScopedRank scope(rank_);
  ras::open_desk(options_.config);
  TUTTI_ASSIGN(bootstrap, Bootstrap::join(ids, nranks_, rank_, options_.config,
                                          Deadline::in(options_.config->duration("core.init_timeout")), &join_stop_));
  adopt(std::move(bootstrap));
  if (aborted_.load()) fail(last_error()); // too late to stop the join, too early to find its result
  return set_up();
}

Status Communicator::set_up() {
  const auto t0 = Clock::now();
  Status s = [&]() -> Status {
    TUTTI_ASSIGN(p, process());
    const Deadline deadline = Deadline::in(options_.config->duration("core.init_timeout"));
    Bootstrap &b = *core_->bootstrap;
    std::string why;
    TUTTI_ASSIGN(tuner, choose_tuner(*options_.config, *p.registry, &why));
    tuner_ = tuner;
    log::info(Subsys::tuning, "comm {:#x}: tuner {} ({})", b.comm_id(), tuner ? tuner.table->name : "none",
              std::exchange(why, ""));
    if (needs_net(b, *options_.config) || !options_.config->text("net.name").empty()) {
      TUTTI_ASSIGN(net, choose_net(*options_.config, *p.registry, &why));
      if (!net && needs_net(b, *options_.config))
        return tutti::fail(Code::invalid_usage, "ranks share no memory and no network plugin has a device: {}", why);
      net_ = net;
    } else
      why = "all ranks share memory";
    log::info(Subsys::net, "comm {:#x}: network {} ({})", b.comm_id(), net_ ? net_.table->name : "none", why);
    RankFacts mine = make_facts(*options_.config, *p.registry, tuner_, net_);
    survey_ = NetSurvey(net_);
    ChannelSearch search(b, options_.config, survey_);
    search.describe(&mine);
    TUTTI_ASSIGN(encoded, b.allgather(mine.encode(), deadline, "comparing versions and settings"));
    std::vector<RankFacts> facts;
    Status wrong; // of the lowest rank that differs
    std::vector<TopologyInput> inputs;
    for (int r = 0; r < nranks_; r++) {
      TUTTI_ASSIGN(f, RankFacts::decode(encoded[static_cast<size_t>(r)]));
      inputs.push_back({b.peer(r).host, f.cpus});
      if (r > 0) {
        if (wrong.ok()) wrong = compare_facts(facts[0], r, f);
        f.agreed = {}; // of hundreds of thread ranks each would hold hundreds
      }
      if (b.peer(r).host == b.peer(rank_).host) host_cpus_.add(f.cpus);
      facts.push_back(std::move(f));
    }
    if (wrong.ok()) wrong = ChannelSearch::check(facts, b);
    if (!wrong.ok()) {
      farewell();
      return wrong;
    }
    topology_ = make_topology(inputs);
    TUTTI_ASSIGN(told, search.run(facts, topology_, deadline));
    return start_engine(net_, told);
  }();
  if (s.ok()) {
    state_.store(aborted_.load() ? State::failed : State::ready, std::memory_order_release);
    core_->engine->note_event("set up", fmt::format("{} ranks on {} hosts", nranks_, topology_.node_count));
    flight_->set_up();
    log_ready();
    log::info(Subsys::init, "comm {:#x}: set up after joining took {:.1f} ms", core_->bootstrap->comm_id(),
              std::chrono::duration<double, std::milli>(Clock::now() - t0).count());
    return s;
  }
  Error &e = s.error();
  if (e.rank < 0) e.rank = rank_;
  if (e.phase.empty()) e.phase = "init";
  fail(e);
  return s;
}

// After an error that all ranks see: none leaves before its neighbours have the pieces that it passes on.
void Communicator::farewell() {
  const Nanos limit = std::max(kFarewell, options_.config->duration("core.init_timeout") / 8);
  (void)core_->bootstrap->barrier(Deadline::in(limit), "ending together");
}

// With its address each rank sends what it has to tell of channels: rank 0 all of it, the others nothing.
Status Communicator::take_channels(std::span<const std::byte> told) {
  Bootstrap &b = *core_->bootstrap;
  auto plan = ChannelPlan::decode(told, b.comm_id());
  if (!plan.ok()) {
    farewell();
    return std::move(plan.status());
  }
  channels_ = std::move(*plan);
  if (!channels_->cluster) return {};
  if (channels_->cluster->new_rank.size() != static_cast<size_t>(nranks_) ||
      channels_->cluster->hosts.size() != topology_.node_count)
    return tutti::fail(Code::internal, "rank 0 told channels of {} ranks on {} hosts", channels_->cluster->new_rank.size(),
                       channels_->cluster->hosts.size());
  core_->engine->set_routes(net_routes(*channels_->cluster, topology_, rank_));
  // Orders of summands may depend on no machine then; the ways over NICs may.
  if (determinism_of(strictest_determinism(*options_.config)) == Determinism::off) topology_.cluster = channels_->cluster;
  return {};
}

Status Communicator::start_engine(Iface<tutti_net_v1> net, std::span<const std::byte> told) {
  TUTTI_ASSIGN(p, process());
  const Deadline deadline = Deadline::in(options_.config->duration("core.init_timeout"));
  Bootstrap &b = *core_->bootstrap;
  TUTTI_ASSIGN(engine, Engine::create(b, *p.registry, options_.config, net));
  {
    std::lock_guard lock(mutex_);
    core_->engine = std::move(engine);
    flight_ =
        ras::Flight::begin({b.comm_id(), core_->job, options_.name, rank_, nranks_, b.peer(rank_).hostname, ::getpid(), ""},
                           options_.config, *core_->engine);
  }
  // The engine may be gone when a late notice comes.
  b.on_failure([weak = std::weak_ptr<Engine>(core_->engine), flight = flight_](const Error &e) {
    if (auto alive = weak.lock()) alive->fail(e);
    flight->failed();
  });
  if (b.failed()) {
    core_->engine->fail(b.failure().error());
    flight_->failed();
    return b.failure();
  }
  TUTTI_ASSIGN(infos, b.allgather(joined(told, core_->engine->local_info()), deadline, "exchanging addresses"));
  Bytes from_rank_0;
  for (size_t r = 0; r < infos.size(); r++) {
    auto parts = parted(infos[r]);
    if (!parts) return tutti::fail(Code::remote, "rank {} sent an address that cannot be read", r).peer(static_cast<int>(r));
    if (r == 0) from_rank_0 = std::move(parts->first);
    infos[r] = std::move(parts->second);
  }
  TUTTI_TRY(take_channels(from_rank_0));
  TUTTI_TRY(core_->engine->set_peers(infos));
  for (int r = 0; r < nranks_; r++)
    if (r != rank_) slowest_ = std::max(slowest_, core_->engine->link_class(r));
  TUTTI_TRY(exchange_readable());
  TUTTI_TRY(set_up_collnet());
  return exchange_selection();
}

Status Communicator::set_up_collnet() {
  plain_topology_ = topology_;
  if (nranks_ == 1) return {};
  TUTTI_ASSIGN(p, process());
  CollnetSetup setup(*core_->bootstrap, *core_->engine, *options_.config, *p.registry, topology_, core_->job,
                     net_ ? static_cast<uint32_t>(devices_in_use(survey_, nullptr).bytes_per_us * 8) : 0);
  auto facts = setup.run(Deadline::in(options_.config->duration("core.init_timeout")));
  if (!facts.ok()) {
    if (!core_->bootstrap->failed()) farewell();
    return std::move(facts.status());
  }
  collnet_ = std::move(*facts);
  if (collnet_.on) topology_.groups = collnet_heads(plain_topology_);
  return {};
}

// Whether all ranks can read what they would pull. Where only shared memory is pulled, nothing has to be read.
Status Communicator::exchange_readable() {
  Bootstrap &b = *core_->bootstrap;
  bool apart = false;
  for (int r = 1; r < nranks_; r++) apart |= b.peer(r).process != b.peer(0).process;
  if (!apart || options_.config->text("shm.pull") != "auto") return {};
  const Deadline deadline = Deadline::in(options_.config->duration("core.init_timeout"));
  const std::string &mine = core_->engine->unreadable();
  TUTTI_ASSIGN(all, b.allgather(std::as_bytes(std::span(mine)), deadline, "exchanging whose memory can be read"));
  for (const Bytes &text : all)
    if (no_pull_.empty() && !text.empty()) no_pull_.assign(reinterpret_cast<const char *>(text.data()), text.size());
  return {};
}

// Rank 0 decides for all.
Status Communicator::exchange_selection() {
  if (nranks_ == 1) return {};
  TUTTI_ASSIGN(p, process());
  Bootstrap &b = *core_->bootstrap;
  // Two nodes and more always have a net between some pair, one node only with shared memory off: all ranks see it.
  Selector::Input in{p.registry, options_.config, tuner_, &topology_, slowest_, no_pull_, nullptr, false, &collnet_};
  if (needs_net(b, *options_.config)) in.slowest = LinkClass::net;
  TUTTI_TRY(share_table(in, topology_, &selector_, &selection_));
  if (!collnet_.on) return {};
  in.topology = &plain_topology_;
  in.collnet = nullptr;
  in.lenient = true; // who asked for collnet gets the next best
  return share_table(in, plain_topology_, &plain_selector_, &plain_selection_);
}

Status Communicator::share_table(const Selector::Input &in, const Topology &topology, std::unique_ptr<Selector> *to,
                                 SelectionTable *out) {
  TUTTI_ASSIGN(p, process());
  const Deadline deadline = Deadline::in(options_.config->duration("core.init_timeout"));
  Bootstrap &b = *core_->bootstrap;
  auto selector = Selector::create(in);
  Bytes mine;
  if (!selector.ok())
    mine = SelectionTable::encode_refusal(selector.status().error().message);
  else if (*to = std::make_unique<Selector>(std::move(*selector)); rank_ == 0) {
    CostConstants costs = machine_costs(*options_.config, host_cpus_);
    CostModel::Device device;
    if (net_ && topology_.node_count > 1)
      device = devices_in_use(survey_, channels_->cluster ? &channels_->cluster->hosts.front() : nullptr);
    apply_bandwidths(*options_.config, &costs, &device);
    (*to)->use_model(cost_model(topology, costs, device));
    auto table = (*to)->table();
    if (table.ok()) table->costs = costs.encode(), table->device = device.encode();
    mine = table.ok() ? table->encode() : SelectionTable::encode_refusal(table.status().error().message);
  }
  TUTTI_ASSIGN(pieces, b.allgather(mine, deadline, "sharing the selection of algorithms"));
  for (const Bytes &piece : pieces)
    if (const auto refusal = SelectionTable::refusal_in(piece)) {
      farewell();
      return tutti::fail(Code::invalid_usage, "{}", *refusal);
    }
  TUTTI_ASSIGN(table, SelectionTable::decode(pieces[0], *p.registry));
  *out = std::move(table);
  if (rank_ == 0) return {};
  const auto costs = CostConstants::decode(out->costs);
  const auto device = CostModel::Device::decode(out->device);
  if (!costs || !device) return tutti::fail(Code::internal, "rank 0 reckons with costs that cannot be read");
  (*to)->use_model(cost_model(topology, *costs, *device));
  return {};
}

// What the ranks' places add to the machine's constants.
std::shared_ptr<const CostModel> Communicator::cost_model(const Topology &topology, const CostConstants &constants,
                                                          const CostModel::Device &net) const {
  CostModel::Input in;
  in.topology = std::make_shared<const Topology>(topology);
  in.group_crowding = collnet_.crowding();
  in.group_depth = std::max(1u, collnet_.caps.tree_depth);
  in.constants = constants;
  in.shm = !options_.config->flag("shm.disable");
  in.shared = core_->engine->shares_memory();
  std::map<std::array<uint64_t, 2>, int32_t> processes;
  for (int r = 0; r < nranks_; r++) {
    const auto next = static_cast<int32_t>(processes.size());
    in.process_of_rank.push_back(processes.try_emplace(core_->bootstrap->peer(r).process, next).first->second);
  }
  in.net = net;
  return std::make_shared<const CostModel>(std::move(in));
}

void Communicator::log_ready() const {
  if (!log::enabled(log::Level::info, Subsys::init)) return;
  const log::ScopedRank scope(rank_);
  uint32_t count[3] = {};
  for (int r = 0; r < nranks_; r++)
    if (r != rank_) count[static_cast<size_t>(core_->engine->link_class(r))]++;
  std::string links;
  for (size_t c = 0; c < 3; c++)
    if (count[c]) links += fmt::format("{}{} {}", links.empty() ? "" : ", ", count[c], class_name(static_cast<LinkClass>(c)));
  log::info(Subsys::init, "comm {:#x}{}: rank {} of {}, {} host(s), {} core(s) here{}, peers: {}", core_->bootstrap->comm_id(),
            options_.name.empty() ? "" : " \"" + options_.name + "\"", rank_, nranks_, topology_.node_count,
            topology_.cores_on_node[static_cast<size_t>(topology_.node_of_rank[static_cast<size_t>(rank_)])],
            topology_.oversubscribed() ? " (oversubscribed)" : "", links.empty() ? "none" : links);
  if (rank_ == 0 && nranks_ > 1) {
    log_channels();
    log_selection();
  }
}

// What was searched, and what of it holds.
void Communicator::log_channels() const {
  if (!log::enabled(log::Level::info, Subsys::graph)) return;
  const uint64_t id = core_->bootstrap->comm_id();
  for (const std::string &line : channels_->why) log::info(Subsys::graph, "comm {:#x}: channels: {}", id, line);
  if (!channels_->cluster) return;
  const Cluster &cluster = *channels_->cluster;
  if (!topology_.cluster)
    log::info(Subsys::graph, "comm {:#x}: channels: {}: rings and trees of the standard order", id,
              describe_determinism(strictest_determinism(*options_.config)));
  else if (const std::string text = reordering(cluster, topology_); !text.empty())
    log::info(Subsys::graph, "comm {:#x}: {}", id, text);
  for (size_t c = 0; c < cluster.channels.size(); c++)
    log::info(Subsys::graph, "comm {:#x}: channel {}: {}", id, c, channel_text(cluster, c));
}

// A line for each range of sizes that runs the same way.
void Communicator::log_selection() const {
  if (!log::enabled(log::Level::info, Subsys::tuning)) return;
  const auto line = [&](uint32_t row, uint32_t bucket, const std::string &range) {
    const Choice &c = selection_.at(row, bucket);
    const std::string over = selector_->passed_over(row, bytes_of(row, bucket));
    const std::string note = selector_->determinism_note(row);
    const std::string head = fmt::format("comm {:#x}: {}{} -> ", core_->bootstrap->comm_id(), row_name(row), range);
    if (!c.algo) return log::info(Subsys::tuning, "{}refused: {}", head, c.refusal);
    log::info(Subsys::tuning, "{}{}/{}, {} channel{}, slots {} x {} (tuner \"{}\", bucket {}{}{}{}{}{})", head,
              c.algo.table->name, c.proto.table->name, c.channels, c.channels == 1 ? "" : "s", size_text(c.slot_bytes), c.depth,
              tuner_ ? tuner_.table->name : "none", bucket, selector_->next_best(row, bucket), over.empty() ? "" : "; ", over,
              note.empty() ? "" : "; ", note);
  };
  for (uint32_t row = 0; row < kRows; row++) {
    if (row == TUTTI_COLL_BARRIER) {
      line(row, bucket_of(sizeof barrier_word_), "");
      continue;
    }
    for (uint32_t b = 0, first = 0; b < kBuckets; first = b) {
      while (b < kBuckets && selection_.index[row][b] == selection_.index[row][first]) b++;
      line(row, first, size_range(first, b));
    }
  }
}

} // namespace tutti
