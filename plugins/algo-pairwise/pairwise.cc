// Pairwise all-to-all for long messages. n = nranks.
//
// n - 1 rounds. In each, a rank sends one block and receives one: with a power of two of ranks both from the same partner
// (rank xor round), else to the rank `round` places ahead and from the one as many behind. (n-1)/n bytes per byte, no SCRATCH,
// every block straight from IN to OUT.
//
// The same bytes as `direct`, which offers all blocks at once: here a rank has one sender and one receiver at a time, so that
// no receiver is flooded and no more than two slots are busy, at the price of waiting for a slow partner.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

class Pairwise {
public:
  static constexpr Info info{"algo-pairwise", "0.1.0", "tutti", "Apache-2.0", "pairwise all-to-all: one partner at a time"};
  static constexpr const char *algo_name = "pairwise";

  explicit Pairwise(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll != TUTTI_COLL_ALL_TO_ALL) unsupported("pairwise serves alltoall only");
  }

  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    const int n = req.nranks, me = req.rank, channels = channels_for(req);
    const bool power_of_two = (n & (n - 1)) == 0;
    w.shape(req, 1, channels);
    for (int ch = 0; ch < channels; ch++) {
      auto lane = w.lane(ch);
      lane.step().src(in(me)).store(out(me));
      for (int round = 1; round < n; round++) {
        const int to = power_of_two ? me ^ round : (me + round) % n;
        const int from = power_of_two ? me ^ round : (me - round + n) % n;
        lane.from(from, ch).to(to, ch);
        lane.step().src(in(to)).send(round - 1);
        lane.step().recv(round - 1).store(out(from));
      }
    }
  }

  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    supports(req);
    rounds = req.nranks - 1;
    bytes_per_byte = double(req.nranks - 1) / req.nranks;
  }
};

} // namespace

TUTTI_CXX_PLUGIN(Pairwise)
