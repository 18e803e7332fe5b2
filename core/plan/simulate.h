// tutti/core/plan/simulate.h: what plans would take on links of given latency and bandwidth.
//
// The model. A message of b bytes leaves through its sender's port, arrives alpha later and then occupies its receiver's port:
// b / beta each. A rank has one port per direction to ranks of its own host and one to other hosts; messages queue for a port
// in the order in which they come. A step begins when its lane is free, its deps have finished, its messages have arrived and
// its links have room (depth slots each, freed when the reader's step ends); it ends when its last message has left. Copies and
// arithmetic take no time. A collnet group is a rank more: its ports take group_beta for all members together, or as much as
// comes, and alpha is that of group_depth links between hosts.
#pragma once
#include "plan/chunks.h"
#include "plan/wiring.h"

namespace tutti {

struct LinkCost {
  double alpha = 0; // seconds
  double beta = 0;  // bytes per second
};
struct SimulateOptions {
  uint64_t bytes = 0; // of the larger of IN and OUT
  uint64_t slice = 0; // bytes; 0 = whole chunks
  uint32_t depth = 0; // 0 = the plans' min_depth
  LinkCost host{0.5e-6, 10e9}, net{10e-6, 3e9};
  double group_beta = 0;     // bytes per second into a collnet group, of all members together; 0 = no limit
  uint32_t group_depth = 1;  // aggregators between a member and the root of the tree, the root included
  uint32_t limit = 1u << 24; // of steps, and of messages: about 1 GiB
};

// A message on a link. `from`, `to`: numbers in Simulation::runs.
struct SimMessage {
  uint32_t wire = 0, from = 0, to = 0;
  uint64_t bytes = 0;
  double leaves = 0, arrives = 0; // begins to leave, has arrived
  int64_t behind = -1;            // the message that it waited for at a port, the last of them
};
// One iteration of one step on one slice. Why it began no earlier: after = number of the run that had to end, or message that
// had to arrive; -1 = it began at 0.
struct SimRun {
  uint32_t rank = 0, lane = 0, slice = 0, step = 0, iter = 0;
  double begin = 0, end = 0;
  enum class Cause : uint8_t { start, lane, dep, window, room, message } cause = Cause::start;
  int64_t after = -1;
};
struct SimHop {
  bool message = false; // else a run
  int64_t number = 0;
};
struct Simulation {
  double seconds = 0;
  std::vector<SimRun> runs; // by begin
  std::vector<SimMessage> messages;
  std::vector<Wire> wires;          // as SimMessage::wire counts; ranks from n on stand for groups
  std::vector<uint64_t> wire_bytes; // by wire
  std::vector<std::string> ranks;   // their names, "rank 3", "group 0"
  std::vector<SimHop> critical;     // first to last: what determined `seconds`
};

// An error when the plans do not fit together, wait for each other for ever, or need more steps or messages than the limit.
Result<Simulation> simulate(Plans plans, const SimulateOptions &options);

constexpr uint32_t kMostDrawn = 4000; // steps; more is a grey area, and megabytes

// A space-time diagram of a simulation of these plans: ranks and their lanes from top to bottom, time from left to right, steps
// as boxes, messages as arrows, a colour per chunk. The same bytes for the same input. An error when there is too much to see
// anything.
Result<std::string> draw_svg(Plans plans, const Simulation &simulation);

} // namespace tutti
