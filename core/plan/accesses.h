// tutti/core/plan/accesses.h: which steps of one rank touch which chunk, and which steps are ordered. What happens to the
// memory of one slice; slices never share bytes.
#pragma once
#include "plan/plan.h"

namespace tutti {

struct Access {
  uint32_t step = 0;      // flat number: Accesses::step_id()
  uint32_t last_iter = 0; // iteration of the step in which it happens last
  bool write = false;
};

class Accesses {
public:
  // in_place: IN and OUT chunks that are one memory are one cell. An error names a cycle of deps.
  static Result<Accesses> of(const Plan &plan, bool in_place);

  uint32_t step_id(uint32_t lane, uint32_t step) const { return lane_base_[lane] + step; }
  uint32_t lane_of(uint32_t id) const { return lane_of_[id]; }
  uint32_t index_of(uint32_t id) const { return id - lane_base_[lane_of_[id]]; }

  // A cell is a chunk's memory: (group, chunk) of IN or OUT; scratch chunks belong to no group.
  uint32_t cell(uint32_t group, uint32_t buf, uint32_t chunk) const;
  uint32_t cells() const { return static_cast<uint32_t>(head_.size()); }
  std::string cell_name(uint32_t cell) const; // "OUT chunk 3 of group 1"

  template <class Fn> void each(uint32_t cell, Fn fn) const { // fn(const Access &), latest step first
    for (uint32_t at = head_[cell]; at != kNone; at = nodes_[at].next) fn(nodes_[at].access);
  }
  bool empty(uint32_t cell) const { return head_[cell] == kNone; }

  // All iterations of step a have finished before step b's first one begins, whatever the timing.
  bool before(uint32_t a, uint32_t b) const {
    const uint32_t la = lane_of_[a], lb = lane_of_[b];
    if (la == lb) return a < b;
    return !clock_.empty() && clock_[static_cast<size_t>(b) * lane_base_.size() + la] > index_of(a);
  }

private:
  static constexpr uint32_t kNone = ~0u;
  struct Node {
    Access access;
    uint32_t next;
  };
  explicit Accesses(const Plan &plan, bool in_place) : plan_(&plan), in_place_(in_place) {}
  void number_steps();
  void collect();
  void add(uint32_t cell, uint32_t step, uint32_t iter, bool write);
  Status order_steps();

  const Plan *plan_;
  bool in_place_;
  std::vector<uint32_t> lane_base_, lane_of_;
  std::vector<uint32_t> head_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> clock_; // [step][lane]: steps of that lane known to have finished; empty when the plan has no deps
};

// Two lanes that touch one chunk in no order, or a scratch chunk used by two groups: one text each, at most `limit`.
std::vector<std::string> unordered_accesses(const Accesses &accesses, const Plan &plan, size_t limit);

} // namespace tutti
