// Shows the plans of the loaded algorithms, and checks them for many sizes at once.
#include "tools/plan_tool.h"
#include "base/types.h"
#include "plan/check.h"
#include "plan/refs.h"
#include "tools/cli.h"
#include "tools/help.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fmt/format.h>

namespace tutti::tools {
namespace {

using PlanSet = std::vector<std::shared_ptr<const Plan>>;

struct Options {
  std::string algo = "ring", coll = "all_reduce", ranks = "4", format = "text", in_place = "no";
  int rank = -1, root = 0;
  uint32_t channels = 1, depth = 0, window = 0, slices = 2;
  bool many_slices = false, show_in_place = false;
};

void print(const std::string &text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}
int usage_error(const std::string &text) {
  print_error("plan: " + text);
  return kUsage;
}
int failed(const Status &status) {
  print_error("plan: " + status.error().message);
  return kFailed;
}

// "4" or "2..64".
bool parse_range(const std::string &text, int *lo, int *hi) {
  char rest = 0;
  if (std::sscanf(text.c_str(), "%d..%d%c", lo, hi, &rest) == 2) return *lo >= 2 && *hi >= *lo && *hi <= 1 << 16;
  *hi = 0;
  if (std::sscanf(text.c_str(), "%d%c", lo, &rest) != 1) return false;
  *hi = *lo;
  return *lo >= 2 && *hi <= 1 << 16;
}

Result<PlanSet> plans_of(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll, int n, bool in_place) {
  const uint32_t flags =
      (o.many_slices ? uint32_t{TUTTI_REQ_MANY_SLICES} : 0u) | (in_place ? uint32_t{TUTTI_REQ_IN_PLACE} : 0u);
  PlanSet plans;
  for (int r = 0; r < n; r++) {
    const auto q = PlanRequest::simple(coll, r, n, coll_has_root(coll) ? o.root : -1, o.channels, flags);
    TUTTI_TRY(algo_supports(algo, q));
    TUTTI_ASSIGN(plan, build_plan(algo, q));
    plans.push_back(std::move(plan));
  }
  return plans;
}

int show(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll) {
  int n = 0, same = 0;
  if (!parse_range(o.ranks, &n, &same) || n != same)
    return usage_error(fmt::format("--ranks {}: one number from 2 on", o.ranks));
  if (o.rank >= n || o.root < 0 || o.root >= n)
    return usage_error(fmt::format("rank {}, root {}: not in 0..{}", o.rank, o.root, n - 1));
  auto plans = plans_of(algo, o, coll, n, o.show_in_place);
  if (!plans.ok()) return failed(plans.status());
  PlanSet chosen = *plans;
  if (o.rank >= 0) chosen = {(*plans)[static_cast<size_t>(o.rank)]};
  if (o.format == "json")
    print(dump_json(chosen));
  else if (o.format == "dot")
    print(dump_dot(chosen));
  else
    for (const auto &p : chosen) print(dump_text(*p));
  return kOk;
}

struct Totals {
  int checked = 0, wrong = 0, finding = 0;
};

// One line, and one more per finding.
void check_one(const PlanSet &plans, const Options &o, bool in_place, Totals *t) {
  const Plan &p = *plans[0];
  CheckOptions options;
  options.depth = o.depth;
  options.in_place = in_place;
  options.slices = o.slices;
  options.window = o.window;
  PlanStats stats;
  const auto start = std::chrono::steady_clock::now();
  const auto findings = check_plans(plans, options, &stats);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  size_t steps = 0;
  for (const auto &plan : plans)
    for (const PlanLane &lane : plan->lanes) steps = std::max(steps, lane.steps.size());
  t->checked++;
  const std::string head =
      fmt::format("{:<14} {:>5} ranks{}", coll_name(p.request.coll), plans.size(), in_place ? "  in place" : "");
  if (findings.empty())
    return print(fmt::format("{:<32} right   {:>5} rounds  {:>8.3f} bytes/byte  {:>4} steps/lane  {:>9} moves  {:>8.2f} ms\n",
                             head, stats.rounds, stats.bytes_per_byte, steps, stats.moves, ms));
  t->wrong++;
  print(fmt::format("{:<32} WRONG   {} finding{}\n", head, findings.size(), findings.size() == 1 ? "" : "s"));
  for (const PlanFinding &f : findings) print(fmt::format("  {:>3}. {}: {}\n", ++t->finding, f.rule, f.text));
}

int check(const Iface<tutti_algo_v1> &algo, const Options &o, const std::vector<tutti_coll> &colls) {
  int lo = 0, hi = 0;
  if (!parse_range(o.ranks, &lo, &hi)) return usage_error(fmt::format("--ranks {}: a number or a range like 2..64", o.ranks));
  if (o.root < 0 || o.root >= lo) return usage_error(fmt::format("--root {}: not in 0..{}", o.root, lo - 1));
  Totals t;
  for (tutti_coll coll : colls)
    for (int n = lo; n <= hi; n++)
      for (const bool in_place : {false, true}) {
        if (in_place ? o.in_place == "no" || !has_in_place_form(coll) : o.in_place == "yes") continue;
        auto plans = plans_of(algo, o, coll, n, in_place);
        if (plans.ok()) {
          check_one(*plans, o, in_place, &t);
        } else if (colls.size() == 1) {
          return failed(plans.status());
        } else {
          print(fmt::format("{:<14} {:>5} ranks  not offered\n  {}\n", coll_name(coll), n, plans.status().error().message));
          n = hi; // the same for all sizes
          break;
        }
      }
  print(fmt::format("{}: {} checked, {} wrong\n", algo.table->name, t.checked, t.wrong));
  return t.wrong ? kVerdict : kOk;
}

int run(const Options &o, bool showing) {
  std::vector<tutti_coll> colls;
  if (o.coll == "all" && !showing) {
    for (tutti_coll c = 0; c <= TUTTI_COLL_BARRIER; c++) colls.push_back(c);
  } else {
    const auto coll = coll_from(o.coll);
    if (!coll || *coll > TUTTI_COLL_BARRIER) return usage_error(fmt::format("--coll {}: no such collective", o.coll));
    colls.push_back(*coll);
  }
  const auto registry = Registry::process();
  if (!registry.ok()) return failed(registry.status());
  const auto algo = (*registry)->named<tutti_algo_v1>(TUTTI_ALGO, o.algo);
  if (!algo.ok()) return failed(algo.status());
  return showing ? show(*algo, o, colls[0]) : check(*algo, o, colls);
}

void common_options(CLI::App *app, Options *o) {
  app->add_option("--algo", o->algo, "name of the algorithm")->capture_default_str();
  app->add_option("--coll", o->coll, "collective, as in `tutti perf`; check also knows \"all\"")->capture_default_str();
  app->add_option("--ranks", o->ranks, "number of ranks; check also takes a range like 2..64")->capture_default_str();
  app->add_option("--root", o->root, "root of collectives that have one")->capture_default_str();
  app->add_option("--channels", o->channels, "channels of the request")->check(CLI::Range(1, 64))->capture_default_str();
  app->add_flag("--many-slices", o->many_slices, "the plan for messages longer than a slice");
}

} // namespace

int plan_main(std::span<const std::string> args) {
  Options o;
  CLI::App app("Shows what an algorithm would do, and proves whether that is right", "tutti plan");
  app.formatter(std::make_shared<HelpText>());
  app.require_subcommand(1);
  CLI::App *show_app = app.add_subcommand("show", "Print the plan of one or all ranks");
  common_options(show_app, &o);
  show_app->add_option("--rank", o.rank, "only this rank's");
  show_app->add_option("--format", o.format, "text, json or dot")
      ->check(CLI::IsMember({"text", "json", "dot"}))
      ->capture_default_str();
  show_app->add_flag("--in-place", o.show_in_place, "the plan for IN and OUT in the same memory");
  CLI::App *check_app = app.add_subcommand(
      "check", "Prove the plans of all ranks right, or number what is wrong. Exit code: 0 right, 1 wrong, 2 could not check");
  common_options(check_app, &o);
  check_app->add_option("--depth", o.depth, "slots per link; 0 = the least that the plan asks for")->check(CLI::Range(0, 1024));
  check_app->add_option("--slices", o.slices, "slices to run")->check(CLI::Range(1, 64))->capture_default_str();
  check_app->add_option("--window", o.window, "slices that lanes may be apart; 0 = the plan's")->check(CLI::Range(0, 64));
  check_app->add_option("--in-place", o.in_place, "no, yes or both")
      ->check(CLI::IsMember({"no", "yes", "both"}))
      ->capture_default_str();
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend())); // CLI11 takes them last first
    return run(o, show_app->parsed());
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  } catch (const std::exception &e) {
    return usage_error(e.what());
  }
}

int plan_main(int argc, char **argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return plan_main(args);
}

} // namespace tutti::tools
