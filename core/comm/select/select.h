// tutti/core/comm/select/select.h: which algorithm, protocol, channels and slots run a collective of a size class. Rank 0 asks
// the tuner once per class at set-up and hands the table to all ranks, so ranks cannot disagree and an operation only looks up.
#pragma once
#include "comm/select/call_config.h"
#include "comm/select/collnet_facts.h"
#include "comm/select/determinism.h"
#include "comm/select/grammar.h"
#include "comm/select/limits.h"
#include "comm/select/model.h"
#include "comm/select/table.h"
#include "plan/plan.h"
#include "topology/topology.h"
#include "transport/link_class.h"
#include "tutti/plugin/tuner.h"
#include <map>
#include <set>

namespace tutti {

// A possible way and what is to be said about it.
struct Rated {
  Iface<tutti_algo_v1> algo;
  Iface<tutti_proto_v1> proto;
  double cost_us = 0;
  uint32_t channels = 1, slot_bytes = 32 << 10, depth = 8, flags = 0; // what the tuner is proposed
  bool timed = false;                                                 // cost_us is a time, not a place in an order
  bool measured = false;                                              // ... and one that was measured
  std::string note;                                                   // where the tuner has it from
  std::optional<Estimate> estimate;                                   // the model's, before the tuner was asked
  bool by_algo = false, by_proto = false;                             // coll.algo or coll.proto exclude it, and nothing else
  std::string reason;                                                 // why it does not run; "" = it can
  bool can_run() const { return reason.empty() || by_algo || by_proto; }
};

// Who chose a way.
struct Decided {
  std::string by;     // "call", "environment", "file", "api", "tool", "tuner", "model", "core" (its own order, without either)
  std::string detail; // `"ring" (TUTTI_ALGO)`, `"table", cluster.toml:12`
};

// What a call configuration comes to.
struct Asked {
  Choice choice;
  std::string instead; // what was asked for and cannot be had, and why: another one runs; "" = it is what was asked for
};

class Selector {
public:
  struct Input {
    const Registry *registry = nullptr;
    std::shared_ptr<const Config> config;
    Iface<tutti_tuner_v1> tuner; // may be empty: the core's own order
    const Topology *topology = nullptr;
    LinkClass slowest = LinkClass::local;
    std::string no_pull;                    // why protocols of descriptors cannot be used; "" = they can
    std::shared_ptr<const CostModel> model; // may be empty: nothing is predicted
    bool lenient = false;                   // lists of names are wishes, and nothing is said where they cannot be had
    const CollnetFacts *collnet = nullptr;  // goes with the topology's groups; nullptr: not asked for
  };
  static Result<Selector> create(Input input);
  // What coll.algo asks for by naming the collective holds or is an error here. A list without a collective's name holds for
  // the collectives that one of its algorithms can do, and is an error when there is none. What is excluded everywhere may
  // leave a collective without a way: a refusal, for the call. Where coll.choice is "preferred", errors are log lines instead,
  // and another way runs.
  Result<SelectionTable> table() const;
  // The best way of the table that does what `call` asks for; the same on all ranks, whose tables and calls are the same.
  Result<Asked> as_asked(const SelectionTable &table, uint32_t row, uint32_t bucket, const CallConfig &call) const;

  // Why coll.algo does not hold for this row; "" = it does.
  std::string passed_over(uint32_t row, uint64_t bytes) const;
  // coll.deterministic = "size": the order that all plans of this row have to have.
  std::optional<uint64_t> promised_order(uint32_t row) const;
  // Plans of this algorithm use collnet groups; the same on all ranks.
  bool uses_groups(const Iface<tutti_algo_v1> &algo, uint32_t row) const { return support(algo, row).group_chunks > 0; }
  std::string determinism_note(uint32_t row) const; // what the setting did to this row; "" = nothing
  // All ways for one size: usable ones first and by cost, then those that options exclude, by cost, then the impossible ones.
  std::vector<Rated> rate(uint32_t row, uint64_t bytes) const;
  Choice choose(uint32_t row, uint64_t bytes) const;
  // Of the way that runs; ways: rate().
  Decided decided(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const;
  // Ranks other than 0 learn what rank 0 reckons with when they have its table.
  void use_model(std::shared_ptr<const CostModel> model) { in_.model = std::move(model); }
  // "; next best direct/simple +18 %", without a percentage where costs are no times; "" when there is no other way.
  std::string next_best(uint32_t row, uint32_t bucket) const;

private:
  explicit Selector(Input input) : in_(std::move(input)) {}
  const Setting &setting(const char *key, uint32_t row, uint64_t bytes) const;
  const NameFilter &algos(uint32_t row, uint64_t bytes) const;
  const NameFilter &protos(uint32_t row, uint64_t bytes) const;
  Status read_filters(const char *key, const char *what, std::span<const std::string> known);
  bool prefers(uint32_t row, uint64_t bytes) const; // coll.choice = "preferred"

  // What options say about links.
  struct Limits {
    ChannelLimits channels;
    uint32_t slot_bytes, depth; // 0 = not said
    uint64_t buffer, budget;
  };
  Limits limits(uint32_t row, uint64_t bytes) const;
  template <class Way> static void clamp_way(Way &way, uint32_t links, const Limits &limits);
  static void clamp(Rated &way, uint32_t links, const Limits &limits);
  static void clamp(Choice &way, uint32_t links, const Limits &limits);

  bool list_holds(uint32_t row, uint64_t bytes) const;
  bool holds(const NameFilter &filter, uint32_t row) const;
  Status check_named(uint32_t row, uint64_t bytes) const;
  Status check_general_lists() const;
  Status check_pull(uint32_t row, uint64_t bytes) const;
  void say_instead(uint32_t row, uint64_t bytes, const std::string &why, const std::string &way) const;
  Result<Choice> decide(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const;
  // What the tuner is told of the ranks' places: all; their division into hosts; nothing, as if all were on one host.
  enum class Ask { here, with_such_hosts, anywhere };
  tutti_tune_query query_of(uint32_t row, uint64_t bytes, Ask ask) const;
  // What the model expects of each way, and with which channels and slots: what the tuner is told.
  void predict(uint32_t row, uint64_t bytes, Ask ask, const Limits &limits, std::vector<Rated> &ways) const;
  void ask_tuner(const tutti_tune_query &query, const Limits &limits, std::vector<Rated> &ways) const;
  void rate_ways(uint32_t row, uint64_t bytes, std::vector<Rated> &ways) const;
  struct Support {
    std::string reason;                         // "" = supported
    uint32_t links = 0;                         // of rank 0, per channel
    uint32_t group_chunks = 0, group_posts = 0; // to collnet groups: of the longest message, and at once; 0: it uses none
    bool broken = false; // not a collective that it leaves to others: an option of its own is wrong, or it failed
  };
  const Support &support(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  Support ask_support(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  struct RowOrder {
    std::optional<uint64_t> id; // none: no algorithm qualifies
    std::string algo;           // one that has it
  };
  static bool adds(uint32_t row); // bits of results depend on the order in which operands are combined
  const Setting &determinism(uint32_t row) const;
  Determinism mode(uint32_t row) const;
  bool fixes_order(uint32_t row) const;
  bool allowed_for_some_size(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  const FixedOrder &own_order(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  const RowOrder &row_order(uint32_t row) const;
  // Of ways through collnet groups: what is against one beside what is against all; "" = nothing.
  std::string against_groups(const Iface<tutti_algo_v1> &algo, const Iface<tutti_proto_v1> &proto, uint32_t row,
                             uint64_t bytes) const;
  bool asks_for_groups(const Iface<tutti_algo_v1> &algo, tutti_coll coll) const;
  template <class Way> void fit_groups(Way &way, uint32_t row, uint64_t bytes, const Limits &limits) const;
  void prefer_groups(std::vector<Rated> &ways, uint32_t row) const;
  std::string impossible(const Iface<tutti_algo_v1> &algo, uint32_t row) const; // under every protocol; "" = it is not
  std::vector<Rated> list(uint32_t row, uint64_t bytes) const;
  std::string refusal(uint32_t row, const std::vector<Rated> &ways) const;
  Choice choice_from(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const;
  const Rated *pick(uint32_t row, uint64_t bytes, const std::vector<Rated> &ways) const;
  std::string against(const WayList &list, std::span<const Choice> choices, uint32_t row, uint64_t bytes,
                      const CallConfig &call) const;

  Input in_;
  std::map<const Setting *, NameFilter> filters_;                        // of the configuration's own settings
  std::set<const Setting *> algo_settings_;                              // those of them that are about algorithms
  mutable std::map<std::pair<const void *, uint32_t>, Support> support_; // a plan is built for an answer: ask once
  mutable std::map<std::pair<const void *, uint32_t>, FixedOrder> own_orders_;
  mutable std::map<uint32_t, RowOrder> row_orders_;
};

} // namespace tutti
