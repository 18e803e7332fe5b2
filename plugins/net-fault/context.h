// tutti/plugins/net-fault/context.h: a context of the plugin inside, and what is held back of its completions.
#pragma once
#include "faults.h"
#include "inner.h"
#include "tutti/plugin/cxx/net.hpp"
#include <deque>

namespace tutti::net_fault {

using Clock = std::chrono::steady_clock;

class Endpoint;
class Listener;

struct Mr {
  const Inner &inner;
  tutti_net_mr *mr;
  ~Mr() { inner.net().mr_release(mr); }
};

// A call that the plugin inside has taken; its cookie there is the address.
struct Call {
  static constexpr uint32_t max_batch = 16;
  Endpoint *ep = nullptr; // null: it is gone
  bool receives = false;
  tutti_status ended = TUTTI_OK;  // what to report for one that the end of its endpoint cancels
  uint64_t cookie = 0, first = 0; // first: number of its first message
  uint32_t n = 0;
  tutti_net_buf bufs[max_batch];
  uint64_t lengths[max_batch];
  uint64_t *received = nullptr; // the core's, if it asked
};

struct Wanted {
  std::vector<Fault> faults;
  uint64_t seed = 0;
  int64_t rank = -1; // -1: every one
};

class Context : public plugin::NetObject {
public:
  Context(const Host &host, const Inner &inner, const Wanted &wanted, uint32_t dev, const tutti_net_ctx_config &config);
  ~Context();
  std::unique_ptr<Listener> listen(plugin::Address &addr);
  std::unique_ptr<Endpoint> connect(const plugin::Address &addr, plugin::Address &answer);
  std::unique_ptr<Mr> mr_register(const tutti_region &region);
  int32_t progress(tutti_net_completion *out, uint32_t cap);
  int event_fd();
  bool arm();

  const tutti_net_v1 &net() const { return inner_.net(); }
  const std::vector<Fault> &faults() const { return faults_; }
  Dice dice() { return {seed_, rank_, ++endpoints_}; }
  Call *new_call();
  void done_with(Call *call) { spare_.push_back(call); }
  void report(uint64_t cookie, uint64_t bytes, tutti_status status) { ready_.push_back({cookie, bytes, status, 0}); }
  // Back to the plugin inside as soon as it takes it.
  void post_again(Call *call) { again_.push_back(call); }
  void hold(Call *call, const tutti_net_completion &done, Clock::time_point until) { held_.push_back({call, done, until}); }
  void end(Endpoint *ep, tutti_status status); // of a failed or destroyed one: what is held back is reported so

private:
  struct Held {
    Call *call;
    tutti_net_completion done;
    Clock::time_point until; // max(): for good
  };
  void release_held();
  void deliver(const tutti_net_completion &inner);
  void repost();
  const Inner &inner_;
  std::vector<Fault> faults_; // none on ranks that are spared
  uint64_t seed_, rank_, endpoints_ = 0;
  tutti_net_ctx *ctx_ = nullptr;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call *> spare_, again_;
  std::deque<Held> held_;
  std::deque<tutti_net_completion> ready_;
};

class Listener : public plugin::NetObject {
public:
  Listener(Context &ctx, tutti_net_listener *inner) : NetObject(ctx.host()), ctx_(ctx), inner_(inner) {}
  ~Listener() { ctx_.net().listener_destroy(inner_); }
  std::unique_ptr<Endpoint> accept(const plugin::Address &answer);

private:
  Context &ctx_;
  tutti_net_listener *inner_;
};

} // namespace tutti::net_fault
