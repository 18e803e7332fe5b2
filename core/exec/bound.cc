// Chunk arithmetic that the fast path leaves out, and faults.
#include "exec/bound.h"
#include "transport/collnet_port.h"
#include "transport/transport.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

Span chunk_of(const Frame &f, uint32_t group, uint32_t buf, int32_t chunk) {
  const Bound &b = *f.bound;
  const uint32_t pieces = buf == TUTTI_BUF_IN ? b.pieces_in : b.pieces_out;
  return chunk_span(*f.shape[buf], pieces, b.groups, group, static_cast<uint32_t>(chunk));
}

uint64_t chunk_bytes_of(const Lane &lane, const Frame &f, uint32_t buf, int32_t chunk) {
  const Geo &g = lane.geo[buf];
  if (g.irregular) return chunk_of(f, lane.group, buf, chunk).bytes;
  const int64_t left = g.limit - chunk * g.mul;
  const int64_t n = left < g.len ? left : g.len;
  return n > 0 ? static_cast<uint64_t>(n) : 0;
}

} // namespace

Bound::Bound() = default;
Bound::~Bound() = default;

Result<uint8_t *> Workspace::get(uint64_t bytes, MemoryBudget &budget, const std::string &what) {
  if (bytes <= size_) return blocks_.back().get();
  uint64_t size = std::max(bytes, 2 * size_);
  if (!budget.take(size, what).ok()) TUTTI_TRY(budget.take(size = bytes, what));
  auto *p = static_cast<uint8_t *>(::operator new[](size, std::align_val_t(64), std::nothrow));
  if (!p) {
    budget.give(size);
    return fail(Code::system, "out of memory: {} bytes for {}", size, what);
  }
  std::memset(p, 0, size); // first-touch faults belong here
  blocks_.emplace_back(p);
  size_ = size;
  return p;
}

Piece irregular_piece(const Lane &lane, const Frame &f, uint32_t buf, int32_t chunk, uint64_t *chunk_bytes) {
  const Span whole = chunk_of(f, lane.group, buf, chunk);
  *chunk_bytes = whole.bytes;
  const Span part = slice_span(whole, f.slice_bytes, lane.slice);
  return {lane.geo[buf].base + part.offset, static_cast<int64_t>(part.bytes)};
}

Piece scratch_piece(const Lane &lane, const Frame &f, int32_t chunk, uint64_t *chunk_bytes) {
  const Bound &b = *f.bound;
  const tutti_chunk_id &sizer = b.plan->scratch_size[static_cast<size_t>(chunk)];
  *chunk_bytes = chunk_bytes_of(lane, f, sizer.buf, static_cast<int32_t>(sizer.chunk));
  const uint64_t at = uint64_t(lane.slice) * f.slice_bytes;
  const uint64_t left = at < *chunk_bytes ? *chunk_bytes - at : 0;
  const uint64_t copies = b.window,
                 index = (uint64_t(lane.group) * b.plan->scratch_chunks + static_cast<uint64_t>(chunk)) * copies;
  return {f.scratch + (index + lane.slice % copies) * f.scratch_stride,
          static_cast<int64_t>(left < f.slice_bytes ? left : f.slice_bytes)};
}

uint64_t whole_chunk(const Lane &lane, const Frame &f, uint32_t buf, int32_t chunk) {
  if (buf != TUTTI_BUF_SCRATCH) return chunk_bytes_of(lane, f, buf, chunk);
  const tutti_chunk_id &sizer = f.bound->plan->scratch_size[static_cast<size_t>(chunk)];
  return chunk_bytes_of(lane, f, sizer.buf, static_cast<int32_t>(sizer.chunk));
}

uint32_t keyed_signature(const Lane &lane, const Frame &f, uint32_t buf, int32_t chunk, uint32_t count) {
  const uint64_t *marks = buf == TUTTI_BUF_SCRATCH ? nullptr : f.marks[buf];
  uint64_t sum = 0;
  for (uint32_t i = 0; i < count; i++) {
    const int32_t c = chunk + static_cast<int32_t>(i);
    sum = sum * 31 + whole_chunk(lane, f, buf, c);
    // Marks are one per block.
    if (marks) sum += mix32(marks[static_cast<uint32_t>(c) / (buf == TUTTI_BUF_IN ? f.bound->pieces_in : f.bound->pieces_out)]);
  }
  return mix32(sum) & ~1u;
}

std::string Bound::way_text() const {
  const uint32_t channels = plan->request.channels;
  return fmt::format(" by {} ({}, {}slots {} x {} bytes)", plan->algo, selection.proto.table->name,
                     channels > 1 ? fmt::format("{} channels, ", channels) : "", selection.depth, selection.slot_bytes);
}

int fault_mismatch(Frame &f, const BoundLink &link, const Ring &ring) {
  f.mismatch.link = &link;
  f.mismatch.got = signature_in(load_acquire(slot_at(ring) + ring.cold->geometry.word_offset), ring.seq + 1);
  return -1;
}

} // namespace tutti
