#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <charconv>

namespace tuner {
namespace {

using tutti::plugin::fail;

constexpr std::string_view kColls[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                                       "alltoall",   "gather", "scatter",   "barrier",    "sendrecv"};
constexpr std::string_view kLinks[] = {"local", "shm", "net"};

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string_view> split(std::string_view s, char by) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= s.size();) {
    const size_t end = std::min(s.find(by, at), s.size());
    if (const auto part = trimmed(s.substr(at, end - at)); !part.empty() || by == ',') out.push_back(part);
    at = end + 1;
  }
  return out;
}

// One line on its way into a rule; knows where it stands for messages.
class Line {
public:
  Line(const std::string &source, int number) : source_(source), number_(number) {}

  [[noreturn]] void bad(std::string_view column, std::string_view value, std::string_view allowed) const {
    fail(TUTTI_ERR_INVALID, source_, ":", number_, ": ", column, " \"", value, "\" is not valid; allowed: ", allowed);
  }

  uint64_t number(std::string_view column, std::string_view s, uint64_t min, uint64_t max) const {
    uint64_t value = 0;
    const auto [end, err] = std::from_chars(s.data(), s.data() + s.size(), value);
    std::string_view unit(end, static_cast<size_t>(s.data() + s.size() - end));
    unsigned shift = 0;
    if (unit == "K" || unit == "KiB")
      shift = 10;
    else if (unit == "M" || unit == "MiB")
      shift = 20;
    else if (unit == "G" || unit == "GiB")
      shift = 30;
    const bool fits = err == std::errc() && (unit.empty() || shift) && value <= (UINT64_MAX >> shift);
    if (!fits || (value << shift) < min || (value << shift) > max)
      bad(column, s, tutti::plugin::text(min, " to ", max, ", with K, M or G, or '*' where a limit is meant"));
    return value << shift;
  }

  template <size_t N> uint32_t set(std::string_view column, std::string_view s, const std::string_view (&names)[N]) const {
    if (s == "*") return ~0u;
    uint32_t out = 0;
    for (std::string_view part : split(s, '|')) {
      const auto *hit = std::find(std::begin(names), std::end(names), part);
      if (hit == std::end(names)) bad(column, part, joined(names));
      out |= 1u << (hit - std::begin(names));
    }
    return out;
  }

private:
  template <size_t N> static std::string joined(const std::string_view (&names)[N]) {
    std::string out = "*";
    for (auto n : names) out += ", " + std::string(n);
    return out;
  }
  const std::string &source_;
  int number_;
};

Rule parse_rule(const Line &line, const std::vector<std::string_view> &column) {
  Rule r;
  r.colls = line.set("coll", column[0], kColls);
  if (column[1] != "*") r.max_bytes = line.number("max_bytes", column[1], 0, UINT64_MAX);
  if (column[2] != "*") r.max_ranks = static_cast<int32_t>(line.number("max_ranks", column[2], 2, INT32_MAX));
  r.links = line.set("links", column[3], kLinks);
  for (std::string_view way : split(column[4], ' ')) {
    const size_t slash = std::min(way.find('/'), way.size());
    r.ways.push_back({std::string(way.substr(0, slash)), std::string(way.substr(std::min(slash + 1, way.size())))});
  }
  r.channels = static_cast<uint32_t>(line.number("channels", column[5], 1, 64));
  r.slot_bytes = static_cast<uint32_t>(line.number("slot", column[6], 64, 1u << 26));
  r.depth = static_cast<uint32_t>(line.number("depth", column[7], 2, 1u << 12));
  if (r.depth & (r.depth - 1)) line.bad("depth", column[7], "a power of two from 2 to 4096");
  if (column.size() > 8) {
    const bool shared = column[8] == "nt+shared" || column[8] == "cached+shared";
    const std::string_view stores = column[8].substr(0, column[8].find('+'));
    if ((stores != "nt" && stores != "cached") || (column[8] != stores && !shared))
      line.bad("stores", column[8], "nt, cached, nt+shared, cached+shared");
    if (stores == "nt") r.flags = TUTTI_CAND_NONTEMPORAL;
    if (shared) r.flags |= TUTTI_CAND_SHARED_ONLY;
  }
  return r;
}

} // namespace

bool Rule::fits(const tutti_tune_query &q) const {
  return q.coll < 32 && (colls >> q.coll & 1u) && q.bytes <= max_bytes && q.nranks <= max_ranks && q.transport < 32 &&
         (links >> q.transport & 1u);
}

bool Rule::offered(const tutti_candidate *candidates, uint32_t n, uint32_t candidate_size) const {
  bool named = false;
  for (const Way &way : ways) {
    named |= !way.proto.empty();
    for (uint32_t i = 0; i < n; i++) {
      const auto &c =
          *reinterpret_cast<const tutti_candidate *>(reinterpret_cast<const char *>(candidates) + size_t(i) * candidate_size);
      if (way.algo == c.algo && (way.proto.empty() || way.proto == c.proto)) return true;
    }
  }
  return !named;
}

std::vector<Rule> parse_table(std::string_view text, const std::string &source) {
  std::vector<Rule> out;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view row = text.substr(at, end - at);
    at = end + 1;
    number++;
    row = trimmed(row.substr(0, std::min(row.find('#'), row.size())));
    if (row.empty()) continue;
    const auto columns = split(row, ',');
    if (columns.size() != 8 && columns.size() != 9)
      fail(TUTTI_ERR_INVALID, source, ":", number, ": ", columns.size(),
           " columns; a rule has 8 or 9: coll, max_bytes, max_ranks, links, ways, channels, slot, depth, stores");
    out.push_back(parse_rule(Line(source, number), columns));
  }
  return out;
}

// Slots: what a message of the size class fills, so that small jobs stay small (8 ranks with messages up to 64 KiB: under
// 64 MiB together). Deep where slots are short: a credit is then read once in many messages, and slot lines have left the
// reader's L2 before they are written again. Direct algorithms own up to n-1 links per rank, so their slots shrink as n grows.
// Two ranks of a host always run direct: it has half the rounds of a ring of two and the same bytes. Long messages of theirs
// are pulled where memory can be read by pointer, and staged in the same slots, which costs what "simple" does, where it
// cannot. No rule has the kernel read private memory of another process, although alltoall from 4 MiB on would gain: what a
// buffer lies in is known only when it is sent, process_vm_readv refuses mapped devices and secret memory, and nothing could
// stand in for it then.
std::string_view built_in_table() {
  return R"(# coll, max_bytes, max_ranks, links, ways, channels, slot, depth
# two ranks
all_reduce|barrier,                                        1K, 2, *,         direct ring, 1,   1K, 64
all_reduce|reduce_scatter|all_gather|barrier,              8K, 2, *,         direct ring, 1,   8K, 64
broadcast|reduce,                                          8K, 2, local|shm, direct ring, 1,   8K, 64
alltoall,                                                  8K, 2, *,         direct,      1,   8K,  8
all_reduce|alltoall,                                       1M, 2, local,     direct/pull, 1, 256K,  4
all_reduce|reduce_scatter|all_gather,                    512K, 2, local|shm, direct ring, 1,  32K, 32
all_gather,                                                1M, 2, local|shm, direct ring, 1,  32K, 32
all_reduce|all_gather|alltoall,                             *, 2, local,     direct/pull, 1,   1M,  4, nt
all_reduce|reduce_scatter,                                 1M, 2, local|shm, direct/pull direct ring, 1,  64K, 8, cached+shared
all_reduce|reduce_scatter,                                 8M, 2, local|shm, direct/pull direct ring, 1, 128K, 4, cached+shared
all_reduce|reduce_scatter,                                  *, 2, local|shm, direct/pull direct ring, 1,  64K, 8, nt+shared
all_gather,                                                8M, 2, local|shm, direct ring, 1, 128K,  4
all_gather,                                                 *, 2, local|shm, direct ring, 1,  64K,  8, nt
alltoall,                                                  1M, 2, shm,       direct,      1,  16K, 16
alltoall,                                                   *, 2, shm,       direct/pull direct, 1, 128K, 4, cached+shared
all_reduce|reduce_scatter|all_gather,                    128K, 2, net,       direct ring, 1, 128K,  4
all_reduce|reduce_scatter|all_gather,                       *, 2, net,       direct ring, 1, 256K,  4
# up to four: few links, so one exchange with everybody is best for every size
all_reduce|barrier,                                        1K, 4, *,         direct ring, 1,   1K, 32
all_reduce|barrier,                                       16K, 4, *,         direct ring, 1,   8K, 16
reduce_scatter|all_gather|broadcast|reduce,                8K, 4, local|shm, direct ring, 1,   8K, 16
all_reduce|reduce_scatter|all_gather|broadcast|reduce,     4M, 4, local|shm, direct ring, 1,  16K, 16
all_reduce|reduce_scatter|all_gather|broadcast|reduce,      *, 4, local|shm, direct ring, 1,  64K,  8, nt
# up to eight: on one host one exchange stays best, measured on two cores; over a network log n rounds are
all_reduce|barrier,                                        1K, 8, local|shm, direct ring, 1,   1K, 32
reduce_scatter,                                          256K, 8, local|shm, direct ring, 1,   8K,  8
all_gather|broadcast|reduce,                               8K, 8, local|shm, direct ring, 1,   8K,  8
all_reduce,                                                1M, 8, local|shm, direct ring, 1,  16K,  8
reduce_scatter|all_gather|broadcast|reduce,                8M, 8, local|shm, direct ring, 1,  32K,  8
all_reduce|reduce_scatter|all_gather|broadcast|reduce,      *, 8, local|shm, direct ring, 1,  64K,  4, nt
all_reduce|barrier,                                        1K, 8, net,       direct ring, 1,   1K,  8
all_reduce,                                               32K, 8, net,       rhd direct,  1,   8K,  8
# up to sixteen, and short ones of more, on one host: as for eight, in slots that n-1 links can afford
all_reduce|barrier,                                        1K, 64, local|shm, direct ring, 1,   1K,  8
all_reduce,                                               16K, 64, local|shm, direct ring, 1,  16K,  8
all_reduce|reduce_scatter|all_gather|broadcast|reduce,      *, 16, local|shm, direct ring, 1,  16K,  8
all_reduce|reduce_scatter|all_gather|broadcast|reduce,     1M, 32, local|shm, direct ring, 1,   4K,  8
# more, short
all_reduce|barrier,                                        4K, 16, *,        direct ring, 1,   4K,  8
all_reduce|barrier,                                        1K, *, *,         direct ring, 1,   1K,  4
# between: a ring has one link per rank, so it can afford slots that leave the cache
all_reduce|reduce_scatter|all_gather|reduce|broadcast,   8K, *, *,         ring direct, 1,   8K,  8
all_reduce|reduce_scatter|all_gather|reduce|broadcast, 512K, *, *,         ring direct, 1,  16K,  8
# long: bandwidth
all_reduce|reduce_scatter|all_gather|reduce|broadcast,    *, *, local|shm, ring direct, 1, 128K,  4
all_reduce|reduce_scatter|all_gather|reduce|broadcast,    *, *, net,       ring direct, 1, 128K,  8
# one message to each peer; sizes here count all of them
alltoall|gather|scatter,  64K,  8, *, direct, 1,   8K,  8
alltoall|gather|scatter,  64K, 16, *, direct, 1,   4K,  8
alltoall|gather|scatter,  64K,  *, *, direct, 1,   1K,  4
alltoall|gather|scatter,   1M,  8, *, direct, 1,  16K, 16
alltoall|gather|scatter,   1M, 16, *, direct, 1,  16K,  4
alltoall|gather|scatter,    *,  8, *, direct, 1, 128K,  4
alltoall|gather|scatter,    *, 16, *, direct, 1,  32K,  4
alltoall|gather|scatter,    *,  *, *, direct, 1,   4K,  4
)";
}

} // namespace tuner
