#include "plan/groups.h"
#include "plan/refs.h"
#include <algorithm>
#include <map>

namespace tutti {

uint32_t widest_group_message(const Plan &plan) {
  uint32_t most = 0;
  for (const PlanLane &lane : plan.lanes)
    for (const bool sending : {true, false}) {
      const auto &links = sending ? lane.send : lane.recv;
      for (uint32_t i = 0; i < links.size(); i++)
        if (links[i].flags & TUTTI_LINK_REDUCING) most = std::max(most, most_chunks(lane, sending, i));
    }
  return most;
}
bool has_groups(const Plan &plan) {
  return widest_group_message(plan) > 0;
}

std::string rank_name(Plans plans, uint32_t rank) {
  const auto n = static_cast<uint32_t>(plans[0]->request.nranks);
  return rank < n || rank >= plans.size() ? fmt::format("rank {}", rank) : plans[rank]->algo;
}

WithGroups::WithGroups(Plans plans, Findings &findings) : given_(plans) {
  std::map<uint32_t, std::vector<Member>> links; // by group, in rank order
  for (uint32_t r = 0; r < plans.size(); r++)
    for (uint32_t l = 0; l < plans[r]->lanes.size(); l++)
      for (const bool sends : {true, false}) {
        const auto &list = sends ? plans[r]->lanes[l].send : plans[r]->lanes[l].recv;
        for (uint32_t at = 0; at < list.size(); at++)
          if (list[at].flags & TUTTI_LINK_REDUCING) links[static_cast<uint32_t>(list[at].peer)].push_back({r, l, at, sends});
      }
  if (links.empty()) return;
  for (const auto &[group, members] : links) numbers_.push_back(group);
  for (const auto &plan : plans) made_.push_back(has_groups(*plan) ? rewritten(*plan) : plan);
  for (const auto &[group, members] : links) {
    check_members(group, members, findings);
    made_.push_back(plan_of(group, static_cast<uint32_t>(made_.size()), members, findings));
  }
}

std::shared_ptr<const Plan> WithGroups::rewritten(const Plan &plan) const {
  auto out = std::make_shared<Plan>(plan);
  for (PlanLane &lane : out->lanes)
    for (auto *list : {&lane.send, &lane.recv})
      for (tutti_link &l : *list) {
        if (!(l.flags & TUTTI_LINK_REDUCING)) continue;
        const auto place = std::find(numbers_.begin(), numbers_.end(), static_cast<uint32_t>(l.peer)) - numbers_.begin();
        l.peer = static_cast<int32_t>(static_cast<std::ptrdiff_t>(given_.size()) + place);
        l.flags &= static_cast<uint16_t>(~TUTTI_LINK_REDUCING);
      }
  return out;
}

// Who has to send and who to receive follows from the collective: an executor knows no other rank's plan.
void WithGroups::check_members(uint32_t group, std::span<const Member> links, Findings &findings) const {
  const PlanRequest &q = given_[0]->request;
  const bool broadcast = q.coll == TUTTI_COLL_BROADCAST, reduce = q.coll == TUTTI_COLL_REDUCE;
  for (uint32_t r = 0; r < given_.size(); r++) {
    const auto has = [&](bool sends) {
      return std::any_of(links.begin(), links.end(), [&](const Member &m) { return m.rank == r && m.sends == sends; });
    };
    const PlanRequest &own = given_[r]->request;
    const bool member = group < own.channel.size() && own.channel[group].head == static_cast<int32_t>(r);
    const bool root = member && q.root >= 0 && q.node_of_rank[r] == q.node_of_rank[static_cast<size_t>(q.root)];
    const bool sends = member && (!broadcast || root), receives = member && (broadcast ? !root : !reduce || root);
    const auto wrong = [&](const char *what) {
      findings.add("link", "rank {} {} group {}; in {} {}", r, what, group, coll_name(q.coll),
                   broadcast ? "the member of the root's host sends, the others receive"
                   : reduce  ? "all members send, that of the root's host receives"
                             : "all members send and receive");
    };
    if (has(true) != sends) wrong(sends ? "does not send to" : "sends to");
    if (has(false) != receives) wrong(receives ? "does not receive from" : "receives from");
  }
}

std::vector<WithGroups::Message> WithGroups::messages_of(const Plan &p, const Member &link) {
  std::vector<Message> out;
  for (const tutti_step &s : p.lanes[link.lane].steps) {
    const uint32_t first = link.sends ? s.send_first : s.recv_first, count = link.sends ? s.send_count : s.recv_count;
    const tutti_ref &ref = sizing_ref(s);
    for (uint32_t i = 0; i < s.repeat && count; i++) {
      const int64_t lo = first + static_cast<int64_t>(i) * s.link_stride;
      if (link.at < lo || link.at >= lo + count) continue;
      out.push_back({chunk_identity(p, ref.buf, static_cast<uint32_t>(ref_first(ref, i))), ref.count});
    }
  }
  return out;
}

std::shared_ptr<const Plan> WithGroups::plan_of(uint32_t group, uint32_t rank, std::span<const Member> links,
                                                Findings &findings) const {
  const Plan &like = *given_[links[0].rank];
  auto out = std::make_shared<Plan>();
  out->algo = fmt::format("group {}", group);
  out->request = like.request;
  out->request.rank = static_cast<int>(rank);
  out->in_chunks = like.in_chunks, out->out_chunks = like.out_chunks, out->groups = like.groups;
  out->min_depth = like.min_depth, out->window = like.window;
  PlanLane &lane = out->lanes.emplace_back();
  lane.group = like.lanes[links[0].lane].group;
  const auto messages = messages_of(like, links[0]);
  for (const Member &m : links) {
    const Plan &p = *given_[m.rank];
    if (messages_of(p, m) != messages)
      findings.add("link", "rank {} {} group {} other messages than rank {}, or in another order", m.rank,
                   m.sends ? "sends to" : "expects of", group, links[0].rank);
    const tutti_link &link = (m.sends ? p.lanes[m.lane].send : p.lanes[m.lane].recv)[m.at];
    (m.sends ? lane.recv : lane.send).push_back({static_cast<int32_t>(m.rank), link.conn, 0});
  }
  // Chunks by their place in the collective: those of IN, or of OUT where only OUT has all of them.
  const tutti_coll coll = like.request.coll;
  const uint16_t buf = coll == TUTTI_COLL_ALL_GATHER || coll == TUTTI_COLL_GATHER ? TUTTI_BUF_OUT : TUTTI_BUF_IN;
  for (const Message &m : messages) {
    tutti_step s{};
    s.ops = TUTTI_STEP_RECV | TUTTI_STEP_SEND | (lane.recv.size() > 1 ? uint32_t{TUTTI_STEP_REDUCE} : 0u);
    s.repeat = 1;
    s.dst = {buf, static_cast<uint16_t>(m.count), static_cast<int32_t>(m.identity), 0, 0};
    s.recv_count = static_cast<uint16_t>(lane.recv.size());
    s.send_count = static_cast<uint16_t>(lane.send.size());
    lane.steps.push_back(s);
    lane.life.push_back(0);
  }
  return out;
}

} // namespace tutti
