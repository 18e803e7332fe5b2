// An algorithm plugin, complete: two collectives along a line of ranks 0 - 1 - ... - n-1.
//
// all_reduce: partial sums flow from rank 0 up to rank n-1, which then holds the total; the total flows back down. Operands are
// combined in rank order, so all ranks get the same bits at any size. 2(n-1) rounds, 2 bytes sent per byte in the middle.
// broadcast: the root's data flows outwards in both directions. max(root, n-1-root) rounds.
//
// Copy this folder, rename it, and replace supports() and plan(). Check it with `tutti check-plugin libtutti-algo-linear.so`,
// look at it with `tutti plan show linear all_reduce -n 4`.
#include <tutti/plugin/cxx/plugin.hpp>

using namespace tutti::plugin;

namespace {

struct Linear {
  static constexpr Info info{"algo-linear", "1.0.0", "tutti", "Apache-2.0", "a line of ranks, as an example"};
  static constexpr const char *algo_name = "linear";
  static constexpr tutti_option options[] = {
      {"max_ranks", "64", "largest group that the line is offered for", nullptr, nullptr, 2, 1 << 20, TUTTI_OPT_INT, 0}, {}};

  explicit Linear(const Host &host) : max_ranks_(host.get_int("max_ranks")) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll != TUTTI_COLL_ALL_REDUCE && req.coll != TUTTI_COLL_BROADCAST)
      unsupported("linear serves all_reduce and broadcast only");
    if (req.nranks > max_ranks_) unsupported("linear is limited to ", max_ranks_, " ranks by option max_ranks");
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    w.shape(req, 1);
    if (req.coll == TUTTI_COLL_ALL_REDUCE)
      all_reduce(req.rank, req.nranks, w);
    else
      broadcast(req.rank, req.nranks, req.root, w);
  }

private:
  static void all_reduce(int r, int n, PlanWriter &w) {
    const bool first = r == 0, last = r == n - 1;
    auto lane = w.lane();
    if (!first) lane.from(r - 1).to(r - 1);
    if (!last) lane.from(r + 1).to(r + 1);
    const int up = first ? 0 : 1; // position of the links to r + 1; those to r - 1 are at 0
    if (first) {
      lane.step().src(in(0)).preop().send(up);
      lane.step().recv(up).store(out(0));
    } else if (last) {
      lane.step().recv(0).src(in(0)).preop().position(1).reduce().postop().store(out(0)).send(0);
    } else {
      lane.step().recv(0).src(in(0)).preop().position(1).reduce().send(up);
      lane.step().recv(up).store(out(0)).send(0);
    }
  }

  static void broadcast(int r, int n, int root, PlanWriter &w) {
    auto lane = w.lane();
    const int before = r <= root ? r + 1 : r - 1; // where the data comes from
    if (r != root) lane.from(before);
    int sends = 0;
    if (r <= root && r > 0) lane.to(r - 1), sends++;
    if (r >= root && r < n - 1) lane.to(r + 1), sends++;
    auto step = lane.step();
    if (r == root)
      step.src(in(0));
    else
      step.recv();
    step.store(out(0));
    if (sends > 0) step.send(0, sends);
  }

  int64_t max_ranks_;
};

} // namespace

TUTTI_CXX_PLUGIN(Linear)
