// tutti/core/plan/compose.h: one plan out of several algorithms' plans, run one after the other (tutti.host.plan/1).
#pragma once
#include "plan/plan.h"

namespace tutti {

struct ComposeStage {
  Iface<tutti_algo_v1> algo;
  std::vector<int32_t> members; // global ranks; the stage's rank i is members[i]
  int root = -1;                // position in members
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
};

// Emits the plan of request.rank to `out`. A stage with one member does nothing: a rank that takes no part in
// stage k of the others names itself alone there, so that stages have the same numbers everywhere. All ranks must name stages
// that fit together; check_plans() tells whether they do.
Status compose(const PlanRequest &request, std::span<const ComposeStage> stages, const tutti_plan_builder *out);

} // namespace tutti
