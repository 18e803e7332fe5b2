// tutti/core/exec/engine_impl.h: the engine. One atomic word says who owns it; the owner drives, everybody else waits or goes
// away.
#pragma once
#include "exec/bound.h"
#include "exec/diagnose.h"
#include "exec/engine.h"
#include "exec/recorder.h"
#include "transport/transport.h"
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

namespace tutti {

constexpr uint32_t kRoundOps = 32; // completed in one round at most: the others of the process want their turn
constexpr size_t kMostLinks = 64;  // whose progress is noted while an operation waits

class EngineImpl final : public Engine {
public:
  EngineImpl(Bootstrap &bootstrap, std::shared_ptr<const Config> config);
  ~EngineImpl() override;
  Status open(Iface<tutti_net_v1> net);

  Bytes local_info() const override;
  void set_routes(NetRoutes routes) override { transport_->set_routes(std::move(routes)); }
  Status open_collnet(Iface<tutti_collnet_v1> collnet, uint32_t device) override {
    return transport_->open_collnet(collnet, device);
  }
  void close_collnet() override { transport_->close_collnet(); }
  CollnetPort *collnet() override { return transport_->collnet(); }
  std::string collnet_lost() const override;
  Status set_peers(std::span<const Bytes> infos) override;
  LinkClass link_class(int peer) const override { return transport_->link_class(peer); }
  const std::string &unreadable() const override { return transport_->unreadable(); }
  bool shares_memory() const override { return transport_->shares_memory(); }
  std::string describe_link(int peer) const override { return transport_->describe(peer); }
  Result<const Bound *> bind(std::shared_ptr<const Plan> plan, const Selection &selection, tutti_dtype dtype,
                             tutti_redop op) override;
  void release(const Bound *bound) override;
  void skip(const CallInfo &call) override;
  Result<uint64_t> enqueue(const Bound *bound, const OpArgs &args, std::span<const Dependency> after) override;
  Status reach(uint64_t seq) override;
  Status take_error(uint64_t seq) override;
  bool progress() override;
  void fail(const Error &error) override;
  bool quiesce() override;
  Status offer(const void *p, uint64_t bytes) override {
    const Region r = regions::find(p);
    return r.holds(p, bytes) ? transport_->offer_region(r.id) : Status();
  }
  void keep(uint64_t number, const void *p, uint64_t bytes) override { transport_->keep(number, p, bytes); }
  Status forget(uint64_t number) override { return transport_->forget(number); }
  Status error() const override;
  std::string activity() const override;
  EngineState state() const override;
  EngineRecord record() const override;
  void note_event(std::string_view kind, std::string_view text) override {
    recorder_.event(kind, text, tail_.load(std::memory_order_relaxed));
  }
  Usage usage() const override { return {transport_->budget().used(), transport_->fds()}; }
  std::vector<LinkTraffic> traffic() const override { return transport_->traffic(); }
  const std::string &bound_summary(const Bound *bound) const override { return bound->summary; }

  uint64_t arrived() const { return tail_.load(std::memory_order_relaxed); } // operations so far [any thread]
  // For the driver: work that nobody waits for.
  bool wants_driver() const {
    return completed() < tail_.load(std::memory_order_acquire) && waiters_.load(std::memory_order_relaxed) == 0 &&
           owner_.load(std::memory_order_relaxed) == 0 && !failed();
  }

private:
  enum class Drive { done, blocked, failed, lost };
  struct Queued {
    Bound *bound = nullptr;
    OpArgs args;
    std::vector<uint64_t> tables;
    std::vector<Dependency> after;
    bool posted = false; // its contribution is on its way, see post_ahead()
    uint64_t factor = 0; // one element
    Tag tag;
  };
  struct Question { // to a peer, without an answer so far
    int peer;
    uint64_t nonce;
    Diagnosis type;
    bool followed = false; // those that it waits for have been asked, too
  };
  struct Answer {
    Diagnose head;
    std::string text;
  };
  struct Idle { // a waiting thread's patience
    uint32_t rounds = 0;
    Clock::time_point since{};
  };

  bool own() { return alone_wanted_.load(std::memory_order_relaxed) == 0 && take_over(); }
  bool take_over() {
    uint32_t free = 0;
    return owner_.load(std::memory_order_relaxed) == 0 &&
           owner_.compare_exchange_strong(free, 1, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void disown() {
    if (active_ && active_->store_fence) store_fence(); // the next owner's fence does not order what this thread has stored
    owner_.store(0, std::memory_order_release);
  }

  static void copy_tables(Queued &queued);
  Queued &queued(uint64_t seq) { return queue_[(seq - queue_start_) % kQueue]; }
  Queued &present() { return queued(completed_.load(std::memory_order_relaxed) + 1); } // the owner's: it runs, or is the next

  // run.cc: all of it by the owner
  Status check_args(const Bound &bound, const OpArgs &args) const;
  void start(Bound &bound, const OpArgs &args, uint64_t seq, uint64_t stamp);
  void place(Bound &bound, const OpArgs &args);
  // Once per batch of messages, so that an error can be returned soon after fail().
  bool stop_requested() const { return failed_.load(std::memory_order_relaxed); }
  Drive drive(uint32_t polls);
  Drive run_plan(Bound &bound, uint32_t polls);
  static bool loans_ended(const Bound &bound);
  Drive drive_memory(Bound &bound, uint32_t polls);
  Drive drive_groups(Bound &bound, uint32_t polls);
  bool post_ahead();
  bool may_post(const Queued &op, uint64_t seq);
  Drive run_single(Bound &bound, uint32_t polls);
  Drive run_lanes(Bound &bound, uint32_t polls);
  int advance(Bound &bound, Lane &lane);
  bool may_start(const Bound &bound, const Lane &lane) const;
  uint64_t complete(); // returns when, as a stamp
  void look_at_clock();
  bool drive_round(uint32_t polls) noexcept; // without memory the engine fails
  bool drive_queued(uint32_t polls);
  bool dependencies_met(const Queued &op);
  void give_up(const Queued &op, const Engine &before);

  // collnet_loss.cc
  enum class Groups { used, undecided, failed, instead };
  Groups groups_for(const OpArgs &args); // before an operation that uses them starts
  Drive watch_groups();                  // while one runs: lost, where its result will never come
  bool give_groups_up(const std::string &why);
  void await_agreement(Clock::time_point now);
  void report_loss(const Error &why);
  Error loss_error() const;
  void fail_operation(const CallInfo &call, uint64_t seq);
  void on_loss(int from, const Diagnose &d, const std::string &text);
  void halt(const std::string &why);
  void tell(int to, Diagnosis type, uint64_t number, const std::string &text);
  void count_halted(int from, uint64_t number);

  Transport::Turn alone(const std::function<void()> &run);

  // engine.cc: waiting
  void idle(Idle &state);
  void leave_rest();
  Status stopped(); // the error, once nothing touches buffers any more
  void on_blocked();
  Nanos patience() { // of the operation that runs
    const uint32_t own = active_ ? present().args.call.timeout_ms : 0;
    return own ? Nanos(std::chrono::milliseconds(own)) : timeout_;
  }
  void die(Error error); // fail() and tell all ranks

  // diagnose.cc
  struct WaitFor {
    int peer;
    bool receiving;
    uint32_t slice;
    bool hidden;        // what has been sent cannot be seen yet: the link is the sender's and not connected
    int32_t group = -1; // the collnet group that the peer is reached by; -1: none
    uint64_t since = 0; // stamp of base/ticks.h: when it was first noted
  };
  size_t waiting_for(std::span<WaitFor> out); // by the owner; what does not fit is left out
  static std::string wait_text(std::span<const WaitFor> waits, uint64_t slices);
  void note_waiting();
  void count_call(tutti_coll coll) { // by one thread at a time
    std::atomic<uint64_t> &n = calls_[coll < calls_.size() ? coll : 0];
    n.store(n.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  size_t note_progress();
  void look_for_disagreement();
  void explain_fault();
  void report_unreadable(const Mismatch &fault);
  void report_mismatch(int peer, uint16_t conn, uint32_t got, bool have_signature);
  void disagree(int peer, const std::string &mine, const std::string &theirs);
  void tell_apart(int peer, const std::string &mine, const std::string &theirs);
  void expire(Nanos waited);
  void follow_answers();
  std::string answer_text(int peer, int *cause) const;
  std::string answers_text(std::span<const WaitFor> waits, int *absent);
  void on_diagnose(Message message);
  void ask(int peer, Diagnose head, const std::string &text, Clock::time_point until);
  bool answered(); // all of them are, or it is too late
  std::optional<Answer> answer_of(int peer) const;
  void say_doing(Diagnose *answer) const;
  void forget_questions();
  std::string recent_call(uint64_t seq) const;
  std::string call_and_way(uint64_t seq) const;
  uint64_t call_for(int from, uint32_t conn, uint32_t got, bool have_signature) const; // 0 = nothing yet

  // inquire.cc
  void inquire(Clock::time_point now); // by the owner
  void on_inquire(int from, const Diagnose &d, const std::string &text);
  void reply_finished(int to, uint64_t number);
  void on_finished(int from, uint64_t number);
  void sizes_differ(int peer, const std::string &mine, bool receiving);

  // state.cc
  OperationState to_state(const Recorded &r, const ticks::Reader &clock) const;
  std::optional<OperationState> operation(uint64_t seq, const ticks::Reader &clock) const;
  void add_waits(EngineState *out, const ticks::Reader &clock) const;
  uint64_t oldest_recorded() const;

  // ---- touched by every operation
  alignas(64) std::atomic<uint32_t> owner_{0}; // stays 1 once quiesced_
  std::atomic<uint32_t> alone_wanted_{0};      // threads in alone(): whoever drives lets them in between two rounds
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint64_t> tail_{0}; // enqueued_, for other threads
  Bound *active_ = nullptr;       // below: the owner's
  uint64_t slices_ = 0;
  uint32_t left_ = 0; // lanes that have not finished
  bool moved_ = false, draining_ = false;
  bool brief_ = false;     // the present operation is over in less than reading the clock twice is worth, see start()
  bool unstamped_ = false; // it has begun, and the clock has not been read yet
  uint64_t seen_ = 0;      // stamp of the last look at the clock while it waited
  uint32_t polls_ = 2000;
  uint32_t yields_ = 0;                        // 0 = by time
  bool crowded_ = false;                       // more ranks than cores
  std::atomic<Clock::time_point> nap_until_{}; // instead of yielding
  Clock::time_point blocked_since_{}, looked_{}, counted_{}, inquired_{}, answer_until_{};
  std::vector<Question> questions_;
  Frame frame_;

  // ---- the rest
  Bootstrap &bootstrap_;
  std::shared_ptr<const Config> config_;
  std::unique_ptr<Transport> transport_;
  Nanos timeout_;
  const uint64_t comm_;
  int rank_;
  bool progress_thread_ = true;
  Workspace workspace_;
  std::vector<std::unique_ptr<Bound>> bounds_;
  std::unique_ptr<Queued[]> queue_;
  uint64_t queue_start_ = 1; // the operation in queue_[0]; changes while no operation is queued
  Recorder recorder_;
  std::atomic<uint64_t> started_{0};
  std::array<std::atomic<uint64_t>, TUTTI_COLL_COUNT> calls_{}; // so far, of each kind
  std::atomic<Nanos> blocked_{Nanos(0)};                        // waited for peers, in all
  std::atomic<bool> quiesced_{false};
  mutable std::mutex mutex_; // guards error_ to nonce_ but what says otherwise, and a recorded bound against release()
  Status error_;
  std::array<WaitFor, kMostNamed> waits_{};                     // whom the operation waits for, as last noted
  uint64_t waits_slices_ = 0, waits_seq_ = 0, waits_noted_ = 0; // noted: a stamp
  size_t waits_count_ = 0;
  std::array<EngineState::Progress, kMostLinks> progress_{}; // noted with them
  size_t progress_count_ = 0;
  std::map<uint64_t, Answer> answers_;
  std::map<int, uint64_t> finished_; // number of the collective that a peer said it has completed
  // Of collnet groups: whether they are there, and if not, up to which operation.
  enum class Loss : uint32_t { none, halted, resolved };
  std::atomic<Loss> loss_{Loss::none};
  std::atomic<uint64_t> groups_started_{0}, groups_last_{0}; // numbers of operations
  Clock::time_point broken_at_{}, halted_at_{};              // by the owner: when it first saw that
  Clock::time_point resolved_at_{};                          // likewise: since when it has made no progress
  std::string loss_text_;
  std::map<int, uint64_t> halted_; // rank 0: what ranks said
  std::deque<std::pair<uint64_t, Status>> op_errors_;
  uint64_t nonce_ = 1; // the owner's
};

} // namespace tutti
