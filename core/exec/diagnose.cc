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

constexpr auto kAnswerTime = std::chrono::seconds(2);  // a crowded machine; a peer that lives answers at once
constexpr auto kLate = std::chrono::milliseconds(700); // and so long after a deadline that is shorter than that
constexpr size_t kMostAsked = 256;                     // ranks, by one that wants to know where the waiting ends

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

// Messages of the present operation, by peer and direction.
size_t EngineImpl::note_progress() {
  size_t n = 0;
  const auto add = [&](const BoundLink &l, bool sending) {
    const uint64_t messages = l.ring->seq - l.began;
    const auto end = progress_.begin() + static_cast<std::ptrdiff_t>(n);
    const auto at = std::find_if(progress_.begin(), end,
                                 [&](const EngineState::Progress &p) { return p.peer == l.peer && p.sending == sending; });
    if (at != end)
      at->messages += messages;
    else if (n < progress_.size())
      progress_[n++] = {l.peer, sending, messages};
  };
  for (const Lane &lane : active_->lanes) {
    for (const BoundLink &l : lane.recv) add(l, false);
    for (const BoundLink &l : lane.send) add(l, true);
  }
  return n;
}

// Kept as numbers: a wait of a millisecond is ordinary, and must not allocate.
void EngineImpl::note_waiting() {
  if (!active_) return;
  std::array<WaitFor, kMostNamed> now{};
  const size_t count = waiting_for(now);
  const uint64_t seq = started_.load(std::memory_order_relaxed), stamp = ticks::now();
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < count; i++) {
    const auto same = [&](const WaitFor &w) {
      return w.peer == now[i].peer && w.receiving == now[i].receiving && w.slice == now[i].slice;
    };
    const auto end = waits_.begin() + static_cast<std::ptrdiff_t>(waits_seq_ == seq ? waits_count_ : 0);
    const auto before = std::find_if(waits_.begin(), end, same);
    now[i].since = before != end ? before->since : stamp;
  }
  waits_ = now;
  waits_count_ = count;
  waits_slices_ = slices_;
  waits_seq_ = seq;
  waits_noted_ = stamp;
  progress_count_ = note_progress();
}

std::string EngineImpl::recent_call(uint64_t seq) const {
  Recorded call;
  return recorder_.read(seq, &call) ? call.text() : "an operation long ago";
}

// The call, and behind a NUL also how it is run: what tells two ranks apart that make the same call.
std::string EngineImpl::call_and_way(uint64_t seq) const {
  std::string out = recent_call(seq);
  std::lock_guard lock(mutex_); // until the bound has been looked at
  const Bound *b = recorder_.bound_of(seq);
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

void EngineImpl::ask(int peer, Diagnose d, const std::string &text, Clock::time_point until) {
  answer_until_ = until;
  d.nonce = nonce_++;
  if (send_diagnose(bootstrap_, peer, d, text).ok()) questions_.push_back({peer, d.nonce, d.type});
}

bool EngineImpl::answered() {
  std::lock_guard lock(mutex_);
  return Clock::now() >= answer_until_ || std::all_of(questions_.begin(), questions_.end(), [this](const Question &q) {
           return answers_.find(q.nonce) != answers_.end();
         });
}

std::optional<EngineImpl::Answer> EngineImpl::answer_of(int peer) const {
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
  if (questions_.empty() || questions_.front().type != Diagnosis::mismatch) {
    forget_questions(); // of a deadline
    Diagnose d;
    d.type = Diagnosis::mismatch;
    d.conn = conn;
    d.got = got;
    d.has_signature = have_signature;
    ask(peer, d, mine, Clock::now() + kAnswerTime);
  }
  if (answered()) tell_apart(peer, mine, answer_of(peer).value_or(Answer{{}, "another operation"}).text);
}

// Which of this rank's calls sent a message with this signature to `from` on `conn`: the newest that fits, else the newest.
uint64_t EngineImpl::call_for(int from, uint32_t conn, uint32_t got, bool have_signature) const {
  const uint64_t started = started_.load(std::memory_order_acquire);
  Recorded one;
  for (uint64_t seq = started; have_signature && seq >= oldest_recorded(); seq--) {
    std::lock_guard lock(mutex_); // until b has been looked at
    if (!recorder_.read(seq, &one) || !one.bound) continue;
    const Bound *b = one.bound;
    const uint32_t signature = call_signature(one.call);
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
    if (answers_.size() < kMostAsked) answers_[d.nonce] = {d, std::move(text)};
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
  {
    std::lock_guard lock(mutex_);
    const bool waits = waits_seq_ == started_.load(std::memory_order_relaxed) && waits_seq_ > done;
    answer->wait_count = waits ? static_cast<uint32_t>(waits_count_) : 0;
    for (size_t i = 0; i < answer->wait_count; i++) answer->waits[i] = waits_[i].peer;
  }
  Recorded last;
  if (!recorder_.read(done, &last)) return;
  answer->got = call_signature(last.call);
  answer->number = last.call.number;
}

// Who has answered may itself wait: whom it waits for is asked, too, until the ranks are found that wait for nobody.
void EngineImpl::follow_answers() {
  Diagnose d;
  d.type = Diagnosis::ask;
  for (size_t i = 0; i < questions_.size(); i++) {
    if (questions_[i].followed) continue;
    const auto answer = answer_of(questions_[i].peer);
    if (!answer) continue;
    questions_[i].followed = true;
    for (size_t w = 0; w < std::min<size_t>(answer->head.wait_count, kMostNamed); w++) {
      const int peer = answer->head.waits[w];
      const bool known = peer == rank_ || peer < 0 || peer >= bootstrap_.nranks() ||
                         std::any_of(questions_.begin(), questions_.end(), [&](const Question &q) { return q.peer == peer; });
      if (!known && questions_.size() < kMostAsked && Clock::now() < answer_until_) ask(peer, d, "", answer_until_);
    }
  }
}

// What a rank does that was asked. cause: how surely the wait ends there: 3 it does not answer, 2 it has not called the
// operation, 1 it waits for nobody, 0 it waits for others, or has done its part.
std::string EngineImpl::answer_text(int peer, int *cause) const {
  Recorded mine;
  const bool known = recorder_.read(started_.load(std::memory_order_relaxed), &mine);
  const auto answer = answer_of(peer);
  *cause = 3;
  if (!answer) return "does not answer";
  const Diagnose &d = answer->head;
  const bool idle = d.doing == Doing::idle;
  const bool done = idle && known && d.number == mine.call.number && d.got == call_signature(mine.call);
  *cause = done || d.wait_count ? 0 : idle ? 2 : 1;
  if (!idle) return "is in " + answer->text;
  return done ? "has completed it" : "has not called it: it is " + answer->text;
}

// What those do that this rank waits for, and where the waiting ends. absent: the rank that it ends at, for it has not called
// the operation or does not answer; -1: none.
std::string EngineImpl::answers_text(std::span<const WaitFor> waits, int *absent) {
  std::string said, end;
  int worst = 0, where = -1;
  bool direct = false;
  for (const Question &q : questions_) {
    int cause = 0;
    const std::string does = answer_text(q.peer, &cause);
    const bool asked_first = std::any_of(waits.begin(), waits.end(), [&](const WaitFor &w) { return w.peer == q.peer; });
    if (asked_first) said += fmt::format("; rank {} {}", q.peer, does);
    if (cause > worst) worst = cause, where = q.peer, end = does, direct = asked_first;
  }
  *absent = worst >= 2 ? where : -1;
  return where < 0 || direct ? said : fmt::format("{}; in the end rank {} {}", said, where, end);
}

// Asks at the first call, ahead of the deadline, and on. When that has passed and the answers are there or late it ends the
// groups if that helps, else all.
void EngineImpl::expire(Nanos waited) {
  if (waited < patience() - std::min<Nanos>(patience() / 2, kAnswerTime)) return;
  std::array<WaitFor, kMostNamed> room{};
  const std::span<const WaitFor> waits(room.data(), waiting_for(room));
  if (questions_.empty()) {
    Diagnose d;
    d.type = Diagnosis::ask;
    for (const WaitFor &w : waits)
      if (std::none_of(questions_.begin(), questions_.end(), [&](const Question &q) { return q.peer == w.peer; }))
        ask(w.peer, d, "", blocked_since_ + patience() + kLate);
  }
  follow_answers();
  if (waited < patience() || !answered()) return;
  int absent = -1;
  const std::string said = answers_text(waits, &absent);
  std::string who = waits.empty() ? "the network" : wait_text(waits, slices_);
  const auto group = std::find_if(waits.begin(), waits.end(), [](const WaitFor &w) { return w.group >= 0; });
  if (group != waits.end()) who += fmt::format(" [{}]", transport_->collnet()->describe(static_cast<uint32_t>(group->group)));
  Error e;
  e.code = Code::timeout;
  e.peer = absent >= 0 || group != waits.end() || waits.empty() ? absent : waits.front().peer;
  e.operation = recent_call(started_.load(std::memory_order_relaxed));
  e.message = fmt::format("{} made no progress for {} ms; it waits for {}{}", e.operation,
                          std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), who, said);
  if (absent < 0 && give_groups_up(e.message)) return;
  e.message += bootstrap_.lost_connections();
  e.hint = "see core.timeout (TUTTI_TIMEOUT)";
  die(std::move(e));
}

} // namespace tutti
