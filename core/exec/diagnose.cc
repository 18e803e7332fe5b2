// Who waits for whom, who called what: errors that name both sides.
#include "base/types.h"
#include "exec/engine_impl.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

enum : uint32_t { kAsk = 1, kMismatch = 2, kAnswer = 3 };
enum : uint32_t { kHasSignature = 1 };
constexpr auto kAnswerTime = std::chrono::milliseconds(500);
constexpr size_t kMostNamed = 8; // ranks asked and named in one error
const uint64_t kTag = make_tag(MsgKind::diagnose, 0);

// Followed by text.
struct Diagnose {
  uint32_t type, conn, got, flags;
  uint64_t nonce;
};

bool has_message(const Ring &r, NetPort *net) {
  if (r.net) return net->arrived(r);
  return uint32_t(load_acquire(slot_at(r) + r.cold->geometry.word_offset)) == uint32_t(r.seq + 1);
}

} // namespace

std::vector<EngineImpl::WaitFor> EngineImpl::waiting_for() {
  std::vector<WaitFor> out;
  if (!active_) return out;
  const auto add = [&](int peer, bool receiving, uint32_t slice) {
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const WaitFor &w) { return w.peer == peer && w.receiving == receiving; });
    if (!known) out.push_back({peer, receiving, slice});
  };
  for (Lane &lane : active_->lanes) {
    if (lane.finished || lane.pc >= lane.step_count) continue;
    if (active_->multi && lane.iter == 0 && !active_->step_major && !may_start(*active_, lane)) continue;
    const BoundStep &s = lane.steps[lane.pc];
    for (uint32_t i = 0; i < s.recv_count; i++)
      if (!has_message(*s.recv[i].ring, transport_->net())) add(s.recv[i].peer, true, lane.slice);
    for (uint32_t i = 0; i < s.cold->step.send_count; i++)
      if (!ring_can_send(*s.send[i].ring)) add(s.send[i].peer, false, lane.slice);
  }
  return out;
}

void EngineImpl::note_waiting() {
  std::string text;
  for (const WaitFor &w : waiting_for()) {
    if (!text.empty()) text += " and ";
    text += fmt::format("rank {} ({}, slice {} of {})", w.peer, w.receiving ? "recv" : "send", w.slice + 1, slices_);
  }
  std::lock_guard lock(mutex_);
  waiting_text_ = std::move(text);
  waiting_seq_ = started_.load(std::memory_order_relaxed);
  noted_ = true;
}

std::string EngineImpl::recent_call(uint64_t seq) const {
  const Recent &r = recent_[seq % kRecent];
  constexpr auto relaxed = std::memory_order_relaxed;
  if (seq == 0 || r.seq.load(relaxed) != seq) return "an operation long ago";
  const uint64_t type_op = r.type_op.load(relaxed);
  CallInfo c;
  c.coll = static_cast<tutti_coll>(type_op >> 48);
  c.dtype = static_cast<tutti_dtype>(type_op >> 32 & 0xffff);
  c.op = static_cast<uint32_t>(type_op);
  c.root = static_cast<int32_t>(r.root_signature.load(relaxed) >> 32);
  c.count = r.count.load(relaxed);
  c.number = r.number.load(relaxed);
  return describe(c);
}

std::string EngineImpl::activity() const {
  const uint64_t started = started_.load(std::memory_order_acquire), done = completed();
  if (started > done) {
    std::string out = recent_call(started);
    std::lock_guard lock(mutex_);
    if (waiting_seq_ == started && !waiting_text_.empty()) out += ", waits for " + waiting_text_;
    return out;
  }
  if (tail_.load(std::memory_order_acquire) > done)
    return fmt::format("{} operations enqueued that wait for other communicators", tail_.load() - done);
  return done == 0 ? "idle, it has not called anything yet" : "idle after " + recent_call(done);
}

void EngineImpl::look_for_disagreement() {
  if (!active_) return;
  for (Lane &lane : active_->lanes) {
    if (lane.finished || lane.pc >= lane.step_count) continue;
    if (active_->multi && lane.iter == 0 && !active_->step_major && !may_start(*active_, lane)) continue;
    const BoundStep &s = lane.steps[lane.pc];
    for (uint32_t i = 0; i < s.recv_count; i++)
      if (transport_->peer_went_elsewhere(*s.recv[i].ring))
        return report_mismatch(s.recv[i].peer, s.recv[i].ring->cold->conn, s.recv[i].fingerprint, 0, false);
  }
}

void EngineImpl::explain_fault() {
  Fault fault = std::move(frame_.fault);
  frame_.fault = {};
  if (fault.kind == Fault::mismatch)
    return report_mismatch(fault.link->peer, fault.link->ring->cold->conn, fault.link->fingerprint, fault.got, true);
  if (fault.status.ok()) fault.status = tutti::fail(Code::internal, "operation failed without a reason");
  die(fault.status.error());
}

std::optional<std::string> EngineImpl::ask(int peer, uint32_t type, uint32_t conn, uint32_t got, uint32_t flags,
                                           const std::string &text, Nanos patience) {
  const uint64_t nonce = nonce_.fetch_add(1, std::memory_order_relaxed);
  const Diagnose d{type, conn, got, flags, nonce};
  Bytes data(sizeof d + text.size());
  std::memcpy(data.data(), &d, sizeof d);
  std::memcpy(data.data() + sizeof d, text.data(), text.size());
  if (!bootstrap_.send(peer, kTag, data).ok()) return std::nullopt;
  std::unique_lock lock(mutex_);
  const auto until = Clock::now() + patience;
  while (answers_.find(nonce) == answers_.end() && !failed() && Clock::now() < until) changed_.wait_until(lock, until);
  const auto it = answers_.find(nonce);
  if (it == answers_.end()) return std::nullopt;
  std::string answer = std::move(it->second);
  answers_.erase(it);
  return answer;
}

namespace {

// The same line on both sides, the lower rank first.
Error disagreement(int rank_a, std::string call_a, int rank_b, std::string call_b) {
  if (rank_b < rank_a) {
    std::swap(rank_a, rank_b);
    std::swap(call_a, call_b);
  }
  Error e;
  e.code = Code::invalid_usage;
  e.phase = "operation";
  e.message = fmt::format("rank {} calls {}, rank {} calls {}", rank_a, call_a, rank_b, call_b);
  e.hint = "all ranks must make the same calls in the same order, with the same count, type, operation and root";
  return e;
}

} // namespace

void EngineImpl::report_mismatch(int peer, uint16_t conn, uint32_t, uint32_t got, bool have_signature) {
  const std::string mine = recent_call(started_.load(std::memory_order_relaxed));
  const auto theirs = ask(peer, kMismatch, conn, got, have_signature ? kHasSignature : 0u, mine, kAnswerTime);
  Error e = disagreement(rank_, mine, peer, theirs.value_or("another operation"));
  e.peer = peer;
  e.operation = mine;
  die(std::move(e));
}

// Which of this rank's calls sent a message with this signature to `from` on `conn`: the newest that fits, else the newest.
std::string EngineImpl::call_for(int from, uint32_t conn, uint32_t got, bool have_signature) const {
  const uint64_t started = started_.load(std::memory_order_acquire);
  for (uint64_t seq = started; have_signature && seq > 0 && started - seq < kRecent; seq--) {
    const Recent &r = recent_[seq % kRecent];
    const Bound *b = r.bound.load(std::memory_order_relaxed);
    const auto signature = static_cast<uint32_t>(r.root_signature.load(std::memory_order_relaxed));
    if (r.seq.load(std::memory_order_relaxed) != seq || !b) continue;
    for (const Lane &lane : b->lanes)
      for (const BoundLink &l : lane.send)
        if (l.peer == from && l.ring->cold->conn == conn && (signature ^ l.fingerprint) == got) return recent_call(seq);
  }
  return started ? recent_call(started) : "nothing yet";
}

void EngineImpl::on_diagnose(Message message) {
  Diagnose d;
  if (message.data.size() < sizeof d) return;
  std::memcpy(&d, message.data.data(), sizeof d);
  std::string text(reinterpret_cast<const char *>(message.data.data()) + sizeof d, message.data.size() - sizeof d);
  if (d.type == kAnswer) {
    {
      std::lock_guard lock(mutex_);
      if (answers_.size() < 64) answers_[d.nonce] = std::move(text);
    }
    changed_.notify_all();
    return;
  }
  if (d.type != kAsk && d.type != kMismatch) return;
  const std::string mine = d.type == kAsk ? activity() : call_for(message.from, d.conn, d.got, d.flags & kHasSignature);
  const Diagnose reply{kAnswer, 0, 0, 0, d.nonce};
  Bytes data(sizeof reply + mine.size());
  std::memcpy(data.data(), &reply, sizeof reply);
  std::memcpy(data.data() + sizeof reply, mine.data(), mine.size());
  (void)bootstrap_.send(message.from, kTag, data); // a peer that is gone needs no answer
  if (d.type == kAsk) return;
  Error e = disagreement(rank_, mine, message.from, std::move(text));
  e.peer = message.from;
  e.operation = mine;
  die(std::move(e));
}

void EngineImpl::expire(Nanos waited) {
  const std::string call = recent_call(started_.load(std::memory_order_relaxed));
  const auto waits = waiting_for();
  std::string who, said;
  std::vector<int> asked;
  for (const WaitFor &w : waits) {
    if (asked.size() == kMostNamed) break;
    who += fmt::format("{}rank {} ({}, slice {} of {})", who.empty() ? "" : " and ", w.peer, w.receiving ? "recv" : "send",
                       w.slice + 1, slices_);
    if (std::find(asked.begin(), asked.end(), w.peer) != asked.end()) continue;
    asked.push_back(w.peer);
    const auto answer =
        ask(w.peer, kAsk, 0, 0, 0, "", Nanos(kAnswerTime) / static_cast<int64_t>(std::max<size_t>(1, waits.size())));
    const bool idle_peer = answer && answer->starts_with("idle");
    said += answer ? fmt::format("; rank {} {}{}", w.peer, idle_peer ? "has not called it: it is " : "is in ", *answer)
                   : fmt::format("; rank {} does not answer", w.peer);
  }
  if (failed()) return;
  Error e;
  e.code = Code::timeout;
  e.peer = waits.empty() ? -1 : waits.front().peer;
  e.operation = call;
  e.message = fmt::format("{} made no progress for {} ms; it waits for {}{}", call,
                          std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(),
                          who.empty() ? "the network" : who, said);
  e.hint = "see core.timeout (TUTTI_TIMEOUT)";
  die(std::move(e));
}

} // namespace tutti
