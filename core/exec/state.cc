// What the engine does, for other threads and other ranks.
#include "exec/state.h"
#include "exec/engine_impl.h"
#include <algorithm>

namespace tutti {
namespace {

// Who waits says so every millisecond; what is older than this was said by an operation that has moved since.
constexpr int64_t kFresh = 1'000'000'000;

} // namespace

// Caller holds mutex_, until the bound has been looked at.
OperationState EngineImpl::to_state(const Recorded &r, const ticks::Reader &clock) const {
  OperationState o;
  o.call = r.call;
  if (r.tagged) o.tag = r.tag.text.data();
  o.text = r.text();
  o.seq = r.seq;
  o.bytes = r.bytes;
  o.failed = r.failed;
  o.enqueued_ns = clock.wall_ns(r.enqueued);
  o.started_ns = clock.wall_ns(r.started);
  o.completed_ns = clock.wall_ns(r.done);
  o.transfers = r.transfers;
  o.transfers_in_all = r.transfers_in_all;
  if (!r.bound) return o;
  const Bound &b = *r.bound;
  o.algo = b.plan->algo;
  o.proto = b.selection.proto.table->name;
  o.way = b.way_text();
  o.channels = b.plan->request.channels;
  o.slot_bytes = b.selection.slot_bytes;
  o.depth = b.selection.depth;
  return o;
}

std::optional<OperationState> EngineImpl::operation(uint64_t seq, const ticks::Reader &clock) const {
  std::lock_guard lock(mutex_);
  Recorded r;
  if (!recorder_.read(seq, &r)) return std::nullopt;
  return to_state(r, clock);
}

uint64_t EngineImpl::oldest_recorded() const {
  const uint64_t tail = tail_.load(std::memory_order_acquire);
  return tail > recorder_.capacity() ? tail - recorder_.capacity() + 1 : 1;
}

void EngineImpl::add_waits(EngineState *out, const ticks::Reader &clock) const {
  std::lock_guard lock(mutex_);
  out->error = error_;
  if (waits_seq_ != out->started || out->started == out->completed) return;
  out->noted_ns = clock.wall_ns(waits_noted_);
  out->slices = waits_slices_;
  for (size_t i = 0; i < waits_count_; i++) {
    const WaitFor &w = waits_[i];
    out->waits.push_back({w.peer, w.receiving, w.slice, w.group, clock.wall_ns(w.since)});
  }
  out->progress.assign(progress_.begin(), progress_.begin() + static_cast<std::ptrdiff_t>(progress_count_));
}

EngineState EngineImpl::state() const {
  const ticks::Reader clock;
  EngineState out;
  out.now_ns = clock.now_ns();
  out.completed = completed(); // what is read later can only be more
  out.started = std::max(started_.load(std::memory_order_acquire), out.completed);
  out.enqueued = tail_.load(std::memory_order_acquire);
  add_waits(&out, clock);
  for (size_t i = 0; i < out.calls.size(); i++) out.calls[i] = calls_[i].load(std::memory_order_relaxed);
  out.blocked_ns = blocked_.load(std::memory_order_relaxed).count();
  out.text = activity();
  if (out.enqueued > out.completed) out.oldest = operation(out.completed + 1, clock);
  if (out.completed) out.last = operation(out.completed, clock);
  using Now = EngineState::Doing;
  const bool waits = !out.waits.empty() && out.now_ns - out.noted_ns < kFresh;
  out.doing = failed()                        ? Now::failed
              : out.enqueued == out.completed ? Now::idle
              : out.started == out.completed  ? Now::held
              : waits                         ? Now::waiting
                                              : Now::running;
  out.links = traffic();
  return out;
}

EngineRecord EngineImpl::record() const {
  const ticks::Reader clock;
  EngineRecord out;
  out.state = state();
  out.capacity = recorder_.capacity();
  for (uint64_t seq = oldest_recorded(); seq <= out.state.enqueued; seq++)
    if (auto one = operation(seq, clock)) out.operations.push_back(std::move(*one));
  const auto skipped = recorder_.skipped();
  for (const Recorded &r : skipped) out.skipped.push_back(to_state(r, clock)); // without a bound
  out.events = recorder_.events(clock);
  return out;
}

} // namespace tutti
