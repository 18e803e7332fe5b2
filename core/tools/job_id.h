// tutti/core/tools/job_id.h: a root for a local job, and what its ranks read to find it.
#pragma once
#include "base/status.h"
#include <string>

namespace tutti::tools {

// Starts the root in this process. The text is the content of a file that TUTTI_COMM_ID=file:PATH names.
Result<std::string> job_id_text();

} // namespace tutti::tools
