// tutti/core/comm/plan_check.h: proves what an algorithm plans for all ranks, before the first operation that uses it.
#pragma once
#include "plan/check.h"
#include <functional>

namespace tutti {

constexpr int kMostChecked = 64; // ranks: a check takes at most some 25 ms then, and under 0.1 ms for 8

// Checks the plans of all ranks, made by `request_of` each, once per request of this process. An error names the algorithm
// and the first finding.
Result<PlanStats> check_plans_once(const Iface<tutti_algo_v1> &algo, int nranks, bool in_place,
                                   const std::function<PlanRequest(int rank)> &request_of);

} // namespace tutti
