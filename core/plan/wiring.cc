#include "plan/wiring.h"
#include "plan/groups.h"
#include "plan/refs.h"
#include <algorithm>
#include <unordered_map>

namespace tutti {
namespace {

constexpr uint32_t kNoWire = ~0u;

// Messages per slice and the widest one, for each link of one direction of a lane.
struct LinkUse {
  std::vector<uint64_t> messages;
  std::vector<uint32_t> width;
};

LinkUse link_use(const PlanLane &lane, bool receiving) {
  LinkUse use;
  const size_t links = receiving ? lane.recv.size() : lane.send.size();
  use.messages.assign(links, 0);
  use.width.assign(links, 1);
  for (const tutti_step &s : lane.steps) {
    const uint32_t first = receiving ? s.recv_first : s.send_first, count = receiving ? s.recv_count : s.send_count;
    if (count == 0) continue;
    const uint32_t rounds = s.link_stride ? s.repeat : 1, each = s.link_stride ? 1 : s.repeat;
    for (uint32_t i = 0; i < rounds; i++)
      for (uint32_t j = 0; j < count; j++) {
        const auto at = static_cast<size_t>(first + static_cast<int64_t>(i) * s.link_stride + j);
        use.messages[at] += each;
        use.width[at] = std::max<uint32_t>(use.width[at], sizing_ref(s).count);
      }
  }
  return use;
}

class Joiner {
public:
  Joiner(Plans plans, Findings &findings) : plans_(plans), findings_(findings) {}

  Wiring join() {
    size_t links = 0;
    for (const auto &p : plans_)
      for (const PlanLane &lane : p->lanes) links += lane.recv.size();
    by_key_.reserve(links);
    w_.wires.reserve(links);
    for (uint32_t r = 0; r < plans_.size(); r++) {
      w_.lane_base.push_back(lanes_);
      for (const PlanLane &lane : plans_[r]->lanes) add_receivers(r, lane);
    }
    w_.lane_base.push_back(lanes_);
    lanes_ = 0;
    for (uint32_t r = 0; r < plans_.size(); r++)
      for (const PlanLane &lane : plans_[r]->lanes) add_senders(r, lane);
    w_.send_start.push_back(static_cast<uint32_t>(w_.send_wire.size()));
    for (const Wire &wire : w_.wires)
      if (wire.writer == kNoWire)
        findings_.add("link", "{} receives from {} (conn {}), which has no such send link", name(wire.dst), name(wire.src),
                      wire.conn);
    return std::move(w_);
  }

private:
  std::string name(uint32_t rank) const { return rank_name(plans_, rank); }
  static uint64_t key(uint64_t src, uint64_t dst, uint64_t conn, bool multicast) {
    return (src << 40) ^ (dst << 17) ^ (conn << 1) ^ (multicast ? 1 : 0);
  }

  void add_receivers(uint32_t rank, const PlanLane &lane) {
    const LinkUse use = link_use(lane, true);
    w_.recv_base.push_back(static_cast<uint32_t>(w_.recv_wire.size()));
    for (size_t i = 0; i < lane.recv.size(); i++) {
      const tutti_link &l = lane.recv[i];
      const auto number = static_cast<uint32_t>(w_.wires.size());
      by_key_.emplace(key(static_cast<uint32_t>(l.peer), rank, l.conn, l.flags & TUTTI_LINK_MULTICAST), number);
      w_.wires.push_back({static_cast<uint32_t>(l.peer), rank, l.conn, kNoWire, lanes_, use.width[i]});
      messages_.push_back(use.messages[i]);
      groups_.push_back(lane.group);
      w_.recv_wire.push_back(number);
    }
    lanes_++;
  }

  void add_senders(uint32_t rank, const PlanLane &lane) {
    const LinkUse use = link_use(lane, false);
    w_.send_base.push_back(static_cast<uint32_t>(w_.send_start.size()));
    for (size_t i = 0; i < lane.send.size(); i++) {
      const tutti_link &l = lane.send[i];
      w_.send_start.push_back(static_cast<uint32_t>(w_.send_wire.size()));
      if (!(l.flags & TUTTI_LINK_MULTICAST)) {
        add_target(rank, static_cast<uint32_t>(l.peer), l, lane, use, i);
        continue;
      }
      for (uint32_t r = 0; r < plans_.size(); r++)
        if (r != rank) add_target(rank, r, l, lane, use, i);
    }
    lanes_++;
  }

  void add_target(uint32_t src, uint32_t dst, const tutti_link &l, const PlanLane &lane, const LinkUse &use, size_t i) {
    const auto it = by_key_.find(key(src, dst, l.conn, l.flags & TUTTI_LINK_MULTICAST));
    if (it == by_key_.end()) {
      findings_.add("link", "{} sends to {} (conn {}), which has no such receive link", name(src), name(dst), l.conn);
      return;
    }
    Wire &wire = w_.wires[it->second];
    wire.writer = lanes_;
    wire.width = std::max(wire.width, use.width[i]);
    w_.send_wire.push_back(it->second);
    if (messages_[it->second] != use.messages[i])
      findings_.add("link", "{} sends {} messages per slice to {} (conn {}), which expects {}", name(src), use.messages[i],
                    name(dst), l.conn, messages_[it->second]);
    if (groups_[it->second] != lane.group)
      findings_.add("link", "{} sends group {} to {} (conn {}), which expects group {}", name(src), lane.group, name(dst),
                    l.conn, groups_[it->second]);
  }

  Plans plans_;
  Findings &findings_;
  Wiring w_;
  uint32_t lanes_ = 0;
  std::unordered_map<uint64_t, uint32_t> by_key_;
  std::vector<uint64_t> messages_; // by wire, as the reader has them
  std::vector<uint32_t> groups_;
};

template <class T> void same(Findings &f, size_t rank, const char *field, const T &mine, const T &first) {
  if (mine != first) f.add("shape", "rank {}: {} is {}, but {} on rank 0", rank, field, mine, first);
}

// Sizes that a rank must know but does not, when blocks differ.
void check_known_sizes(const Plan &p, Findings &findings) {
  if (!(p.request.flags & TUTTI_REQ_NONUNIFORM)) return;
  for (size_t l = 0; l < p.lanes.size(); l++)
    for (size_t i = 0; i < p.lanes[l].steps.size(); i++) {
      const tutti_step &s = p.lanes[l].steps[i];
      for (uint32_t it = 0; it < s.repeat; it++) {
        const auto id = sizing_chunk(p, sizing_ref(s).buf, static_cast<uint32_t>(ref_first(sizing_ref(s), it)));
        if (id.buf == TUTTI_BUF_IN ? has_in(p) : has_out(p)) continue;
        findings.add("shape", "rank {} lane {} step {}: message sized as {} chunk {}, whose size this rank does not know",
                     p.request.rank, l, i, buf_name(id.buf), id.chunk);
        break;
      }
    }
}

} // namespace

void check_shapes(Plans plans, Findings &findings) {
  for (size_t r = 0; r < plans.size(); r++)
    if (!plans[r]) return findings.add("shape", "rank {} has no plan", r);
  for (size_t r = 0; r < plans.size(); r++) {
    const Plan &p = *plans[r], &first = *plans[0];
    if (p.request.rank != static_cast<int>(r)) findings.add("shape", "rank {}: its plan is rank {}'s", r, p.request.rank);
    if (p.request.nranks != static_cast<int>(plans.size()))
      findings.add("shape", "rank {}: planned for {} ranks, of {}", r, p.request.nranks, plans.size());
    same(findings, r, "collective", coll_name(p.request.coll), coll_name(first.request.coll));
    same(findings, r, "root", p.request.root, first.request.root);
    same(findings, r, "flags", p.request.flags, first.request.flags);
    same(findings, r, "in_chunks", p.in_chunks, first.in_chunks);
    same(findings, r, "out_chunks", p.out_chunks, first.out_chunks);
    same(findings, r, "groups", p.groups, first.groups);
    same(findings, r, "min_depth", p.min_depth, first.min_depth);
    same(findings, r, "window", p.window, first.window);
    check_known_sizes(p, findings);
  }
}

Wiring wire_links(Plans plans, Findings &findings) {
  return Joiner(plans, findings).join();
}

} // namespace tutti
