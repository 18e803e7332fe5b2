// tutti/core/exec/engine_impl.h: the engine. One atomic word says who owns it; the owner drives, everybody else waits or goes
// away.
#pragma once
#include "exec/bound.h"
#include "exec/engine.h"
#include "transport/transport.h"
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>

namespace tutti {

constexpr uint32_t kQueue = 128; // operations enqueued and not complete
constexpr uint32_t kRecent = 32; // calls remembered for diagnoses

class EngineImpl final : public Engine {
public:
  EngineImpl(Bootstrap &bootstrap, std::shared_ptr<const Config> config);
  ~EngineImpl() override;
  Status open(Iface<tutti_net_v1> net);

  Bytes local_info() const override;
  Status set_peers(std::span<const Bytes> infos) override;
  LinkClass link_class(int peer) const override { return transport_->link_class(peer); }
  std::string describe_link(int peer) const override { return transport_->describe(peer); }
  Result<const Bound *> bind(std::shared_ptr<const Plan> plan, const Selection &selection, tutti_dtype dtype,
                             tutti_redop op) override;
  Result<uint64_t> enqueue(const Bound *bound, const OpArgs &args, std::span<const Dependency> after) override;
  Status run(const Bound *bound, const OpArgs &args) override;
  Status wait(uint64_t seq) override;
  bool progress() override;
  void fail(const Error &error) override;
  Status error() const override;
  std::string activity() const override;
  Usage usage() const override { return {transport_->budget().used(), transport_->fds()}; }
  const std::string &bound_summary(const Bound *bound) const override { return bound->summary; }

  // For the driver: work that nobody waits for.
  bool wants_driver() const {
    return completed() < tail_.load(std::memory_order_acquire) && waiters_.load(std::memory_order_relaxed) == 0 &&
           owner_.load(std::memory_order_relaxed) == 0 && !failed();
  }

private:
  enum class Drive { done, blocked, failed };
  struct Queued {
    Bound *bound = nullptr;
    OpArgs args;
    std::vector<uint64_t> tables;
    std::vector<Dependency> after;
    uint64_t factor = 0; // one element
  };
  // A remembered call; words are atomic because diagnoses read them while the owner writes the next.
  struct Recent {
    std::atomic<uint64_t> type_op{0}, root_signature{0}, count{0}, number{0}, seq{0};
    std::atomic<const Bound *> bound{nullptr};
  };
  struct Idle { // a waiting thread's patience
    uint32_t rounds = 0;
    Clock::time_point since{};
  };

  bool own() {
    uint32_t free = 0;
    return owner_.load(std::memory_order_relaxed) == 0 &&
           owner_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void disown() { owner_.store(0, std::memory_order_release); }

  // run.cc: all of it by the owner
  Status check_args(const Bound &bound, const OpArgs &args) const;
  void start(Bound &bound, const OpArgs &args, uint64_t seq);
  void place(Bound &bound, const OpArgs &args);
  Drive drive(uint32_t polls);
  Drive run_single(Bound &bound, uint32_t polls);
  Drive run_lanes(Bound &bound, uint32_t polls);
  int advance(Bound &bound, Lane &lane);
  bool may_start(const Bound &bound, const Lane &lane) const;
  void complete();
  bool drive_round(uint32_t polls);
  bool dependencies_met(const Queued &op) const;

  // engine.cc: waiting
  void idle(Idle &state, bool owned);
  void on_blocked();
  void remember(const CallInfo &call, const Bound *bound, uint64_t seq, uint32_t signature);
  void die(Error error); // fail() and tell all ranks

  // diagnose.cc
  struct WaitFor {
    int peer;
    bool receiving;
    uint32_t slice;
  };
  std::vector<WaitFor> waiting_for(); // by the owner
  void note_waiting();
  void look_for_disagreement();
  void explain_fault();
  void report_mismatch(int peer, uint16_t conn, uint32_t fingerprint, uint32_t got, bool have_signature);
  void expire(Nanos waited);
  void on_diagnose(Message message);
  std::optional<std::string> ask(int peer, uint32_t type, uint32_t conn, uint32_t got, uint32_t flags, const std::string &text,
                                 Nanos patience);
  std::string recent_call(uint64_t seq) const;
  std::string call_for(int from, uint32_t conn, uint32_t got, bool have_signature) const;

  // ---- touched by every operation
  alignas(64) std::atomic<uint32_t> owner_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint64_t> tail_{0}; // enqueued_, for other threads
  Bound *active_ = nullptr;       // below: the owner's
  uint64_t slices_ = 0;
  uint32_t left_ = 0; // lanes that have not finished
  bool moved_ = false, draining_ = false, noted_ = false;
  uint32_t polls_ = 2000;
  uint32_t yields_ = 0; // 0 = by time
  Clock::time_point blocked_since_{}, looked_{};
  Frame frame_;
  BufferShape shape_[2];

  // ---- the rest
  Bootstrap &bootstrap_;
  std::shared_ptr<const Config> config_;
  std::unique_ptr<Transport> transport_;
  Nanos timeout_;
  int rank_;
  bool progress_thread_ = true;
  std::vector<std::unique_ptr<Bound>> bounds_;
  std::unique_ptr<Queued[]> queue_;
  std::array<Recent, kRecent> recent_;
  std::atomic<uint64_t> started_{0};
  mutable std::mutex mutex_; // guards error_, waiting_text_, waiting_seq_, answers_
  std::condition_variable changed_;
  Status error_;
  std::string waiting_text_;
  uint64_t waiting_seq_ = 0;
  std::map<uint64_t, std::string> answers_;
  std::atomic<uint64_t> nonce_{1};
};

uint32_t call_signature(const CallInfo &call, bool point_to_point); // odd

} // namespace tutti
