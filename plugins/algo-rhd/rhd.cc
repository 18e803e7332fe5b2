// Recursive halving and doubling. n = nranks, m = the largest power of two up to n, L = log2 m; n - m ranks are folded: rank
// 2i + 1 gives its data to rank 2i first and gets its result last (i < n - m), and m places remain.
//
//   all_reduce      short messages: recursive doubling. Everybody exchanges everything with the place that differs in one bit,
//                   bit after bit: L rounds, L bytes per byte. Folding adds 2 rounds, and one more byte per byte on rank 2i.
//                   many slices: recursive halving, then doubling. A chunk per place. With each bit, places hand over the half
//                   that the other one keeps, until each has completed its chunk; then ranges double again: 2L exchanges,
//                   2(m-1)/m bytes per byte, folding as above.
//   barrier         as a short all_reduce
//   reduce_scatter  halving alone: L rounds, (m-1)/m bytes per byte of the larger buffer; folding adds 2 rounds, and a whole
//                   buffer on rank 2i + 1. Partial sums are in SCRATCH: half the blocks, or all on rank 2i.
//   all_gather      doubling alone, likewise; straight in OUT.
//
// Short messages: a range is one message. Many slices: a message is one chunk, and the two ranges of an exchange take turns, so
// that slots stay as long as a slice and two of them do; m - 1 messages then follow one another instead of L.
//
// Rounding: bits are taken from the highest to the lowest, the operand of the lower place is the left one. Whichever form runs,
// element by element the sum is the same tree over all places: the bits depend on n alone, not on counts, slices or channels,
// and are the same on all ranks. Rank 2i adds its own and rank 2i + 1's operand before anything else.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

// Places and ranks. Blocks of a row of places are a row of blocks.
class Folding {
public:
  explicit Folding(int nranks) : n(nranks) {
    while (2 << bits <= n) bits++;
    m = 1 << bits;
    folded = n - m;
  }
  bool gives_away(int rank) const { return rank < 2 * folded && rank % 2 == 1; }
  bool takes_in(int rank) const { return rank < 2 * folded && rank % 2 == 0; }
  int place_of(int rank) const { return rank < 2 * folded ? rank / 2 : rank - folded; }
  int rank_of(int place) const { return place < folded ? 2 * place : place + folded; }
  // Blocks first_block(a) to first_block(b) belong to places a to b, b excluded.
  int first_block(int place) const { return rank_of(place); }

  const int n;
  int m = 1, bits = 0, folded = 0;
};

class Rhd {
public:
  static constexpr Info info{"algo-rhd", "0.1.0", "tutti", "Apache-2.0",
                             "recursive halving and doubling: log n rounds, few bytes"};
  static constexpr const char *algo_name = "rhd";

  explicit Rhd(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    switch (req.coll) {
    case TUTTI_COLL_ALL_REDUCE:
    case TUTTI_COLL_BARRIER:
    case TUTTI_COLL_REDUCE_SCATTER:
    case TUTTI_COLL_ALL_GATHER:
      return;
    default:
      unsupported("rhd serves all_reduce, reduce_scatter, all_gather and barrier only");
    }
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const Schedule s(req, w);
    const int channels = channels_for(req);
    w.shape(req, s.pieces(), channels).window(1); // one lane per group: no lane waits for another
    for (int ch = 0; ch < channels; ch++) s.write(w.lane(ch), ch);
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    const Folding f(req.nranks);
    const bool takes_in = f.takes_in(req.rank), gives_away = f.gives_away(req.rank);
    const double fold_rounds = f.folded ? 2 : 0, half_way = double(f.m - 1) / f.m;
    const bool both = req.coll == TUTTI_COLL_ALL_REDUCE && (req.flags & TUTTI_REQ_MANY_SLICES);
    const bool in_turns = (req.flags & TUTTI_REQ_MANY_SLICES) && req.coll != TUTTI_COLL_BARRIER;
    rounds = (both ? 2 : 1) * (in_turns ? f.m - 1 : f.bits) + fold_rounds;
    switch (req.coll) {
    case TUTTI_COLL_REDUCE_SCATTER:
      bytes_per_byte = gives_away ? 1 : half_way + (takes_in ? 1.0 / req.nranks : 0);
      break;
    case TUTTI_COLL_ALL_GATHER:
      bytes_per_byte = gives_away ? 1.0 / req.nranks : half_way + (takes_in ? double(req.nranks - 1) / req.nranks : 0);
      break;
    default:
      bytes_per_byte = gives_away ? 1 : (both ? 2 * half_way : f.bits) + (takes_in ? 1 : 0);
    }
  }

private:
  using Lane = PlanWriter::Lane;

  class Schedule {
  public:
    Schedule(const tutti_algo_request &req, PlanWriter &w)
        : f_(req.nranks), coll_(req.coll), me_(req.rank), place_(f_.place_of(req.rank)),
          many_slices_((req.flags & TUTTI_REQ_MANY_SLICES) != 0 && req.coll != TUTTI_COLL_BARRIER), w_(w) {}

    int pieces() const { return halves_chunks() ? f_.m : 1; }

    // Link j leads to the place that differs in bit j, the last one to the other rank of the pair.
    void write(Lane lane, int conn) const {
      if (f_.gives_away(me_)) {
        lane.from(me_ - 1, conn).to(me_ - 1, conn);
        return give_away(lane);
      }
      for (int j = 0; j < f_.bits; j++) {
        const int peer = f_.rank_of(place_ ^ (1 << j));
        lane.from(peer, conn).to(peer, conn);
      }
      if (takes_in()) lane.from(me_ + 1, conn).to(me_ + 1, conn);
      switch (coll_) {
      case TUTTI_COLL_REDUCE_SCATTER:
        return reduce_scatter(lane);
      case TUTTI_COLL_ALL_GATHER:
        return all_gather(lane);
      default:
        return halves_chunks() ? all_reduce_by_halves(lane) : all_reduce_by_doubling(lane);
      }
    }

  private:
    bool halves_chunks() const { return many_slices_ && coll_ == TUTTI_COLL_ALL_REDUCE; }
    bool takes_in() const { return f_.takes_in(me_); }
    bool upper(int bit) const { return (place_ >> bit & 1) != 0; }
    int pair_link() const { return f_.bits; }

    // A row of chunks.
    struct Row {
      int first = 0, count = 0;
    };
    // The chunks of `places` places from `place` on: in all_reduce one for each.
    Row row_of(int place, int places) const {
      if (coll_ == TUTTI_COLL_ALL_REDUCE) return {place, places};
      const int first = f_.first_block(place);
      return {first, f_.first_block(place + places) - first};
    }
    // Of the 2^(bit+1) places that share the bits above `bit` with ours: our half, or the other one.
    Row half(int bit, bool ours) const {
      const int first = (ours ? place_ : place_ ^ (1 << bit)) >> bit << bit;
      return row_of(first, 1 << bit);
    }

    // Sends one row and receives another, in one message each or taking turns chunk by chunk: fn(first, count).
    template <class Send, class Receive> static void exchange(bool in_turns, Row out, Row in, Send send, Receive receive) {
      if (!in_turns) {
        if (out.count) send(out.first, out.count);
        if (in.count) receive(in.first, in.count);
        return;
      }
      for (int i = 0; i < std::max(out.count, in.count); i++) {
        if (i < out.count) send(out.first + i, 1);
        if (i < in.count) receive(in.first + i, 1);
      }
    }
    template <class Fn> void each_message(Row row, Fn fn) const {
      exchange(many_slices_, row, {}, fn, [](int, int) {});
    }

    void give_away(Lane lane) const {
      const int blocks = coll_ == TUTTI_COLL_ALL_GATHER ? 1 : coll_ == TUTTI_COLL_REDUCE_SCATTER ? f_.n : pieces();
      each_message({0, blocks}, [&](int first, int count) {
        auto step = lane.step().src(in(first, count)).send();
        if (coll_ != TUTTI_COLL_ALL_GATHER) step.preop();
      });
      const auto take = [&](int first, int count) { lane.step().recv().store(out(first, count)); };
      if (coll_ == TUTTI_COLL_REDUCE_SCATTER) return take(0, 1);
      if (coll_ != TUTTI_COLL_ALL_GATHER) return each_message({0, pieces()}, take);
      lane.step().src(in(0)).store(out(me_));
      each_message({0, me_}, take);
      each_message({me_ + 1, f_.n - me_ - 1}, take);
    }

    // Each step combines what the last exchange brought and begins the next one.
    void all_reduce_by_doubling(Lane lane) const {
      auto step = lane.step().src(in(0)).preop();
      if (takes_in()) step.recv(pair_link()).reduce();
      bool in_out = takes_in(); // what is passed on is no longer the operand in IN
      for (int bit = f_.bits - 1; bit >= 0; bit--) {
        if (in_out) step.store(out(0));
        step.send(bit);
        step = lane.step().src(in_out ? out(0) : in(0)).recv(bit).reduce().position(upper(bit));
        if (!in_out) step.preop();
        in_out = true;
      }
      step.postop().store(out(0));
      if (takes_in()) step.send(pair_link());
    }

    void all_reduce_by_halves(Lane lane) const {
      if (takes_in()) lane.step().src(in(0).every(1)).preop().recv(pair_link()).reduce().store(out(0).every(1)).repeat(f_.m);
      halve(
          lane, [](int c, int count) { return out(c, count); },
          [&](PlanWriter::Step step, int c) { step.postop().store(out(c)).send(0); });
      double_up(lane, 1);
      if (takes_in()) lane.step().src(out(0).every(1)).send(pair_link()).repeat(f_.m);
    }

    void reduce_scatter(Lane lane) const {
      const Row kept = takes_in() ? Row{0, f_.n} : half(f_.bits - 1, true);
      const bool uses_scratch = takes_in() || f_.bits > 1;
      int room = 0;
      for (int b = 0; uses_scratch && b < kept.count; b++) {
        const int chunk = w_.scratch_as(in(kept.first + b));
        if (b == 0) room = chunk;
      }
      const auto partial = [&](int b, int count) { return scratch(room + b - kept.first, count); };
      if (takes_in())
        each_message({0, f_.n}, [&](int b, int count) {
          lane.step().src(in(b, count)).preop().recv(pair_link()).reduce().store(partial(b, count));
        });
      halve(lane, partial, [&](PlanWriter::Step step, int b) {
        step.postop();
        if (b == me_)
          step.store(out(0));
        else
          step.send(pair_link());
      });
    }

    // partial(chunk, count): where sums of several operands are kept. finish(step, chunk): what becomes of a complete chunk.
    template <class Partial, class Finish> void halve(Lane lane, Partial partial, Finish finish) const {
      bool in_holds_all = !takes_in();
      for (int bit = f_.bits - 1; bit >= 0; bit--) {
        const auto operand = [&](int c, int count) {
          return in_holds_all ? lane.step().src(in(c, count)).preop() : lane.step().src(partial(c, count));
        };
        const auto send = [&](int c, int count) { operand(c, count).send(bit); };
        const auto receive = [&](int c, int count) {
          auto step = operand(c, count).recv(bit).reduce().position(upper(bit));
          if (bit > 0)
            step.store(partial(c, count));
          else
            finish(step, c);
        };
        // The two blocks of a pair of ranks part in the end.
        exchange(many_slices_ || bit == 0, half(bit, false), half(bit, true), send, receive);
        in_holds_all = false;
      }
    }

    void all_gather(Lane lane) const {
      auto own = lane.step().src(in(0)).store(out(me_));
      if (takes_in())
        lane.step().recv(pair_link()).store(out(me_ + 1));
      else
        own.send(0);
      double_up(lane, takes_in() ? 0 : 1);
      if (!takes_in()) return;
      const auto send = [&](int b, int count) { lane.step().src(out(b, count)).send(pair_link()); };
      each_message({0, me_ + 1}, send);
      each_message({me_ + 2, f_.n - me_ - 2}, send);
    }

    // From OUT to OUT. What goes over the links below `sent` has been sent already.
    void double_up(Lane lane, int sent) const {
      for (int bit = 0; bit < f_.bits; bit++) {
        const auto send = [&](int c, int count) { lane.step().src(out(c, count)).send(bit); };
        const auto receive = [&](int c, int count) { lane.step().recv(bit).store(out(c, count)); };
        exchange(many_slices_, bit < sent ? Row{} : half(bit, true), half(bit, false), send, receive);
      }
    }

    const Folding f_;
    const tutti_coll coll_;
    const int me_, place_;
    const bool many_slices_;
    PlanWriter &w_;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Rhd)
