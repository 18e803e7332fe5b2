// What runs: the best way that options allow, for the table; the best that a call asks for.
#include "base/types.h"
#include "comm/select/select.h"
#include "log/log.h"
#include <algorithm>
#include <set>

namespace tutti {
namespace {

Choice choice_of(const Rated &w) {
  return {w.algo, w.proto, w.channels, w.slot_bytes, w.depth, w.flags, ""};
}

std::string way_name(const Choice &c) {
  return fmt::format("{}/{}", c.algo.table->name, c.proto.table->name);
}

// (algorithm, protocol, what is against them): those of one algorithm in one piece where they are the same.
std::string reasons_text(const std::vector<WayList::Ruled> &ruled) {
  std::string out;
  const auto add = [&](const std::string &who, const std::string &why) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", who, why);
  };
  for (size_t at = 0, end; at < ruled.size(); at = end) {
    end = at;
    while (end < ruled.size() && ruled[end].algo == ruled[at].algo) end++;
    const bool one =
        std::all_of(ruled.begin() + static_cast<std::ptrdiff_t>(at), ruled.begin() + static_cast<std::ptrdiff_t>(end),
                    [&](const auto &r) { return r.reason == ruled[at].reason; });
    if (one)
      add(ruled[at].algo, ruled[at].reason);
    else
      for (size_t i = at; i < end; i++) add(ruled[i].algo + "/" + ruled[i].proto, ruled[i].reason);
  }
  return out;
}

WayList list_of(const std::vector<Rated> &ways, SelectionTable &table) {
  WayList out;
  for (const Rated &w : ways)
    if (w.can_run())
      out.ways.push_back({table.add(choice_of(w)), w.by_algo, w.by_proto});
    else
      out.ruled_out.push_back({w.algo.table->name, w.proto.table->name, w.reason});
  return out;
}

} // namespace

bool Selector::prefers(uint32_t row, uint64_t bytes) const {
  return in_.lenient || setting("coll.choice", row, bytes).number != 0;
}

std::string Selector::next_best(uint32_t row, uint32_t bucket) const {
  const auto ways = rate(row, bytes_of(row, bucket));
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
          w.can_run() == by_user && said.insert(text).second)
        out += (said.size() > 1 ? "," : "") + text;
  return out;
}

// nullptr: none.
const Rated *Selector::pick(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const {
  if (ways.empty()) return nullptr;
  const Rated &best = ways.front();
  return best.reason.empty() || (best.can_run() && prefers(row, bytes)) ? &best : nullptr;
}

Choice Selector::choice_from(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const {
  if (const Rated *best = pick(row, bytes, ways)) return choice_of(*best);
  Choice none;
  none.refusal = refusal(row, ways);
  return none;
}
Choice Selector::choose(uint32_t row, uint64_t bytes) const {
  return choice_from(row, bytes, rate(row, bytes));
}

// An option decides when it allows only what it lists, or excludes what would run otherwise; among what it leaves the tuner
// does.
Decided Selector::decided(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const {
  const Rated *best = pick(row, bytes, ways);
  if (!best) return {"core", "nothing can run"};
  const tutti_coll coll = coll_of_row(row);
  const auto better = [&](bool Rated::*excluded) {
    return std::any_of(ways.begin(), ways.end(), [&](const Rated &w) { return w.*excluded && w.cost_us < best->cost_us; });
  };
  const bool by_algo = (algos(row, bytes).forced(coll) && list_holds(row, bytes)) || better(&Rated::by_algo);
  const bool by_proto = protos(row, bytes).forced(coll) || better(&Rated::by_proto);
  if (best->reason.empty() && by_algo)
    return {std::string(source_of(setting("coll.algo", row, bytes))), algos(row, bytes).describe(coll)};
  if (best->reason.empty() && by_proto)
    return {std::string(source_of(setting("coll.proto", row, bytes))), protos(row, bytes).describe(coll)};
  if (best->reason.empty() && in_.collnet && in_.collnet->required && uses_groups(best->algo, row))
    return {std::string(source_of(in_.config->setting("coll.collnet"))),
            fmt::format("coll.collnet is \"required\" ({})", in_.collnet->origin)};
  if (best->estimate && best->estimate->us == best->cost_us && best->note.empty()) return {"model", best->estimate->text()};
  if (!in_.tuner) return {"core", ""};
  return {"tuner", fmt::format("\"{}\"{}{}", in_.tuner.table->name, best->note.empty() ? "" : ", ", best->note)};
}

// What was asked for by name and is broken is an error, although something else could serve.
Status Selector::check_named(uint32_t row, uint64_t bytes) const {
  const tutti_coll coll = coll_of_row(row);
  const NameFilter &filter = algos(row, bytes);
  for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO)) {
    if (!filter.allows(coll, algo.table->name) || !support(algo, row).broken) continue;
    if (filter.forced(coll))
      return fail(Code::invalid_usage, "{}: {} cannot be used for {}: {}", filter.describe(coll), algo.table->name,
                  row_name(row), support(algo, row).reason);
    log::write_once(log::Level::warn, log::Subsys::tuning, std::string("algorithm ") + algo.table->name,
                    fmt::format("algorithm {} is left out: {}", algo.table->name, support(algo, row).reason));
  }
  return {};
}

// A protocol that was asked for by name and cannot be used is no matter of taste.
Status Selector::check_pull(uint32_t row, uint64_t bytes) const {
  if (in_.no_pull.empty()) return {};
  const tutti_coll coll = coll_of_row(row);
  const NameFilter &filter = protos(row, bytes);
  const auto all = in_.registry->all<tutti_proto_v1>(TUTTI_PROTO);
  const bool other = std::any_of(all.begin(), all.end(), [&](const auto &p) {
    return p.table->signal != TUTTI_SIGNAL_DESCRIPTOR && filter.allows(coll, p.table->name);
  });
  if (!filter.forced(coll) || other) return {};
  return fail(Code::invalid_usage, "{}: {}", filter.describe(coll), in_.no_pull)
      .hint("allow \"simple\" beside it, or set shm.pull = \"mapped\" (TUTTI_SHM_PULL) to pull from tuttiMemAlloc memory "
            "only");
}

// A list without a collective's name that serves nothing at all was not meant.
Status Selector::check_general_lists() const {
  for (const auto &[setting, filter] : filters_) {
    if (!algo_settings_.contains(setting)) continue;
    std::optional<uint32_t> unserved;
    bool served = false;
    for (uint32_t row = 0; row < kRows && !served; row++) {
      if (filter.named(coll_of_row(row)) || !filter.forced(coll_of_row(row))) continue;
      served = holds(filter, row);
      if (!served && !unserved) unserved = row;
    }
    if (served || !unserved) continue;
    const tutti_coll coll = coll_of_row(*unserved);
    std::string reasons;
    for (const auto &algo : in_.registry->all<tutti_algo_v1>(TUTTI_ALGO))
      if (filter.allows(coll, algo.table->name))
        reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ", algo.table->name, support(algo, *unserved).reason);
    Status s = fail(Code::invalid_usage, "{} serves no collective of this communicator; for {} {}", filter.describe(coll),
                    row_name(*unserved), reasons);
    if (!prefers(*unserved, kBytesV)) return s;
    say_instead(*unserved, kBytesV, s.error().message, "");
  }
  return {};
}

// One line for all sizes of a collective, and for all communicators with these options.
void Selector::say_instead(uint32_t row, uint64_t bytes, const std::string &why, const std::string &way) const {
  if (in_.lenient) return;
  const tutti_coll coll = coll_of_row(row);
  log::write_once(
      log::Level::warn, log::Subsys::tuning,
      fmt::format("instead {} {} {}", row, algos(row, bytes).describe(coll), protos(row, bytes).describe(coll)),
      fmt::format("{}; {} (coll.choice = \"preferred\")", why, way.empty() ? "it is passed over" : way + " runs instead"));
}

// What runs in a size class; an error when coll.algo or coll.proto ask for what cannot be had and mean it.
Result<Choice> Selector::decide(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const {
  const tutti_coll coll = coll_of_row(row);
  Status wrong = check_named(row, bytes);
  if (wrong.ok()) wrong = check_pull(row, bytes);
  const bool soft = prefers(row, bytes);
  if (!wrong.ok() && !soft) return wrong;
  const Rated *best = pick(row, bytes, ways);
  Choice c = choice_from(row, bytes, ways);
  const bool meant = algos(row, bytes).named(coll) || protos(row, bytes).named(coll) ||
                     (fixes_order(row) && algos(row, bytes).forced(coll) && list_holds(row, bytes));
  if (!best && meant) return fail(Code::invalid_usage, "{}", c.refusal);
  if (best && !best->reason.empty()) // it is excluded, and nothing that is not can run
    say_instead(row, bytes, refusal(row, ways), way_name(c));
  else if (!wrong.ok())
    say_instead(row, bytes, wrong.error().message, best ? way_name(c) : "");
  return c;
}

Result<SelectionTable> Selector::table() const {
  TUTTI_TRY(check_general_lists());
  SelectionTable t;
  for (uint32_t row = 0; row < kRows; row++) {
    for (uint32_t b = 0; b < kBuckets; b++) {
      if (row == kRowV && b > 0) {
        t.index[row][b] = t.index[row][0];
        t.list[row][b] = t.list[row][0];
        continue;
      }
      const uint64_t bytes = bytes_of(row, b);
      const auto ways = rate(row, bytes);
      TUTTI_ASSIGN(choice, decide(row, bytes, ways));
      t.index[row][b] = t.add(std::move(choice));
      t.list[row][b] = t.add(list_of(ways, t));
    }
    TUTTI_TRY(t.fits());
  }
  return t;
}

namespace {

// How a way fits what a call asks for: by_algo and by_proto say what options exclude where the call leaves it to them.
struct Fit {
  bool algo, proto;
  int misses() const { return (algo ? 0 : 1) + (proto ? 0 : 1); }
};
Fit fit_of(const CallConfig &call, tutti_coll coll, const Choice &c, const WayList::Way &way) {
  return {call.algos.speaks_of(coll) ? call.algos.allows(coll, c.algo.table->name) : !way.by_algo,
          call.protos.speaks_of(coll) ? call.protos.allows(coll, c.proto.table->name) : !way.by_proto};
}

} // namespace

// What is against each way that the call means.
std::string Selector::against(const WayList &list, std::span<const Choice> choices, uint32_t row, uint64_t bytes,
                              const CallConfig &call) const {
  const tutti_coll coll = coll_of_row(row);
  const auto means = [&](std::string_view algo, std::string_view proto) {
    return (!call.algos.speaks_of(coll) || call.algos.allows(coll, algo)) &&
           (!call.protos.speaks_of(coll) || call.protos.allows(coll, proto));
  };
  std::vector<WayList::Ruled> ruled;
  for (const auto &r : list.ruled_out)
    if (means(r.algo, r.proto)) ruled.push_back(r);
  for (const auto &w : list.ways) {
    const Choice &c = choices[w.choice];
    if (!means(c.algo.table->name, c.proto.table->name)) continue;
    const NameFilter &option = fit_of(call, coll, c, w).algo ? protos(row, bytes) : algos(row, bytes);
    ruled.push_back({c.algo.table->name, c.proto.table->name, "excluded by " + option.describe(coll)});
  }
  std::stable_sort(ruled.begin(), ruled.end(), [](const auto &a, const auto &b) { return a.algo < b.algo; });
  return ruled.empty() ? "it allows none" : reasons_text(ruled);
}

Result<Asked> Selector::as_asked(const SelectionTable &table, uint32_t row, uint32_t bucket, const CallConfig &call) const {
  const tutti_coll coll = coll_of_row(row);
  const uint64_t bytes = bytes_of(row, bucket);
  const WayList &list = table.ways(row, bucket);
  const std::string what = call.asked(coll);
  Asked out{table.at(row, bucket), ""};
  if (!what.empty()) {
    const WayList::Way *best = nullptr;
    int fewest = 3;
    for (const auto &w : list.ways)
      if (const int misses = fit_of(call, coll, table.choices[w.choice], w).misses(); misses < fewest)
        best = &w, fewest = misses;
    if (fewest > 0) {
      const std::string size = row == kRowV ? "" : fmt::format(" of up to {} bytes", bytes);
      const std::string why =
          fmt::format("{}: no way to run {}{}: {}", what, row_name(row), size, against(list, table.choices, row, bytes, call));
      if (!best || !call.preferred.value_or(prefers(row, bytes))) return fail(Code::invalid_usage, "{}", why);
      out.instead = why;
    }
    out.choice = table.choices[best->choice];
  }
  if (!out.choice.algo) return fail(Code::invalid_usage, "{}", out.choice.refusal);
  if (!call.shapes_links()) return out;
  Limits l = limits(row, bytes);
  ChannelLimits &c = l.channels;
  if (call.min_channels) c.min = call.min_channels, c.max = std::max(c.max, c.min);
  if (call.max_channels) c.max = call.max_channels, c.min = std::min(c.min, c.max);
  if (call.slot_bytes) l.slot_bytes = call.slot_bytes;
  if (call.depth) l.depth = call.depth;
  if (call.buffer) l.buffer = call.buffer;
  clamp(out.choice, support(out.choice.algo, row).links, l);
  fit_groups(out.choice, row, bytes, l);
  return out;
}

} // namespace tutti
