// How an operation would run, and why, as JSON.
#include "base/types.h"
#include "comm/channels.h"
#include "comm/communicator.h"
#include "comm/local_plan.h"
#include <nlohmann/json.hpp>

using nlohmann::ordered_json;

namespace tutti {
namespace {

ordered_json geometry(std::string_view algo, std::string_view proto, uint32_t channels, uint32_t slot, uint32_t depth,
                      uint32_t flags) {
  return {{"algo", algo},       {"proto", proto}, {"channels", channels},
          {"slot_bytes", slot}, {"depth", depth}, {"nontemporal", (flags & TUTTI_CAND_NONTEMPORAL) != 0}};
}

// What is known of a way; `chosen` beside it may have other channels and slots, which a call asked for.
ordered_json rated_json(const Rated &w) {
  ordered_json way = geometry(w.algo.table->name, w.proto.table->name, w.channels, w.slot_bytes, w.depth, w.flags);
  if (w.can_run()) {
    way[w.timed ? "cost_us" : "place"] = w.cost_us;
    if (w.estimate) {
      way["predicted_us"] = w.estimate->us;
      way["model"] = w.estimate->text();
    }
    if (w.timed && w.measured) way["measured_us"] = w.cost_us;
    if (!w.note.empty()) way["note"] = w.note;
  }
  if (!w.reason.empty()) way["refused"] = w.reason;
  return way;
}

// What was searched; standard: what runs all the same goes in the standard order.
ordered_json topology_json(const ChannelPlan &plan, const Topology &topology) {
  ordered_json out{{"hosts", topology.node_count}, {"channels", 1}, {"why", plan.why}};
  if (!plan.cluster) return out;
  const Cluster &cluster = *plan.cluster;
  out["channels"] = cluster.channels.size();
  out["standard_order"] = !topology.cluster;
  out["reordering"] = reordering(cluster, topology);
  out["rings"] = ordered_json::array();
  for (const ClusterChannel &c : cluster.channels) out["rings"].push_back(c.ring);
  out["ports"] = ordered_json::array();
  for (size_t c = 0; c < cluster.channels.size(); c++) {
    ordered_json ports = ordered_json::array();
    for (size_t h = 0; h < cluster.hosts.size(); h++)
      if (const int32_t port = cluster.channels[c].hosts[h].port_in; port >= 0)
        ports.push_back(cluster.hosts[h].ports[static_cast<size_t>(port)].name);
    out["ports"].push_back(std::move(ports));
  }
  return out;
}

ordered_json collnet_json(const CollnetFacts &c, const std::string &lost) {
  ordered_json out{{"used", c.on && lost.empty()}};
  const std::string &why = c.on ? lost : c.why;
  if (!why.empty()) out["why"] = c.on ? "lost: " + why : why;
  if (!c.on) return out;
  out["plugin"] = c.where;
  out["groups"] = c.groups;
  out["outstanding"] = c.caps.max_outstanding;
  out["window_bytes"] = c.caps.window_bytes;
  out["depth"] = c.caps.tree_depth;
  out["aggregators_mbps"] = c.caps.bandwidth_mbps;
  out["host_mbps"] = c.host_mbps;
  return out;
}

} // namespace

// The chosen way in a size class, all others, and who decided.
Status Communicator::explain_choice(uint32_t row, uint32_t bucket, const CallConfig *asked, ordered_json &out) {
  uint32_t place = selection_.index[row][bucket];
  const std::string wish = asked ? asked->asked(coll_of_row(row)) : "";
  if (asked) {
    TUTTI_ASSIGN(found, choice_as_asked(row, bucket, *asked));
    place = found;
  }
  const Choice &c = choice(place);
  if (!c.algo) return tutti::fail(Code::invalid_usage, "{}", c.refusal);
  out.update(geometry(c.algo.table->name, c.proto.table->name, c.channels, c.slot_bytes, c.depth, c.flags));
  const uint64_t bytes = bytes_of(row, bucket);
  const auto ways = selector_->rate(row, bytes);
  const Decided who = wish.empty() ? selector_->decided(row, bytes, ways) : Decided{"call", wish};
  const std::string over = selector_->passed_over(row, bytes);
  const std::string note = selector_->determinism_note(row);
  out["why"] = fmt::format("tuner \"{}\", bucket {}, asked by rank 0{}{}{}{}", tuner_ ? tuner_.table->name : "none", bucket,
                           over.empty() ? "" : "; ", over, note.empty() ? "" : "; ", note);
  out["decided_by"] = who.by;
  if (!who.detail.empty()) out["decided_how"] = who.detail;
  if (asked && asked->shapes_links()) out["shaped_by"] = "call";
  if (asked && !asked->tag.empty()) out["tag"] = asked->tag;
  out["deterministic"] = options_.config->setting_for("coll.deterministic", coll_of_row(row), bytes).text;
  out["bucket"] = bucket;
  out["ways"] = ordered_json::array();
  for (const Rated &w : ways) {
    out["ways"].push_back(rated_json(w));
    if (w.algo.table == c.algo.table && w.proto.table == c.proto.table) out["ways"].back()["chosen"] = true;
  }
  for (const auto &[key, bound] : bounds_)
    if (key.row == row && key.choice == place) out["bound"] = core_->engine->bound_summary(bound);
  return {};
}

Result<std::string> Communicator::explain(std::string_view coll, uint64_t count, int type, const CallConfig *asked) {
  TUTTI_TRY(usable());
  TUTTI_TRY(check_type("explain", type));
  const bool v = coll == "alltoallv";
  // Blocks of different sizes run as equal ones of the same size together.
  const bool blocks = coll == "all_gather_v" || coll == "reduce_scatter_v";
  const auto found =
      v ? std::optional<tutti_coll>(TUTTI_COLL_ALL_TO_ALL) : coll_from(blocks ? coll.substr(0, coll.size() - 2) : coll);
  if (!found) return tutti::fail(Code::invalid_argument, "explain: \"{}\" is no collective", coll);
  const uint32_t row = v ? kRowV : *found, n = static_cast<uint32_t>(nranks_);
  const bool p2p = !v && *found == TUTTI_COLL_SEND_RECV;
  const uint64_t element =
      dtype_bytes(static_cast<tutti_dtype>(type)) * std::max(coll_in_blocks(*found, n), coll_out_blocks(*found, n));
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, element, &bytes))
    return tutti::fail(Code::invalid_argument, "explain: {} elements of {} bytes are more than 2^64 bytes", count, element);
  ordered_json out{
      {"coll", v        ? std::string_view("alltoallv")
               : blocks ? coll
                        : coll_name(*found)},
      {"count", count},
      {"type", dtype_name(static_cast<tutti_dtype>(type))},
      {"bytes", bytes},
      {"nranks", nranks_},
      {"rank", rank_},
      {"places", {{"hosts", topology_.node_count}, {"ppn", topology_.max_ppn()}, {"cores", topology_.min_cores()}}}};
  if (p2p || nranks_ == 1) {
    TUTTI_ASSIGN(local, local_selection());
    const Selection s = p2p ? p2p_selection() : local;
    out.update(geometry(p2p ? "p2p" : "local", local.proto.table->name, 1, s.slot_bytes, s.depth, s.flags));
    out["why"] = p2p ? "one plan per group, on links of their own" : "a lone rank copies";
  } else {
    TUTTI_TRY(explain_choice(row, bucket_of(bytes), asked, out));
  }
  ordered_json counts = ordered_json::object(), links = ordered_json::array();
  for (int r = 0; r < nranks_; r++) {
    if (r == rank_) continue;
    const std::string name(class_name(core_->engine->link_class(r)));
    counts[name] = counts.value(name, 0) + 1;
    links.push_back({{"peer", r}, {"link", core_->engine->describe_link(r)}});
  }
  out["topology"] = topology_json(*channels_, topology_);
  out["collnet"] = collnet_json(collnet_, core_->engine->collnet_lost());
  out["transports"] = counts;
  out["links"] = links;
  return out.dump();
}

} // namespace tutti
