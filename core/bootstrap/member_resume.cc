// Control connections over TCP that get lost and come back.
//
// Both ends of a link number the frames that they send over TCP and keep each one until the other end says that it has come.
// A connection begins with `resume` from the end that dialled it, answered by the other one: each says how many frames have
// come to it, in order. Who hears that sends what is missing once more, and goes on. Exactly one connection of a link is live:
// before an end says its number it closes all others, so no frame that it has not counted can still be taken.
//
// Attempts are numbered, so that both ends choose the same one of two that cross: the later one, of equal ones that of the
// lower rank. After a loss the end that dialled first dials anew; the other one only looks whether there is still somebody, for
// a process that has ended must be found at once: its host refuses.
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr uint64_t kMostKept = 512u << 20;                   // bytes of all links; Member::send() stops at half of it
constexpr size_t kMostKeptFrames = 1u << 20;                 // of a link
constexpr uint64_t kUnsaidFrames = 32;                       // that come before their number is told
constexpr uint64_t kUnsaidBytes = 64 << 10;                  // the same
constexpr Nanos kRefusals = std::chrono::milliseconds(1500); // for so long nobody listens there: it has ended
constexpr Nanos kRefusalsAfterFailure = std::chrono::milliseconds(300);
constexpr Nanos kAttempt = std::chrono::seconds(2),
                kLongestAttempt = std::chrono::seconds(5); // TCP itself repeats ever more slowly
constexpr Nanos kPause = std::chrono::milliseconds(100), kProbePause = std::chrono::seconds(1);
constexpr Nanos kWorthAWarning = std::chrono::seconds(5);

// Of "10.0.0.1:80", "[::1]:80".
std::string address_of(const std::string &place) {
  return place.substr(0, place.rfind(':'));
}

} // namespace

std::string Member::Reconnecting::text() const {
  return fmt::format("connection to rank {} ({}) lost {} ago, not restored yet: {}", rank, address,
                     seconds(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since)), last);
}

std::vector<Member::Reconnecting> Member::reconnecting() const {
  std::lock_guard lock(m_);
  std::vector<Reconnecting> out;
  for (const auto &[rank, o] : outages_) out.push_back(o);
  return out;
}

std::string Member::outage_note() const {
  constexpr size_t kMost = 3;
  const auto all = reconnecting();
  std::string out;
  for (size_t i = 0; i < std::min(all.size(), kMost); i++) out += "; " + all[i].text();
  if (all.size() > kMost) out += fmt::format("; {} more connections are lost", all.size() - kMost);
  return out;
}

// ---- frames

// To a link that is up, or has been up over TCP.
void Member::transmit(int to, Link &link, FrameType type, uint64_t tag, std::span<const std::byte> data, UniqueFd fd) {
  if (link.tx && link.tx->is_unix()) return link.tx->send(type, tag, data, std::move(fd));
  const bool ours = type == FrameType::message || type == FrameType::gather; // what tells of failures always has room
  if (ours && (kept_.load() + data.size() > kMostKept || link.kept.size() >= kMostKeptFrames))
    return fail(
        about(to, Code::remote,
              fmt::format("{} messages of {} bytes wait for {} to say that they have come, and there is room for no more{}",
                          link.kept.size(), kept_.load(), name(to), outage_note())));
  link.kept.push_back({type, tag, Bytes(data.begin(), data.end())});
  link.sent++;
  kept_ += data.size();
  if (link.tx) link.tx->send(type, tag, data);
}

bool Member::release(Link &link, uint64_t come) {
  if (come > link.sent || link.sent - come > link.kept.size()) return false;
  while (link.kept.size() > link.sent - come) {
    kept_ -= link.kept.front().data.size();
    link.kept.pop_front();
  }
  return true;
}

void Member::arrived(int from, const Conn::Ptr &conn, Frame f) {
  if (conn->is_unix() || f.type == FrameType::goodbye) return frame(from, std::move(f));
  Link &link = links_[from];
  if (f.type == FrameType::resume) return hear_resume(from, link, conn, f);
  if (conn != link.live || (f.type == FrameType::ack && !release(link, f.tag))) return malformed(from);
  if (f.type == FrameType::ack) return;
  link.come++;
  link.unsaid_bytes += f.payload.size();
  if (++link.unsaid >= kUnsaidFrames || link.unsaid_bytes >= kUnsaidBytes) {
    link.unsaid = link.unsaid_bytes = 0;
    conn->send(FrameType::ack, link.come, {});
  }
  frame(from, std::move(f));
}

// ---- a connection takes over

void Member::say_resume(Link &link, const Conn::Ptr &conn) {
  Writer w;
  w.u64(link.attempt);
  link.unsaid = link.unsaid_bytes = 0;
  conn->send(FrameType::resume, link.come, w.take());
}

// Of a connection that this rank has dialled.
void Member::offer(int to, Link &link, const Conn::Ptr &conn) {
  if (link.tx) { // reached from there meanwhile
    std::erase(link.conns, conn);
    return conn->close();
  }
  link.dials = true;
  link.attempt++;
  link.candidate = conn;
  say_resume(link, conn);
  if (link.restoring) look_later(to, link, kLongestAttempt); // an answer may get lost, too
}

void Member::hear_resume(int from, Link &link, const Conn::Ptr &conn, const Frame &f) {
  Reader r(f.payload);
  const uint64_t attempt = r.u64();
  if (!r.done() || conn == link.live) return malformed(from);
  if (link.gone) return conn->close();
  if (conn == link.candidate) {
    if (attempt != link.attempt) return malformed(from);
    link.candidate = nullptr;
    return take_over(from, link, conn, f.tag);
  }
  if (attempt < link.attempt || (attempt == link.attempt && !(link.candidate && from < rank_))) {
    log::debug(log::Subsys::bootstrap, "comm {:#x}: connection {} of rank {} is closed: another one is used", comm(),
               conn->remote(), from);
    std::erase(link.conns, conn);
    return conn->close();
  }
  close_others(link, conn);
  link.dials = false;
  link.attempt = attempt;
  link.live = conn; // from here on its loss counts
  say_resume(link, conn);
  if (link.live == conn) take_over(from, link, conn, f.tag);
}

void Member::close_others(Link &link, const Conn::Ptr &conn) {
  if (link.dialer) link.dialer->cancel();
  link.dialer = nullptr;
  link.candidate = link.live = nullptr;
  if (link.tx && !link.tx->is_unix()) link.tx = nullptr;
  for (const auto &c : link.conns)
    if (c != conn && !c->is_unix()) c->close();
  std::erase_if(link.conns, [](const Conn::Ptr &c) { return c->closed(); });
}

void Member::take_over(int peer, Link &link, const Conn::Ptr &conn, uint64_t come) {
  if (!release(link, come)) return malformed(peer);
  link.live = conn;
  link.numbered = true;
  link.address = address_of(conn->remote());
  restored(peer, link);
  if (!link.tx) {
    link.tx = conn;
    for (size_t i = 0; i < link.kept.size() && link.tx == conn; i++)
      conn->send(link.kept[i].type, link.kept[i].tag, link.kept[i].data);
  }
  if (link.tx) link_up(peer, link);
}

// ---- outages

bool Member::may_resume(int peer, const Link &link) const {
  if (!met_.load(std::memory_order_acquire) ||
      infos_[static_cast<size_t>(peer)].host == infos_[static_cast<size_t>(rank_)].host)
    return false; // while ranks join, the root names who has gone; within a host connections do not get lost
  if (config_->duration("socket.reconnect_timeout").count() == 0) return false;
  std::lock_guard lock(m_);
  return !(closing_ || closed_) || !link.kept.empty() || posted_ > 0; // what was sent before the end may have to be sent again
}

void Member::interrupted(int peer, Link &link, const Status &why) {
  const Nanos limit = config_->duration("socket.reconnect_timeout");
  link.restoring = true;
  link.refused_since.reset();
  if (link.dialer) link.dialer->cancel();
  link.dialer = nullptr;
  {
    std::lock_guard lock(m_);
    outages_[peer] = {peer, link.address, Clock::now(), 0, why.error().message, "no answer"};
  }
  log::info(log::Subsys::bootstrap, "comm {:#x}: connection to {} at {} lost: {}; {} for {}", comm(), name(peer), link.address,
            why.error().message, link.dials ? "it is dialled anew" : "its other end is waited for", seconds(limit));
  std::weak_ptr<Member> weak = weak_from_this();
  link.limit_timer = service_.at(Clock::now() + limit, [weak, peer] {
    const auto m = weak.lock();
    if (!m) return;
    m->links_[peer].limit_timer = 0;
    m->not_restored(peer, false);
  });
  look_for(peer, link);
}

// Dials anew, or looks whether somebody is there.
void Member::look_for(int peer, Link &link) {
  Dialer::Job job;
  uint64_t attempts = 0;
  {
    std::lock_guard lock(m_);
    if (static_cast<size_t>(peer) >= contacts_.size()) return;
    job.targets = targets_of(contacts_[static_cast<size_t>(peer)], self_.host, *config_);
    attempts = outages_[peer].attempts;
  }
  const auto worked = [&](const Target &t) { return address_of(t.endpoint.text()) == link.address; };
  std::erase_if(job.targets, [&](const Target &t) { return is_loopback(t.endpoint) && !worked(t); }); // this host's own
  std::stable_partition(job.targets.begin(), job.targets.end(), worked);
  job.hello = hello_to(peer);
  job.key = identity_.key;
  job.deadline = Clock::now() + std::min<Nanos>(kAttempt + attempts * std::chrono::milliseconds(250), kLongestAttempt);
  job.once = true;
  job.prove = link.dials;
  std::weak_ptr<Member> weak = weak_from_this();
  link.dialer = Dialer::start(service_, std::move(job), [weak, peer](Result<Conn::Ptr> r) {
    const auto m = weak.lock();
    if (m) return m->looked_for(peer, std::move(r));
    if (r.ok()) r.value()->close();
  });
}

void Member::looked_for(int peer, Result<Conn::Ptr> r) {
  Link &link = links_[peer];
  const auto dialer = std::move(link.dialer);
  link.dialer = nullptr;
  if (!link.restoring) {
    if (r.ok()) r.value()->close();
    return;
  }
  if (r.ok()) link.refused_since.reset();
  if (r.ok() && link.dials) return attach(peer, r.value(), true);
  // An address of the peer that this host has as well, as those of bridges, is refused by this host itself: where it is known
  // by which one the peer was reached, only that counts.
  const auto worked = [&](const Target &t) { return address_of(t.endpoint.text()) == link.address; };
  const auto all = [](const Target &) { return true; };
  const bool known = dialer && dialer->has(worked);
  const bool nobody = dialer && (known ? dialer->nobody_at(worked) : dialer->nobody_at(all));
  note_attempt(peer, r.ok()  ? "it answers, and has not dialled"
                     : known ? dialer->last_error(worked)
                             : r.status().error().message);
  if (r.ok()) return look_later(peer, link, kProbePause);
  if (!nobody) {
    link.refused_since.reset();
    return look_later(peer, link, kPause);
  }
  if (!link.refused_since) link.refused_since = Clock::now();
  if (Clock::now() - *link.refused_since >= (failed() ? kRefusalsAfterFailure : kRefusals)) return not_restored(peer, true);
  look_later(peer, link, kPause);
}

void Member::note_attempt(int peer, const std::string &what) {
  std::string warning;
  {
    std::lock_guard lock(m_);
    const auto at = outages_.find(peer);
    if (at == outages_.end()) return;
    Reconnecting &o = at->second;
    o.attempts++;
    o.last = what;
    if (Clock::now() - o.since >= kWorthAWarning && !std::exchange(o.warned, true)) warning = o.text();
  }
  if (!warning.empty()) log::warn(log::Subsys::bootstrap, "comm {:#x} rank {}: {}", comm(), rank_, warning);
}

void Member::look_later(int peer, Link &link, Nanos pause) {
  service_.cancel(link.look_timer);
  link.look_timer = service_.at(Clock::now() + pause, [weak = weak_from_this(), peer] {
    const auto m = weak.lock();
    if (!m) return;
    Link &l = m->links_[peer];
    l.look_timer = 0;
    if (!l.restoring || l.dialer) return;
    if (l.candidate) { // it has not answered
      m->note_attempt(peer, "no answer");
      std::erase(l.conns, l.candidate);
      std::exchange(l.candidate, nullptr)->close();
    }
    m->look_for(peer, l);
  });
}

// The offered connection has ended before its other end has taken it.
void Member::candidate_lost(int peer, Link &link, const Status &why) {
  if (link.restoring) {
    note_attempt(peer, why.error().message);
    return look_later(peer, link, kPause);
  }
  if (link.tx || link.dialer) return;
  if (left_) return left_link(peer);
  if (Clock::now() < link.dial_until) return reach(peer, link, link.dial_until);
  fail(about(peer, Code::remote, fmt::format("{}: {}", name(peer), why.error().message)));
  note_lost(peer);
}

std::optional<Member::Reconnecting> Member::end_outage(int peer, Link &link) {
  service_.cancel(std::exchange(link.look_timer, 0));
  service_.cancel(std::exchange(link.limit_timer, 0));
  link.restoring = false;
  std::lock_guard lock(m_);
  const auto at = outages_.find(peer);
  if (at == outages_.end()) return {};
  std::optional<Reconnecting> out = std::move(at->second);
  outages_.erase(at);
  return out;
}

void Member::restored(int peer, Link &link) {
  const auto outage = end_outage(peer, link);
  if (!outage) return;
  const auto level = outage->warned ? log::Level::warn : log::Level::info;
  if (log::enabled(level, log::Subsys::bootstrap))
    log::write(
        level, log::Subsys::bootstrap,
        fmt::format(
            "comm {:#x} rank {}: connection to {} at {} restored after {}, {} attempts in vain; {} messages are sent once more",
            comm(), rank_, name(peer), link.address,
            seconds(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - outage->since)), outage->attempts,
            link.kept.size()));
}

// What is kept stays: should the other end come back after all, it hears of the failure.
void Member::not_restored(int peer, bool ended) {
  Link &link = links_[peer];
  if (link.dialer) link.dialer->cancel();
  link.dialer = nullptr;
  if (link.candidate) {
    std::erase(link.conns, link.candidate);
    std::exchange(link.candidate, nullptr)->close();
  }
  const auto outage = end_outage(peer, link);
  if (!outage) return;
  if (left_) return left_link(peer);
  if (pass_over(peer, link)) return;
  const std::string what =
      ended ? fmt::format("{}: {}; nobody listens at {} any more", name(peer), outage->why, link.address)
            : fmt::format("{}: connection to {} lost {} ago ({}), not restored in {} attempts, the last: {}", name(peer),
                          link.address, seconds(std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - outage->since)),
                          outage->why, outage->attempts, outage->last);
  fail(about(peer, Code::remote, what));
  note_lost(peer);
}

// What a link needs no more.
void Member::forget(int peer, Link &link) {
  if (link.dialer) link.dialer->cancel();
  link.dialer = nullptr;
  link.live = link.candidate = nullptr;
  (void)end_outage(peer, link);
  for (const Kept &k : link.kept) kept_ -= k.data.size();
  link.kept.clear();
}

} // namespace tutti::boot
