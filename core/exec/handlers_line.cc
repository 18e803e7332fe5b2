// Handlers of IN_DATA protocols over rings in memory: every line carries the word, kernels resume where data was missing.
#include "exec/bound.h"

namespace tutti {
namespace {

int32_t src_chunk(const Lane &lane, const BoundStep &s) {
  return walk(s.src_first, s.stride, s.modulus, lane.iter);
}
int32_t dst_chunk(const Lane &lane, const BoundStep &s) {
  return walk(s.dst_first, s.stride, s.modulus, lane.iter);
}

uint64_t word_of(const Lane &lane, const Frame &f, const BoundLink &link, uint32_t buf, int32_t chunk) {
  uint32_t sig = f.signature ^ link.fingerprint;
  if (f.keyed) [[unlikely]]
    sig ^= keyed_signature(lane, f, buf, chunk, 1);
  return slot_word(link.ring->seq + 1, sig);
}

// Nothing came: it may be because the peer runs another operation.
int missing(Frame &f, const BoundLink &link, uint64_t want) {
  const uint64_t got = load_acquire(slot_at(*link.ring) + f.bound->selection.proto.table->flag_offset);
  if (uint32_t(got) == uint32_t(want) && got != want && got != 0) [[unlikely]]
    return fault_mismatch(f, link, *link.ring);
  return 0;
}

int send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.send->ring;
  if (!ring_can_send(r)) return 0;
  reinterpret_cast<tutti_line_encode_fn>(s.kernel)(slot_at(r), a.at, static_cast<uint64_t>(a.bytes),
                                                   word_of(lane, f, *s.send, s.src_buf, chunk));
  r.seq++;
  return 1;
}

int recv(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  const uint64_t word = word_of(lane, f, *s.recv, s.dst_buf, chunk);
  const auto decode = reinterpret_cast<tutti_line_decode_fn>(s.kernel);
  if (!decode(slot_at(r), d.at, static_cast<uint64_t>(d.bytes), word, &lane.done)) return missing(f, *s.recv, word);
  lane.done = 0;
  ring_consume(r);
  return 1;
}

int recv_reduce(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
  const uint64_t word = word_of(lane, f, *s.recv, s.src_buf, chunk);
  const auto reduce = reinterpret_cast<tutti_line_reduce_fn>(s.kernel);
  if (!reduce(slot_at(r), a.at, d.at, static_cast<uint64_t>(a.bytes), word, &lane.done)) return missing(f, *s.recv, word);
  lane.done = 0;
  ring_consume(r);
  return 1;
}

int recv_reduce_forward(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.recv->ring, &w = *s.send->ring;
  if (!ring_can_send(w)) return 0;
  const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
  const uint64_t word = word_of(lane, f, *s.recv, s.src_buf, chunk);
  const auto reduce = reinterpret_cast<tutti_line_reduce2_fn>(s.kernel);
  if (!reduce(slot_at(r), a.at, d.at, slot_at(w), static_cast<uint64_t>(a.bytes), word,
              word_of(lane, f, *s.send, s.src_buf, chunk), &lane.done))
    return missing(f, *s.recv, word);
  lane.done = 0;
  w.seq++;
  ring_consume(r);
  return 1;
}

} // namespace

const HandlerSet kLineHandlers{send,    recv,    recv_reduce, nullptr, recv_reduce_forward,
                               nullptr, nullptr, nullptr,     nullptr, nullptr};

} // namespace tutti
