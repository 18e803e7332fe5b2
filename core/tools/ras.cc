// `tutti ras`: what a job does or did. diff: from the flight-recorder files of its ranks.
#include "base/file.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/ras_diff.h"

namespace tutti::tools {
namespace {

struct DiffOptions {
  std::vector<std::string> files;
  bool json = false;
};

Result<rasdiff::Job> read_all(const std::vector<std::string> &paths) {
  std::vector<std::pair<std::string, rasdiff::FlightFile>> files;
  for (const std::string &path : paths) {
    TUTTI_ASSIGN(text, read_file(path, ras::kMostFlightBytes));
    TUTTI_ASSIGN(file, ras::parse_flight(text, path));
    files.emplace_back(path, std::move(file));
  }
  return rasdiff::merge(std::move(files));
}

int diff(const DiffOptions &o) {
  auto job = read_all(o.files);
  if (!job.ok()) {
    print_error("ras diff: " + job.status().error().message);
    return kFailed;
  }
  rasdiff::judge(*job);
  fmt::print("{}", o.json ? rasdiff::to_json(*job) : rasdiff::as_text(*job));
  return job->verdict.kind == rasdiff::Kind::nothing ? kOk : kVerdict;
}

} // namespace

int ras_main(int argc, char **argv) {
  DiffOptions o;
  CLI::App app("Shows what the ranks of a job do or did", "tutti ras");
  app.formatter(std::make_shared<HelpText>());
  app.require_subcommand(1);
  CLI::App *const diff_command = app.add_subcommand(
      "diff", "Puts the flight-recorder files of ranks together (TUTTI_RECORD_FILE, tuttiCommDump): who is behind, who called\n"
              "something else, who never came, and one verdict that names the culprit; code 1 when there is one");
  diff_command->formatter(std::make_shared<HelpText>());
  diff_command->add_option("FILES", o.files, "of ranks of one or more communicators of a job")->required();
  diff_command->add_flag("--json", o.json, "print JSON instead of text");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }
  return diff(o);
}

} // namespace tutti::tools
