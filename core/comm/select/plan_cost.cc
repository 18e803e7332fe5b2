#include "comm/select/plan_cost.h"
#include "base/fork.h"
#include "base/types.h"
#include "comm/select/determinism.h"
#include "comm/select/plan_paper.h"
#include "plan/groups.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>

namespace tutti {

void Work::add(const Work &o, float times) {
  for (size_t c = 0; c < kLinkClasses; c++) {
    sent[c] += o.sent[c] * times, received[c] += o.received[c] * times;
    out[c] += o.out[c] * times, in[c] += o.in[c] * times;
  }
  grouped += o.grouped * times, steps += o.steps * times, lent += o.lent * times, touched += o.touched * times,
      reduced += o.reduced * times;
  copied += o.copied * times;
}

LinkClass PlanSource::between(uint32_t a, uint32_t b) const {
  if (std::max(a, b) >= topology->node_of_rank.size()) return LinkClass::net; // stands for a collnet group
  if (!process_of_rank.empty() && process_of_rank[a] == process_of_rank[b]) return LinkClass::local;
  return shm && topology->node_of_rank[a] == topology->node_of_rank[b] ? LinkClass::shm : LinkClass::net;
}

namespace {

constexpr size_t kMostRemembered = 4096;

using RankPlans = std::vector<std::shared_ptr<const Plan>>;

// All that one rank does in a slice.
Work rank_work(const Plan &p, const PlanSource &source) {
  const auto me = static_cast<uint32_t>(p.request.rank);
  // What all others read was written once, and is in their memory as well: the class is that of any of them.
  const auto class_of = [&](const tutti_link &l) {
    if (l.flags & TUTTI_LINK_REDUCING) return index_of(LinkClass::net);
    const uint32_t other = static_cast<uint32_t>(l.peer) != me ? static_cast<uint32_t>(l.peer) : me == 0 ? 1 : 0;
    return index_of(source.between(me, other));
  };
  Work all;
  for (const PlanLane &lane : p.lanes)
    for (uint32_t i = 0; i < lane.steps.size(); i++) {
      const tutti_step &s = lane.steps[i];
      const Work once = step_work(p, lane, i);
      all.add(once, static_cast<float>(s.repeat));
      const tutti_ref &sizing = (s.ops & TUTTI_STEP_SRC) ? s.src : s.dst;
      const float share = chunk_share(p) * static_cast<float>(sizing.count);
      for (uint32_t iter = 0; iter < s.repeat; iter++) {
        const auto shift = static_cast<int64_t>(iter) * s.link_stride;
        for (uint32_t k = 0; k < s.recv_count; k++) {
          const size_t c = class_of(lane.recv[static_cast<size_t>(s.recv_first + shift + k)]);
          all.received[c]++, all.in[c] += share;
        }
        for (uint32_t k = 0; k < s.send_count; k++) {
          const tutti_link &l = lane.send[static_cast<size_t>(s.send_first + shift + k)];
          const size_t c = class_of(l);
          all.sent[c]++, all.out[c] += share;
          if (l.flags & TUTTI_LINK_REDUCING) all.grouped += share;
        }
      }
    }
  return all;
}

uint32_t rings_of(const Plan &p) {
  size_t rings = 0;
  for (const PlanLane &lane : p.lanes) rings += lane.recv.size() + lane.send.size();
  return static_cast<uint32_t>(rings);
}

float load_of(const Work &w) {
  return time_on(kQuickClock, w) + time_on(kBroadClock, w) * 1e3f; // bytes first
}

void note_rank(PlanCost &cost, const Work &w) {
  const auto in = [](const Work &x) { return x.in[0] + x.in[1] + x.in[2]; };
  if (load_of(w) > load_of(cost.busiest)) cost.busiest = w;
  if (in(w) > in(cost.reader)) cost.reader = w;
}

// The host whose cores have most to do, `work` being of a rank there on average.
size_t fullest_host(const Topology &t) {
  size_t best = 0;
  const auto per_core = [&](size_t h) { return double(t.ranks_on_node[h]) / std::max(1u, t.cores_on_node[h]); };
  for (size_t h = 1; h < t.node_count; h++)
    if (per_core(h) > per_core(best)) best = h;
  return best;
}

void add_host(PlanCost &cost, const PlanSource &source, std::span<const Work> works) {
  const Topology &t = *source.topology;
  for (size_t h = 0; h < t.node_count; h++) {
    PlanCost::Host host;
    host.ranks = t.ranks_on_node[h], host.cores = std::max(1u, t.cores_on_node[h]);
    for (size_t r = 0; r < works.size(); r++)
      if (static_cast<size_t>(t.node_of_rank[r]) == h) host.work.add(works[r]);
    if (h == 0 ||
        load_of(host.work) / static_cast<float>(host.cores) > load_of(cost.host.work) / static_cast<float>(cost.host.cores))
      cost.host = host;
  }
}

PlanRequest request_of(const PlanSource &s, int rank) {
  return make_request(*s.topology, s.coll, rank, coll_has_root(s.coll) ? 0 : -1, 1, s.flags);
}

Result<PlanCost> cost_all(const PlanSource &source) {
  RankPlans plans;
  for (int r = 0; r < static_cast<int>(source.topology->node_of_rank.size()); r++) {
    TUTTI_ASSIGN(plan, build_plan(source.algo, request_of(source, r)));
    plans.push_back(std::move(plan));
  }
  return cost_of_plans(plans, source);
}

// ---- jobs of more ranks than are looked at

Topology one_host(uint32_t ranks, uint32_t cores) {
  Topology t;
  t.node_count = 1;
  t.node_of_rank.assign(ranks, 0);
  t.ranks_on_node = {ranks}, t.cores_on_node = {cores};
  for (uint32_t r = 0; r < ranks; r++) t.ring_order.push_back(static_cast<int32_t>(r));
  return t;
}

// What is `half` with half of kMostCosted ranks and `full` with all: with n. More than two more for twice as many ranks is
// taken as growth with the number of ranks, less as growth with its logarithm.
double grown(double half, double full, double n) {
  const double more = full - half, most = kMostCosted;
  return more > 2.5 ? full + more / (most / 2) * (n - most) : full + more * std::log2(n / most);
}

// rounds < 0: the algorithm does not say. bytes: share that the rank sends, likewise.
struct Own {
  double rounds = -1, bytes = -1;
};
Own ask_algorithm(const PlanSource &s, int rank) {
  Own own;
  if (!TUTTI_HAS(tutti_algo_v1, s.algo.table, estimate)) return own;
  const PlanRequest request = request_of(s, rank);
  const RequestView view(request);
  double rounds = -1, bytes = -1;
  if (s.algo.table->estimate(s.algo.plugin->state, view.c(), &rounds, &bytes) != TUTTI_OK) return own;
  if (std::isfinite(rounds) && rounds > 0) own.rounds = rounds;
  if (std::isfinite(bytes) && bytes > 0) own.bytes = bytes;
  return own;
}

void scale_sent(Work &w, double bytes) {
  const float now = w.out[0] + w.out[1] + w.out[2];
  if (bytes < 0 || now <= 0) return;
  const float factor = static_cast<float>(bytes) / now;
  for (float &o : w.out) o *= factor;
  w.lent *= factor;
}

std::vector<int> sampled_ranks(const Topology &t) {
  const int n = static_cast<int>(t.node_of_rank.size());
  std::vector<int> out{0, 1, n / 2, n - 1}; // with a root the first of them is it
  if (n > 256) out.resize(2);
  return out;
}

Result<PlanCost> cost_some(const PlanSource &source) {
  const Topology &t = *source.topology;
  const auto n = static_cast<double>(t.node_of_rank.size());
  PlanCost cost;
  cost.all_ranks = false;
  Work others; // of all but the first of those looked at
  Work first;
  double rounds = -1;
  const std::vector<int> ranks = sampled_ranks(t);
  for (const int r : ranks) {
    TUTTI_ASSIGN(plan, build_plan(source.algo, request_of(source, r)));
    Work w = rank_work(*plan, source);
    const Own own = ask_algorithm(source, r);
    scale_sent(w, own.bytes);
    rounds = std::max(rounds, own.rounds);
    note_rank(cost, w);
    (r == 0 ? first : others).add(w);
    cost.chunk = chunk_share(*plan);
    cost.rings = std::max(cost.rings, rings_of(*plan));
  }
  const size_t h = fullest_host(t);
  cost.host.ranks = t.ranks_on_node[h], cost.host.cores = std::max(1u, t.cores_on_node[h]);
  cost.host.work = first;
  cost.host.work.add(others, static_cast<float>(cost.host.ranks - 1) / static_cast<float>(ranks.size() - 1));

  const double per_core = double(cost.host.cores) / cost.host.ranks;
  std::array<std::shared_ptr<const PlanCost>, 2> small;
  for (size_t i = 0; i < 2; i++) {
    const uint32_t m = i == 0 ? kMostCosted / 2 : kMostCosted;
    const Topology host = one_host(m, std::max(1u, static_cast<uint32_t>(m * per_core)));
    PlanSource s = source;
    s.topology = &host, s.process_of_rank = {}, s.shm = true;
    TUTTI_ASSIGN(c, plan_cost(s));
    small[i] = c;
  }
  if (rounds < 0) rounds = grown(small[0]->quick.rounds(), small[1]->quick.rounds(), n);
  if (cost.host.oversubscribed()) cost.turns = static_cast<float>(grown(small[0]->turns, small[1]->turns, cost.host.ranks));
  // Rounds are of the classes that those looked at receive by; each carries what their messages do on average.
  Work sum = first;
  sum.add(others);
  const float received = sum.received[0] + sum.received[1] + sum.received[2];
  for (size_t c = 0; c < kLinkClasses && received > 0; c++)
    cost.quick.hops[c] = static_cast<float>(rounds) * sum.received[c] / received;
  const float own = cost.busiest.messages() / 2;
  cost.quick.work.add(cost.busiest, own > 0 ? std::max(1.0f, static_cast<float>(rounds) / own) : 1);
  cost.broad = cost.quick;
  return cost;
}

// ---- jobs that meet in collnet groups

// Two hosts like the fullest one. A host's way into a group and out of it does not depend on how many others there are, so its
// plans there are those of the whole job, and few: a rank has about as many messages as its host has ranks.
Topology two_hosts(const Topology &all) {
  const size_t host = fullest_host(all);
  Topology two;
  two.node_count = 2;
  two.ranks_on_node.assign(2, all.ranks_on_node[host]), two.cores_on_node.assign(2, all.cores_on_node[host]);
  two.groups.resize(all.groups.size());
  for (int32_t h = 0; h < 2; h++)
    for (size_t r = 0; r < all.node_of_rank.size(); r++) {
      if (static_cast<size_t>(all.node_of_rank[r]) != host) continue;
      const auto me = static_cast<int32_t>(two.node_of_rank.size());
      for (size_t g = 0; g < all.groups.size(); g++)
        if (static_cast<size_t>(all.groups[g][host]) == r) two.groups[g].push_back(me);
      two.node_of_rank.push_back(h);
      two.ring_order.push_back(me);
    }
  return two;
}

// Which ranks of them are threads of one process.
std::vector<int32_t> processes_of(const PlanSource &source) {
  std::vector<int32_t> out;
  if (source.process_of_rank.empty()) return out;
  const Topology &all = *source.topology;
  const size_t host = fullest_host(all);
  const int32_t other = 1 + *std::max_element(source.process_of_rank.begin(), source.process_of_rank.end());
  for (int32_t h = 0; h < 2; h++)
    for (size_t r = 0; r < all.node_of_rank.size(); r++)
      if (static_cast<size_t>(all.node_of_rank[r]) == host) out.push_back(source.process_of_rank[r] + h * other);
  return out;
}

Result<bool> meets_in_groups(const PlanSource &source) {
  if (source.topology->groups.empty()) return false;
  TUTTI_ASSIGN(plan, build_plan(source.algo, request_of(source, source.topology->groups[0][0])));
  return has_groups(*plan);
}

Result<PlanCost> cost_large(const PlanSource &source) {
  TUTTI_ASSIGN(grouped, meets_in_groups(source));
  if (!grouped) return cost_some(source);
  const Topology two = two_hosts(*source.topology);
  const std::vector<int32_t> processes = processes_of(source);
  PlanSource s = source;
  s.topology = &two, s.process_of_rank = processes;
  return cost_all(s);
}

// Most algorithms have no use for links with several readers: their plans are those without.
Result<bool> uses_multicast(const PlanSource &source) {
  TUTTI_ASSIGN(plan, build_plan(source.algo, request_of(source, 0)));
  for (const PlanLane &lane : plan->lanes)
    for (const auto *links : {&lane.recv, &lane.send})
      for (const tutti_link &l : *links)
        if (l.flags & TUTTI_LINK_MULTICAST) return true;
  return false;
}

Result<PlanCost> find_cost(const PlanSource &source) {
  if (source.flags & TUTTI_REQ_MULTICAST) {
    TUTTI_ASSIGN(used, uses_multicast(source));
    PlanSource without = source;
    without.flags &= ~uint32_t{TUTTI_REQ_MULTICAST};
    if (!used) {
      TUTTI_ASSIGN(cost, plan_cost(without));
      return *cost;
    }
  }
  return source.topology->node_of_rank.size() <= kMostCosted ? cost_all(source) : cost_large(source);
}

// ---- what was found before

struct Remembered {
  ChildFreeMutex mutex; // guards costs
  std::map<std::string, std::shared_ptr<const PlanCost>> costs;
};
Remembered &remembered() {
  static auto *r = new Remembered;
  return *r;
}

template <class T> void append(std::string &out, std::span<const T> values) {
  out.append(reinterpret_cast<const char *>(values.data()), values.size_bytes());
  out.push_back(';');
}
std::string key_of(const PlanSource &s) {
  const uint64_t head[] = {reinterpret_cast<uintptr_t>(s.algo.table), s.coll, s.flags, s.shm};
  std::string out;
  append<uint64_t>(out, head);
  append<int32_t>(out, s.topology->node_of_rank);
  append<uint32_t>(out, s.topology->cores_on_node);
  const PlanRequest first = request_of(s, 0);
  append<int32_t>(out, first.channel[0].order);
  for (const auto &group : s.topology->groups) append<int32_t>(out, group);
  append<int32_t>(out, first.channel[0].tree_children); // one rank's part tells trees apart
  append<int32_t>(out, s.process_of_rank);
  return out;
}

} // namespace

Result<PlanCost> cost_of_plans(std::span<const std::shared_ptr<const Plan>> plans, const PlanSource &source) {
  Findings findings;
  const WithGroups all(plans, findings);
  const Wiring wiring = wire_links(all.plans(), findings);
  if (!findings.empty()) return fail(Code::internal, "its plans do not fit together: {}", findings.take()[0].text);
  const Paper paper = write_paper(all.plans(), wiring, source);
  PlanCost cost;
  cost.quick = critical_path(paper, kQuickClock);
  cost.broad = critical_path(paper, kBroadClock);
  std::vector<Work> works(plans.size());
  std::vector<uint32_t> queued(paper.wire_count, 0);
  for (const PaperLane &lane : paper.lanes) {
    if (lane.rank >= plans.size()) continue; // no rank's work
    for (uint32_t i = lane.first; i < lane.end; i++) {
      const PaperNode &node = paper.nodes[i];
      works[lane.rank].add(node.work);
      for (uint32_t k = 0; k < node.send_count; k++)
        cost.queued = std::max(cost.queued, ++queued[paper.wires[node.send_first + k]]);
    }
  }
  for (size_t r = 0; r < plans.size(); r++) {
    note_rank(cost, works[r]);
    cost.rings = std::max(cost.rings, rings_of(*plans[r]));
  }
  add_host(cost, source, works);
  if (cost.host.oversubscribed()) cost.turns = turns_of(paper, *source.topology, coll_has_root(source.coll));
  cost.chunk = chunk_share(*plans[0]);
  return cost;
}

Result<std::shared_ptr<const PlanCost>> plan_cost(const PlanSource &source) {
  const std::string key = key_of(source);
  {
    std::lock_guard lock(remembered().mutex);
    if (const auto it = remembered().costs.find(key); it != remembered().costs.end()) return it->second;
  }
  auto cost = find_cost(source);
  if (!cost.ok()) return std::move(cost.status());
  auto out = std::make_shared<const PlanCost>(*cost);
  std::lock_guard lock(remembered().mutex);
  if (remembered().costs.size() >= kMostRemembered) remembered().costs.clear();
  remembered().costs[key] = out;
  return out;
}

} // namespace tutti
