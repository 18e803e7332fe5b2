// An algorithm for tests: allreduce through the first collnet group, a rank a host, what goes in and what comes back in one
// lane whatever the number of slices.
#include <tutti/plugin/cxx/plugin.hpp>

namespace {
using namespace tutti::plugin;

class OneLane {
public:
  static constexpr Info info{"algo-one-lane", "0.1.0", "tutti", "Apache-2.0", "for tests"};
  static constexpr const char *algo_name = "one_lane";
  explicit OneLane(const Host &) {}

  void supports(const tutti_algo_request &req) const {
    if (req.coll != TUTTI_COLL_ALL_REDUCE || !(req.flags & TUTTI_REQ_COLLNET)) unsupported("for tests of groups");
  }
  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    supports(req);
    w.shape(req, 1, 1);
    auto lane = w.lane(0);
    lane.to(0, 0, TUTTI_LINK_REDUCING);
    lane.from(0, 0, TUTTI_LINK_REDUCING);
    lane.step().src(in(0)).preop().send_more(0);
    lane.step().recv(0).postop().store(out(0));
  }
  void estimate(const tutti_algo_request &, double &rounds, double &bytes_per_byte) const { rounds = 2, bytes_per_byte = 1; }
};

} // namespace

TUTTI_CXX_PLUGIN(OneLane)
