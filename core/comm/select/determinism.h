// tutti/core/comm/select/determinism.h: coll.deterministic: what a choice of algorithm may depend on, and which algorithms give
// each element the same bits whatever the message is like.
#pragma once
#include "config/config.h"
#include "plan/check.h"
#include "plan/plan.h"
#include "topology/topology.h"

namespace tutti {

// In the order of the option's choices.
enum class Determinism : int64_t {
  off,
  run,  // the same bits in every run with the same ranks, divided into hosts alike, and the same settings
  size, // an element's bits depend on its operands, the number of ranks and their order alone
};
Determinism determinism_of(const Setting &setting);
const Setting &strictest_determinism(const Config &config); // of all collectives and sizes
std::string describe_determinism(const Setting &setting);   // `deterministic = "size" (TUTTI_DETERMINISTIC)`

// A request for `coll` as this communicator's topology shapes it.
PlanRequest make_request(const Topology &topology, tutti_coll coll, int rank, int root, uint32_t channels, uint32_t flags);

// The order in which an algorithm combines operands of a collective, rounding included: equal orders give equal bits.
struct FixedOrder {
  uint64_t id = 0;
  std::string reason; // why there is no one order; "" = there is
};
// Lets the checker prove plans for all ranks that differ from each other in everything that "size" must not depend on, one
// thing at a time: length of the message, channels, root, in place, hosts. The plan of each operation is proved again before
// its first use, see Communicator::make_plan. max_channels: that are allowed.
FixedOrder fixed_order(const Iface<tutti_algo_v1> &algo, tutti_coll coll, const Topology &topology, uint32_t min_channels,
                       uint32_t max_channels);
// Ok when the checked plans combine in this order.
Status confirm_order(const PlanStats &stats, uint64_t order_id, const PlanRequest &request, std::string_view algo);

} // namespace tutti
