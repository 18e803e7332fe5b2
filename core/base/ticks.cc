#include "base/ticks.h"
#include <cstdio>
#include <cstring>
#include <initializer_list>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tutti::ticks {
namespace {

int64_t clock_ns(clockid_t which) {
  timespec t;
  ::clock_gettime(which, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// The kernel gives up a counter that it found uneven. Where it does not say, the processor is believed.
bool kernel_trusts_it() {
  std::FILE *f = std::fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!f) return true;
  char name[64] = {};
  const char *line = std::fgets(name, sizeof name, f);
  std::fclose(f);
  if (!line) return true;
  for (const char *good : {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"})
    if (std::strncmp(name, good, std::strlen(good)) == 0) return true;
  return false;
}

// Where the rate is measured from: the longer ago, the better it is known, and no stamp is older.
struct Start {
  uint64_t tick;
  int64_t mono;
};
const Start kStart{now(), clock_ns(CLOCK_MONOTONIC)};

} // namespace

bool even_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kInvariant = 1u << 8;
  return __get_cpuid(0x8000'0007u, &a, &b, &c, &d) && (d & kInvariant) && kernel_trusts_it();
#elif defined(__aarch64__)
  return kernel_trusts_it();
#else
  return false;
#endif
}

Reader::Reader() : at_(now()), wall_(clock_ns(CLOCK_REALTIME)), ns_per_tick_(1.0) {
  if (kCounter && at_ > kStart.tick)
    ns_per_tick_ = static_cast<double>(clock_ns(CLOCK_MONOTONIC) - kStart.mono) / static_cast<double>(at_ - kStart.tick);
}

int64_t Reader::wall_ns(uint64_t stamp) const {
  if (stamp == 0) return 0;
  const double ago = static_cast<double>(static_cast<int64_t>(at_ - stamp)) * ns_per_tick_;
  return wall_ - static_cast<int64_t>(ago);
}

} // namespace tutti::ticks
