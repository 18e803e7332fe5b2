// tutti/core/exec/recorder.h: the flight recorder of one engine: its last operations and what befell it. Diagnoses, dumps and
// questions of other ranks all read this.
//
// An operation is written by the thread that enqueues it, and its times by the engine's owner. Readers are any threads, and
// hold up nobody: a record's sequence number is 0 while it is written, and who finds another one behind than before reads
// nothing. A line of memory for each operation; what few calls have (tags, blocks that differ, messages) stands beside.
#pragma once
#include "base/ticks.h"
#include "exec/engine.h"
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

namespace tutti {

// A record as it was read.
struct Recorded {
  CallInfo call; // without its tag
  uint64_t seq = 0;
  uint64_t bytes = 0;
  uint64_t enqueued = 0, started = 0, done = 0; // stamps of base/ticks.h
  bool failed = false;
  const Bound *bound = nullptr; // until the engine releases it
  bool tagged = false;
  Tag tag;
  std::vector<Transfer> transfers;
  uint32_t transfers_in_all = 0;
  std::string text() const {
    CallInfo whole = call;
    whole.tag = tagged ? tag.text.data() : nullptr;
    return describe(whole);
  }
};

class Recorder {
public:
  static constexpr uint32_t kLeast = 256; // twice an engine's queue: what has not completed is never overwritten
  Recorder(uint32_t operations, int nranks);
  uint32_t capacity() const { return mask_ + 1; }

  // [the thread that enqueues] stamp: 0 = it begins at once, so that it will be enough to know when it began.
  void enqueue(uint64_t seq, const OpArgs &args, const Bound *bound, uint64_t stamp) {
    Line &l = line(seq);
    constexpr auto release = std::memory_order_release; // whoever sees one of these also sees that seq is not what it was
    const CallInfo &c = args.call;
    const bool more = c.tag || c.table || args.in_shape.bytes || args.out_shape.bytes;
    l.seq.store(0, std::memory_order_relaxed);
    if (more) [[unlikely]]
      write_more(seq, args);
    l.kind.store(uint64_t(c.tag != nullptr) << kTagged | uint64_t(more) << kMore | uint64_t(c.coll & 0xff) << 48 |
                     uint64_t(c.dtype & 0xff) << 40 | uint64_t(c.op & 0xff) << 32 | static_cast<uint32_t>(c.root),
                 release);
    l.count.store(c.count, release);
    l.number.store(c.number, release);
    l.bound.store(bound, release);
    l.started.store(0, release);
    l.done.store(0, release);
    l.enqueued.store(stamp, release);
    l.seq.store(seq, release);
  }

  // [the owner] stamp: 0 = to be told soon, by began().
  void start(uint64_t seq, const Bound *bound, uint64_t stamp) {
    Line &l = line(seq);
    if (l.bound.load(std::memory_order_relaxed) != bound) [[unlikely]]
      l.bound.store(bound, std::memory_order_release);
    if (stamp) l.started.store(stamp, std::memory_order_release);
  }
  void began(uint64_t seq, uint64_t stamp) { line(seq).started.store(stamp, std::memory_order_release); }
  void complete(uint64_t seq, uint64_t stamp) { line(seq).done.store(stamp | kWell, std::memory_order_release); }
  void lose(uint64_t seq) { line(seq).done.store(ticks::now() & ~kWell, std::memory_order_release); } // it failed alone

  // [any thread]
  bool read(uint64_t seq, Recorded *out) const; // false: overwritten, or just being written
  // [any thread; the caller keeps the bound from going away]
  const Bound *bound_of(uint64_t seq) const;
  void forget(const Bound *bound);

  void skip(const CallInfo &call);
  void event(std::string_view kind, std::string_view text, uint64_t enqueued);
  bool find_skipped(uint64_t number, Recorded *out) const;
  std::vector<Recorded> skipped() const;
  std::vector<EngineEvent> events(const ticks::Reader &clock) const;

private:
  static constexpr uint32_t kTagged = 63, kMore = 62; // bits of `kind`
  static constexpr uint64_t kWell = 1;                // of `done`
  static constexpr size_t kTransfers = 8;             // kept of one operation
  static constexpr size_t kEvents = 64, kSkipped = 32;
  struct alignas(64) Line {
    std::atomic<uint64_t> seq{0}, kind{0}, count{0}, number{0}, enqueued{0}, started{0}, done{0};
    std::atomic<const Bound *> bound{nullptr};
  };
  static constexpr size_t kTagWords = (kTagBytes + 1) / sizeof(uint64_t);
  struct More { // words that are written and read as the line's; not cleared before their first use
    uint64_t table, bytes, transfers;
    uint64_t tag[kTagWords];
    uint64_t peer[kTransfers], size[kTransfers]; // peer << 1 | sending
  };
  struct Event {
    uint64_t stamp, enqueued;
    std::string kind, text;
  };

  Line &line(uint64_t seq) { return lines_[seq & mask_]; }
  const Line &line(uint64_t seq) const { return lines_[seq & mask_]; }
  [[gnu::cold, gnu::noinline]] void write_more(uint64_t seq, const OpArgs &args);
  void read_more(const More &more, Recorded *out) const;

  const uint32_t mask_;
  const int nranks_;
  std::unique_ptr<Line[]> lines_;
  std::unique_ptr<More[]> more_;         // made when first needed
  std::atomic<More *> more_at_{nullptr}; // the same, for readers
  mutable std::mutex mutex_;             // guards the rest; held for moments
  std::array<Recorded, kSkipped> skipped_{};
  uint64_t skipped_count_ = 0; // so far
  std::deque<Event> events_;
};

} // namespace tutti
