// tutti/core/tools/launch.h: starts the ranks of a job on this host and looks after them. Used by `tutti run` and by the
// built-in launch of `tutti perf`.
#pragma once
#include "base/fd.h"
#include "base/status.h"
#include <functional>
#include <string>
#include <vector>

namespace tutti::tools {

struct LaunchSpec {
  std::string tool = "tutti run"; // starts the launcher's own messages
  int ranks = 1;
  std::vector<std::string> argv; // program and arguments, looked up in PATH
  bool tag_output = false;       // each line of output starts with "[rank] "
  bool merge_errors = false;     // "error: " lines that differ only in the rank are passed on once
  bool keep_going = false;       // a rank that a signal kills ends none of the others; one of them has to end with 0
  double timeout_s = 0;          // of the whole job; 0 = none
  double grace_s = 1;            // after a failure: time for the other ranks to report and end by themselves
  double kill_after_s = 3;       // between SIGTERM and SIGKILL
  int quiet_code = 0;            // this exit code of rank 0 is a verdict, not worth a line; 0 = none
  // The file that the ranks get as TUTTI_COMM_ID; called once signals are blocked, so that threads it starts leave signals to
  // the launcher.
  std::function<Result<UniqueFd>()> make_id;
};

constexpr int kTimeoutCode = 124, kCannotStart = 127; // exit codes besides those of cli.h

// Runs the job to its end and returns the exit code for the tool: 0, the code of the rank that failed first (128 + signal when
// one was killed), 124 after timeout_s, 127 when the program cannot be started. On return no process of the job is left.
int launch(const LaunchSpec &spec);

} // namespace tutti::tools
