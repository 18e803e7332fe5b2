// tutti/core/tools/job.h: for tools whose ranks talk through the C API: the built-in launch, and joining the job.
#pragma once
#include "base/status.h"
#include "bootstrap/launch.h"
#include "tutti/tutti.h"
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::tools {

// Ends this rank's work; the text is for people.
struct Failure {
  std::string text;
  bool everywhere = false; // all ranks fail alike: one of them says so
};
// Throws Failure with the communicator's error line.
void require(tuttiResult_t result, tuttiComm_t comm, std::string_view doing);

// The launcher that made this process one rank of a job. None: also a shell that is a Slurm step of one task.
Result<std::optional<Launcher>> outer_launcher();

// The processes of the job, through one communicator over all of them; none when this process is alone.
struct Processes {
  tuttiComm_t comm = nullptr;
  int rank = 0, count = 1;
};
Processes join_processes(); // throws Failure

// Starts this executable as `ranks` processes on this host, and returns their exit code. command: "perf"; words: the user's,
// --ranks among them. The ranks find a terminal for progress, where there is one, as --progress-fd.
int launch_ranks(const std::string &command, int ranks, const std::vector<std::string> &words);
} // namespace tutti::tools
