// tutti/core/tools/tune_load.h: how much others compute on the cores of this rank. Their turns are no property of a way.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::tools::tune {

// What a rank has seen since it began to look.
struct LoadReading {
  uint64_t group = 0; // of ranks on the same cores of the same host
  double busy = 0;    // seconds that those cores worked, for anybody
  double own = 0;     // ... for this process
  double room = 0;    // ... that they could have worked; 0 = not known
};

class LoadWatch {
public:
  LoadWatch();
  void start();
  LoadReading read() const;

private:
  double busy_seconds() const;
  std::vector<int> cores_; // that this process may use
  uint64_t group_ = 0;
  std::chrono::steady_clock::time_point start_;
  double busy_ = 0, own_ = 0;
};

// The largest part, of any group's cores, that went to others: 0 to 1.
double foreign_load(std::span<const LoadReading> of_all_ranks);

} // namespace tutti::tools::tune
