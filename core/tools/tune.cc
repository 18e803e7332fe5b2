// `tutti tune`: the command line.
#include "tools/tune.h"
#include "tools/cli.h"
#include "tools/help.h"
#include <algorithm>
#include <filesystem>

namespace tutti::tools::tune {
namespace {

constexpr const char *kAbout =
    "Measures all ways to run each operation, on the ranks of this job, and writes a table that the tuner reads\n"
    "(plugin.tuner.file). --ranks N starts N processes on this host; under tutti run or mpirun the launcher's processes are\n"
    "the ranks. Ways race in turns inside one communicator: who is clearly slower is dropped, and a size is done when nobody\n"
    "left can be better than the best by more than --within. Every way's result is checked first. First all ways run as the\n"
    "core proposes them, then the three best in other forms: slots, depth, channels, stores past the caches.\n"
    "--judge holds the choices of a table, and those of the core's model without any, against the best of a fresh run.";

// Tables have rules for these; operations with blocks of different sizes take those of the plain ones.
constexpr const char *kTuned[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                  "alltoall",   "gather",     "scatter",        "barrier"};

struct Texts {
  std::string min = "16", max = "16M";
};

// CLI::Range lets "nan" pass.
CLI::Validator finite_in(double least, double most) {
  return CLI::Validator(
      [=](std::string &text) {
        char *end = nullptr;
        const double v = std::strtod(text.c_str(), &end);
        return *end == 0 && v >= least && v <= most ? "" : fmt::format("{} is not a number from {} to {}", text, least, most);
      },
      fmt::format("{}..{}", least, most));
}

void add_options(CLI::App &app, Args &a, Texts &t) {
  app.add_option("OP", a.names, "Operations to measure; none = all of them");
  app.add_option("--ranks", a.ranks, "Start this many processes on this host (built-in launch)")->check(CLI::Range(2, 4096));
  app.add_option("-b,--minbytes", t.min, "Smallest size")->capture_default_str();
  app.add_option("-e,--maxbytes", t.max, "Largest size")->capture_default_str();
  app.add_option("-f,--stepfactor", a.factor, "Factor between sizes")
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 40))
      ->capture_default_str();
  app.add_option("-s,--seconds", a.seconds, "Time for all of it, about")->check(finite_in(1, 1e6))->capture_default_str();
  app.add_option("--within", a.within, "Per cent that a best way may still be missed by")
      ->check(finite_in(0.5, 50))
      ->capture_default_str();
  app.add_option("-o,--out", a.out, "Table to write")->type_name("FILE")->capture_default_str();
  app.add_flag("--force", a.force, "Write it even over a file that tutti tune did not write");
  app.add_option("-R,--local_register", a.shared, "1: buffers from tuttiMemAlloc, which ranks of a host share")
      ->check(CLI::Range(0, 1))
      ->capture_default_str();
  app.add_option("--judge", a.judge, "Judge this table instead of writing one: a file, built-in or none")->type_name("FILE");
  app.add_option("--json", a.json, "With --judge: write the verdicts to this file too")->type_name("FILE");
  app.add_option("--progress-fd", a.progress_fd)->group(""); // for the built-in launch only: not in the help
}

Status find_operations(Args &a) {
  std::string names;
  for (const char *n : kTuned) names += fmt::format(" {}", n);
  for (const std::string &name : a.names) {
    if (std::none_of(std::begin(kTuned), std::end(kTuned), [&](const char *n) { return name == n; }))
      return fail(Code::invalid_argument, "\"{}\" is no operation that is tuned; one of{}", name, names);
    a.ops.push_back(perf::find_operation(name));
  }
  if (a.ops.empty())
    for (const char *n : kTuned) a.ops.push_back(perf::find_operation(n));
  return {};
}

Status finish(Args &a, const Texts &t) {
  const auto size = [](const char *flag, const std::string &text) -> Result<uint64_t> {
    auto s = parse_size(text);
    if (!s.ok()) return fail(Code::invalid_argument, "{}: {}", flag, s.status().error().message);
    return s;
  };
  TUTTI_ASSIGN(min, size("-b", t.min));
  TUTTI_ASSIGN(max, size("-e", t.max));
  a.min_bytes = min, a.max_bytes = max;
  if (min == 0) return fail(Code::invalid_argument, "-b 0: there is nothing to move; 4 is the smallest size");
  if (min > max) return fail(Code::invalid_argument, "-b {} is larger than -e {}", t.min, t.max);
  TUTTI_TRY(find_operations(a));
  if (a.judge.empty()) {
    if (!a.json.empty())
      return fail(Code::invalid_argument, "--json {} needs --judge: what was measured is in the table", a.json);
    return may_write(a.out, a.force);
  }
  std::error_code ec;
  if (a.judge != "built-in" && a.judge != "none" && !std::filesystem::exists(a.judge, ec))
    return fail(Code::invalid_argument, "--judge {}: there is no such file; name a table, built-in or none", a.judge);
  return {};
}

} // namespace

bool parse_args(int argc, char **argv, Args *args, int *exit_code) {
  CLI::App app{kAbout, "tutti tune"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.footer("Ctrl-C writes what is known by then.\n"
             "Exit code: 0, 1 a way gave wrong results, 2 the tool could not do its work, 64 bad arguments, 128 + the signal "
             "that cut it short");
  app.formatter(std::make_shared<HelpText>());
  Texts texts;
  add_options(app, *args, texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    *exit_code = e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
    return false;
  }
  args->words.assign(argv, argv + argc);
  std::erase_if(args->words, [](const std::string &w) { return w.starts_with("--progress-fd"); }); // not the user's
  if (Status s = finish(*args, texts); !s.ok()) {
    print_error(s.error().line());
    *exit_code = kUsage;
    return false;
  }
  return true;
}

} // namespace tutti::tools::tune

namespace tutti::tools {

int tune_main(int argc, char **argv) {
  tune::Args args;
  int code = kOk;
  if (!tune::parse_args(argc, argv, &args, &code)) return code;
  return args.ranks == 0 ? tune::run_rank(args) : launch_ranks("tune", args.ranks, args.words);
}

} // namespace tutti::tools
