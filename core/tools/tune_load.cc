#include "tools/tune_load.h"
#include <algorithm>
#include <fstream>
#include <map>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

namespace tutti::tools::tune {
namespace {

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval &t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

} // namespace

LoadWatch::LoadWatch() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int c = 0; c < CPU_SETSIZE; c++)
      if (CPU_ISSET(c, &set)) cores_.push_back(c);
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::string key = host;
  for (int c : cores_) key += ' ' + std::to_string(c);
  group_ = std::hash<std::string>()(key);
  start();
}

// Of the lines "cpuN user nice system idle iowait irq softirq steal ..." in ticks, all but idle and iowait.
double LoadWatch::busy_seconds() const {
  std::ifstream file("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(3));
    int core = -1;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    if (line.size() < 4 || line[3] == ' ' || !(words >> core >> user >> nice >> system >> idle >> wait >> irq >> soft >> steal))
      continue;
    if (std::binary_search(cores_.begin(), cores_.end(), core)) ticks += user + nice + system + irq + soft + steal;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void LoadWatch::start() {
  start_ = std::chrono::steady_clock::now();
  busy_ = busy_seconds();
  own_ = own_seconds();
}

LoadReading LoadWatch::read() const {
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double busy = busy_seconds();
  return {group_, busy - busy_, own_seconds() - own_, busy > 0 ? passed * static_cast<double>(cores_.size()) : 0};
}

double foreign_load(std::span<const LoadReading> all) {
  std::map<uint64_t, LoadReading> groups;
  for (const LoadReading &r : all) {
    LoadReading &g = groups[r.group];
    g.busy = std::max(g.busy, r.busy);
    g.room = std::max(g.room, r.room);
    g.own += r.own;
  }
  double most = 0;
  for (const auto &[group, g] : groups)
    if (g.room > 0) most = std::max(most, (g.busy - g.own) / g.room);
  return std::clamp(most, 0.0, 1.0);
}

} // namespace tutti::tools::tune
