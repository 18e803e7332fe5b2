// The ring algorithm. Ranks stand in a circle (the order that was searched for the channel); each receives from the one before
// it and sends to the one after it. n = nranks, p = this rank's place in the circle.
//
//   all_reduce      a chunk per place. Chunk c starts behind place c, collects one contribution per hop, is complete at place
//   c,
//                   and makes a second round as the result. 2(n-1) rounds, 2(n-1)/n bytes per byte.
//   reduce_scatter  the first round alone: n-1 rounds, (n-1)/n bytes per byte of the larger buffer.
//   all_gather      the second round alone: n-1 rounds, (n-1)/n bytes per byte of the larger buffer.
//   broadcast       a chain from the root, n-1 hops, 1 byte per byte; long messages flow through it slice by slice.
//   reduce          a chain that ends at the root, likewise.
//
// A chunk is completed by one rank and copied from there, so all ranks get the same bits.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

class Ring {
public:
  static constexpr Info info{"algo-ring", "0.1.0", "tutti", "Apache-2.0", "ring schedules: fewest bytes per link"};
  static constexpr const char *algo_name = "ring";

  explicit Ring(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    switch (req.coll) {
    case TUTTI_COLL_ALL_TO_ALL:
    case TUTTI_COLL_GATHER:
    case TUTTI_COLL_SCATTER:
      unsupported("a ring would relay every block through the ranks between its two ends; use direct");
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_REDUCE:
    case TUTTI_COLL_BROADCAST:
    case TUTTI_COLL_ALL_GATHER:
    case TUTTI_COLL_REDUCE_SCATTER:
    case TUTTI_COLL_BARRIER:
      return;
    default:
      unsupported("the ring does not know this collective");
    }
  }

  // One lane per channel; each channel moves its share of the data around a ring of its own.
  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const bool chunk_per_place = req.coll == TUTTI_COLL_ALL_REDUCE || req.coll == TUTTI_COLL_BARRIER;
    const int channels = channels_for(req);
    w.shape(req, chunk_per_place ? req.nranks : 1, channels);
    for (int c = 0; c < channels; c++) {
      const Circle circle(channel(req, static_cast<uint32_t>(c)).order, req.nranks, req.rank);
      switch (req.coll) {
      case TUTTI_COLL_REDUCE_SCATTER:
        reduce_scatter(circle, c, w);
        break;
      case TUTTI_COLL_ALL_GATHER:
        all_gather(circle, c, w);
        break;
      case TUTTI_COLL_BROADCAST:
        broadcast(circle, c, req.root, w);
        break;
      case TUTTI_COLL_REDUCE:
        reduce(circle, c, req.root, w);
        break;
      default:
        all_reduce(circle, c, w);
        break;
      }
    }
  }

private:
  // The ring as this rank sees it. Places are taken modulo n, so place() - 1 may be written as it is.
  class Circle {
  public:
    Circle(const int32_t *order, int nranks, int rank) : n(nranks), me(rank), order_(order) {
      while (order_[p] != rank) p++;
    }
    int rank_at(int place) const { return order_[((place % n) + n) % n]; }
    int before() const { return rank_at(p - 1); }
    int after() const { return rank_at(p + 1); }
    int place_of(int rank) const {
      int place = 0;
      while (order_[place] != rank) place++;
      return place;
    }
    const int n, me;
    int p = 0;

  private:
    const int32_t *order_;
  };

  // The chunks of an all_reduce belong to places, not to ranks: the plan is five steps, whatever n and the order are.
  static void all_reduce(const Circle &ring, int group, PlanWriter &w) {
    const int n = ring.n, p = ring.p;
    auto lane = w.lane(group).from(ring.before(), group).to(ring.after(), group);
    lane.step().src(in(p - 1).every(0, n)).preop().send();
    lane.step().src(in(p - 2).every(-1, n)).preop().recv().reduce().position(1).send().repeat(n - 2);
    lane.step().src(in(p)).preop().recv().reduce().position(1).postop().store(out(p)).send();
    lane.step().recv().store(out(p - 1).every(-1, n)).send().repeat(n - 2);
    lane.step().recv().store(out(p + 1).every(0, n));
  }

  // Block b belongs to rank b, so blocks pass in the order of the circle.
  static void reduce_scatter(const Circle &ring, int group, PlanWriter &w) {
    auto lane = w.lane(group).from(ring.before(), group).to(ring.after(), group);
    lane.step().src(in(ring.before())).preop().send();
    blocks_behind(ring, 2, ring.n - 2, [&](int first, int stride, int count) {
      lane.step().src(in(first).every(stride, ring.n)).preop().recv().reduce().position(1).send().repeat(count);
    });
    lane.step().src(in(ring.me)).preop().recv().reduce().position(1).postop().store(out(0));
  }

  static void all_gather(const Circle &ring, int group, PlanWriter &w) {
    auto lane = w.lane(group).from(ring.before(), group).to(ring.after(), group);
    lane.step().src(in(0)).store(out(ring.me)).send();
    blocks_behind(ring, 1, ring.n - 2, [&](int first, int stride, int count) {
      lane.step().recv().store(out(first).every(stride, ring.n)).send().repeat(count);
    });
    lane.step().recv().store(out(ring.after()));
  }

  // The circle is cut before the root: the root begins, the rank before it ends.
  static void broadcast(const Circle &ring, int group, int root, PlanWriter &w) {
    auto lane = w.lane(group);
    const bool first = ring.me == root, last = ring.after() == root;
    if (!first) lane.from(ring.before(), group);
    if (!last) lane.to(ring.after(), group);
    auto step = lane.step();
    if (first)
      step.src(in(0));
    else
      step.recv();
    step.store(out(0));
    if (!last) step.send();
  }

  // The circle is cut behind the root: the rank after it begins, the root ends.
  static void reduce(const Circle &ring, int group, int root, PlanWriter &w) {
    auto lane = w.lane(group);
    const bool first = ring.before() == root, last = ring.me == root;
    if (!first) lane.from(ring.before(), group);
    if (!last) lane.to(ring.after(), group);
    auto step = lane.step();
    step.src(in(0)).preop();
    if (!first) step.recv().reduce().position(1);
    if (last)
      step.postop().store(out(0));
    else
      step.send();
  }

  // Calls emit(first, stride, count) for the blocks of the ranks `distance`, distance + 1, ... places behind this one, `total`
  // in all, in as few runs of constant stride modulo n as possible: one run when the circle is the order of the ranks.
  template <class Emit> static void blocks_behind(const Circle &ring, int distance, int total, Emit emit) {
    const auto block = [&](int i) { return ring.rank_at(ring.p - distance - i); };
    const auto stride_at = [&](int i) { return (block(i + 1) - block(i) + ring.n) % ring.n; };
    for (int i = 0; i < total;) {
      int count = 1;
      while (i + count < total && stride_at(i + count - 1) == stride_at(i)) count++;
      emit(block(i), count > 1 ? stride_at(i) : 0, count);
      i += count;
    }
  }
};

} // namespace

TUTTI_CXX_PLUGIN(Ring)
