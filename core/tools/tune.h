// tutti/core/tools/tune.h: `tutti tune`: measures which way is best for each operation and size, and judges a table.
#pragma once
#include "tools/job.h"
#include "tools/perf.h"
#include "tools/tune_race.h"
#include "tools/tune_table.h"
#include <atomic>

namespace tutti::tools::tune {

struct Args {
  std::vector<std::string> names; // of operations; empty = all that are tuned
  std::vector<const perf::Operation *> ops;
  int ranks = 0;
  uint64_t min_bytes = 16, max_bytes = 16 << 20, factor = 4;
  double seconds = 120, within = 3; // within: per cent
  std::string out = "tuned.toml", judge, json;
  bool force = false;
  int shared = 0; // -R: buffers from tuttiMemAlloc
  int progress_fd = -1;
  std::vector<std::string> words;
};
bool parse_args(int argc, char **argv, Args *args, int *exit_code); // false: end with the exit code

// One operation of one size.
struct Job {
  const perf::Operation *op;
  uint64_t bytes;
};
// The small sizes of all operations first: what they leave of their time goes to the long ones.
std::vector<Job> jobs_of(const Args &args, int nranks);

constexpr double kGood = 1.10; // times the best: a choice that holds

// A choice held against the best way that a fresh run has found.
struct Verdict {
  Way way;
  double us = 0;
  Ratio ratio; // to the best
  bool holds() const { return ratio.rounds > 0 && ratio.median <= kGood; }
};
struct Judged {
  std::string op;
  uint64_t bytes = 0;
  TimedWay best;
  Verdict table, model;  // model: the core's own choice, without any table
  bool in_doubt = false; // others computed on these cores: no verdict
};

// What rank 0 shows while it goes on. On a terminal there is a line that tells how long it will still take.
class Progress {
public:
  Progress(int fd, size_t points, double seconds);
  void at(const std::string &text, size_t done, double elapsed);
  void line(const std::string &text); // a line of results

private:
  void clear();
  int fd_; // a terminal, or -1
  size_t points_;
  double seconds_;
  bool shown_ = false;
};

std::string judged_header();
std::string judged_line(const Judged &j);
std::string judged_summary(const Args &args, const std::vector<Judged> &all);
Status write_judged(const Args &args, const Layout &layout, const std::vector<Judged> &all);

// This process's rank, to the end. Returns the exit code.
int run_rank(const Args &args);

} // namespace tutti::tools::tune
