// tutti/plugins/net-ib/receives.h: buffers of the accepting side. A credit tells the sender about each, and the immediates of
// the shares say when it has been filled.
#pragma once
#include "path.h"

namespace tutti::net_ib {

class Endpoint;

class Receives {
public:
  explicit Receives(Endpoint &ep) : ep_(ep) {}
  void open(uint32_t calls);
  tutti_status post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
  void arrived(Tag tag, uint32_t bytes, uint32_t piece);
  void grant();                       // writes credits that the sender has not been told of
  void revoke() { withheld_ = true; } // the path of the credits has failed
  void grant_again(uint64_t from);    // the sender has seen those before
  void finish(tutti_status status);
  uint64_t done() const { return queue_.head; }
  uint32_t write_arrived(uint8_t *out) const; // of the unfinished messages, up to the last one of which something has arrived
  bool busy() const { return !queue_.empty(); }
  uint64_t room_of(uint64_t number) const { return queue_[number].room; }

private:
  struct Message {
    uint8_t *addr = nullptr;
    uint64_t room = 0, bytes = 0;
    const Mr *mr = nullptr;
    uint64_t *received = nullptr;
    uint64_t cookie = 0;
    uint64_t arrived = 0; // shares
    uint8_t shares = 0;   // 0: not known
    bool done = false, ends_call = false;
  };
  void retire();

  Endpoint &ep_;
  Queue<Message> queue_;
  uint64_t granted_ = 0;
  bool withheld_ = false;
  uint64_t call_bytes_ = 0;
};

} // namespace tutti::net_ib
