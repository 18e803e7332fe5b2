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
  recorder_.skip(call);
}

void EngineImpl::inquire(Clock::time_point now) {
  if (now - blocked_since_ < kAfter || now - inquired_ < kEvery) return;
  Recorded last;
  const bool known = recorder_.read(started_.load(std::memory_order_relaxed), &last);
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
  d.got = call_signature(call);
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
  Recorded one;
  const uint64_t done = completed(); // before the look at what has been enqueued
  for (uint64_t seq = tail_.load(std::memory_order_acquire); seq >= oldest_recorded(); seq--) {
    uint32_t way = d.way;
    std::string by;
    {
      std::lock_guard lock(mutex_); // until the bound has been looked at
      if (!recorder_.read(seq, &one) || one.call.coll == TUTTI_COLL_SEND_RECV || one.call.number > d.number) continue;
      if (one.call.number < d.number) break;                                          // and so are those before it
      if (one.bound && one.started) way = one.bound->way, by = one.bound->way_text(); // before, it may yet run in another way
    }
    if (call_signature(one.call) != d.got) return differ(one.text(), theirs);
    if (way != d.way) return differ(one.text() + by, detail);
    if (one.seq <= done && !one.failed) reply_finished(from, d.number);
    return;
  }
  if (!recorder_.find_skipped(d.number, &one)) return; // not called yet, or long ago
  if (call_signature(one.call) != d.got) return differ(one.text(), theirs);
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
