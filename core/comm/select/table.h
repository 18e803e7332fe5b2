// tutti/core/comm/select/table.h: what rank 0 chose, for all ranks: per collective and size class the way that runs, and all
// others that could, best first. An operation only looks up.
#pragma once
#include "bootstrap/bootstrap.h"
#include "plugin/registry.h"
#include "tutti/plugin/algo.h"
#include "tutti/plugin/proto.h"
#include <array>
#include <bit>
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
// The size that stands for a size class when options and tuners are asked.
constexpr uint64_t bytes_of(uint32_t row, uint32_t bucket) {
  return row == kRowV ? kBytesV : uint64_t(1) << bucket;
}

struct Choice {
  Iface<tutti_algo_v1> algo; // empty: `refusal` says why nothing may run
  Iface<tutti_proto_v1> proto;
  uint32_t channels = 1, slot_bytes = 0, depth = 0, flags = 0;
  std::string refusal;
};
bool same(const Choice &a, const Choice &b);

// What can run a collective of a size class.
struct WayList {
  struct Way {
    uint16_t choice;                        // in SelectionTable::choices
    bool by_algo = false, by_proto = false; // coll.algo or coll.proto exclude it; who asks for it by name may set that aside
    auto operator<=>(const Way &) const = default;
  };
  struct Ruled { // out, whoever asks
    std::string algo, proto, reason;
    bool operator==(const Ruled &) const = default;
  };
  std::vector<Way> ways; // best first; those that no option excludes come before the others
  std::vector<Ruled> ruled_out;
  bool operator==(const WayList &) const = default;
};

struct SelectionTable {
  std::vector<Choice> choices; // distinct ones
  std::array<std::array<uint16_t, kBuckets>, kRows> index{};
  std::vector<WayList> lists; // distinct ones
  std::array<std::array<uint16_t, kBuckets>, kRows> list{};
  std::string costs;  // what rank 0's model reckons with, CostConstants::encode(); "" = it had no model
  std::string device; // of its host's network, CostModel::Device::encode()

  const Choice &at(uint32_t row, uint32_t bucket) const { return choices[index[row][bucket]]; }
  const WayList &ways(uint32_t row, uint32_t bucket) const { return lists[list[row][bucket]]; }
  uint16_t add(Choice choice); // its place, as that of an equal one
  uint16_t add(WayList list);
  Status fits() const; // an error when there are more than places can name: those that add() returned are wrong then

  Bytes encode() const;
  // In place of a table, from a rank that found that there can be none: all ranks return its words.
  static Bytes encode_refusal(std::string_view why);
  static std::optional<std::string> refusal_in(std::span<const std::byte> text);
  static Result<SelectionTable> decode(std::span<const std::byte> text, const Registry &registry);
};

} // namespace tutti
