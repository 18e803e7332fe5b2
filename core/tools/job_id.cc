#include "tools/job_id.h"
#include "bootstrap/launch.h"

namespace tutti::tools {

Result<UniqueFd> job_id_file() {
  TUTTI_ASSIGN(config, Config::process());
  TUTTI_ASSIGN(id, create_job_id(*config));
  return create_id_fd(id);
}

} // namespace tutti::tools
