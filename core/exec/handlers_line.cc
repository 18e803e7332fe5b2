// Handlers of IN_DATA protocols over rings in memory: every line carries the word, kernels resume where data was missing.
#include "exec/handlers.h"

namespace tutti {
namespace {

uint64_t word_of(const Lane &lane, const Frame &f, const BoundLink &link, uint32_t buf, int32_t chunk) {
  return slot_word(link.ring->seq + 1, signature_of(lane, f, link, buf, chunk));
}

// Nothing came: it may be because the peer runs another operation.
int missing(Frame &f, const BoundLink &link, uint64_t want) {
  const uint64_t got = load_acquire(slot_at(*link.ring) + f.bound->selection.proto.table->flag_offset);
  if (uint32_t(got) == uint32_t(want) && got != want && got != 0) [[unlikely]]
    return fault_mismatch(f, link, *link.ring);
  return 0;
}

tutti_line_encode_fn encode_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_line_encode_fn>(k);
}
tutti_line_decode_fn decode_fn(tutti_kernel k) {
  return reinterpret_cast<tutti_line_decode_fn>(k);
}

int send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.send->ring;
  if (!ring_can_send(r)) return 0;
  encode_fn(s.kernel)(slot_at(r), a.at, static_cast<uint64_t>(a.bytes), word_of(lane, f, *s.send, s.src_buf, chunk));
  ring_advance(r, static_cast<uint64_t>(a.bytes), rest_of_lines(f, static_cast<uint64_t>(a.bytes)));
  return 1;
}

// Bytes [from, to) of the message at `at` to every send link of the step; `from` is where a line starts. The last part
// publishes.
void send_part(const Lane &lane, const BoundStep &s, const Frame &f, const uint8_t *at, uint64_t from, uint64_t to, bool last,
               uint32_t buf, int32_t chunk) {
  const tutti_proto_v1 &proto = *f.bound->selection.proto.table;
  const uint64_t line = from / proto.payload_bytes * proto.line_bytes;
  for (uint32_t k = 0; k < s.cold->step.send_count; k++) {
    Ring &w = *s.send[k].ring;
    encode_fn(s.cold->encode)(slot_at(w) + line, at + from, to - from, word_of(lane, f, s.send[k], buf, chunk));
    if (last) ring_advance(w, to, rest_of_lines(f, to));
  }
}

template <bool Store> int send_n(Lane &lane, const BoundStep &s, Frame &f) {
  return fan_out<Store>(lane, s, f, [&](const uint8_t *at, uint64_t bytes, int32_t chunk) {
    send_part(lane, s, f, at, 0, bytes, true, s.src_buf, chunk);
  });
}

int recv(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  Ring &r = *s.recv->ring;
  const uint64_t word = word_of(lane, f, *s.recv, s.dst_buf, chunk);
  if (!decode_fn(s.kernel)(slot_at(r), d.at, static_cast<uint64_t>(d.bytes), word, &lane.done))
    return missing(f, *s.recv, word);
  lane.done = 0;
  ring_consume(r, static_cast<uint64_t>(d.bytes), rest_of_lines(f, static_cast<uint64_t>(d.bytes)));
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
  ring_consume(r, static_cast<uint64_t>(a.bytes), rest_of_lines(f, static_cast<uint64_t>(a.bytes)));
  return 1;
}

template <bool Store> int recv_reduce_send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = src_chunk(lane, s);
  const Piece a = piece_of(lane, f, s.src_buf, chunk);
  if (a.bytes <= 0) return 1;
  Ring &r = *s.recv->ring, &w = *s.send->ring;
  if (!ring_can_send(w)) return 0;
  uint8_t *const dst = Store ? piece_of(lane, f, s.dst_buf, dst_chunk(lane, s)).at : nullptr;
  const uint64_t word = word_of(lane, f, *s.recv, s.src_buf, chunk);
  const auto reduce = reinterpret_cast<tutti_line_reduce2_fn>(s.kernel);
  if (!reduce(slot_at(r), a.at, dst, slot_at(w), static_cast<uint64_t>(a.bytes), word,
              word_of(lane, f, *s.send, s.src_buf, chunk), &lane.done))
    return missing(f, *s.recv, word);
  lane.done = 0;
  ring_advance(w, static_cast<uint64_t>(a.bytes), rest_of_lines(f, static_cast<uint64_t>(a.bytes)));
  ring_consume(r, static_cast<uint64_t>(a.bytes), rest_of_lines(f, static_cast<uint64_t>(a.bytes)));
  return 1;
}

// Relays a message line by line, as far as it has come; with Store it also stays here.
template <bool Store> int recv_send(Lane &lane, const BoundStep &s, Frame &f) {
  const int32_t chunk = dst_chunk(lane, s);
  const Piece d = piece_of(lane, f, s.dst_buf, chunk);
  if (d.bytes <= 0) return 1;
  if (!can_send_to_all(s)) return 0;
  Ring &r = *s.recv->ring;
  const auto bytes = static_cast<uint64_t>(d.bytes);
  const uint64_t word = word_of(lane, f, *s.recv, s.dst_buf, chunk), before = lane.done;
  uint8_t *const at = Store ? d.at : lane.tmp;
  const bool all = decode_fn(s.cold->decode)(slot_at(r), at, bytes, word, &lane.done);
  if (lane.done > before) send_part(lane, s, f, at, before, lane.done, all, s.dst_buf, chunk);
  if (!all) return missing(f, *s.recv, word);
  lane.done = 0;
  ring_consume(r, bytes, rest_of_lines(f, bytes));
  return 1;
}

// Fan-in in rank order, result to memory (with Store) and to the send links. Operands become plain memory first, so that 16-bit
// floats are rounded once, as under every other protocol. lane.phase = links done, lane.done = bytes of the present one.
template <bool Store> int reduce_n(Lane &lane, const BoundStep &s, Frame &f) {
  const bool with_src = s.cold->step.ops & TUTTI_STEP_SRC;
  const uint32_t buf = with_src ? s.src_buf : s.dst_buf;
  const int32_t chunk = with_src ? src_chunk(lane, s) : dst_chunk(lane, s);
  const Piece a = piece_of(lane, f, buf, chunk);
  if (a.bytes <= 0) return 1;
  const auto bytes = static_cast<uint64_t>(a.bytes);
  const auto tmp = [&](uint32_t i) { return lane.tmp + i * s.cold->tmp_bytes; };
  for (; lane.phase < s.recv_count; lane.phase++) {
    const BoundLink &link = s.recv[lane.phase];
    const uint64_t word = word_of(lane, f, link, buf, chunk);
    if (!decode_fn(s.cold->decode)(slot_at(*link.ring), tmp(1 + lane.phase), bytes, word, &lane.done))
      return missing(f, link, word);
    lane.done = 0;
  }
  if (!can_send_to_all(s)) return 0;
  lane.phase = 0;
  const uint32_t n = list_operands(s, f, with_src ? a.at : nullptr, [&](uint32_t k) { return tmp(1 + k); });
  uint8_t *const dst = Store ? piece_of(lane, f, s.dst_buf, dst_chunk(lane, s)).at : tmp(0);
  reinterpret_cast<tutti_reduce_n_fn>(s.kernel)(dst, f.operands, n, bytes);
  send_part(lane, s, f, dst, 0, bytes, true, buf, chunk);
  for (uint32_t k = 0; k < s.recv_count; k++) ring_consume(*s.recv[k].ring, bytes, rest_of_lines(f, bytes));
  return 1;
}

} // namespace

const HandlerSet kLineHandlers{send,
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
                               recv_send<true>};

} // namespace tutti
