#include "table.h"
#include <algorithm>
#include <cmath>

namespace tuner {
namespace {

// Places of ways that a rule does not list start here. No rule lists as many.
constexpr double kUnlisted = 1000;

const Way *way_for(const Rule &rule, const tutti_candidate &c) {
  const auto hit = std::find_if(rule.ways.begin(), rule.ways.end(), [&](const Way &w) { return w.is(c); });
  return hit == rule.ways.end() ? nullptr : &*hit;
}

bool offered(const Rule &rule, const Candidates &candidates) {
  for (uint32_t i = 0; i < candidates.size(); i++)
    if (way_for(rule, candidates[i])) return true;
  return false;
}

void apply(const Geometry &g, tutti_candidate &c) {
  if (g.channels) c.channels = std::clamp(*g.channels, c.min_channels, c.max_channels);
  c.slot_bytes = g.slot_bytes.value_or(c.slot_bytes);
  c.depth = g.depth.value_or(c.depth);
  const auto set = [&](std::optional<bool> wanted, uint32_t flag) {
    if (wanted) c.flags = *wanted ? c.flags | flag : c.flags & ~flag;
  };
  set(g.nontemporal, TUTTI_CAND_NONTEMPORAL);
  set(g.shared_only, TUTTI_CAND_SHARED_ONLY);
}

void place(tutti_candidate &c, double cost) {
  c.cost_us = cost;
  c.flags = (c.flags | TUTTI_CAND_ORDER_ONLY) & ~uint32_t{TUTTI_CAND_MEASURED};
}

// In the core's order: what it has no estimate for comes last, equals stay as they are.
std::vector<uint32_t> unlisted_in_order(const Rule &rule, const Candidates &candidates) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < candidates.size(); i++)
    if (!way_for(rule, candidates[i])) out.push_back(i);
  const auto cost = [&](uint32_t i) { return candidates[i].cost_us > 0 ? candidates[i].cost_us : INFINITY; };
  std::stable_sort(out.begin(), out.end(), [&](uint32_t a, uint32_t b) { return cost(a) < cost(b); });
  return out;
}

} // namespace

void Geometry::fill_from(const Geometry &other) {
  if (!channels) channels = other.channels;
  if (!slot_bytes) slot_bytes = other.slot_bytes;
  if (!depth) depth = other.depth;
  if (!nontemporal) nontemporal = other.nontemporal;
  if (!shared_only) shared_only = other.shared_only;
}

bool Rule::fits(const tutti_tune_query &q) const {
  return q.coll < 32 && (colls >> q.coll & 1u) && min_bytes <= q.bytes && q.bytes <= max_bytes && ranks.holds(q.nranks) &&
         hosts.holds(q.nnodes) && ppn.holds(q.max_ppn) && cores.holds(q.min_cores) && q.transport < 32 &&
         (links >> q.transport & 1u);
}

std::optional<Time> time_of(const Rule &rule, const Way &way, uint64_t bytes) {
  if (way.time_us.empty() || bytes < rule.sizes.front() || bytes > rule.sizes.back()) return std::nullopt;
  const auto hi = static_cast<size_t>(std::lower_bound(rule.sizes.begin(), rule.sizes.end(), bytes) - rule.sizes.begin());
  if (rule.sizes[hi] == bytes) return Time{way.time_us[hi], true};
  // Between two sizes times grow about linearly on logarithmic scales.
  const double from = std::log(static_cast<double>(std::max<uint64_t>(1, rule.sizes[hi - 1])));
  const double part = (std::log(static_cast<double>(bytes)) - from) / (std::log(static_cast<double>(rule.sizes[hi])) - from);
  return Time{way.time_us[hi - 1] * std::pow(way.time_us[hi] / way.time_us[hi - 1], part), false};
}

void rate(const Table &table, const tutti_tune_query &query, const Candidates &candidates) {
  const auto rule = std::find_if(table.rules.begin(), table.rules.end(),
                                 [&](const Rule &r) { return r.fits(query) && offered(r, candidates); });
  if (rule == table.rules.end()) return;
  const std::vector<uint32_t> unlisted = unlisted_in_order(*rule, candidates);
  double behind = 0; // all times of this class
  for (const Way &w : rule->ways)
    if (const auto t = time_of(*rule, w, query.bytes)) behind = std::max(behind, t->us);
  for (uint32_t i = 0; i < candidates.size(); i++) {
    tutti_candidate &c = candidates[i];
    const Way *way = way_for(*rule, c);
    if (!way) continue;
    apply(way->geometry, c);
    c.note = rule->note.c_str();
    place(c, behind + 1 + static_cast<double>(way - rule->ways.data()));
    if (const auto t = time_of(*rule, *way, query.bytes)) {
      c.cost_us = t->us;
      c.flags &= ~uint32_t{TUTTI_CAND_ORDER_ONLY};
      if (t->measured) c.flags |= TUTTI_CAND_MEASURED;
    }
  }
  for (size_t k = 0; k < unlisted.size(); k++) place(candidates[unlisted[k]], behind + kUnlisted + static_cast<double>(k));
}

} // namespace tuner
