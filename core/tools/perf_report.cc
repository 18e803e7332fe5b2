#include "base/file.h"
#include "config/config.h"
#include "config/secret.h"
#include "tools/cli.h"
#include "tools/perf.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <unistd.h>

extern char **environ;

namespace tutti::tools::perf {
namespace {

constexpr double kQuietSeconds = 3; // no progress line before a test has taken this long

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::string time_of_day(const char *format) {
  const std::time_t t = std::time(nullptr);
  std::tm parts{};
  localtime_r(&t, &parts);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}
std::string clock_text() {
  return time_of_day("%Y-%m-%d %H:%M:%S");
}

std::string time_text(double seconds) { // about four digits
  const double us = seconds * 1e6;
  return us >= 10000 ? fmt::format("{:.0f}", us) : us >= 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.2f}", us);
}
std::string wrong_text(const Timing &t) {
  return t.valid && t.wrong >= 0 ? fmt::format("{}", t.wrong) : "N/A";
}

std::string placement(const Timing &t) {
  if (!t.valid) return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {:>7}  {:>6.2f}  {:>6.2f}  {:>6}", time_text(t.seconds), t.alg_bw, t.bus_bw, wrong_text(t));
}
std::string iteration_columns(const Timing &t) {
  if (!t.valid) return fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", "N/A", "N/A", "N/A", "N/A");
  const Stats s = stats_of(t.per_iter);
  return fmt::format("  {:>8}  {:>8}  {:>8}  {:>6.1f}", time_text(s.min), time_text(s.max), time_text(s.p99), s.cv);
}
std::string overlap_columns(const Overlap &o) {
  return fmt::format("  {:>8}  {:>8}  {:>8}  {:>7.1f}", time_text(o.comm), time_text(o.compute), time_text(o.both),
                     o.hidden_percent());
}
// A line of its own: the row stays what the field's scripts parse, and fits a terminal.
std::string explained_line(const Row &row) {
  const Explained &e = row.explained;
  std::string out = fmt::format("{}/{}, {} channel{}, slots {} x {}, {}", e.algo, e.proto, e.channels,
                                e.channels == 1 ? "" : "s", e.depth, size_text(static_cast<uint64_t>(e.slot)), e.transport);
  out = fmt::format("#             {:<50} p50/p95/p99 us", out);
  for (const Timing *t : {&row.out, &row.in}) {
    if (!t->valid) continue;
    const Stats s = stats_of(t->per_iter);
    out += fmt::format("  {}/{}/{}", time_text(s.p50), time_text(s.p95), time_text(s.p99));
  }
  out += fmt::format("\n#             decided by {}", e.decided);
  if (e.predicted_us > 0) out += fmt::format(", predicted {} us", time_text(e.predicted_us / 1e6));
  if (e.measured_us > 0) out += fmt::format(", measured {} us by the table", time_text(e.measured_us / 1e6));
  if (!e.determinism.empty()) out += fmt::format("\n#             deterministic = {}", e.determinism);
  return out;
}

nlohmann::json timing_json(const Timing &t, bool cpu_time) {
  nlohmann::json j{{cpu_time ? "cpu_time" : "time", t.seconds * 1e6}, {"alg_bw", t.alg_bw}, {"bus_bw", t.bus_bw}};
  if (t.wrong >= 0)
    j["nwrong"] = t.wrong;
  else
    j["nwrong"] = "N/A";
  return j;
}
nlohmann::json per_iter_json(const Timing &t) {
  const auto us = [](const std::vector<double> &v) {
    nlohmann::json out = nlohmann::json::array();
    for (double s : v) out.push_back(s * 1e6);
    return out;
  };
  const Stats s = stats_of(t.per_iter);
  nlohmann::json processes = nlohmann::json::array();
  for (const auto &p : t.per_process) processes.push_back(us(p));
  return {{"min_us", s.min * 1e6},      {"max_us", s.max * 1e6},
          {"avg_us", s.avg * 1e6},      {"p50_us", s.p50 * 1e6},
          {"p95_us", s.p95 * 1e6},      {"p99_us", s.p99 * 1e6},
          {"stdev_us", s.stdev * 1e6},  {"cv_pct", s.cv},
          {"times_us", us(t.per_iter)}, {"per_process_max_times_us", processes}};
}
nlohmann::json row_json(const Row &r, const Args &a) {
  nlohmann::json j{
      {"size", r.bytes}, {"count", r.count}, {"type", type_name(r.type)}, {"redop", op_name(r.op)}, {"root", r.root}};
  if (r.out.valid) j["out_of_place"] = timing_json(r.out, a.cpu_time);
  if (r.in.valid) j["in_place"] = timing_json(r.in, a.cpu_time);
  if (!r.out.per_iter.empty()) j["out_of_place_per_iter"] = per_iter_json(r.out);
  if (!r.in.per_iter.empty()) j["in_place_per_iter"] = per_iter_json(r.in);
  if (r.overlap.valid)
    j["overlap"] = {{"comm_us", r.overlap.comm * 1e6},
                    {"compute_us", r.overlap.compute * 1e6},
                    {"both_us", r.overlap.both * 1e6},
                    {"hidden_pct", r.overlap.hidden_percent()}};
  if (a.explain) {
    const Explained &e = r.explained;
    j["explain"] = {{"algorithm", e.algo}, {"protocol", e.proto},      {"channels", e.channels}, {"slot_bytes", e.slot},
                    {"depth", e.depth},    {"transport", e.transport}, {"decided_by", e.decided}};
    if (e.predicted_us > 0) j["explain"]["predicted_us"] = e.predicted_us;
    if (e.measured_us > 0) j["explain"]["measured_us"] = e.measured_us;
  }
  return j;
}

nlohmann::json config_json(const Args &a) {
  nlohmann::json j{{"nthreads", a.threads},
                   {"ngpus", a.gpus},
                   {"minimum_bytes", a.min_bytes},
                   {"maximum_bytes", a.max_bytes},
                   {"warmup_iters", a.warmup},
                   {"iterations", a.iters},
                   {"aggregated_iterations", a.agg},
                   {"validation", a.check},
                   {"graph", 0},
                   {"blocking_collectives", a.blocking},
                   {"per_iter_timing", a.per_iter},
                   {"per_iter_skip", a.skip},
                   {"parallel_init", a.parallel_init}};
  if (a.factor)
    j["step_factor"] = a.factor;
  else
    j["step_bytes"] = a.step_bytes;
  return j;
}

void write_progress(int fd, const std::string &text) {
  const std::string line = "\r\033[K" + text;
  if (write(fd, line.data(), line.size()) < 0) return; // only for people who look
}

} // namespace

double Overlap::hidden_percent() const {
  const double shorter = std::min(comm, compute);
  return shorter > 0 ? 100 * std::clamp((comm + compute - both) / shorter, 0.0, 1.0) : 0;
}

Stats stats_of(std::vector<double> v) {
  Stats s;
  if (v.empty()) return s;
  std::sort(v.begin(), v.end());
  const double n = static_cast<double>(v.size());
  const auto rank = [&](double p) { return v[static_cast<size_t>(std::ceil(p * n)) - 1]; }; // nearest rank
  for (double x : v) s.avg += x / n;
  for (double x : v) s.stdev += (x - s.avg) * (x - s.avg) / n;
  s.stdev = std::sqrt(s.stdev);
  s.cv = s.avg > 0 ? 100 * s.stdev / s.avg : 0;
  s.min = v.front(), s.max = v.back();
  s.p50 = rank(0.50), s.p95 = rank(0.95), s.p99 = rank(0.99);
  return s;
}

Report::Report(const Args &args, int nranks, int processes, std::vector<Device> devices)
    : args_(args), nranks_(nranks), processes_(processes), devices_(std::move(devices)), pass_(args.pass_lines, args.op),
      start_time_(clock_text()), started_(now()) {
  for (int fd : {STDOUT_FILENO, STDERR_FILENO, args.progress_fd})
    if (progress_fd_ < 0 && isatty(fd)) progress_fd_ = fd;
}

void Report::clear_progress() {
  if (progress_shown_) write_progress(progress_fd_, "");
  progress_shown_ = false;
}

void Report::header() const {
  const Args &a = args_;
  int library = 0;
  tuttiGetVersion(&library);
  fmt::print("# tutti-perf version {}.{}.{} tutti-headers={} tutti-library={}\n", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH,
             TUTTI_VERSION_CODE, library);
  fmt::print("# Collective test starting: {}_perf\n", a.op);
  const std::string step = a.factor ? fmt::format("{}(factor)", a.factor) : fmt::format("{}(bytes)", a.step_bytes);
  fmt::print("# nThread {} nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: {} validation: {} "
             "graph: 0 unalign: {}\n#\n",
             a.threads, a.gpus, a.min_bytes, a.max_bytes, step, a.warmup, a.iters, a.agg, a.check, a.unalign);
  fmt::print("# Using devices\n");
  for (const Device &d : devices_)
    fmt::print("#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [host] {}\n", d.rank, d.group, d.pid, d.host, 0,
               d.cpu);
  if (const auto config = Config::process(); config.ok() && config.value()->text("core.security") == "encrypted")
    fmt::print("# Encrypted between hosts: core.security \"encrypted\" ({})\n",
               config.value()->setting("core.security").origin);
  fmt::print("#\n# {:>10}  {:>12}  {:>6}  {:>6}  {:>6}  {:^31}  {:>19}\n", "", "", "", "", "", "out-of-place", "in-place");
  std::string columns, units;
  for (int i = 0; i < 2; i++) {
    columns += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", a.cpu_time ? "cputime" : "time", "algbw", "busbw", "#wrong");
    units += fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
  }
  for (int i = 0; a.per_iter && i < 2; i++) {
    columns += fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", "i_min", "i_max", "i_p99", "i_cv%");
    units += fmt::format("  {:>8}  {:>8}  {:>8}  {:>6}", "(us)", "(us)", "(us)", "");
  }
  if (a.overlap) {
    columns += fmt::format("  {:>8}  {:>8}  {:>8}  {:>7}", "o_comm", "o_comp", "o_both", "hidden");
    units += fmt::format("  {:>8}  {:>8}  {:>8}  {:>7}", "(us)", "(us)", "(us)", "(%)");
  }
  if (a.timestamps) columns += "  timestamp";
  fmt::print("# {:>10}  {:>12}  {:>6}  {:>6}  {:>6}{}\n", "size", "count", "type", "redop", "root", columns);
  fmt::print("# {:>10}  {:>12}  {:>6}  {:>6}  {:>6}{}\n", "(B)", "(elements)", "", "", "", units);
  std::fflush(stdout);
}

void Report::row(const Row &row) {
  clear_progress();
  for (const Timing *t : {&row.out, &row.in}) {
    if (!t->valid) continue;
    bandwidth_ += t->bus_bw;
    bandwidths_++;
    if (t->wrong > 0) wrong_ += static_cast<uint64_t>(t->wrong);
  }
  std::string line =
      fmt::format("{:>12}  {:>12}  {:>6}  {:>6}  {:>6}", row.bytes, row.count, type_name(row.type), op_name(row.op), row.root);
  line += placement(row.out) + placement(row.in);
  if (args_.per_iter) line += iteration_columns(row.out) + iteration_columns(row.in);
  if (args_.overlap) line += overlap_columns(row.overlap);
  if (args_.timestamps) line += "  " + time_of_day("%H:%M:%S");
  fmt::print("{}\n", line);
  if (args_.explain) fmt::print("{}\n", explained_line(row));
  std::fflush(stdout);
  pass_.add(row);
  rows_.push_back(row);
  rows_.back().timestamp = clock_text();
}

void Report::progress(const Row &next, std::string_view doing) {
  if (progress_fd_ < 0 || now() - started_ < kQuietSeconds) return;
  write_progress(progress_fd_,
                 fmt::format("{:.0f} s: {} bytes of {}, {}", now() - started_, next.bytes, type_name(next.type), doing));
  progress_shown_ = true;
}

void Report::memory(uint64_t bytes, uint64_t fds) const {
  fmt::print("# Library memory       : {:.1f} MiB in {} ranks, {} file descriptors\n", static_cast<double>(bytes) / (1 << 20),
             nranks_, fds);
}

int Report::footer() {
  clear_progress();
  const double average = bandwidths_ ? bandwidth_ / static_cast<double>(bandwidths_) : 0, least = args_.min_bandwidth;
  const bool right = wrong_ == 0, fast = least < 0 || average >= 0.9 * least;
  fmt::print("# Out of bounds values : {} {}\n", wrong_, right ? "OK" : "FAILED");
  fmt::print("# Avg bus bandwidth    : {:.4f}{}\n#\n", average, least < 0 ? "" : fast ? " OK" : " FAILED");
  for (const std::string &line : pass_.report()) fmt::print("# Pass line {}\n", line);
  fmt::print("# Collective test concluded: {}_perf\n", args_.op);
  std::fflush(stdout);
  if (!args_.json.empty() && !write_json(clock_text(), right, fast, average)) return kFailed;
  if (!right || !fast || pass_.missed()) return kVerdict;
  if (pass_.measured()) return kOk;
  print_error(fmt::format("--expect {}: none of its pass lines for {} was measured", args_.expect, args_.op));
  return kFailed;
}

bool Report::write_json(const std::string &end_time, bool right, bool fast, double average) const {
  nlohmann::json errors = nlohmann::json::array();
  if (!right) errors.push_back(fmt::format("{} wrong values", wrong_));
  if (!fast) errors.push_back(fmt::format("average bus bandwidth {:.4f} is below 0.9 times {}", average, args_.min_bandwidth));
  if (pass_.missed()) errors.push_back("bus bandwidth is below a pass line");
  if (!pass_.measured()) errors.push_back("no pass line was measured");
  nlohmann::json env = nlohmann::json::object(), devices = nlohmann::json::array(), results = nlohmann::json::array();
  for (char **e = environ; *e; e++) {
    const std::string_view text(*e);
    if (!text.starts_with("TUTTI_") && !text.starts_with("NCCL_")) continue;
    if (text.starts_with("TUTTI_JOB_KEY")) continue; // a path to a secret is nobody else's business
    const size_t at = text.find('=');
    env[std::string(text.substr(0, at))] = without_password(text.substr(at + 1));
  }
  for (const Device &d : devices_)
    devices.push_back({{"rank", d.rank},
                       {"group", d.group},
                       {"pid", d.pid},
                       {"hostname", d.host},
                       {"device", 0},
                       {"device_hex", "host"},
                       {"device_info", d.cpu}});
  for (const Row &r : rows_) {
    results.push_back(row_json(r, args_));
    if (args_.timestamps) results.back()["timestamp"] = r.timestamp;
  }
  int library = 0;
  tuttiGetVersion(&library);
  nlohmann::json all{{"version", 3},
                     {"start_time", start_time_},
                     {"end_time", end_time},
                     {"args", args_.words},
                     {"env", env},
                     {"nccl_version", library},
                     {"tutti_version", library},
                     {"config", config_json(args_)},
                     {"devices", devices},
                     {"results", results},
                     {"out_of_bounds", {{"count", wrong_}, {"okay", right}}},
                     {"average_bus_bandwidth", {{"bandwidth", average}, {"okay", fast}}},
                     {"errors", errors}};
  if (!args_.pass_lines.empty()) all["pass_lines"] = pass_.json();
  const Status s = replace_file(args_.json, all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
  if (!s.ok()) print_error(s.error().line());
  return s.ok();
}

} // namespace tutti::tools::perf
