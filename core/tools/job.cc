#include "tools/job.h"
#include "tools/cli.h"
#include "tools/job_id.h"
#include "tools/launch.h"
#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

namespace tutti::tools {

void require(tuttiResult_t result, tuttiComm_t comm, std::string_view doing) {
  if (result == tuttiSuccess) return;
  const char *line = tuttiGetLastError(comm);
  if (!line || !*line) line = tuttiGetLastError(nullptr); // a stream's wait reports to the thread
  if (!line || !*line) line = tuttiGetErrorString(result);
  throw Failure{fmt::format("{} (while {})", line, doing)};
}

Processes join_processes(std::string_view tool) {
  Processes p;
  const LauncherTrace trace = launcher_trace();
  if (trace.name.empty() && !std::getenv("TUTTI_COMM_ID")) return p;
  const tuttiResult_t r = tuttiCommInitFromEnv(&p.comm, nullptr);
  if (r != tuttiSuccess && trace.foreign && trace.size != 1)
    fmt::print(stderr,
               "note: {} started this process ({} is set); without a common communicator every process would measure "
               "itself alone\n",
               trace.name, trace.variable);
  require(r, p.comm, "joining the job");
  require(tuttiCommCount(p.comm, &p.count), p.comm, "asking for the size");
  require(tuttiCommUserRank(p.comm, &p.rank), p.comm, "asking for the rank");
  if (p.count == 1 && trace.size > 1)
    throw Failure{
        fmt::format("{} started {} processes, but each found itself alone: these would be {} jobs of one rank, with a "
                    "bus bandwidth of 0; start {} with --ranks {} or under tutti run or mpirun instead",
                    trace.name, trace.size, trace.size, tool, trace.size)};
  return p;
}

int launch_ranks(const std::string &command, int ranks, const std::vector<std::string> &words) {
  if (const LauncherTrace trace = launcher_trace(); !trace.name.empty()) {
    print_error(fmt::format("--ranks {} inside {} ({} is set): the launcher's processes are the ranks; leave --ranks out{}",
                            ranks, trace.name, trace.variable, command == "perf" ? ", or use -t for threads per process" : ""));
    return kUsage;
  }
  const auto kill_after = configured_kill_after();
  if (!kill_after.ok()) {
    print_error(kill_after.status().error().line());
    return kFailed;
  }
  LaunchSpec spec;
  spec.kill_after_s = *kill_after;
  spec.tool = "tutti " + command;
  spec.ranks = ranks;
  const UniqueFd terminal(isatty(STDERR_FILENO) ? fcntl(STDERR_FILENO, F_DUPFD, 10) : -1); // inherited; stderr is a pipe there
  spec.argv = rank_words(command, words, terminal.get());
  spec.merge_errors = true;
  spec.quiet_code = kVerdict;
  spec.make_id = job_id_file;
  return launch(spec);
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "CPU";
}

} // namespace tutti::tools
