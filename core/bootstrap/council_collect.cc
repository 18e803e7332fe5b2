// Whoever collects what ranks say that want to go on.
#include "bootstrap/council.h"
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr Nanos kLeastSilence = std::chrono::milliseconds(500);
constexpr Nanos kAsk = std::chrono::milliseconds(250);

} // namespace

bool Council::has(const std::vector<int> &sorted, int rank) {
  return std::binary_search(sorted.begin(), sorted.end(), rank);
}

void Council::put(Writer &w, const std::vector<int> &ranks) {
  w.u32(static_cast<uint32_t>(ranks.size()));
  for (const int r : ranks) w.i32(r);
}

Nanos Council::silence_of(Nanos span) {
  return std::max(kLeastSilence, span / 4);
}

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

// Those that this rank excludes, and that call all the same.
void Council::turn_away() {
  const auto own = proposals_.find(m_.rank_);
  if (own == proposals_.end()) return;
  for (const int r : own->second.excluded)
    if (proposals_.count(r)) {
      refuse(r, error(m_.rank_, Code::invalid_usage,
                      fmt::format("shrink: rank {} excludes {}, and rank {} wants to go on without {}", m_.rank_,
                                  own->second.list(), r, proposals_.at(r).list())));
      proposals_.erase(r);
    }
}

void Council::weigh() {
  turn_away();
  if (proposals_.empty()) return;
  const int nranks = m_.nranks_;
  const auto own = proposals_.find(m_.rank_);
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
