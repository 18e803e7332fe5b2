#include "tools/job.h"
#include "tools/cli.h"
#include "tools/job_id.h"
#include "tools/launch.h"
#include <algorithm>
#include <fcntl.h>
#include <unistd.h>

namespace tutti::tools {

void require(tuttiResult_t result, tuttiComm_t comm, std::string_view doing) {
  if (result == tuttiSuccess) return;
  const char *line = tuttiGetLastError(comm);
  if (!line || !*line) line = tuttiGetLastError(nullptr); // a stream's wait reports to the thread
  if (!line || !*line) line = tuttiGetErrorString(result);
  throw Failure{fmt::format("{} (while {})", line, doing)};
}

Result<std::optional<Launcher>> outer_launcher() {
  TUTTI_ASSIGN(config, Config::process());
  TUTTI_ASSIGN(found, recognise_launcher(*config));
  if (found && found->name == "srun" && found->nranks == 1) found.reset();
  return found;
}

Processes join_processes() {
  Processes p;
  const auto launcher = outer_launcher();
  if (!launcher.ok()) throw Failure{launcher.status().error().line()};
  if (!*launcher) return p;
  require(tuttiCommInitFromEnv(&p.comm, nullptr), p.comm, "joining the job");
  require(tuttiCommCount(p.comm, &p.count), p.comm, "asking for the size");
  require(tuttiCommUserRank(p.comm, &p.rank), p.comm, "asking for the rank");
  return p;
}

int launch_ranks(const std::string &command, int ranks, const std::vector<std::string> &words) {
  const auto launcher = outer_launcher();
  if (!launcher.ok()) {
    print_error(launcher.status().error().line());
    return kFailed;
  }
  if (*launcher) {
    print_error(fmt::format("--ranks {} inside a job of {} ({}): the launcher's processes are the ranks; leave --ranks out{}",
                            ranks, (*launcher)->name, (*launcher)->variables,
                            command == "perf" ? ", or use -t for threads per process" : ""));
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

} // namespace tutti::tools
