// `tutti explain OP SIZE`: how the ranks of this job would run an operation, what else there is, and who decided.
#include "tools/cli.h"
#include "tools/explained.h"
#include "tools/help.h"
#include "tools/job.h"
#include "tools/perf.h"
#include <algorithm>

namespace tutti::tools {
namespace {

constexpr const char *kAbout =
    "Shows how the ranks of this job would run an operation: the way chosen and who decided, all other ways with the time\n"
    "that the model predicts and the time that the table has measured, and what is against the rest. --ranks N starts N\n"
    "processes on this host for the answer; under tutti run or mpirun the launcher's processes are the ranks.\n"
    "OP and SIZE as for tutti perf; settings (TUTTI_ALGO, plugin.tuner.file, ...) as for any program.";

struct Args {
  std::string op, size;
  int ranks = 0;
  bool json = false;
  int progress_fd = -1;
  uint64_t bytes = 0;
};

std::string time_text(const std::optional<double> &us) {
  return !us ? "-" : *us < 100 ? fmt::format("{:.2f}", *us) : fmt::format("{:.0f}", *us);
}
std::string slots_text(uint32_t depth, uint64_t slot) {
  return fmt::format("{} x {}", depth, size_text(slot));
}

void print_ways(const Explanation &e) {
  size_t width = 12;
  for (const auto &w : e.ways) width = std::max(width, w.algo.size() + 1 + w.proto.size());
  fmt::print("\n  {:<{}}  {:>8}  {:>10}  {:>12}  {:>12}  {}\n", "way", width, "channels", "slots", "predicted us",
             "measured us", "from");
  for (const auto &w : e.ways) {
    if (!w.refused.empty()) continue;
    fmt::print("{} {:<{}}  {:>8}  {:>10}  {:>12}  {:>12}  {}{}\n", w.algo == e.algo && w.proto == e.proto ? '*' : ' ',
               w.algo + "/" + w.proto, width, w.channels, slots_text(w.depth, w.slot_bytes), time_text(w.predicted_us),
               time_text(w.measured_us), w.note,
               w.nontemporal ? (w.note.empty() ? "past the caches" : ", past the caches") : "");
  }
}

// A line per reason: "tree (ll, ll128)", or the algorithm alone where all its protocols are out for the same reason.
void print_refused(const Explanation &e) {
  struct Line {
    std::string algo, reason, protos;
    size_t n;
  };
  std::vector<Line> lines;
  for (const auto &w : e.ways) {
    if (w.refused.empty()) continue;
    const auto hit =
        std::find_if(lines.begin(), lines.end(), [&](const Line &l) { return l.algo == w.algo && l.reason == w.refused; });
    if (hit == lines.end())
      lines.push_back({w.algo, w.refused, w.proto, 1});
    else
      hit->protos += ", " + w.proto, hit->n++;
  }
  if (!lines.empty()) fmt::print("\nruled out\n");
  for (const Line &l : lines) {
    const auto of = std::count_if(e.ways.begin(), e.ways.end(), [&](const auto &w) { return w.algo == l.algo; });
    fmt::print("  {}{}: {}\n", l.algo, l.n == static_cast<size_t>(of) ? "" : fmt::format(" ({})", l.protos), l.reason);
  }
}

void print_text(const Explanation &e) {
  fmt::print("{} of {} bytes with {} ranks", e.coll, e.bytes, e.nranks);
  if (e.hosts > 0) fmt::print(" on {} host{}, {} cores", e.hosts, e.hosts == 1 ? "" : "s", e.cores);
  fmt::print(", links {}\n", e.link);
  if (e.bucket && *e.bucket > 0)
    fmt::print("size class: over {} up to {} bytes\n", uint64_t{1} << (*e.bucket - 1), uint64_t{1} << *e.bucket);
  fmt::print("choice: {}/{}, {} channel{}, slots {}{}\n", e.algo, e.proto, e.channels, e.channels == 1 ? "" : "s",
             slots_text(e.depth, e.slot_bytes), e.nontemporal ? ", stores past the caches" : "");
  fmt::print("decided by {}\nasked: {}\n", decided_text(e), e.why);
  if (!e.collnet.empty()) fmt::print("collnet: {}\n", e.collnet);
  if (e.ways.empty()) return;
  print_ways(e);
  print_refused(e);
}

int explain_here(const Args &a) {
  Processes p;
  try {
    p = join_processes();
    if (p.count < 2) throw Failure{"one rank has no choice; --ranks N, tutti run or mpirun start more", true};
    int code = kOk;
    if (p.rank == 0) {
      if (const Status s = perf::load_alltoallv_settings(p.count); !s.ok()) throw Failure{s.error().line()};
      const perf::Shape shape = perf::find_operation(a.op)->shape(a.bytes / 4, 4, 0, p.count, 0);
      const auto json = ask_explanation(p.comm, a.op, shape.param, tuttiFloat32);
      const auto e = json.ok() ? read_explanation(*json) : Result<Explanation>(json.status());
      if (!e.ok())
        print_error(e.status().error().line()), code = kVerdict;
      else if (a.json)
        fmt::print("{}\n", *json);
      else
        print_text(*e);
    }
    require(tuttiCommDestroy(p.comm), nullptr, "freeing the communicator");
    return code;
  } catch (const Failure &f) {
    if (!f.everywhere || p.rank == 0) print_error(f.text);
    if (p.comm) (void)(f.everywhere ? tuttiCommDestroy(p.comm) : tuttiCommAbort(p.comm));
    return f.everywhere ? kUsage : kFailed;
  }
}

Status check(Args *a) {
  if (a->op.ends_with("_perf")) a->op.resize(a->op.size() - 5);
  if (!perf::find_operation(a->op) || a->op == "hypercube") {
    std::string names;
    for (const perf::Operation *o : perf::all_operations())
      if (std::string_view(o->name) != "hypercube") names += fmt::format(" {}", o->name);
    return fail(Code::invalid_argument, "unknown operation \"{}\"; one of{}", a->op, names);
  }
  TUTTI_ASSIGN(bytes, parse_size(a->size));
  a->bytes = bytes;
  return {};
}

} // namespace

int explain_main(int argc, char **argv) {
  Args a;
  CLI::App app{kAbout, "tutti explain"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.footer("Exit code: 0, 1 nothing may run it (the reason is printed), 2 the job could not start, 64 bad arguments");
  app.formatter(std::make_shared<HelpText>());
  app.add_option("OP", a.op, "Operation")->required();
  app.add_option("SIZE", a.size, "Size, as in the size column of tutti perf; K, M and G are units of 1024")->required();
  app.add_option("--ranks", a.ranks, "Start this many processes on this host (built-in launch)")->check(CLI::Range(2, 4096));
  app.add_flag("--json", a.json, "What the library says, for programs");
  app.add_option("--progress-fd", a.progress_fd)->group(""); // for the built-in launch only: not in the help
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &e) {
    return e.get_exit_code() == 0 ? app.exit(e) : (app.exit(e), kUsage);
  }
  if (const Status s = check(&a); !s.ok()) {
    print_error(s.error().line());
    return kUsage;
  }
  return a.ranks == 0 ? explain_here(a) : launch_ranks("explain", a.ranks, {argv, argv + argc});
}

} // namespace tutti::tools
