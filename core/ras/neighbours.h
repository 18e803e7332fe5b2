// tutti/core/ras/neighbours.h: what the kernel says of processes of this host that use the library. Nothing here waits.
#pragma once
#include "ras/report.h"
#include <functional>
#include <map>

namespace tutti::ras {

// Of /proc/<pid>/stat.
struct ProcessStat {
  char state = 0;     // 'R', 'S', 'T', ...
  uint64_t start = 0; // in ticks since boot: with the pid it names a process for ever
  int64_t cpu_ns = 0; // used so far, by all threads
  uint64_t threads = 0, rss = 0;
};
std::optional<ProcessStat> parse_stat(std::string_view text);
std::optional<ProcessStat> read_stat(int64_t pid, const std::string &proc = "/proc");

// [one thread]
class Neighbours {
public:
  // The process whose unix-domain listener has this number. Who it is the kernel tells upon the first look, which makes a
  // connection and leaves it; later ones only read /proc.
  Look look(uint64_t process);

private:
  struct Known {
    int64_t pid = 0, uid = -1;
    uint64_t start = 0;
  };
  static Look meet(uint64_t process, Known *who);
  std::map<uint64_t, Known> known_;
};

} // namespace tutti::ras
