// tutti/core/exec/pull.h: lending and reading messages under a protocol of descriptors, for the handlers.
#pragma once
#include "exec/handlers.h"
#include "transport/pull.h"
#include <mutex>

namespace tutti {

// What a step reads through its links: all are marked as being read from the beginning until give_back().
class Loans {
public:
  Loans(Frame &f, const BoundLink *links, uint32_t count, Payload *room) : links_(links), payloads_(room) {
    while (taken_ < count && begin_reading(*links[taken_].ring)) taken_++;
    all_ = taken_ == count;
    f.unread = all_ ? nullptr : &links[taken_];
  }
  Loans(const Loans &) = delete;
  Loans &operator=(const Loans &) = delete;
  ~Loans() { (void)give_back(); }
  bool taken() const { return all_; } // false: a sender has revoked, and the news of its failure is on its way
  // Where the message of link k, which has arrived, is. 1 found, 0 not to be reached yet, -1 never, and why is in the frame.
  int find(Frame &f, uint32_t k, uint64_t bytes);
  const Payload &payload(uint32_t k) const { return payloads_[k]; }
  bool give_back(); // false: revoked meanwhile, what was read is worth nothing

private:
  int find_mapped(Frame &f, const BoundLink &link, const Descriptor &d, uint64_t bytes, Payload *p);

  const BoundLink *links_;
  Payload *payloads_;
  uint32_t taken_ = 0;
  bool all_;
  std::unique_lock<std::mutex> mapped_; // held while a mapping of a peer's region is read: it must stay
};

// Bytes [at, at + bytes) of a payload in another process. 1, or -1 and the reason in the frame.
int fetch(Frame &f, const BoundLink &link, const Payload &p, uint64_t at, uint8_t *to, uint64_t bytes);
// The message of a link, which has arrived, to plain memory. 1 done, 0 not yet, -1 failed.
int fetch_whole(Frame &f, const BoundLink &link, uint8_t *to, uint64_t bytes);
// Whether a message that stays where it is until the operation ends can be read there by the peer.
bool may_lend(const Frame &f, const Ring &to, const uint8_t *at, uint64_t bytes);
// Done with a message, lent or not.
void consume_lent(Ring &r, uint64_t bytes);
// Puts it into the slot as a descriptor; the caller publishes.
void lend(const Frame &f, Ring &to, uint8_t *slot, const uint8_t *at, uint64_t bytes);
// Copies it there, unless it was made there.
void stage(uint8_t *slot, const uint8_t *at, uint64_t bytes, tutti_kernel encode);

} // namespace tutti
