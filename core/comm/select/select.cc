#include "comm/select/select.h"
#include "base/types.h"
#include "log/log.h"
#include <algorithm>
#include <set>
#include <sstream>

namespace tutti {
namespace {

constexpr uint32_t kMinSlot = 1024;
// A communicator's links have a few geometries; each may take this part of the cap.
constexpr uint64_t kCapShare = 4;
// Size classes that count when one order is chosen for all: 8 B to 1 GiB.
constexpr uint32_t kFirstCommon = 3, kLastCommon = 30;

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

// Bits of results depend on the order in which this row's operands are combined. A barrier's are nobody's.
bool adds(uint32_t row) {
  return coll_reduces(coll_of_row(row)) && row != TUTTI_COLL_BARRIER;
}

} // namespace

std::string_view row_name(uint32_t row) {
  return row == kRowV ? std::string_view("alltoallv") : coll_name(row);
}

Result<Selector> Selector::create(Input input) {
  Selector s(std::move(input));
  const auto parse = [&](const char *key, const char *what, const std::vector<std::string> &names) {
    const Setting &setting = s.in_.config->setting(key);
    return NameFilter::parse(setting.text, setting.origin, what, names);
  };
  const auto algos = names_of(s.in_.registry->all<tutti_algo_v1>(TUTTI_ALGO));
  const auto protos = names_of(s.in_.registry->all<tutti_proto_v1>(TUTTI_PROTO));
  if (algos.empty() || protos.empty())
    return fail(Code::invalid_usage, "no {} plugin is loaded; `tutti info` shows what was searched and why files were skipped",
                algos.empty() ? "algorithm" : "protocol");
  TUTTI_ASSIGN(a, parse("coll.algo", "algorithm", algos));
  TUTTI_ASSIGN(p, parse("coll.proto", "protocol", protos));
  s.algos_ = std::move(a);
  s.protos_ = std::move(p);
  s.mode_ = determinism_of(*s.in_.config);
  return s;
}

// Links are those of rank 0, which is the root where there is one and so has most; where ranks share memory it may have fewer.
Selector::Support Selector::ask_support(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  const uint32_t flags = row == kRowV ? static_cast<uint32_t>(TUTTI_REQ_NONUNIFORM) : 0u;
  const PlanRequest request = make_request(*in_.topology, coll, 0, coll_has_root(coll) ? 0 : -1, 1, flags);
  const auto none = [](const Error &why) { return Support{why.message, 0, why.code != Code::invalid_usage}; };
  if (Status s = algo_supports(algo, request); !s.ok()) return none(s.error());
  auto plan = build_plan(algo, request);
  if (!plan.ok()) return none(plan.status().error());
  return {"", send_links(**plan), false};
}

const Selector::Support &Selector::support(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const auto [it, fresh] = support_.try_emplace({algo.table, row});
  if (fresh) it->second = ask_support(algo, row);
  return it->second;
}

// Shrinks slots until the links of one geometry fit their part of the cap. A pure function of the table's inputs.
void Selector::clamp(Rated &way, uint32_t links) const {
  const Config &c = *in_.config;
  const auto lo = static_cast<uint32_t>(c.number("coll.min_channels"));
  const auto hi = std::max(lo, static_cast<uint32_t>(c.number("coll.max_channels")));
  way.channels = std::clamp(way.channels, lo, hi);
  if (const auto slot = static_cast<uint32_t>(c.number("coll.slot_bytes"))) way.slot_bytes = slot;
  if (const auto depth = static_cast<uint32_t>(c.number("coll.depth"))) way.depth = depth;
  way.depth = std::bit_ceil(std::max(2u, way.depth));
  if (const auto buffer = static_cast<uint64_t>(c.number("coll.buffer"))) {
    while (way.depth > 2 && uint64_t(way.slot_bytes) * way.depth > buffer) way.depth /= 2;
    if (uint64_t(way.slot_bytes) * way.depth > buffer) way.slot_bytes = static_cast<uint32_t>(buffer / way.depth);
  }
  way.slot_bytes = std::max(kMinSlot, static_cast<uint32_t>(align_up(way.slot_bytes, kChunkAlign)));
  const uint64_t budget = static_cast<uint64_t>(c.number("memory.cap")) / kCapShare;
  const uint64_t n = std::max<uint64_t>(1, uint64_t(links) * way.channels);
  while (way.depth > 2 && n * way.slot_bytes * way.depth > budget) way.depth /= 2;
  while (way.slot_bytes > kMinSlot && n * way.slot_bytes * way.depth > budget) way.slot_bytes /= 2;
  way.slot_bytes = static_cast<uint32_t>(align_up(way.slot_bytes, kChunkAlign));
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
void Selector::predict(uint32_t row, uint64_t bytes, Ask ask, std::vector<Rated> &ways) const {
  if (!in_.model) return;
  const CostModel made_up = ask == Ask::here ? CostModel({}) : in_.model->unloaded();
  const CostModel &model = ask == Ask::here ? *in_.model : made_up;
  const Config &c = *in_.config;
  CostModel::Limits limits;
  limits.min_channels = static_cast<uint32_t>(c.number("coll.min_channels"));
  limits.max_channels = std::max(limits.min_channels, static_cast<uint32_t>(c.number("coll.max_channels")));
  limits.slot_bytes = static_cast<uint32_t>(c.number("coll.slot_bytes"));
  limits.depth = static_cast<uint32_t>(c.number("coll.depth"));
  const uint32_t flags = row == kRowV ? static_cast<uint32_t>(TUTTI_REQ_NONUNIFORM) : 0u;
  for (Rated &w : ways) {
    auto e = model.propose(w.algo, w.proto, coll_of_row(row), flags, bytes, limits);
    if (!e.ok()) {
      w.reason = fmt::format("nothing can be predicted for it: {}", e.status().error().message);
      continue;
    }
    w.cost_us = e->us;
    w.timed = true;
    w.channels = e->channels, w.slot_bytes = e->slot_bytes, w.depth = e->depth, w.flags = e->flags;
    w.estimate = std::move(*e);
  }
  std::stable_partition(ways.begin(), ways.end(), [](const Rated &w) { return w.reason.empty(); });
}

void Selector::ask_tuner(const tutti_tune_query &query, std::vector<Rated> &ways) const {
  std::vector<tutti_candidate> candidates;
  for (const Rated &w : ways) {
    tutti_candidate c{};
    c.algo = w.algo.table->name;
    c.proto = w.proto.table->name;
    c.channels = w.channels;
    c.min_channels = static_cast<uint32_t>(in_.config->number("coll.min_channels"));
    c.max_channels = std::max(c.min_channels, static_cast<uint32_t>(in_.config->number("coll.max_channels")));
    c.cost_us = w.cost_us;
    c.slot_bytes = w.slot_bytes;
    c.depth = w.depth;
    c.flags = w.flags;
    candidates.push_back(c);
  }
  const auto status = in_.tuner.table->rate(in_.tuner.plugin->state, &query, candidates.data(),
                                            static_cast<uint32_t>(candidates.size()), sizeof(tutti_candidate));
  if (status < 0) {
    const auto why = plugin_error(*in_.tuner.plugin, status, "rating candidates");
    log::write_once(log::Level::warn, log::Subsys::tuning, std::string("tuner ") + in_.tuner.table->name,
                    why.error().line() + "; the core's own order holds");
    return;
  }
  for (size_t i = 0; i < ways.size(); i++) {
    const tutti_candidate &c = candidates[i];
    ways[i].cost_us = c.cost_us;
    ways[i].channels = c.channels;
    ways[i].slot_bytes = c.slot_bytes;
    ways[i].depth = c.depth;
    ways[i].flags = c.flags & ~uint32_t{TUTTI_CAND_ORDER_ONLY | TUTTI_CAND_MEASURED};
    ways[i].timed = !(c.flags & TUTTI_CAND_ORDER_ONLY) && c.cost_us > 0;
    ways[i].measured = ways[i].timed && (c.flags & TUTTI_CAND_MEASURED);
    if (c.note) ways[i].note = c.note;
    if (c.cost_us < 0) ways[i].reason = fmt::format("tuner \"{}\" forbids it for this size", in_.tuner.table->name);
  }
}

bool Selector::list_holds(uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  if (algos_.named(coll) || !algos_.forced(coll)) return true;
  const auto algos = in_.registry->all<tutti_algo_v1>(TUTTI_ALGO);
  return std::any_of(algos.begin(), algos.end(), [&](const auto &algo) {
    return algos_.allows(coll, algo.table->name) && support(algo, row).reason.empty();
  });
}

std::string Selector::passed_over(uint32_t row) const {
  if (list_holds(row)) return "";
  return fmt::format("{} lists no algorithm for it", algos_.describe(coll_of_row(row)));
}

// A list that serves nothing at all was not meant.
Status Selector::check_general_list() const {
  std::optional<uint32_t> unserved;
  for (uint32_t row = 0; row < kRows; row++) {
    const tutti_coll coll = coll_of_row(row);
    if (algos_.named(coll) || !algos_.forced(coll)) continue;
    if (list_holds(row)) return {};
    if (!unserved) unserved = row;
  }
  if (!unserved) return {};
  std::string reasons;
  for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO))
    if (algos_.allows(coll_of_row(*unserved), algo.table->name))
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ", algo.table->name, support(algo, *unserved).reason);
  return fail(Code::invalid_usage, "{} serves no collective of this communicator; for {} {}",
              algos_.describe(coll_of_row(*unserved)), row_name(*unserved), reasons);
}

bool Selector::fixes_order(uint32_t row) const {
  return mode_ == Determinism::size && adds(row);
}

const FixedOrder &Selector::own_order(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const auto [it, fresh] = own_orders_.try_emplace({algo.table, row});
  if (fresh) {
    const auto lo = static_cast<uint32_t>(in_.config->number("coll.min_channels"));
    const auto hi = std::max(lo, static_cast<uint32_t>(in_.config->number("coll.max_channels")));
    it->second = fixed_order(algo, coll_of_row(row), *in_.topology, lo, hi);
  }
  return it->second;
}

std::string Selector::against(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  if (list_holds(row) && !algos_.allows(coll, algo.table->name)) return "excluded by " + algos_.describe(coll);
  if (const std::string &reason = support(algo, row).reason; !reason.empty()) return reason;
  if (fixes_order(row) && !own_order(algo, row).reason.empty())
    return fmt::format("{}: {}", describe_determinism(*in_.config), own_order(algo, row).reason);
  return "";
}

// All ways, with what is against them but for the tuner's opinion and another way's order.
std::vector<Rated> Selector::list(uint32_t row) const {
  const tutti_coll coll = coll_of_row(row);
  std::vector<Rated> ways;
  auto protos = in_.registry->all<tutti_proto_v1>(TUTTI_PROTO);
  // Of equal ways the first runs, so those for every size come first.
  std::stable_sort(protos.begin(), protos.end(),
                   [](const auto &a, const auto &b) { return a.table->signal < b.table->signal; });
  for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO)) {
    const std::string reason = against(algo, row);
    for (const auto &proto : protos) {
      Rated w;
      w.algo = algo;
      w.proto = proto;
      w.reason = reason;
      if (reason.empty() && !protos_.allows(coll, proto.table->name)) w.reason = "excluded by " + protos_.describe(coll);
      if (w.reason.empty() && proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR) w.reason = in_.no_pull;
      if (w.reason.empty() && proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR && mode_ == Determinism::run && adds(row) &&
          !protos_.forced(coll))
        w.reason = describe_determinism(*in_.config) + ": every run finds out anew whether memory can be read";
      ways.push_back(std::move(w));
    }
  }
  return ways;
}

// The order that the tuner likes best, by the sum of its places among the orders over the size classes. Neither hosts, cores
// nor protocols decide about bits: the tuner is asked as if all ranks shared one host and every protocol could be had but those
// of descriptors, which each run may find usable or not; an order's place is that of its best way.
const Selector::RowOrder &Selector::row_order(uint32_t row) const {
  const auto [it, fresh] = row_orders_.try_emplace(row);
  if (!fresh) return it->second;
  std::vector<Iface<tutti_algo_v1>> algos = in_.registry->all<tutti_algo_v1>(TUTTI_ALGO);
  std::erase_if(algos, [&](const auto &algo) { return !against(algo, row).empty(); });
  std::vector<Rated> proposals;
  std::map<uint64_t, size_t> places; // by order
  for (const auto &algo : algos) {
    places[own_order(algo, row).id] = 0;
    for (const auto &proto : in_.registry->all<tutti_proto_v1>(TUTTI_PROTO)) {
      if (proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR) continue;
      Rated &w = proposals.emplace_back();
      w.algo = algo;
      w.proto = proto;
    }
  }
  for (uint32_t b = kFirstCommon; b <= kLastCommon && in_.tuner && !proposals.empty(); b++) {
    std::vector<Rated> ways = proposals;
    ask_tuner(query_of(row, uint64_t(1) << b, Ask::anywhere), ways);
    std::map<uint64_t, double> cost; // of each order that is not forbidden
    for (const Rated &w : ways) {
      if (!w.reason.empty()) continue;
      const auto [best, first] = cost.try_emplace(own_order(w.algo, row).id, w.cost_us);
      if (!first) best->second = std::min(best->second, w.cost_us);
    }
    for (auto &[id, sum] : places) {
      const auto own = cost.find(id);
      sum += static_cast<size_t>(std::count_if(
          cost.begin(), cost.end(), [&](const auto &other) { return own == cost.end() || other.second < own->second; }));
    }
  }
  for (const auto &algo : algos) { // of equals the first, in the order of the algorithms
    const uint64_t id = own_order(algo, row).id;
    if (!it->second.id || places[id] < places[*it->second.id]) it->second = {id, algo.table->name};
  }
  return it->second;
}

// A protocol that was asked for by name and cannot be used is no matter of taste.
Status Selector::check_pull() const {
  const auto protos = in_.registry->all<tutti_proto_v1>(TUTTI_PROTO);
  for (uint32_t row = 0; row < kRows && !in_.no_pull.empty(); row++) {
    const tutti_coll coll = coll_of_row(row);
    const bool other = std::any_of(protos.begin(), protos.end(), [&](const auto &p) {
      return p.table->signal != TUTTI_SIGNAL_DESCRIPTOR && protos_.allows(coll, p.table->name);
    });
    if (protos_.forced(coll) && !other)
      return fail(Code::invalid_usage, "{}: {}", protos_.describe(coll), in_.no_pull)
          .hint("allow \"simple\" beside it, or set shm.pull = \"mapped\" (TUTTI_SHM_PULL) to pull from tuttiMemAlloc memory "
                "only");
  }
  return {};
}

std::vector<Rated> Selector::rate(uint32_t row, uint64_t bytes) const {
  std::vector<Rated> usable, refused;
  for (Rated &w : list(row)) {
    if (w.reason.empty() && fixes_order(row) && own_order(w.algo, row).id != row_order(row).id)
      w.reason = fmt::format("{}: it combines in another order than {}, which all sizes have",
                             describe_determinism(*in_.config), row_order(row).algo);
    (w.reason.empty() ? usable : refused).push_back(std::move(w));
  }
  // Once the order is fixed, cores and links may choose what is fastest.
  const Ask ask = mode_ == Determinism::run && adds(row) ? Ask::with_such_hosts : Ask::here;
  predict(row, bytes, ask, usable);
  const auto unknown = std::find_if(usable.begin(), usable.end(), [](const Rated &w) { return !w.reason.empty(); });
  refused.insert(refused.begin(), std::make_move_iterator(unknown), std::make_move_iterator(usable.end()));
  usable.erase(unknown, usable.end());
  if (in_.tuner && !usable.empty()) ask_tuner(query_of(row, bytes, ask), usable);
  for (Rated &w : usable) clamp(w, support(w.algo, row).links);
  const auto order = [](const Rated &a, const Rated &b) {
    if (a.reason.empty() != b.reason.empty()) return a.reason.empty();
    return a.cost_us < b.cost_us;
  };
  std::stable_sort(usable.begin(), usable.end(), order);
  usable.insert(usable.end(), refused.begin(), refused.end());
  return usable;
}

std::optional<uint64_t> Selector::promised_order(uint32_t row) const {
  return fixes_order(row) ? row_order(row).id : std::nullopt;
}

std::string Selector::determinism_note(uint32_t row) const {
  if (mode_ == Determinism::off || !adds(row)) return "";
  const std::string setting = describe_determinism(*in_.config);
  if (mode_ == Determinism::run) return setting + ": chosen without a look at cores, load, links and measurements";
  return fmt::format("{}: every size combines in the order of {}", setting, row_order(row).algo);
}

std::string Selector::next_best(uint32_t row, uint32_t bucket) const {
  const auto ways = rate(row, row == kRowV ? kBytesV : uint64_t(1) << bucket);
  if (ways.size() < 2 || !ways[1].reason.empty()) return "";
  std::string out = fmt::format("; next best {}/{}", ways[1].algo.table->name, ways[1].proto.table->name);
  if (ways[0].timed && ways[1].timed) out += fmt::format(" {:+.0f} %", (ways[1].cost_us / ways[0].cost_us - 1) * 100);
  return out;
}

std::string Selector::refusal(uint32_t row, const std::vector<Rated> &ways) const {
  std::string out = fmt::format("no way to run {}:", row_name(row));
  std::set<std::string> said;
  for (const bool by_user : {false, true}) // what the user has excluded comes last: that is no news
    for (const Rated &w : ways)
      if (const auto text = fmt::format(" {}: {}", w.algo.table->name, w.reason);
          w.reason.starts_with("excluded by") == by_user && said.insert(text).second)
        out += (said.size() > 1 ? "," : "") + text;
  return out;
}

Choice Selector::choose(uint32_t row, uint64_t bytes) const {
  const auto ways = rate(row, bytes);
  if (ways.empty() || !ways.front().reason.empty()) {
    Choice none;
    none.refusal = refusal(row, ways);
    return none;
  }
  const Rated &w = ways.front();
  return {w.algo, w.proto, w.channels, w.slot_bytes, w.depth, w.flags, ""};
}

// What was asked for by name and is broken is an error, although something else could serve.
Status Selector::check_named() const {
  for (uint32_t row = 0; row < kRows; row++) {
    const tutti_coll coll = coll_of_row(row);
    for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO)) {
      if (!algos_.allows(coll, algo.table->name) || !support(algo, row).broken) continue;
      if (algos_.forced(coll))
        return fail(Code::invalid_usage, "{}: {} cannot be used for {}: {}", algos_.describe(coll), algo.table->name,
                    row_name(row), support(algo, row).reason);
      log::write_once(log::Level::warn, log::Subsys::tuning, std::string("algorithm ") + algo.table->name,
                      fmt::format("algorithm {} is left out: {}", algo.table->name, support(algo, row).reason));
    }
  }
  return {};
}

Result<SelectionTable> Selector::table() const {
  TUTTI_TRY(check_named());
  TUTTI_TRY(check_general_list());
  TUTTI_TRY(check_pull());
  SelectionTable t;
  for (uint32_t row = 0; row < kRows; row++) {
    for (uint32_t b = 0; b < kBuckets; b++) {
      if (row == kRowV && b > 0) {
        t.index[row][b] = t.index[row][0];
        continue;
      }
      Choice c = choose(row, row == kRowV ? kBytesV : uint64_t(1) << b);
      const tutti_coll coll = coll_of_row(row);
      const bool meant =
          algos_.named(coll) || protos_.named(coll) || (fixes_order(row) && algos_.forced(coll) && list_holds(row));
      if (!c.algo && meant) return fail(Code::invalid_usage, "{}", c.refusal);
      const auto same = [&](const Choice &o) {
        return o.algo.table == c.algo.table && o.proto.table == c.proto.table && o.channels == c.channels &&
               o.slot_bytes == c.slot_bytes && o.depth == c.depth && o.flags == c.flags && o.refusal == c.refusal;
      };
      const auto hit = std::find_if(t.choices.begin(), t.choices.end(), same);
      t.index[row][b] = static_cast<uint16_t>(hit - t.choices.begin());
      if (hit == t.choices.end()) t.choices.push_back(std::move(c));
    }
  }
  return t;
}

// Text: the model's constants, the number of choices, a line for each, then the rows.
Bytes SelectionTable::encode() const {
  std::string out = fmt::format("{}\n{}\n", costs, choices.size());
  for (const Choice &c : choices)
    out += fmt::format("{}\n{}\n{} {} {} {}\n{}\n", c.algo ? c.algo.table->name : "", c.proto ? c.proto.table->name : "",
                       c.channels, c.slot_bytes, c.depth, c.flags, c.refusal);
  for (const auto &row : index) {
    for (uint16_t i : row) out += fmt::format("{} ", i);
    out += '\n';
  }
  const auto *p = reinterpret_cast<const std::byte *>(out.data());
  return {p, p + out.size()};
}

constexpr char kRefusal = '!';

Bytes SelectionTable::encode_refusal(std::string_view why) {
  const std::string out = kRefusal + std::string(why);
  const auto *p = reinterpret_cast<const std::byte *>(out.data());
  return {p, p + out.size()};
}

std::optional<std::string> SelectionTable::refusal_in(std::span<const std::byte> text) {
  if (text.empty() || text[0] != std::byte{kRefusal}) return std::nullopt;
  return std::string(reinterpret_cast<const char *>(text.data()) + 1, text.size() - 1);
}

Result<SelectionTable> SelectionTable::decode(std::span<const std::byte> text, const Registry &registry) {
  std::istringstream in(std::string(reinterpret_cast<const char *>(text.data()), text.size()));
  const auto broken = [] { return fail(Code::internal, "the selection table of rank 0 cannot be read"); };
  SelectionTable t;
  size_t n = 0;
  std::string line, algo, proto;
  std::getline(in, t.costs);
  if (!(in >> n) || n > kRows * kBuckets) return broken();
  std::getline(in, line);
  for (size_t i = 0; i < n; i++) {
    Choice c;
    if (!std::getline(in, algo) || !std::getline(in, proto) || !std::getline(in, line)) return broken();
    std::istringstream numbers(line);
    numbers >> c.channels >> c.slot_bytes >> c.depth >> c.flags;
    if (!numbers || !std::getline(in, c.refusal)) return broken();
    if (!algo.empty()) {
      TUTTI_ASSIGN(a, registry.named<tutti_algo_v1>(TUTTI_ALGO, algo));
      TUTTI_ASSIGN(p, registry.named<tutti_proto_v1>(TUTTI_PROTO, proto));
      c.algo = a;
      c.proto = p;
    }
    t.choices.push_back(std::move(c));
  }
  for (auto &row : t.index)
    for (uint16_t &i : row)
      if (!(in >> i) || i >= n) return broken();
  return t;
}

} // namespace tutti
