#include "bootstrap/bootstrap.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/job.h"
#include "tools/job_id.h"
#include "tools/launch.h"
#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace tutti::tools {

namespace {

// Under another launcher this process is one rank already: it becomes the program, which reads that launcher's environment.
int become_rank(const Launcher &launcher, const LaunchSpec &spec, const CLI::App &app) {
  if (spec.ranks != 0 && launcher.nranks != 0 && spec.ranks != launcher.nranks) {
    print_error(
        fmt::format("tutti run -n {} inside a job of {} ({}): that launcher has started {} rank{}; leave -n out, or start "
                    "tutti run outside of it",
                    spec.ranks, launcher.name, launcher.variables, launcher.nranks, launcher.nranks == 1 ? "" : "s"));
    return kUsage;
  }
  if (launcher.rank <= 0) // once
    for (const char *name : {"--timeout", "--grace", "--kill-after", "--keep-going", "--tag-output"})
      if (app.count(name))
        fmt::print(stderr, "note: {} has no effect inside a job of {}, which looks after its processes itself\n", name,
                   launcher.name);
  std::vector<char *> argv;
  for (const std::string &word : spec.argv) argv.push_back(const_cast<char *>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  print_error(fail_errno(errno, fmt::format("cannot run \"{}\"", spec.argv[0])).error().line());
  return kCannotStart;
}

} // namespace

int run_main(int argc, char **argv) {
  CLI::App app{
      "Starts a program as several ranks on this host. Under mpirun, mpiexec, srun or torchrun, which has started the ranks, "
      "it\n"
      "becomes the program instead: their environment counts.\n"
      "The ranks find each other through TUTTI_RANK, TUTTI_NRANKS, TUTTI_LOCAL_RANK, TUTTI_LOCAL_SIZE and TUTTI_COMM_ID\n"
      "(tuttiCommInitFromEnv reads them). When a rank fails, the others get --grace seconds to report and end by\n"
      "themselves, then SIGTERM, then SIGKILL. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on.\n"
      "A second SIGINT or SIGTERM kills at once. Rank 0 gets the standard input, the others /dev/null. Lines of output stay\n"
      "whole. Exit code: 0, or that of the rank that failed first (128 + signal if it was killed), 128 + signal if a signal\n"
      "ended the job, 124 after --timeout, 127 if the program cannot be started, 64 for bad arguments",
      "tutti run"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.formatter(std::make_shared<HelpText>());
  LaunchSpec spec;
  spec.ranks = 0;
  app.add_option("-n,--ranks", spec.ranks, "Number of ranks; under another launcher, which tells it, optional")
      ->check(CLI::Range(1, 4096));
  app.add_option("--timeout", spec.timeout_s, "Seconds that the whole job may take; 0 = no limit")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--grace", spec.grace_s, "Seconds between the first failure and SIGTERM to the other ranks")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  double kill_after = -1;
  app.add_option("--kill-after", kill_after, "Seconds between SIGTERM and SIGKILL; without it option launch.kill_after holds")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--keep-going", spec.keep_going,
               "When a signal kills a rank let the others go on, to recover; exit code 0 if no other code came");
  app.add_flag("--tag-output", spec.tag_output, "Start each line of output with \"[rank] \"");
  app.prefix_command(); // the first word that is no option starts the program
  app.footer("tutti run -n RANKS [OPTIONS] -- PROGRAM [ARGUMENTS]");
  char **const end = argv + argc,
               **const split = std::find_if(argv, end, [](const char *a) { return std::string_view(a) == "--"; });
  try {
    app.parse(static_cast<int>(split - argv), argv);
    spec.argv = app.remaining();
    if (split != end) spec.argv.insert(spec.argv.end(), split + (spec.argv.empty() ? 1 : 0), end);
  } catch (const CLI::ParseError &e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  if (spec.argv.empty() || spec.argv[0].starts_with("-")) {
    print_error(spec.argv.empty() ? "no program to run; usage: tutti run -n RANKS [OPTIONS] -- PROGRAM [ARGUMENTS]"
                                  : fmt::format("unknown option \"{}\"; put -- before the program", spec.argv[0]));
    return kUsage;
  }
  const auto launcher = outer_launcher();
  if (!launcher.ok()) {
    print_error(launcher.status().error().line());
    return kFailed;
  }
  if (*launcher) return become_rank(**launcher, spec, app);
  if (spec.ranks == 0) {
    print_error("-n,--ranks is required: no launcher started this process");
    return kUsage;
  }
  const auto configured = configured_kill_after();
  if (!configured.ok()) {
    print_error(configured.status().error().line());
    return kFailed;
  }
  spec.kill_after_s = kill_after >= 0 ? kill_after : *configured;
  spec.make_id = job_id_file;
  return launch(spec);
}

} // namespace tutti::tools
