// tutti/core/topology/packing.h: as many rings (or chains) as channels ask for, laid over links that they share.
//
// The bandwidth of a set of n rings, each used alike, is n / (the largest load / capacity of a link). To find the best set,
// links have prices that grow with their load; the cheapest ring is found exactly (hamilton.h) and added; then ring after ring
// is taken out and laid anew. Any prices also prove a bound: no set of rings exceeds sum(price * capacity) / (cost of the
// cheapest ring), and prices that follow the load bring it down. When both meet, the search ends; else when its budget of steps
// does, never by the clock.
#pragma once
#include "topology/hamilton.h"
#include "topology/routes.h"
#include <utility>
#include <vector>

namespace tutti {

// What a channel is, and what it puts on links.
enum class Pattern {
  ring,    // over all places, one way
  chain,   // over all places, there and back
  through, // ring that comes from outside by one port and leaves by one
  twice,   // such a ring and the same backwards: two channels
  rooted   // chain that hangs on one port, there and back
};

struct Hop {
  int from = 0, to = 0; // places
  int route = 0;        // of Routes::between(from, to)
  double bytes = 1;     // that pass it per byte of the channel
};

// One channel: places in order, and the ways taken. A chain's hops are there and back.
struct Laid {
  std::vector<int> order; // without outside()
  std::vector<Hop> hops;
  int port_in = -1, port_out = -1; // indices of ports
};

struct PackRules {
  int min_channels = 1, max_channels = 16;
  double enough = 0.95;      // of the best sum found: the fewest channels that reach it are taken
  double bound = 1e300;      // known from elsewhere: nothing is better
  int64_t steps = 8'000'000; // some 0.1 s
  // Ports by which channels come in and leave, taken in turn: so each port has its share.
  std::vector<std::pair<int, int>> ends = {};
  double attach = 1; // of Pattern::rooted: bytes that pass the port per byte, each way
};

struct Packing {
  std::vector<Laid> channels;
  double gbps = 0;  // of one channel
  double bound = 0; // no set of rings (chains) has a higher sum
  double total() const { return gbps * static_cast<double>(channels.size()); }
};

// Given orders instead of a search: of each hop the way that makes the most loaded link least loaded, one hop after the other,
// several times. Pattern::ring or chain.
Packing lay_orders(Pattern pattern, const Machine &machine, const Routes &routes, const std::vector<std::vector<int>> &orders);

// Empty where there are fewer than two places (outside() included), or some that cannot be reached. A pattern with ports wants
// `ends`, and routes that have them.
Packing pack(Pattern pattern, const Machine &machine, const Routes &routes, const PackRules &rules = {});

// Bytes that each link of the machine carries when every channel carries one.
std::vector<double> loads_of(const Machine &machine, const Routes &routes, const Packing &packing);

} // namespace tutti
