// The direct algorithm: every rank talks to every other one. n = nranks.
//
//   alltoall(v), all_gather, gather, scatter, broadcast   each block goes straight to where it is needed: 1 round,
//                   (n-1)/n bytes per byte of the larger buffer (broadcast: n-1 from the root)
//   reduce_scatter  each block goes straight to its owner, who combines n operands at once: 1 round, (n-1)/n bytes per byte
//   reduce          the same with one owner: 1 round, 1 byte per byte
//   all_reduce      short messages, one shot: everybody sends everything to all, and all combine: 1 round, n-1 bytes per byte
//                   long ones (many slices), two phases, reduce_scatter and all_gather: 2 rounds, 2(n-1)/n bytes per byte
//
// Operands are combined in the order of the ranks, wherever that happens, so all ranks get the same bits. Peers are served in
// the order rank + 1, rank + 2, ...: no two ranks begin with the same one.
//
// Where the ranks share memory, what goes to all alike is sent once, through a link that all others read: 1 byte per byte for
// n-1 above.
//
// With one slice, one lane does everything: a second one costs its bookkeeping. With many slices, sending and receiving are
// lanes of their own, receivers first, so that slots are freed before new ones are wanted.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

class Direct {
public:
  static constexpr Info info{"algo-direct", "0.1.0", "tutti", "Apache-2.0", "one step to every peer: fewest rounds"};
  static constexpr const char *algo_name = "direct";

  explicit Direct(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll > TUTTI_COLL_BARRIER) unsupported("direct does not know this collective");
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    Schedule s(req, w);
    switch (req.coll) {
    case TUTTI_COLL_ALL_TO_ALL:
      return s.all_to_all();
    case TUTTI_COLL_ALL_GATHER:
      return s.all_gather();
    case TUTTI_COLL_REDUCE_SCATTER:
      return s.reduce_scatter();
    case TUTTI_COLL_BROADCAST:
      return s.broadcast();
    case TUTTI_COLL_REDUCE:
      return s.reduce();
    case TUTTI_COLL_GATHER:
      return s.gather();
    case TUTTI_COLL_SCATTER:
      return s.scatter();
    default:
      return s.many_slices() ? s.all_reduce_two_phase() : s.all_reduce_one_shot();
    }
  }

private:
  using Lane = PlanWriter::Lane;

  // Writes the plan of one rank. The number of a channel is the group of its lanes and the conn of its links.
  class Schedule {
  public:
    Schedule(const tutti_algo_request &req, PlanWriter &w)
        : req_(req), n(req.nranks), me(req.rank), root(req.root),
          shared(req.flags & TUTTI_REQ_MULTICAST && n > 2 ? int{TUTTI_LINK_MULTICAST} : 0), w_(w) {}

    bool many_slices() const {
      const bool room = req_.max_lanes == 0 || req_.max_lanes >= 3;
      return (req_.flags & TUTTI_REQ_MANY_SLICES) != 0 && room && req_.coll != TUTTI_COLL_BARRIER;
    }

    void all_to_all() {
      for (int ch = 0, end = shape(1, 2); ch < end; ch++) {
        auto [receive, send] = lanes(ch);
        from_behind(receive, ch);
        to_ahead(send, ch);
        send.step().src(in(me)).store(out(me));
        send.step().src(in(me + 1).every(1, n)).send().next_link(1).repeat(n - 1);
        receive.step().recv().store(out(me - 1).every(-1, n)).next_link(1).repeat(n - 1);
      }
    }

    void all_gather() {
      for (int ch = 0, end = shape(1, 2); ch < end; ch++) {
        auto [receive, send] = lanes(ch);
        from_behind(receive, ch, shared);
        to_all(send, ch);
        send.step().src(in(0)).store(out(me)).send(0, copies());
        receive.step().recv().store(out(me - 1).every(-1, n)).next_link(1).repeat(n - 1);
      }
    }

    void reduce_scatter() {
      for (int ch = 0, end = shape(1, 2); ch < end; ch++) {
        auto [receive, send] = lanes(ch);
        from_all(receive, ch);
        to_ahead(send, ch);
        send.step().src(in(me + 1).every(1, n)).preop().send().next_link(1).repeat(n - 1);
        receive.step().src(in(me)).preop().recv(0, n - 1).reduce().position(me).postop().store(out(0));
      }
    }

    void all_reduce_one_shot() {
      for (int ch = 0, end = shape(1, 1); ch < end; ch++) {
        Lane lane = w_.lane(ch);
        from_all(lane, ch, shared);
        to_all(lane, ch);
        lane.step().src(in(0)).preop().send(0, copies());
        lane.step().src(in(0)).preop().recv(0, n - 1).reduce().position(me).postop().store(out(0));
      }
    }

    // Rank r combines chunk r. Results have links of their own: they may overtake operands of a later slice.
    void all_reduce_two_phase() {
      const int channels = shape(n, 3);
      for (int ch = 0; ch < channels; ch++) {
        Lane results = w_.lane(ch), combine = w_.lane(ch), operands = w_.lane(ch);
        from_behind(results, channels + ch, shared);
        from_all(combine, ch);
        to_all(combine, channels + ch);
        to_ahead(operands, ch);
        auto sent = operands.step();
        sent.src(in(me + 1).every(1, n)).preop().send().next_link(1).repeat(n - 1);
        combine.step().src(in(me)).preop().recv(0, n - 1).reduce().position(me).postop().store(out(me)).send(0, copies());
        auto result = results.step();
        result.recv().store(out(me - 1).every(-1, n)).next_link(1).repeat(n - 1);
        if (in_place()) result.after(sent); // or the result of a chunk would overwrite what is still to be sent
      }
    }

    void broadcast() {
      for (int ch = 0, end = shape(1, 1); ch < end; ch++) {
        Lane lane = w_.lane(ch);
        if (me == root) {
          to_all(lane, ch);
          lane.step().src(in(0)).store(out(0)).send(0, copies());
        } else {
          lane.from(root, ch, shared).step().recv().store(out(0));
        }
      }
    }

    void reduce() {
      for (int ch = 0, end = shape(1, 1); ch < end; ch++) {
        Lane lane = w_.lane(ch);
        if (me == root) {
          from_all(lane, ch);
          lane.step().src(in(0)).preop().recv(0, n - 1).reduce().position(me).postop().store(out(0));
        } else {
          lane.to(root, ch).step().src(in(0)).preop().send();
        }
      }
    }

    void gather() {
      for (int ch = 0, end = shape(1, 1); ch < end; ch++) {
        Lane lane = w_.lane(ch);
        if (me == root) {
          from_behind(lane, ch);
          lane.step().src(in(0)).store(out(me));
          lane.step().recv().store(out(me - 1).every(-1, n)).next_link(1).repeat(n - 1);
        } else {
          lane.to(root, ch).step().src(in(0)).send();
        }
      }
    }

    void scatter() {
      for (int ch = 0, end = shape(1, 1); ch < end; ch++) {
        Lane lane = w_.lane(ch);
        if (me == root) {
          to_ahead(lane, ch);
          lane.step().src(in(me + 1).every(1, n)).send().next_link(1).repeat(n - 1);
          lane.step().src(in(me)).store(out(0));
        } else {
          lane.from(root, ch).step().recv().store(out(0));
        }
      }
    }

  private:
    bool in_place() const { return (req_.flags & TUTTI_REQ_IN_PLACE) != 0; }

    // Every block in `pieces` chunks. Returns the number of channels that are used: each takes up to `lanes` lanes.
    int shape(int pieces, int lanes) {
      const int channels = channels_for(req_, many_slices() ? lanes : 1);
      w_.shape(req_, pieces, channels);
      return channels;
    }

    // The lane that receives and the one that sends: the same one when there is but one slice.
    struct Lanes {
      Lane receive, send;
    };
    Lanes lanes(int group) {
      Lane receive = w_.lane(group);
      return {receive, many_slices() ? w_.lane(group) : receive};
    }

    void to_ahead(Lane lane, int conn) const {
      for (int k = 1; k < n; k++) lane.to((me + k) % n, conn);
    }
    void to_all(Lane lane, int conn) const { // what is the same for all
      if (shared)
        lane.to(me, conn, shared);
      else
        to_ahead(lane, conn);
    }
    int copies() const { return shared ? 1 : n - 1; } // links of to_all()
    // So that the k-th to receive from is the one whose k-th peer this rank is.
    void from_behind(Lane lane, int conn, int flags = 0) const {
      for (int k = 1; k < n; k++) lane.from((me - k + n) % n, conn, flags);
    }
    void from_all(Lane lane, int conn, int flags = 0) const { // in the order of the ranks, for operands
      for (int r = 0; r < n; r++)
        if (r != me) lane.from(r, conn, flags);
    }

    const tutti_algo_request &req_;
    const int n, me, root;
    const int shared; // flags of links that carry the same to all: one of them has all readers where memory is shared
    PlanWriter &w_;
  };
};

} // namespace

TUTTI_CXX_PLUGIN(Direct)
