// tutti/plugins/net-ib/context.h: a device of the plugin opened for one communicator: its ports, completions and endpoints.
#pragma once
#include "queue_pair.h"
#include "tutti/plugin/cxx/net_optional.hpp"
#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace tutti::net_ib {

class Endpoint;
class Farewell;
class Listener;
class Context;

using Time = std::chrono::steady_clock::time_point;
using Reason = std::shared_ptr<const std::string>; // an endpoint may go before its calls have been reported

// A region, registered with every device of the context.
class Mr : public plugin::NetObject {
public:
  Mr(Context &ctx, const tutti_region &region, bool relaxed_ordering);
  bool holds(const void *addr, uint64_t bytes) const {
    const uint64_t at = reinterpret_cast<uint64_t>(addr) - addr_;
    return at <= bytes_ && bytes <= bytes_ - at;
  }
  uint32_t lkey(const Rail &rail) const { return keys_[rail.hca_index].lkey(); }
  uint32_t rkey(const Rail &rail) const { return keys_[rail.hca_index].rkey(); }
  void key(plugin::NetKey &out) const;

private:
  uint64_t addr_, bytes_;
  std::vector<uint32_t> ports_; // the device of each port
  std::vector<Registration> keys_;
};

class Context : public plugin::NetObject {
public:
  // now: a clock for tests.
  Context(const Host &host, const Settings &settings, Verbs &verbs, const Device &device, const tutti_net_ctx_config &config,
          std::function<Time()> now = std::chrono::steady_clock::now);
  ~Context();

  std::unique_ptr<Listener> listen(plugin::Address &addr);
  std::unique_ptr<Endpoint> connect(const plugin::Address &addr, plugin::Address &answer);
  std::unique_ptr<Mr> mr_register(const tutti_region &region) {
    return std::make_unique<Mr>(*this, region, settings_.relaxed_ordering);
  }
  int32_t progress(tutti_net_completion *out, uint32_t cap);
  int event_fd() { return epoll_; }
  bool arm();

  const Settings &settings() const { return settings_; }
  Verbs &verbs() const { return verbs_; }
  Time now() const { return now_(); }
  std::vector<Rail> &rails() { return rails_; } // own ones first
  uint32_t own() const { return own_; }
  std::vector<std::unique_ptr<Hca>> &hcas() { return hcas_; }
  bool refresh(Rail &rail); // its GID, LID and MTU may have changed; false: it cannot be used now

  uint64_t enter(QueuePair *qp);             // whose completions carry the slot that this gives
  void leave(uint64_t slot);                 // what still comes for it is dropped
  void bury(std::unique_ptr<QueuePair> qp) { // from inside of its own completions
    qp->disown();
    graves_.push_back(std::move(qp));
  }
  void empty_graves() { graves_.clear(); } // from outside of completions: nothing of them touches memory any more
  void poll();                             // all completion queues, once
  void look_soon() { look_ = true; }       // look_after() in this call of progress(), or in the next
  void add(Endpoint *ep) { endpoints_.push_back(ep); }
  void remove(Endpoint *ep);
  void add(std::unique_ptr<Farewell> farewell);
  void complete(uint64_t cookie, uint64_t bytes, tutti_status status, const Reason &why = nullptr); // why: of one that failed
  void reserve_completions(size_t more); // room for an endpoint's, so that complete() does not allocate
  void release_completions(size_t less) { reserved_ -= less; }

private:
  void open_port(const Port &port);
  void look_after(Time now); // events, timers
  void hear(Hca &hca);       // its asynchronous events
  void watch(int fd);
  bool poll(Hca &hca);
  void grow(size_t completions);

  Settings settings_;
  Verbs &verbs_;
  std::function<Time()> now_;
  std::vector<std::unique_ptr<Hca>> hcas_;
  std::vector<Rail> rails_;
  uint32_t own_ = 0;
  int epoll_ = -1, timer_ = -1;
  uint32_t turn_ = 0;
  bool look_ = false;
  struct Slot {
    QueuePair *qp = nullptr;
    uint32_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<std::unique_ptr<QueuePair>> graves_;
  std::vector<Endpoint *> endpoints_;
  std::vector<std::unique_ptr<Farewell>> farewells_;
  std::vector<tutti_net_completion> ring_;      // size is a power of two
  size_t first_ = 0, count_ = 0, reserved_ = 0; // reserved_: calls that all endpoints may have under way
  struct Failure {
    uint64_t number; // of the completion
    Reason why;
  };
  uint64_t collected_ = 0;       // completions so far: the number of the first in ring_
  std::deque<Failure> failures_; // of completions in ring_, in order
};

// What of a device's description depends on the data path: max_message_bytes, max_inflight, max_batch, flags.
void describe_limits(const Settings &settings, uint64_t largest_message_of_ports, tutti_net_dev &out);

} // namespace tutti::net_ib
