// tutti/core/tools/perf_overlap.h: something to compute while operations are under way.
#pragma once
#include <cstdint>
#include <vector>

namespace tutti::tools::perf {

// Multiplies and adds within a few KiB, which stay in the first-level cache: it wants a core and nothing else, so what it loses
// beside an operation it loses to the core time that the operation takes.
class Compute {
public:
  Compute();
  // Sets how long run() takes: about `seconds` when nothing else runs.
  void take(double seconds);
  void run();

private:
  void round();
  std::vector<float> values_;
  uint64_t rounds_ = 1;
};

} // namespace tutti::tools::perf
