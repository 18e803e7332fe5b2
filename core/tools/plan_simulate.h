// tutti/core/tools/plan_simulate.h: what `tutti plan simulate` prints.
#pragma once
#include "plan/simulate.h"

namespace CLI {
class App;
}

namespace tutti::tools {

using PlanSet = std::vector<std::shared_ptr<const Plan>>;

struct SimulateArgs {
  SimulateOptions options;
  bool json = false;
};
// What show and simulate share; `group` is their heading in the help.
void simulate_options(CLI::App *app, const std::string &group, SimulateArgs *args);
Result<std::string> simulation_text(const PlanSet &plans, const SimulateArgs &args);

} // namespace tutti::tools
