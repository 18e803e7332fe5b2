// plugins/tuner/table.h: the table that the tuner "table" reads its choices from.
//
// One rule a line, `#` starts a comment, eight or nine columns separated by ',':
//   coll       perf tests' name ("all_reduce"), several joined by '|', or '*'
//   max_bytes  the rule holds up to this size (larger of a rank's two buffers); 4096, "8K", "1M", "2G", or '*'
//   max_ranks  ... and up to this many ranks, or '*'
//   links      slowest link class in use: local|shm|net joined by '|', or '*'
//   ways       preference, best first: "ring/simple direct/simple"; without '/' any protocol
//   channels   1..64
//   slot       payload of a slot; same units as max_bytes
//   depth      slots per link, a power of two >= 2
//   stores     may be left out: cached (the default), or nt: the user's output goes past the caches. With +shared behind it,
//              pull between processes reads memory of tuttiMemAlloc only and stages the rest
// The first rule that fits wins; a query that none fits keeps the core's proposals. A rule that names a protocol fits only
// where one of its ways can be had: "direct/pull" is passed over where memory cannot be read.
#pragma once
#include "tutti/plugin/tuner.h"
#include <string>
#include <string_view>
#include <vector>

namespace tuner {

struct Way {
  std::string algo, proto; // proto "" = any
};

struct Rule {
  uint32_t colls = ~0u; // bit per tutti_coll
  uint64_t max_bytes = UINT64_MAX;
  int32_t max_ranks = INT32_MAX;
  uint32_t links = ~0u; // bit per TUTTI_LINK_CLASS_*
  std::vector<Way> ways;
  uint32_t channels = 1, slot_bytes = 0, depth = 0, flags = 0; // flags: TUTTI_CAND_*
  bool fits(const tutti_tune_query &query) const;
  // The slots of a rule that names protocols are made for them: it holds only where one of its ways is among the candidates.
  bool offered(const tutti_candidate *candidates, uint32_t n, uint32_t candidate_size) const;
};

// Throws tutti::plugin::Error naming source:line, the value and what is allowed.
std::vector<Rule> parse_table(std::string_view text, const std::string &source);
std::string_view built_in_table();

} // namespace tuner
