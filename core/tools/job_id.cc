#include "tools/job_id.h"
#include "bootstrap/launch.h"

namespace tutti::tools {

Result<UniqueFd> job_id_file() {
  TUTTI_ASSIGN(config, Config::process());
  TUTTI_ASSIGN(id, create_job_id(*config));
  return create_id_fd(id);
}

Result<double> configured_kill_after() {
  TUTTI_ASSIGN(config, Config::process());
  return static_cast<double>(config->number("launch.kill_after")) / 1e9;
}

} // namespace tutti::tools
