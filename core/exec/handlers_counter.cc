// Handlers of COUNTER protocols over rings in memory: the slot's word tells, the payload is plain bytes. One message per call.
#include "exec/handlers.h"

namespace tutti {
namespace {

tutti_copy_fn copy_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_copy_fn>(k);
}
tutti_reduce_fn reduce_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_reduce_fn>(k);
}
tutti_reduce2_fn reduce2_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_reduce2_fn>(k);
}
tutti_reduce_n_fn reduce_n_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_reduce_n_fn>(k);
}

int send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.send->ring;
  if (!ring_can_send(r)) return 0;
  uint8_t *slot = slot_at(r);
  copy_fn(s.kernel)(slot + payload_offset(static_cast<uint64_t>(a.bytes)), a.at, static_cast<uint64_t>(a.bytes));
  ring_publish(r, slot, signature_of(lane, f, *s.send, s.src_buf, chunk), static_cast<uint64_t>(a.bytes));
  return 1;
}

int recv(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  uint8_t *slot = slot_at(r);
  const int ready = ring_ready(r, slot, signature_of(lane, f, *s.recv, s.dst_buf, chunk));
  if (ready <= 0) [[unlikely]]
    return ready == 0 ? 0 : fault_mismatch(f, *s.recv, r);
  copy_fn(s.kernel)(d.at, slot + payload_offset(static_cast<uint64_t>(d.bytes)), static_cast<uint64_t>(d.bytes));
  ring_consume(r, static_cast<uint64_t>(d.bytes));
  return 1;
}

// The operand that comes first in rank order is the left one.
struct Operands {
  const uint8_t *left, *right;
};
Operands in_order(const BoundStep &s, const uint8_t *src, const uint8_t *received) {
  return s.cold->step.src_pos ? Operands{received, src} : Operands{src, received};
}

int recv_reduce(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  uint8_t *slot = slot_at(r);
  const int ready = ring_ready(r, slot, signature_of(lane, f, *s.recv, s.src_buf, chunk));
  if (ready <= 0) return ready == 0 ? 0 : fault_mismatch(f, *s.recv, r);
  const auto bytes = static_cast<uint64_t>(a.bytes);
  const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
  const Operands o = in_order(s, a.at, slot + payload_offset(bytes));
  reduce_fn(s.kernel)(d.at, o.left, o.right, bytes);
  ring_consume(r, bytes);
  return 1;
}

template <bool Store> int recv_reduce_send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.recv->ring, &w = *s.send->ring;
  uint8_t *slot = slot_at(r);
  const int ready = ring_ready(r, slot, signature_of(lane, f, *s.recv, s.src_buf, chunk));
  if (ready <= 0) return ready == 0 ? 0 : fault_mismatch(f, *s.recv, r);
  if (!ring_can_send(w)) return 0;
  const auto bytes = static_cast<uint64_t>(a.bytes);
  uint8_t *out = slot_at(w);
  const Operands o = in_order(s, a.at, slot + payload_offset(bytes));
  if constexpr (Store) {
    const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
    reduce2_fn(s.kernel)(d.at, out + payload_offset(bytes), o.left, o.right, bytes);
  } else {
    reduce_fn(s.kernel)(out + payload_offset(bytes), o.left, o.right, bytes);
  }
  ring_publish(w, out, signature_of(lane, f, *s.send, s.src_buf, chunk), bytes);
  ring_consume(r, bytes);
  return 1;
}

// Copies to every send link of the step; the caller has seen that all have room.
void send_to_all(const Lane &lane, const BoundStep &s, const Frame &f, const uint8_t *from, uint64_t bytes, uint32_t buf,
                 int32_t chunk) {
  for (uint32_t k = 0; k < s.cold->step.send_count; k++) {
    Ring &w = *s.send[k].ring;
    uint8_t *slot = slot_at(w);
    copy_fn(s.cold->encode)(slot + payload_offset(bytes), from, bytes);
    ring_publish(w, slot, signature_of(lane, f, s.send[k], buf, chunk), bytes);
  }
}

// Relays a message; with Store it also stays here.
template <bool Store> int recv_send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  Ring &r = *s.recv->ring, &w = *s.send->ring;
  uint8_t *slot = slot_at(r);
  const int ready = ring_ready(r, slot, signature_of(lane, f, *s.recv, s.dst_buf, chunk));
  if (ready <= 0) return ready == 0 ? 0 : fault_mismatch(f, *s.recv, r);
  if (!ring_can_send(w)) return 0;
  const auto bytes = static_cast<uint64_t>(d.bytes);
  const uint8_t *in = slot + payload_offset(bytes);
  uint8_t *out = slot_at(w);
  copy_fn(s.kernel)(out + payload_offset(bytes), in, bytes); // onward first: the next rank waits for it
  ring_publish(w, out, signature_of(lane, f, *s.send, s.dst_buf, chunk), bytes);
  if constexpr (Store) s.cold->copy_out(d.at, in, bytes);
  ring_consume(r, bytes);
  return 1;
}

// To several links and to memory.
int recv_forward_n(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  uint8_t *slot = slot_at(r);
  const int ready = ring_ready(r, slot, signature_of(lane, f, *s.recv, s.dst_buf, chunk));
  if (ready <= 0) return ready == 0 ? 0 : fault_mismatch(f, *s.recv, r);
  if (!can_send_to_all(s)) return 0;
  const auto bytes = static_cast<uint64_t>(d.bytes);
  const uint8_t *in = slot + payload_offset(bytes);
  send_to_all(lane, s, f, in, bytes, s.dst_buf, chunk);
  s.cold->copy_out(d.at, in, bytes);
  ring_consume(r, bytes);
  return 1;
}

template <bool Store> int send_n(Lane &lane, const BoundStep &s, Frame &f) {
  return fan_out<Store>(lane, s, f, [&](const uint8_t *at, uint64_t bytes, int32_t chunk) {
    send_to_all(lane, s, f, at, bytes, s.src_buf, chunk);
  });
}

// Fan-in in rank order, result to memory (without Store: temporary) and to the send links. lane.done = links known to be ready.
template <bool Store> int reduce_n(Lane &lane, const BoundStep &s, Frame &f) {
  const bool with_src = s.cold->step.ops & TUTTI_STEP_SRC;
  const uint32_t buf = with_src ? s.src_buf : s.dst_buf;
  const int32_t chunk = with_src ? src_chunk(lane, s) : dst_chunk(lane, s);
  const Piece a = piece_of(lane, f, buf, chunk);
  if (a.bytes <= 0) return 1;
  for (auto k = static_cast<uint32_t>(lane.done); k < s.recv_count; k++) {
    const BoundLink &link = s.recv[k];
    const int ready = ring_ready(*link.ring, slot_at(*link.ring), signature_of(lane, f, link, buf, chunk));
    if (ready > 0) [[likely]]
      continue;
    lane.done = k;
    return ready == 0 ? 0 : fault_mismatch(f, link, *link.ring);
  }
  if (!can_send_to_all(s)) return 0;
  lane.done = 0;
  const auto bytes = static_cast<uint64_t>(a.bytes);
  const uint32_t n = list_operands(s, f, with_src ? a.at : nullptr,
                                   [&](uint32_t k) { return slot_at(*s.recv[k].ring) + payload_offset(bytes); });
  uint8_t *const dst = Store ? piece_of(lane, f, s.dst_buf, dst_chunk(lane, s)).at : lane.tmp;
  reduce_n_fn(s.kernel)(dst, f.operands, n, bytes);
  send_to_all(lane, s, f, dst, bytes, buf, chunk);
  for (uint32_t k = 0; k < s.recv_count; k++) ring_consume(*s.recv[k].ring, bytes);
  return 1;
}

} // namespace

const HandlerSet kCounterHandlers{send,
                                  recv,
                                  recv_reduce,
                                  recv_reduce_send<false>,
                                  recv_reduce_send<true>,
                                  recv_send<false>,
                                  recv_send<true>,
                                  reduce_n<true>,
                                  reduce_n<false>,
                                  send_n<false>,
                                  send_n<true>,
                                  recv_forward_n};

} // namespace tutti
