// Finds out, while this rank waits, whether the ranks that it waits for run the same call. Messages that meet in a link tell it
// at once; this is for those that never meet: other links, another slot geometry, a side that has nothing to send.
#include "base/types.h"
#include "exec/diagnose.h"
#include "exec/engine_impl.h"
#include <algorithm>

namespace tutti {
namespace {

constexpr auto kAfter = std::chrono::milliseconds(50); // longer than an ordinary wait
constexpr auto kEvery = std::chrono::milliseconds(250);

} // namespace

void EngineImpl::skip(const CallInfo &call) {
  std::lock_guard lock(mutex_);
  Remembered &r = skipped_[skipped_count_++ % skipped_.size()];
  r.call = call;
  r.call.tag = nullptr;
  r.tagged = call.tag != nullptr;
  if (call.tag) r.tag.set(call.tag);
}

// Words of a remembered call, unless the owner is just writing another one there.
bool EngineImpl::read_recent(const Recent &r, Remembered *out) const {
  constexpr auto acquire = std::memory_order_acquire; // pairs with remember()
  CallInfo *const call = &out->call;
  out->seq = r.seq.load(acquire);
  if (out->seq == 0) return false;
  const uint64_t type_op = r.type_op.load(acquire), root_signature = r.root_signature.load(acquire);
  out->tagged = type_op >> kTagged & 1;
  if (out->tagged) {
    std::array<uint64_t, kTagWords> words;
    for (size_t i = 0; i < kTagWords; i++) words[i] = recent_tags_[out->seq % kRecent][i].load(acquire);
    std::memcpy(out->tag.text.data(), words.data(), sizeof words);
    out->tag.text.back() = 0; // while it is being written, words of two tags may meet
  }
  call->coll = static_cast<tutti_coll>(type_op >> 48 & 0x7fff);
  call->dtype = static_cast<tutti_dtype>(type_op >> 32 & 0xffff);
  call->op = static_cast<uint32_t>(type_op);
  call->root = static_cast<int32_t>(root_signature >> 32);
  call->count = r.count.load(acquire);
  call->table = r.table.load(acquire);
  call->number = r.number.load(acquire);
  out->signature = static_cast<uint32_t>(root_signature);
  return r.seq.load(std::memory_order_relaxed) == out->seq;
}

void EngineImpl::inquire(Clock::time_point now) {
  if (now - blocked_since_ < kAfter || now - inquired_ < kEvery) return;
  Remembered last;
  const bool known = read_recent(recent_[started_.load(std::memory_order_relaxed) % kRecent], &last);
  const CallInfo &call = last.call;
  if (!active_ || !known || call.coll == TUTTI_COLL_SEND_RECV) return; // sends and receives have no common number
  inquired_ = now;
  std::map<int, uint64_t> finished;
  {
    std::lock_guard lock(mutex_);
    finished = finished_; // before the look at what has arrived
  }
  std::array<WaitFor, kMostNamed> room{};
  const size_t waits = waiting_for(room);
  Diagnose d;
  d.type = Diagnosis::inquire;
  d.got = last.signature;
  d.way = active_->way;
  d.number = call.number;
  const std::string mine = last.text(), detail = mine + active_->way_text();
  for (size_t i = 0; i < waits && !failed(); i++) {
    const WaitFor &w = room[i];
    const auto done = finished.find(w.peer);
    // What a finished peer sent through memory is here; a network may still carry it.
    // What it has not read by then it never will.
    if (!w.hidden && (w.receiving || draining_) && done != finished.end() && done->second == call.number &&
        transport_->link_class(w.peer) != LinkClass::net)
      return sizes_differ(w.peer, mine, w.receiving);
    (void)send_diagnose(bootstrap_, w.peer, d, mine + '\0' + detail); // a peer that is gone is noticed elsewhere
  }
}

void EngineImpl::sizes_differ(int peer, const std::string &mine, bool receiving) {
  Error e;
  e.code = Code::invalid_usage;
  e.peer = peer;
  e.operation = mine;
  e.message = fmt::format("rank {} has completed {} without {} in it", peer, mine,
                          receiving ? fmt::format("sending what rank {} waits for", rank_)
                                    : fmt::format("taking all that rank {} sends to it", rank_));
  e.hint = "the two ranks gave different sizes for what the one sends to the other";
  die(std::move(e));
}

void EngineImpl::on_inquire(int from, const Diagnose &d, const std::string &text) {
  const size_t cut = std::min(text.find('\0'), text.size());
  const std::string theirs = text.substr(0, cut), detail = cut < text.size() ? text.substr(cut + 1) : theirs;
  const auto differ = [&](const std::string &mine, const std::string &other) {
    Diagnose reply;
    reply.type = Diagnosis::differs;
    (void)send_diagnose(bootstrap_, from, reply, mine + '\0' + other);
    disagree(from, mine, other);
  };
  for (const Recent &r : recent_) {
    Remembered one;
    uint32_t way = d.way;
    std::string by;
    {
      std::lock_guard lock(mutex_); // until the bound has been looked at
      if (!read_recent(r, &one) || one.call.coll == TUTTI_COLL_SEND_RECV || one.call.number != d.number) continue;
      if (const Bound *b = r.bound.load(std::memory_order_relaxed)) way = b->way, by = b->way_text();
    }
    if (one.signature != d.got) return differ(one.text(), theirs);
    if (way != d.way) return differ(one.text() + by, detail);
    if (one.seq <= completed()) return reply_finished(from, d.number);
    return;
  }
  std::optional<Remembered> skipped;
  {
    std::lock_guard lock(mutex_);
    for (const Remembered &c : skipped_)
      if (c.call.number == d.number) skipped = c;
  }
  if (!skipped) return; // not called yet, or long ago
  if (call_signature(skipped->call) != d.got) return differ(skipped->text(), theirs);
  reply_finished(from, d.number);
}

void EngineImpl::reply_finished(int to, uint64_t number) {
  Diagnose reply;
  reply.type = Diagnosis::finished;
  reply.number = number;
  (void)send_diagnose(bootstrap_, to, reply, "");
}

void EngineImpl::on_finished(int from, uint64_t number) {
  std::lock_guard lock(mutex_);
  finished_[from] = number;
}

} // namespace tutti
