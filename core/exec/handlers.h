// tutti/core/exec/handlers.h: what the handlers of all signals share.
#pragma once
#include "exec/bound.h"

namespace tutti {

inline int32_t src_chunk(const Lane &lane, const BoundStep &s) {
  return walk(s.src_first, s.stride, s.modulus, lane.iter);
}
inline int32_t dst_chunk(const Lane &lane, const BoundStep &s) {
  return walk(s.dst_first, s.stride, s.modulus, lane.iter);
}

// What a message of `count` chunks on this link carries beside its number.
inline uint32_t signature_of(const Lane &lane, const Frame &f, const BoundLink &link, uint32_t buf, int32_t chunk,
                             uint32_t count = 1) {
  const uint32_t sig = f.signature ^ link.fingerprint;
  if (f.keyed) [[unlikely]]
    return sig ^ keyed_signature(lane, f, buf, chunk, count);
  return sig;
}

// What a message of an IN_DATA protocol takes of a slot beside its first line.
inline uint64_t rest_of_lines(const Frame &f, uint64_t bytes) {
  const tutti_proto_v1 &p = *f.bound->selection.proto.table;
  return bytes <= p.payload_bytes ? 0 : (bytes - 1) / p.payload_bytes * p.line_bytes;
}

inline bool can_send_to_all(const BoundStep &s) {
  for (uint32_t k = 0; k < s.cold->step.send_count; k++)
    if (!ring_can_send(*s.send[k].ring)) return false;
  return true;
}

// The step's operands in rank order, into f.operands: `own`, if the step has one, and received(k) of each link. Their number.
template <class Received> uint32_t list_operands(const BoundStep &s, const Frame &f, const void *own, Received received) {
  const tutti_step &step = s.cold->step;
  uint32_t n = 0;
  for (uint32_t k = 0; k < s.recv_count; k++) {
    if (own && step.src_pos == k) f.operands[n++] = own;
    f.operands[n++] = received(k);
  }
  if (own && step.src_pos >= s.recv_count) f.operands[n++] = own;
  return n;
}

// Fan-out of the local operand by send_all(at, bytes, chunk); with Store it also goes to dst, unless it lies there already.
template <bool Store, class SendAll> int fan_out(const Lane &lane, const BoundStep &s, const Frame &f, SendAll send_all) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  if (!can_send_to_all(s)) return 0;
  const auto bytes = static_cast<uint64_t>(a.bytes);
  send_all(a.at, bytes, chunk);
  if constexpr (Store) {
    const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
    if (d.at != a.at) s.cold->copy_out(d.at, a.at, bytes);
  }
  return 1;
}

} // namespace tutti
