// tutti/core/tools/tune_trial.h: one operation of one size on one rank: its data, and runs of it in any way.
#pragma once
#include "tools/perf_rank.h"
#include "tools/tune_table.h"

namespace tutti::tools::tune {

constexpr double kCannotRun = 1e30; // seconds: of a way that could not run; finite, so that the largest of all ranks is it

void barrier(tuttiComm_t comm); // until it is done; throws Failure

class Trial {
public:
  // bytes: as the size column of `tutti perf`. shared: buffers from tuttiMemAlloc.
  Trial(const perf::Operation &op, uint64_t bytes, int rank, int nranks, bool shared);
  Trial(const Trial &) = delete;
  Trial &operator=(const Trial &) = delete;

  size_t count() const { return shape_.param; } // of the call
  // One run with a checked result: wrong elements of this rank; < 0: it could not run, and failure() says why.
  int64_t check(tuttiComm_t comm, const Way &way);
  // Seconds per operation of `times` operations, each waited for, with inputs that are written anew before each: lines that
  // stay shared in all caches would flatter the ways that read them there. The first and the last rank take turns as the root,
  // which could else run ahead of all others. kCannotRun as above.
  double time(tuttiComm_t comm, const Way &way, int times);
  const std::string &failure() const { return failure_; }

private:
  bool run(tuttiComm_t comm, bool last_is_root);
  bool begin(const Way &way);
  void rewrite_input();
  bool failed(tuttiComm_t comm);

  const perf::Operation &op_;
  int rank_, nranks_;
  perf::Shape shape_, last_root_; // where rank 0 is the root, and where the last rank is
  uint64_t turn_ = 0;
  perf::Buffer send_, recv_;
  std::vector<char> want_; // what recv must hold after an operation, piece by piece
  std::string failure_;
};

} // namespace tutti::tools::tune
