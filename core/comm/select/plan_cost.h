// tutti/core/comm/select/plan_cost.h: what the plans of one collective make ranks do, as numbers that hold for every size:
// counts of messages and steps of one slice, and bytes as shares of the operation's bytes. The cost model (model.h) turns them
// into time.
#pragma once
#include "plan/plan.h"
#include "topology/topology.h"
#include "transport/link_class.h"
#include <array>
#include <span>

namespace tutti {

constexpr size_t kLinkClasses = 3; // as LinkClass counts
constexpr size_t index_of(LinkClass c) {
  return static_cast<size_t>(c);
}

// Of one rank, of all ranks of a host, or of what lies on a path through several ranks. Shares are bytes per byte of the larger
// of a rank's two buffers.
struct Work {
  std::array<float, kLinkClasses> sent{}, received{}; // messages
  std::array<float, kLinkClasses> out{}, in{};        // shares in them
  float grouped = 0;                                  // share of `out` that goes to collnet groups
  float steps = 0;
  float lent = 0;    // share of `out` that a protocol of descriptors need not copy
  float touched = 0; // share that is read from or written to buffers and scratch
  float reduced = 0; // share of operands that are combined with others
  float copied = 0;  // share that goes from memory to memory without a message
  float messages() const { return sent[0] + sent[1] + sent[2] + received[0] + received[1] + received[2]; }
  float bytes() const { return out[0] + out[1] + out[2] + in[0] + in[1] + in[2]; }
  void add(const Work &other, float times = 1);
};

// Steps and messages that must follow one another.
struct CriticalPath {
  std::array<float, kLinkClasses> hops{}; // messages from rank to rank
  Work work;                              // done along it
  float rounds() const { return hops[0] + hops[1] + hops[2]; }
};

struct PlanCost {
  CriticalPath quick, broad; // critical when messages are empty, and when only their bytes count
  Work busiest, reader;      // of the rank with most to do, and of the one that receives most
  struct Host {
    Work work; // of all its ranks
    uint32_t ranks = 1, cores = 1;
    bool oversubscribed() const { return ranks > cores; }
  } host;              // with the most work per core
  float turns = 0;     // times that a core goes from one rank to the next in an operation; 0 unless the host is oversubscribed
  float chunk = 1;     // share of the longest chunk: it moves in slices
  uint32_t rings = 0;  // FIFOs that one rank reads or writes, at most
  uint32_t queued = 1; // messages of one slice on one link, at most
  bool all_ranks = true; // derived from the plans of all ranks that differ; else of some, with rounds from a formula
};

// Whose plans, and what carries the messages between two ranks.
struct PlanSource {
  Iface<tutti_algo_v1> algo;
  tutti_coll coll = 0;
  const Topology *topology = nullptr;
  std::span<const int32_t> process_of_rank; // ranks with one number are threads of one process; empty = none are
  bool shm = true;                          // processes of one host share memory
  uint32_t flags = 0;                       // TUTTI_REQ_*
  LinkClass between(uint32_t a, uint32_t b) const;
};

// Ranks up to which all plans are looked at. Of larger jobs those of a few ranks are; rounds then come from the algorithm's
// estimate(), or else from how they grow between jobs of half as many and of as many ranks as this. Where hosts meet in collnet
// groups, the plans of two of them are all that there is.
constexpr uint32_t kMostCosted = 16;

// An error is that of the algorithm. Remembered in the process: the same question is answered once.
Result<std::shared_ptr<const PlanCost>> plan_cost(const PlanSource &source);

// From plans of ranks 0 .. n-1 at hand.
Result<PlanCost> cost_of_plans(std::span<const std::shared_ptr<const Plan>> plans, const PlanSource &source);

} // namespace tutti
