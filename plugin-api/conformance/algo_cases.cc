#include "base/types.h"
#include "plan/check.h"
#include "suite.h"
#include <cstring>

namespace tutti::conformance {
namespace {

using Plans = std::vector<std::shared_ptr<const Plan>>;

Iface<tutti_algo_v1> iface_of(const Plugin &plugin, const void *table) {
  return {&plugin, static_cast<const tutti_algo_v1 *>(table)};
}

// Ranks spread over hosts of `per_node` ranks, channels with rotated rings and, over several hosts, trees along them: what a
// topology search might give.
PlanRequest spread(tutti_coll coll, int rank, int n, int root, uint32_t channels, uint32_t flags, int per_node,
                   uint32_t max_lanes) {
  PlanRequest r = PlanRequest::simple(coll, rank, n, root, channels, flags);
  r.max_lanes = max_lanes;
  if (per_node <= 0) return r;
  for (int i = 0; i < n; i++) r.node_of_rank[static_cast<size_t>(i)] = i / per_node;
  for (uint32_t c = 0; c < r.channel.size(); c++)
    for (int i = 0; i < n; i++) r.channel[c].order[static_cast<size_t>(i)] = (i + static_cast<int>(c)) % n;
  for (uint32_t c = 0; c < r.channel.size() && per_node < n; c++) {
    auto &[order, children, parent, head, rail] = r.channel[c];
    const int at = (rank - static_cast<int>(c) % n + n) % n;
    if (at > 0) parent = order[static_cast<size_t>((at - 1) / 2)];
    for (int i = 2 * at + 1; i <= 2 * at + 2 && i < n; i++) children.push_back(order[static_cast<size_t>(i)]);
    head = order[0];
    rail = static_cast<int>(c);
  }
  return r;
}

// Plans of all ranks, or nothing when the algorithm does not serve the request; ranks must agree on that.
Plans build_all(const Iface<tutti_algo_v1> &algo, tutti_coll coll, int n, int root, uint32_t channels, uint32_t flags,
                int per_node, uint32_t max_lanes) {
  Plans plans;
  for (int rank = 0; rank < n; rank++) {
    const PlanRequest request = spread(coll, rank, n, root, channels, flags, per_node, max_lanes);
    const bool served = algo_supports(algo, request).ok();
    require(rank == 0 || served == !plans.empty(), "{} with {} ranks: rank {} says it is {}, rank 0 does not", coll_name(coll),
            n, rank, served ? "supported" : "unsupported");
    if (!served) continue;
    auto plan = build_plan(algo, request);
    if (!plan.ok())
      broken("{} with {} ranks, root {}, rank {}: {}", coll_name(coll), n, root, rank, plan.status().error().message);
    plans.push_back(*plan);
  }
  return plans;
}

size_t g_served = 0; // requests served in this process: a case runs alone in its process

void prove(const Iface<tutti_algo_v1> &algo, tutti_coll coll, int n, int root, uint32_t channels, uint32_t flags, int per_node,
           uint32_t max_lanes = 0) {
  const Plans plans = build_all(algo, coll, n, root, channels, flags, per_node, max_lanes);
  if (plans.empty()) return;
  g_served++;
  CheckOptions options;
  options.in_place = (flags & TUTTI_REQ_IN_PLACE) != 0;
  const auto findings = check_plans(plans, options);
  if (findings.empty()) return;
  broken("{} with {} ranks, root {}, {} channels{}: {}: {}{}", coll_name(coll), n, root, channels,
         options.in_place ? ", in place" : "", findings[0].rule, findings[0].text,
         findings.size() > 1 ? fmt::format(" (and {} more)", findings.size() - 1) : "");
}

template <tutti_coll coll> void right_for_all(const Plugin &plugin, const void *table) {
  const auto algo = iface_of(plugin, table);
  for (int n = 2; n <= 64; n++) {
    std::vector<int> roots = {-1};
    if (coll_has_root(coll)) roots = {0, n - 1};
    for (int root : roots) prove(algo, coll, n, root, 1, 0, 0);
  }
  if (g_served == 0) skip("the algorithm does not serve it");
}

template <tutti_coll coll> void right_in_variants(const Plugin &plugin, const void *table) {
  const auto algo = iface_of(plugin, table);
  const int root = coll_has_root(coll) ? 1 : -1;
  for (int n : {2, 3, 4, 5, 7, 8, 12, 16}) {
    for (uint32_t channels : {1u, 2u, 3u, 4u}) prove(algo, coll, n, root, channels, 0, 0);
    prove(algo, coll, n, root, 1, TUTTI_REQ_IN_PLACE, 0);
    prove(algo, coll, n, root, 2, TUTTI_REQ_IN_PLACE | TUTTI_REQ_MANY_SLICES, 0);
    prove(algo, coll, n, root, 1, TUTTI_REQ_MANY_SLICES, 0);
    prove(algo, coll, n, root, 2, 0, 2);
    for (uint32_t more : {0u, uint32_t(TUTTI_REQ_MANY_SLICES), uint32_t(TUTTI_REQ_IN_PLACE), uint32_t(TUTTI_REQ_NONUNIFORM)})
      prove(algo, coll, n, root, 2, TUTTI_REQ_MULTICAST | more, 0);
    prove(algo, coll, n, root, 1, TUTTI_REQ_NONUNIFORM, 0);
    for (uint32_t max_lanes : {1u, 2u, 3u, 5u}) prove(algo, coll, n, root, 3, TUTTI_REQ_MANY_SLICES, 0, max_lanes);
  }
  if (g_served == 0) skip("the algorithm does not serve it");
}

void serves_something(const Plugin &plugin, const void *table) {
  const auto algo = iface_of(plugin, table);
  for (uint32_t coll = 0; coll < TUTTI_COLL_SEND_RECV; coll++)
    if (algo_supports(algo, PlanRequest::simple(coll, 0, 4, coll_has_root(coll) ? 0 : -1)).ok()) return;
  broken("the algorithm serves no collective among 4 ranks");
}

void refuses_with_reason(const Plugin &plugin, const void *table) {
  const auto algo = iface_of(plugin, table);
  for (uint32_t coll : {uint32_t(TUTTI_COLL_SEND_RECV), uint32_t(TUTTI_COLL_COUNT), 1000u}) {
    const Status s = algo_supports(algo, PlanRequest::simple(coll, 0, 4, -1));
    require(!s.ok(), "supports() accepts collective {}, which is not for plugins", coll);
    require(s.error().message.find("no reason") == std::string::npos, "supports() refuses collective {} without set_error()",
            coll);
  }
}

void pure(const Plugin &plugin, const void *table) {
  const auto algo = iface_of(plugin, table);
  for (uint32_t coll = 0; coll < TUTTI_COLL_SEND_RECV; coll++)
    for (int rank : {0, 3, 5}) {
      const PlanRequest request = PlanRequest::simple(coll, rank, 6, coll_has_root(coll) ? 2 : -1);
      if (!algo_supports(algo, request).ok()) continue;
      const auto first = build_plan(algo, request);
      (void)build_plan(algo, PlanRequest::simple(coll, 1, 9, coll_has_root(coll) ? 2 : -1)); // must leave no trace
      const auto second = build_plan(algo, request);
      require(first.ok() && second.ok(), "{} for rank {} of 6 cannot be planned", coll_name(coll), rank);
      require(dump_text(**first) == dump_text(**second), "{} for rank {} of 6 was planned in two ways", coll_name(coll), rank);
    }
}

void estimates(const Plugin &plugin, const void *table) {
  const auto *algo = static_cast<const tutti_algo_v1 *>(table);
  if (!TUTTI_HAS(tutti_algo_v1, algo, estimate)) skip("estimate is left to the core");
  const std::vector<int32_t> nodes(16, 0);
  for (int32_t n = 2; n <= 16; n++) {
    std::vector<int32_t> order;
    for (int32_t i = 0; i < n; i++) order.push_back(i);
    const tutti_channel channel{order.data(), nullptr, 0, -1, -1, -1};
    const tutti_algo_request request{sizeof(request), TUTTI_COLL_ALL_REDUCE, 0,       n, -1, 1, 0, 0, 1,
                                     sizeof(channel), nodes.data(),          &channel};
    double rounds = -1, bytes = -1;
    if (algo->supports(plugin.state, &request) != TUTTI_OK) continue;
    require(algo->estimate(plugin.state, &request, &rounds, &bytes) == TUTTI_OK, "estimate for {} ranks failed", n);
    require(rounds > 0 && rounds < 1e6 && bytes > 0 && bytes < 1e6, "estimate for {} ranks: {} rounds, {} bytes per byte", n,
            rounds, bytes);
  }
}

// A builder that only writes down what it is told.
struct Recorder {
  std::string all;
  void add(const void *bytes, size_t n) {
    if (n) all.append(static_cast<const char *>(bytes), n);
  }
  static Recorder &of(void *impl) { return *static_cast<Recorder *>(impl); }
  static tutti_status begin(void *impl, const tutti_plan_shape *shape) noexcept {
    tutti_plan_shape s = *shape;
    s.scratch_size = nullptr; // an address
    of(impl).add(&s, sizeof s);
    if (shape->scratch_size) of(impl).add(shape->scratch_size, shape->scratch_chunks * sizeof(tutti_chunk_id));
    return TUTTI_OK;
  }
  static tutti_status lane(void *impl, uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send,
                           uint32_t nsend) noexcept {
    of(impl).add(&group, sizeof group);
    of(impl).add(recv, nrecv * sizeof(tutti_link));
    of(impl).add(send, nsend * sizeof(tutti_link));
    return TUTTI_OK;
  }
  static tutti_status step(void *impl, const tutti_step *step, const tutti_dep *deps) noexcept {
    of(impl).add(step, sizeof *step);
    of(impl).add(deps, step->dep_count * sizeof(tutti_dep));
    return TUTTI_OK;
  }
};

// What a later version appends, and bits that it defines, change nothing for a plugin of this one.
void newer_requests(const Plugin &plugin, const void *table) {
  const auto &algo = *static_cast<const tutti_algo_v1 *>(table);
  struct NewerChannel {
    tutti_channel known;
    unsigned char more[24];
  };
  struct NewerRequest {
    tutti_algo_request known;
    unsigned char more[64];
  };
  constexpr int32_t n = 6;
  const std::vector<int32_t> nodes = {0, 0, 0, 1, 1, 1};
  const std::vector<int32_t> orders[2] = {{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}};
  tutti_channel channels[2];
  NewerChannel newer_channels[2];
  std::memset(newer_channels, 0xff, sizeof newer_channels);
  for (size_t i = 0; i < 2; i++) newer_channels[i].known = channels[i] = {orders[i].data(), nullptr, 0, -1, -1, -1};
  for (tutti_coll coll = 0; coll < TUTTI_COLL_SEND_RECV; coll++)
    for (int32_t rank = 0; rank < n; rank++) {
      tutti_algo_request request{sizeof(request),       coll,         rank,    n, coll_has_root(coll) ? 1 : -1, 2, 0, 0, 2,
                                 sizeof(tutti_channel), nodes.data(), channels};
      NewerRequest newer;
      std::memset(&newer, 0xff, sizeof newer);
      newer.known = request;
      newer.known.struct_size = sizeof newer;
      newer.known.flags |= 1u << 30;
      newer.known.channel_stride = sizeof(NewerChannel);
      newer.known.channel = &newer_channels[0].known;
      const bool served = algo.supports(plugin.state, &request) == TUTTI_OK;
      require(served == (algo.supports(plugin.state, &newer.known) == TUTTI_OK),
              "{} for rank {} is supported differently when it is asked for by a newer core", coll_name(coll), rank);
      if (!served) continue;
      Recorder plan, newer_plan;
      tutti_plan_builder builder{sizeof(builder), 0, &plan, Recorder::begin, Recorder::lane, Recorder::step};
      require(algo.plan(plugin.state, &request, &builder) == TUTTI_OK, "{} for rank {} is supported and cannot be planned",
              coll_name(coll), rank);
      builder.impl = &newer_plan;
      require(algo.plan(plugin.state, &newer.known, &builder) == TUTTI_OK, "{} for rank {} cannot be planned for a newer core",
              coll_name(coll), rank);
      require(plan.all == newer_plan.all, "{} for rank {} is planned differently for a newer core", coll_name(coll), rank);
    }
}

constexpr std::chrono::seconds kLong{60};

} // namespace

std::span<const Case> algo_cases() {
#define TUTTI_COLL_CASES(number, coll, text)                                                                                   \
  {"A-" number "a", text ": right for 2 to 64 ranks", right_for_all<coll>, kLong}, {                                           \
    "A-" number "b", text ": right in place, with several channels, hosts and slices, and few lanes", right_in_variants<coll>, \
        kLong                                                                                                                  \
  }
  static const Case all[] = {
      {"A-01", "the algorithm serves at least one collective", serves_something},
      {"A-02", "what is not for plugins is refused with a reason", refuses_with_reason},
      {"A-03", "plan() is a pure function of its request", pure},
      {"A-04", "estimate() gives positive numbers", estimates},
      {"A-05", "requests of newer versions are read: longer structs, a wider stride, unknown flags", newer_requests},
      TUTTI_COLL_CASES("10", TUTTI_COLL_ALL_REDUCE, "all_reduce"),
      TUTTI_COLL_CASES("11", TUTTI_COLL_REDUCE, "reduce"),
      TUTTI_COLL_CASES("12", TUTTI_COLL_BROADCAST, "broadcast"),
      TUTTI_COLL_CASES("13", TUTTI_COLL_ALL_GATHER, "all_gather"),
      TUTTI_COLL_CASES("14", TUTTI_COLL_REDUCE_SCATTER, "reduce_scatter"),
      TUTTI_COLL_CASES("15", TUTTI_COLL_ALL_TO_ALL, "alltoall"),
      TUTTI_COLL_CASES("16", TUTTI_COLL_GATHER, "gather"),
      TUTTI_COLL_CASES("17", TUTTI_COLL_SCATTER, "scatter"),
      TUTTI_COLL_CASES("18", TUTTI_COLL_BARRIER, "barrier"),
  };
#undef TUTTI_COLL_CASES
  return all;
}

} // namespace tutti::conformance
