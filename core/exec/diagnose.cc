// Who waits for whom, who called what: errors that name both sides.
#include "exec/diagnose.h"
#include "base/types.h"
#include "exec/engine_impl.h"
#include "transport/collnet_port.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

constexpr auto kAnswerTime = std::chrono::seconds(2); // a crowded machine; a peer that lives answers at once

bool has_message(const Ring &r, Transport &transport) {
  if (r.group) return transport.collnet()->arrived(r);
  return r.net ? transport.net()->arrived(r) : word_arrived(r);
}

// Whom a link leads to: of a collnet group all other members.
std::vector<int> peers_of(const BoundLink &link) {
  if (!link.ring->group) return {link.peer};
  const CollnetGroup &g = *link.ring->group->group;
  std::vector<int> out;
  for (size_t i = 0; i < g.members.size(); i++)
    if (static_cast<int32_t>(i) != g.member) out.push_back(g.members[i]);
  return out;
}

int32_t group_of(const BoundLink &link) {
  return link.ring->group ? static_cast<int32_t>(link.ring->group->group->number) : -1;
}

const char *unreadable_hint(int err) {
  return err == ESRCH    ? "the process has ended"
         : err == EFAULT ? "it has ended, or freed a buffer of an operation that had not completed"
                         : "shm.pull = \"mapped\" (TUTTI_SHM_PULL) does without";
}
const char *unmapped_hint(int err) {
  switch (err) {
  case ENOENT:
    return "it freed the memory of an operation that had not completed";
  case EMFILE:
  case ENFILE:
    return "raise ulimit -n, or use other memory than tuttiMemAlloc's";
  default:
    return "use other memory than tuttiMemAlloc's, or another protocol than pull (TUTTI_PROTO)";
  }
}

} // namespace

size_t EngineImpl::waiting_for(std::span<WaitFor> out) {
  size_t n = 0;
  if (!active_) return n;
  const auto add = [&](int peer, bool receiving, uint32_t slice, bool hidden = false, int32_t group = -1) {
    const bool known =
        std::any_of(out.begin(), out.begin() + n, [&](const WaitFor &w) { return w.peer == peer && w.receiving == receiving; });
    if (!known && n < out.size()) out[n++] = {peer, receiving, slice, hidden, group};
  };
  for (Lane &lane : active_->lanes) {
    if (lane.finished || lane.pc >= lane.step_count) continue;
    if (active_->multi && lane.iter == 0 && !active_->step_major && !may_start(*active_, lane)) continue;
    const BoundStep &s = lane.steps[lane.pc];
    for (uint32_t i = 0; i < s.recv_count; i++)
      if (&s.recv[i] == frame_.unread || !has_message(*s.recv[i].ring, *transport_))
        for (const int peer : peers_of(s.recv[i]))
          add(peer, true, lane.slice, s.recv[i].ring->group || (!s.recv[i].ring->net && !visible(*s.recv[i].ring)),
              group_of(s.recv[i]));
    for (uint32_t i = 0; i < s.cold->step.send_count; i++)
      if (!ring_can_send(*s.send[i].ring))
        for (const int peer : s.send[i].ring->group ? peers_of(s.send[i]) : transport_->full_at(*s.send[i].ring))
          add(peer, false, lane.slice, false, group_of(s.send[i]));
  }
  const auto last = slices_ ? static_cast<uint32_t>(slices_ - 1) : 0;
  if (draining_ && active_->has_net)
    for (const int peer : transport_->net()->unread_by()) add(peer, false, last);
  for (const Ring *r : active_->lending) // has still to read this rank's memory; not by what was known of it some time ago
    if (draining_ && r->cold->described > r->credit && r->cold->described > load_acquire(r->credit_line))
      add(r->cold->peer, false, last);
  return n;
}

// A group once, whoever is in it.
std::string EngineImpl::wait_text(std::span<const WaitFor> waits, uint64_t slices) {
  std::string out;
  for (size_t i = 0; i < waits.size(); i++) {
    const WaitFor &w = waits[i];
    const auto same = [&](const WaitFor &x) { return x.group == w.group && x.receiving == w.receiving; };
    if (w.group >= 0 && std::any_of(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(i), same)) continue;
    const std::string whom = w.group >= 0 ? fmt::format("collnet group {}", w.group) : fmt::format("rank {}", w.peer);
    out += fmt::format("{}{} ({}, slice {} of {})", out.empty() ? "" : " and ", whom, w.receiving ? "recv" : "send",
                       w.slice + 1, slices);
  }
  return out;
}

// Kept as numbers: a wait of a millisecond is ordinary, and must not allocate.
void EngineImpl::note_waiting() {
  std::lock_guard lock(mutex_);
  waits_count_ = waiting_for(waits_);
  waits_slices_ = slices_;
  waits_seq_ = started_.load(std::memory_order_relaxed);
  noted_ = true;
}

std::string EngineImpl::recent_call(uint64_t seq) const {
  Remembered call;
  if (seq == 0 || !read_recent(recent_[seq % kRecent], &call) || call.seq != seq) return "an operation long ago";
  return call.text();
}

// The call, and behind a NUL also how it is run: what tells two ranks apart that make the same call.
std::string EngineImpl::call_and_way(uint64_t seq) const {
  std::string out = recent_call(seq);
  std::lock_guard lock(mutex_); // until the bound has been looked at
  const Recent &r = recent_[seq % kRecent];
  const Bound *b = r.seq.load(std::memory_order_relaxed) == seq ? r.bound.load(std::memory_order_relaxed) : nullptr;
  return out + '\0' + out + (b ? b->way_text() : "");
}

std::string EngineImpl::activity() const {
  const uint64_t started = started_.load(std::memory_order_acquire), done = completed();
  if (started > done) {
    std::string out = recent_call(started);
    std::lock_guard lock(mutex_);
    if (waits_seq_ == started && waits_count_) out += ", waits for " + wait_text({waits_.data(), waits_count_}, waits_slices_);
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
        return report_mismatch(s.recv[i].peer, s.recv[i].ring->cold->conn, 0, false);
  }
}

void EngineImpl::explain_fault() {
  const Mismatch &m = frame_.mismatch;
  if (m.read_errno) return report_unreadable(m);
  report_mismatch(m.link->peer, m.link->ring->cold->conn, m.got, true);
}

void EngineImpl::report_unreadable(const Mismatch &m) {
  const int peer = m.link->peer;
  Error e;
  e.code = Code::remote;
  e.peer = peer;
  e.sys_errno = m.read_errno;
  e.operation = recent_call(started_.load(std::memory_order_relaxed));
  e.message = fmt::format("{} cannot read what rank {} sends in its memory (process {}): {}: {}", e.operation, peer,
                          transport_->pid(peer), m.mapping ? "mapping of its tuttiMemAlloc memory" : "process_vm_readv",
                          std::strerror(m.read_errno));
  e.hint = m.mapping ? unmapped_hint(m.read_errno) : unreadable_hint(m.read_errno);
  die(std::move(e));
}

void EngineImpl::ask(int peer, Diagnose d, const std::string &text) {
  if (questions_.empty()) answer_until_ = Clock::now() + kAnswerTime;
  d.nonce = nonce_++;
  if (send_diagnose(bootstrap_, peer, d, text).ok()) questions_.push_back({peer, d.nonce});
}

bool EngineImpl::answered() {
  std::lock_guard lock(mutex_);
  return Clock::now() >= answer_until_ || std::all_of(questions_.begin(), questions_.end(), [this](const Question &q) {
           return answers_.find(q.nonce) != answers_.end();
         });
}

std::optional<EngineImpl::Answer> EngineImpl::answer_of(int peer) {
  const auto q = std::find_if(questions_.begin(), questions_.end(), [&](const Question &x) { return x.peer == peer; });
  if (q == questions_.end()) return std::nullopt;
  std::lock_guard lock(mutex_);
  const auto it = answers_.find(q->nonce);
  return it == answers_.end() ? std::nullopt : std::optional(it->second);
}

void EngineImpl::forget_questions() {
  questions_.clear();
  std::lock_guard lock(mutex_);
  answers_.clear();
}

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

Status send_diagnose(Bootstrap &bootstrap, int to, const Diagnose &head, std::string_view text) {
  Bytes data(sizeof head + text.size());
  std::memcpy(data.data(), &head, sizeof head);
  std::memcpy(data.data() + sizeof head, text.data(), text.size());
  return bootstrap.send(to, kDiagnoseTag, data);
}

void EngineImpl::disagree(int peer, const std::string &mine, const std::string &theirs) {
  Error e = disagreement(rank_, mine, peer, theirs);
  e.peer = peer;
  e.operation = mine;
  die(std::move(e));
}

// Both as of call_and_way().
void EngineImpl::tell_apart(int peer, const std::string &mine, const std::string &theirs) {
  const auto part = [](const std::string &text, bool way) {
    const size_t cut = text.find('\0');
    return cut == std::string::npos ? text : way ? text.substr(cut + 1) : text.substr(0, cut);
  };
  const auto untagged = [&](const std::string &text) { // tags are the ranks' own
    const std::string call = part(text, false);
    return call.ends_with(']') ? call.substr(0, call.rfind(" [")) : call;
  };
  const bool way = untagged(mine) == untagged(theirs);
  disagree(peer, part(mine, way), part(theirs, way));
}

// Asks at the first call and fails when the answer is there or late; until then the fault is found again and again.
void EngineImpl::report_mismatch(int peer, uint16_t conn, uint32_t got, bool have_signature) {
  const std::string mine = call_and_way(started_.load(std::memory_order_relaxed));
  if (questions_.empty()) {
    Diagnose d;
    d.type = Diagnosis::mismatch;
    d.conn = conn;
    d.got = got;
    d.has_signature = have_signature;
    ask(peer, d, mine);
  }
  if (answered()) tell_apart(peer, mine, answer_of(peer).value_or(Answer{{}, "another operation"}).text);
}

// Which of this rank's calls sent a message with this signature to `from` on `conn`: the newest that fits, else the newest.
uint64_t EngineImpl::call_for(int from, uint32_t conn, uint32_t got, bool have_signature) const {
  const uint64_t started = started_.load(std::memory_order_acquire);
  for (uint64_t seq = started; have_signature && seq > 0 && started - seq < kRecent; seq--) {
    const Recent &r = recent_[seq % kRecent];
    std::lock_guard lock(mutex_); // until b has been looked at
    const Bound *b = r.bound.load(std::memory_order_relaxed);
    const auto signature = static_cast<uint32_t>(r.root_signature.load(std::memory_order_relaxed));
    if (r.seq.load(std::memory_order_relaxed) != seq || !b) continue;
    for (const Lane &lane : b->lanes)
      for (const BoundLink &l : lane.send)
        if ((l.peer == from || l.ring->cold->geometry.readers) && l.ring->cold->conn == conn &&
            (signature ^ l.fingerprint) == got)
          return seq;
  }
  return started;
}

void EngineImpl::on_diagnose(Message message) {
  Diagnose d;
  if (message.data.size() < sizeof d) return;
  std::memcpy(&d, message.data.data(), sizeof d);
  std::string text(reinterpret_cast<const char *>(message.data.data()) + sizeof d, message.data.size() - sizeof d);
  switch (d.type) {
  case Diagnosis::answer: {
    std::lock_guard lock(mutex_);
    if (answers_.size() < 64) answers_[d.nonce] = {d, std::move(text)};
    return;
  }
  case Diagnosis::inquire:
    return on_inquire(message.from, d, text);
  case Diagnosis::finished:
    return on_finished(message.from, d.number);
  case Diagnosis::differs: {
    const size_t cut = std::min(text.find('\0'), text.size());
    return disagree(message.from, cut < text.size() ? text.substr(cut + 1) : "another operation", text.substr(0, cut));
  }
  case Diagnosis::lost:
  case Diagnosis::halt:
  case Diagnosis::halted:
  case Diagnosis::resolved:
    return on_loss(message.from, d, text);
  case Diagnosis::ask:
  case Diagnosis::mismatch:
    break;
  default:
    return;
  }
  Diagnose reply;
  reply.type = Diagnosis::answer;
  reply.nonce = d.nonce;
  if (d.type == Diagnosis::ask) say_doing(&reply);
  const uint64_t seq = d.type == Diagnosis::ask ? 0 : call_for(message.from, d.conn, d.got, d.has_signature != 0);
  const std::string mine = d.type == Diagnosis::ask ? activity() : seq ? call_and_way(seq) : "nothing yet";
  (void)send_diagnose(bootstrap_, message.from, reply, mine); // a peer that is gone needs no answer
  if (d.type == Diagnosis::mismatch) tell_apart(message.from, mine, text);
}

void EngineImpl::say_doing(Diagnose *answer) const {
  const uint64_t done = completed();
  answer->doing = tail_.load(std::memory_order_acquire) > done ? Doing::busy : Doing::idle;
  Remembered last;
  if (done == 0 || !read_recent(recent_[done % kRecent], &last) || last.seq != done) return;
  answer->got = last.signature;
  answer->number = last.call.number;
}

// What the ranks do that were asked. absent: the first of them that has not called the operation, or does not answer; -1: none.
std::string EngineImpl::answers_text(int *absent) {
  Remembered mine;
  const bool known = read_recent(recent_[started_.load(std::memory_order_relaxed) % kRecent], &mine);
  std::string said;
  *absent = -1;
  for (const Question &q : questions_) {
    const auto answer = answer_of(q.peer);
    const bool idle = answer && answer->head.doing == Doing::idle;
    const bool done = idle && known && answer->head.number == mine.call.number && answer->head.got == mine.signature;
    std::string does = answer ? "is in " + answer->text : "does not answer";
    if (idle) does = done ? "has completed it" : "has not called it: it is " + answer->text;
    if (*absent < 0 && (!answer || (idle && !done))) *absent = q.peer;
    said += fmt::format("; rank {} {}", q.peer, does);
  }
  return said;
}

// Asks at the first call, ends when the answers are there or late: the groups if that helps, else all.
void EngineImpl::expire(Nanos waited) {
  std::array<WaitFor, kMostNamed> room{};
  const std::span<const WaitFor> waits(room.data(), waiting_for(room));
  if (questions_.empty()) {
    Diagnose d;
    d.type = Diagnosis::ask;
    for (const WaitFor &w : waits)
      if (std::none_of(questions_.begin(), questions_.end(), [&](const Question &q) { return q.peer == w.peer; }))
        ask(w.peer, d, "");
  }
  if (!answered()) return;
  int absent = -1;
  const std::string said = answers_text(&absent);
  std::string who = waits.empty() ? "the network" : wait_text(waits, slices_);
  const auto group = std::find_if(waits.begin(), waits.end(), [](const WaitFor &w) { return w.group >= 0; });
  if (group != waits.end()) who += fmt::format(" [{}]", transport_->collnet()->describe(static_cast<uint32_t>(group->group)));
  Error e;
  e.code = Code::timeout;
  e.peer = group == waits.end() && !waits.empty() ? waits.front().peer : absent;
  e.operation = recent_call(started_.load(std::memory_order_relaxed));
  e.message = fmt::format("{} made no progress for {} ms; it waits for {}{}", e.operation,
                          std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), who, said);
  if (absent < 0 && give_groups_up(e.message)) return;
  e.hint = "see core.timeout (TUTTI_TIMEOUT)";
  die(std::move(e));
}

} // namespace tutti
