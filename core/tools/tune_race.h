// tutti/core/tools/tune_race.h: samples of contenders that are measured in turns, and who is still worth a sample. A pure
// function of the samples: ranks that feed it the same ones decide alike.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

namespace tutti::tools::tune {

// How many times as long one contender takes as another: the median over rounds in which both ran, and the interval that holds
// the true median with 95 %.
struct Ratio {
  double median = 0, low = 0, high = 0;
  size_t rounds = 0; // 0: never in the same round
};

class Race {
public:
  struct Rules {
    double within = 0.03;        // decided when nobody left can be better than the best by more than this
    double verdict = 0;          // ... and of each that is kept it is known on which side of this ratio it is; 0 = no matter
    size_t least = 7, most = 60; // rounds
    // All ratios over that: dropped after 1, 2, 3 ... rounds. One sample may be several times too long where ranks share cores.
    static constexpr double beyond[] = {6, 3, 2, 1.5};
  };
  explicit Race(size_t contenders) : Race(contenders, Rules()) {}
  Race(size_t contenders, Rules rules) : rules_(rules), runners_(contenders) {}

  // Whom the next round measures, in which order: there and back, so that none gains from its place.
  std::vector<size_t> order() const;
  // Seconds of a round that ran in the order `who`; of those who are out by now they do not count. What is not finite has
  // failed and is out. Then drops who is clearly worse than the best.
  void add_round(std::span<const size_t> who, std::span<const double> seconds);
  void keep(size_t i) { runners_[i].kept = true; } // stays until the end, unless it fails
  void disqualify(size_t i) { runners_[i].out = runners_[i].failed = true; }

  bool decided() const;
  bool racing(size_t i) const { return !runners_[i].out; }
  size_t rounds() const { return rounds_; }
  // The lowest median of those still racing; size() when there is none.
  size_t best() const;
  size_t size() const { return runners_.size(); }
  Ratio ratio(size_t i, size_t to) const;
  // Seconds as of the best's rounds: a contender that left early is held against what the best took then. NaN: never measured,
  // or failed.
  double seconds(size_t i) const;
  // All that have a time, the best first.
  std::vector<size_t> ranking() const;

private:
  struct Runner {
    std::vector<double> seconds; // by round, from the first
    bool kept = false, out = false, failed = false;
  };
  bool hopeless(const Ratio &r) const;
  Rules rules_;
  std::vector<Runner> runners_;
  size_t rounds_ = 0;
};

double median_of(std::vector<double> values); // NaN of none

} // namespace tutti::tools::tune
