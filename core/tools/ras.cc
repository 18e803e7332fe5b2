// `tutti ras`: what jobs do, asked of their processes; diff: what one did, from the flight-recorder files of its ranks.
#include "base/file.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/ras_diff.h"
#include "tools/ras_status.h"

namespace tutti::tools {
namespace {

Result<rasdiff::Job> read_all(const std::vector<std::string> &paths) {
  std::vector<std::pair<std::string, rasdiff::FlightFile>> files;
  for (const std::string &path : paths) {
    TUTTI_ASSIGN(text, read_file(path, ras::kMostFlightBytes));
    TUTTI_ASSIGN(file, ras::parse_flight(text, path));
    files.emplace_back(path, std::move(file));
  }
  return rasdiff::merge(std::move(files));
}

void add_options(CLI::App &app, ras_live::StatusOptions *o, double *timeout, double *stall) {
  app.add_option("--job", o->view.job, "Only this job: the beginning of its id");
  app.add_option("--pid", o->view.pid, "Only the job of this process")->check(CLI::PositiveNumber);
  app.add_option("--comm", o->view.comm, "Only this communicator: its name, or the beginning of its id");
  app.add_option("--rank", o->text.rank, "This rank in detail")->check(CLI::NonNegativeNumber);
  app.add_flag("--links", o->text.links, "Each link with its way, state and bytes");
  app.add_flag("--json", o->json, "Print JSON instead of text; with --watch one line a look");
  app.add_option("--watch", o->watch, "Again and again, every so many seconds (1)")->expected(0, 1)->default_str("1");
  app.add_option("--interval", o->interval, "Seconds between the two looks that rates come from; 0 = one look without rates")
      ->check(CLI::Range(0.0, 60.0))
      ->capture_default_str();
  app.add_option("--stall", *stall, "Seconds of waiting without progress that count as stalled")
      ->check(CLI::Range(0.1, 1e6))
      ->capture_default_str();
  app.add_option("--timeout", *timeout, "Seconds after which who has not answered is reported so")
      ->check(CLI::Range(0.1, 60.0))
      ->capture_default_str();
  app.add_option("--host", o->look.host, "HOST:PORT of a process of a job elsewhere, as --where tells it there");
  app.add_option("--key-file", o->look.key_file, "For --host: the job's key file, mode 0600; default: TUTTI_JOB_KEY_FILE");
  app.add_flag("--where", o->where, "Where the processes can be asked from afar");
  app.add_flag("--dump", o->dump, "Have all ranks write their flight recorders (TUTTI_RECORD_FILE)");
  app.add_option("-o,--output", o->output, "With --dump: bring them here instead, into this folder");
}

} // namespace

int diff_flights(const std::vector<std::string> &paths, bool json) {
  auto job = read_all(paths);
  if (!job.ok()) {
    print_error("ras diff: " + job.status().error().message);
    return kFailed;
  }
  rasdiff::judge(*job);
  fmt::print("{}", json ? rasdiff::to_json(*job) : rasdiff::as_text(*job));
  return job->verdict.kind == rasdiff::Kind::nothing ? kOk : kVerdict;
}

int ras_main(int argc, char **argv) {
  std::vector<std::string> files;
  bool json = false;
  ras_live::StatusOptions live;
  double timeout = 2, stall = 3;
  CLI::App app("Shows what running jobs do: of this user on this host and, from there, on all hosts of the job.\n"
               "Code 0: all is well, 1: a communicator is stalled or has failed, 2: nothing could be found out",
               "tutti ras");
  app.formatter(std::make_shared<HelpText>());
  app.require_subcommand(0, 1);
  add_options(app, &live, &timeout, &stall);
  CLI::App *const diff_command = app.add_subcommand(
      "diff", "Puts the flight-recorder files of ranks together (TUTTI_RECORD_FILE, tuttiCommDump): who is behind, who called\n"
              "something else, who never came, and one verdict that names the culprit; code 1 when there is one");
  diff_command->formatter(std::make_shared<HelpText>());
  diff_command->add_option("FILES", files, "of ranks of one or more communicators of a job")->required();
  diff_command->add_flag("--json", json, "print JSON instead of text");
  try {
    app.parse(argc, argv);
    if (app.count("--watch") && live.watch <= 0) live.watch = 1;
    if (!live.output.empty() && !live.dump) throw CLI::ValidationError("--output", "is for --dump");
    if (live.watch > 0 && (live.dump || live.where))
      throw CLI::ValidationError("--watch", "goes with neither --dump nor --where");
    if (live.json && (live.dump || live.where)) throw CLI::ValidationError("--json", "goes with neither --dump nor --where");
    if (!live.look.key_file.empty() && live.look.host.empty()) throw CLI::ValidationError("--key-file", "is for --host");
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }
  if (diff_command->parsed()) return diff_flights(files, json);
  if (live.dump && !app.count("--timeout")) timeout = 20;
  live.look.timeout = std::chrono::duration_cast<Nanos>(std::chrono::duration<double>(timeout));
  live.view.stall_ns = static_cast<int64_t>(stall * 1e9);
  return ras_live::status(std::move(live));
}

} // namespace tutti::tools
