// tutti/plugins/net-socket/stripes.h: data sockets that large messages are striped over, and the threads that serve them.
//
// Pieces carry no header: both ends cut a message of the same size the same way and use the sockets in the same order, so
// the k-th piece sent on a socket is the k-th piece expected there.
#pragma once
#include "history.h"
#include "sockets.h"
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace tutti::net_socket {

class Context;

// Pieces of one message that are still moving. Counted down by whoever serves the sockets.
using Pieces = std::atomic<uint32_t>;

// One data socket of an endpoint. push() by the communicator's thread, advance() by one serving thread at a time.
class Stripe {
public:
  static constexpr uint32_t capacity = 256; // as many as messages that an endpoint can have posted

  Stripe(Fd fd, bool sending, bool resumes) : fd_(std::move(fd)), sending_(sending) {
    if (resumes) history_.turn_on();
  }
  int fd() const { return fd_.get(); }
  Fd &file() { return fd_; }
  void push(uint8_t *at, uint64_t bytes, Pieces *pieces);
  bool idle() const { return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire) && !behind(); }
  bool behind() const { return history_.behind(); } // of a stripe that its owner serves itself
  // Moves bytes until the socket would block or a bound is reached; true when something moved.
  bool advance();
  // 0 while healthy, an errno, or closed_by_peer.
  int error() const { return error_.load(std::memory_order_acquire); }
  void give_up(int err) { error_.store(err, std::memory_order_release); }
  // Sent, but kept for the case that the connection is lost. Of a stripe that its owner serves itself.
  bool unacknowledged() const { return sending_ && head_.load(std::memory_order_relaxed) != taken_; }

  // After an error, or instead of one. Nobody may serve the stripe meanwhile.
  uint64_t position() const; // receiving: of the bytes that have come, those that a socket still holds among them
  void receive_from(Fd fd);  // what follows position()
  bool send_from(Fd fd, uint64_t position); // false: what is there is not in reach
  bool lost = false;                        // the owner knows of the error and waits for a new socket
  // Whom to wake when a message is complete; set before the first push.
  std::atomic<Context *> owner{nullptr};

private:
  struct Task {
    uint8_t *at;
    uint64_t bytes;
    Pieces *pieces;
  };
  struct Old { // a socket that was lost, with bytes that have come through it
    Fd fd;
    uint64_t left;
  };
  bool advance_send();
  bool advance_receive();
  ssize_t give(); // to the kernel
  bool release();
  void finish(uint32_t h);
  bool fail(ssize_t n);
  Fd fd_;
  const bool sending_;
  uint32_t taken_ = 0; // sending: tasks before it are with the kernel
  uint64_t moved_ = 0; // of the front task, or of that at taken_
  History history_;    // sending
  uint64_t read_ = 0;  // receiving: bytes
  std::vector<Old> old_;
  Task tasks_[capacity];
  alignas(64) std::atomic<uint32_t> head_{0}; // consumer
  alignas(64) std::atomic<uint32_t> tail_{0}; // producer
  std::atomic<int> error_{0};
};

// The helper threads of one context. They spin for a moment when idle, then sleep.
class Helpers {
public:
  explicit Helpers(uint32_t threads);
  // From add() to the return of remove() some helper serves the stripe.
  void add(Stripe *stripe);
  void remove(Stripe *stripe);
  // After push().
  void wake(Stripe *stripe);

private:
  struct Helper {
    std::mutex mutex; // guards stripes, and is held while they are served
    std::vector<Stripe *> stripes;
    std::atomic<uint32_t> wanted{0}; // others that wait for the mutex
    std::atomic<bool> asleep{false}, stop{false};
    Fd epoll, event;
    std::thread thread;
    ~Helper(); // ends the thread
    void start();
    void run();
    bool serve();
    bool unacknowledged();
    void kick();
  };
  Helper &of(const Stripe *stripe) { return *helpers_[(static_cast<uint32_t>(stripe->fd())) % helpers_.size()]; }
  std::vector<std::unique_ptr<Helper>> helpers_;
};

} // namespace tutti::net_socket
