// tutti/core/transport/pull.h: messages that stay where their sender has them until the receiver reads them there.
//
// The sender lends: from the moment that it publishes a descriptor until the reader's credit says that the message is consumed,
// the memory must stay as it is. Two things end a loan otherwise. A sender that dies: reading its private memory then fails,
// mapped memory stays. (Should the kernel have given its pid to another process of the same user by then, that one is read; the
// death, which ends the operation, is noticed long before pids come round.) A sender whose operation has failed, so that its
// user may free or write the memory: it revokes, and a reader looks before and after it reads. What it has read of a revoked
// loan is thrown away; the failure that it hears of ends its operation. Reading in the same process must not meet unmapped
// memory: there the sender also waits for the reader.
#pragma once
#include "transport/ring.h"

namespace tutti {

// In the first line of a slot with a message of more than kInlineBytes, before the word.
struct Descriptor {
  uint64_t address; // in the sender's process; 0 = the payload is in the slot
  uint64_t region;  // shared memory that it lies in, 0 = none
  uint64_t offset;  // in the region
};
static_assert(sizeof(Descriptor) <= kWordOffset);

struct PullHeader {
  uint32_t readable; // the receiver can read the sender's private memory; written before the sender has the ring
  uint32_t revoked;  // by the sender
  uint8_t pad[56];
  uint32_t reading; // by the receiver, while it reads what the ring's descriptors name
};
static_assert(sizeof(PullHeader) <= kCreditOffset);

inline PullHeader &pull_header(const Ring &r) {
  return *reinterpret_cast<PullHeader *>(r.base - kSlotsOffset);
}

// False: revoked. The two stores and loads are in one order on both sides, so that one of them sees the other.
inline bool begin_reading(const Ring &r) {
  PullHeader &h = pull_header(r);
  __atomic_store_n(&h.reading, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&h.revoked, __ATOMIC_SEQ_CST)) return true;
  __atomic_store_n(&h.reading, 0, __ATOMIC_RELEASE);
  return false;
}
// False: revoked meanwhile, and what was read may be anything.
inline bool end_reading(const Ring &r) {
  PullHeader &h = pull_header(r);
  __atomic_thread_fence(__ATOMIC_ACQUIRE); // what was read was read before
  const bool good = !__atomic_load_n(&h.revoked, __ATOMIC_ACQUIRE);
  __atomic_store_n(&h.reading, 0, __ATOMIC_RELEASE);
  return good;
}
inline void revoke_lent(const Ring &r) {
  __atomic_store_n(&pull_header(r).revoked, 1, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST); // what the user then stores into the memory is seen after it
}
inline bool being_read(const Ring &r) {
  return __atomic_load_n(&pull_header(r).reading, __ATOMIC_SEQ_CST);
}

// All `bytes` of another process's memory, or why not: ESRCH it has ended, EFAULT it has not got them (any more), EPERM.
int read_process(int32_t pid, void *to, uint64_t address, uint64_t bytes);

} // namespace tutti
