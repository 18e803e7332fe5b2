// tests/soak/plan.h: what all ranks do at a step, as a function of seed, job, step and their number alone.
#pragma once
#include "operations.h"
#include <cstdint>
#include <random>
#include <vector>

namespace soak {

constexpr int kMostRanks = 6, kFewestRanks = 2, kMostSets = 3;

// Numbers that every rank draws alike.
class Draw {
public:
  Draw(uint64_t seed, uint64_t job, uint64_t step) {
    std::seed_seq mixed{seed & 0xffffffff, seed >> 32, job, step};
    engine_.seed(mixed);
  }
  uint64_t below(uint64_t n) { return engine_() % n; }
  int from(int low, int high) { return low + static_cast<int>(below(static_cast<uint64_t>(high - low) + 1)); }
  bool one_in(uint64_t n) { return below(n) == 0; }

private:
  std::mt19937_64 engine_;
};

enum class Kind {
  operations, // of all kinds, one after the other
  burst,      // several at once: streams, groups, works, events
  split,      // one communicator more for each rank
  end_set,    // and one less
  abort_set,  // one rank aborts its own
  revoke,     // one rank revokes; all go on in a new one
  death,      // one rank is killed in an operation; the others go on
  leave,      // one rank is excluded and ends
  grow,       // a new process comes
  restart     // all end their communicators, count what is left, and begin anew
};

struct Step {
  Kind kind = Kind::operations;
  int rank = 0; // that does it
};

inline Step step_of(Draw &draw, int n) {
  const uint64_t pick = draw.below(100);
  const int rank = draw.from(0, n - 1);
  if (pick < 34) return {Kind::operations, rank};
  if (pick < 62) return {Kind::burst, rank};
  if (pick < 72) return {Kind::split, rank};
  if (pick < 75) return {Kind::end_set, rank};
  if (pick < 78) return {Kind::abort_set, rank};
  if (pick < 82) return {Kind::revoke, rank};
  if (pick < 88) return {n > kFewestRanks ? Kind::death : Kind::grow, rank};
  if (pick < 91) return {n > kFewestRanks ? Kind::leave : Kind::grow, rank};
  if (pick < 96) return {n < kMostRanks ? Kind::grow : Kind::death, rank};
  return {Kind::restart, rank};
}

// Every power of two as often, up to `most` bytes; one in eight none at all.
inline size_t count_of(Draw &draw, size_t most, size_t element) {
  if (draw.one_in(8)) return 0;
  int bits = 0;
  while ((size_t{2} << bits) <= most) bits++;
  const size_t top = size_t{1} << draw.from(0, bits);
  return (top + draw.below(top)) / element + draw.below(2);
}

inline support::Case case_of(Draw &draw, int n) {
  support::Case c;
  c.coll = support::kAllColls[draw.below(std::size(support::kAllColls))];
  c.type = static_cast<tuttiDataType_t>(draw.below(tuttiNumTypes));
  c.op = support::reduces(c.coll) ? draw.from(tuttiSum, support::kPreMul) : static_cast<int>(tuttiSum);
  const size_t most = draw.one_in(8) ? size_t{8} << 20 : size_t{256} << 10; // of all blocks together
  c.count = count_of(draw, most / static_cast<size_t>(n), 4);
  c.in_place = support::has_in_place(c.coll) && draw.one_in(2);
  c.misalign = draw.one_in(3) ? 1 + draw.below(7) : 0;
  c.root = draw.from(0, n - 1);
  return c;
}

} // namespace soak
