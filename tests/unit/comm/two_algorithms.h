// tests/unit/comm/two_algorithms.h: a selector over plugins that are made up: two algorithms with different orders, three
// protocols, two tuners.
#pragma once
#include "comm/select/select.h"
#include "tutti/plugin/cxx/plugin.hpp"
#include <cstring>
#include <doctest/doctest.h>
#include <type_traits>

namespace two {

using namespace tutti;

using Reverse = bool (*)(const tutti_algo_request &);

// Everybody sends to everybody, and all combine in the order of the ranks, or the other way round where `reverse` says so.
template <Reverse reverse> tutti_status plan_all(void *, const tutti_algo_request *q, const tutti_plan_builder *out) noexcept {
  plugin::PlanWriter w;
  const int n = q->nranks, me = q->rank;
  w.shape(*q, 1, static_cast<int>(q->channels));
  for (int ch = 0; ch < static_cast<int>(q->channels); ch++) {
    auto lane = w.lane(ch);
    const bool backwards = reverse(*q);
    for (int i = 0; i < n; i++)
      if (const int peer = backwards ? n - 1 - i : i; peer != me) lane.from(peer, ch);
    for (int k = 1; k < n; k++) lane.to((me + k) % n, ch);
    lane.step().src(plugin::in(0)).preop().send(0, n - 1);
    auto result = lane.step().src(plugin::in(0)).preop().recv(0, n - 1).reduce().position(backwards ? n - 1 - me : me);
    result.postop().store(plugin::out(0));
  }
  return w.emit(*out);
}
inline tutti_status all_reduce_only(void *, const tutti_algo_request *q) noexcept {
  return q->coll == TUTTI_COLL_ALL_REDUCE ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}
template <Reverse reverse> tutti_algo_v1 algorithm(const char *name) {
  return {sizeof(tutti_algo_v1), 0, name, all_reduce_only, plan_all<reverse>, nullptr};
}
inline bool never(const tutti_algo_request &) {
  return false;
}
inline bool always(const tutti_algo_request &) {
  return true;
}
inline bool when_long(const tutti_algo_request &q) {
  return q.flags & TUTTI_REQ_MANY_SLICES;
}
inline bool in_place(const tutti_algo_request &q) {
  return q.flags & TUTTI_REQ_IN_PLACE;
}
inline bool with_channels(const tutti_algo_request &q) {
  return q.channels > 1;
}
inline bool with_hosts(const tutti_algo_request &q) {
  return q.node_count > 1;
}

inline Topology of_hosts(const std::vector<uint64_t> &hosts) {
  std::vector<TopologyInput> ranks;
  for (const uint64_t h : hosts) ranks.push_back({h, CpuSet::from_words({})});
  return make_topology(ranks);
}

template <Reverse reverse> FixedOrder order(const Topology &t) {
  static const Plugin plugin;
  const tutti_algo_v1 table = algorithm<reverse>("x");
  return fixed_order({&plugin, &table}, TUTTI_COLL_ALL_REDUCE, t, 1, 64);
}

// ---- a registry of two algorithms with different orders, three protocols, a tuner that notes what it is asked, and one that
// ---- looks at protocols

inline std::vector<tutti_tune_query> asked;

// Short messages by "forth", long ones by "back": three places better, so that most size classes would rather have that.
inline tutti_status rate(void *, const tutti_tune_query *q, tutti_candidate *c, uint32_t n, uint32_t) noexcept {
  asked.push_back(*q);
  for (uint32_t i = 0; i < n; i++) c[i].cost_us = (std::strcmp(c[i].algo, "back") == 0) == (q->bytes > 1024) ? 1 : 2;
  return TUTTI_OK;
}
// "forth" over lines in 16 of the 28 classes that count, "back" in the others over whatever there is. Were it not orders but
// ways that take places, "forth" would lose in each of those 12 as many places as "back" has protocols, and so lose by
// protocols.
inline tutti_status rate_protos(void *, const tutti_tune_query *q, tutti_candidate *c, uint32_t n, uint32_t) noexcept {
  for (uint32_t i = 0; i < n; i++) {
    const std::string_view algo = c[i].algo, proto = c[i].proto;
    c[i].cost_us = 1000 + i;
    if (q->bytes > 1 << 18) {
      if (algo == "back") c[i].cost_us = 1;
    } else if (algo == "forth" && proto == "lines") {
      c[i].cost_us = 2;
    } else if (algo == "back" && proto != "lines") {
      c[i].cost_us = proto == "lent" ? 1 : 3;
    }
  }
  return TUTTI_OK;
}
inline void nothing() {}
inline tutti_kernel kernel(void *, tutti_form, tutti_dtype, tutti_redop, uint32_t) noexcept {
  return nothing;
}
inline constexpr tutti_tuner_v1 kTuner = {sizeof kTuner, 0, "asked", rate};
inline constexpr tutti_tuner_v1 kProtoTuner = {sizeof kProtoTuner, 0, "protocols", rate_protos};
inline constexpr tutti_proto_v1 kProto = {sizeof kProto, TUTTI_SIGNAL_COUNTER, "plain", 1, 1, 8, 56, kernel};
inline constexpr tutti_proto_v1 kLines = {sizeof kLines, TUTTI_SIGNAL_COUNTER, "lines", 1, 1, 8, 56, kernel};
inline constexpr tutti_proto_v1 kLent = {sizeof kLent, TUTTI_SIGNAL_DESCRIPTOR, "lent", 1, 1, 8, 56, kernel};
inline const tutti_algo_v1 kAlgoForth = algorithm<never>("forth"), kAlgoBack = algorithm<always>("back");
inline tutti_status open(const tutti_host *, void **) noexcept {
  return TUTTI_OK;
}
inline void close(void *) noexcept {}
inline const void *forth(void *, const char *id) noexcept {
  if (std::strcmp(id, TUTTI_TUNER) == 0) return &kTuner;
  if (std::strcmp(id, TUTTI_PROTO) == 0) return &kProto;
  return std::strcmp(id, TUTTI_ALGO) == 0 ? &kAlgoForth : nullptr;
}
inline const void *back(void *, const char *id) noexcept {
  if (std::strcmp(id, TUTTI_TUNER) == 0) return &kProtoTuner;
  if (std::strcmp(id, TUTTI_PROTO) == 0) return &kLines;
  return std::strcmp(id, TUTTI_ALGO) == 0 ? &kAlgoBack : nullptr;
}
inline const void *lent(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_PROTO) == 0 ? &kLent : nullptr;
}
inline constexpr const char *kAll[] = {TUTTI_TUNER, TUTTI_PROTO, TUTTI_ALGO, nullptr}, *kProtoOnly[] = {TUTTI_PROTO, nullptr};
inline constexpr tutti_plugin_desc desc(const char *name, const char *const *ifaces,
                                        const void *(*get)(void *, const char *) noexcept) {
  return {sizeof(tutti_plugin_desc),
          TUTTI_ABI_MAJOR,
          TUTTI_ABI_MINOR,
          name,
          "1.0",
          "tests",
          "Apache-2.0",
          "linked in",
          ifaces,
          nullptr,
          open,
          close,
          get};
}
inline constexpr tutti_plugin_desc kForthDesc = desc("forth", kAll, forth), kBackDesc = desc("back", kAll, back),
                                   kLentDesc = desc("lent", kProtoOnly, lent);

// Calls fn with a selector of three ranks on two hosts over a network.
template <class Fn>
void select_with(const std::map<std::string, std::string> &env, const Fn &fn, const char *tuner = "asked",
                 const char *no_pull = "", const char *toml = "") {
  static const bool added = [] {
    Registry::add_static(&kForthDesc);
    Registry::add_static(&kBackDesc);
    Registry::add_static(&kLentDesc);
    return true;
  }();
  REQUIRE(added);
  auto config = Config::from(toml, "test.toml", env);
  REQUIRE(config.ok());
  auto registry = Registry::load(*config, {});
  REQUIRE(registry.ok());
  const Topology topology = of_hosts({1, 1, 2});
  Selector::Input in;
  in.registry = registry->get();
  in.config = *config;
  auto named = (*registry)->named<tutti_tuner_v1>(TUTTI_TUNER, tuner);
  REQUIRE(named.ok());
  in.tuner = *named;
  in.no_pull = no_pull;
  in.topology = &topology;
  in.slowest = LinkClass::net;
  auto selector = Selector::create(in);
  REQUIRE(selector.ok());
  asked.clear();
  if constexpr (std::is_invocable_v<Fn, const Selector &>)
    fn(*selector);
  else
    fn(*selector, **registry);
}

} // namespace two
