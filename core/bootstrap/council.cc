#include "bootstrap/council.h"
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr Nanos kLeastSilence = std::chrono::milliseconds(500);
constexpr Nanos kPropose = std::chrono::milliseconds(250), kAsk = std::chrono::milliseconds(250);
constexpr Nanos kSettle = std::chrono::seconds(2); // for an answer to "has it come about?"

bool has(const std::vector<int> &sorted, int rank) {
  return std::binary_search(sorted.begin(), sorted.end(), rank);
}

void put(Writer &w, const std::vector<int> &ranks) {
  w.u32(static_cast<uint32_t>(ranks.size()));
  for (const int r : ranks) w.i32(r);
}

// Sorted ranks of a communicator.
bool get(Reader &r, int nranks, std::vector<int> *out) {
  const uint32_t n = r.u32();
  if (n > static_cast<uint32_t>(nranks)) return false;
  for (uint32_t i = 0; i < n; i++) {
    const int rank = r.i32();
    if (!r.ok() || rank < 0 || rank >= nranks || (!out->empty() && rank <= out->back())) return false;
    out->push_back(rank);
  }
  return r.ok();
}

Nanos silence_of(Nanos span) {
  return std::max(kLeastSilence, span / 4);
}

} // namespace

std::string Proposal::list() const {
  if (find_out) return "those who are gone, without a list";
  if (excluded.empty()) return "nobody";
  return (excluded.size() == 1 ? "rank " : "ranks ") + list_ranks(excluded);
}

// ---- whoever wants to go on

Result<Decision> Council::decide(bool find_out, std::vector<int> excluded, Deadline deadline) {
  {
    std::lock_guard lock(m_.m_);
    if (cancelled_) return Status(*cancelled_);
    if (stopped_) return Status(*stopped_);
    if (ousted_) return Status(*ousted_);
    result_.reset();
    waiting_ = true;
  }
  Proposal p;
  p.ticket = random_u64() | 1;
  p.find_out = find_out;
  p.excluded = std::move(excluded);
  p.span_ns = static_cast<uint64_t>(deadline.span().count());
  const auto self = m_.shared_from_this();
  m_.service_.post([self, this, p, until = deadline.at()] { begin(p, until); });
  // A little longer than asked for: at the deadline the collector says who is missing.
  const Deadline last = deadline.extended(std::min<Nanos>(deadline.span() / 2, std::chrono::seconds(1)));
  std::unique_lock lock(m_.m_);
  m_.cv_.wait_until(lock, last.at(), [&] { return result_.has_value() || stopped_; });
  waiting_ = false;
  if (result_) return *std::exchange(result_, std::nullopt);
  const std::optional<Error> stopped = stopped_;
  lock.unlock();
  m_.service_.post([self, this] { withdraw(); });
  if (stopped) return Status(*stopped);
  return m_.locate(fail(Code::timeout, "shrink: no other rank has collected who goes on within {}", seconds(deadline.span())));
}

void Council::stop(const Error &why, bool for_good) {
  std::lock_guard lock(m_.m_);
  if (for_good && !stopped_) stopped_ = why;
  cancelled_ = why;
  if (waiting_ && !result_) result_ = Status(why);
  m_.cv_.notify_all();
  m_.service_.post([self = m_.shared_from_this(), this] { withdraw(); });
}

void Council::restart() {
  std::lock_guard lock(m_.m_);
  cancelled_.reset();
}

void Council::withdraw() {
  if (!has_proposal()) return;
  const Proposal none;
  if (collector_ != m_.rank_)
    send(collector_, Type::propose, [&](Writer &w) { write(w, none); });
  else
    proposals_.erase(m_.rank_);
  mine_ = {};
  m_.service_.cancel(std::exchange(timer_, 0));
}

bool Council::complete(uint64_t nonce) {
  std::lock_guard lock(m_.m_);
  State &state = groups_[nonce];
  if (state == State::pending) state = State::complete;
  return state == State::complete;
}

bool Council::came_about(const Decision &d) {
  {
    std::lock_guard lock(m_.m_);
    State &state = groups_[d.nonce];
    if (state == State::complete) return true;
    state = State::given_up;
  }
  const auto self = m_.shared_from_this();
  m_.service_.post([self, this, d] {
    for (const int r : d.members)
      if (r != m_.rank_ && !m_.is_lost(r)) send(r, Type::settle, [&](Writer &w) { w.u64(d.nonce); });
  });
  std::unique_lock lock(m_.m_);
  const auto answer = [&](int rank) {
    const auto it = answers_.find({d.nonce, rank});
    return it == answers_.end() ? State::pending : it->second;
  };
  const auto complete = [&](int rank) { return answer(rank) == State::complete; };
  m_.cv_.wait_until(lock, Clock::now() + kSettle, [&] {
    return stopped_ || std::any_of(d.members.begin(), d.members.end(), complete) ||
           std::all_of(d.members.begin(), d.members.end(),
                       [&](int r) { return r == m_.rank_ || m_.lost_[static_cast<size_t>(r)] || answer(r) != State::pending; });
  });
  const bool any = std::any_of(d.members.begin(), d.members.end(), complete);
  std::erase_if(answers_, [&](const auto &a) { return a.first.first == d.nonce; });
  return any;
}

void Council::begin(Proposal proposal, Clock::time_point until) {
  if (closed_) return;
  mine_ = std::move(proposal);
  until_ = until;
  silence_ = silence_of(Nanos(static_cast<int64_t>(mine_.span_ns)));
  silent_.clear();
  turn_to_collector();
}

// The lowest one that may be there. This rank is, so there is one.
int Council::next_collector() const {
  for (int r = 0; r < m_.rank_; r++)
    if (!has(mine_.excluded, r) && !m_.is_lost(r) && !silent_.count(r)) return r;
  return m_.rank_;
}

void Council::turn_to_collector() {
  collector_ = next_collector();
  heard_ = Clock::now();
  propose();
}

void Council::write(Writer &w, const Proposal &p) const {
  w.u64(p.ticket);
  w.u8(p.find_out);
  put(w, p.excluded);
  w.u64(p.left_ns);
  w.u64(p.span_ns);
  put(w, p.gone);
}

void Council::propose() {
  mine_.left_ns = static_cast<uint64_t>(std::max<int64_t>(0, Nanos(until_ - Clock::now()).count()));
  mine_.gone.clear();
  for (int r = 0; r < m_.nranks_; r++)
    if (m_.is_lost(r)) mine_.gone.push_back(r);
  m_.service_.cancel(timer_);
  timer_ = m_.service_.at(Clock::now() + kPropose, [self = m_.shared_from_this(), this] {
    timer_ = 0;
    look_again();
  });
  if (collector_ == m_.rank_) return take_proposal(m_.rank_, mine_);
  send(collector_, Type::propose, [&](Writer &w) { write(w, mine_); });
}

void Council::look_again() {
  if (!has_proposal()) return;
  if (collector_ == m_.rank_ || Clock::now() - heard_ < silence_) return propose();
  log::info(log::Subsys::bootstrap, "comm {:#x}: shrink: rank {} has not answered for {}, the next one is asked", m_.comm(),
            collector_, seconds(silence_));
  silent_.insert(collector_);
  turn_to_collector();
}

void Council::finish(Result<Decision> result) {
  mine_ = {};
  m_.service_.cancel(std::exchange(timer_, 0));
  std::lock_guard lock(m_.m_);
  if (waiting_ && !result_) result_ = std::move(result);
  m_.cv_.notify_all();
}

void Council::send(int to, Type type, const std::function<void(Writer &)> &fill) {
  Writer w;
  w.u8(static_cast<uint8_t>(type));
  fill(w);
  m_.send_council(to, w.take());
}

Bytes Council::greeting() const {
  Writer w;
  w.u8(static_cast<uint8_t>(Type::heard));
  return w.take();
}

void Council::hear(int from, std::span<const std::byte> data) {
  if (closed_) return;
  Reader r(data);
  const auto type = static_cast<Type>(r.u8());
  switch (type) {
  case Type::propose: {
    Proposal p;
    p.ticket = r.u64();
    p.find_out = r.u8() != 0;
    bool good = get(r, m_.nranks_, &p.excluded);
    p.left_ns = r.u64();
    p.span_ns = r.u64();
    good = good && get(r, m_.nranks_, &p.gone) && r.done();
    if (good) hear_proposal(from, std::move(p));
    return;
  }
  case Type::heard:
    if (from == collector_) heard_ = Clock::now();
    if (const auto it = asked_.find(from); it != asked_.end()) it->second.heard = Clock::now(), it->second.open = false;
    return;
  case Type::ask:
    return send(from, has_proposal() ? Type::propose : Type::heard, [&](Writer &w) {
      if (has_proposal()) write(w, mine_);
    });
  case Type::decision: {
    const uint64_t ticket = r.u64();
    Decision d;
    d.nonce = r.u64();
    const bool good = get(r, m_.nranks_, &d.members) && get(r, m_.nranks_, &d.absent) && r.done();
    if (good && has(d.members, m_.rank_)) hear_decision(ticket, std::move(d));
    return;
  }
  case Type::refusal: {
    const uint64_t ticket = r.u64();
    auto e = decode_error(r.rest());
    if (!e || !has_proposal() || ticket != mine_.ticket) return;
    e->rank = m_.rank_;
    return finish(Status(std::move(*e)));
  }
  case Type::ousted: {
    std::vector<int> members;
    if (!get(r, m_.nranks_, &members) || !r.done()) return;
    return be_ousted(from, members);
  }
  case Type::settle: {
    const uint64_t nonce = r.u64();
    State state;
    {
      std::lock_guard lock(m_.m_);
      State &s = groups_.try_emplace(nonce, State::given_up).first->second;
      if (s == State::pending) s = State::given_up;
      state = s;
    }
    return send(from, Type::settled, [&](Writer &w) { w.u64(nonce), w.u8(static_cast<uint8_t>(state)); });
  }
  case Type::settled: {
    const uint64_t nonce = r.u64();
    const auto state = static_cast<State>(r.u8());
    if (!r.done()) return;
    std::lock_guard lock(m_.m_);
    if (!groups_.count(nonce)) return;
    answers_[{nonce, from}] = state == State::complete ? State::complete : State::given_up;
    m_.cv_.notify_all();
    return;
  }
  default:
    return;
  }
}

void Council::hear_proposal(int from, Proposal p) {
  if (p.ticket == 0) {
    proposals_.erase(from);
    return weigh();
  }
  send(from, Type::heard, [](Writer &) {});
  take_proposal(from, std::move(p));
}

void Council::hear_decision(uint64_t ticket, Decision d) {
  const bool mine = has_proposal() && ticket == mine_.ticket;
  {
    std::lock_guard lock(m_.m_);
    groups_.try_emplace(d.nonce, mine ? State::pending : State::given_up);
  }
  if (mine) finish(std::move(d));
}

void Council::be_ousted(int from, const std::vector<int> &members) {
  Error e = m_.about(from, Code::remote,
                     fmt::format("shrink: {} {} went on without rank {}, which had not called it in time",
                                 members.size() == 1 ? "rank" : "ranks", list_ranks(members), m_.rank_));
  e.phase = "shrink";
  {
    std::lock_guard lock(m_.m_);
    ousted_ = e;
  }
  if (has_proposal()) finish(Status(std::move(e)));
}

// ---- whoever collects

void Council::take_proposal(int from, Proposal p) {
  if (const auto it = last_tickets_.find(from); it != last_tickets_.end() && it->second == p.ticket)
    return; // repeated while the verdict was on its way
  const Nanos left(static_cast<int64_t>(std::min<uint64_t>(p.left_ns, INT64_MAX / 2)));
  const auto due = Clock::now() + left - std::min<Nanos>(left / 10, std::chrono::milliseconds(250));
  if (untold_.erase(from) && Clock::now() < untold_until_) {
    proposals_[from] = std::move(p);
    refuse(from, refusal_);
    proposals_.erase(from);
    return;
  }
  if (proposals_.empty() || due < deadline_) {
    deadline_ = due;
    span_ = Nanos(static_cast<int64_t>(std::min<uint64_t>(p.span_ns, INT64_MAX / 2)));
  }
  if (proposals_.empty()) asked_.clear();
  asked_.erase(from);
  proposals_[from] = std::move(p);
  weigh();
}

bool Council::unreachable(int rank) const {
  if (rank == m_.rank_) return false;
  if (m_.is_lost(rank)) return true;
  for (const auto &[from, p] : proposals_)
    if (has(p.gone, rank)) return true;
  const auto it = asked_.find(rank);
  return it != asked_.end() && it->second.open && Clock::now() - it->second.heard > silence_of(span_);
}

Error Council::error(int about, Code code, std::string message) const {
  Error e = m_.about(about, code, std::move(message));
  e.phase = "shrink";
  return e;
}

// The same line for all of them.
Error Council::disagreement(int a, int b) const {
  if (b < a) std::swap(a, b);
  Error e = error(
      b, Code::invalid_usage,
      fmt::format("shrink: rank {} excludes {}, rank {} excludes {}", a, proposals_.at(a).list(), b, proposals_.at(b).list()));
  e.hint = "all ranks that go on give the same list, or none does";
  return e;
}

void Council::weigh() {
  if (proposals_.empty()) return;
  const int nranks = m_.nranks_;
  const auto own = proposals_.find(m_.rank_);
  if (own != proposals_.end() && !own->second.find_out) {
    for (const int r : own->second.excluded)
      if (proposals_.count(r)) {
        refuse(r, error(m_.rank_, Code::invalid_usage,
                        fmt::format("shrink: rank {} excludes {}, and rank {} wants to go on without {}", m_.rank_,
                                    own->second.list(), r, proposals_.at(r).list())));
        proposals_.erase(r);
      }
  }
  const auto base = own != proposals_.end() ? own : proposals_.begin();
  if (own != proposals_.end() || base->second.find_out)
    for (const auto &[r, p] : proposals_)
      if (p.find_out != base->second.find_out || p.excluded != base->second.excluded)
        return refuse_all(disagreement(base->first, r));
  std::vector<int> missing;
  for (int r = 0; r < nranks; r++) {
    if (proposals_.count(r) || has(base->second.excluded, r)) continue;
    if (!unreachable(r)) {
      missing.push_back(r);
      continue;
    }
    if (base->second.find_out) continue;
    Error e = error(r, Code::remote,
                    fmt::format("shrink: {} {}, and is not excluded ({} is)", m_.name(r),
                                m_.is_lost(r) ? "has gone" : "does not answer", base->second.list()));
    e.hint = "exclude it, too; or give no list, and those who are left find out";
    return refuse_all(e);
  }
  if (missing.empty()) return decide_now({});
  if (Clock::now() >= deadline_) return time_up(base->second.find_out, missing);
  ask(missing);
}

void Council::ask(const std::vector<int> &missing) {
  const auto now = Clock::now();
  for (const int r : missing) {
    if (r == m_.rank_) continue;
    Asked &a = asked_.try_emplace(r, Asked{now, false}).first->second;
    if (a.open) continue; // what is not answered is not asked again
    a = {now, true};
    send(r, Type::ask, [](Writer &) {});
  }
  m_.service_.cancel(ask_timer_);
  ask_timer_ = m_.service_.at(std::min(now + kAsk, deadline_), [self = m_.shared_from_this(), this] {
    ask_timer_ = 0;
    weigh();
  });
}

void Council::time_up(bool find_out, const std::vector<int> &missing) {
  if (find_out) return decide_now(missing);
  std::string who = missing.size() == 1 ? m_.name(missing.front()).substr(5) : list_ranks(missing);
  const auto came = proposals_.size();
  Error e = error(
      missing.front(), Code::timeout,
      fmt::format("shrink: {} of {} ranks called it within {}; missing: {}", came, came + missing.size(), seconds(span_), who));
  const int late = proposals_.begin()->first;
  e.hint = last_members_.empty() || has(last_members_, late)
               ? "see core.shrink_timeout (TUTTI_SHRINK_TIMEOUT)"
               : fmt::format("ranks {} went on without rank {} before", list_ranks(last_members_), late);
  refuse_all(e);
}

void Council::refuse(int rank, const Error &why) {
  const uint64_t ticket = last_tickets_[rank] = proposals_.at(rank).ticket;
  Writer w;
  w.u8(static_cast<uint8_t>(Type::refusal));
  w.u64(ticket);
  w.raw(encode(why));
  m_.send_council(rank, w.take());
}

void Council::clear() {
  proposals_.clear();
  asked_.clear();
  m_.service_.cancel(std::exchange(ask_timer_, 0));
}

void Council::refuse_all(const Error &why) {
  const Proposal &base = proposals_.begin()->second;
  refusal_ = why;
  untold_until_ = Clock::now() + span_;
  for (int r = 0; r < m_.nranks_; r++)
    if (!proposals_.count(r) && !has(base.excluded, r)) untold_.insert(r);
  for (const auto &[r, p] : proposals_) refuse(r, why);
  clear();
}

void Council::decide_now(const std::vector<int> &absent) {
  Decision d;
  d.nonce = random_u64();
  d.absent = absent;
  for (const auto &[r, p] : proposals_) {
    d.members.push_back(r);
    last_tickets_[r] = p.ticket;
  }
  const bool find_out = proposals_.begin()->second.find_out;
  log::info(log::Subsys::bootstrap, "comm {:#x}: shrink: ranks {} go on{}", m_.comm(), list_ranks(d.members),
            absent.empty() ? "" : ", without " + list_ranks(absent) + ", which have not called");
  last_members_ = d.members;
  clear();
  for (const int r : d.members)
    send(r, Type::decision, [&](Writer &w) {
      w.u64(last_tickets_[r]), w.u64(d.nonce);
      put(w, d.members), put(w, d.absent);
    });
  for (int r = 0; find_out && r < m_.nranks_; r++)
    if (!has(d.members, r) && !m_.is_lost(r)) send(r, Type::ousted, [&](Writer &w) { put(w, d.members); });
}

void Council::gone(int rank) {
  if (closed_) return;
  proposals_.erase(rank);
  asked_.erase(rank);
  if (has_proposal() && rank == collector_) turn_to_collector();
  weigh();
}

void Council::close() {
  closed_ = true;
  mine_ = {};
  m_.service_.cancel(std::exchange(timer_, 0));
  clear();
}

} // namespace tutti::boot
