// tutti/core/tools/tune_table.h: what was measured becomes a table for the tuner.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::tools::tune {

// One way to run an operation, to the last detail that a table can say.
struct Way {
  std::string algo, proto;
  uint32_t channels = 1;
  uint64_t slot_bytes = 0;
  uint32_t depth = 0;
  bool nontemporal = false;
  bool operator==(const Way &) const = default;
  bool kin(const Way &o) const { return algo == o.algo && proto == o.proto; }
};
std::string way_name(const Way &way); // "ring/ll128"
std::string way_text(const Way &way); // "ring/ll128, 2 channels, slots 8 x 64K, nt"

struct TimedWay {
  Way way;
  double us = 0;
};
struct Point {
  std::string op;
  uint64_t bytes = 0;                // upper edge of the size class
  std::vector<TimedWay> ranking;     // one for each algorithm and protocol, the best first
  std::vector<TimedWay> finalists{}; // of the last heat, in any form
};
// The finalists ran again at another time, on links of their own: both runs count alike. Among those that are then within
// `within` (0.03: 3 %) of the best the plainest wins, since what needs special stores, more channels or another protocol must
// earn that.
void settle(Point &p, const std::vector<TimedWay> &again, double within);
struct Layout { // what a query says of the ranks' places
  int ranks = 0, hosts = 1, ppn = 0, cores = 0;
  std::string links; // "local", "shm", "net"
};

struct TableRule {
  std::string op;
  uint64_t min_bytes = 0, max_bytes = UINT64_MAX;
  std::vector<uint64_t> sizes;
  struct Entry {
    Way way;
    std::vector<double> us; // one per size
  };
  std::vector<Entry> ways;
};
// The points of each operation in the order of their sizes; neighbours with the same best way share a rule, in which ways stay
// that were measured at all its sizes and took less than four times as long as the best. A size speaks for those up to the
// geometric mean with its neighbour, the smallest and the largest for all beyond.
std::vector<TableRule> merge_points(std::vector<Point> points);

constexpr const char *kWriter = "tutti tune";
struct About {
  std::string version, machine, hosts, date, command;
  bool interrupted = false;
};
std::string table_text(const About &about, const Layout &layout, const std::vector<TableRule> &rules);

// Ok where nothing is lost by writing there: the file does not exist, or is a table of this tool. force: or whatever it is.
Status may_write(const std::string &path, bool force);

} // namespace tutti::tools::tune
