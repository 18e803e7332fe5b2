#include "tools/job_id.h"
#include "bootstrap/bootstrap.h"

namespace tutti::tools {

Result<std::string> job_id_text() {
  TUTTI_ASSIGN(config, Config::process());
  TUTTI_ASSIGN(id, Bootstrap::create_id(*config));
  return std::string(id.internal, sizeof id.internal);
}

} // namespace tutti::tools
