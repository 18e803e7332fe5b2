// tutti/core/topology/packing.h: as many rings (or chains) as channels ask for, laid over links that they share.
//
// The bandwidth of a set of n rings, each used alike, is n / (the largest load / capacity of a link). To find the best set,
// links have prices that grow with their load; the cheapest ring is found exactly (hamilton.h) and added; then ring after ring
// is taken out and laid anew. Any prices also prove a bound: no set of rings exceeds sum(price * capacity) / (cost of the
// cheapest ring), and prices that follow the load bring it down. When both meet, the search ends; else when its budget of steps
// does, never by the clock.
#pragma once
#include "topology/hamilton.h"
#include "topology/paths.h"
#include <vector>

namespace tutti {

struct Route {
  std::vector<int> links; // of the machine
  double expansion = 1;
  PathKind kind = PathKind::dis;
};

// The ways between places: NVLink where two are joined by it, else both the way over another GPU and the way without NVLink.
class Routes {
public:
  Routes(const Machine &machine, const std::vector<int> &places);
  size_t size() const { return n_; }
  const std::vector<Route> &between(int a, int b) const { return all_[static_cast<size_t>(a) * n_ + static_cast<size_t>(b)]; }
  bool connected() const; // every place reaches every other

private:
  size_t n_;
  std::vector<std::vector<Route>> all_;
};

struct Hop {
  int from = 0, to = 0; // places
  int route = 0;        // of Routes::between(from, to)
};

// One channel: places in order, and the ways taken. A chain's hops are there and back.
struct Laid {
  std::vector<int> order;
  std::vector<Hop> hops;
};

struct PackRules {
  int min_channels = 1, max_channels = 16;
  double enough = 0.95;      // of the best sum found: the fewest channels that reach it are taken
  double bound = 1e300;      // known from elsewhere: nothing is better
  int64_t steps = 8'000'000; // some 0.1 s
};

struct Packing {
  std::vector<Laid> channels;
  double gbps = 0;  // of one channel
  double bound = 0; // no set of rings (chains) has a higher sum
  double total() const { return gbps * static_cast<double>(channels.size()); }
};

// Given orders instead of a search: of each hop the way that makes the most loaded link least loaded, one hop after the other,
// twice.
Packing lay_orders(Shape shape, const Machine &machine, const Routes &routes, const std::vector<std::vector<int>> &orders);

// Empty where there are fewer than two places, or some that cannot be reached.
Packing pack(Shape shape, const Machine &machine, const Routes &routes, const PackRules &rules = {});

} // namespace tutti
