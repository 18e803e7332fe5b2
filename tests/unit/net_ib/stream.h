// A stream of messages whose every byte is checked, in buffers that are used again at once: what lands late, twice or in the
// wrong place is seen, and so is what is sent again out of a buffer that was given back.
#pragma once
#include "world.h"

namespace tutti::net_ib::test {

class Stream {
public:
  struct Shape {
    uint64_t messages = 60;
    size_t largest = 20000;
  };
  Stream(World &world, const Shape &shape, uint64_t seed);
  void post();  // what the endpoints take now, in batches of random size
  void check(); // what has completed
  bool over() const { return ended_ || (sent_done_ == shape_.messages && received_done_ == shape_.messages); }
  bool ended() const { return ended_; } // with an error
  tutti_status ending() const { return ending_; }
  uint64_t received() const { return received_done_; }
  uint64_t sent() const { return sent_done_; }
  std::string text() const;
  // Destroys the sender's or the receiver's endpoint: each of its calls is reported by its next progress().
  void abandon(bool sender);
  void dead(bool sender);          // its process has ended: nothing is heard of it any more
  bool pending(bool sender) const; // the other end has calls under way

private:
  static constexpr size_t slots = 64;
  size_t size_of(uint64_t message) const;
  std::vector<uint8_t> content(uint64_t message) const { return pattern(size_of(message), seed_ * 1000003 + message); }
  void finished(tutti_status status);
  void spoil(std::vector<uint8_t> &arena, uint64_t slot, uint8_t with, size_t bytes);

  World &world_;
  Shape shape_;
  uint64_t seed_;
  size_t slot_bytes_;
  std::vector<uint8_t> out_, in_;
  tutti_net_buf out_buf_, in_buf_;
  struct Call {
    uint64_t first = 0, n = 0;
    bool done = false;
    std::vector<uint64_t> received;
  };
  std::map<uint64_t, Call> sends_, receives_; // by cookie
  std::vector<bool> out_busy_, in_busy_;
  std::vector<uint8_t> guarded_; // a slot that nobody may write
  uint64_t posted_sends_ = 0, posted_receives_ = 0, sent_done_ = 0, received_done_ = 0, next_cookie_ = 1000;
  bool ended_ = false;
  tutti_status ending_ = TUTTI_OK;
  bool sender_gone_ = false, receiver_gone_ = false;
  std::vector<uint8_t> left_; // receive buffers when their endpoint was destroyed
};

} // namespace tutti::net_ib::test
