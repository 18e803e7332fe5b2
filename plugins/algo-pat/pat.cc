// Parallel aggregated trees: all_gather and reduce_scatter for any number of ranks. n = nranks, L = ceil(log2 n).
//
// Every block has a binomial tree of its own, and all n trees run at once. The rank that is `o` places after the owner of a
// block has offset o in that block's tree. Its parent is the rank of offset o without its lowest set bit, 2^k: so a rank gets
// the blocks of offsets 2^k, 3 * 2^k, 5 * 2^k, ... from the rank 2^k places before it, each block exactly once, and no block
// travels a way that only a power of two would close. reduce_scatter runs the same trees from the leaves to the owner.
//
//   short messages  all_gather takes the far hops first: in round 1 one block goes n/2 places, in the last one n/2 blocks go
//                   one place; reduce_scatter the other way round. A round is one message, or two where n is no power of two:
//                   the blocks of a round lie side by side, because SCRATCH holds them in the order of their bit-reversed
//                   offsets. L rounds, (n-1)/n bytes per byte of the larger buffer, n blocks of SCRATCH.
//   many slices     a rank serves the offsets one by one (all_gather upwards, reduce_scatter downwards): what arrives is handed
//                   on to all children at once, straight from or to the user's buffers. Two messages are on a link at most,
//                   whatever n is. The same bytes, n - 1 messages one after the other, log n neighbours instead of n - 1.
//
// Rounding: a block is a sum of sums along its tree; a rank's operands are its own partial sum, then its children's by
// distance. That is fixed by n and the owner: not by counts, slices, channels, or which of the two forms runs. Only 16-bit
// types tell the forms apart: they are rounded when a step ends, for short messages after each child, in many slices after all.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

// Offsets in the trees, and the links: number j leads 2^j places on.
class Trees {
public:
  explicit Trees(int nranks) : n(nranks) {
    while (1 << bits < n) bits++;
    for (int reversed = 0; reversed < 1 << bits; reversed++) {
      int offset = 0;
      for (int j = 0; j < bits; j++) offset |= (reversed >> j & 1) << (bits - 1 - j);
      if (offset < n) by_reversed.push_back(offset);
    }
  }
  int parent_link(int offset) const { // of the owner: one past the last
    int k = 0;
    while (k < bits && (offset >> k & 1) == 0) k++;
    return k;
  }
  // The children are the offsets that many first links lead to.
  int children(int offset) const {
    int c = 0;
    while (c < parent_link(offset) && offset + (1 << c) < n) c++;
    return c;
  }

  const int n;
  int bits = 0;
  std::vector<int> by_reversed; // all offsets below n
};

class Pat {
public:
  static constexpr Info info{"algo-pat", "0.1.0", "tutti", "Apache-2.0",
                             "parallel aggregated trees: all_gather and reduce_scatter in log n rounds"};
  static constexpr const char *algo_name = "pat";

  explicit Pat(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll != TUTTI_COLL_ALL_GATHER && req.coll != TUTTI_COLL_REDUCE_SCATTER)
      unsupported("pat serves all_gather and reduce_scatter only");
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const Schedule s(req, w);
    const bool gather = req.coll == TUTTI_COLL_ALL_GATHER, one_by_one = (req.flags & TUTTI_REQ_MANY_SLICES) != 0;
    const int channels = channels_for(req);
    w.shape(req, 1, channels).window(1); // one lane per group: no lane waits for another
    for (int ch = 0; ch < channels; ch++) {
      PlanWriter::Lane lane = w.lane(ch);
      s.links(lane, ch);
      if (gather)
        one_by_one ? s.gather_one_by_one(lane) : s.gather_in_rounds(lane);
      else
        one_by_one ? s.reduce_one_by_one(lane) : s.reduce_in_rounds(lane);
    }
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    rounds = (req.flags & TUTTI_REQ_MANY_SLICES) ? req.nranks - 1 : Trees(req.nranks).bits;
    bytes_per_byte = double(req.nranks - 1) / req.nranks;
  }

private:
  using Lane = PlanWriter::Lane;

  class Schedule {
  public:
    Schedule(const tutti_algo_request &req, PlanWriter &w)
        : t_(req.nranks), me_(req.rank), down_(req.coll == TUTTI_COLL_ALL_GATHER), w_(w) {}

    void links(Lane lane, int conn) const {
      for (int j = 0; j < t_.bits; j++) {
        const int ahead = rank_after(1 << j), behind = rank_after(-(1 << j));
        lane.from(down_ ? behind : ahead, conn).to(down_ ? ahead : behind, conn);
      }
    }

    void gather_one_by_one(Lane lane) const {
      for (int offset = 0; offset < t_.n; offset++) {
        auto step = lane.step();
        if (offset == 0)
          step.src(in(0));
        else
          step.recv(t_.parent_link(offset));
        step.store(out(block(offset)));
        if (const int c = t_.children(offset)) step.send(0, c);
      }
    }

    void reduce_one_by_one(Lane lane) const {
      for (int offset = t_.n - 1; offset >= 0; offset--) {
        auto step = lane.step().src(in(block(offset))).preop();
        if (const int c = t_.children(offset)) step.recv(0, c).reduce();
        if (offset == 0)
          step.postop().store(out(0));
        else
          step.send(t_.parent_link(offset));
      }
    }

    void gather_in_rounds(Lane lane) const {
      const int room = scratch_room(TUTTI_BUF_OUT);
      lane.step().src(in(0)).store(scratch(room));
      for (int j = t_.bits - 1; j >= 0; j--) {
        const auto runs = round(j);
        for (const Run &r : runs) lane.step().src(scratch(room + r.near, r.count)).send(j);
        for (const Run &r : runs) lane.step().recv(j).store(scratch(room + r.far, r.count));
      }
      for (int i = 0; i < t_.n; i++) lane.step().src(scratch(room + i)).store(out(block(at(i))));
    }

    void reduce_in_rounds(Lane lane) const {
      const int room = scratch_room(TUTTI_BUF_IN);
      for (int i = 0; i < t_.n; i++) lane.step().src(in(block(at(i)))).preop().store(scratch(room + i));
      for (int j = 0; j < t_.bits; j++) {
        const auto runs = round(j);
        for (const Run &r : runs) lane.step().src(scratch(room + r.far, r.count)).send(j);
        for (const Run &r : runs) {
          auto step = lane.step().src(scratch(room + r.near, r.count)).recv(j).reduce();
          if (j + 1 < t_.bits)
            step.store(scratch(room + r.near, r.count));
          else
            step.postop().store(out(0)); // the last hop is the longest: to offset 0 alone
        }
      }
    }

  private:
    int rank_after(int places) const { return ((me_ + places) % t_.n + t_.n) % t_.n; }
    int block(int offset) const { return rank_after(-offset); }
    int at(int position) const { return t_.by_reversed[static_cast<size_t>(position)]; }

    int scratch_room(int buf) const {
      const int first = w_.scratch_as(chunks(buf, block(at(0)), 1));
      for (int i = 1; i < t_.n; i++) w_.scratch_as(chunks(buf, block(at(i)), 1));
      return first;
    }

    // Positions in SCRATCH of `count` offsets in a row, near the owners, and of those 2^j farther away.
    struct Run {
      int near, far, count;
    };
    // What goes over link j in its round. Of the offsets that take part only the largest can lack a partner below n, so there
    // are two runs at most.
    std::vector<Run> round(int j) const {
      std::vector<Run> runs;
      int far = 0;
      while (far < t_.n && at(far) != 1 << j) far++;
      for (int near = 0; near < t_.n; near++) {
        if (at(near) % (2 << j) != 0 || at(near) + (1 << j) >= t_.n) continue;
        if (!runs.empty() && runs.back().near + runs.back().count == near)
          runs.back().count++;
        else
          runs.push_back({near, far, 1});
        far++;
      }
      return runs;
    }

    const Trees t_;
    const int me_;
    const bool down_; // from the owners to the leaves
    PlanWriter &w_;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Pat)
