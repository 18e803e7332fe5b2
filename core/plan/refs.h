// tutti/core/plan/refs.h: what a step's fields mean, in one place for builder, liveness, checker, interpreter and dump.
#pragma once
#include "base/types.h"
#include "plan/plan.h"
#include <optional>

namespace tutti {

// First chunk of a ref at iteration i; never below 0 where a modulus is set.
constexpr int64_t ref_first(const tutti_ref &r, uint32_t i) {
  int64_t c = r.first + static_cast<int64_t>(i) * r.stride;
  if (r.modulus == 0) return c;
  c %= static_cast<int64_t>(r.modulus);
  return c < 0 ? c + static_cast<int64_t>(r.modulus) : c;
}

constexpr bool has(const tutti_step &s, uint32_t op) {
  return (s.ops & op) != 0;
}

// The ref that sizes the step's message.
constexpr const tutti_ref &sizing_ref(const tutti_step &s) {
  return has(s, TUTTI_STEP_SRC) ? s.src : s.dst;
}

// Does this rank have the user's buffer?
constexpr bool has_in(tutti_coll coll, int rank, int root) {
  return (coll != TUTTI_COLL_BROADCAST && coll != TUTTI_COLL_SCATTER) || rank == root;
}
constexpr bool has_out(tutti_coll coll, int rank, int root) {
  return (coll != TUTTI_COLL_REDUCE && coll != TUTTI_COLL_GATHER) || rank == root;
}
inline bool has_in(const Plan &p) {
  return has_in(p.request.coll, p.request.rank, p.request.root);
}
inline bool has_out(const Plan &p) {
  return has_out(p.request.coll, p.request.rank, p.request.root);
}

constexpr std::string_view buf_name(uint32_t buf) {
  return buf == TUTTI_BUF_IN ? "IN" : buf == TUTTI_BUF_OUT ? "OUT" : buf == TUTTI_BUF_SCRATCH ? "SCRATCH" : "?";
}
constexpr uint32_t chunks_of(const Plan &p, uint32_t buf) {
  return buf == TUTTI_BUF_IN ? p.in_chunks : buf == TUTTI_BUF_OUT ? p.out_chunks : p.scratch_chunks;
}

// The IN or OUT chunk whose size a chunk has: itself, or what sizes the scratch chunk.
inline tutti_chunk_id sizing_chunk(const Plan &p, uint32_t buf, uint32_t chunk) {
  return buf == TUTTI_BUF_SCRATCH ? p.scratch_size[chunk] : tutti_chunk_id{buf, chunk};
}

// Most chunks in one message of a link: sizes its slots. Both ends have the same steps on it, so the same number.
uint32_t most_chunks(const PlanLane &lane, bool sending, uint32_t link);

// A number that is the same on every rank for chunks that have the same size whatever the byte counts are: the chunk's place
// in the collective as a whole. Uniform all-to-all blocks are all alike, so there it is the piece only.
uint64_t chunk_identity(const Plan &p, uint32_t buf, uint32_t chunk);

// In place IN and OUT share memory: the OUT chunk that is the same memory as this IN chunk, if any, and the other way round.
std::optional<uint32_t> out_of_in(const Plan &p, uint32_t in_chunk);
std::optional<uint32_t> in_of_out(const Plan &p, uint32_t out_chunk);
constexpr bool has_in_place_form(tutti_coll coll) {
  return coll != TUTTI_COLL_ALL_TO_ALL;
}

} // namespace tutti
