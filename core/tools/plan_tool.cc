// Shows the plans of the loaded algorithms, checks them for many sizes at once, and simulates them.
#include "tools/plan_tool.h"
#include "base/types.h"
#include "comm/startup.h"
#include "plan/check.h"
#include "plan/chunks.h"
#include "plan/refs.h"
#include "tools/cli.h"
#include "tools/help.h"
#include "tools/plan_simulate.h"
#include "tools/plan_volume.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <new>
#include <numeric>

namespace tutti::tools {
namespace {

struct Options {
  std::string algo = "ring", coll = "all_reduce", ranks = "4", format = "text", in_place = "no", svg;
  int rank = -1, root = 0, per_host = 0;
  uint32_t channels = 1, depth = 0, window = 0, slices = 2;
  bool many_slices = false, show_in_place = false, multicast = false, collnet = false;
  SimulateArgs simulate;
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

int usage_or_failed(const Status &status) {
  return status.error().code == Code::invalid_argument ? usage_error(status.error().message) : failed(status);
}

// "4", "2..64" or "1..128,256,2048": the numbers, as they come. Empty when it is none of these.
std::vector<int> parse_ranks(const std::string &text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, comma - at);
    at = comma + 1;
    int lo = 0, hi = 0;
    char rest = 0;
    if (std::sscanf(part.c_str(), "%d..%d%c", &lo, &hi, &rest) != 2) {
      if (std::sscanf(part.c_str(), "%d%c", &lo, &rest) != 1) return {};
      hi = lo;
    }
    if (lo < 1 || hi < lo || hi > kMost) return {};
    all.resize(all.size() + static_cast<size_t>(hi - lo + 1));
    std::iota(all.end() - (hi - lo + 1), all.end(), lo);
  }
  return all;
}

struct Form {
  bool in_place = false, multicast = false;
};

bool on_one_host(const Options &o, int n) {
  return o.per_host == 0 || o.per_host >= n;
}

// A channel's head is the rank of its own place on each host, as with a NIC for each.
void seat_heads(PlanRequest *q) {
  std::vector<int32_t> here;
  const auto &node = q->node_of_rank;
  for (int32_t r = 0; r < q->nranks; r++)
    if (node[static_cast<size_t>(r)] == node[static_cast<size_t>(q->rank)]) here.push_back(r);
  for (size_t c = 0; c < q->channel.size(); c++) q->channel[c].head = here[c % here.size()];
}

Result<PlanSet> plans_of(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll, int n, Form form) {
  const uint32_t flags = (o.many_slices ? uint32_t{TUTTI_REQ_MANY_SLICES} : 0u) |
                         (form.in_place ? uint32_t{TUTTI_REQ_IN_PLACE} : 0u) |
                         (form.multicast ? uint32_t{TUTTI_REQ_MULTICAST} : 0u) | (o.collnet ? uint32_t{TUTTI_REQ_COLLNET} : 0u);
  PlanSet plans;
  for (int r = 0; r < n; r++) {
    auto q = PlanRequest::simple(coll, r, n, coll_has_root(coll) ? o.root : -1, o.channels, flags);
    for (int i = 0; o.per_host > 0 && i < n; i++) q.node_of_rank[static_cast<size_t>(i)] = i / o.per_host;
    if (o.collnet) seat_heads(&q);
    TUTTI_TRY(algo_supports(algo, q));
    TUTTI_ASSIGN(plan, build_plan(algo, q));
    plans.push_back(std::move(plan));
  }
  return plans;
}

bool has_multicast(const PlanSet &plans) {
  for (const auto &p : plans)
    for (const PlanLane &lane : p->lanes)
      for (const tutti_link &l : lane.send)
        if (l.flags & TUTTI_LINK_MULTICAST) return true;
  return false;
}

// Whether the core would cut the chunks of these plans into slices of that size, and so ask for the plan for many of them.
bool in_slices(const Plan &p, const SimulateOptions &o) {
  const auto n = static_cast<uint32_t>(p.request.nranks);
  const uint32_t ins = coll_in_blocks(p.request.coll, n), blocks = std::max(ins, coll_out_blocks(p.request.coll, n));
  if (o.slice == 0 || p.request.coll == TUTTI_COLL_BARRIER) return false;
  return chunk_span({ins, o.bytes / blocks, nullptr, nullptr}, p.pieces(), p.groups, 0, 0).bytes > o.slice;
}

// The plans that show and simulate are about; an error is a usage error where it has no code of a plugin.
Result<PlanSet> one_set(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll) {
  const auto ranks = parse_ranks(o.ranks);
  if (ranks.size() != 1 || ranks[0] < 2) return fail(Code::invalid_argument, "--ranks {}: one number from 2 on", o.ranks);
  if (o.rank >= ranks[0] || o.root < 0 || o.root >= ranks[0])
    return fail(Code::invalid_argument, "rank {}, root {}: not in 0..{}", o.rank, o.root, ranks[0] - 1);
  if (o.multicast && !on_one_host(o, ranks[0]))
    return fail(Code::invalid_argument, "--multicast with --per-host {}: ranks of several hosts share no memory", o.per_host);
  const Form form{o.show_in_place, o.multicast};
  TUTTI_ASSIGN(plans, plans_of(algo, o, coll, ranks[0], form));
  if (o.many_slices || !in_slices(*plans[0], o.simulate.options)) return plans;
  Options longer = o;
  longer.many_slices = true;
  return plans_of(algo, longer, coll, ranks[0], form);
}

int write_svg(const PlanSet &plans, const Options &o) {
  SimulateOptions drawn = o.simulate.options;
  drawn.limit = kMostDrawn;
  const auto simulation = simulate(plans, drawn);
  if (!simulation.ok()) return failed(simulation.status());
  const auto svg = draw_svg(plans, *simulation);
  if (!svg.ok()) return failed(svg.status());
  if (o.svg == "-") {
    print(*svg);
    return kOk;
  }
  std::FILE *file = std::fopen(o.svg.c_str(), "w");
  bool written = file && std::fwrite(svg->data(), 1, svg->size(), file) == svg->size();
  if (file) written = std::fclose(file) == 0 && written;
  if (!written) return failed(fail(Code::system, "cannot write {}: {}", o.svg, std::strerror(errno)));
  return kOk;
}

int show(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll) {
  auto plans = one_set(algo, o, coll);
  if (!plans.ok()) return usage_or_failed(plans.status());
  if (!o.svg.empty()) return write_svg(*plans, o);
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

const char *order_text(CombineOrder order) {
  return order == CombineOrder::one ? "one order" : order == CombineOrder::by_chunk ? "by chunk" : "";
}

struct Totals {
  int checked = 0, wrong = 0, finding = 0;
};

std::string head_text(tutti_coll coll, size_t ranks, Form form) {
  return fmt::format("{:<14} {:>4} ranks{}{}", coll_name(coll), ranks, form.in_place ? "  in place" : "",
                     form.multicast ? " multicast" : "");
}

// One line, and one more per finding.
void check_one(const PlanSet &plans, const Options &o, Form form, Totals *t) {
  const Plan &p = *plans[0];
  CheckOptions options;
  options.depth = o.depth;
  options.in_place = form.in_place;
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
  const std::string head = head_text(p.request.coll, plans.size(), form);
  if (findings.empty())
    return print(fmt::format("{:<35} right {:>5} rounds {:>7.3f} bytes/byte {:>4} steps {:>7} moves  {:<9} {:>7.1f} ms\n", head,
                             stats.rounds, stats.bytes_per_byte, steps, stats.moves, order_text(stats.order), ms));
  t->wrong++;
  print(fmt::format("{:<35} WRONG {} finding{}\n", head, findings.size(), findings.size() == 1 ? "" : "s"));
  for (const PlanFinding &f : findings) print(fmt::format("  {:>3}. {}: {}\n", ++t->finding, f.rule, f.text));
}

// "2, 3, 5 and 12 more".
std::string sizes_text(const std::vector<int> &sizes) {
  constexpr size_t kShown = 8;
  std::string text = fmt::format("{}", fmt::join(sizes.begin(), sizes.begin() + std::min(sizes.size(), kShown), ", "));
  if (sizes.size() > kShown) text += fmt::format(" and {} more", sizes.size() - kShown);
  return text;
}

// The forms that `check` proves for n ranks. Ranks of one host share memory, unless a job is told not to or the protocol lends.
std::vector<Form> forms_of(const Options &o, tutti_coll coll, int n) {
  std::vector<Form> out;
  for (const bool in_place : {false, true}) {
    if (in_place ? o.in_place == "no" || !has_in_place_form(coll) : o.in_place == "yes") continue;
    out.push_back({in_place, false});
    if (on_one_host(o, n)) out.push_back({in_place, true});
  }
  return out;
}

// All sizes and forms of one collective. What the algorithm says not to support is not offered; every other error is wrong.
void check_sizes(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll, const std::vector<int> &ranks,
                 Totals *t) {
  std::vector<int> not_offered;
  std::string why; // of the first of them
  for (const int n : ranks) {
    if (n == 1) continue; // one rank copies: there is no plan
    for (const Form form : forms_of(o, coll, n)) {
      const auto plans = plans_of(algo, o, coll, n, form);
      if (plans.ok()) {
        if (form.multicast && !has_multicast(*plans)) continue; // the same plan again
        check_one(*plans, o, form, t);
      } else if (plans.status().error().code == Code::invalid_usage) { // UNSUPPORTED
        if (not_offered.empty()) why = plans.status().error().message;
        if (not_offered.empty() || not_offered.back() != n) not_offered.push_back(n);
      } else {
        t->checked++;
        t->wrong++;
        print(fmt::format("{:<35} WRONG no plan\n  {:>3}. {}\n", head_text(coll, n, form), ++t->finding,
                          plans.status().error().message));
      }
    }
  }
  if (!not_offered.empty())
    print(fmt::format("{:<14} not offered with {} ranks\n  {}\n", coll_name(coll), sizes_text(not_offered), why));
}

int check(const Iface<tutti_algo_v1> &algo, const Options &o, const std::vector<tutti_coll> &colls) {
  const auto ranks = parse_ranks(o.ranks);
  if (ranks.empty()) return usage_error(fmt::format("--ranks {}: numbers and ranges like 2..64 or 1..128,256,2048", o.ranks));
  const int fewest = std::max(2, *std::min_element(ranks.begin(), ranks.end()));
  if (o.root < 0 || o.root >= fewest) return usage_error(fmt::format("--root {}: not in 0..{}", o.root, fewest - 1));
  Totals t;
  for (tutti_coll coll : colls) check_sizes(algo, o, coll, ranks, &t);
  print(fmt::format("{}: {} checked, {} wrong\n", algo.table->name, t.checked, t.wrong));
  if (t.checked == 0) return failed(fail(Code::invalid_usage, "nothing was checked"));
  return t.wrong ? kVerdict : kOk;
}

int simulate_one(const Iface<tutti_algo_v1> &algo, const Options &o, tutti_coll coll) {
  auto plans = one_set(algo, o, coll);
  if (!plans.ok()) return usage_or_failed(plans.status());
  const auto text = simulation_text(*plans, o.simulate);
  if (!text.ok()) return failed(text.status());
  print(*text);
  return kOk;
}

int print_volumes(const VolumeArgs &args) {
  const auto found = volumes(args);
  if (!found.ok()) return usage_or_failed(found.status());
  print(volume_text(*found, args.json));
  return kOk;
}

enum class Command { show, check, simulate };
int run(const Options &o, Command command) {
  std::vector<tutti_coll> colls;
  if (o.coll == "all" && command == Command::check) {
    for (tutti_coll c = 0; c <= TUTTI_COLL_BARRIER; c++) colls.push_back(c);
  } else {
    const auto coll = coll_from(o.coll);
    if (!coll || *coll > TUTTI_COLL_BARRIER) return usage_error(fmt::format("--coll {}: no such collective", o.coll));
    colls.push_back(*coll);
  }
  provide_services(); // some algorithms are composed
  const auto registry = Registry::process();
  if (!registry.ok()) return failed(registry.status());
  const auto algo = (*registry)->named<tutti_algo_v1>(TUTTI_ALGO, o.algo);
  if (!algo.ok()) return failed(algo.status());
  if (command == Command::show) return show(*algo, o, colls[0]);
  return command == Command::check ? check(*algo, o, colls) : simulate_one(*algo, o, colls[0]);
}

void common_options(CLI::App *app, Options *o) {
  app->add_option("algo,--algo", o->algo, "name of the algorithm")->capture_default_str();
  app->add_option("coll,--coll", o->coll, "collective, as in `tutti perf`; check also knows \"all\"")->capture_default_str();
  app->add_option("ranks,-n,--ranks", o->ranks, "number of ranks; check also takes ranges and lists: 1..128,256,2048")
      ->capture_default_str();
  app->add_option("--root", o->root, "root of collectives that have one")->capture_default_str();
  app->add_option("--channels", o->channels, "channels of the request")->check(CLI::Range(1, 64))->capture_default_str();
  app->add_option("--per-host", o->per_host, "ranks on each host; 0 = all on one")->check(CLI::Range(0, 1 << 16));
  app->add_flag("--collnet", o->collnet,
                "every channel has a collnet group: one rank of each host, another one for each channel");
  app->add_flag("--many-slices", o->many_slices,
                "the plan for messages longer than a slice, which shorter slices than chunks imply");
}

void multicast_option(CLI::App *app, Options *o) {
  app->add_flag("--multicast", o->multicast,
                "all ranks share memory: links with several readers, where the algorithm has them");
}

void show_options(CLI::App *app, Options *o) {
  common_options(app, o);
  CLI::Option *rank = app->add_option("--rank", o->rank, "only this rank's");
  CLI::Option *format = app->add_option("--format", o->format, "text, json or dot")
                            ->check(CLI::IsMember({"text", "json", "dot"}))
                            ->capture_default_str();
  app->add_flag("--in-place", o->show_in_place, "the plan for IN and OUT in the same memory");
  multicast_option(app, o);
  app->add_option("--svg", o->svg, "write a space-time diagram of a simulation to FILE (\"-\" = standard output)")
      ->type_name("FILE")
      ->excludes(rank, format);
  simulate_options(app, "Simulation, for --svg", &o->simulate);
}

void check_options(CLI::App *app, Options *o) {
  common_options(app, o);
  app->add_option("--depth", o->depth, "slots per link; 0 = the least that the plan asks for")->check(CLI::Range(0, 1024));
  app->add_option("--slices", o->slices, "slices to run")->check(CLI::Range(1, 64))->capture_default_str();
  app->add_option("--window", o->window, "slices that lanes may be apart; 0 = the plan's")->check(CLI::Range(0, 64));
  app->add_option("--in-place", o->in_place, "no, yes or both")
      ->check(CLI::IsMember({"no", "yes", "both"}))
      ->capture_default_str();
  app->footer(
      "For each size: messages that follow one another (rounds), bytes that the busiest rank sends per byte of its larger\n"
      "buffer, and the order in which contributions are combined. It is proved to be the same on all ranks; \"one order\"\n"
      "also means the same for all elements, so that bits do not depend on how the data is cut. Where all ranks are on one\n"
      "host, plans with links that have several readers (\"multicast\") are proved as well.");
}

} // namespace

int plan_main(std::span<const std::string> args) {
  Options o;
  CLI::App app("Shows what an algorithm would do, proves whether that is right, simulates it, and counts bytes", "tutti plan");
  app.formatter(std::make_shared<HelpText>());
  app.require_subcommand(1);
  CLI::App *show_app = app.add_subcommand("show", "Print the plan of one or all ranks");
  show_options(show_app, &o);
  CLI::App *check_app =
      app.add_subcommand("check", "Prove the plans of all ranks right, or number what is wrong. Exit code 0 right, 1 wrong");
  check_options(check_app, &o);
  CLI::App *simulate_app =
      app.add_subcommand("simulate", "Time, bytes per link and critical path on links of given latency and bandwidth");
  common_options(simulate_app, &o);
  simulate_options(simulate_app, "Options", &o.simulate);
  simulate_app->add_flag("--in-place", o.show_in_place, "the plan for IN and OUT in the same memory");
  multicast_option(simulate_app, &o);
  simulate_app->add_flag("--json", o.simulate.json, "all of it, for programs");
  VolumeArgs volume;
  CLI::App *volume_app =
      app.add_subcommand("volume", "Bytes that collectives and training move, sizes of fat trees: formula, inputs and result");
  volume_options(volume_app, &volume);
  try {
    app.parse(std::vector<std::string>(args.rbegin(), args.rend())); // CLI11 takes them last first
    if (volume_app->parsed()) return print_volumes(volume);
    return run(o, show_app->parsed() ? Command::show : check_app->parsed() ? Command::check : Command::simulate);
  } catch (const CLI::ParseError &e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  } catch (const std::bad_alloc &) {
    return failed(fail(Code::system, "out of memory"));
  } catch (const std::exception &e) {
    return failed(fail(Code::internal, "{}", e.what()));
  }
}

int plan_main(int argc, char **argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  return plan_main(args);
}

} // namespace tutti::tools
