// One heat of `tutti tune`: every way is checked, then they race in turns.
#include "tools/cli.h"
#include "tools/tune_rank.h"
#include "tools/tune_ways.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::tools::tune {
namespace {

constexpr double kSample = 500e-6; // seconds: long beside a clock, a barrier and a turn of the scheduler
constexpr double kMostTimes = 100;
constexpr double kWarm = 1e-3; // an operation that takes longer needs no run to warm up

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

Heat Rank::run_heat(Trial &trial, MeasuredComms &comms, std::vector<Way> ways, std::span<const Way> kept, double until,
                    Race::Rules rules) {
  const std::vector<double> problems = check_all(trial, comms, ways);
  Heat heat{std::move(ways), Race(problems.size(), rules)};
  std::vector<int> times(problems.size(), 1);
  for (size_t i = 0; i < problems.size(); i++)
    if (problems[i] > 0) heat.race.disqualify(i);
  for (const Way &way : kept)
    if (const auto i = heat.find(way); i && problems[*i] == 0) heat.race.keep(*i);
  while (!heat.race.decided() && !stop_ && (heat.race.rounds() < 2 || now_ < until)) {
    const std::vector<size_t> order = heat.race.order();
    std::vector<double> seconds;
    for (size_t i : order) {
      const tuttiComm_t comm = comms.get(heat.ways[i].nontemporal);
      barrier(world_);
      if (times[i] > 1 && static_cast<double>(times[i]) * kWarm > kSample) (void)trial.time(comm, heat.ways[i], 1);
      seconds.push_back(trial.time(comm, heat.ways[i], times[i]));
    }
    seconds = largest(std::move(seconds));
    for (size_t k = 0; k < order.size(); k++) {
      if (seconds[k] >= kCannotRun) seconds[k] = std::numeric_limits<double>::infinity();
      times[order[k]] = times_for(seconds[k]);
    }
    heat.race.add_round(seconds);
  }
  return heat;
}

} // namespace tutti::tools::tune
