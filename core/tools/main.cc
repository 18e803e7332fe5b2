// The command `tutti`. Installed also as all_reduce_perf and so on: then the name is the subcommand.
#include "tools/check_plugin.h"
#include "tools/cli.h"
#include "tools/doctor/doctor.h"
#include "tools/perf.h"
#include "tools/plan_tool.h"
#include "tutti/tutti.h"
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace tutti::tools {
namespace {

constexpr std::string_view kHelp =
    "Usage: tutti COMMAND [OPTIONS]\n"
    "\n"
    "Commands:\n"
    "  run -n N -- PROGRAM    start a program as N ranks on this host\n"
    "  perf OP                measure and verify an operation (all_reduce, alltoall, ...)\n"
    "  tune                   measure which way is best for each operation and size, write a table, judge one\n"
    "  explain OP SIZE        how an operation of a size would run, what else there is, and who decided\n"
    "  doctor                 what is wrong with this host, between hosts, or behind a log, and what mends it\n"
    "  info [TOPIC]           version, host, plugins loaded and skipped, devices, settings and where they come from\n"
    "  plan show|check|...    an algorithm's plan: show it, prove it right, simulate it; bytes by formula\n"
    "  map FILES              what ranks have sent to each other, from files that they wrote: table, heat map\n"
    "  ras                    what running jobs do: ranks, communicators, who waits for whom, who is to blame\n"
    "  ras diff FILES         whom a job waits for, from the flight recorders that its ranks wrote\n"
    "  topo                   this machine or a topology file: tree, paths, rings\n"
    "  check-plugin PATH      whether a plugin keeps the rules of the plugin ABI\n"
    "  version                the version\n"
    "\n"
    "tutti COMMAND --help tells more\n";

int version_main(int argc, char **) {
  if (argc > 1) {
    fmt::print("Usage: tutti version\nPrints the version of the tool and of the library\n");
    return kOk;
  }
  int library = 0;
  tuttiGetVersion(&library);
  fmt::print("tutti {}.{}.{} (library {}.{}.{})\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH, library / 10000, library / 100 % 100,
             library % 100);
  return kOk;
}

int check_plugin_command(int argc, char **argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return check_plugin_main(words);
}

int dispatch(int argc, char **argv) {
  const std::string name = std::filesystem::path(argc > 0 ? argv[0] : "tutti").filename();
  if (name.ends_with("_perf") && perf::find_operation(name.substr(0, name.size() - 5))) {
    std::string op = name.substr(0, name.size() - 5);
    std::vector<char *> words{argv[0], op.data()};
    words.insert(words.end(), argv + 1, argv + argc);
    words.push_back(nullptr);
    return perf_main(static_cast<int>(words.size()) - 1, words.data());
  }
  if (argc < 2) {
    fmt::print(stderr, "{}", kHelp);
    return kUsage;
  }
  const std::string_view command = argv[1];
  if (command == "-h" || command == "--help" || command == "help") {
    fmt::print("{}", kHelp);
    return kOk;
  }
  static constexpr struct {
    std::string_view name;
    int (*main)(int, char **);
  } kCommands[] = {{"run", run_main},
                   {"perf", perf_main},
                   {"info", info_main},
                   {"tune", tune_main},
                   {"explain", explain_main},
                   {"plan", plan_main},
                   {"doctor", doctor_main},
                   {"topo", topo_main},
                   {"map", map_main},
                   {"ras", ras_main},
                   {"check-plugin", check_plugin_command},
                   {"version", version_main},
                   {"--version", version_main}};
  for (const auto &c : kCommands)
    if (command == c.name) return c.main(argc - 1, argv + 1);
  print_error(fmt::format(
      "unknown command \"{}\"; one of run, perf, tune, explain, doctor, ras, info, plan, map, topo, check-plugin, version",
      command));
  return kUsage;
}

} // namespace
} // namespace tutti::tools

int main(int argc, char **argv) {
  int rc = tutti::tools::kFailed;
  try {
    rc = tutti::tools::dispatch(argc, argv);
  } catch (const std::exception &e) { // out of memory, or a stdout that takes no more
    if (!std::ferror(stdout)) {
      tutti::tools::print_error(e.what());
      return rc;
    }
  }
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return rc;
  tutti::tools::print_error(
      fmt::format("the output could not be written{}{}", errno ? ": " : "", errno ? std::strerror(errno) : ""));
  return rc ? rc : tutti::tools::kFailed;
}
