// Runs the present operation. Everything here is done by the owner of the engine.
#include "base/types.h"
#include "exec/engine_impl.h"
#include "transport/collnet_port.h"
#include "transport/net_port.h"
#include "transport/transport.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

constexpr uint32_t kPollsPerNetRound = 8; // asking a device takes as long as so many looks at memory
constexpr uint32_t kEagerPolls = 128;     // polls without a pause: the answer is mostly a cache miss away
constexpr uint32_t kPollsPerStamp = 128;  // of a brief operation: its end is known to so many
constexpr uint64_t kBriefBytes = 1024;

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t largest_chunk(const BufferShape &s, uint32_t pieces, uint32_t groups) {
  uint64_t block = s.blocks ? s.block_bytes : 0;
  if (s.bytes) block = s.blocks ? *std::max_element(s.bytes, s.bytes + s.blocks) : 0;
  // The first piece of the first group is never smaller than another one.
  const BufferShape one{1, block, nullptr, nullptr};
  return chunk_span(one, pieces, groups, 0, 0).bytes;
}

void place_buffer(Geo *g, const BufferShape &s, uint32_t pieces, uint32_t groups, uint32_t group, uint8_t *base) {
  g->group = group;
  g->base = base;
  g->irregular = s.bytes != nullptr || s.offsets != nullptr || (pieces > 1 && s.blocks > 1);
  if (g->irregular) return;
  const uint64_t total = s.block_bytes;
  if (groups == 1 && pieces == 1) {
    g->len = static_cast<int64_t>(total);
    g->mul = g->len;
    g->limit = INT64_MAX;
    return;
  }
  const uint64_t share = align_up((total + groups - 1) / groups, kChunkAlign);
  const uint64_t lo = std::min(share * group, total), hi = std::min(lo + share, total);
  const uint64_t size = align_up((hi - lo + pieces - 1) / pieces, kChunkAlign);
  if (base) g->base = base + lo; // a rank may have no such buffer
  if (pieces == 1) {             // chunk = block
    g->mul = static_cast<int64_t>(total);
    g->len = static_cast<int64_t>(hi - lo);
    g->limit = INT64_MAX;
  } else { // chunk = piece of the only block
    g->mul = static_cast<int64_t>(size);
    g->len = g->mul;
    g->limit = static_cast<int64_t>(hi - lo);
  }
}

} // namespace

void EngineImpl::place(Bound &b, const OpArgs &args) {
  auto *in = static_cast<uint8_t *>(const_cast<void *>(args.in));
  auto *out = static_cast<uint8_t *>(args.out);
  const bool regular = !args.in_shape.bytes && !args.in_shape.offsets && !args.out_shape.bytes && !args.out_shape.offsets;
  const bool same = regular && args.in_shape.block_bytes == b.last_in && args.out_shape.block_bytes == b.last_out;
  if (same && b.groups == 1) [[likely]] {
    b.geo[0].base = in;
    b.geo[1].base = out;
    slices_ = b.last_slices;
    return;
  }
  for (uint32_t g = 0; g < b.groups; g++) {
    place_buffer(&b.geo[2 * g], args.in_shape, b.pieces_in, b.groups, g, in);
    place_buffer(&b.geo[2 * g + 1], args.out_shape, b.pieces_out, b.groups, g, out);
  }
  const uint64_t longest =
      std::max(largest_chunk(args.in_shape, b.pieces_in, b.groups), largest_chunk(args.out_shape, b.pieces_out, b.groups));
  slices_ = (longest + b.selection.slot_bytes - 1) / b.selection.slot_bytes;
  b.last_in = regular ? args.in_shape.block_bytes : ~0ull;
  b.last_out = regular ? args.out_shape.block_bytes : ~0ull;
  b.last_slices = slices_;
}

void EngineImpl::start(Bound &b, const OpArgs &args, uint64_t seq, uint64_t stamp) {
  active_ = &b;
  place(b, args);
  const bool p2p = args.call.coll == TUTTI_COLL_SEND_RECV;
  frame_.slice_bytes = b.selection.slot_bytes;
  frame_.signature = call_signature(args.call);
  frame_.keyed = p2p || ((args.in_shape.bytes || args.out_shape.bytes) && !args.call.table);
  frame_.bound = &b;
  frame_.received = b.received.data();
  frame_.operands = b.operands.data();
  frame_.payloads = b.payloads.data();
  if (!b.lending.empty()) {
    frame_.regions[0] = regions::find(args.in);
    frame_.regions[1] = regions::find(args.out);
  }
  frame_.scratch = b.scratch;
  frame_.scratch_stride = b.scratch_stride;
  frame_.shape[0] = &args.in_shape;
  frame_.shape[1] = &args.out_shape;
  frame_.marks[0] = args.in_marks;
  frame_.marks[1] = args.out_marks;
  frame_.preop_factor = args.preop_factor;
  frame_.postop_divisor = args.postop_divisor;
  frame_.in_place = args.in_place;
  const bool with_ops = (args.preop_factor && b.has_preop) || (args.postop_divisor && b.has_postop);
  left_ = slices_ ? static_cast<uint32_t>(b.lanes.size()) : 0;
  for (Lane &lane : b.lanes) {
    lane.steps = with_ops ? lane.with_ops.data() : lane.plain.data();
    lane.pc = lane.iter = lane.slice = lane.phase = 0;
    lane.done = 0;
    lane.finished = lane.step_count == 0;
    if (lane.finished && left_) left_--;
    for (BoundLink &l : lane.recv) l.began = l.ring->seq;
    for (BoundLink &l : lane.send) l.began = l.ring->seq;
  }
  if (b.ahead && queued(seq).posted) [[unlikely]] {
    b.lanes[0].pc = 1; // what it gives has been given
    transport_->collnet()->caught_up();
  }
  draining_ = false;
  frame_.unread = nullptr;
  // Reading the clock takes as long as a tenth of the way of a small message. A brief operation reads it only while it waits:
  // it has begun when it first waits, and ends with the last look.
  brief_ = b.quick && slices_ <= 1 && !args.in_shape.bytes && args.in_shape.block_bytes <= kBriefBytes;
  if (!stamp && !brief_) stamp = ticks::now();
  unstamped_ = stamp == 0;
  seen_ = 0;
  recorder_.start(seq, &b, stamp);
  started_.store(seq, std::memory_order_release);
}

// One lane: no dependencies, no window; the tight loop.
EngineImpl::Drive EngineImpl::run_single(Bound &b, uint32_t polls) {
  Lane &lane = b.lanes[0];
  if (lane.finished) return Drive::done;
  const BoundStep *const first = lane.steps, *const end = first + lane.step_count;
  const auto slices = static_cast<uint32_t>(slices_);
  uint32_t idle_polls = 0;
  while (lane.slice < slices) {
    if (stop_requested()) [[unlikely]]
      return Drive::blocked;
    for (const BoundStep *s = first + lane.pc; s < end; ++s) {
      while (lane.iter < s->repeat) {
        const int r = s->handler(lane, *s, frame_);
        if (r > 0) [[likely]] {
          lane.iter++;
          idle_polls = 0;
          moved_ = true;
          continue;
        }
        if (brief_ && idle_polls % kPollsPerStamp == 0) look_at_clock();
        if (r < 0 || ++idle_polls > polls) {
          lane.pc = static_cast<uint32_t>(s - first);
          return r < 0 ? Drive::failed : Drive::blocked;
        }
        if (idle_polls > kEagerPolls) cpu_pause();
      }
      lane.iter = 0;
    }
    lane.pc = 0;
    lane.slice++;
  }
  lane.finished = true;
  return Drive::done;
}

bool EngineImpl::may_start(const Bound &b, const Lane &lane) const {
  if (lane.slice >= b.window) {
    for (const Lane &other : b.lanes)
      if (other.group == lane.group && !other.finished && lane.slice - std::min(lane.slice, other.slice) >= b.window)
        return false;
  }
  for (const tutti_dep &d : lane.steps[lane.pc].cold->deps) {
    const Lane &other = b.lanes[d.lane];
    if (!other.finished && (other.slice < lane.slice || (other.slice == lane.slice && other.pc <= d.step))) return false;
  }
  return true;
}

// One step of a lane: 1 moved, 0 blocked, -1 failed.
int EngineImpl::advance(Bound &b, Lane &lane) {
  const BoundStep &s = lane.steps[lane.pc];
  if (lane.iter == 0 && !b.step_major && !may_start(b, lane)) return 0;
  const int r = s.handler(lane, s, frame_);
  if (r <= 0) return r;
  if (b.step_major) {
    if (++lane.slice < slices_) return 1;
    lane.slice = 0;
  }
  if (++lane.iter < s.repeat) return 1;
  lane.iter = 0;
  if (++lane.pc < lane.step_count) return 1;
  if (!b.step_major) {
    lane.pc = 0;
    if (++lane.slice < slices_) return 1;
  }
  lane.finished = true;
  left_--;
  return 1;
}

EngineImpl::Drive EngineImpl::run_lanes(Bound &b, uint32_t polls) {
  uint32_t idle_polls = 0;
  while (left_ && !stop_requested()) {
    bool any = false;
    for (Lane &lane : b.lanes) {
      if (lane.finished) continue;
      const int r = advance(b, lane);
      if (r < 0) return Drive::failed;
      any |= r > 0;
    }
    if (any) {
      idle_polls = 0;
      moved_ = true;
      continue;
    }
    if (++idle_polls > polls) return Drive::blocked;
    if (idle_polls > kEagerPolls) cpu_pause();
  }
  return left_ ? Drive::blocked : Drive::done;
}

EngineImpl::Drive EngineImpl::run_plan(Bound &b, uint32_t polls) {
  return b.multi || b.step_major ? run_lanes(b, polls) : run_single(b, polls);
}

// The peers have read what they read in this rank's memory. All of them are looked at, so that no credit is older than this.
bool EngineImpl::loans_ended(const Bound &b) {
  bool all = true;
  for (Ring *r : b.lending) {
    if (r->cold->described > r->credit) r->credit = load_acquire(r->credit_line);
    all &= r->cold->described <= r->credit;
  }
  return all;
}

// Links in memory only.
EngineImpl::Drive EngineImpl::drive_memory(Bound &b, uint32_t polls) {
  if (!draining_) {
    const Drive d = slices_ ? run_plan(b, polls) : Drive::done;
    if (d != Drive::done || b.lending.empty()) return d;
    draining_ = true;
  }
  for (uint32_t round = 0; round <= polls && !stop_requested(); round++) {
    if (loans_ended(b)) return Drive::done;
    if (round > kEagerPolls) cpu_pause();
  }
  return Drive::blocked;
}

EngineImpl::Drive EngineImpl::drive(uint32_t polls) {
  Bound &b = *active_;
  // Asked for here, not when the plan is bound: the sender takes the question for a sign that this rank has come so far.
  if (!b.joining.empty()) [[unlikely]] {
    std::erase_if(b.joining, [this](Ring *r) { return transport_->connect(*r->cold); });
    if (!b.joining.empty()) polls = std::min(polls, kEagerPolls); // then look again for those rings
  }
  if (b.selection.groups) [[unlikely]]
    return drive_groups(b, polls);
  if (!b.has_net) return drive_memory(b, polls);
  NetPort &net = *transport_->net();
  for (uint32_t round = 0; round <= polls / kPollsPerNetRound && !stop_requested();
       round++) { // the device moves only when asked
    moved_ |= net.progress();
    if (!draining_) {
      const Drive d = slices_ ? run_plan(b, 0) : Drive::done;
      if (d == Drive::failed) return d;
      draining_ = d == Drive::done; // what has not left yet still belongs to the device
    }
    if (draining_ && !net.sends_pending() && loans_ended(b)) return Drive::done;
  }
  return Drive::blocked;
}

// Nothing before it writes what it reads.
bool EngineImpl::may_post(const Queued &op, uint64_t seq) {
  const Bound &b = *op.bound;
  const OpArgs &a = op.args;
  const uint64_t bytes = a.in_shape.block_bytes;
  if (!b.ahead || !op.after.empty() || a.preop_factor || bytes == 0 || bytes > b.selection.slot_bytes) return false;
  const auto in = reinterpret_cast<uintptr_t>(a.in);
  for (uint64_t s = completed_.load(std::memory_order_relaxed) + 1; s < seq; s++) {
    const OpArgs &before = queued(s).args;
    const auto out = reinterpret_cast<uintptr_t>(before.out);
    if (in < out + before.out_shape.block_bytes && out < in + bytes) return false;
  }
  return true;
}

// Posts what the next operations contribute, so that a group has as many of them as it was granted. In their order: all members
// post alike.
bool EngineImpl::post_ahead() {
  CollnetPort &port = *transport_->collnet();
  const uint64_t present = completed_.load(std::memory_order_relaxed) + 1, tail = tail_.load(std::memory_order_acquire);
  const Lane &lane = active_->lanes[0];
  if (lane.pc == 0 || lane.slice + 1 < slices_) return false; // its own posts come first
  bool any = false;
  for (uint64_t seq = present + 1 + port.ahead(); seq <= tail; seq++) {
    Queued &op = queued(seq);
    if (!may_post(op, seq)) return any;
    const BoundLink &link = op.bound->lanes[0].send[0];
    if (!port.can_send(*link.ring)) return any;
    // It has not started: where groups are lost before it has on any rank, it runs without them.
    if (op.args.instead && loss_.load(std::memory_order_acquire) != Loss::none) return any;
    port.send_ahead(*link.ring, op.args.in, op.args.in_shape.block_bytes, call_signature(op.args.call) ^ link.fingerprint,
                    *link.call);
    op.posted = any = true;
  }
  return any;
}

// Also of ranks that are no members themselves: they learn from others that a group is lost.
EngineImpl::Drive EngineImpl::drive_groups(Bound &b, uint32_t polls) {
  CollnetPort *groups = transport_->collnet();
  NetPort *net = b.has_net ? transport_->net() : nullptr;
  const uint32_t rounds = b.has_groups || net ? polls / kPollsPerNetRound : polls;
  for (uint32_t round = 0; round <= rounds && !stop_requested(); round++) {
    // First what is there already: of operations in a row one look at the device brings the results of many.
    if (!draining_) {
      const Drive d = slices_ ? run_plan(b, 0) : Drive::done;
      if (d == Drive::failed) return d;
      draining_ = d == Drive::done;
    }
    if (draining_ && !(b.has_groups && groups->pending()) && !(net && net->sends_pending()) && loans_ended(b))
      return Drive::done;
    if (b.ahead) moved_ |= post_ahead();
    if (b.has_groups) moved_ |= groups->progress();
    if (net) moved_ |= net->progress();
    if (const Drive d = watch_groups(); d != Drive::blocked) return d;
  }
  return Drive::blocked;
}

void EngineImpl::look_at_clock() {
  seen_ = ticks::now();
  if (!unstamped_) return;
  recorder_.began(completed_.load(std::memory_order_relaxed) + 1, seen_);
  unstamped_ = false;
}

uint64_t EngineImpl::complete() {
  if (active_->store_fence) store_fence();
  active_ = nullptr;
  if (!brief_ || !seen_) look_at_clock();
  const uint64_t seq = completed_.load(std::memory_order_relaxed) + 1;
  recorder_.complete(seq, seen_);
  completed_.store(seq, std::memory_order_release);
  return seen_;
}

bool EngineImpl::dependencies_met(const Queued &op) {
  for (const Dependency &d : op.after) {
    if (!d.engine || d.engine->completed() >= d.seq) continue;
    if (d.engine->failed() && d.engine->completed() < d.seq) give_up(op, *d.engine);
    return false;
  }
  return true;
}

// What an operation builds on will never be there. The ranks that wait for it learn why.
void EngineImpl::give_up(const Queued &op, const Engine &before) {
  Error e = before.error().error();
  e.peer = -1; // a rank of that communicator
  e.operation = describe(op.args.call);
  e.message = fmt::format("{} cannot start, for what was on its stream before has failed: {}", e.operation, e.message);
  die(std::move(e));
}

bool EngineImpl::drive_round(uint32_t polls) noexcept {
  try {
    return drive_queued(polls);
  } catch (...) {
    try {
      Error e;
      e.code = Code::system;
      e.message = "out of memory";
      die(std::move(e));
    } catch (...) { // the next round finds out again
    }
    return false;
  }
}

inline bool EngineImpl::drive_queued(uint32_t polls) {
  bool any = false;
  uint64_t stamp = 0; // of the last completion in this round
  for (uint32_t ops = 0; ops < kRoundOps && !failed();) {
    if (!active_) {
      const uint64_t seq = completed_.load(std::memory_order_relaxed) + 1;
      if (seq > tail_.load(std::memory_order_acquire)) return any;
      Queued &op = queued(seq);
      if (!dependencies_met(op)) return any;
      Bound *bound = op.bound;
      if (bound->selection.groups) [[unlikely]] {
        const Groups groups = groups_for(op.args);
        if (groups == Groups::undecided) return any;
        if (groups == Groups::failed) {
          fail_operation(op.args.call, seq);
          any = true;
          continue;
        }
        if (groups == Groups::instead) bound = const_cast<Bound *>(op.args.instead); // the engine's own
      }
      start(*bound, op.args, seq, stamp);
      any = true;
    }
    moved_ = false;
    const Drive d = drive(polls);
    any |= moved_;
    if (moved_) blocked_since_ = {};
    if (d == Drive::done) {
      stamp = complete();
      any = true;
      ops++;
      continue;
    }
    if (d == Drive::lost) {
      fail_operation(present().args.call, completed_.load(std::memory_order_relaxed) + 1);
      any = true;
      continue;
    }
    seen_ = 0; // it may be long until the next look
    if (d == Drive::failed)
      explain_fault();
    else if (!moved_ && !failed())
      on_blocked();
    return any;
  }
  return any;
}

} // namespace tutti
