// tutti/core/base/ticks.h: time stamps of a few nanoseconds each: the processor's counter where it runs evenly on all cores,
// else the monotonic clock. They become wall-clock time only when somebody reads them.
#pragma once
#include <cstdint>
#include <ctime>

namespace tutti::ticks {

bool even_counter(); // the processor has one that the kernel, too, takes its time from
inline const bool kCounter = even_counter();

inline uint64_t now() {
#if defined(__x86_64__)
  if (kCounter) [[likely]]
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  if (kCounter) [[likely]] {
    uint64_t v;
    asm volatile("mrs %0, cntvct_el0" : "=r"(v));
    return v;
  }
#endif
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

// Reads stamps as they look from one moment: two stamps keep their distance, whatever the wall clock was set to between them.
class Reader {
public:
  Reader();
  int64_t wall_ns(uint64_t stamp) const; // since 1970; 0 for 0
  int64_t now_ns() const { return wall_; }

private:
  uint64_t at_;
  int64_t wall_;
  double ns_per_tick_;
};

} // namespace tutti::ticks
