// Asking an algorithm plugin for a plan.
#include "base/types.h"
#include "plan/plan.h"
#include "plugin/guard.h"
#include <algorithm>
#include <numeric>

namespace tutti {

PlanRequest PlanRequest::simple(tutti_coll coll, int rank, int nranks, int root, uint32_t channels, uint32_t flags) {
  PlanRequest r;
  r.coll = coll;
  r.rank = rank;
  r.nranks = nranks;
  r.root = root;
  r.channels = channels;
  r.flags = flags;
  r.node_of_rank.assign(static_cast<size_t>(nranks), 0);
  r.channel.resize(channels);
  for (Channel &c : r.channel) {
    c.order.resize(static_cast<size_t>(nranks));
    std::iota(c.order.begin(), c.order.end(), 0);
  }
  return r;
}

RequestView::RequestView(const PlanRequest &r) {
  for (const PlanRequest::Channel &c : r.channel)
    channels_.push_back(
        {c.order.data(), c.tree_children.data(), static_cast<uint32_t>(c.tree_children.size()), c.tree_parent, c.head, c.rail});
  const int nodes = r.node_of_rank.empty() ? 0 : *std::max_element(r.node_of_rank.begin(), r.node_of_rank.end());
  c_ = {};
  c_.struct_size = sizeof c_;
  c_.coll = r.coll;
  c_.rank = r.rank;
  c_.nranks = r.nranks;
  c_.root = r.root;
  c_.channels = r.channels;
  c_.flags = r.flags;
  c_.max_lanes = r.max_lanes;
  c_.node_count = static_cast<uint32_t>(nodes + 1);
  c_.channel_stride = sizeof(tutti_channel);
  c_.node_of_rank = r.node_of_rank.data();
  c_.channel = channels_.data();
}

PlanRequest copy_request(const tutti_algo_request &q) {
  PlanRequest r;
  r.coll = q.coll;
  r.rank = q.rank;
  r.nranks = q.nranks;
  r.root = q.root;
  r.channels = q.channels;
  r.flags = q.flags;
  r.max_lanes = q.max_lanes;
  r.node_of_rank.assign(q.node_of_rank, q.node_of_rank + q.nranks);
  for (uint32_t i = 0; i < q.channels; i++) {
    const auto &c =
        *reinterpret_cast<const tutti_channel *>(reinterpret_cast<const char *>(q.channel) + size_t{q.channel_stride} * i);
    r.channel.push_back({{c.order, c.order + q.nranks}, {}, c.tree_parent, c.head, c.rail});
    if (c.tree_nchildren) r.channel.back().tree_children.assign(c.tree_children, c.tree_children + c.tree_nchildren);
  }
  return r;
}

namespace {

Status check_request(const PlanRequest &r) {
  if (r.coll >= TUTTI_COLL_SEND_RECV)
    return fail(Code::internal, "plan request: {} is not planned by algorithms", coll_name(r.coll));
  if (r.nranks < 2 || r.rank < 0 || r.rank >= r.nranks)
    return fail(Code::internal, "plan request: rank {} of {}; plans need at least 2 ranks", r.rank, r.nranks);
  if (coll_has_root(r.coll) ? r.root < 0 || r.root >= r.nranks : r.root != -1)
    return fail(Code::internal, "plan request: root {} for {} of {} ranks", r.root, coll_name(r.coll), r.nranks);
  if (r.channels == 0 || r.channel.size() != r.channels)
    return fail(Code::internal, "plan request: {} channels, {} described", r.channels, r.channel.size());
  if (r.node_of_rank.size() != static_cast<size_t>(r.nranks))
    return fail(Code::internal, "plan request: node of {} ranks, of {}", r.node_of_rank.size(), r.nranks);
  for (const auto &c : r.channel)
    if (c.order.size() != static_cast<size_t>(r.nranks))
      return fail(Code::internal, "plan request: an order of {} ranks, of {}", c.order.size(), r.nranks);
  return {};
}

} // namespace

Status algo_supports(const Iface<tutti_algo_v1> &algo, const PlanRequest &request) {
  TUTTI_TRY(check_request(request));
  const RequestView view(request);
  const tutti_status s = guarded(algo.plugin, "supports", algo.table->supports, algo.plugin->state, view.c());
  if (s == TUTTI_OK) return {};
  return plugin_error(*algo.plugin, s, fmt::format("{} with {} ranks", coll_name(request.coll), request.nranks));
}

Result<std::shared_ptr<const Plan>> build_plan(const Iface<tutti_algo_v1> &algo, const PlanRequest &request) {
  TUTTI_TRY(check_request(request));
  const RequestView view(request);
  PlanBuilder builder(request);
  const tutti_status s = guarded(algo.plugin, "plan", algo.table->plan, algo.plugin->state, view.c(), builder.builder());
  if (!builder.error().ok()) { // the builder's reason is better than what the plugin made of it
    Status error = builder.error();
    error.error().message = fmt::format("{}: {}: {}", algo.table->name, coll_name(request.coll), error.error().message);
    return error;
  }
  if (s != TUTTI_OK)
    return plugin_error(*algo.plugin, s, fmt::format("{} with {} ranks", coll_name(request.coll), request.nranks));
  return builder.finish(algo.table->name);
}

} // namespace tutti
