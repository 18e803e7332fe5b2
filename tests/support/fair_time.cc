#include "fair_time.h"
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <unistd.h>

namespace support {
namespace {

// Seconds of all cores that went to other processes since the machine started.
double taken_by_others() {
  unsigned long long user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (FILE *f = std::fopen("/proc/stat", "r")) {
    const int n = std::fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
                              &softirq, &steal);
    std::fclose(f);
    if (n < 8) return 0;
  }
  timespec mine{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mine);
  const auto busy =
      static_cast<double>(user + nice + system + irq + softirq + steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return busy - static_cast<double>(mine.tv_sec) - static_cast<double>(mine.tv_nsec) * 1e-9;
}

} // namespace

FairTime::FairTime() : start_(std::chrono::steady_clock::now()), others_(taken_by_others()) {}

double FairTime::seconds() const {
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double others = std::max(0.0, taken_by_others() - others_) / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(0.0, wall - others);
}

} // namespace support
