// tutti/plugins/algo-collnet/schedule.h: collectives through collnet groups; the shape inside a host is the algorithm's.
//
// The data is cut into a share for each channel. The ranks of a host form a tree whose top is the channel's head; contributions
// go up it, combined, the head posts its host's share to the channel's group, and what comes back goes down the tree. Between
// hosts that is 1 byte out and 1 in per byte and host, whatever the number of hosts, and 2 rounds.
//
//   all_reduce, barrier  up, through the group, down
//   reduce               up, through the group to the head of the root's host, from there to the root
//   broadcast            from the root to its host's head, through the group, down
//
// With many slices, up and down are lanes of their own, so that the group has as many of them as it was granted. Lanes begin
// with the share of a rank's own place, so that the ranks of a host do not all feed the same head first.
//
// Rounding: a step's operands are in rank order, and the group combines its members in rank order; everybody gets the same
// result. Which channel an element belongs to decides the heads, so its order of additions depends on its place.
#pragma once
#include <tutti/plugin/cxx/plugin.hpp>

namespace algo_collnet {
using namespace tutti::plugin;

// Where a rank stands in its host's tree. parent -1: it is the head.
struct Place {
  int parent = -1;
  std::vector<int> children; // sorted
};
// The place of `rank` among the others of its host, which the head is one of.
using Shape = Place (*)(const std::vector<int> &ranks, int head, int rank);

inline void check_supported(const tutti_algo_request &req) {
  if (req.coll != TUTTI_COLL_ALL_REDUCE && req.coll != TUTTI_COLL_REDUCE && req.coll != TUTTI_COLL_BROADCAST &&
      req.coll != TUTTI_COLL_BARRIER)
    unsupported("collnet serves all_reduce, reduce, broadcast and barrier only: elsewhere as much has to come into every host "
                "as without it");
  if (!(req.flags & TUTTI_REQ_COLLNET)) unsupported("there is no collnet group to reduce in");
}

class Schedule {
public:
  Schedule(const tutti_algo_request &req, PlanWriter &w, Shape shape)
      : req_(req), w_(w), shape_(shape), me_(req.rank), node_(req.node_of_rank[me_]), up_(req.coll != TUTTI_COLL_BROADCAST),
        down_(req.coll != TUTTI_COLL_REDUCE), rooted_(req.root >= 0),
        root_here_(rooted_ && req.node_of_rank[req.root] == node_) {
    for (int r = 0; r < req.nranks; r++)
      if (req.node_of_rank[r] == node_) here_.push_back(r);
    const int wanted = up_ && (down_ || root_here_) ? 2 : 1;
    const bool room = req.max_lanes == 0 || req.max_lanes >= 2;
    apart_ = wanted == 2 && room && (req.flags & TUTTI_REQ_MANY_SLICES) && req.coll != TUTTI_COLL_BARRIER;
    channels_ = channels_for(req, req.max_lanes >= 2 ? 2 : 1);
  }

  void write() {
    w_.shape(req_, 1, channels_);
    const auto mine = std::find(here_.begin(), here_.end(), me_) - here_.begin();
    for (int i = 0; i < channels_; i++) share(static_cast<int>((mine + i) % channels_));
  }

private:
  using Lane = PlanWriter::Lane;
  using Step = PlanWriter::Step;
  // A lane, and how many links it has so far.
  struct Links {
    explicit Links(Lane l) : lane(l) {}
    Lane lane;
    int recvs = 0, sends = 0;
  };
  static constexpr int kGroup = -1; // in place of a rank

  int conn_up(int share) const { return share; }
  int conn_down(int share) const { return channels_ + share; }

  void share(int g) {
    const int head = channel(req_, static_cast<uint32_t>(g)).head;
    if (req_.coll == TUTTI_COLL_BROADCAST) return spread(g, head);
    const Place at = shape_(here_, head, me_);
    Links up(w_.lane(g));
    const Step given = climb(up, at, g);
    if (!down_) {
      if (!root_here_ || (me_ != head && me_ != req_.root)) return;
    }
    Links apart = apart_ ? Links(w_.lane(g)) : up;
    Step got = down_ ? descend(apart, at, g) : deliver(apart, head, g);
    if (apart_ && (req_.flags & TUTTI_REQ_IN_PLACE)) got.after(given); // or it would overwrite the own operand
  }

  Step climb(Links &links, const Place &at, int g) {
    const auto before_me = std::lower_bound(at.children.begin(), at.children.end(), me_) - at.children.begin();
    Step step = links.lane.step().src(in(0)).preop();
    for (const int c : at.children) links.lane.from(c, conn_up(g));
    if (!at.children.empty())
      step.recv(links.recvs, static_cast<int>(at.children.size())).reduce().position(static_cast<int>(before_me));
    links.recvs += static_cast<int>(at.children.size());
    return send(links, step, at.parent, conn_up(g), g);
  }

  Step descend(Links &links, const Place &at, int g) {
    Step step = receive(links, at.parent, conn_down(g), g);
    if (at.parent < 0 && up_) step.postop();
    step.store(out(0));
    for (const int c : at.children) send(links, step, c, conn_down(g), g);
    return step;
  }

  // The result of a reduce, from the head of the root's host to the root.
  Step deliver(Links &links, int head, int g) {
    if (me_ != head) return receive(links, head, conn_down(g), g).store(out(0));
    Step step = receive(links, kGroup, 0, g).postop();
    if (me_ == req_.root) return step.store(out(0));
    return send(links, step.sized_as(in(0)), req_.root, conn_down(g), g);
  }

  void spread(int g, int head) {
    std::vector<int> others = here_; // those that get it through the tree
    if (root_here_ && head != req_.root) others.erase(std::find(others.begin(), others.end(), req_.root));
    Links links(w_.lane(g));
    if (me_ == req_.root) {
      Step step = links.lane.step().src(in(0)).store(out(0));
      if (me_ != head) {
        send(links, step, head, conn_up(g), g);
        return;
      }
      send(links, step, kGroup, 0, g);
      for (const int c : shape_(others, head, me_).children) send(links, step, c, conn_down(g), g);
      return;
    }
    const Place at = shape_(others, head, me_);
    if (!root_here_ || me_ != head) {
      descend(links, at, g);
      return;
    }
    Step step = receive(links, req_.root, conn_up(g), g).store(out(0));
    send(links, step, kGroup, 0, g);
    for (const int c : at.children) send(links, step, c, conn_down(g), g);
  }

  Step receive(Links &links, int from, int conn, int g) {
    if (from == kGroup)
      links.lane.from(g, 0, TUTTI_LINK_REDUCING);
    else
      links.lane.from(from, conn);
    return links.lane.step().recv(links.recvs++);
  }
  // A step's links stand next to each other, so a second send of it only adds to their number.
  Step send(Links &links, Step step, int to, int conn, int g) {
    if (to == kGroup)
      links.lane.to(g, 0, TUTTI_LINK_REDUCING);
    else
      links.lane.to(to, conn);
    return step.send_more(links.sends++);
  }

  const tutti_algo_request &req_;
  PlanWriter &w_;
  const Shape shape_;
  const int me_, node_;
  const bool up_, down_, rooted_, root_here_;
  bool apart_ = false;
  int channels_ = 1;
  std::vector<int> here_; // ranks of this host
};

// Messages that follow one another, and bytes that this rank sends per byte, in a host whose trees have `local` levels below
// the head.
inline void estimate(const tutti_algo_request &req, Shape shape, int local, double &rounds, double &bytes_per_byte) {
  check_supported(req);
  std::vector<int> here;
  for (int r = 0; r < req.nranks; r++)
    if (req.node_of_rank[r] == req.node_of_rank[req.rank]) here.push_back(r);
  const bool up = req.coll != TUTTI_COLL_BROADCAST, down = req.coll != TUTTI_COLL_REDUCE;
  rounds = 2 + local * ((up ? 1 : 0) + (down ? 1 : 0));
  // Between the root and its host's head, where these are two.
  for (uint32_t g = 0; req.root >= 0 && g < req.channels; g++)
    if (const int head = channel(req, g).head; req.node_of_rank[req.root] == req.node_of_rank[req.rank] && head != req.root) {
      rounds += 1;
      break;
    }
  bytes_per_byte = 0;
  for (uint32_t g = 0; g < req.channels; g++) {
    const Place at = shape(here, channel(req, g).head, req.rank);
    bytes_per_byte +=
        ((up || at.parent < 0 ? 1.0 : 0.0) + (down ? static_cast<double>(at.children.size()) : 0.0)) / req.channels;
  }
}

inline int levels_below(const tutti_algo_request &req, bool chain) {
  std::vector<int> ranks(req.node_count);
  for (int r = 0; r < req.nranks; r++) ranks[static_cast<size_t>(req.node_of_rank[r])]++;
  const int most = *std::max_element(ranks.begin(), ranks.end());
  return chain ? most - 1 : std::min(most - 1, 1);
}

} // namespace algo_collnet
