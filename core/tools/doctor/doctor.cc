// `tutti doctor`: the command line. What it says about this host, between hosts, or of a log.
#include "tools/doctor/doctor.h"
#include "bootstrap/launch.h"
#include "tools/cli.h"
#include "tools/doctor/host.h"
#include "tools/doctor/log_explain.h"
#include "tools/help.h"
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace tutti::tools {
namespace {

using namespace doctor;

struct Args {
  int ranks = 0, hosts = 1;
  bool all = false, json = false;
  double timeout_s = 120;
  std::string log;
};

Deadline in_seconds(double s) {
  return Deadline::in(Nanos(static_cast<int64_t>(s * 1e9)));
}

int exit_code(const Findings &findings) {
  return findings.count(Level::error) > 0 ? kVerdict : kOk;
}

std::string summary(const Findings &f) {
  const int errors = f.count(Level::error), warnings = f.count(Level::warning), notes = f.count(Level::note);
  if (errors + warnings + notes == 0)
    return fmt::format("nothing wrong found ({} checks; --all lists them)", f.count(Level::ok));
  return fmt::format("{} error{}, {} warning{}, {} note{}, {} ok", errors, errors == 1 ? "" : "s", warnings,
                     warnings == 1 ? "" : "s", notes, notes == 1 ? "" : "s", f.count(Level::ok));
}

int this_host(const Args &args) {
  const auto config = Config::process();
  if (!config.ok()) {
    print_error(config.status().error().line());
    return kFailed;
  }
  const Host host = gather_host(*config, in_seconds(std::min(args.timeout_s, 20.0)));
  Job job;
  job.hosts = args.hosts;
  job.here = args.ranks > 0 ? args.ranks : std::max(1, host.usable_cpus);
  job.ranks = job.here * job.hosts;
  const Findings findings = check_host(host, job);
  if (args.json) {
    const nlohmann::json out = {{"host", host.names.own},
                                {"ranks", job.ranks},
                                {"hosts", job.hosts},
                                {"findings", findings_json(findings)},
                                {"errors", findings.count(Level::error)},
                                {"warnings", findings.count(Level::warning)}};
    fmt::print("{}\n", out.dump(2));
    return exit_code(findings);
  }
  fmt::print("{}, for {} rank{} here{}\n\n", host.names.own, job.here, job.here == 1 ? "" : "s",
             job.hosts > 1 ? fmt::format(" and on {} hosts like it", job.hosts - 1) : "");
  const std::string text = findings_text(findings, args.all);
  fmt::print("{}{}{}\n", text, text.empty() ? "" : "\n", summary(findings));
  return exit_code(findings);
}

int one_log(const Args &args) {
  std::ifstream file;
  if (args.log != "-") {
    file.open(args.log);
    if (!file || file.peek() == std::ifstream::traits_type::eof()) {
      print_error(fmt::format("--log {}: {}", args.log, file ? "it is empty" : "it cannot be read"));
      return kFailed;
    }
  }
  const Explanation e = explain_log(args.log == "-" ? std::cin : file);
  if (args.json)
    fmt::print("{}\n", explanation_json(e).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", explanation_text(e, args.log == "-" ? "standard input" : args.log));
  const bool wrong = !e.symptoms.empty() && e.symptoms.front().rule->depth != Depth::harmless;
  return wrong ? kVerdict : kOk;
}

} // namespace

int doctor_main(int argc, char **argv) {
  CLI::App app{
      "Looks for what is wrong: with this host, between hosts, or behind a log. Each finding says what was seen, why it\n"
      "matters here, and what mends it. Exit code: 0 nothing is wrong, 1 there are errors, 2 it could not look, 64 bad "
      "arguments",
      "tutti doctor"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.formatter(std::make_shared<HelpText>());
  Args args;
  app.add_option("--ranks", args.ranks, "Ranks that will run on this host (0 = one for each core)")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_flag("--all", args.all, "Show what is well, too");
  app.add_flag("--json", args.json, "For programs");
  app.add_option("--timeout", args.timeout_s, "Seconds that all of it may take")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_option("--log", args.log,
                 "Explain this log instead (- = standard input): of tutti, of NCCL, of a framework around them");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  if (!args.log.empty()) return one_log(args);
  return this_host(args);
}

} // namespace tutti::tools
