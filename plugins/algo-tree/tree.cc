// Double binary trees: all_reduce, reduce, broadcast and barrier in O(log n) rounds with nearly the bytes of a ring. n =
// nranks.
//
// The data is cut into two chunks, and each has a binary tree of its own over the hosts. A host that is inner in one tree is a
// leaf in the other, so that nobody carries more than its share. Inside a host the ranks are a chain that ends in the tree: the
// chain of the second tree runs the other way, so that different ranks talk to other hosts. When all ranks are on one host, the
// trees are over the ranks.
//
//   all_reduce  up both trees, combining, and down again: 2 (log2 h + k) rounds (h hosts, k ranks on the largest); per byte, a
//               rank sends up to 2 bytes, the same as a ring, whatever n is.
//   barrier     a short all_reduce over the first tree
//   broadcast   down both trees. The root stands above the two: they are over the other hosts, so it sends each chunk once.
//               log2 h + k + 1 rounds; a rank sends up to 1 byte per byte (the root of a host with others 2).
//   reduce      the same upwards.
//
// Where the core has searched trees (tutti_channel), all_reduce and barrier follow them: one for each channel, whose partner
// stands in the next channel, so that two channels do what two chunks do above. A single channel keeps its two trees, and so do
// the collectives with a root: it would have to stand above a tree of all.
//
// Slices follow one another through the trees. With many slices, all_reduce goes up and down in lanes of their own, so that one
// slice goes down while later ones still go up. Without, one lane does everything.
//
// The binary tree over h places, counted from 1: the top of a row of places is the largest power of two within it; the parts
// before and behind are its children's rows. Odd places are leaves. The second tree is the first one over the places in
// mirrored order (h even: odd and even change roles) or shifted by one (h odd: one host is a leaf twice).
//
// Rounding: a rank's operands are combined in the order of the ranks, and the top's result is copied down: all ranks get the
// same bits. Which tree an element belongs to, and so its order of additions, depends on its place in its share of the data:
// the same from run to run, but not for another count or number of channels.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

constexpr int kTrees = 2;

// Parent and children of one rank in one tree. parent -1: the top.
struct Place {
  int parent = -1;
  std::vector<int> children;
};

// Every rank of a tree has a parent or children.
bool has_trees(const tutti_algo_request &req) {
  const tutti_channel &c = channel(req, 0);
  return c.tree_parent >= 0 || c.tree_nchildren > 0;
}
Place given_place(const tutti_algo_request &req, int conn) {
  const tutti_channel &c = channel(req, static_cast<uint32_t>(conn));
  return {c.tree_parent, {c.tree_children, c.tree_children + c.tree_nchildren}};
}

// Builds one tree over all ranks, the same on all of them.
class TreeBuilder {
public:
  TreeBuilder(const tutti_algo_request &req, int conn, int tree) : places_(static_cast<size_t>(req.nranks)) {
    collect_hosts(req, conn);
    for (std::vector<int> &host : hosts_) arrange(host, req.root, tree);
    auto first = hosts_.begin();
    if (req.root >= 0) { // the root's own host is no part of the tree: it stands above it, first in hosts_
      std::rotate(first, std::find_if(first, hosts_.end(), [&](const auto &host) { return host[0] == req.root; }),
                  hosts_.end());
      ++first;
    }
    std::vector<int> heads;
    for (auto host = first; host != hosts_.end(); ++host) heads.push_back((*host)[0]);
    if (tree == 1) turn(heads);
    row(heads, 0, heads.size(), req.root);
    for (const auto &host : hosts_) // last: what goes to other hosts has the longer way
      for (size_t i = 1; i < host.size(); i++) join(host[i - 1], host[i]);
  }
  const Place &of(int rank) const { return places_[static_cast<size_t>(rank)]; }
  int depth(int rank) const { // hops from the top
    int hops = 0;
    for (int at = rank; of(at).parent >= 0; at = of(at).parent) hops++;
    return hops;
  }
  int height(int rank) const { // hops from the farthest leaf below
    int most = 0;
    for (const int child : of(rank).children) most = std::max(most, 1 + height(child));
    return most;
  }

private:
  // In the order of the channel's ring. All ranks on one host: each counts as a host.
  void collect_hosts(const tutti_algo_request &req, int conn) {
    const int32_t *order = channel(req, static_cast<uint32_t>(conn)).order;
    const int32_t *node = req.node_of_rank;
    const bool one_host = std::all_of(node, node + req.nranks, [node](int32_t other) { return other == node[0]; });
    std::vector<int> host_at(req.node_count, -1);
    for (int i = 0; i < req.nranks; i++) {
      int &at = host_at[static_cast<size_t>(node[order[i]])];
      if (at < 0 || one_host) {
        at = static_cast<int>(hosts_.size());
        hosts_.emplace_back();
      }
      hosts_[static_cast<size_t>(at)].push_back(order[i]);
    }
  }

  // The chain of a host's ranks, the one that talks to other hosts first.
  static void arrange(std::vector<int> &host, int root, int tree) {
    if (tree == 1) std::reverse(host.begin(), host.end());
    if (const auto at = std::find(host.begin(), host.end(), root); at != host.end()) std::rotate(host.begin(), at, host.end());
  }

  // Into an order in which leaves of the first tree are inner.
  static void turn(std::vector<int> &heads) {
    if (heads.size() % 2 == 0)
      std::reverse(heads.begin(), heads.end());
    else
      std::rotate(heads.begin(), heads.end() - 1, heads.end());
  }

  void row(const std::vector<int> &heads, size_t begin, size_t end, int above) {
    if (begin == end) return;
    size_t top = 1;
    while (2 * top <= end - begin) top *= 2;
    const size_t at = begin + top - 1;
    if (above >= 0) join(above, heads[at]);
    row(heads, begin, at, heads[at]);
    row(heads, at + 1, end, heads[at]);
  }

  void join(int parent, int child) {
    places_[static_cast<size_t>(child)].parent = parent;
    places_[static_cast<size_t>(parent)].children.push_back(child);
  }

  std::vector<std::vector<int>> hosts_;
  std::vector<Place> places_;
};

class Tree {
public:
  static constexpr Info info{"algo-tree", "0.1.0", "tutti", "Apache-2.0", "double binary trees over hosts, chains inside"};
  static constexpr const char *algo_name = "tree";

  explicit Tree(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    switch (req.coll) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_BARRIER:
      return;
    default:
      unsupported(
          "tree serves all_reduce, reduce, broadcast and barrier only: elsewhere a tree would carry blocks through ranks "
          "that do not need them");
    }
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const Schedule s(req, w);
    const int channels = channels_for(req, s.lanes());
    w.shape(req, s.trees(), channels);
    for (int ch = 0; ch < channels; ch++) s.write(ch, channels);
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    rounds = bytes_per_byte = 0;
    const bool down = req.coll != TUTTI_COLL_REDUCE, up = req.coll != TUTTI_COLL_BROADCAST;
    for (int t = 0; t < kTrees; t++) {
      const TreeBuilder tree(req, 0, t);
      int top = req.rank;
      while (tree.of(top).parent >= 0) top = tree.of(top).parent;
      rounds = std::max(rounds, static_cast<double>(tree.height(top) * (up && down ? 2 : 1)));
      const Place &me = tree.of(req.rank);
      const double sent = (up && me.parent >= 0 ? 1.0 : 0.0) + (down ? static_cast<double>(me.children.size()) : 0.0);
      bytes_per_byte += sent / kTrees;
    }
  }

private:
  using Lane = PlanWriter::Lane;
  using Step = PlanWriter::Step;

  class Schedule {
  public:
    Schedule(const tutti_algo_request &req, PlanWriter &w)
        : req_(req), me_(req.rank), up_(req.coll != TUTTI_COLL_BROADCAST), down_(req.coll != TUTTI_COLL_REDUCE), w_(w) {}

    // Eight bytes fill a chunk of one tree only.
    int trees() const { return req_.coll == TUTTI_COLL_BARRIER || given() ? 1 : kTrees; }
    int lanes() const {
      const int wanted = trees() * (up_ && down_ ? 2 : 1);
      const bool room = req_.max_lanes == 0 || req_.max_lanes >= static_cast<uint32_t>(wanted);
      return (req_.flags & TUTTI_REQ_MANY_SLICES) && room && req_.coll != TUTTI_COLL_BARRIER ? wanted : 1;
    }

    void write(int ch, int channels) const {
      std::vector<Task> tasks;
      for (int t = 0; t < trees(); t++) {
        if (given()) { // the only one, so nothing depends on how deep this rank stands
          tasks.push_back({given_place(req_, ch), t, ch, channels + ch, 0, 0});
          continue;
        }
        const TreeBuilder tree(req_, ch, t);
        tasks.push_back(
            {tree.of(me_), t, 2 * t * channels + ch, (2 * t + 1) * channels + ch, tree.depth(me_), tree.height(me_)});
      }
      lanes() > 1 ? in_lanes(tasks, ch) : in_one_lane(tasks, ch);
    }

  private:
    bool given() const {
      const bool serves = req_.coll == TUTTI_COLL_BARRIER || (req_.coll == TUTTI_COLL_ALL_REDUCE && req_.channels > 1);
      return serves && has_trees(req_);
    }

    // A lane, and how many links it has so far.
    struct Links {
      explicit Links(Lane l) : lane(l) {}
      Lane lane;
      int recvs = 0, sends = 0;
    };
    // The chunk of one tree, this rank's place in that, and the conns of its links.
    struct Task {
      Place at;
      int chunk, conn_up, conn_down, depth, height;
      bool top() const { return at.parent < 0; }
    };

    // What frees slots comes first: the way down, where it is a lane of its own.
    void in_lanes(const std::vector<Task> &tasks, int group) const {
      for (const Task &t : tasks) {
        const bool two = up_ && down_ && !t.top();
        Links links(w_.lane(group));
        if (!up_ || two) {
          Step result = descend(links, t);
          if (!two) continue;
          Links up(w_.lane(group));
          const Step sent = climb(up, t);
          if (req_.flags & TUTTI_REQ_IN_PLACE) result.after(sent); // or it would overwrite the own operand
        } else {
          Step complete = climb(links, t);
          if (down_) hand_down(links, complete, t);
        }
      }
    }

    // A rank that is a leaf in one tree must not keep that one waiting for the other: low places climb first, high ones descend
    // first. So no step waits, through others of its lane, for one that is as far on its way.
    void in_one_lane(std::vector<Task> tasks, int group) const {
      Links links(w_.lane(group));
      const auto by = [&](int Task::*hops) {
        std::stable_sort(tasks.begin(), tasks.end(), [hops](const Task &a, const Task &b) { return a.*hops < b.*hops; });
      };
      by(&Task::height);
      for (const Task &t : tasks) {
        if (!up_) break;
        Step step = climb(links, t);
        if (down_ && t.top()) hand_down(links, step, t);
      }
      by(&Task::depth);
      for (const Task &t : tasks)
        if (down_ && (!up_ || !t.top())) descend(links, t);
    }

    // The children's partial results and the own operand, on to the parent, or at the top complete and into OUT.
    Step climb(Links &links, const Task &t) const {
      std::vector<int> children = t.at.children;
      std::sort(children.begin(), children.end());
      const auto before_me = std::lower_bound(children.begin(), children.end(), me_) - children.begin();
      const int count = static_cast<int>(children.size());
      Step step = links.lane.step().src(in(t.chunk)).preop();
      for (int c : children) links.lane.from(c, t.conn_up);
      if (count > 0) step.recv(links.recvs, count).reduce().position(static_cast<int>(before_me));
      links.recvs += count;
      if (t.top()) return step.postop().store(out(t.chunk));
      links.lane.to(t.at.parent, t.conn_up);
      return step.send(links.sends++);
    }

    Step descend(Links &links, const Task &t) const {
      Step step = links.lane.step();
      if (t.top()) {
        step.src(in(t.chunk));
      } else {
        links.lane.from(t.at.parent, t.conn_down);
        step.recv(links.recvs++);
      }
      step.store(out(t.chunk));
      hand_down(links, step, t);
      return step;
    }

    void hand_down(Links &links, Step &step, const Task &t) const {
      const int count = static_cast<int>(t.at.children.size());
      for (int c : t.at.children) links.lane.to(c, t.conn_down);
      if (count > 0) step.send(links.sends, count);
      links.sends += count;
    }

    const tutti_algo_request &req_;
    const int me_;
    const bool up_, down_;
    PlanWriter &w_;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Tree)
