// tutti/core/plan/chunks.h: where chunk c of a buffer lies: the arithmetic of plugin/plan.h, shared by executor, checker and
// dump.
#pragma once
#include "plan/plan.h"
#include <cstdint>

namespace tutti {

struct Span {
  uint64_t offset = 0, bytes = 0;
}; // bytes from the buffer's start

// One buffer of one run. Uniform: `blocks` blocks of `block_bytes` in a row. Non-uniform: tables with one entry per block.
struct BufferShape {
  uint32_t blocks = 0;
  uint64_t block_bytes = 0;
  const uint64_t *bytes = nullptr; // table, or nullptr
  const uint64_t *offsets = nullptr;
};

constexpr uint64_t kChunkAlign = 64;
constexpr uint64_t align_up(uint64_t n, uint64_t a) {
  return (n + a - 1) / a * a;
}

// Chunk `chunk` (piece chunk % pieces of block chunk / pieces) of group `group`.
constexpr Span chunk_span(const BufferShape &b, uint32_t pieces, uint32_t groups, uint32_t group, uint32_t chunk) {
  const uint32_t block = chunk / pieces, piece = chunk % pieces;
  const uint64_t total = b.bytes ? b.bytes[block] : b.block_bytes;
  const uint64_t start = b.offsets ? b.offsets[block] : block * b.block_bytes;
  const uint64_t share = align_up((total + groups - 1) / groups, kChunkAlign);
  const uint64_t share_lo = share * group < total ? share * group : total;
  const uint64_t share_hi = share_lo + share < total ? share_lo + share : total;
  const uint64_t size = align_up((share_hi - share_lo + pieces - 1) / pieces, kChunkAlign);
  const uint64_t lo = share_lo + (size * piece < share_hi - share_lo ? size * piece : share_hi - share_lo);
  const uint64_t hi = lo + size < share_hi ? lo + size : share_hi;
  return {start + lo, hi - lo};
}

// Part of a chunk that slice `slice` of `slice_bytes` moves; bytes == 0: no message.
constexpr Span slice_span(Span chunk, uint64_t slice_bytes, uint64_t slice) {
  const uint64_t lo = slice_bytes * slice;
  if (lo >= chunk.bytes) return {chunk.offset + chunk.bytes, 0};
  const uint64_t left = chunk.bytes - lo;
  return {chunk.offset + lo, left < slice_bytes ? left : slice_bytes};
}

} // namespace tutti
