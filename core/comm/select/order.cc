#include "base/types.h"
#include "comm/select/select.h"
#include <algorithm>

namespace tutti {
namespace {

// Size classes that count when one order is chosen for all: 8 B to 1 GiB.
constexpr uint32_t kFirstCommon = 3, kLastCommon = 30;

} // namespace

// A barrier's bits are nobody's.
bool Selector::adds(uint32_t row) {
  return coll_reduces(coll_of_row(row)) && row != TUTTI_COLL_BARRIER;
}

// A class that sets it holds for all sizes.
const Setting &Selector::determinism(uint32_t row) const {
  return setting("coll.deterministic", row, kBytesV);
}
Determinism Selector::mode(uint32_t row) const {
  return determinism_of(determinism(row));
}

bool Selector::fixes_order(uint32_t row) const {
  return mode(row) == Determinism::size && adds(row);
}

const FixedOrder &Selector::own_order(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  const auto [it, fresh] = own_orders_.try_emplace({algo.table, row});
  if (!fresh) return it->second;
  uint32_t lo = UINT32_MAX, hi = 0;
  for (uint32_t b = 0; b < kBuckets; b++) {
    const Limits l = limits(row, bytes_of(row, b));
    lo = std::min(lo, l.min_channels);
    hi = std::max(hi, l.max_channels);
  }
  return it->second = fixed_order(algo, coll_of_row(row), *in_.topology, lo, hi);
}

bool Selector::allowed_for_some_size(const Iface<tutti_algo_v1> &algo, uint32_t row) const {
  for (uint32_t b = 0; b < kBuckets; b++) {
    const uint64_t bytes = bytes_of(row, b);
    if (!list_holds(row, bytes) || algos(row, bytes).allows(coll_of_row(row), algo.table->name)) return true;
  }
  return false;
}

// The order that the tuner likes best, by the sum of its places among the orders over the size classes. Neither hosts, cores
// nor protocols decide about bits: the tuner is asked as if all ranks shared one host and every protocol could be had but those
// of descriptors, which each run may find usable or not; an order's place is that of its best way.
const Selector::RowOrder &Selector::row_order(uint32_t row) const {
  const auto [it, fresh] = row_orders_.try_emplace(row);
  if (!fresh) return it->second;
  std::vector<Iface<tutti_algo_v1>> algos = in_.registry->all<tutti_algo_v1>(TUTTI_ALGO);
  std::erase_if(algos, [&](const auto &algo) { return !impossible(algo, row).empty() || !allowed_for_some_size(algo, row); });
  std::vector<Rated> proposals;
  std::map<uint64_t, size_t> places; // by order
  for (const auto &algo : algos) {
    places[own_order(algo, row).id] = 0;
    for (const auto &proto : in_.registry->all<tutti_proto_v1>(TUTTI_PROTO)) {
      if (proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR) continue;
      Rated &w = proposals.emplace_back();
      w.algo = algo;
      w.proto = proto;
    }
  }
  for (uint32_t b = kFirstCommon; b <= kLastCommon && in_.tuner && !proposals.empty(); b++) {
    std::vector<Rated> ways = proposals;
    const uint64_t bytes = uint64_t(1) << b;
    ask_tuner(query_of(row, bytes, Ask::anywhere), limits(row, bytes), ways);
    std::map<uint64_t, double> cost; // of each order that is not forbidden
    for (const Rated &w : ways) {
      if (!w.reason.empty()) continue;
      const auto [best, first] = cost.try_emplace(own_order(w.algo, row).id, w.cost_us);
      if (!first) best->second = std::min(best->second, w.cost_us);
    }
    for (auto &[id, sum] : places) {
      const auto own = cost.find(id);
      sum += static_cast<size_t>(std::count_if(
          cost.begin(), cost.end(), [&](const auto &other) { return own == cost.end() || other.second < own->second; }));
    }
  }
  for (const auto &algo : algos) { // of equals the first, in the order of the algorithms
    const uint64_t id = own_order(algo, row).id;
    if (!it->second.id || places[id] < places[*it->second.id]) it->second = {id, algo.table->name};
  }
  return it->second;
}

std::optional<uint64_t> Selector::promised_order(uint32_t row) const {
  return fixes_order(row) ? row_order(row).id : std::nullopt;
}

std::string Selector::determinism_note(uint32_t row) const {
  if (mode(row) == Determinism::off || !adds(row)) return "";
  const std::string setting = describe_determinism(determinism(row));
  if (mode(row) == Determinism::run) return setting + ": chosen without a look at cores, load, links and measurements";
  return fmt::format("{}: every size combines in the order of {}", setting, row_order(row).algo);
}

} // namespace tutti
