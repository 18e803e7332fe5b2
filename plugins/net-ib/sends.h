// tutti/plugins/net-ib/sends.h: messages of the connecting side. They are matched with credits in order, cut into shares, and
// written straight into the receiver's buffers.
#pragma once
#include "path.h"
#include "split.h"

namespace tutti::net_ib {

class Endpoint;

class Sends {
public:
  explicit Sends(Endpoint &ep) : ep_(ep) {}
  void open(uint32_t calls, uint32_t most_shares, uint32_t credits);
  tutti_status post(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie);
  void credits(uint64_t end); // those before it are in the ring
  void acknowledged(uint64_t number, uint8_t share);
  void unposted(uint64_t number, uint8_t share);
  // The path is settled: what of it the receiver has not got is sent again.
  void replay(const Path &path, uint64_t done, const std::vector<uint64_t> &arrived);
  void all_arrived(uint64_t end); // the receiver says so of all messages before it
  void pump();
  void finish(tutti_status status); // completes what is left, so
  uint64_t done() const { return queue_.head; }
  uint64_t credits_seen() const { return granted_; }
  bool busy() const { return !queue_.empty(); }

private:
  struct Message {
    const uint8_t *addr = nullptr;
    uint64_t bytes = 0;
    const Mr *mr = nullptr;
    uint64_t cookie = 0;
    Split split;
    uint64_t missing = 0; // shares that are not known to have arrived
    bool ends_call = false;
  };
  struct Share {
    uint64_t number;
    uint8_t share;
  };
  Home &home(uint64_t number, uint32_t share) { return homes_[(number & (homes_.size() / most_ - 1)) * most_ + share]; }
  const Credit &credit(uint64_t number) const { return ring_[number % ring_.size()]; }
  bool start(uint64_t number); // posts all its shares, or none
  void post_share(QueuePair &qp, uint64_t number, uint32_t share);
  void touch(QueuePair &qp); // to be flushed
  void flush();
  void retire();
  uint32_t requests(const Message &m) const; // work requests of its largest share

  Endpoint &ep_;
  Queue<Message> queue_;
  uint64_t next_ = 0;        // the oldest one that was not started
  uint64_t granted_ = 0;     // credits have come for messages before it
  std::vector<Credit> ring_; // copies: what the peer writes later cannot change them
  uint32_t most_ = 1;        // shares of a message
  std::vector<Home> homes_;  // of shares, most_ for each message
  std::vector<Share> again_; // to be posted again
  std::vector<QueuePair *> touched_;
  uint64_t call_bytes_ = 0;
};

} // namespace tutti::net_ib
