// Collnet with a chain inside every host: where many ranks that feed one would stand in each other's way.
#include "../algo-collnet/schedule.h"

namespace {
using namespace algo_collnet;

// In rank order, the head at its end.
Place chain(const std::vector<int> &ranks, int head, int rank) {
  std::vector<int> order;
  for (const int r : ranks)
    if (r != head) order.push_back(r);
  order.push_back(head);
  const auto at = std::find(order.begin(), order.end(), rank);
  Place out;
  if (rank != head) out.parent = *(at + 1);
  if (at != order.begin()) out.children = {*(at - 1)};
  return out;
}

class Chain {
public:
  static constexpr Info info{"algo-collnet-chain", "0.1.0", "tutti", "Apache-2.0",
                             "in-network reduction, a chain to the heads"};
  static constexpr const char *algo_name = "collnet_chain";
  explicit Chain(const Host &) {}

  void supports(const tutti_algo_request &req) const { check_supported(req); }
  void plan(const tutti_algo_request &req, PlanWriter &w) const {
    check_supported(req);
    Schedule(req, w, chain).write();
  }
  void estimate(const tutti_algo_request &req, double &rounds, double &bytes_per_byte) const {
    algo_collnet::estimate(req, chain, levels_below(req, true), rounds, bytes_per_byte);
  }
};

} // namespace

TUTTI_CXX_PLUGIN(Chain)
