// Which algorithms have one order of combining, and what the choice depends on under each value of coll.deterministic.
#include "comm/select/select.h"
#include "tutti/plugin/cxx/plugin.hpp"
#include <cstring>
#include <doctest/doctest.h>
#include <functional>

using namespace tutti;

namespace {

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
tutti_status all_reduce_only(void *, const tutti_algo_request *q) noexcept {
  return q->coll == TUTTI_COLL_ALL_REDUCE ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
}
template <Reverse reverse> tutti_algo_v1 algorithm(const char *name) {
  return {sizeof(tutti_algo_v1), 0, name, all_reduce_only, plan_all<reverse>, nullptr};
}
bool never(const tutti_algo_request &) {
  return false;
}
bool always(const tutti_algo_request &) {
  return true;
}
bool when_long(const tutti_algo_request &q) {
  return q.flags & TUTTI_REQ_MANY_SLICES;
}
bool in_place(const tutti_algo_request &q) {
  return q.flags & TUTTI_REQ_IN_PLACE;
}
bool with_channels(const tutti_algo_request &q) {
  return q.channels > 1;
}
bool with_hosts(const tutti_algo_request &q) {
  return q.node_count > 1;
}

Topology of_hosts(const std::vector<uint64_t> &hosts) {
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

std::vector<tutti_tune_query> asked;

// Short messages by "forth", long ones by "back": three places better, so that most size classes would rather have that.
tutti_status rate(void *, const tutti_tune_query *q, tutti_candidate *c, uint32_t n, uint32_t) noexcept {
  asked.push_back(*q);
  for (uint32_t i = 0; i < n; i++) c[i].cost_us = (std::strcmp(c[i].algo, "back") == 0) == (q->bytes > 1024) ? 1 : 2;
  return TUTTI_OK;
}
// "forth" over lines in 16 of the 28 classes that count, "back" in the others over whatever there is. Were it not orders but
// ways that take places, "forth" would lose in each of those 12 as many places as "back" has protocols, and so lose by
// protocols.
tutti_status rate_protos(void *, const tutti_tune_query *q, tutti_candidate *c, uint32_t n, uint32_t) noexcept {
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
void nothing() {}
tutti_kernel kernel(void *, tutti_form, tutti_dtype, tutti_redop, uint32_t) noexcept {
  return nothing;
}
constexpr tutti_tuner_v1 kTuner = {sizeof kTuner, 0, "asked", rate};
constexpr tutti_tuner_v1 kProtoTuner = {sizeof kProtoTuner, 0, "protocols", rate_protos};
constexpr tutti_proto_v1 kProto = {sizeof kProto, TUTTI_SIGNAL_COUNTER, "plain", 1, 1, 8, 56, kernel};
constexpr tutti_proto_v1 kLines = {sizeof kLines, TUTTI_SIGNAL_COUNTER, "lines", 1, 1, 8, 56, kernel};
constexpr tutti_proto_v1 kLent = {sizeof kLent, TUTTI_SIGNAL_DESCRIPTOR, "lent", 1, 1, 8, 56, kernel};
const tutti_algo_v1 kAlgoForth = algorithm<never>("forth"), kAlgoBack = algorithm<always>("back");
tutti_status open(const tutti_host *, void **) noexcept {
  return TUTTI_OK;
}
void close(void *) noexcept {}
const void *forth(void *, const char *id) noexcept {
  if (std::strcmp(id, TUTTI_TUNER) == 0) return &kTuner;
  if (std::strcmp(id, TUTTI_PROTO) == 0) return &kProto;
  return std::strcmp(id, TUTTI_ALGO) == 0 ? &kAlgoForth : nullptr;
}
const void *back(void *, const char *id) noexcept {
  if (std::strcmp(id, TUTTI_TUNER) == 0) return &kProtoTuner;
  if (std::strcmp(id, TUTTI_PROTO) == 0) return &kLines;
  return std::strcmp(id, TUTTI_ALGO) == 0 ? &kAlgoBack : nullptr;
}
const void *lent(void *, const char *id) noexcept {
  return std::strcmp(id, TUTTI_PROTO) == 0 ? &kLent : nullptr;
}
constexpr const char *kAll[] = {TUTTI_TUNER, TUTTI_PROTO, TUTTI_ALGO, nullptr}, *kProtoOnly[] = {TUTTI_PROTO, nullptr};
constexpr tutti_plugin_desc desc(const char *name, const char *const *ifaces,
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
constexpr tutti_plugin_desc kForthDesc = desc("forth", kAll, forth), kBackDesc = desc("back", kAll, back),
                            kLentDesc = desc("lent", kProtoOnly, lent);

// Calls fn with a selector of three ranks on two hosts over a network.
void select_with(const std::map<std::string, std::string> &env, const std::function<void(const Selector &)> &fn,
                 const char *tuner = "asked", const char *no_pull = "") {
  static const bool added = [] {
    Registry::add_static(&kForthDesc);
    Registry::add_static(&kBackDesc);
    Registry::add_static(&kLentDesc);
    return true;
  }();
  REQUIRE(added);
  auto config = Config::from("", "test.toml", env);
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
  fn(*selector);
}

} // namespace

TEST_CASE("an order that nothing moves is one, and its reverse another one") {
  const Topology t = of_hosts({1, 1, 1, 1});
  CHECK(order<never>(t).reason.empty());
  CHECK(order<never>(t).id != 0);
  CHECK(order<never>(t).id == order<never>(of_hosts({1, 2, 3, 3})).id);
  CHECK(order<always>(t).reason.empty());
  CHECK(order<always>(t).id != order<never>(t).id);
}
TEST_CASE("an order that depends on anything but the ranks is refused with what it depends on") {
  const Topology t = of_hosts({1, 1, 1, 1});
  CHECK(order<when_long>(t).reason.find("the length of the message") != std::string::npos);
  CHECK(order<in_place>(t).reason.find("in place") != std::string::npos);
  CHECK(order<with_channels>(t).reason.find("the number of channels") != std::string::npos);
  CHECK(order<with_hosts>(t).reason.find("the hosts") != std::string::npos);
}
TEST_CASE("a plan that does not keep the order that was promised is refused") {
  PlanStats stats;
  stats.order = CombineOrder::one;
  stats.order_id = 7;
  const PlanRequest request = PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, 0, 3);
  CHECK(confirm_order(stats, 7, request, "x").ok());
  CHECK(!confirm_order(stats, 8, request, "x").ok());
  stats.order = CombineOrder::by_chunk;
  CHECK(!confirm_order(stats, 7, request, "x").ok());
}
TEST_CASE("off: the tuner is told all, and each size runs by what is best for it") {
  select_with({}, [](const Selector &s) {
    CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, 64).algo.table->name) == "forth");
    CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, 1 << 20).algo.table->name) == "back");
    REQUIRE(!asked.empty());
    CHECK(asked[0].transport == TUTTI_LINK_CLASS_NET);
    CHECK(asked[0].min_cores == 1);
    CHECK(asked[0].flags == TUTTI_TUNE_OVERSUBSCRIBED);
    CHECK(s.determinism_note(TUTTI_COLL_ALL_REDUCE).empty());
  });
}
TEST_CASE("run: the tuner is told of the division into hosts alone, and that it may not measure") {
  select_with({{"TUTTI_DETERMINISTIC", "run"}}, [](const Selector &s) {
    (void)s.choose(TUTTI_COLL_ALL_REDUCE, 64);
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].nnodes == 2);
    CHECK(asked[0].max_ppn == 2);
    CHECK(asked[0].min_cores == 2);
    CHECK(asked[0].flags == TUTTI_TUNE_REPRODUCIBLE);
    CHECK(asked[0].transport == TUTTI_LINK_CLASS_NET);
  });
}
TEST_CASE("size: one order for all sizes, found without a look at hosts; the rest says why not") {
  select_with({{"TUTTI_DETERMINISTIC", "size"}}, [](const Selector &s) {
    for (const uint64_t bytes : {8u, 1024u, 1u << 20})
      CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, bytes).algo.table->name) == "back");
    for (const tutti_tune_query &q : asked)
      if (q.flags & TUTTI_TUNE_REPRODUCIBLE) CHECK((q.nnodes == 1 && q.max_ppn == 3 && q.min_cores == 3));
    CHECK(asked.front().flags == TUTTI_TUNE_REPRODUCIBLE);
    const auto ways = s.rate(TUTTI_COLL_ALL_REDUCE, 64);
    REQUIRE(ways.size() == 6);
    CHECK(ways[3].reason ==
          "deterministic = \"size\" (TUTTI_DETERMINISTIC): it combines in another order than back, which all sizes have");
    CHECK(s.promised_order(TUTTI_COLL_ALL_REDUCE).has_value());
    CHECK(!s.promised_order(TUTTI_COLL_ALL_GATHER).has_value());
  });
}
TEST_CASE("size: protocols do not decide about the order: not which are allowed, nor whether memory can be read") {
  for (const std::string proto : {"", "plain", "lines", "lent", "^lent"})
    for (const std::string no_pull : {"", "it may not be read"}) {
      if (proto == "lent" && !no_pull.empty()) continue; // an error
      CAPTURE(proto);
      CAPTURE(no_pull);
      const auto all_forth = [](const Selector &s) {
        for (const uint64_t bytes : {8u, 1024u, 1u << 20})
          CHECK(std::string_view(s.choose(TUTTI_COLL_ALL_REDUCE, bytes).algo.table->name) == "forth");
      };
      select_with({{"TUTTI_DETERMINISTIC", "size"}, {"TUTTI_PROTO", proto}}, all_forth, "protocols", no_pull.c_str());
    }
}
