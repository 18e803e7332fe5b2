// tutti/core/plan/plan.h: a plan as the core keeps it: what an algorithm emitted for one rank, plus what the liveness pass
// found.
#pragma once
#include "base/status.h"
#include "plugin/registry.h"
#include "tutti/plugin/algo.h"
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// An owned copy of tutti_algo_request.
struct PlanRequest {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  int rank = 0, nranks = 0, root = -1;
  uint32_t channels = 1, flags = 0, max_lanes = 0;
  std::vector<int32_t> node_of_rank;
  struct Channel {
    std::vector<int32_t> order, tree_children;
    int32_t tree_parent = -1, head = -1, rail = -1;
  };
  std::vector<Channel> channel;
  // Defaults: all ranks on one node, identity order.
  static PlanRequest simple(tutti_coll coll, int rank, int nranks, int root = -1, uint32_t channels = 1, uint32_t flags = 0);
};

// The request as algorithms see it; borrows from the PlanRequest.
class RequestView {
public:
  explicit RequestView(const PlanRequest &request);
  RequestView(const RequestView &) = delete;
  RequestView &operator=(const RequestView &) = delete;
  const tutti_algo_request *c() const { return &c_; }

private:
  std::vector<tutti_channel> channels_;
  tutti_algo_request c_;
};
PlanRequest copy_request(const tutti_algo_request &request);

// What the liveness pass found about one step. Out-of-place and in-place (IN and OUT the same memory) are separate bits.
// They speak of a run without pre- and post-operation: with one, a step that has PREOP (POSTOP and no STORE) sends what its
// home does not hold. Scratch is never a home: it is reused `window` slices later.
enum StepLife : uint32_t {
  kSendHome = 1u << 0, // v's home (src, or dst once stored) is not written later in this slice: it can be sent from there
  kSendHomeInPlace = 1u << 1, // the same when IN and OUT are one
  kRecvHome = 1u << 2,        // a single received operand may land in dst at once (STORE, no REDUCE, dst not SCRATCH)
  kRecvEarly = 1u << 3,       // and before the step is reached: nothing touches dst earlier in this slice
  kRecvEarlyInPlace = 1u << 4,
};

struct PlanLane {
  uint32_t group = 0;
  std::vector<tutti_link> recv, send;
  std::vector<tutti_step> steps; // dep_first indexes Plan::deps
  std::vector<uint32_t> life;    // StepLife bits per step
};

struct Plan {
  std::string algo;
  PlanRequest request;
  uint32_t in_chunks = 0, out_chunks = 0, scratch_chunks = 0, groups = 1, min_depth = 2, window = 0, resident_lanes = 0;
  std::vector<tutti_chunk_id> scratch_size; // scratch_chunks entries
  bool step_major =
      false; // each lane runs all slices of a step before its next step: send/recv groups, whose peers' plans differ
  std::vector<PlanLane> lanes;
  std::vector<tutti_dep> deps;
  uint32_t pieces() const; // K: chunks per block
  // Hash of the ordered chunk ids that cross this link in one slice: the same on both ends, or they would misread each other.
  uint64_t fingerprint(const tutti_link &link, bool receiving) const;
};

// Collects a plan and refuses malformed calls with the lane, step and field. `builder()` is what algorithms get.
class PlanBuilder {
public:
  explicit PlanBuilder(PlanRequest request);
  ~PlanBuilder();
  const tutti_plan_builder *builder();
  const Status &error() const;                                  // the first refused call; ok while there was none
  Result<std::shared_ptr<const Plan>> finish(std::string algo); // well-formedness, then the liveness pass
private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Asks an algorithm; errors carry the algorithm's reason.
Status algo_supports(const Iface<tutti_algo_v1> &algo, const PlanRequest &request);
Result<std::shared_ptr<const Plan>> build_plan(const Iface<tutti_algo_v1> &algo, const PlanRequest &request);

// Sends and receives of one group, planned by the core: a lane per link and direction, conn kP2pConn + index of the pair's
// message. Peers' own plans need not be alike.
constexpr uint16_t kP2pConn = 0x8000;

} // namespace tutti
