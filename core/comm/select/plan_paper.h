// tutti/core/comm/select/plan_paper.h: the plans of all ranks as flat arrays, to be run on paper. For plan_cost.cc.
#pragma once
#include "comm/select/plan_cost.h"
#include "plan/wiring.h"

namespace tutti {

// One iteration of a step: what it waits for, what it does.
struct PaperNode {
  uint32_t recv_first = 0, recv_count = 0, send_first = 0, send_count = 0; // in Paper::wires
  uint32_t dep_first = 0, dep_count = 0;                                   // in Paper::deps
  uint32_t ends = ~0u; // number of the step that has ended with it, over all ranks; ~0 = another iteration follows
  Work work;
};
struct PaperLane {
  uint32_t rank = 0, first = 0, end = 0; // its nodes
};
struct Paper {
  std::vector<PaperNode> nodes;
  std::vector<PaperLane> lanes;
  std::vector<uint32_t> lane_base; // by rank, one more at the end
  std::vector<uint32_t> wires, deps;
  std::vector<LinkClass> wire_class;
  uint32_t wire_count = 0, step_count = 0;
};

Paper write_paper(std::span<const std::shared_ptr<const Plan>> plans, const Wiring &wiring, const PlanSource &source);

// What a step, a message at either end and its way take on a clock, in units of their own.
struct PaperClock {
  float step, message, byte;
  std::array<float, kLinkClasses> hop;
};
// Only messages count; only bytes do.
constexpr PaperClock kQuickClock{0.1f, 0.2f, 0, {1, 1, 20}}, kBroadClock{0, 0, 1, {1e-4f, 1e-4f, 1e-4f}};
inline float time_on(const PaperClock &c, const Work &w) {
  const float net = w.out[index_of(LinkClass::net)] + w.in[index_of(LinkClass::net)];
  return w.steps * c.step + w.messages() * c.message + (w.bytes() + w.reduced + 2 * net) * c.byte;
}
CriticalPath critical_path(const Paper &paper, const PaperClock &clock);

// Operations in a row where ranks share cores: turns of a core for one of them. together: each begins when all ranks have ended
// the one before, or those that only send would run ahead.
float turns_of(const Paper &paper, const Topology &topology, bool together);

// Share of a chunk: blocks are alike, so chunks are.
float chunk_share(const Plan &plan);
// Of one iteration of a step, without its messages.
Work step_work(const Plan &plan, const PlanLane &lane, uint32_t step);

} // namespace tutti
