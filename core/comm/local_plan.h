// tutti/core/comm/local_plan.h: plans that no algorithm makes: those of a lone rank, and groups of sends and receives.
#pragma once
#include "exec/engine.h"
#include "plan/plan.h"

namespace tutti {

// IN to OUT of one rank, with pre- and post-operation.
Result<std::shared_ptr<const Plan>> local_plan(tutti_coll coll);
Result<Selection> local_selection();

// What a group has for one peer; sends and receives of a pair pair up in order.
struct PairCount {
  int peer = 0;
  uint32_t sends = 0, recvs = 0;
};
// Block i of IN is the i-th send in the order of `pairs`, block j of OUT the j-th receive. Peers without both are left out of
// the link lists. The rank's own entry (equal counts) is copied.
Result<std::shared_ptr<const Plan>> p2p_plan(int rank, int nranks, std::span<const PairCount> pairs);

} // namespace tutti
