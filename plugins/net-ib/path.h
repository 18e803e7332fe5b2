// tutti/plugins/net-ib/path.h: a port of this side and one of the peer's, with the queue pairs between them.
#pragma once
#include "context.h"
#include <bit>
#include <optional>

namespace tutti::net_ib {

struct Path {
  uint8_t index = 0;
  bool spare = false; // carries data only while no other does
  Rail *rail = nullptr;
  // One life of a path is an epoch: offered (queue pairs exist), wired (they can send and receive), up (the peer has answered
  // over each), draining (stopped, what was posted comes back), drained (gone; what had arrived is settled). Each side tells
  // its phase.
  uint32_t epoch = 0;
  Phase phase = Phase::offered;
  bool settled = false; // drained, and the peer as well
  bool peer_wired = false;
  std::unique_ptr<QueuePair> control;
  std::vector<std::unique_ptr<QueuePair>> data;
  uint32_t unheard = 0;      // hellos that were not acknowledged
  bool greeted = false;      // hellos were sent
  bool state_posted = false; // a state is under way on it
  uint64_t published = 0;    // version of the last one
  bool heard = true;         // something was acknowledged or came since it was last looked at
  bool probing = false;      // a keepalive is under way
  bool broken_hello = false; // a hello was not heard; again when all is quiet
  Time drain_limit{}, probe_at{}, again_at{};
  std::chrono::milliseconds pause{100}; // before it is made anew
  std::string why;                      // it failed

  bool held() const { return !rail->up; }
  bool quiet() const {
    if (control && !control->quiet()) return false;
    return std::all_of(data.begin(), data.end(), [](const auto &qp) { return qp->quiet(); });
  }
  template <class Fn> void each_queue(Fn &&fn) {
    if (control) fn(*control);
    for (const auto &qp : data) fn(*qp);
  }
};

// Where a share was posted.
struct Home {
  uint8_t path = 0xff;
  uint32_t epoch = 0;
  bool at(const Path &p) const { return path == p.index && epoch == p.epoch; }
  static Home of(const QueuePair &qp) { return {qp.place().path, qp.place().epoch}; }
};

// What was posted and is not complete, in the order of the posts: a ring of messages.
template <class Message> class Queue {
public:
  void open(uint32_t most_calls) {
    calls_max_ = most_calls;
    ring_ = std::vector<Message>(std::bit_ceil(most_calls * max_batch));
  }
  Message &operator[](uint64_t number) { return ring_[number & (ring_.size() - 1)]; }
  const Message &operator[](uint64_t number) const { return ring_[number & (ring_.size() - 1)]; }
  bool full() const { return calls == calls_max_; }
  bool empty() const { return head == tail; }
  uint64_t head = 0, tail = 0; // numbers of the oldest one, and of the next to be posted
  uint32_t calls = 0;

private:
  uint32_t calls_max_ = 0;
  std::vector<Message> ring_;
};

} // namespace tutti::net_ib
