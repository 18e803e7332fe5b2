#include "plan/simulate.h"
#include "base/types.h"
#include "plan/groups.h"
#include "plan/refs.h"
#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>

namespace tutti {
namespace {

constexpr uint32_t kUnlimited = ~0u;

class Simulator {
public:
  Simulator(Plans plans, const Wiring &wiring, const SimulateOptions &options) : plans_(plans), w_(wiring), o_(options) {
    const Plan &p = *plans[0];
    const auto all = static_cast<uint32_t>(plans.size());
    n_ = static_cast<uint32_t>(p.request.nranks);
    const uint32_t blocks = std::max(coll_in_blocks(p.request.coll, n_), coll_out_blocks(p.request.coll, n_));
    block_ = o_.bytes / blocks;
    slice_ = o_.slice ? o_.slice : std::max<uint64_t>(block_, 1);
    slices_ = std::max<uint64_t>((chunk(p, 0, TUTTI_BUF_IN, 0).bytes + slice_ - 1) / slice_, 1);
    depth_ = o_.depth ? o_.depth : p.min_depth;
    window_ = p.window ? p.window : kUnlimited;
    links_.resize(w_.wires.size());
    ports_.resize(size_t{all} * 4);
    for (uint32_t r = 0; r < all; r++)
      for (uint32_t l = 0; l < plans[r]->lanes.size(); l++) lanes_.push_back({r, l, plans[r]->lanes[l].group, {}});
    for (uint32_t l = 0; l < lanes_.size(); l++) lanes_[l].finished.resize(plan_of(l).lanes[lanes_[l].lane].steps.size());
    out_.wires = w_.wires;
    for (uint32_t r = 0; r < all; r++) out_.ranks.push_back(rank_name(plans, r));
    out_.wire_bytes.assign(w_.wires.size(), 0);
  }

  Result<Simulation> run() {
    if (slices_ > o_.limit)
      return fail(Code::invalid_argument, "{} slices are too many to simulate (limit {}): fewer bytes, or longer slices",
                  slices_, o_.limit);
    for (uint32_t l = 0; l < lanes_.size(); l++) look(l, 0);
    while (!events_.empty() && !too_many()) {
      const Event e = events_.top();
      events_.pop();
      if (e.what == What::head)
        head_arrives(e.number, e.time);
      else if (e.what == What::tail)
        tail_arrives(e.number, e.time);
      else
        run_ends(e.number, e.time);
    }
    if (too_many())
      return fail(Code::invalid_argument, "more than {} steps or messages to simulate: fewer ranks, channels or slices",
                  o_.limit);
    for (uint32_t l = 0; l < lanes_.size(); l++)
      if (lanes_[l].slice < slices_)
        return fail(Code::invalid_argument, "{} lane {} step {} waits for ever", rank_name(plans_, lanes_[l].rank),
                    lanes_[l].lane, lanes_[l].step);
    find_critical();
    return std::move(out_);
  }

private:
  enum class What : uint8_t { end, tail, head }; // what happens first of what happens at once
  struct Event {
    double time;
    What what;
    uint64_t order; // of creation, for the same result every time
    uint32_t number;
    bool operator<(const Event &o) const { return std::tie(o.time, o.what, o.order) < std::tie(time, what, order); }
  };
  struct Ended { // the last time that all iterations of a step had finished
    uint32_t slices = 0;
    int64_t run = -1;
  };
  struct Lane {
    uint32_t rank, lane, group;
    std::vector<Ended> finished; // by step
    uint32_t slice = 0, step = 0, iter = 0;
    bool busy = false;
    int64_t last = -1; // run
    double free = 0;   // when it ended
  };
  struct Link {
    std::deque<uint32_t> arrived, sent; // messages; all sent that have not ended
    uint32_t used = 0;
    int64_t freed_by = -1; // run whose end freed a slot last
  };
  struct Port {
    double free = 0;
    int64_t message = -1;
  };
  struct Cause {
    SimRun::Cause cause = SimRun::Cause::start;
    int64_t after = -1;
    double time = 0;
    void later(double t, SimRun::Cause c, int64_t a) {
      if (a >= 0 && (after < 0 || t > time)) cause = c, after = a, time = t;
    }
  };

  bool too_many() const { return std::max(out_.runs.size(), out_.messages.size()) > o_.limit; }
  const Plan &plan_of(uint32_t l) const { return *plans_[lanes_[l].rank]; }
  Span chunk(const Plan &p, uint32_t group, uint32_t buf, uint32_t c) const {
    const tutti_chunk_id id = sizing_chunk(p, buf, c);
    const auto n = static_cast<uint32_t>(p.request.nranks);
    const uint32_t blocks = id.buf == TUTTI_BUF_IN ? coll_in_blocks(p.request.coll, n) : coll_out_blocks(p.request.coll, n);
    return chunk_span({blocks, block_, nullptr, nullptr}, p.pieces(), p.groups, group, id.chunk);
  }
  uint64_t message_bytes(uint32_t l, const tutti_step &s) const {
    const tutti_ref &r = sizing_ref(s);
    uint64_t bytes = 0;
    for (uint32_t j = 0; j < r.count; j++)
      bytes += slice_span(chunk(plan_of(l), lanes_[l].group, r.buf, static_cast<uint32_t>(ref_first(r, lanes_[l].iter)) + j),
                          slice_, lanes_[l].slice)
                   .bytes;
    return bytes;
  }
  bool to_group(const Wire &w) const { return w.dst >= n_; }
  bool from_group(const Wire &w) const { return w.src >= n_; }
  bool between_hosts(const Wire &w) const {
    const auto &node = plans_[0]->request.node_of_rank;
    return to_group(w) || from_group(w) || node[w.src] != node[w.dst];
  }
  const LinkCost &cost(const Wire &w) const { return between_hosts(w) ? o_.net : o_.host; }
  double alpha(const Wire &w) const { return cost(w).alpha * (to_group(w) || from_group(w) ? o_.group_depth : 1); }
  // How long a message occupies the port of its sender, or of its receiver.
  double occupies(const Wire &w, uint64_t bytes, bool receiving) const {
    const bool groups = receiving ? to_group(w) : from_group(w);
    const double beta = groups ? o_.group_beta : cost(w).beta;
    return beta > 0 ? static_cast<double>(bytes) / beta : 0;
  }
  Port &port(uint32_t rank, const Wire &w, bool receiving) {
    return ports_[size_t{rank} * 4 + (between_hosts(w) ? 2 : 0) + (receiving ? 1 : 0)];
  }
  void at(double time, What what, uint32_t number) { events_.push({time, what, order_++, number}); }

  // Begins whatever lane l can do now.
  void look(uint32_t l, double now) {
    Lane &lane = lanes_[l];
    const auto &steps = plan_of(l).lanes[lane.lane].steps;
    while (!lane.busy && lane.slice < slices_ && !too_many()) {
      Cause cause;
      cause.later(lane.free, SimRun::Cause::lane, lane.last);
      if (lane.step == 0 && lane.iter == 0 && !in_window(l, &cause)) return;
      if (steps.empty()) {
        lane.slice++;
        look_rank(lane.rank, now);
        continue;
      }
      const tutti_step &s = steps[lane.step];
      if (lane.iter == 0 && !deps_met(l, s, &cause)) return;
      const uint64_t bytes = message_bytes(l, s);
      if (bytes == 0) {
        const uint32_t step = lane.step;
        next(l, lane.last);
        if (lane.step != step || steps.size() == 1) look_rank(lane.rank, now); // others may wait for this one
        continue;
      }
      if (!links_ready(l, s, &cause)) return;
      begin(l, s, bytes, now, cause);
    }
  }
  void look_rank(uint32_t rank, double now) {
    for (uint32_t i = w_.lane_base[rank]; i < w_.lane_base[rank + 1]; i++)
      if (!lanes_[i].busy) pending_.push_back(i);
    if (looking_) return;
    looking_ = true;
    while (!pending_.empty()) {
      const uint32_t i = pending_.front();
      pending_.pop_front();
      look(i, now);
    }
    looking_ = false;
  }
  bool in_window(uint32_t l, Cause *cause) const {
    const Lane &me = lanes_[l];
    if (window_ == kUnlimited || me.slice < window_) return true;
    for (uint32_t i = w_.lane_base[me.rank]; i < w_.lane_base[me.rank + 1]; i++) {
      const Lane &o = lanes_[i];
      if (o.group != me.group) continue;
      if (o.slice + window_ <= me.slice) return false;
      if (i != l && o.slice + window_ == me.slice + 1 && o.step == 0 && o.iter == 0)
        cause->later(o.free, SimRun::Cause::window, o.last);
    }
    return true;
  }
  bool deps_met(uint32_t l, const tutti_step &s, Cause *cause) const {
    for (uint32_t d = 0; d < s.dep_count; d++) {
      const tutti_dep &dep = plan_of(l).deps[s.dep_first + d];
      const Ended &e = lanes_[w_.lane_base[lanes_[l].rank] + dep.lane].finished[dep.step];
      if (e.slices <= lanes_[l].slice) return false;
      if (e.run >= 0) cause->later(out_.runs[static_cast<size_t>(e.run)].end, SimRun::Cause::dep, e.run);
    }
    return true;
  }
  template <class Fn> bool each_source(uint32_t l, const tutti_step &s, Fn fn) const {
    const auto first = static_cast<int64_t>(s.recv_first) + static_cast<int64_t>(lanes_[l].iter) * s.link_stride;
    for (uint32_t i = 0; i < s.recv_count; i++)
      if (!fn(w_.source(l, static_cast<uint32_t>(first + i)))) return false;
    return true;
  }
  // fn(wire, whether it is the first one of its link): a link with several readers has a wire to each.
  template <class Fn> bool each_target(uint32_t l, const tutti_step &s, Fn fn) const {
    const auto first = static_cast<int64_t>(s.send_first) + static_cast<int64_t>(lanes_[l].iter) * s.link_stride;
    for (uint32_t i = 0; i < s.send_count; i++) {
      const auto wires = w_.targets(l, static_cast<uint32_t>(first + i));
      for (const uint32_t &wire : wires)
        if (!fn(wire, &wire == wires.data())) return false;
    }
    return true;
  }
  bool links_ready(uint32_t l, const tutti_step &s, Cause *cause) const {
    return each_source(l, s,
                       [&](uint32_t wire) {
                         if (links_[wire].arrived.empty()) return false;
                         const uint32_t m = links_[wire].arrived.front();
                         cause->later(out_.messages[m].arrives, SimRun::Cause::message, m);
                         return true;
                       }) &&
           each_target(l, s, [&](uint32_t wire, bool) {
             if (links_[wire].used >= depth_) return false;
             if (links_[wire].used + 1 == depth_ && links_[wire].freed_by >= 0)
               cause->later(out_.runs[static_cast<size_t>(links_[wire].freed_by)].end, SimRun::Cause::room,
                            links_[wire].freed_by);
             return true;
           });
  }
  void begin(uint32_t l, const tutti_step &s, uint64_t bytes, double now, const Cause &cause) {
    Lane &lane = lanes_[l];
    const auto number = static_cast<uint32_t>(out_.runs.size());
    out_.runs.push_back({lane.rank, lane.lane, lane.slice, lane.step, lane.iter, now, now, cause.cause, cause.after});
    taking_.resize(lanes_.size());
    taking_[l].clear();
    each_source(l, s, [&](uint32_t wire) {
      out_.messages[links_[wire].arrived.front()].to = number;
      links_[wire].arrived.pop_front();
      taking_[l].push_back(wire);
      return true;
    });
    double end = now, leaves = now;
    int64_t before = -1; // the message that the port was busy with
    each_target(l, s, [&](uint32_t wire, bool leads) {
      const Wire &w = w_.wires[wire];
      Port &out = port(lane.rank, w, false);
      const auto m = static_cast<uint32_t>(out_.messages.size());
      if (leads) { // written once, for all readers
        leaves = std::max(now, out.free);
        before = out.free > now ? out.message : -1;
        out.free = leaves + occupies(w, bytes, false);
        out.message = m;
        end = std::max(end, out.free);
      }
      out_.messages.push_back({wire, number, number, bytes, leaves, 0, before});
      links_[wire].used++;
      out_.wire_bytes[wire] += bytes;
      at(leaves + alpha(w), What::head, m);
      return true;
    });
    out_.runs[number].end = end;
    lane.busy = true;
    lane_of_run_.push_back(l);
    at(end, What::end, number);
  }
  void head_arrives(uint32_t m, double now) {
    SimMessage &message = out_.messages[m];
    const Wire &w = w_.wires[message.wire];
    Port &in = port(w.dst, w, true);
    if (in.free > now) message.behind = in.message;
    in.free = std::max(now, in.free) + occupies(w, message.bytes, true);
    in.message = m;
    // A port that takes more than its sender gives still has the tail no earlier than that has left.
    message.arrives = std::max(in.free, now + static_cast<double>(message.bytes) / cost(w).beta);
    at(message.arrives, What::tail, m);
  }
  void tail_arrives(uint32_t m, double now) {
    const uint32_t wire = out_.messages[m].wire;
    links_[wire].arrived.push_back(m);
    look(w_.wires[wire].reader, now);
  }
  void run_ends(uint32_t number, double now) {
    const uint32_t l = lane_of_run_[number];
    Lane &lane = lanes_[l];
    lane.busy = false;
    lane.free = now;
    lane.last = number;
    out_.seconds = std::max(out_.seconds, now);
    next(l, number);
    for (const uint32_t wire : taking_[l]) {
      links_[wire].used--;
      links_[wire].freed_by = number;
      look(w_.wires[wire].writer, now);
    }
    look_rank(lane.rank, now);
  }
  void next(uint32_t l, int64_t run) {
    Lane &lane = lanes_[l];
    const auto &steps = plan_of(l).lanes[lane.lane].steps;
    if (++lane.iter < steps[lane.step].repeat) return;
    lane.finished[lane.step] = {lane.slice + 1, run};
    lane.iter = 0;
    if (++lane.step < steps.size()) return;
    lane.step = 0;
    lane.slice++;
  }
  void find_critical() {
    int64_t at = -1;
    for (size_t i = 0; i < out_.runs.size(); i++)
      if (at < 0 || out_.runs[i].end > out_.runs[static_cast<size_t>(at)].end) at = static_cast<int64_t>(i);
    while (at >= 0) {
      out_.critical.push_back({false, at});
      const SimRun &r = out_.runs[static_cast<size_t>(at)];
      at = r.after;
      if (r.cause != SimRun::Cause::message) continue;
      for (int64_t m = r.after; m >= 0; m = out_.messages[static_cast<size_t>(m)].behind) {
        out_.critical.push_back({true, m});
        at = out_.messages[static_cast<size_t>(m)].from;
      }
    }
    std::reverse(out_.critical.begin(), out_.critical.end());
  }

  Plans plans_;
  const Wiring &w_;
  const SimulateOptions o_;
  uint32_t n_ = 0; // ranks; from there on they stand for groups
  uint64_t block_ = 0, slice_ = 1;
  uint64_t slices_ = 1; // at most o_.limit
  uint32_t depth_ = 2, window_ = kUnlimited;
  std::vector<Lane> lanes_;
  std::vector<Link> links_;                   // by wire
  std::vector<Port> ports_;                   // by rank: host out, host in, net out, net in
  std::vector<std::vector<uint32_t>> taking_; // by lane: wires whose slots it frees at the end
  std::vector<uint32_t> lane_of_run_;
  std::priority_queue<Event> events_;
  std::deque<uint32_t> pending_; // lanes to look at
  bool looking_ = false;
  uint64_t order_ = 0;
  Simulation out_;
};

} // namespace

Result<Simulation> simulate(Plans plans, const SimulateOptions &options) {
  Findings findings;
  if (plans.empty()) findings.add("shape", "no plans");
  check_shapes(plans, findings);
  if (!findings.empty()) return fail(Code::invalid_argument, "{}", findings.take()[0].text);
  const WithGroups all(plans, findings);
  const Wiring wiring = wire_links(all.plans(), findings);
  if (!findings.empty()) return fail(Code::invalid_argument, "{}", findings.take()[0].text);
  return Simulator(all.plans(), wiring, options).run();
}

} // namespace tutti
