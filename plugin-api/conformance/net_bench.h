// tutti/plugin-api/conformance/net_bench.h: two contexts of one device and what the net cases do with them.
#pragma once
#include "base/time.h"
#include "suite.h"
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace tutti::conformance {

constexpr std::chrono::seconds kWait{5};      // for something that a healthy net does in microseconds
constexpr std::chrono::seconds kCallLimit{2}; // for one call: [control] has 1 s, and a busy machine should raise no alarm

// What progress() reported for one cookie.
struct Done {
  uint32_t times = 0;
  tutti_net_completion last{};
};

// A context, what it reported, and memory registered with it.
class Side {
public:
  // flags: the device's; wishes: the context's
  Side(const Plugin &plugin, const tutti_net_v1 &net, uint32_t dev, uint32_t flags, int rank, uint32_t wishes = 0);
  ~Side();
  Side(const Side &) = delete;
  Side &operator=(const Side &) = delete;

  tutti_net_ctx *ctx() const { return ctx_; }
  void poll(uint32_t cap = 16); // one progress() call, checked
  const Done &done(uint64_t cookie) { return done_[cookie]; }
  size_t reported() const { return reported_; }
  void forget() { done_.clear(); }
  // A message descriptor; registered when the device wants that. NetBench gives it its tag.
  tutti_net_buf buf(void *addr, uint64_t bytes);

private:
  const Plugin &plugin_;
  const tutti_net_v1 &net_;
  uint32_t flags_;
  tutti_net_ctx *ctx_ = nullptr;
  std::map<uint64_t, Done> done_;
  size_t reported_ = 0;
  std::vector<tutti_net_mr *> mrs_;
};

// What connect() answered; accept() is given it where the device has ANSWERS.
struct Answer {
  unsigned char bytes[TUTTI_NET_ADDR_BYTES + 16];
  uint32_t size = TUTTI_NET_ADDR_BYTES;
};

// A pair of endpoints: `tx` connected, `rx` accepted.
struct Pair {
  tutti_net_ep *tx = nullptr, *rx = nullptr;
};

class NetBench {
public:
  NetBench(const Plugin &plugin, const void *table, uint32_t wishes = 0);
  ~NetBench();
  NetBench(const NetBench &) = delete;
  NetBench &operator=(const NetBench &) = delete;

  const tutti_net_v1 &net() const { return net_; }
  const tutti_net_dev &dev() const { return dev_; }
  Side &a() { return *a_; } // connects and sends
  Side &b() { return *b_; } // listens and receives
  std::unique_ptr<Side> side(int rank) { return std::make_unique<Side>(plugin_, net_, 0, dev_.flags, rank, wishes_); }

  Pair pair() { return pair(a(), b()); }
  bool answers() const { return dev_.flags & TUTTI_NET_ANSWERS; }
  Pair pair(Side &from, Side &to);
  void destroy(tutti_net_ep *ep); // of a pair; remembered, so that the bench does not do it again
  tutti_net_ep *keep(tutti_net_ep *ep) { return eps_.push_back(ep), ep; }
  // Single calls, with the answer that the core would carry.
  tutti_status connect(tutti_net_ctx *ctx, const void *addr, uint32_t bytes, Answer *answer, tutti_net_ep **ep) const;
  tutti_status accept(tutti_net_listener *listener, const Answer &answer, tutti_net_ep **ep) const;

  // Drives both sides until `ready`, or fails with "waited 5 s for <what>".
  void until(const std::function<bool()> &ready, std::string_view what);
  void idle(std::chrono::milliseconds span); // drives both sides for a while
  // One call, with the tags that the core gives: messages are counted per endpoint and direction. Neither array nor counter is
  // shared between the directions, so that two threads may use one each.
  tutti_status try_send(tutti_net_ep *ep, std::vector<tutti_net_buf> bufs, uint64_t cookie);
  tutti_status try_recv(tutti_net_ep *ep, std::vector<tutti_net_buf> bufs, uint64_t cookie, uint64_t *received = nullptr);
  // Posts, driving both sides while the queue is full.
  void send(tutti_net_ep *ep, const std::vector<tutti_net_buf> &bufs, uint64_t cookie);
  void recv(tutti_net_ep *ep, const std::vector<tutti_net_buf> &bufs, uint64_t cookie, uint64_t *received = nullptr);
  void expect(Side &s, uint64_t cookie, tutti_status status, uint64_t bytes); // waits; once, and with these values
  // One message from a to b with canaries around the buffer.
  void transfer(const Pair &p, uint64_t bytes, uint64_t room, uint64_t seed, size_t misalign = 0);

private:
  const Plugin &plugin_;
  const tutti_net_v1 &net_;
  tutti_net_dev dev_{};
  const uint32_t wishes_;
  std::unique_ptr<Side> a_, b_;
  std::vector<tutti_net_ep *> eps_;
  std::map<tutti_net_ep *, uint64_t> sent_, received_; // messages posted so far
};

// Runs a [progress] or [control] call and fails when it took longer than kCallLimit.
template <class Fn> auto timed(const char *what, Fn &&fn) {
  const auto start = Clock::now();
  auto out = fn();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  require(took < kCallLimit, "{} took {} ms: functions tagged [progress] never block, those tagged [control] not beyond 1 s",
          what, took.count());
  return out;
}
size_t open_descriptors();
size_t live_threads();

} // namespace tutti::conformance
