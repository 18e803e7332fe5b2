#include "exec/recorder.h"
#include "base/types.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace tutti {
namespace {

void put(uint64_t &word, uint64_t v) {
  std::atomic_ref(word).store(v, std::memory_order_release);
}
uint64_t get(const uint64_t &word) {
  return std::atomic_ref(const_cast<uint64_t &>(word)).load(std::memory_order_acquire);
}

uint64_t bytes_in(const BufferShape &s) {
  return s.bytes ? std::accumulate(s.bytes, s.bytes + s.blocks, uint64_t(0)) : s.blocks * s.block_bytes;
}

} // namespace

Recorder::Recorder(uint32_t operations, int nranks)
    : mask_(std::bit_ceil(std::max(operations, kLeast)) - 1), nranks_(nranks), lines_(new Line[mask_ + 1u]) {}

void Recorder::write_more(uint64_t seq, const OpArgs &args) {
  if (!more_) {
    more_ = std::make_unique_for_overwrite<More[]>(mask_ + 1u);
    more_at_.store(more_.get(), std::memory_order_release);
  }
  More &m = more_[seq & mask_];
  put(m.table, args.call.table);
  put(m.bytes, std::max(bytes_in(args.in_shape), bytes_in(args.out_shape)));
  if (args.call.tag) {
    Tag tag;
    tag.set(args.call.tag);
    std::array<uint64_t, kTagWords> words;
    std::memcpy(words.data(), tag.text.data(), sizeof words);
    for (size_t i = 0; i < kTagWords; i++) put(m.tag[i], words[i]);
  }
  uint32_t all = 0;
  const auto add = [&](const BufferShape &s, const int32_t *peers, bool sending) {
    for (uint32_t i = 0; peers && s.bytes && i < s.blocks; i++, all++) {
      if (all >= kTransfers) continue;
      put(m.peer[all], uint64_t(static_cast<uint32_t>(peers[i])) << 1 | uint64_t(sending));
      put(m.size[all], s.bytes[i]);
    }
  };
  add(args.in_shape, args.in_peers, true);
  add(args.out_shape, args.out_peers, false);
  put(m.transfers, all);
}

void Recorder::read_more(const More &m, Recorded *out) const {
  out->call.table = get(m.table);
  out->bytes = get(m.bytes);
  if (out->tagged) {
    std::array<uint64_t, kTagWords> words;
    for (size_t i = 0; i < kTagWords; i++) words[i] = get(m.tag[i]);
    std::memcpy(out->tag.text.data(), words.data(), sizeof words);
    out->tag.text.back() = 0; // while it is being written, words of two tags may meet
  }
  out->transfers_in_all = static_cast<uint32_t>(get(m.transfers));
  for (size_t i = 0; i < std::min<size_t>(out->transfers_in_all, kTransfers); i++) {
    const uint64_t peer = get(m.peer[i]);
    out->transfers.push_back({static_cast<int32_t>(peer >> 1), (peer & 1) != 0, get(m.size[i])});
  }
}

bool Recorder::read(uint64_t seq, Recorded *out) const {
  constexpr auto acquire = std::memory_order_acquire; // pairs with enqueue()
  const Line &l = line(seq);
  if (seq == 0 || l.seq.load(acquire) != seq) return false;
  *out = {};
  out->seq = seq;
  const uint64_t kind = l.kind.load(acquire);
  CallInfo &call = out->call;
  call.coll = static_cast<tutti_coll>(kind >> 48 & 0xff);
  call.dtype = static_cast<tutti_dtype>(kind >> 40 & 0xff);
  call.op = static_cast<uint32_t>(kind >> 32 & 0xff);
  call.root = static_cast<int32_t>(static_cast<uint32_t>(kind));
  call.count = l.count.load(acquire);
  call.number = l.number.load(acquire);
  out->tagged = kind >> kTagged & 1;
  out->enqueued = l.enqueued.load(acquire);
  out->started = l.started.load(acquire);
  if (out->enqueued == 0) out->enqueued = out->started;
  const uint64_t done = l.done.load(acquire);
  out->done = done & ~kWell;
  out->failed = done != 0 && !(done & kWell);
  out->bound = l.bound.load(acquire);
  const More *more = more_at_.load(acquire);
  if ((kind >> kMore & 1) && more)
    read_more(more[seq & mask_], out);
  else if (const auto n = static_cast<uint32_t>(nranks_); call.coll != TUTTI_COLL_SEND_RECV)
    out->bytes = call.count * dtype_bytes(call.dtype) * std::max(coll_in_blocks(call.coll, n), coll_out_blocks(call.coll, n));
  return l.seq.load(std::memory_order_relaxed) == seq;
}

const Bound *Recorder::bound_of(uint64_t seq) const {
  const Line &l = line(seq);
  return l.seq.load(std::memory_order_acquire) == seq ? l.bound.load(std::memory_order_acquire) : nullptr;
}

void Recorder::forget(const Bound *bound) {
  for (uint32_t i = 0; i <= mask_; i++) {
    const Bound *expected = bound; // the thread that enqueues may be writing another one
    lines_[i].bound.compare_exchange_strong(expected, nullptr, std::memory_order_relaxed);
  }
}

void Recorder::skip(const CallInfo &call) {
  std::lock_guard lock(mutex_);
  Recorded &r = skipped_[skipped_count_++ % kSkipped];
  r.call = call;
  r.call.tag = nullptr;
  r.tagged = call.tag != nullptr;
  if (call.tag) r.tag.set(call.tag);
  r.enqueued = r.started = r.done = ticks::now();
}

void Recorder::event(std::string_view kind, std::string_view text, uint64_t enqueued) {
  std::lock_guard lock(mutex_);
  if (events_.size() >= kEvents) events_.pop_front();
  events_.push_back({ticks::now(), enqueued, std::string(kind), std::string(text)});
}

bool Recorder::find_skipped(uint64_t number, Recorded *out) const {
  std::lock_guard lock(mutex_);
  const auto at = std::find_if(skipped_.begin(), skipped_.end(),
                               [&](const Recorded &r) { return r.enqueued != 0 && r.call.number == number; });
  if (at != skipped_.end()) *out = *at;
  return at != skipped_.end();
}

std::vector<Recorded> Recorder::skipped() const {
  std::vector<Recorded> out;
  std::lock_guard lock(mutex_);
  for (uint64_t i = skipped_count_ - std::min<uint64_t>(skipped_count_, kSkipped); i < skipped_count_; i++)
    out.push_back(skipped_[i % kSkipped]);
  return out;
}

std::vector<EngineEvent> Recorder::events(const ticks::Reader &clock) const {
  std::vector<EngineEvent> out;
  std::lock_guard lock(mutex_);
  for (const Event &e : events_) out.push_back({clock.wall_ns(e.stamp), e.enqueued, e.kind, e.text});
  return out;
}

} // namespace tutti
