// tutti/core/plan/check.h: proves a plan right for all ranks, and draws it.
#pragma once
#include "plan/plan.h"

namespace tutti {

struct PlanFinding {
  std::string rule; // "shape", "link", "deadlock", "result", "order"
  std::string text; // "rank 3 chunk 1: contribution of rank 0 is in the result 2 times"
};
struct CheckOptions {
  uint32_t depth = 0;    // 0 = the plan's min_depth
  bool in_place = false; // IN and OUT the same memory, as the collective's in-place form defines
  uint32_t slices = 2;   // enough to see window and FIFO effects
  uint32_t window = 0;   // 0 = the plan's
};
// How contributions are combined: whether all elements see them in one and the same order. Right plans combine alike on all
// ranks that get the result, so every rank has the same bits in either case.
enum class CombineOrder {
  none,     // nothing is combined
  one,      // each element in the same order: the bits do not depend on where chunks, shares and slices end
  by_chunk, // chunks differ: the bits depend on the count and on the number of channels
};
// What the check learnt on the way about a right plan.
struct PlanStats {
  uint32_t rounds = 0;       // messages that must follow one another for one slice
  double bytes_per_byte = 0; // bytes that the busiest rank sends for each byte of its larger buffer
  uint64_t moves = 0;        // step iterations of all ranks, one slice
  CombineOrder order = CombineOrder::none;
  uint64_t order_id = 0; // of CombineOrder::one: equal for plans that combine in the same order, so with the same bits
};
// plans[r] is rank r's. Empty result = right. Stops after 20 findings. in_place is ignored for collectives without such a form.
std::vector<PlanFinding> check_plans(std::span<const std::shared_ptr<const Plan>> plans, const CheckOptions &options = {},
                                     PlanStats *stats = nullptr);

std::string dump_text(const Plan &plan);
std::string dump_json(std::span<const std::shared_ptr<const Plan>> plans);
std::string dump_dot(std::span<const std::shared_ptr<const Plan>> plans); // one slice, all ranks: messages as edges

// tutti.host.plan/1, for provide_host_service(): composes from algorithms of the process's registry.
const tutti_host_plan_v1 *host_plan_service();

} // namespace tutti
