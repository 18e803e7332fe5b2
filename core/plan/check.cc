// Proves the plans of all ranks right, or says what is wrong: first what one look finds (shape, order, links), then a run on
// symbolic values.
#include "plan/check.h"
#include "plan/accesses.h"
#include "plan/check_run.h"
#include "plan/refs.h"
#include <algorithm>

namespace tutti {
namespace {

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

PlanStats stats_of(Plans plans, uint32_t rounds) {
  PlanStats stats;
  stats.rounds = rounds;
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
  const Wiring wiring = wire_links(plans, findings);
  if (!findings.empty()) return findings.take(); // a run of lanes in no order, or with loose ends, would prove nothing
  CheckRun run(plans, wiring, run_options, findings);
  run.run();
  if (stats) *stats = stats_of(plans, run.rounds());
  return findings.take();
}

} // namespace tutti
