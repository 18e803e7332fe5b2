// A reference executor of plans: one word stands for one slice of one chunk, every step is two events (operands are taken, the
// result is put), and who does what next is drawn from a seed: lanes, arrival of messages, and whether a send hands over a copy
// or its sender's memory. It follows plugin/plan.h and shares nothing with the checker, the engine, or core/plan/interpret but
// the plan itself and the chunk arithmetic.
#pragma once
#include "plans.h"

namespace plans {

// The byte counts of one run. Even: all chunks have the same number of full slices. Ragged: last pieces are shorter or empty.
enum class Layout { even, ragged };

class Executor {
public:
  Executor(const PlanSet &plans, bool in_place, Layout layout);
  ~Executor();
  // "" when all ranks finish with the right results, else what went wrong: "hang: ..." or "wrong: ...".
  std::string run(uint64_t seed);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Seeds `first` .. `last` - 1 on both layouts in turn; the first complaint, or "".
std::string run_seeds(const PlanSet &plans, bool in_place, uint64_t first, uint64_t last);

} // namespace plans
