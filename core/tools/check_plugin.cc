#include "tools/check_plugin.h"
#include "checker.h"
#include "suite.h"
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string_view>

namespace tutti {
namespace {

using conformance::Case;

void print(const std::string &path, const CheckReport &r) {
  std::cout << path << '\n';
  if (!r.identity.empty()) std::cout << "  " << r.identity << '\n';
  if (!r.ifaces.empty()) {
    std::cout << "  offers";
    for (const std::string &id : r.ifaces) std::cout << ' ' << id;
    std::cout << '\n';
  }
  for (const std::string &s : r.skipped) std::cout << "  skipped " << s << '\n';
  size_t number = 0;
  for (const CheckFinding &f : r.findings) {
    std::cout << fmt::format("{:3}. {}: {}\n", ++number, f.rule, f.text);
    if (!f.todo.empty()) std::cout << "     " << f.todo << '\n';
  }
  std::cout << fmt::format("{} findings, {} cases passed, {} skipped\n", r.findings.size(), r.passed, r.skipped.size());
}

const char *const kUsage =
    "usage: tutti check-plugin PATH... [--static] [--only ID] [--timeout SECONDS] [--list]\n"
    "  Checks a shared object against every rule of the plugin ABI and runs the suite of each interface it offers.\n"
    "  --static     rules only, no behaviour\n"
    "  --only ID    cases whose number starts with ID, as N-3\n"
    "  --timeout S  time for loading and opening, default 5\n"
    "  --list       the cases of all suites\n"
    "  exit status: 0 no findings, 1 findings, 2 could not check\n";

void list_cases() {
  for (const char *id : {TUTTI_NET, TUTTI_ALGO, TUTTI_PROTO, TUTTI_TUNER, TUTTI_COLLNET, TUTTI_STORE})
    for (const Case &c : conformance::cases_of(id)) std::cout << fmt::format("{:6} {}: {}\n", c.id, id, c.title);
}

struct Arguments {
  CheckSettings settings;
  std::vector<std::string> paths;
  std::optional<int> exit;
};
Arguments parse(std::span<const std::string> args) {
  Arguments a;
  a.settings.progress = true;
  for (size_t i = 0; i < args.size(); i++) {
    const std::string &arg = args[i];
    const bool more = i + 1 < args.size();
    if (arg == "-h" || arg == "--help") return std::cout << kUsage, a.exit = 0, a;
    if (arg == "--list") return list_cases(), a.exit = 0, a;
    if (arg == "--static")
      a.settings.behaviour = false;
    else if (arg == "--only" && more)
      a.settings.only = args[++i];
    else if (const int s = arg == "--timeout" && more ? std::atoi(args[i + 1].c_str()) : 0; s > 0 && s <= 3600)
      a.settings.open_limit = std::chrono::seconds(s), i++;
    else if (arg.starts_with("-"))
      return std::cerr << fmt::format("error: check-plugin: unknown or incomplete option \"{}\"\n", arg) << kUsage, a.exit = 64,
                                                                                                                    a;
    else
      a.paths.push_back(arg);
  }
  if (a.paths.empty()) std::cerr << "error: check-plugin: no file given\n" << kUsage, a.exit = 64;
  return a;
}

} // namespace

int check_plugin_main(std::span<const std::string> args) {
  const Arguments a = parse(args);
  if (a.exit) return *a.exit;
  int verdict = 0;
  for (const std::string &path : a.paths) {
    std::error_code ec;
    if (!std::filesystem::exists(path, ec)) {
      std::cerr << fmt::format("error: {}: there is no such file\n", path);
      verdict = 2;
      continue;
    }
    const CheckReport r = check_plugin(path, a.settings);
    print(path, r);
    if (!r.findings.empty() && verdict == 0) verdict = 1;
  }
  return verdict;
}

} // namespace tutti
