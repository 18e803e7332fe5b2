// tutti/plugins/collnet-aggd/daemon/group.cc: how a group comes to be, ends, and what it is late for.
#include "group.h"
#include "upstream.h"
#include <algorithm>
#include <cerrno>

namespace tutti::aggd {
namespace {

uint64_t hash_of(char what, uint64_t value, uint64_t before) {
  std::array<uint8_t, 17> bytes{static_cast<uint8_t>(what)};
  std::memcpy(bytes.data() + 1, &value, 8);
  std::memcpy(bytes.data() + 9, &before, 8);
  return hash64(bytes);
}

} // namespace

std::string Child::name() const {
  if (!daemon) return fmt::format("member {} ({})", member, from);
  return fmt::format("the daemon at {} ({})", from,
                     cover.members.count() == 0 ? std::string("no members yet") : "members " + cover.members.list(true));
}

Group::Group(Server &server, const Join &join, uint32_t window, uint64_t reserved)
    : server_(server), asked_(join), window_(window), reserved_(reserved),
      progress_ms_(static_cast<uint32_t>(std::clamp<int64_t>(join.progress_ms, 100, server.settings().progress.count()))),
      end_by_(born_ + milliseconds(std::clamp<uint32_t>(join.deadline_ms, 100, 3'600'000))) {
  cover_.members = Members(join.members);
  if (server.settings().parent) up_ = std::make_unique<Upstream>(*this);
}

Group::~Group() {
  for (Child &child : children_)
    if (child.peer) {
      child.peer->group = nullptr;
      child.peer->close();
    }
}

Grant Group::grant() const {
  return {server_.epoch(), window_, std::min(asked_.outstanding, server_.settings().outstanding),
          chunk_of_window(window_) / 64 * 64, progress_ms_};
}

Fault Group::join(Peer &peer, Role role, const Join &join) {
  const auto refusal = [&](Reason reason, Field field, std::string text) {
    return Fault{reason, field, join.member, 0, 0, std::move(text)};
  };
  if (state_ == State::ended)
    return fault_.reason != Reason::none ? fault_ : refusal(Reason::aggregator_lost, Field::none, "the group has ended");
  if (join.members != asked_.members || join.job != asked_.job)
    return refusal(Reason::mismatch, Field::members,
                   fmt::format("member {} says that the group has {} members, another one said {}", join.member, join.members,
                               asked_.members));
  if (state_ == State::running || (join.member >= 0 && cover_.members.has(static_cast<uint32_t>(join.member))))
    return refusal(Reason::mismatch, Field::members, fmt::format("member {} has joined already", join.member));
  if ((children_.size() + 2 + (up_ ? 1 : 0)) * window_ > reserved_) { // more come than the first one said
    Fault refused;
    if (!server_.reserve(asked_.job, 1, window_, refused)) return refused;
    reserved_ += window_;
  }
  auto ring = Ring::make(window_);
  if (!ring.ok()) return {Reason::no_resource, Field::none, join.member, 0, 0, ring.status().error().line()};
  Child child;
  child.peer = &peer;
  child.from = peer.from;
  child.daemon = role == Role::daemon;
  child.member = join.member;
  child.in = std::move(*ring);
  child.cover.members = Members(join.members);
  if (!child.daemon) {
    child.cover.members.add(static_cast<uint32_t>(join.member));
    Cover &cover = child.cover.cover;
    cover.shape = hash_of('m', static_cast<uint64_t>(join.member), 0);
    cover.window = most_window;
    cover.chunk = std::clamp(join.chunk, 64u, most_chunk) / 64 * 64;
    cover.chunk_min = join.chunk_min;
    cover.outstanding = join.outstanding;
  }
  peer.group = this;
  peer.child = children_.size();
  tune(peer.fd.get(), {window_, server_.settings().silence});
  children_.push_back(std::move(child));
  peer.say(frame(grant()));
  update_cover();
  return {};
}

// The order in which children are folded is that of their lowest member, however they came.
void Group::update_cover() {
  std::vector<const Child *> sorted;
  for (const Child &c : children_)
    if (c.cover.members.first() >= 0) sorted.push_back(&c);
  std::sort(sorted.begin(), sorted.end(),
            [](const Child *a, const Child *b) { return a->cover.members.first() < b->cover.members.first(); });
  const Grant mine = grant();
  Cover cover{0, 0, 0, 1, window_, mine.chunk, mine.outstanding, 0};
  cover.mbps = server_.settings().bandwidth_mbps / std::max<size_t>(1, sorted.size());
  Members members(asked_.members);
  for (const Child *c : sorted) {
    cover.shape = hash_of('c', c->cover.cover.shape, cover.shape);
    cover.depth = std::max(cover.depth, c->cover.cover.depth);
    cover.window = std::min(cover.window, c->cover.cover.window);
    cover.chunk = std::min(cover.chunk, c->cover.cover.chunk);
    cover.outstanding = std::min(cover.outstanding, c->cover.cover.outstanding);
    cover.chunk_min = std::max(cover.chunk_min, c->cover.cover.chunk_min);
    cover.daemons += c->cover.cover.daemons;
    if (c->daemon) cover.mbps = std::min(cover.mbps, c->cover.cover.mbps); // 0, not known, is the least
    members.add(c->cover.members);
  }
  cover.shape = hash_of('d', sorted.size(), cover.shape);
  cover.depth++;
  cover_ = {cover, members};
  if (up_)
    up_->cover(cover_);
  else if (members.count() == asked_.members)
    begin(cover);
}

void Group::begin(const Cover &all) {
  for (const Child &c : children_)
    if (c.cover.members.count() == 0)
      return fail({Reason::mismatch, Field::members, -1, asked_.members, 0,
                   fmt::format("{} has joined, and all {} members are at other daemons", c.name(), asked_.members)});
  std::sort(children_.begin(), children_.end(), // in place: turn() may be walking along it
            [](const Child &a, const Child &b) { return a.cover.members.first() < b.cover.members.first(); });
  auto out = Ring::make(window_);
  auto down = up_ ? Ring::make(window_) : Result<Ring>(Ring());
  if (!out.ok() || !down.ok()) {
    const Status &why = out.ok() ? down.status() : out.status();
    return fail({Reason::no_resource, Field::none, -1, 0, 0, why.error().line()});
  }
  out_ = std::move(*out);
  down_ = std::move(*down);
  results_ = up_ ? &down_ : &out_;
  all_ = all;
  state_ = State::running;
  operands_.reserve(children_.size());
  for (size_t i = 0; i < children_.size(); i++) {
    Child &c = children_[i];
    if (c.peer) c.peer->child = i;
    c.member = c.cover.members.first();
    if (c.peer) c.peer->say(frame(Start{all}));
  }
  server_.of_groups.say(log::Level::info,
                        fmt::format("job {:#x}: group of {} members runs: {} here, window {} KiB, depth {}", asked_.job,
                                    asked_.members, children_.size(), all.window >> 10, all.depth));
  server_.runnable(this);
}

void Group::fail(Fault fault) {
  if (state_ == State::ended) return;
  state_ = State::ended;
  fault_ = std::move(fault);
  end_by_ = Clock::now() + server_.settings().linger;
  server_.counters().faults[static_cast<size_t>(fault_.reason)]++;
  server_.of_groups.say(log::Level::warn, fmt::format("job {:#x}: group of {} members ends: {}: {}", asked_.job, asked_.members,
                                                      reason_name(fault_.reason), fault_.text));
  if (up_) up_->say_last(frame(fault_));
  server_.runnable(this);
}

void Group::lost(Peer &peer) {
  for (Child &c : children_)
    if (c.peer == &peer) {
      c.peer = nullptr;
      if (!c.left && state_ != State::ended) fail({Reason::member_lost, Field::none, c.member, 0, 0, c.name() + " is gone"});
    }
  free_results();
}

bool Group::over() const {
  const bool alone = std::all_of(children_.begin(), children_.end(), [](const Child &c) { return !c.peer; });
  if (state_ == State::ended) return (alone && (!up_ || up_->quiet())) || Clock::now() >= end_by_;
  return alone && !children_.empty();
}

// ---- deadlines -----------------------------------------------------------------------------------------------------------
std::string Group::post_text(const Header &h) const {
  return fmt::format("{} of {} bytes of {} (post {})", field_value(Field::coll, h), h.total, field_value(Field::dtype, h),
                     h.seq);
}

void Group::broke(const Child &child, const std::string &what) {
  fail({Reason::member_lost, Field::none, child.member, 0, 0, fmt::format("{} sent {}", child.name(), what)});
}

void Group::tick(Clock::time_point now) {
  if (state_ == State::ended) return;
  if (up_) up_->tick(now);
  if (state_ == State::gathering) {
    // The root knows who is missing; it has the first word.
    if (now < end_by_ + milliseconds(up_ ? 1000 : 0)) return;
    const Members &here = cover_.members;
    Members missing(asked_.members);
    for (uint32_t m = 0; m < asked_.members; m++)
      if (!here.has(m)) missing.add(m);
    return fail({Reason::timeout, Field::members, missing.first(), asked_.members, here.count(),
                 fmt::format("{} of {} members joined in {} ms; missing: {}", here.count(), asked_.members,
                             std::chrono::duration_cast<milliseconds>(now - born_).count(), here.list(false))});
  }
  look_for_silence(now);
  if (state_ == State::running && up_) report(now), check_above(now);
  if (state_ == State::running) check_input(now);
  if (state_ == State::running) ask_below(now);
  if (state_ == State::running) check_output(now);
}

void Group::look_for_silence(Clock::time_point now) {
  if (now - looked_ < milliseconds(250)) return; // a system call for each child
  looked_ = now;
  for (Child &c : children_)
    if (c.peer && c.peer->silence.look(c.peer->fd.get(), now) >= server_.settings().silence)
      return fail({Reason::member_lost, Field::none, c.member, 0, 0,
                   fmt::format("the host of {} answers nothing for {} ms", c.name(), server_.settings().silence.count())});
}

milliseconds Group::allowance(uint32_t levels) const {
  return milliseconds(levels * (500 + progress_ms_ / 8));
}

// Whose part of the present chunk is not there.
Members Group::missing() const {
  Members out(asked_.members);
  const Child *least = nullptr;
  for (const Child &c : children_) {
    if (!gives_now(c)) continue;
    if (open_ ? c.in.used() == 0 : !c.has_header) out.add(c.waits.count() > 0 ? c.waits : c.cover.members);
    if (!least || c.in.used() < least->in.used()) least = &c;
  }
  if (out.count() == 0 && least) out.add(least->cover.members);
  return out;
}

// Daemons below that others wait for: those that are stopped have to be told from those whose members have not posted.
void Group::ask_below(Clock::time_point now) {
  const auto since = wanted_since();
  if (since == Clock::time_point{} || open_ || now - since < ask_again()) return;
  for (Child &c : children_) {
    if (!c.daemon || c.has_header || c.asked != Clock::time_point{} || now - c.answered < ask_again()) continue;
    c.asked = now;
    c.ask = true;
  }
}

void Group::asked_from_above() {
  is_asked_ = true;
  if (!waits() && wanted_ == Clock::time_point{}) wanted_ = Clock::now();
}

// A daemon below that owes an answer, the one that has for longest; or one that has begun a chunk, which it sends whole.
const Child *Group::unanswering() const {
  const Child *out = nullptr;
  for (const Child &c : children_) {
    if (!c.daemon) continue;
    if (open_ && gives(c, first_) && c.in.used() == 0) return &c;
    if (!open_ && !c.has_header && c.asked != Clock::time_point{} && (!out || c.asked < out->asked)) out = &c;
  }
  return out;
}

// To the daemon above, whose clock may have started long before: it is not to name those that have posted.
void Group::report(Clock::time_point now) {
  const bool below = std::any_of(children_.begin(), children_.end(), [](const Child &c) { return c.waits.count() > 0; });
  const bool here = waits() && now - since_ >= std::min(milliseconds(250), milliseconds(progress_ms_ / 8));
  const bool answers = std::exchange(is_asked_, false);
  if (!answers && (stuck() || (!below && !here))) return;
  if (Members m = stuck() ? Members(asked_.members) : missing(); answers || m != told_)
    up_->tell(waits_frame(told_ = std::move(m)));
}

// Members find a daemon that is stopped by themselves, a little later: they know only their own.
void Group::check_above(Clock::time_point now) {
  const milliseconds limit = milliseconds(progress_ms_ + 250 * (all_.depth - cover_.cover.depth)) + allowance(all_.depth);
  if (answered_ < chunks_ && now - above_since_ >= limit)
    fail({Reason::aggregator_lost, Field::none, -1, 0, 0,
          fmt::format("the daemon above, {}, gave neither a result nor a reason for {} ms: it is stopped, or overloaded",
                      server_.settings().parent->name, std::chrono::duration_cast<milliseconds>(now - above_since_).count())});
}

void Group::check_input(Clock::time_point now) {
  const auto since = wanted_since();
  if (since == Clock::time_point{} || (stuck() && up_)) return;
  if (now - since < milliseconds(progress_ms_) + allowance(cover_.cover.depth - 1)) return;
  const Child *silent = stuck() ? nullptr : unanswering();
  if (!silent && waits()) return fail(late(now)); // else those above name them, who know what they wait for
  if (!silent || (!open_ && now - silent->asked < answer_limit())) return;
  fail({Reason::aggregator_lost, Field::none, -1, 0, 0,
        fmt::format("{} says nothing, while others wait for it for {} ms: it is stopped, or overloaded", silent->name(),
                    std::chrono::duration_cast<milliseconds>(now - since).count())});
}

Fault Group::late(Clock::time_point now) {
  const auto waited = std::chrono::duration_cast<milliseconds>(now - since_).count();
  if (stuck()) {
    const Child *slow = nullptr;
    for (const Child &c : children_)
      if (!slow || c.sent < slow->sent) slow = &c;
    return {Reason::timeout,
            Field::none,
            slow->member,
            0,
            0,
            fmt::format("{} has not taken its results for {} ms", slow->name(), waited)};
  }
  const Members late = missing();
  return {Reason::timeout,
          Field::none,
          late.first(),
          asked_.members,
          asked_.members - late.count(),
          fmt::format("member{} {} {} not posted {} for {} ms", late.count() == 1 ? "" : "s", late.list(true),
                      late.count() == 1 ? "has" : "have", post_text(first_), waited)};
}

void Group::check_output(Clock::time_point now) {
  for (const Child &c : children_)
    if (c.peer && c.sent < results_->head &&
        now - c.moved >= milliseconds(progress_ms_) + allowance(c.daemon ? c.cover.cover.depth : 0))
      return fail({Reason::timeout, Field::none, c.member, 0, 0,
                   fmt::format("{} has not taken its results for {} ms", c.name(), progress_ms_)});
}

} // namespace tutti::aggd
