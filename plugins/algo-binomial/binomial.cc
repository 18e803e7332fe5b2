// The binomial algorithm: rooted collectives in ceil(log2 n) rounds. n = nranks.
//
// The ranks are a range. Whoever is at the top of a range hands the half that it is not in to the first rank of that half, and
// both go on with their halves. So every subtree is a row of ranks: blocks of a subtree are neighbours in IN and OUT whatever
// the root is, and a host, whose ranks are neighbours as a rule, is entered once. A rank has up to ceil(log2 n) children.
//
//   broadcast   one step: what comes goes into OUT and to the children, those with the longest way to go first.
//   reduce      one step: the children's partial results and the own contribution, combined in the order of the ranks.
//   gather      a subtree's blocks travel up in one message: (its ranks)/n bytes per byte of the root's buffer, and as much
//               SCRATCH on ranks in the middle.
//   scatter     the same downwards.
//
// With many slices, a message is one block, relayed without SCRATCH, so that slots stay as long as a slice. That keeps long
// messages right, not fast: the root of a broadcast sends them ceil(log2 n) times, where the chain of `ring` and the two trees
// of `tree` send them once.
//
// Rounding: a reduction is a sum of sums of neighbouring ranks, parenthesised by n and the root alone: the same bits whatever
// the count, channels and slices are.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

// A row of ranks and the one that speaks for it.
struct Range {
  int begin, end, top;
  int size() const { return end - begin; }
  bool has(int rank) const { return begin <= rank && rank < end; }
};

// One rank's place: the range that it is the top of, whose top it hands to or gets from, and the parts that it hands on.
struct Place {
  Range mine;
  int parent = -1;
  std::vector<Range> children; // the largest first

  Place(int n, int root, int me) : mine{0, n, root} {
    Range r = mine;
    while (r.size() > 1) {
      const int middle = (r.begin + r.end) / 2;
      const Range low{r.begin, middle, r.begin}, high{middle, r.end, middle};
      const bool top_is_low = low.has(r.top);
      Range kept = top_is_low ? low : high;
      const Range &other = top_is_low ? high : low;
      kept.top = r.top;
      if (me == r.top) children.push_back(other);
      if (me == other.top) {
        parent = r.top;
        mine = other;
      }
      r = kept.has(me) ? kept : other;
    }
  }
};

class Binomial {
public:
  static constexpr Info info{"algo-binomial", "0.1.0", "tutti", "Apache-2.0",
                             "binomial trees: rooted collectives in log n rounds"};
  static constexpr const char *algo_name = "binomial";

  explicit Binomial(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    switch (req.coll) {
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_REDUCE:
      return;
    case TUTTI_COLL_GATHER:
    case TUTTI_COLL_SCATTER:
      if (req.flags & TUTTI_REQ_NONUNIFORM)
        unsupported(
            "binomial relays blocks, and with blocks of different sizes the ranks between do not know theirs; use direct");
      return;
    default:
      unsupported("binomial serves collectives with a root only: broadcast, reduce, gather, scatter");
    }
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    Schedule s(req, w);
    const int channels = channels_for(req);
    w.shape(req, 1, channels).window(1); // one lane per group: no lane waits for another
    for (int ch = 0; ch < channels; ch++) {
      PlanWriter::Lane lane = w.lane(ch);
      switch (req.coll) {
      case TUTTI_COLL_BROADCAST:
        s.broadcast(lane, ch);
        break;
      case TUTTI_COLL_REDUCE:
        s.reduce(lane, ch);
        break;
      case TUTTI_COLL_GATHER:
        s.gather(lane, ch);
        break;
      default:
        s.scatter(lane, ch);
        break;
      }
    }
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    const Place place(req.nranks, req.root, req.rank);
    rounds = 0;
    for (int reached = 1; reached < req.nranks; reached *= 2) rounds++;
    const bool sends_up = place.parent >= 0, down = req.coll == TUTTI_COLL_BROADCAST || req.coll == TUTTI_COLL_SCATTER;
    bytes_per_byte = down ? static_cast<double>(place.children.size()) : sends_up;
    if (req.coll == TUTTI_COLL_GATHER) bytes_per_byte = sends_up ? double(place.mine.size()) / req.nranks : 0;
    if (req.coll == TUTTI_COLL_SCATTER) bytes_per_byte = double(place.mine.size() - 1) / req.nranks;
  }

private:
  using Lane = PlanWriter::Lane;

  class Schedule {
  public:
    Schedule(const tutti_algo_request &req, PlanWriter &w)
        : me_(req.rank), root_(req.root), block_by_block_((req.flags & TUTTI_REQ_MANY_SLICES) != 0),
          place_(req.nranks, req.root, req.rank), w_(w) {}

    void broadcast(Lane lane, int conn) const {
      links_down(lane, conn);
      auto step = lane.step();
      if (me_ == root_)
        step.src(in(0));
      else
        step.recv();
      step.store(out(0));
      if (!place_.children.empty()) step.send(0, children());
    }

    void reduce(Lane lane, int conn) const {
      int before_me = 0;
      for (const Range &c : in_rank_order()) {
        lane.from(c.top, conn);
        before_me += c.top < me_;
      }
      auto step = lane.step().src(in(0)).preop();
      if (!place_.children.empty()) step.recv(0, children()).reduce().position(before_me);
      if (me_ == root_) {
        step.postop().store(out(0));
      } else {
        lane.to(place_.parent, conn);
        step.send();
      }
    }

    void gather(Lane lane, int conn) {
      const auto subtrees = in_rank_order();
      for (const Range &c : subtrees) lane.from(c.top, conn);
      if (me_ != root_) lane.to(place_.parent, conn);
      if (me_ == root_) return gather_at_root(lane, subtrees);
      if (place_.children.empty()) {
        lane.step().src(in(0)).send();
        return;
      }
      if (block_by_block_) return relay_up(lane, subtrees);
      const int room = scratch_for_mine(TUTTI_BUF_OUT);
      lane.step().src(in(0)).store(scratch(room + me_ - place_.mine.begin));
      for (int i = children() - 1; i >= 0; i--) { // small subtrees are complete first
        const Range &c = place_.children[static_cast<size_t>(i)];
        lane.step().recv(link_of(subtrees, c)).store(scratch(room + c.begin - place_.mine.begin, c.size()));
      }
      lane.step().src(scratch(room, place_.mine.size())).send();
    }

    void scatter(Lane lane, int conn) {
      links_down(lane, conn);
      if (me_ == root_) return scatter_at_root(lane);
      if (place_.children.empty()) {
        lane.step().recv().store(out(0));
        return;
      }
      if (block_by_block_) return relay_down(lane);
      const int room = scratch_for_mine(TUTTI_BUF_IN);
      lane.step().recv().store(scratch(room, place_.mine.size()));
      for (int i = 0; i < children(); i++) {
        const Range &c = place_.children[static_cast<size_t>(i)];
        lane.step().src(scratch(room + c.begin - place_.mine.begin, c.size())).send(i);
      }
      lane.step().src(scratch(room + me_ - place_.mine.begin)).store(out(0));
    }

  private:
    int children() const { return static_cast<int>(place_.children.size()); }

    std::vector<Range> in_rank_order() const {
      std::vector<Range> sorted = place_.children;
      std::sort(sorted.begin(), sorted.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
      return sorted;
    }
    static int link_of(const std::vector<Range> &links, const Range &c) {
      int i = 0;
      while (links[static_cast<size_t>(i)].top != c.top) i++;
      return i;
    }

    void links_down(Lane lane, int conn) const {
      if (me_ != root_) lane.from(place_.parent, conn);
      for (const Range &c : place_.children) lane.to(c.top, conn);
    }

    // Room for the blocks of the subtree, in rank order: its first chunk.
    int scratch_for_mine(int buf) {
      const int first = w_.scratch_as(chunks(buf, place_.mine.begin, 1));
      for (int b = place_.mine.begin + 1; b < place_.mine.end; b++) w_.scratch_as(chunks(buf, b, 1));
      return first;
    }

    void gather_at_root(Lane lane, const std::vector<Range> &subtrees) const {
      lane.step().src(in(0)).store(out(me_));
      for (int i = children() - 1; i >= 0; i--) {
        const Range &c = place_.children[static_cast<size_t>(i)];
        auto step = lane.step().recv(link_of(subtrees, c));
        if (block_by_block_)
          step.store(out(c.begin).every(1)).repeat(c.size());
        else
          step.store(out(c.begin, c.size()));
      }
    }

    // Blocks pass in rank order, so that those above need not know how the subtree is built.
    void relay_up(Lane lane, const std::vector<Range> &subtrees) const {
      bool own_sent = false;
      const auto own = [&] {
        if (!own_sent) lane.step().src(in(0)).send();
        own_sent = true;
      };
      for (size_t i = 0; i < subtrees.size(); i++) {
        if (subtrees[i].begin > me_) own();
        lane.step().recv(static_cast<int>(i)).sized_as(out(subtrees[i].begin).every(1)).send().repeat(subtrees[i].size());
      }
      own();
    }

    void scatter_at_root(Lane lane) const {
      for (int i = 0; i < children(); i++) {
        const Range &c = place_.children[static_cast<size_t>(i)];
        if (block_by_block_)
          lane.step().src(in(c.begin).every(1)).send(i).repeat(c.size());
        else
          lane.step().src(in(c.begin, c.size())).send(i);
      }
      lane.step().src(in(me_)).store(out(0));
    }

    void relay_down(Lane lane) const {
      for (int b = place_.mine.begin; b < place_.mine.end;) {
        int i = 0;
        while (i < children() && !place_.children[static_cast<size_t>(i)].has(b)) i++;
        if (i == children()) {
          lane.step().recv().store(out(0));
          b++;
        } else {
          const Range &c = place_.children[static_cast<size_t>(i)];
          lane.step().recv().sized_as(in(c.begin).every(1)).send(i).repeat(c.size());
          b = c.end;
        }
      }
    }

    const int me_, root_;
    const bool block_by_block_;
    const Place place_;
    PlanWriter &w_;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Binomial)
