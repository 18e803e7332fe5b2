// tutti/core/tools/map_data.h: communication maps: what ranks have counted of the links of their communicators, read from files
// and put together. docs/communication-map.md describes the files.
#pragma once
#include "base/status.h"
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::tools::commmap {

struct Counts {
  uint64_t messages = 0, bytes = 0, wire_bytes = 0, lent_bytes = 0;
  Counts &operator+=(const Counts &o);
  Counts &operator-=(const Counts &o);
  bool operator==(const Counts &) const = default;
};

struct Link { // one end of it
  int peer = 0;
  uint32_t conn = 0, readers = 0; // readers: of a link with several; peer is its writer then
  bool sending = false;
  std::string transport, proto;
  Counts counts;
  bool same_link(const Link &o) const;
  bool operator==(const Link &) const = default;
};

struct RankPart {
  std::string host, state, error; // "open", "finalized", "failed"
  int64_t pid = 0;
  uint64_t operations = 0;
  std::vector<Link> links;
  bool operator==(const RankPart &) const = default;
};

struct Comm {
  std::string id, name;
  int nranks = 0;
  std::map<int, RankPart> ranks; // those whose part is there
};

using Map = std::vector<Comm>; // by id

constexpr int kMostRanks = 1 << 16;

// An error names `origin` and what is wrong where.
Result<Map> parse(std::string_view text, const std::string &origin);
// Adds the other one's communicators and ranks. An error when a rank is in both and they differ.
Status merge(Map &map, Map other, const std::string &origin);
std::string to_json(const Map &map); // with the pairs and imbalances beside what was counted

// after - before, of one rank: what has moved in between.
void subtract(RankPart &after, const RankPart &before);
void add(RankPart &sum, const RankPart &part);

// What moved from rank to rank, as the receivers counted it; as the sender did where the receiver's part is missing.
class Pairs {
public:
  using Cells = std::map<std::pair<int, int>, Counts>; // by (from, to); those between which something moved
  explicit Pairs(const Comm &comm);
  int n() const { return n_; }
  const Cells &cells() const { return cells_; }
  std::vector<uint64_t> sent() const, received() const;   // bytes by rank
  uint64_t written_once() const { return written_once_; } // bytes written to links with several readers
  int unequal() const { return unequal_; } // pairs whose ends have both told and counted differently: on its way, or lost

private:
  int n_, unequal_ = 0;
  uint64_t written_once_ = 0;
  Cells cells_;
};

// The largest over the mean: 1 = all alike. Of pairs: of those with two different ranks.
struct Imbalance {
  double ratio = 0; // 0: nothing moved
  int most = -1;    // the rank, or the pair's sender
  int to = -1;      // of a pair
  uint64_t bytes = 0;
};
Imbalance imbalance(const std::vector<uint64_t> &by_rank);
Imbalance imbalance(const Pairs &pairs);

std::vector<int> missing(const Comm &comm);
// Ranks of one host side by side, hosts in the order of their first rank; ranks without a part come last.
std::vector<int> by_host(const Comm &comm);
std::string bytes_text(double bytes); // "1.75M": three digits, units of 1024

} // namespace tutti::tools::commmap
