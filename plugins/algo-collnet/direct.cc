// Collnet with a star inside every host: all ranks feed each channel's head directly, in one round.
#include "schedule.h"

namespace {
using namespace algo_collnet;

Place star(const std::vector<int> &ranks, int head, int rank) {
  if (rank != head) return {head, {}};
  Place at;
  for (const int r : ranks)
    if (r != head) at.children.push_back(r);
  return at;
}

class Direct {
public:
  static constexpr Info info{"algo-collnet", "0.1.0", "tutti", "Apache-2.0", "in-network reduction, every rank to the heads"};
  static constexpr const char *algo_name = "collnet_direct";
  explicit Direct(const Host &) {}

  void supports(const tutti_algo_request &req) const { check_supported(req); }
  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    check_supported(req);
    Schedule(req, w, star).write();
  }
  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    algo_collnet::estimate(req, star, levels_below(req, false), rounds, bytes_per_byte);
  }
};

} // namespace

TUTTI_CXX_PLUGIN(Direct)
