// tutti/core/plan/check_run.h: runs all ranks of a plan on symbolic values. One run decides for every timing, depth and number
// of slices, because of what a lane may wait for:
//  - Every FIFO has one reader and one writer, and lanes that share a chunk are ordered: what one lane can do next no other
//    lane can take away, and every order of events leads to the same end.
//  - Each condition says "that lane has come as far as X". More depth or window moves X back, never forth: whatever ends at the
//    least depth and window ends at any greater, as does an engine that frees a slot or takes a message earlier than at the end
//    of a step. So min_depth and window 1 are proof for all.
//  - X is never in a later slice than the lane itself. So lanes that wait in a circle do so within one slice, in which each
//    message of the slice has its place, and slice 0 shows every circle. Slices in which chunks have ended have fewer messages;
//    then "depth messages back" reaches further back, which is earlier.
#pragma once
#include "plan/groups.h"
#include <deque>
#include <unordered_map>

namespace tutti {

// What a chunk holds, of one slice.
struct SymValue {
  uint64_t sum = 0;     // of the random ids of the contributions: right with all but certainty when each is in it once
  uint64_t tree = 0;    // hash of the order in which the ranks' contributions were combined
  uint64_t content = 0; // identity of the chunk that it came from
  uint32_t set = 0;     // ContributionSets' number; 0 = not tracked
  uint32_t epoch = 0;   // slice + 1 in which it was written; 0 = never
  bool raw = false;     // a rank's own contribution before the pre-operation
  bool post = false;    // the post-operation was applied
};

// Exact multisets of contributions, for messages; kept for few ranks only.
class ContributionSets {
public:
  using Set = std::vector<std::pair<uint64_t, uint32_t>>; // (contribution, how often), sorted
  static uint64_t contribution(uint32_t rank, uint32_t chunk) { return (uint64_t{rank} << 32) | chunk; }
  uint32_t leaf(uint32_t rank, uint32_t chunk);
  uint32_t join(uint32_t a, uint32_t b);
  const Set &at(uint32_t set) const { return sets_[set]; }
  bool full() const { return entries_ > (1u << 24); }

private:
  std::deque<Set> sets_{1};
  std::unordered_map<uint64_t, uint32_t> leaves_;
  size_t entries_ = 0;
};

class CheckRun {
public:
  // Of all ranks and, behind them, those that stand for groups.
  // exact: keeps multisets of contributions, so that findings name them. Decides nothing, costs most of the time.
  CheckRun(Plans plans, const Wiring &wiring, const CheckOptions &options, bool exact, Findings &findings);
  void run(); // findings "result", "link", "deadlock"
  uint32_t rounds() const { return rounds_; }
  CombineOrder order() const { return order_; }
  uint64_t order_id() const { return order_ == CombineOrder::one ? order_id_ : 0; }

private:
  struct LaneState {
    uint32_t rank = 0, lane = 0, group = 0;
    uint32_t slice = 0, step = 0, iter = 0;
    uint32_t time = 0; // messages that had to come before, for rounds()
    bool queued = false;
  };
  struct Fifo {
    size_t values = 0; // where its slots begin in fifo_values_
    uint32_t head = 0, used = 0;
  };
  struct Message {
    uint64_t tag = 0; // identity of its first chunk, as the sender sizes it
    uint32_t chunks = 0, stamp = 0;
  };

  const Plan &plan_of(const LaneState &l) const { return *plans_[l.rank]; }
  const tutti_step &step_of(const LaneState &l) const { return plan_of(l).lanes[l.lane].steps[l.step]; }
  std::string where(const LaneState &l) const {
    return fmt::format("{} lane {} step {}", rank_name(plans_, l.rank), l.lane, l.step);
  }

  void wake(uint32_t lane);
  void wake_rank(uint32_t rank);
  void advance(uint32_t lane);
  bool may_start_slice(const LaneState &l) const;
  bool ready(const LaneState &l, uint32_t lane) const;
  void execute(LaneState &l, uint32_t lane);
  SymValue combine(const LaneState &l, const tutti_step &s, uint32_t lane, uint32_t chunk_at);
  SymValue read(const LaneState &l, uint32_t buf, uint32_t chunk, bool preop);
  void write(const LaneState &l, uint32_t buf, uint32_t chunk, const SymValue &v);
  void check_use(const LaneState &l, const tutti_step &s, const SymValue &v, uint64_t tag);
  void next(LaneState &l);
  void finish_slice(LaneState &l);
  void check_results(const LaneState &l, uint32_t slice);
  void check_result(const LaneState &l, uint32_t chunk, const SymValue &v);
  void report_wrong(const LaneState &l, uint32_t chunk, const SymValue &v);
  void report_deadlock();
  std::string waits_for(const LaneState &l, uint32_t lane) const;

  SymValue leaf(uint32_t rank, uint32_t group, uint32_t chunk);
  // Who has to be in OUT chunk `chunk` of `rank`: calls fn(rank, IN chunk).
  template <class Fn> void expected(uint32_t rank, uint32_t chunk, Fn fn) const;
  uint64_t expected_sum(uint32_t rank, uint32_t group, uint32_t chunk);
  size_t cell(const LaneState &l, uint32_t buf, uint32_t chunk) const;
  std::string chunk_name(const LaneState &l, uint32_t chunk) const;

  Plans plans_;
  const Wiring &w_;
  const CheckOptions options_;
  Findings &findings_;
  const Plan &first_; // rank 0's: what all ranks share
  const bool reduces_, nonuniform_;
  const uint32_t nranks_;
  uint32_t depth_, window_, slices_;
  std::vector<LaneState> lanes_;
  std::vector<Fifo> fifos_;
  std::vector<SymValue> fifo_values_;
  std::vector<Message> messages_;             // depth_ per fifo
  std::vector<std::vector<SymValue>> memory_; // by rank: window_ copies of OUT and SCRATCH
  std::deque<uint32_t> queue_;
  std::vector<uint64_t> sums_;  // cached expected sums of reductions, by (group, chunk); 0 = not yet
  std::vector<uint64_t> trees_; // of all_reduce: what the first rank to finish had; 0 = none yet
  std::vector<uint32_t> tree_rank_;
  std::vector<SymValue> taken_; // operands of the step at work
  ContributionSets sets_;
  bool exact_;
  uint32_t rounds_ = 0;
  CombineOrder order_ = CombineOrder::none;
  uint64_t order_id_ = 0; // of the first result
};

} // namespace tutti
