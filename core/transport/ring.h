// tutti/core/transport/ring.h: one end of a FIFO of slots, as the executor uses it. Everything here is touched per message.
//
// Memory of a ring (the receiver's): a header, then the credit line (how many messages the reader has consumed), then `depth`
// slots. A ring with several readers is the sender's, and has a credit line for each of them. A slot is a 64-byte first line
// whose last 8 bytes are the word `sequence | signature << 32`; see plugin/proto.h. Under a protocol of descriptors the header
// is a PullHeader, and the first line of a longer message holds a Descriptor (pull.h).
#pragma once
#include "tutti/plugin/proto.h"
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>

namespace tutti {

class NetLink;
class GroupLink;
struct RingCold;

constexpr uint32_t kWordOffset = 56;  // of the word in the slot
constexpr uint32_t kInlineBytes = 56; // payloads up to this size share the word's line
constexpr uint32_t kSlotHeader = 64;
constexpr uint32_t kCreditOffset = 128; // a line of its own, away from header and slots by the adjacent-line prefetcher's pair
constexpr uint32_t kSlotsOffset = 256;
constexpr uint32_t kCreditStride = 128; // of several readers' credit lines

// What both ends must agree on; rings of different geometry are different FIFOs.
constexpr uint32_t kNetLends = 3, kNetAcks = 4; // Geometry::descriptors of links over a network, see net_pull.cc

struct Geometry {
  uint32_t slot_bytes = 0;                    // payload
  uint32_t depth = 0;                         // power of two
  uint32_t line_bytes = 1, payload_bytes = 1; // of the protocol; 1/1 for COUNTER
  uint32_t word_offset = kWordOffset;         // of the word in the slot
  uint32_t descriptors = 0; // slots may say where to read instead of carrying the payload: 1 mostly, 2 now and then
  uint32_t readers = 0;     // of a ring with several: all other ranks. 0 = one, as in most
  uint32_t route = 0;       // of a net link: by which devices, see net_route.h
  auto operator<=>(const Geometry &) const = default;
  uint64_t stride() const {
    const uint64_t lines = (uint64_t(slot_bytes) + payload_bytes - 1) / payload_bytes;
    uint64_t bytes = line_bytes > 1 ? lines * line_bytes : (slot_bytes <= kInlineBytes ? 64 : kSlotHeader + slot_bytes);
    bytes = (bytes + 63) / 64 * 64;
    return bytes >= 4096 ? bytes + 64 : bytes; // slots a multiple of 4 KiB apart would fight for the same cache sets
  }
  // The reader tells what it has consumed once per credit_mask() + 1 messages, so a writer is sure of `certain()` slots only.
  // Of descriptors at once: the writer's memory is lent until then.
  uint32_t credit_mask() const { return depth >= 4 && !descriptors ? depth / 4 - 1 : 0; }
  uint32_t certain() const { return depth - credit_mask(); }
  uint32_t slots_offset() const { return readers ? kCreditOffset + readers * kCreditStride : kSlotsOffset; }
  uint64_t bytes() const { return (slots_offset() + stride() * depth + 4095) / 4096 * 4096; }
};

// One end. The owner of the engine is the only one who touches it; any thread may look at what is counted.
struct alignas(64) Ring {
  uint8_t *base = nullptr;         // slot 0
  uint64_t seq = 0;                // messages sent or consumed so far
  uint64_t credit = 0;             // sender: messages known to be consumed, by all readers
  uint64_t *credit_line = nullptr; // sender to several readers: the first one's
  uint32_t mask = 0;               // depth - 1
  uint32_t depth = 0;              // 0 while a send ring is not connected, so that the credit check fails
  uint32_t stride = 0;
  uint32_t credit_mask = 0; // reader: writes credit when (seq & credit_mask) == 0
  uint64_t bytes = 0;       // counted: payloads of those messages
  RingCold *cold = nullptr;
  // ---- a second line
  uint64_t rest = 0;          // counted: what they took of slots, or of the network, beside each message's first line
  uint64_t lent = 0;          // counted: part of `bytes` that stayed in the sender's memory
  NetLink *net = nullptr;     // set for net links: then no memory ring
  GroupLink *group = nullptr; // likewise for links to a collnet group
};
static_assert(offsetof(Ring, rest) == 64);

// The sequence wraps after minutes of small messages, and a line may lie unwritten for longer: the laps are in the signature's
// half, whose lowest bit stays 1.
inline uint32_t lap_of(uint64_t seq) {
  return uint32_t(seq >> 32) << 1;
}
inline uint64_t slot_word(uint64_t seq, uint32_t signature) {
  return uint64_t(signature ^ lap_of(seq)) << 32 | uint32_t(seq);
}
inline uint32_t signature_in(uint64_t word, uint64_t seq) {
  return uint32_t(word >> 32) ^ lap_of(seq);
}
inline uint64_t load_acquire(const void *p) {
  return __atomic_load_n(static_cast<const uint64_t *>(p), __ATOMIC_ACQUIRE);
}
inline void store_release(void *p, uint64_t v) {
  __atomic_store_n(static_cast<uint64_t *>(p), v, __ATOMIC_RELEASE);
}

inline uint8_t *slot_at(const Ring &r) {
  return r.base + uint64_t(uint32_t(r.seq) & r.mask) * r.stride;
}
inline uint32_t payload_offset(uint64_t bytes) {
  return bytes <= kInlineBytes ? 0 : kSlotHeader;
}

bool ring_credit_slow(Ring &ring); // reads the credit line, or connects

inline bool ring_can_send(Ring &r) {
  if (r.seq - r.credit < r.depth) [[likely]]
    return true;
  return ring_credit_slow(r);
}
inline uint64_t load_relaxed(const uint64_t &counter) {
  return __atomic_load_n(&counter, __ATOMIC_RELAXED);
}
inline void store_relaxed(uint64_t &counter, uint64_t v) {
  __atomic_store_n(&counter, v, __ATOMIC_RELAXED);
}
inline void add_relaxed(uint64_t &counter, uint64_t n) { // of one writer
  store_relaxed(counter, counter + n);
}
// What a message takes beside its first line in a slot with a word.
inline uint64_t rest_of(uint64_t bytes) {
  return bytes <= kInlineBytes ? 0 : bytes;
}
inline void count_payload(Ring &r, uint64_t bytes, uint64_t rest) {
  add_relaxed(r.bytes, bytes);
  if (rest) add_relaxed(r.rest, rest);
}

// One more message has passed this end. Counting comes last: nobody waits for it.
inline void ring_advance(Ring &r, uint64_t bytes, uint64_t rest) {
  store_relaxed(r.seq, r.seq + 1);
  count_payload(r, bytes, rest);
}
inline void ring_publish(Ring &r, uint8_t *slot, uint32_t signature, uint64_t bytes) {
  const uint64_t next = r.seq + 1;
  store_release(slot + kWordOffset, slot_word(next, signature));
  store_relaxed(r.seq, next);
  count_payload(r, bytes, rest_of(bytes));
}
inline void ring_consume(Ring &r, uint64_t bytes, uint64_t rest) {
  const uint64_t next = r.seq + 1;
  store_relaxed(r.seq, next);
  if ((next & r.credit_mask) == 0) store_release(r.credit_line, next);
  count_payload(r, bytes, rest);
}
inline void ring_consume(Ring &r, uint64_t bytes) {
  ring_consume(r, bytes, rest_of(bytes));
}
// 1 the message is there, 0 not yet, -1 a message of another operation is there.
inline int ring_ready(const Ring &r, uint8_t *slot, uint32_t signature) {
  const uint64_t got = load_acquire(slot + kWordOffset), want = slot_word(r.seq + 1, signature);
  if (got == want) [[likely]]
    return 1;
  return uint32_t(got) == uint32_t(want) && got != 0 ? -1 : 0;
}

} // namespace tutti
