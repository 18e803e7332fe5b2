#include "tools/tune_rank.h"
#include "base/file.h"
#include "tools/cli.h"
#include "tools/tune_ways.h"
#include "topology/detect.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>
#include <set>
#include <unistd.h>

namespace tutti::tools::tune {
namespace {

constexpr size_t kFinalists = 3;     // of the first heat, that are tried in other forms
constexpr double kFirstPart = 0.45;  // of a point's time: all ways as the core proposes them
constexpr double kSecondPart = 0.9;  // ... and up to here other forms of the best, when a third heat follows that judges
constexpr size_t kRivals = 3;        // of a choice that is judged
constexpr double kFirstVisit = 0.65; // of the whole time, when each point is visited again
constexpr uint32_t kMostChannels = 64;
constexpr uint64_t kLong = 64 << 10; // bytes from which ways are passed by that were far behind at the size before
constexpr double kFarBehind = 3;     // times the best

std::atomic<int> interrupted{0}; // by this signal

std::string utc_date() {
  const std::time_t t = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&t, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

void add_new(std::vector<Way> &list, const Way &way) {
  if (std::find(list.begin(), list.end(), way) == list.end()) list.push_back(way);
}

// The best of a heat in their forms, and what the table in force says.
std::vector<Way> forms_of(const Heat &heat, const Job &job, const Way &table) {
  const std::vector<size_t> ranking = heat.race.ranking();
  std::vector<Way> out;
  for (size_t k = 0; k < std::min(kFinalists, ranking.size()); k++) {
    add_new(out, heat.ways[ranking[k]]);
    if (!job.op->has_data) continue;
    for (const Way &v : variants(heat.ways[ranking[k]], job.bytes, kMostChannels)) add_new(out, v);
  }
  add_new(out, table);
  return out;
}

} // namespace

Rank::Rank(const Args &args, const Processes &p) : args_(args), world_(p.comm), rank_(p.rank), nranks_(p.count) {
  for (int s : {SIGINT, SIGTERM, SIGHUP}) std::signal(s, [](int signal) { interrupted = signal; });
  std::signal(SIGXFSZ, SIG_IGN); // a table that is too large for the limits is an error with words
}

// With the numbers travel rank 0's clock and anybody's wish to stop, so that all ranks act on the same.
std::vector<double> Rank::largest(std::vector<double> mine) {
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  mine.push_back(rank_ == 0 ? passed : 0);
  mine.push_back(interrupted);
  std::vector<double> out(mine.size());
  require(tuttiAllReduce(mine.data(), out.data(), mine.size(), tuttiFloat64, tuttiMax, world_, nullptr), world_,
          "comparing times");
  require(tuttiCommSynchronize(world_), world_, "comparing times");
  stop_ = std::max(stop_, static_cast<int>(out.back()));
  now_ = out[out.size() - 2];
  out.resize(out.size() - 2);
  return out;
}

std::string Rank::from_root(std::string text) {
  uint64_t size = text.size();
  const auto send = [&](void *data, size_t bytes) {
    require(tuttiBcast(data, bytes, tuttiUint8, 0, world_, nullptr), world_, "handing out what to measure");
    require(tuttiCommSynchronize(world_), world_, "handing out what to measure");
  };
  send(&size, sizeof size);
  text.resize(size);
  if (size > 0) send(text.data(), size);
  return text;
}

double Rank::now() {
  (void)largest({});
  return now_;
}

std::string Rank::label(const Job &job) const {
  return fmt::format("{} {}", job.op->name, size_text(job.bytes));
}

void Rank::note_layout(const Explanation &e) {
  layout_ = {nranks_, e.hosts, e.ppn, e.cores, e.link};
}

// Rank 0 asks; all get: what the table of this process chooses, what the core alone would, then every way that can run.
std::vector<Way> Rank::ask_ways(tuttiComm_t comm, const Job &job, const Trial &trial) {
  std::string text;
  if (rank_ == 0) {
    const auto ask = [&](tuttiComm_t of) -> Result<Explanation> {
      TUTTI_ASSIGN(json, ask_explanation(of, job.op->name, trial.count(), tuttiFloat32));
      return read_explanation(json);
    };
    const auto configured = ask(world_), proposed = ask(comm);
    if (configured.ok() && proposed.ok()) {
      note_layout(*proposed);
      std::vector<Way> ways = usable_ways(*proposed);
      ways.insert(ways.begin(), {choice_of(*configured), choice_of(*proposed)});
      text = fmt::format("{}\n{}", proposed->bucket ? uint64_t{1} << *proposed->bucket : proposed->bytes, encode_ways(ways));
    } else {
      text = "!" + (configured.ok() ? proposed : configured).status().error().line();
    }
  }
  text = from_root(std::move(text));
  if (text.starts_with('!')) throw Failure{text.substr(1), true};
  const size_t line = text.find('\n');
  edge_ = std::strtoull(text.c_str(), nullptr, 10);
  auto ways = decode_ways(text.substr(line + 1));
  if (!ways.ok()) throw Failure{ways.status().error().line(), true};
  return *ways;
}

// Long operations cost time: what was far behind at the size before is passed by. All ranks know the same points.
void Rank::drop_slow_before(const Job &job, std::vector<Way> &ways) const {
  const Point *before = nullptr;
  for (const Point &p : points_)
    if (p.op == job.op->name && !p.ranking.empty()) before = &p;
  if (!before || job.bytes <= kLong) return;
  const auto slow = [&](const Way &w) {
    return std::any_of(before->ranking.begin(), before->ranking.end(),
                       [&](const TimedWay &t) { return t.way.kin(w) && t.us > kFarBehind * before->ranking[0].us; });
  };
  const auto known = [&](const Way &w) {
    return std::any_of(before->ranking.begin(), before->ranking.end(), [&](const TimedWay &t) { return t.way.kin(w); });
  };
  std::erase_if(ways, [&](const Way &w) { return slow(w) || !known(w); });
}

void Rank::measure(const Job &job, size_t done, size_t left) {
  const bool judging = !args_.judge.empty();
  const double all = args_.seconds * (judging ? 1 : kFirstVisit);
  const double begin = now(), share = std::max(0.0, all - begin) / static_cast<double>(left);
  if (stop_) return;
  if (progress_) progress_->at(label(job), done, begin);
  Trial trial(*job.op, job.bytes, rank_, nranks_, args_.shared != 0);
  MeasuredComms comms(world_);
  std::vector<Way> ways = ask_ways(comms.get(false), job, trial);
  const Way table = ways[0], model = ways[1];
  ways.erase(ways.begin(), ways.begin() + 2);
  const auto measured_before = [&](const Point &p) { return p.op == job.op->name && p.bytes == edge_; };
  if (std::any_of(points_.begin(), points_.end(), measured_before)) return; // another size of the same class
  drop_slow_before(job, ways);
  doubtful_ = false;
  Race::Rules rules;
  rules.within = args_.within / 100;
  const Heat first = run_heat(trial, comms, std::move(ways), {}, begin + share * kFirstPart, rules);
  const Heat second = run_heat(trial, comms, forms_of(first, job, table), {}, begin + share * kSecondPart, rules);
  // The fastest of many was lucky as well: the best few run again, with samples of their own.
  std::vector<Way> last, kept;
  add_new(last, model);
  if (judging) add_new(last, table);
  if (judging) kept = last;
  const std::vector<size_t> best = second.race.ranking();
  for (size_t k = 0; k < std::min(kRivals, best.size()); k++) add_new(last, second.ways[best[k]]);
  rules.verdict = kGood;
  rules.least = 15;
  rules.most = 80;
  const Heat third = run_heat(trial, comms, std::move(last), kept, begin + share, rules);
  doubts_ += doubtful_ && judging;
  add_point(job, first, second, third);
  visited_.push_back(job);
  if (judging) add_judged(job, third, table, model);
}

// The best form of each way, and what it took in the last heat that it ran in. Times of a heat are brought to those of the next
// by what the best that runs in both took in each.
void Rank::add_point(const Job &job, const Heat &first, const Heat &second, const Heat &third) {
  Point p{job.op->name, edge_, {}};
  double scale = 1;
  const Heat *next = nullptr;
  for (const Heat *heat : {&third, &second, &first}) {
    const std::vector<size_t> ranking = heat->race.ranking();
    for (size_t i : ranking) {
      const auto again = next ? next->find(heat->ways[i]) : std::nullopt;
      if (!again || !std::isfinite(next->race.seconds(*again))) continue;
      scale *= next->race.seconds(*again) / heat->race.seconds(i);
      break;
    }
    for (size_t i : ranking) {
      const auto kin = [&](const TimedWay &t) { return t.way.kin(heat->ways[i]); };
      if (std::none_of(p.ranking.begin(), p.ranking.end(), kin))
        p.ranking.push_back({heat->ways[i], heat->race.seconds(i) * scale * 1e6});
    }
    if (!ranking.empty()) next = heat;
  }
  // Who did not get into a heat does not overtake who won it.
  for (TimedWay &t : p.ranking) t.us = std::max(t.us, p.ranking.front().us);
  std::stable_sort(p.ranking.begin(), p.ranking.end(), [](const TimedWay &a, const TimedWay &b) { return a.us < b.us; });
  if (progress_ && args_.judge.empty()) show_point(job, p);
  for (size_t i : third.race.ranking()) p.finalists.push_back({third.ways[i], third.race.seconds(i) * 1e6});
  points_.push_back(std::move(p));
  write_known();
}

// What is known outlives this process, whatever ends it. An error is told at the end, with the table.
void Rank::write_known() const {
  if (rank_ != 0 || !args_.judge.empty()) return;
  if (const auto rules = merge_points(points_); !rules.empty()) (void)replace_file(args_.out, table(true, rules));
}

// Two communicators place their memory differently, and a machine changes within minutes: one visit takes both for a virtue of
// the way.
void Rank::revisit(size_t point, size_t left) {
  const double begin = now(), share = std::max(0.0, args_.seconds - begin) / static_cast<double>(left);
  Point &p = points_[point];
  const Job &job = visited_[point];
  if (stop_) return;
  if (progress_) progress_->at(label(job), 2 * visited_.size() - left, begin);
  std::vector<Way> ways;
  for (const TimedWay &t : p.finalists) ways.push_back(t.way);
  doubtful_ = false;
  if (ways.size() > 1) {
    Trial trial(*job.op, job.bytes, rank_, nranks_, args_.shared != 0);
    MeasuredComms comms(world_);
    Race::Rules rules;
    rules.within = args_.within / 100;
    rules.least = 15;
    const Heat heat = run_heat(trial, comms, ways, ways, begin + share, rules);
    std::vector<TimedWay> again;
    for (size_t i : heat.race.ranking()) again.push_back({heat.ways[i], heat.race.seconds(i) * 1e6});
    const Way before = p.ranking.front().way;
    settle(p, again, args_.within / 100);
    if (progress_ && !(p.ranking.front().way == before)) show_point(job, p, true);
  }
  doubts_ += doubtful_;
  write_known();
}

void Rank::show_point(const Job &job, const Point &p, bool again) {
  if (!p.ranking.empty()) {
    const TimedWay &best = p.ranking[0];
    const std::string next = p.ranking.size() < 2 ? ""
                                                  : fmt::format("; next {} {:+.0f} %", way_name(p.ranking[1].way),
                                                                (p.ranking[1].us / best.us - 1) * 100);
    progress_->line(fmt::format("{:<22} {:>10.2f} us  {}{}{}{}", label(job), best.us, way_text(best.way), next,
                                again ? "; after the second visit" : "", doubtful_ ? "; in doubt" : ""));
  } else {
    progress_->line(fmt::format("{:<22} no way could be measured", label(job)));
  }
}

void Rank::add_judged(const Job &job, const Heat &last, const Way &table, const Way &model) {
  const size_t best = last.race.best();
  if (best == last.race.size()) return;
  const auto verdict = [&](const Way &way) -> Verdict {
    const auto i = last.find(way);
    if (!i || !std::isfinite(last.race.seconds(*i))) return {way, 0, {}};
    return {way, last.race.seconds(*i) * 1e6, last.race.ratio(*i, best)};
  };
  judged_.push_back(
      {job.op->name, edge_, {last.ways[best], last.race.seconds(best) * 1e6}, verdict(table), verdict(model), doubtful_});
  if (progress_) progress_->line(judged_line(judged_.back()));
}

std::string Rank::hosts() {
  char mine[64] = {};
  gethostname(mine, sizeof mine - 1);
  std::vector<char> all(sizeof mine * static_cast<size_t>(nranks_));
  require(tuttiAllGather(mine, all.data(), sizeof mine, tuttiUint8, world_, nullptr), world_, "collecting host names");
  require(tuttiCommSynchronize(world_), world_, "collecting host names");
  std::set<std::string> names;
  for (int r = 0; r < nranks_; r++) names.insert(std::string(all.data() + sizeof mine * static_cast<size_t>(r)));
  std::string out;
  for (const auto &n : names) out += (out.empty() ? "" : ", ") + n;
  return out;
}

std::string Rank::table(bool cut_short, const std::vector<TableRule> &rules) const {
  std::string command;
  for (const auto &w : args_.words) command += (command.empty() ? "tutti " : " ") + w;
  const About about{
      fmt::format("{}.{}.{}", TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH), cpu_model(), hosts_, utc_date(), command, cut_short};
  return table_text(about, layout_, rules);
}

int Rank::finish(int cut_short) {
  if (rank_ != 0) return kOk;
  if (!args_.judge.empty()) {
    fmt::print("{}", judged_summary(args_, judged_));
    if (!args_.json.empty())
      if (Status s = write_judged(args_, layout_, judged_); !s.ok()) return print_error(s.error().line()), kFailed;
  } else {
    const auto rules = merge_points(points_);
    const std::string text = table(cut_short != 0, rules);
    if (rules.empty()) return print_error("nothing was measured, so no table is written"), kFailed;
    if (Status s = replace_file(args_.out, text); !s.ok()) {
      print_error(s.error().line() + "; the table follows, so that it is not lost");
      fmt::print("{}", text);
      return kFailed;
    }
    fmt::print("# {} rules for {} points in {}{}\n# use it: TUTTI_PLUGIN_TUNER_FILE={}; judge it: tutti tune --judge {} "
               "--ranks {}, or "
               "under the same launcher\n",
               rules.size(), points_.size(), args_.out, cut_short ? ", cut short" : "", args_.out, args_.out, nranks_);
  }
  if (doubts_ > 0)
    fmt::print("# in doubt: {} points, because other processes computed on these cores all the time; {:.0f} s of {:.0f} were "
               "lost to them\n",
               doubts_, lost_, now_);
  if (wrong_ > 0) return print_error(fmt::format("{} ways gave wrong results; see the lines above", wrong_)), kVerdict;
  return cut_short ? 128 + cut_short : kOk;
}

int Rank::run() {
  const std::vector<Job> jobs = jobs_of(args_, nranks_);
  if (jobs.empty())
    throw Failure{fmt::format("-e {}: less than one element for each of {} ranks", size_text(args_.max_bytes), nranks_), true};
  hosts_ = hosts();
  if (rank_ == 0) {
    progress_.emplace(args_.progress_fd, jobs.size() * (args_.judge.empty() ? 2 : 1), args_.seconds);
    fmt::print("# {} {} operations and sizes with {} ranks on {}, about {:.0f} s\n",
               args_.judge.empty() ? "measuring" : "judging", jobs.size(), nranks_, hosts_, args_.seconds);
    if (!args_.judge.empty()) fmt::print("{}", judged_header());
    std::fflush(stdout);
  }
  try {
    for (size_t i = 0; i < jobs.size() && !stop_; i++) measure(jobs[i], i, jobs.size() - i);
    if (args_.judge.empty())
      for (size_t i = 0; i < points_.size() && !stop_; i++) revisit(i, points_.size() - i);
  } catch (const Failure &) {
    if (!points_.empty()) (void)finish(SIGINT); // what is known is not lost with the rank that failed
    throw;
  }
  return finish(stop_);
}

std::vector<Job> jobs_of(const Args &args, int nranks) {
  std::vector<uint64_t> sizes;
  for (uint64_t s = args.min_bytes; s <= args.max_bytes; s *= args.factor) {
    sizes.push_back(s);
    if (s > UINT64_MAX / args.factor) break;
  }
  std::vector<Job> out;
  for (size_t k = 0; k < sizes.size(); k++)
    for (const perf::Operation *op : args.ops) {
      if (!op->has_data && k == 0) out.push_back({op, 0});
      if (op->has_data && op->shape(sizes[k] / 4, 4, 0, nranks, 0).reported > 0) out.push_back({op, sizes[k]});
    }
  return out;
}

int run_rank(const Args &args) {
  Processes p;
  try {
    add_measuring_tuners();
    if (!args.judge.empty()) setenv("TUTTI_PLUGIN_TUNER_FILE", args.judge.c_str(), 1);
    p = join_processes();
    if (p.count < 2) {
      if (p.comm) (void)tuttiCommDestroy(p.comm);
      print_error("one rank has nothing to tune; --ranks N, tutti run or mpirun start more");
      return kUsage;
    }
    const int code = Rank(args, p).run();
    require(tuttiCommDestroy(p.comm), nullptr, "freeing the communicator");
    return code;
  } catch (const Failure &f) {
    if (!f.everywhere || p.rank == 0) print_error(f.text);
    if (p.comm) (void)(f.everywhere ? tuttiCommDestroy(p.comm) : tuttiCommAbort(p.comm));
    return f.everywhere ? kUsage : kFailed;
  }
}

} // namespace tutti::tools::tune
