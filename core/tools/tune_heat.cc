// One heat of `tutti tune`: every way is checked, then they race in turns.
#include "tools/cli.h"
#include "tools/tune_rank.h"
#include "tools/tune_ways.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::tools::tune {
namespace {

// Seconds: where ranks share cores, times depend on who runs beside whom; a sample spans several turns of the scheduler.
constexpr double kSample = 2e-3;
constexpr double kMostTimes = 2000;
constexpr double kWarm = 1e-3;     // an operation that takes longer needs no run to warm up
constexpr double kWindow = 80e-3;  // seconds: eight ticks of the kernel's clock
constexpr double kDisturbed = 0.2; // of the cores went to others
constexpr double kSettled = 0.85;  // of the round before: times no longer fall

int times_for(double seconds) {
  return static_cast<int>(std::clamp(kSample / std::max(seconds, 1e-9), 1.0, kMostTimes));
}

} // namespace

MeasuredComms::~MeasuredComms() {
  for (tuttiComm_t c : {cached_, past_})
    if (c) (void)tuttiCommDestroy(c);
}

tuttiComm_t MeasuredComms::get(bool past_caches) {
  tuttiComm_t &comm = past_caches ? past_ : cached_;
  if (comm) return comm;
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.tuner = past_caches ? kPastCachesTuner : kCachedTuner;
  require(tuttiCommSplit(world_, 0, 0, &comm, &config), world_, "making a communicator to measure in");
  return comm;
}

std::optional<size_t> Heat::find(const Way &way) const {
  const auto hit = std::find(ways.begin(), ways.end(), way);
  if (hit == ways.end()) return std::nullopt;
  return static_cast<size_t>(hit - ways.begin());
}

// Seconds of a checked run of each way, infinite where it could not run or was wrong on some rank.
std::vector<double> Rank::check_all(Trial &trial, MeasuredComms &comms, const std::vector<Way> &ways) {
  std::vector<double> problems(ways.size());
  std::vector<std::string> why(ways.size());
  for (size_t i = 0; i < ways.size(); i++) {
    const int64_t wrong = trial.check(comms.get(ways[i].nontemporal), ways[i]);
    problems[i] = wrong < 0 ? kCannotRun : static_cast<double>(wrong);
    if (wrong < 0) why[i] = trial.failure();
  }
  problems = largest(std::move(problems));
  for (size_t i = 0; i < ways.size(); i++) {
    if (problems[i] == 0) continue;
    if (problems[i] < kCannotRun) wrong_++;
    if (!progress_) continue;
    if (problems[i] < kCannotRun)
      progress_->line(fmt::format("WRONG {}: {:.0f} wrong elements; left out", way_text(ways[i]), problems[i]));
    else
      progress_->line(
          fmt::format("# {} could not run: {}", way_text(ways[i]), why[i].empty() ? "another rank says why" : why[i]));
  }
  return problems;
}

// Seconds of one sample of each, the same on all ranks; infinite where it could not run. times: operations of a sample.
std::vector<double> Rank::run_round(Trial &trial, MeasuredComms &comms, const Heat &heat, const std::vector<size_t> &order,
                                    std::vector<int> *times) {
  std::vector<double> seconds;
  for (size_t i : order) {
    const tuttiComm_t comm = comms.get(heat.ways[i].nontemporal);
    const int n = (*times)[i];
    barrier(world_);
    if (n > 1 && kSample / n < kWarm) (void)trial.time(comm, heat.ways[i], 1);
    seconds.push_back(trial.time(comm, heat.ways[i], n));
  }
  seconds = largest(std::move(seconds));
  for (size_t k = 0; k < order.size(); k++) {
    if (seconds[k] >= kCannotRun) seconds[k] = std::numeric_limits<double>::infinity();
    (*times)[order[k]] = times_for(seconds[k]);
  }
  return seconds;
}

Heat Rank::run_heat(Trial &trial, MeasuredComms &comms, std::vector<Way> ways, std::span<const Way> kept, double until,
                    Race::Rules rules) {
  const std::vector<double> problems = check_all(trial, comms, ways);
  Heat heat{std::move(ways), Race(problems.size(), rules)};
  std::vector<int> times(problems.size(), 1);
  for (size_t i = 0; i < problems.size(); i++)
    if (problems[i] > 0) heat.race.disqualify(i);
  for (const Way &way : kept)
    if (const auto i = heat.find(way); i && problems[*i] == 0) heat.race.keep(*i);
  // Short operations become several times faster in their first hundreds, while ranks learn how long to wait for each other.
  double before = std::numeric_limits<double>::infinity();
  bool warm = heat.race.order().empty();
  while (!heat.race.decided() && !stop_ && (heat.race.rounds() < 2 || now_ < until)) {
    for (const Round &round : run_window(trial, comms, heat, &times, until)) {
      const double typical = median_of(round.seconds);
      warm = warm || typical > kWarm || typical > kSettled * before || now_ >= until;
      before = typical;
      if (warm) heat.race.add_round(round.order, round.seconds);
    }
  }
  return heat;
}

// Rounds long enough to see on the clocks of the kernel whether others computed meanwhile; none of them when they did, unless
// the time is up.
std::vector<Rank::Round> Rank::run_window(Trial &trial, MeasuredComms &comms, const Heat &heat, std::vector<int> *times,
                                          double until) {
  const double begin = now_;
  std::vector<Round> rounds;
  load_.start();
  do {
    Round r{heat.race.order(), {}};
    if (rounds.size() % 2) std::reverse(r.order.begin(), r.order.end());
    r.seconds = run_round(trial, comms, heat, r.order, times);
    rounds.push_back(std::move(r));
  } while (now_ - begin < kWindow && now_ < until && !stop_);
  const LoadReading mine = load_.read();
  std::vector<LoadReading> all(static_cast<size_t>(nranks_));
  require(tuttiAllGather(&mine, all.data(), sizeof mine, tuttiUint8, world_, nullptr), world_, "looking at the load");
  require(tuttiCommSynchronize(world_), world_, "looking at the load");
  const bool disturbed = foreign_load(all) > kDisturbed;
  lost_ += disturbed ? now_ - begin : 0;
  if (disturbed && now_ < until) return {};
  doubtful_ |= disturbed;
  return rounds;
}

} // namespace tutti::tools::tune
