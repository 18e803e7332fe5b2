#include "fair_time.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <fstream>
#include <map>
#include <string>
#include <sys/types.h>
#include <unistd.h>

namespace support {
namespace {

struct Used {
  pid_t parent = 0;
  double ticks = 0; // of all its threads, and of its children that are reaped
};

std::map<pid_t, Used> processes() {
  std::map<pid_t, Used> all;
  DIR *dir = opendir("/proc");
  if (!dir) return all;
  while (const dirent *entry = readdir(dir)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    std::ifstream in(std::string("/proc/") + entry->d_name + "/stat");
    std::string text;
    std::getline(in, text, '\0');
    const size_t name_end = text.rfind(')'); // a name may hold anything
    if (name_end == std::string::npos) continue;
    int parent = 0;
    unsigned long user = 0, system = 0;
    long children_user = 0, children_system = 0;
    if (std::sscanf(text.c_str() + name_end + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &parent, &user,
                    &system, &children_user, &children_system) == 5)
      all[std::atoi(entry->d_name)] = {parent, static_cast<double>(user + system) +
                                                   static_cast<double>(children_user + children_system)};
  }
  closedir(dir);
  return all;
}

// Of this test: its first process and all below it, which the other ranks are.
double own_ticks() {
  const auto all = processes();
  const pid_t first = std::getenv("TEST_RANK") ? getppid() : getpid();
  double sum = 0;
  for (const auto &[pid, used] : all) {
    pid_t at = pid;
    while (at != first && all.count(at)) at = all.at(at).parent;
    if (at == first) sum += used.ticks;
  }
  return sum;
}

// Seconds of all cores that have gone to processes which are none of this test's since the machine started.
double taken_by_others() {
  unsigned long long user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (FILE *f = std::fopen("/proc/stat", "r")) {
    const int n = std::fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
                              &softirq, &steal);
    std::fclose(f);
    if (n < 8) return 0;
  }
  return (static_cast<double>(user + nice + system + irq + softirq + steal) - own_ticks()) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

} // namespace

FairTime::FairTime() : start_(std::chrono::steady_clock::now()), others_(taken_by_others()) {}

double FairTime::seconds() const {
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double others = std::max(0.0, taken_by_others() - others_) / static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(0.0, wall - others);
}

} // namespace support
