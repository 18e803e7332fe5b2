// tutti/core/plan/compose.h: one plan out of several algorithms' plans, run one after the other (tutti.host.plan/1).
#pragma once
#include "plan/plan.h"

namespace tutti {

struct ComposeStage {
  Iface<tutti_algo_v1> algo;
  std::vector<int32_t> members; // global ranks; the stage's rank i is members[i]; this rank need not be among them
  int root = -1;                // position in members
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
};

// Emits the plan of request.rank to `out`. Stages have the same numbers everywhere. A rank that takes no part in one names
// those who do, and passes it by: it plans as they do to know how they cut the data. A stage with one member does nothing. All
// ranks must name stages that fit together; check_plans() tells whether they do.
Status compose(const PlanRequest &request, std::span<const ComposeStage> stages, const tutti_plan_builder *out);

} // namespace tutti
