// tutti/core/comm/select/select.h: which algorithm, protocol, channels and slots run a collective of a size class. Rank 0 asks
// the tuner once per class at set-up and hands the table to all ranks, so ranks cannot disagree and an operation only looks up.
#pragma once
#include "bootstrap/bootstrap.h"
#include "comm/select/determinism.h"
#include "comm/select/grammar.h"
#include "comm/select/model.h"
#include "exec/engine.h"
#include "plan/plan.h"
#include "topology/topology.h"
#include "tutti/plugin/tuner.h"
#include <array>
#include <bit>
#include <map>
#include <optional>

namespace tutti {

// Size class b holds the sizes in (2^(b-1), 2^b] bytes.
constexpr uint32_t kBuckets = 48;
constexpr uint32_t bucket_of(uint64_t bytes) {
  const auto b = bytes <= 1 ? 0u : static_cast<uint32_t>(std::bit_width(bytes - 1));
  return b < kBuckets ? b : kBuckets - 1;
}
// One row per collective. Sends and receives take no algorithm, so their row serves alltoallv, whose ranks know different sizes
// and therefore share one entry for all of them.
constexpr uint32_t kRows = TUTTI_COLL_COUNT;
constexpr uint32_t kRowV = TUTTI_COLL_SEND_RECV;
constexpr uint64_t kBytesV = 1 << 20; // what the tuner is asked for alltoallv
constexpr tutti_coll coll_of_row(uint32_t row) {
  return row == kRowV ? tutti_coll{TUTTI_COLL_ALL_TO_ALL} : row;
}
std::string_view row_name(uint32_t row);

struct Choice {
  Iface<tutti_algo_v1> algo; // empty: `refusal` says why nothing may run
  Iface<tutti_proto_v1> proto;
  uint32_t channels = 1, slot_bytes = 0, depth = 0, flags = 0;
  std::string refusal;
};

struct SelectionTable {
  std::vector<Choice> choices; // distinct ones
  std::string costs;           // what rank 0's model reckons with, CostConstants::encode(); "" = it had no model
  std::array<std::array<uint16_t, kBuckets>, kRows> index{};
  const Choice &at(uint32_t row, uint32_t bucket) const { return choices[index[row][bucket]]; }
  Bytes encode() const;
  // In place of a table, from a rank that found that there can be none: all ranks return its words.
  static Bytes encode_refusal(std::string_view why);
  static std::optional<std::string> refusal_in(std::span<const std::byte> text);
  static Result<SelectionTable> decode(std::span<const std::byte> text, const Registry &registry);
};

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
  std::string reason;                                                 // why it cannot be used; "" = it can
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
  };
  static Result<Selector> create(Input input);
  // What coll.algo asks for by naming the collective holds or is an error here. A list without a collective's name holds for
  // the collectives that one of its algorithms can do, and is an error when there is none. What is excluded everywhere may
  // leave a collective without a way: a refusal, for the call.
  Result<SelectionTable> table() const;
  // Why coll.algo does not hold for this row; "" = it does.
  std::string passed_over(uint32_t row) const;
  // coll.deterministic = "size": the order that all plans of this row have to have.
  std::optional<uint64_t> promised_order(uint32_t row) const;
  std::string determinism_note(uint32_t row) const; // what the setting did to this row; "" = nothing
  // All ways for one size, usable ones first and by cost.
  std::vector<Rated> rate(uint32_t row, uint64_t bytes) const;
  Choice choose(uint32_t row, uint64_t bytes) const;
  // Ranks other than 0 learn what rank 0 reckons with when they have its table.
  void use_model(std::shared_ptr<const CostModel> model) { in_.model = std::move(model); }
  // "; next best direct/simple +18 %", without a percentage where costs are no times; "" when there is no other way.
  std::string next_best(uint32_t row, uint32_t bucket) const;

private:
  explicit Selector(Input input) : in_(std::move(input)) {}
  bool list_holds(uint32_t row) const;
  Status check_named() const;
  Status check_general_list() const;
  Status check_pull() const;
  // What the tuner is told of the ranks' places: all; their division into hosts; nothing, as if all were on one host.
  enum class Ask { here, with_such_hosts, anywhere };
  tutti_tune_query query_of(uint32_t row, uint64_t bytes, Ask ask) const;
  void predict(uint32_t row, uint64_t bytes, Ask ask, std::vector<Rated> &ways) const;
  void ask_tuner(const tutti_tune_query &query, std::vector<Rated> &ways) const;
  void clamp(Rated &way, uint32_t links) const;
  struct Support {
    std::string reason;  // "" = supported
    uint32_t links = 0;  // of rank 0, per channel
    bool broken = false; // not a collective that it leaves to others: an option of its own is wrong, or it failed
  };
  const Support &support(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  Support ask_support(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  struct RowOrder {
    std::optional<uint64_t> id; // none: no algorithm qualifies
    std::string algo;           // one that has it
  };
  bool fixes_order(uint32_t row) const;
  const FixedOrder &own_order(const Iface<tutti_algo_v1> &algo, uint32_t row) const;
  const RowOrder &row_order(uint32_t row) const;
  std::string against(const Iface<tutti_algo_v1> &algo, uint32_t row) const; // under every protocol; "" = nothing
  std::vector<Rated> list(uint32_t row) const;
  std::string refusal(uint32_t row, const std::vector<Rated> &ways) const;

  Input in_;
  NameFilter algos_, protos_;
  Determinism mode_ = Determinism::off;
  mutable std::map<std::pair<const void *, uint32_t>, Support> support_; // a plan is built for an answer: ask once
  mutable std::map<std::pair<const void *, uint32_t>, FixedOrder> own_orders_;
  mutable std::map<uint32_t, RowOrder> row_orders_;
};

} // namespace tutti
