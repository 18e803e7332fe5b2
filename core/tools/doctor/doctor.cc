// `tutti doctor`: the command line, and what needs no other process.
#include "tools/doctor/doctor.h"
#include "tools/cli.h"
#include "tools/doctor/host.h"
#include "tools/doctor/log_explain.h"
#include "tools/doctor/modes.h"
#include "tools/help.h"
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace tutti::doctor {

using tools::kFailed;
using tools::kOk;
using tools::kVerdict;
using tools::print_error;

int exit_code(const Findings &findings) {
  return findings.count(Level::error) > 0 ? kVerdict : kOk;
}

void print_findings(const Findings &f, const Args &args) {
  const std::string text = findings_text(f, args.all);
  fmt::print("{}{}", text, text.empty() ? "" : "\n");
  const int errors = f.count(Level::error), warnings = f.count(Level::warning), notes = f.count(Level::note);
  if (errors + warnings + notes == 0)
    return fmt::print("nothing wrong found in {} checks{}\n", f.count(Level::ok), args.all ? "" : " (--all lists them)");
  fmt::print("{} error{}, {} warning{}, {} note{}, {} ok\n", errors, errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s",
             notes, notes == 1 ? "" : "s", f.count(Level::ok));
}

int doctor_host(const Args &args) {
  const auto config = Config::process();
  if (!config.ok()) {
    print_error(config.status().error().line());
    return kFailed;
  }
  const Host host = gather_host(*config, Deadline::in(std::min<Nanos>(args.deadline().span(), std::chrono::seconds(20))));
  Job job;
  job.here = args.ranks > 0 ? args.ranks : std::max(1, host.usable_cpus);
  job.ranks = job.here;
  const Findings findings = check_host(host, job);
  if (args.json) {
    const nlohmann::json out = {{"host", host.names.own}, {"ranks", job.ranks}, {"findings", findings_json(findings)}};
    fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return exit_code(findings);
  }
  fmt::print("{}, for {} rank{}\n\n", host.names.own, job.here, job.here == 1 ? "" : "s");
  print_findings(findings, args);
  return exit_code(findings);
}

int doctor_log(const Args &args) {
  std::ifstream file;
  if (args.log != "-") {
    file.open(args.log);
    if (!file || file.peek() == std::ifstream::traits_type::eof()) {
      print_error(fmt::format("--log {}: it {}", args.log, file.is_open() ? "is empty or a folder" : "cannot be read"));
      return kFailed;
    }
  }
  const Explanation e = explain_log(args.log == "-" ? std::cin : file);
  if (e.flight && args.log != "-") return tools::diff_flights({args.log}, args.json);
  if (args.json)
    fmt::print("{}\n", explanation_json(e).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    fmt::print("{}", explanation_text(e, args.log == "-" ? "standard input" : args.log));
  const bool wrong = !e.flight && !e.symptoms.empty() && e.symptoms.front().rule->depth != Depth::harmless;
  return wrong ? kVerdict : kOk;
}

} // namespace tutti::doctor

namespace tutti::tools {

int doctor_main(int argc, char **argv) {
  CLI::App app{
      "Looks for what is wrong: with this host, between hosts (--hosts, or --job in each rank of a job), or behind a log "
      "(--log).\n"
      "Each finding says what was seen, why it matters here, and what mends it. Exit code: 0 nothing is wrong, 1 there are\n"
      "errors, 2 it could not look, 64 bad arguments",
      "tutti doctor"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.formatter(std::make_shared<HelpText>());
  doctor::Args args;
  app.add_option("--ranks", args.ranks, "Ranks that will run on a host (0 = one for each core, or those of the job)")
      ->check(CLI::Range(0, 100'000))
      ->capture_default_str();
  app.add_flag("--all", args.all, "Show what is well, too");
  app.add_flag("--json", args.json, "For programs");
  app.add_flag("--matrix", args.matrix, "Show latency and bandwidth of all pairs");
  app.add_option("--timeout", args.timeout_s, "Seconds that all of it may take")
      ->check(CLI::Range(5.0, 86400.0))
      ->capture_default_str();
  const auto log =
      app.add_option("--log", args.log, "Explain this log (- = standard input): of tutti, of NCCL, of a framework around them");
  const auto job =
      app.add_flag("--job", args.job, "In a rank of a job (tutti run, mpirun, srun, torchrun): test all pairs of it");
  const auto hosts = app.add_option("--hosts", args.hosts, "Start it on these hosts and test all pairs: a,b or n[1-8]");
  const auto file = app.add_option("--hostfile", args.hostfile, "The same, a host on each line");
  app.add_option("--ssh", args.shell, "Remote shell: takes a host and a command")->capture_default_str();
  app.add_option("--remote-command", args.program, "The program `tutti` there (else where it is here)");
  const auto join = app.add_flag("--join", args.join)->group(""); // what --hosts starts
  for (CLI::Option *a : {log, job, hosts, join})
    for (CLI::Option *b : {log, job, hosts, join})
      if (a != b) a->excludes(b);
  for (CLI::Option *a : {log, job, join}) a->excludes(file);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  if (args.program.empty()) args.program = own_path();
  if (!args.log.empty()) return doctor_log(args);
  if (args.job) return doctor_job(args);
  if (args.join) return doctor_joined(args);
  if (!args.hosts.empty() || !args.hostfile.empty()) return doctor_hosts(args);
  return doctor_host(args);
}

} // namespace tutti::tools
