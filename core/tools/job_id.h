// tutti/core/tools/job_id.h: a root for a local job, and the file from which its ranks learn where it is.
#pragma once
#include "base/fd.h"
#include "base/status.h"

namespace tutti::tools {

// Starts the root in this process, for as long as it lives. The file is inherited by children; they get it as
// TUTTI_COMM_ID=file:/proc/self/fd/N.
Result<UniqueFd> job_id_file();
// Option launch.kill_after, in seconds. An error when the configuration cannot be read.
Result<double> configured_kill_after();

} // namespace tutti::tools
