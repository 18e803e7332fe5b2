// The handler that can do every step over every kind of link: several chunks per message, pre- and post-operation, fan-in and
// fan-out, nets. Operands become plain memory first (a slot's payload, a decoded copy, a received buffer), then one reduction,
// then sends.
#include "exec/pull.h"
#include "transport/collnet_port.h"
#include "transport/net_port.h"
#include "transport/transport.h"
#include <cstring>
#include <utility>

namespace tutti {
namespace {

struct Message { // the step's message in this slice
  uint32_t buf = 0, count = 1;
  int32_t chunk = 0;
  uint64_t bytes = 0;
};

int32_t chunk_at(const tutti_ref &ref, uint32_t iter) {
  return walk(ref.first, ref.stride, ref.modulus, iter);
}

uint64_t total_bytes(const Lane &lane, const Frame &f, uint32_t buf, int32_t chunk, uint32_t count) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; i++) {
    const Piece p = piece_of(lane, f, buf, chunk + static_cast<int32_t>(i));
    if (p.bytes > 0) total += static_cast<uint64_t>(p.bytes);
  }
  return total;
}

// The pieces one after the other in memory; `at` when they are apart.
void gather(const Lane &lane, const Frame &f, const Message &m, uint8_t *at) {
  for (uint32_t i = 0; i < m.count; i++) {
    const Piece p = piece_of(lane, f, m.buf, m.chunk + static_cast<int32_t>(i));
    if (p.bytes <= 0) continue;
    std::memcpy(at, p.at, static_cast<size_t>(p.bytes));
    at += p.bytes;
  }
}
void scatter(const Lane &lane, const Frame &f, const tutti_ref &ref, uint32_t iter, const uint8_t *from) {
  for (uint32_t i = 0; i < ref.count; i++) {
    const Piece p = piece_of(lane, f, ref.buf, chunk_at(ref, iter) + static_cast<int32_t>(i));
    if (p.bytes <= 0) continue;
    if (p.at != from) std::memcpy(p.at, from, static_cast<size_t>(p.bytes));
    from += p.bytes;
  }
}

struct Composer {
  Lane &lane;
  const BoundStep &s;
  Frame &f;
  const StepCold &cold = *s.cold;
  const tutti_step &step = cold.step;
  const Bound &bound = *f.bound;
  Message m{};
  NetPort *port = nullptr;

  bool has(uint32_t op) const { return step.ops & op; }
  uint8_t *tmp(uint32_t i) const { return lane.tmp + i * cold.tmp_bytes; }
  uint32_t signature(const BoundLink &link) const { return signature_of(lane, f, link, m.buf, m.chunk, m.count); }
  bool in_data() const { return bound.selection.proto.table->signal == TUTTI_SIGNAL_IN_DATA; }
  bool descriptors() const { return bound.selection.proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR; }

  void size_message() {
    const tutti_ref &ref = has(TUTTI_STEP_SRC) ? step.src : step.dst;
    m = {ref.buf, ref.count, chunk_at(ref, lane.iter), 0};
    m.bytes = total_bytes(lane, f, m.buf, m.chunk, m.count);
  }
  // Where the received operand can land or the result can be made in place; nullptr = in temporary memory.
  uint8_t *single_dst() const {
    if (!has(TUTTI_STEP_STORE) || step.dst.count != 1) return nullptr;
    return piece_of(lane, f, step.dst.buf, chunk_at(step.dst, lane.iter)).at;
  }
  uint8_t *recv_home() const { return cold.recv_home ? single_dst() : nullptr; }

  struct Next { // message that this lane receives from the link of the present step
    const StepCold *cold;
    uint32_t iter, slice;
  };
  Next next_receive() const {
    if (bound.step_major) return {&cold, lane.iter, lane.slice + 1};
    if (lane.iter + 1 < s.repeat) return {&cold, lane.iter + 1, lane.slice};
    const auto wraps = cold.next_recv <= static_cast<size_t>(&cold - lane.cold.data());
    return {&lane.cold[cold.next_recv], 0, lane.slice + wraps};
  }
  // Messages that come next on that link, before one that may land at home.
  uint32_t staged_next() const {
    if (bound.step_major) return cold.recv_home ? 0 : kAllAhead;
    if (lane.iter + 1 == s.repeat) return lane.cold[cold.next_recv].staged;
    return cold.recv_home ? 0 : s.repeat - lane.iter - 1 + lane.cold[cold.next_recv].staged;
  }
  // While the present message is on its way: where the next one lands, if its place is free by now.
  void post_next(Ring &r) {
    if (!port_of(r)->wants_next(r)) return;
    const Next next = next_receive();
    const uint32_t early = f.in_place ? kRecvEarlyInPlace : kRecvEarly;
    if (!next.cold->recv_home || !(next.cold->life & early)) return;
    const uint32_t present = std::exchange(lane.slice, next.slice);
    const tutti_ref &dst = next.cold->step.dst;
    const Piece p = piece_of(lane, f, dst.buf, chunk_at(dst, next.iter));
    lane.slice = present;
    if (p.bytes > static_cast<int64_t>(kStagedBytes)) port_of(r)->expect(r, static_cast<uint64_t>(p.bytes), p.at);
  }

  // What a group sends to a member that gives nothing: slices to come are posted, too, as far as it takes them.
  void expect_slices(const BoundLink &link) {
    Ring &r = *link.ring;
    CollnetPort &groups = *r.cold->transport->collnet();
    if (bound.step_major || s.repeat != 1 || &lane.cold[cold.next_recv] != &cold) return; // others receive from it as well
    const uint32_t present = lane.slice;
    for (uint64_t bytes = 1; bytes && groups.takes_receive(r, *link.call);) {
      lane.slice = present + static_cast<uint32_t>(groups.expected(r));
      bytes = total_bytes(lane, f, m.buf, m.chunk, m.count);
      if (bytes) groups.expect(r, bytes, signature(link), *link.call);
      lane.slice = present;
    }
  }

  // 1 operand k is plain memory at *at.
  int receive(uint32_t k, const uint8_t **at) {
    const BoundLink &link = s.recv[k];
    Ring &r = *link.ring;
    const uint32_t sig = signature(link);
    if (r.group) {
      expect_slices(link);
      return r.cold->transport->collnet()->receive(r, m.bytes, sig, *link.call, at);
    }
    if (r.net) {
      uint32_t got = 0;
      const int ready = port_of(r)->receive(r, m.bytes, sig, recv_home(), at, &got);
      if (ready == 0) post_next(r);
      if (ready >= 0) return ready;
      f.mismatch = {&link, got};
      return -1;
    }
    uint8_t *slot = slot_at(r);
    if (!in_data()) {
      const int ready = ring_ready(r, slot, sig);
      if (ready > 0 && descriptors()) {
        *at = tmp(2 + k);
        return fetch_whole(f, link, tmp(2 + k), m.bytes);
      }
      *at = slot + payload_offset(m.bytes);
      return ready >= 0 ? ready : fault_mismatch(f, link, r);
    }
    const uint64_t word = slot_word(r.seq + 1, sig);
    *at = tmp(2 + k);
    if (!reinterpret_cast<tutti_line_decode_fn>(cold.decode)(slot, tmp(2 + k), m.bytes, word, &lane.done)) {
      const uint64_t got = load_acquire(slot + bound.selection.proto.table->flag_offset);
      return uint32_t(got) == uint32_t(word) && got != word && got != 0 ? fault_mismatch(f, link, r) : 0;
    }
    return 1;
  }
  static NetPort *port_of(const Ring &r) { return r.cold->transport->net(); }

  // Waits for the receive links one after the other; lane.phase = links done, lane.done = bytes of the present one.
  int receive_all(const uint8_t **operand) {
    for (uint32_t k = 0; k < s.recv_count; k++) {
      if (k < lane.phase) { // already there in an earlier call; look it up again
        if (s.recv[k].ring->net || s.recv[k].ring->group || !(in_data() || descriptors())) {
          if (const int r = receive(k, &operand[k]); r <= 0) return r;
        } else {
          operand[k] = tmp(2 + k);
        }
        continue;
      }
      if (const int r = receive(k, &operand[k]); r <= 0) return r;
      lane.phase = k + 1;
      lane.done = 0;
    }
    return 1;
  }

  // The local operand as plain memory: where it is, or gathered and scaled in tmp(1).
  const uint8_t *source() const {
    const bool scaled = has(TUTTI_STEP_PREOP) && f.preop_factor;
    const uint8_t *at = nullptr;
    if (m.count == 1) {
      at = piece_of(lane, f, m.buf, m.chunk).at;
    } else {
      gather(lane, f, m, tmp(1));
      at = tmp(1);
    }
    if (!scaled) return at;
    bound.scale(tmp(1), at, f.preop_factor, m.bytes);
    return tmp(1);
  }

  void send_all(const uint8_t *v, bool home) const {
    for (uint32_t k = 0; k < step.send_count; k++) {
      const BoundLink &link = s.send[k];
      Ring &w = *link.ring;
      const uint32_t sig = signature(link);
      if (w.net) {
        port_of(w)->send(w, v, m.bytes, sig, home);
        continue;
      }
      if (w.group) {
        w.cold->transport->collnet()->send(w, v, m.bytes, sig, home, *link.call);
        continue;
      }
      uint8_t *slot = slot_at(w);
      if (in_data()) {
        reinterpret_cast<tutti_line_encode_fn>(cold.encode)(slot, v, m.bytes, slot_word(w.seq + 1, sig));
        ring_advance(w, m.bytes, rest_of_lines(f, m.bytes));
      } else if (descriptors()) {
        if (home && may_lend(f, w, v, m.bytes))
          lend(f, w, slot, v, m.bytes);
        else
          stage(slot, v, m.bytes, cold.encode);
        ring_publish(w, slot, sig, m.bytes);
      } else {
        reinterpret_cast<tutti_copy_fn>(cold.encode)(slot + payload_offset(m.bytes), v, m.bytes);
        ring_publish(w, slot, sig, m.bytes);
      }
    }
  }
  void consume_all() const {
    for (uint32_t k = 0; k < s.recv_count; k++) {
      Ring &r = *s.recv[k].ring;
      if (r.group)
        r.cold->transport->collnet()->consume(r);
      else if (r.net)
        port_of(r)->consume(r, recv_home(), staged_next());
      else if (descriptors())
        consume_lent(r, m.bytes);
      else
        ring_consume(r, m.bytes, in_data() ? rest_of_lines(f, m.bytes) : rest_of(m.bytes));
    }
  }

  // v in memory; `*home` = it lies where it stays for this slice.
  const uint8_t *combine(const uint8_t *const *received, bool *home) const {
    const bool src = has(TUTTI_STEP_SRC);
    const uint8_t *own = src ? source() : nullptr;
    const uint32_t n = list_operands(s, f, own, [&](uint32_t k) { return received[k]; });
    const bool divided = has(TUTTI_STEP_POSTOP) && f.postop_divisor;
    const uint8_t *v = static_cast<const uint8_t *>(f.operands[0]);
    uint8_t *dst = single_dst();
    uint8_t *made = dst ? dst : tmp(0);
    if (n > 1) {
      reduce(made, f.operands, n);
      v = made;
    }
    if (divided) {
      bound.divide(made, v, f.postop_divisor, m.bytes);
      v = made;
    }
    if (has(TUTTI_STEP_STORE)) {
      if (step.dst.count != 1)
        scatter(lane, f, step.dst, lane.iter, v);
      else if (v != dst && n == 1)
        std::memmove(dst, v, m.bytes);
      if (dst) v = dst;
    }
    const uint32_t bit = f.in_place ? kSendHomeInPlace : kSendHome;
    const bool own_place = (has(TUTTI_STEP_STORE) ? v == dst : src && n == 1 && v == own && own != tmp(1));
    const uint32_t home_buf = has(TUTTI_STEP_STORE) ? step.dst.buf : step.src.buf;
    *home = (cold.life & bit) && own_place && home_buf != TUTTI_BUF_SCRATCH;
    return v;
  }
  void reduce(uint8_t *dst, const void *const *operand, uint32_t n) const {
    if (n > 2 && s.kernel) return reinterpret_cast<tutti_reduce_n_fn>(s.kernel)(dst, operand, n, m.bytes);
    // dst may be one of the operands: fold in tmp(0) unless it is the first.
    bool aliased = false;
    for (uint32_t i = 1; i < n; i++) aliased |= operand[i] == dst;
    uint8_t *acc = n > 2 && aliased ? tmp(0) : dst;
    const void *left = operand[0];
    for (uint32_t i = 1; i < n; i++) {
      bound.reduce(acc, left, operand[i], m.bytes);
      left = acc;
    }
    if (acc != dst) std::memcpy(dst, acc, m.bytes);
  }
};

} // namespace

int run_composed(Lane &lane, const BoundStep &s, Frame &f) {
  Composer c{lane, s, f};
  c.size_message();
  if (c.m.bytes == 0) return 1;
  if (const int r = c.receive_all(f.received); r <= 0) return r;
  if (!can_send_to_all(s)) return 0;
  bool home = false;
  const uint8_t *v = c.combine(f.received, &home);
  c.send_all(v, home);
  c.consume_all();
  lane.phase = 0;
  lane.done = 0;
  return 1;
}

int run_local(Lane &lane, const BoundStep &s, Frame &f) {
  const tutti_step &step = s.cold->step;
  if (step.src.count != 1 || step.dst.count != 1 || step.ops & (TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP))
    return run_composed(lane, s, f);
  const Piece a = piece_of(lane, f, s.src_buf, src_chunk(lane, s));
  if (a.bytes <= 0) return 1;
  const Piece d = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s));
  if (d.at != a.at) s.cold->copy_out(d.at, a.at, static_cast<uint64_t>(a.bytes));
  return 1;
}

} // namespace tutti
