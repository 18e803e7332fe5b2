// tests/support/fair_time.h: time as it would have passed without other work on the machine, for limits that must hold on a
// busy one: wall time, less what processes that are no ranks of this test took of the cores.
#pragma once
#include <chrono>

namespace support {

class FairTime {
public:
  FairTime();
  double seconds() const; // since it was made

private:
  std::chrono::steady_clock::time_point start_;
  double others_;
};

} // namespace support
