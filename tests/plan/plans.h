// Plans of all built algorithm plugins, for all ranks, and a run on real data with its verdict.
#pragma once
#include "plan/check.h"
#include "plan/interpret.h"
#include "plan/refs.h"
#include <functional>

namespace plans {

using namespace tutti;
using PlanSet = std::vector<std::shared_ptr<const Plan>>;

Iface<tutti_algo_v1> algo(std::string_view name); // "ring", "direct"
std::vector<std::string> algorithms();            // names of all that are built, in order

struct Case {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  int n = 2, root = -1;
  uint32_t channels = 1, flags = 0;
  bool odd_order = false; // channels whose rings are no rotation of the rank order
  int hosts = 0;          // with TUTTI_REQ_COLLNET: ranks are dealt to so many hosts; each channel has other heads
  std::string name() const;
};
PlanRequest request(const Case &c, int rank);
// Empty when the algorithm does not support it; a malformed plan fails the test.
PlanSet build(std::string_view algorithm, const Case &c);
// Calls fn for every collective, its roots (all up to 5 ranks, else three of them), 1 to 3 channels, all flags that
// matter, with links of several readers for two channels, and with collnet groups.
void for_cases(std::span<const int> sizes, const std::function<void(const Case &)> &fn);

// The plan again, through a builder: what a mutated copy must survive.
Result<std::shared_ptr<const Plan>> rebuild(const Plan &plan);

struct RunOptions {
  uint64_t block = 1000; // bytes of a block; elements of reductions have 8
  bool unequal = false;  // blocks differ in size, as with NONUNIFORM, though the plans were not asked for that
  bool in_place = false;
  InterpretOptions run;
};
// "" or what went wrong: an error of the run, a wrong byte, IN changed, ranks with different bits.
std::string run_and_verify(const PlanSet &plans, const RunOptions &options);

} // namespace plans
