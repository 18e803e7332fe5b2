// tutti/core/plan/life.h: the liveness pass: fills PlanLane::life (StepLife bits) of a well-formed plan.
#pragma once
#include "plan/plan.h"

namespace tutti {

// An error only when deps form a cycle.
Status find_life(Plan &plan);

} // namespace tutti
