// Whoever wants to go on. Whoever collects what they say is in council_collect.cc.
#include "bootstrap/council.h"
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr Nanos kPropose = std::chrono::milliseconds(250);
constexpr Nanos kSettle = std::chrono::seconds(2); // for an answer to "has it come about?"

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

} // namespace

std::optional<Proposal> read_proposal(Reader &r, int nranks) {
  Proposal p;
  p.ticket = r.u64();
  p.find_out = r.u8() != 0;
  bool good = get(r, nranks, &p.excluded);
  p.left_ns = r.u64();
  p.span_ns = r.u64();
  good = good && get(r, nranks, &p.gone) && r.done();
  return good ? std::optional(std::move(p)) : std::nullopt;
}

std::optional<Decision> read_decision(Reader &r, int nranks) {
  Decision d;
  d.nonce = r.u64();
  const bool good = get(r, nranks, &d.members) && get(r, nranks, &d.absent) && r.done();
  return good ? std::optional(std::move(d)) : std::nullopt;
}

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
  case Type::propose:
    if (auto p = read_proposal(r, m_.nranks_)) hear_proposal(from, std::move(*p));
    return;
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
    auto d = read_decision(r, m_.nranks_);
    if (d && has(d->members, m_.rank_)) hear_decision(ticket, std::move(*d));
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

} // namespace tutti::boot
