// The handler of protocols of descriptors over rings in memory, for all steps of one chunk per message without pre- and
// post-operation. A message that lies at its home is not copied: the slot says where, and the receiver reads it there.
// Everything else travels in the slot as under COUNTER.
#include "exec/pull.h"
#include <algorithm>

namespace tutti {
namespace {

// What is read through the kernel goes piece by piece through a buffer that stays in the reader's L2.
constexpr uint64_t kPiece = 128 << 10;

struct Step {
  Lane &lane;
  const BoundStep &s;
  Frame &f;
  const tutti_step &step = s.cold->step;
  uint64_t bytes = 0;
  uint32_t buf = 0;
  int32_t chunk = 0;

  bool has(uint32_t op) const { return step.ops & op; }
  uint8_t *bounce(uint32_t k) const { return lane.tmp + uint64_t(k) * s.cold->tmp_bytes; }

  int arrived() const {
    for (auto k = static_cast<uint32_t>(lane.done); k < s.recv_count; k++) {
      const BoundLink &link = s.recv[k];
      const int ready = ring_ready(*link.ring, slot_at(*link.ring), signature_of(lane, f, link, buf, chunk));
      if (ready > 0) continue;
      lane.done = k;
      return ready == 0 ? 0 : fault_mismatch(f, link, *link.ring);
    }
    lane.done = s.recv_count;
    return 1;
  }

  bool at_home(uint32_t buf_of_result) const {
    return (s.cold->life & (f.in_place ? kSendHomeInPlace : kSendHome)) && buf_of_result != TUTTI_BUF_SCRATCH;
  }
  // Where a result that is kept and also has to be staged for one link can be stored a second time while it is made.
  uint8_t *second_place(const uint8_t *out, bool own) const {
    if (!has(TUTTI_STEP_STORE) || step.send_count != 1 || !own || s.recv_count != 1 || !s.cold->reduce2) return nullptr;
    Ring &w = *s.send[0].ring;
    return at_home(s.dst_buf) && may_lend(f, w, out, bytes) ? nullptr : slot_at(w) + payload_offset(bytes);
  }

  // The received operands, combined with `own` in the order of the ranks, to `out` and, if there is one, to `second`. 1 done, 0
  // revoked or not yet, -1 failed.
  int make(uint8_t *out, uint8_t *second, const uint8_t *own) const {
    Loans loans(f, s.recv, s.recv_count, f.payloads);
    if (!loans.taken()) return 0;
    bool apart = false; // something has to be fetched
    int r = 1;
    for (uint32_t k = 0; r > 0 && k < s.recv_count; k++) {
      r = loans.find(f, k, bytes);
      apart |= !loans.payload(k).at;
    }
    if (r > 0) r = s.recv_count == 1 && !own ? take(loans, out) : combine(loans, out, second, own, apart ? kPiece : bytes);
    return loans.give_back() ? r : 0; // an error because the sender has freed its memory is the sender's
  }
  int take(const Loans &loans, uint8_t *out) const {
    const Payload &p = loans.payload(0);
    if (!p.at) return fetch(f, s.recv[0], p, 0, out, bytes);
    reinterpret_cast<tutti_copy_fn>(s.kernel)(out, p.at, bytes);
    return 1;
  }
  int combine(const Loans &loans, uint8_t *out, uint8_t *second, const uint8_t *own, uint64_t piece) const {
    for (uint64_t at = 0; at < bytes; at += piece) {
      const uint64_t n = std::min(piece, bytes - at);
      for (uint32_t k = 0; k < s.recv_count; k++) {
        const Payload &p = loans.payload(k);
        f.received[k] = p.at ? p.at + at : bounce(k);
        if (!p.at && fetch(f, s.recv[k], p, at, bounce(k), n) < 0) return -1;
      }
      const uint32_t operands = list_operands(s, f, own ? own + at : nullptr, [&](uint32_t k) { return f.received[k]; });
      if (second)
        reinterpret_cast<tutti_reduce2_fn>(s.cold->reduce2)(out + at, second + at, f.operands[0], f.operands[1], n);
      else if (operands == 2)
        reinterpret_cast<tutti_reduce_fn>(s.kernel)(out + at, f.operands[0], f.operands[1], n);
      else
        reinterpret_cast<tutti_reduce_n_fn>(s.kernel)(out + at, f.operands, operands, n);
    }
    return 1;
  }

  // `at` to every send link: where it is when it stays there, else in the slot.
  void send_all(const uint8_t *at, bool home) const {
    for (uint32_t k = 0; k < step.send_count; k++) {
      Ring &w = *s.send[k].ring;
      uint8_t *slot = slot_at(w);
      if (!home || !may_lend(f, w, at, bytes))
        stage(slot, at, bytes, s.cold->encode);
      else
        lend(f, w, slot, at, bytes);
      ring_publish(w, slot, signature_of(lane, f, s.send[k], buf, chunk), bytes);
    }
  }
};

} // namespace

int run_pull(Lane &lane, const BoundStep &s, Frame &f) {
  Step m{lane, s, f};
  const bool own = m.has(TUTTI_STEP_SRC), kept = m.has(TUTTI_STEP_STORE);
  m.buf = own ? s.src_buf : s.dst_buf;
  m.chunk = own ? src_chunk(lane, s) : dst_chunk(lane, s);
  const Piece a = piece_of(lane, f, m.buf, m.chunk);
  if (a.bytes <= 0) return 1;
  m.bytes = static_cast<uint64_t>(a.bytes);
  if (const int r = m.arrived(); r <= 0) return r;
  if (!can_send_to_all(s)) return 0;
  uint8_t *out = a.at, *second = nullptr;
  if (kept) out = piece_of(lane, f, s.dst_buf, dst_chunk(lane, s)).at;
  if (s.recv_count) {
    if (!kept) out = slot_at(*s.send[0].ring) + payload_offset(m.bytes); // only passed on
    second = m.second_place(out, own);
    if (const int r = m.make(out, second, own ? a.at : nullptr); r <= 0) return r;
  } else if (out != a.at) {
    s.cold->copy_out(out, a.at, m.bytes);
  }
  m.send_all(second ? second : out, !second && m.at_home(kept ? s.dst_buf : s.src_buf));
  for (uint32_t k = 0; k < s.recv_count; k++) consume_lent(*s.recv[k].ring, m.bytes);
  lane.done = 0;
  return 1;
}

} // namespace tutti
