// Proves the plans of all ranks right, or says what is wrong: first what one look finds (shape, order, links), then a run on
// symbolic values.
#include "plan/check.h"
#include "plan/accesses.h"
#include "plan/check_run.h"
#include "plan/groups.h"
#include "plan/refs.h"
#include <algorithm>
#include <cstdlib>

namespace tutti {
namespace {

constexpr size_t kExactRanks = 64; // jobs small enough for findings that name every contribution

void check_order(Plans plans, bool in_place, Findings &findings) {
  for (const auto &plan : plans) {
    if (plan->lanes.size() < 2 || findings.full()) continue;
    const auto accesses = Accesses::of(*plan, in_place);
    if (!accesses.ok()) {
      findings.add("shape", "rank {}: {}", plan->request.rank, accesses.status().error().message);
      continue;
    }
    for (const std::string &text : unordered_accesses(*accesses, *plan, 4))
      findings.add("order", "rank {} {}", plan->request.rank, text);
  }
}

// Rows of chunks: two that begin less than their length apart overlap, and those that begin at the same place are one.
bool overlaps_itself(const Plan &p, const tutti_step &s, bool in_place) {
  const bool one_memory = in_place && s.src.buf == TUTTI_BUF_IN && s.dst.buf == TUTTI_BUF_OUT;
  if (s.src.buf != s.dst.buf && !one_memory) return false;
  for (uint32_t i = 0; i < s.repeat; i++) {
    int64_t from = ref_first(s.src, i), to = ref_first(s.dst, i);
    if (one_memory) { // as chunks of one buffer; the first chunk of a row need not lie in the other buffer when later ones do
      if (const auto out = out_of_in(p, static_cast<uint32_t>(from)))
        from = *out;
      else if (const auto in = in_of_out(p, static_cast<uint32_t>(to)))
        to = *in;
      else
        continue;
    }
    if (from != to && std::abs(from - to) < s.src.count) return true;
  }
  return false;
}

// A step that moves several chunks may do so in any order, so its src must not reach into its dst.
void check_overlaps(Plans plans, bool in_place, Findings &findings) {
  const auto several = [](const tutti_step &s) {
    return has(s, TUTTI_STEP_SRC) && has(s, TUTTI_STEP_STORE) && s.src.count > 1;
  };
  for (const auto &plan : plans)
    for (uint32_t l = 0; l < plan->lanes.size(); l++)
      for (uint32_t i = 0; i < plan->lanes[l].steps.size(); i++) {
        if (findings.full()) return;
        const tutti_step &s = plan->lanes[l].steps[i];
        if (several(s) && overlaps_itself(*plan, s, in_place))
          findings.add("order", "rank {} lane {} step {}: src and dst are the same memory in part, at other places",
                       plan->request.rank, l, i);
      }
}

PlanStats stats_of(Plans plans, const CheckRun &run) {
  PlanStats stats;
  stats.rounds = run.rounds();
  stats.order = run.order();
  stats.order_id = run.order_id();
  for (const auto &plan : plans) {
    uint64_t sent = 0;
    for (const PlanLane &lane : plan->lanes)
      for (const tutti_step &s : lane.steps) {
        sent += uint64_t{s.repeat} * s.send_count * sizing_ref(s).count;
        stats.moves += s.repeat;
      }
    const uint64_t whole = uint64_t{plan->groups} * std::max(plan->in_chunks, plan->out_chunks);
    stats.bytes_per_byte = std::max(stats.bytes_per_byte, static_cast<double>(sent) / static_cast<double>(whole));
  }
  return stats;
}

} // namespace

std::vector<PlanFinding> check_plans(Plans plans, const CheckOptions &options, PlanStats *stats) {
  Findings findings;
  if (plans.empty()) findings.add("shape", "no plans");
  check_shapes(plans, findings);
  if (!findings.empty()) return findings.take();
  CheckOptions run_options = options;
  run_options.in_place = options.in_place && has_in_place_form(plans[0]->request.coll);
  check_order(plans, run_options.in_place, findings);
  check_overlaps(plans, run_options.in_place, findings);
  const WithGroups all(plans, findings);
  const Wiring wiring = wire_links(all.plans(), findings);
  if (!findings.empty()) return findings.take(); // a run of lanes in no order, or with loose ends, would prove nothing
  CheckRun run(all.plans(), wiring, run_options, false, findings);
  run.run();
  if (findings.empty()) {
    if (stats) *stats = stats_of(plans, run);
  } else if (plans.size() <= kExactRanks) {
    findings = {};
    CheckRun(all.plans(), wiring, run_options, true, findings).run();
  }
  return findings.take();
}

} // namespace tutti
