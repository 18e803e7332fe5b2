// tutti/core/tools/tune_rank.h: one rank of `tutti tune`. All ranks go through the same steps; what may differ between them
// (times, the clock, a signal) is made the same first: rank 0's text, or the largest number of all.
#pragma once
#include "tools/explained.h"
#include "tools/tune.h"
#include "tools/tune_load.h"
#include "tools/tune_table.h"
#include "tools/tune_trial.h"
#include <chrono>
#include <memory>
#include <optional>

namespace tutti::tools::tune {

// Communicators whose ways are measured: one for cached stores, and one for stores past the caches once somebody asks. A pair
// for each point, so that links of ways that are over hold no memory.
class MeasuredComms {
public:
  explicit MeasuredComms(tuttiComm_t world) : world_(world) {}
  ~MeasuredComms();
  MeasuredComms(const MeasuredComms &) = delete;
  MeasuredComms &operator=(const MeasuredComms &) = delete;
  tuttiComm_t get(bool past_caches); // collective at its first use

private:
  tuttiComm_t world_, cached_ = nullptr, past_ = nullptr;
};

// Some ways and their race.
struct Heat {
  std::vector<Way> ways;
  Race race;
  std::optional<size_t> find(const Way &way) const;
};

class Rank {
public:
  Rank(const Args &args, const Processes &p);
  int run();

private:
  // ---- agreement
  std::vector<double> largest(std::vector<double> mine);
  std::string from_root(std::string text);
  double now(); // seconds since the start, rank 0's
  // ---- a point
  void measure(const Job &job, size_t done, size_t left); // done, left: steps of the run
  void drop_slow_before(const Job &job, std::vector<Way> &ways) const;
  std::vector<Way> ask_ways(tuttiComm_t comm, const Job &job, const Trial &trial); // incumbent, model's choice, then all ways
  Heat run_heat(Trial &trial, MeasuredComms &comms, std::vector<Way> ways, std::span<const Way> kept, double until,
                Race::Rules rules);
  struct Round {
    std::vector<size_t> order;
    std::vector<double> seconds;
  };
  std::vector<Round> run_window(Trial &trial, MeasuredComms &comms, const Heat &heat, std::vector<int> *times, double until);
  std::vector<double> run_round(Trial &trial, MeasuredComms &comms, const Heat &heat, const std::vector<size_t> &order,
                                std::vector<int> *times);
  std::vector<double> check_all(Trial &trial, MeasuredComms &comms, const std::vector<Way> &ways);
  void add_point(const Job &job, const Heat &first, const Heat &second, const Heat &third);
  void show_point(const Job &job, const Point &p, bool again = false);
  void revisit(size_t point, size_t left);
  void write_known() const;
  void add_judged(const Job &job, const Heat &last, const Way &table, const Way &model);
  // ---- the end
  void note_layout(const Explanation &e);
  std::string table(bool cut_short, const std::vector<TableRule> &rules) const;
  int finish(int cut_short);
  std::string hosts();
  std::string label(const Job &job) const;

  const Args &args_;
  tuttiComm_t world_;
  int rank_, nranks_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double now_ = 0;    // as last agreed
  int stop_ = 0;      // the signal that ended a rank's part
  uint64_t edge_ = 0; // upper edge of the size class that is measured
  LoadWatch load_;
  double lost_ = 0;       // seconds in which others computed
  bool doubtful_ = false; // at this point there was no other time
  size_t doubts_ = 0;     // such points
  Layout layout_;
  std::vector<Point> points_;
  std::vector<Job> visited_; // of each point
  std::vector<Judged> judged_;
  uint64_t wrong_ = 0;
  std::string hosts_;
  std::optional<Progress> progress_; // rank 0
};

} // namespace tutti::tools::tune
