// What happens when a collnet group is lost: all ranks agree on the last operation that any of them has started with groups. Up
// to that one, operations fail where their result is missing; later ones run without groups, on all ranks.
//
// Whoever notices tells rank 0, which halts all: from then on no rank starts such an operation, and each says which one it has
// started last. Rank 0 takes the largest number and tells all. A rank that starts an operation says so before it looks whether
// it was halted, and one that is halted looks after that what was started: one of the two sees the other.
//
// Where an operation has nothing to run by instead, losing a group ends the communicator, as any other failure does.
#include "base/types.h"
#include "exec/engine_impl.h"
#include "log/log.h"
#include "transport/collnet_port.h"

namespace tutti {
namespace {

// After all have agreed, for results that are still on their way between the ranks of a host.
constexpr auto kLastResults = std::chrono::milliseconds(50);
// For ranks to answer when collnet is lost, which they do whatever the application does: a quarter of core.timeout within
// these.
constexpr Nanos kLeastAgree = std::chrono::seconds(2), kMostAgree = std::chrono::seconds(10);

// A rank that fails says why over the control channel, and then leaves its groups: the reason should come first.
constexpr auto kReasonTime = std::chrono::milliseconds(500);

} // namespace

std::string EngineImpl::collnet_lost() const {
  if (loss_.load(std::memory_order_acquire) != Loss::resolved) return "";
  std::lock_guard lock(mutex_);
  return loss_text_;
}

EngineImpl::Groups EngineImpl::groups_for(const OpArgs &args) {
  if (!args.instead) return Groups::used;
  const uint64_t number = args.call.number;
  groups_started_.store(number, std::memory_order_seq_cst);
  const Loss loss = loss_.load(std::memory_order_seq_cst);
  if (loss == Loss::none) [[likely]]
    return Groups::used;
  if (loss == Loss::halted) {
    on_blocked();
    return Groups::undecided;
  }
  if (CollnetPort *port = transport_->collnet()) port->close();
  return number <= groups_last_.load(std::memory_order_relaxed) ? Groups::failed : Groups::instead;
}

EngineImpl::Drive EngineImpl::watch_groups() {
  const Bound &b = *active_;
  CollnetPort *port = transport_->collnet();
  const bool broken = b.has_groups && port && port->failure();
  const Loss loss = loss_.load(std::memory_order_acquire);
  if (!broken && loss == Loss::none) [[likely]]
    return Drive::blocked;
  // What a network may still read of the buffers cannot be taken back.
  if (!present().args.instead || b.has_net) {
    if (broken_at_ == Clock::time_point{}) broken_at_ = Clock::now();
    const bool left = broken && port->reason() == TUTTI_COLLNET_MEMBER_LOST;
    if (left && Clock::now() - broken_at_ < kReasonTime) return Drive::blocked;
    Error e = broken ? *port->failure() : loss_error();
    e.operation = recent_call(started_.load(std::memory_order_relaxed));
    e.message = fmt::format("{}: {}", e.operation, e.message);
    die(std::move(e));
    return Drive::blocked;
  }
  if (loss == Loss::none) report_loss(*port->failure());
  if (loss != Loss::resolved) return Drive::blocked;
  const auto now = Clock::now();
  if (moved_ || resolved_at_ == Clock::time_point{}) resolved_at_ = now;
  if (now - resolved_at_ < kLastResults) return Drive::blocked;
  if (port) port->close();
  active_ = nullptr;
  return Drive::lost;
}

Error EngineImpl::loss_error() const {
  Error e;
  e.code = Code::remote;
  std::lock_guard lock(mutex_);
  e.message = loss_text_;
  return e;
}

// An operation that uses groups has made no progress for too long, though nobody is missing and no plugin says why.
bool EngineImpl::give_groups_up(const std::string &why) {
  const Bound &b = *active_;
  if (!b.selection.groups || b.has_net || !present().args.instead) return false;
  Error e;
  e.message = why;
  if (loss_.load(std::memory_order_acquire) == Loss::none) report_loss(e); // else another rank has just been faster
  return true;
}

// No rank may begin anything meanwhile, so this must end. Rank 0 knows who has not answered, and speaks first.
void EngineImpl::await_agreement(Clock::time_point now) {
  if (halted_at_ == Clock::time_point{}) halted_at_ = now;
  const Nanos patience = std::clamp<Nanos>(timeout_ / 4, kLeastAgree, kMostAgree);
  if (now - halted_at_ < patience + (rank_ == 0 ? Nanos(0) : patience / 4)) return;
  Error e = loss_error();
  e.code = Code::timeout;
  std::string who;
  {
    std::lock_guard lock(mutex_);
    for (int r = 0; rank_ == 0 && r < bootstrap_.nranks(); r++) {
      if (halted_.contains(r)) continue;
      if (e.peer < 0) e.peer = r;
      who += fmt::format("{} rank {}", who.empty() ? "" : ",", r);
    }
  }
  e.message = fmt::format("{}; to go on without collnet all ranks have to agree, but there is no answer{}{} for {} ms",
                          e.message, who.empty() ? "" : " of", who,
                          std::chrono::duration_cast<std::chrono::milliseconds>(now - halted_at_).count());
  die(std::move(e));
}

void EngineImpl::fail_operation(const CallInfo &call, uint64_t seq) {
  Error e;
  e.code = Code::remote;
  e.rank = rank_;
  e.phase = "operation";
  e.operation = describe(call);
  e.survived = true;
  {
    std::lock_guard lock(mutex_);
    e.message = fmt::format("{} has no result: {}", e.operation, loss_text_);
    e.hint = "the communicator goes on, and the next operation runs without collnet";
    op_errors_.emplace_back(seq, Status(e));
    first_error_.store(op_errors_.front().first, std::memory_order_release);
  }
  log::warn(log::Subsys::coll, "{}", e.line());
  note_event("operation failed", e.message);
  recorder_.lose(seq);
  blocked_since_ = {}; // the next one's time begins with it
  completed_.store(seq, std::memory_order_release);
}

void EngineImpl::tell(int to, Diagnosis type, uint64_t number, const std::string &text) {
  Diagnose d;
  d.type = type;
  d.number = number;
  if (to == rank_) return on_loss(rank_, d, text);
  if (Status s = send_diagnose(bootstrap_, to, d, text); !s.ok()) die(s.error());
}

void EngineImpl::report_loss(const Error &why) {
  halt(why.message);
  tell(0, Diagnosis::lost, 0, why.message);
}

void EngineImpl::halt(const std::string &why) {
  std::lock_guard lock(mutex_);
  if (loss_.load(std::memory_order_relaxed) != Loss::none) return;
  loss_text_ = why;
  loss_.store(Loss::halted, std::memory_order_seq_cst);
}

// [the service thread, or the owner]
void EngineImpl::on_loss(int from, const Diagnose &d, const std::string &text) {
  switch (d.type) {
  case Diagnosis::lost: {
    {
      std::lock_guard lock(mutex_);
      if (rank_ != 0 || !halted_.empty()) return; // it is under way
      halted_[-1] = 0;
    }
    for (int r = bootstrap_.nranks() - 1; r >= 0; r--) tell(r, Diagnosis::halt, 0, text);
    return;
  }
  case Diagnosis::halt:
    halt(text);
    return tell(0, Diagnosis::halted, groups_started_.load(std::memory_order_seq_cst), "");
  case Diagnosis::halted:
    return count_halted(from, d.number);
  default:
    break;
  }
  {
    std::lock_guard lock(mutex_);
    loss_text_ = text;
    groups_last_.store(d.number, std::memory_order_relaxed);
    loss_.store(Loss::resolved, std::memory_order_seq_cst);
  }
  log::warn(log::Subsys::coll, "comm {:#x}: collnet is not used any more: {}", comm_, text);
}

void EngineImpl::count_halted(int from, uint64_t number) {
  uint64_t last = 0;
  std::string text;
  {
    std::lock_guard lock(mutex_);
    halted_[from] = number;
    if (halted_.size() < static_cast<size_t>(bootstrap_.nranks()) + 1) return;
    for (const auto &[rank, started] : halted_) last = std::max(last, started);
    text = loss_text_;
  }
  for (int r = bootstrap_.nranks() - 1; r >= 0; r--) tell(r, Diagnosis::resolved, last, text);
}

} // namespace tutti
