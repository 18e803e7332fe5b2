// Method. All ranks' steps are run once on paper, by list scheduling: a rank does one step at a time, a step begins when its
// lane, its deps and its messages allow it, the earliest first. Every message carries the path that led to it, so that the last
// one to end names the critical path. Two clocks are used, one on which only messages count and one on which only bytes do:
// time is a sum of both, so its critical path is near one of them. m messages: O(m log m). Ranks that share a core take turns;
// how many an operation needs is counted by letting cores go round their ranks, each doing all that it can, for some operations
// in a row.
#include "comm/select/plan_paper.h"
#include "plan/refs.h"
#include <algorithm>
#include <queue>

namespace tutti {

float chunk_share(const Plan &p) {
  const auto n = static_cast<uint32_t>(p.request.nranks);
  const uint32_t blocks = std::max(coll_in_blocks(p.request.coll, n), coll_out_blocks(p.request.coll, n));
  return 1.0f / static_cast<float>(uint64_t{blocks} * p.pieces() * p.groups);
}

Work step_work(const Plan &p, const PlanLane &lane, uint32_t step) {
  const tutti_step &s = lane.steps[step];
  const float share = chunk_share(p) * static_cast<float>(sizing_ref(s).count);
  const bool src = has(s, TUTTI_STEP_SRC), store = has(s, TUTTI_STEP_STORE);
  Work w;
  w.steps = 1;
  w.touched = share * static_cast<float>((src ? 1 : 0) + (store ? 1 : 0));
  if (has(s, TUTTI_STEP_REDUCE)) w.reduced = share * static_cast<float>(s.recv_count + (src ? 1 : 0) - 1);
  if (src && store && !has(s, TUTTI_STEP_RECV)) w.copied = share;
  if (lane.life[step] & kSendHome) w.lent = share * static_cast<float>(s.send_count);
  return w;
}

namespace {

class Writer {
public:
  Writer(std::span<const std::shared_ptr<const Plan>> plans, const Wiring &wiring, const PlanSource &source)
      : plans_(plans), w_(wiring), source_(source) {}

  Paper write() {
    Paper paper;
    paper.wire_count = static_cast<uint32_t>(w_.wires.size());
    for (const Wire &wire : w_.wires) paper.wire_class.push_back(source_.between(wire.src, wire.dst));
    for (uint32_t r = 0; r < plans_.size(); r++) {
      paper.lane_base.push_back(static_cast<uint32_t>(paper.lanes.size()));
      add_rank(paper, r);
    }
    paper.lane_base.push_back(static_cast<uint32_t>(paper.lanes.size()));
    return paper;
  }

private:
  void add_rank(Paper &paper, uint32_t rank) {
    const Plan &p = *plans_[rank];
    std::vector<uint32_t> base{paper.step_count}; // number of each lane's first step
    for (const PlanLane &lane : p.lanes) base.push_back(base.back() + static_cast<uint32_t>(lane.steps.size()));
    for (uint32_t l = 0; l < p.lanes.size(); l++) {
      PaperLane out{rank, static_cast<uint32_t>(paper.nodes.size()), 0};
      for (uint32_t i = 0; i < p.lanes[l].steps.size(); i++) add_step(paper, rank, l, i, base);
      out.end = static_cast<uint32_t>(paper.nodes.size());
      paper.lanes.push_back(out);
    }
    paper.step_count = base.back();
  }

  bool stands_for_group(uint32_t rank) const { return rank >= source_.topology->node_of_rank.size(); }
  void add_step(Paper &paper, uint32_t rank, uint32_t l, uint32_t i, const std::vector<uint32_t> &base) {
    const Plan &p = *plans_[rank];
    const PlanLane &lane = p.lanes[l];
    const tutti_step &s = lane.steps[i];
    const Work own = step_work(p, lane, i);
    const float share = chunk_share(p) * static_cast<float>(sizing_ref(s).count);
    const uint32_t at = w_.lane_base[rank] + l;
    for (uint32_t iter = 0; iter < s.repeat; iter++) {
      PaperNode node;
      node.work = own;
      node.recv_first = static_cast<uint32_t>(paper.wires.size());
      const auto shift = static_cast<int64_t>(iter) * s.link_stride;
      for (uint32_t k = 0; k < s.recv_count; k++) {
        const uint32_t wire = w_.source(at, static_cast<uint32_t>(s.recv_first + shift + k));
        paper.wires.push_back(wire);
        node.work.received[index_of(paper.wire_class[wire])]++;
        node.work.in[index_of(paper.wire_class[wire])] += share;
      }
      node.recv_count = static_cast<uint32_t>(paper.wires.size()) - node.recv_first;
      node.send_first = static_cast<uint32_t>(paper.wires.size());
      for (uint32_t k = 0; k < s.send_count; k++) { // one with several readers is written once
        const auto targets = w_.targets(at, static_cast<uint32_t>(s.send_first + shift + k));
        for (const uint32_t wire : targets) paper.wires.push_back(wire);
        if (targets.empty()) continue;
        node.work.sent[index_of(paper.wire_class[targets[0]])]++;
        node.work.out[index_of(paper.wire_class[targets[0]])] += share;
        if (stands_for_group(w_.wires[targets[0]].dst)) node.work.grouped += share;
      }
      node.send_count = static_cast<uint32_t>(paper.wires.size()) - node.send_first;
      if (stands_for_group(rank)) node.work = {}; // done while it is on its way
      if (iter == 0) {
        node.dep_first = static_cast<uint32_t>(paper.deps.size());
        for (uint32_t d = 0; d < s.dep_count; d++) {
          const tutti_dep &dep = p.deps[s.dep_first + d];
          paper.deps.push_back(base[dep.lane] + dep.step);
        }
        node.dep_count = s.dep_count;
      }
      if (iter + 1 == s.repeat) node.ends = base[l] + i;
      paper.nodes.push_back(node);
    }
  }

  std::span<const std::shared_ptr<const Plan>> plans_;
  const Wiring &w_;
  const PlanSource &source_;
};

// Runs the paper once on one clock.
class Schedule {
public:
  Schedule(const Paper &paper, const PaperClock &clock) : p_(paper), c_(clock) {
    at_.resize(p_.lanes.size());
    for (size_t l = 0; l < at_.size(); l++) at_[l] = p_.lanes[l].first;
    mail_.resize(p_.wire_count);
    read_.resize(p_.wire_count);
    ended_.assign(p_.step_count, -1);
    ranks_.resize(p_.lane_base.size() - 1);
    waiting_.assign(p_.wire_count, ~0u);
  }

  CriticalPath run() {
    for (uint32_t l = 0; l < p_.lanes.size(); l++) offer(l);
    while (!ready_.empty()) {
      const Ready r = ready_.top();
      ready_.pop();
      Rank &rank = ranks_[p_.lanes[r.lane].rank];
      if (rank.free > r.time) {
        ready_.push({rank.free, r.order, r.lane});
        continue;
      }
      execute(r.lane, r.time, rank);
    }
    const auto last =
        std::max_element(ranks_.begin(), ranks_.end(), [](const Rank &a, const Rank &b) { return a.free < b.free; });
    return last->path;
  }

private:
  struct Rank {
    float free = 0;
    CriticalPath path;
  };
  struct Mail {
    float arrives;
    CriticalPath path;
  };
  struct Ready {
    float time;
    uint32_t order, lane;
    bool operator<(const Ready &o) const { return time != o.time ? time > o.time : order > o.order; }
  };

  // Puts the lane's next node among the ready ones if all that it waits for is known; else it is offered again by what it
  // lacks.
  void offer(uint32_t l) {
    if (at_[l] == p_.lanes[l].end) return;
    const PaperNode &n = p_.nodes[at_[l]];
    float time = 0;
    for (uint32_t d = 0; d < n.dep_count; d++) {
      const float end = ended_[p_.deps[n.dep_first + d]];
      if (end < 0) return void(blocked_.push_back(l));
      time = std::max(time, end);
    }
    for (uint32_t k = 0; k < n.recv_count; k++) {
      const uint32_t wire = p_.wires[n.recv_first + k];
      if (read_[wire] == mail_[wire].size()) return void(waiting_[wire] = l);
      time = std::max(time, mail_[wire][read_[wire]].arrives);
    }
    ready_.push({std::max(time, ranks_[p_.lanes[l].rank].free), order_++, l});
  }

  void execute(uint32_t l, float now, Rank &rank) {
    const PaperNode &n = p_.nodes[at_[l]];
    // What came last, the rank's own step before or a message, has led here.
    const Mail *last = nullptr;
    for (uint32_t k = 0; k < n.recv_count; k++) {
      const uint32_t wire = p_.wires[n.recv_first + k];
      const Mail &m = mail_[wire][read_[wire]];
      if (m.arrives > rank.free && (!last || m.arrives > last->arrives)) last = &m;
    }
    if (last) rank.path = last->path;
    for (uint32_t k = 0; k < n.recv_count; k++) read_[p_.wires[n.recv_first + k]]++;
    rank.path.work.add(n.work);
    rank.free = now + time_on(c_, n.work);
    for (uint32_t k = 0; k < n.send_count; k++) {
      const uint32_t wire = p_.wires[n.send_first + k];
      const size_t c = index_of(p_.wire_class[wire]);
      Mail m{rank.free + c_.hop[c], rank.path};
      m.path.hops[c]++;
      mail_[wire].push_back(m);
      if (waiting_[wire] != ~0u) offer(std::exchange(waiting_[wire], ~0u));
    }
    if (n.ends != ~0u) {
      ended_[n.ends] = rank.free;
      for (const uint32_t other : std::exchange(blocked_, {})) offer(other);
    }
    at_[l]++;
    offer(l);
  }

  const Paper &p_;
  const PaperClock &c_;
  std::vector<uint32_t> at_;            // by lane: its next node
  std::vector<std::vector<Mail>> mail_; // by wire: all that was sent
  std::vector<size_t> read_;            // by wire
  std::vector<uint32_t> waiting_;       // by wire: the lane that waits for it
  std::vector<uint32_t> blocked_;       // lanes that wait for a step of another one
  std::vector<float> ended_;            // by step: when, < 0 = not yet
  std::vector<Rank> ranks_;
  std::priority_queue<Ready> ready_;
  uint32_t order_ = 0;
};

// Operations in a row on hosts that have more ranks than cores: turns of the busiest core for one of them.
class Turns {
public:
  Turns(const Paper &paper, const Topology &topology) : p_(paper) {
    const size_t n = paper.lane_base.size() - 1;
    std::vector<uint32_t> on_node(topology.node_count, 0), first_core(topology.node_count, 0);
    for (uint32_t h = 0; h < topology.node_count; h++) {
      first_core[h] = static_cast<uint32_t>(cores_.size());
      cores_.resize(cores_.size() + std::max(1u, topology.cores_on_node[h]));
    }
    for (uint32_t r = 0; r < n; r++) {
      if (r >= topology.node_of_rank.size()) { // stands for a collnet group, and shares no core
        groups_.push_back(r);
        continue;
      }
      const auto h = static_cast<size_t>(topology.node_of_rank[r]);
      cores_[first_core[h] + on_node[h]++ % std::max(1u, topology.cores_on_node[h])].push_back(r);
    }
    at_.resize(p_.lanes.size());
    std::erase_if(cores_, [](const auto &ranks) { return ranks.empty(); });
    for (size_t l = 0; l < at_.size(); l++) at_[l] = p_.lanes[l].first;
    sent_.resize(p_.wire_count);
    read_.resize(p_.wire_count);
    ended_.resize(p_.step_count);
    done_.resize(n);
  }

  // Ranks that run at the same time see each other's messages; which core goes on to its next rank is a matter of chance, as
  // cores do not keep step.
  float per_operation(bool together) {
    constexpr uint32_t kWarm = 2, kMeasured = 12;
    together_ = together;
    std::vector<size_t> at(cores_.size(), 0);
    uint32_t turns = 0, warm = 0, dice = 1;
    while (turns < kMostTurns) {
      for (bool moved = true; moved;) {
        moved = false;
        for (const uint32_t r : groups_) moved |= run(r, kWarm + kMeasured);
        for (size_t c = 0; c < cores_.size(); c++) moved |= run(cores_[c][at[c] % cores_[c].size()], kWarm + kMeasured);
      }
      const uint32_t slowest = *std::min_element(done_.begin(), done_.end());
      if (slowest >= kWarm && !warm) warm = turns;
      if (slowest >= kWarm + kMeasured) break;
      dice = dice * 1664525 + 1013904223;
      at[(dice >> 16) % cores_.size()]++;
      turns++;
    }
    return static_cast<float>(turns - warm) / static_cast<float>(kMeasured * cores_.size());
  }

private:
  static constexpr uint32_t kMostTurns = 1 << 16;

  bool may_begin(uint32_t rank) const { return !together_ || done_[rank] == *std::min_element(done_.begin(), done_.end()); }
  bool run(uint32_t rank, uint32_t most) {
    bool any = false;
    for (bool moved = true; moved && done_[rank] < most && may_begin(rank); any |= moved) {
      moved = false;
      bool finished = true;
      for (uint32_t l = p_.lane_base[rank]; l < p_.lane_base[rank + 1]; l++) {
        while (at_[l] < p_.lanes[l].end && step(l)) moved = true;
        finished &= at_[l] == p_.lanes[l].end;
      }
      if (!finished) continue;
      for (uint32_t l = p_.lane_base[rank]; l < p_.lane_base[rank + 1]; l++) at_[l] = p_.lanes[l].first;
      done_[rank]++;
      moved = true;
    }
    return any;
  }
  bool step(uint32_t l) {
    const PaperNode &n = p_.nodes[at_[l]];
    for (uint32_t d = 0; d < n.dep_count; d++)
      if (ended_[p_.deps[n.dep_first + d]] <= done_[p_.lanes[l].rank]) return false;
    for (uint32_t k = 0; k < n.recv_count; k++)
      if (const uint32_t wire = p_.wires[n.recv_first + k]; read_[wire] == sent_[wire]) return false;
    for (uint32_t k = 0; k < n.recv_count; k++) read_[p_.wires[n.recv_first + k]]++;
    for (uint32_t k = 0; k < n.send_count; k++) sent_[p_.wires[n.send_first + k]]++;
    if (n.ends != ~0u) ended_[n.ends]++;
    at_[l]++;
    return true;
  }

  const Paper &p_;
  std::vector<std::vector<uint32_t>> cores_; // the ranks of each
  std::vector<uint32_t> groups_;
  std::vector<uint32_t> at_, sent_, read_, ended_, done_;
  bool together_ = false; // an operation begins when all ranks have ended the one before
};

} // namespace

Paper write_paper(std::span<const std::shared_ptr<const Plan>> plans, const Wiring &wiring, const PlanSource &source) {
  return Writer(plans, wiring, source).write();
}

CriticalPath critical_path(const Paper &paper, const PaperClock &clock) {
  return Schedule(paper, clock).run();
}

float turns_of(const Paper &paper, const Topology &topology, bool together) {
  return Turns(paper, topology).per_operation(together);
}

} // namespace tutti
