// Connections of a member to ranks of other processes. All on the service thread.
#include "bootstrap/member.h"
#include "log/log.h"

namespace tutti::boot {
namespace {

// Its process listened when it joined: one that refuses has ended.
constexpr int64_t kRetriesAfterFailure = 2;

} // namespace

void Member::adopt(const Conn::Ptr &conn) {
  const int peer = conn->hello().from;
  if (peer < 0 || peer >= nranks_ || peer == rank_) return conn->close();
  attach(peer, conn, false); // also when this rank has left: the other end is told so, not cut off
}

void Member::attach(int peer, const Conn::Ptr &conn, bool dialled) {
  const auto self = shared_from_this();
  Link &link = links_[peer];
  link.conns.push_back(conn);
  conn->own(queued_, fds_);
  conn->dead_after(config_->duration("socket.dead_after"));
  std::weak_ptr<Member> weak = self;
  std::weak_ptr<Conn> wconn = conn;
  conn->on_frame = [weak, peer, wconn](Frame f) {
    const auto m = weak.lock();
    const auto c = wconn.lock();
    if (m && c) m->arrived(peer, c, std::move(f));
  };
  conn->on_close = [weak, peer, wconn](const Status &why) {
    const auto m = weak.lock();
    const auto c = wconn.lock();
    if (m && c) m->lost(peer, c, why);
  };
  if (conn->is_unix()) {
    if (!link.tx) link.tx = conn;
    return link_up(peer, link);
  }
  if (left_ && link.waiting.empty() && link.kept.empty()) return left_link(peer);
  if (dialled) offer(peer, link, conn); // else it begins with the other end's words
}

// It has a connection to send over.
void Member::link_up(int peer, Link &link) {
  const bool first = !std::exchange(link.was_up, true);
  send_waiting(peer, link);
  if (left_) return left_link(peer);
  if (failed() && (first || (link.tx && link.tx->is_unix()))) { // it may have happened while this connection was made
    Error told;
    {
      std::lock_guard lock(m_);
      told = told_;
    }
    transmit(peer, link, FrameType::failure, 0, encode(told));
  }
  if (peer == next()) ring_joined(up);
  if (peer == prev()) ring_joined(down);
}

void Member::send_waiting(int to, Link &link) {
  auto waiting = std::move(link.waiting);
  link.waiting.clear();
  for (Waiting &w : waiting) {
    queued_->fetch_sub(w.data.size());
    if (link.tx || link.numbered) transmit(to, link, w.type, w.tag, w.data, std::move(w.fd));
  }
}

Hello Member::hello_to(int rank) const {
  Hello h;
  h.library = library_version();
  h.comm = comm();
  h.from = rank_;
  h.to = rank;
  random_bytes(h.nonce);
  return h;
}

void Member::dial(int to, Link &link, const Contact &contact, Clock::time_point deadline) {
  Dialer::Job job;
  job.targets = targets_of(contact, self_.host, *config_);
  job.hello = hello_to(to);
  job.key = identity_.key;
  job.deadline = deadline;
  set_retries(&job, *config_);
  if (failed()) job.retry_count = std::min<int64_t>(job.retry_count, kRetriesAfterFailure);
  link.dial_until = deadline;
  std::weak_ptr<Member> weak = weak_from_this();
  link.dialer = Dialer::start(service_, std::move(job), [weak, to](Result<Conn::Ptr> r) {
    auto m = weak.lock();
    if (!m) {
      if (r.ok()) r.value()->close();
      return;
    }
    Link &l = m->links_[to];
    l.dialer = nullptr;
    if (r.ok()) return m->attach(to, r.value(), true);
    if (m->left_) return m->left_link(to);
    if (l.tx || l.gone || l.restoring) return; // it came from there meanwhile
    m->fail(m->about(to, Code::remote, fmt::format("cannot connect to {}: {}", m->name(to), r.status().error().message)));
    m->note_lost(to);
  });
}

void Member::push(int to, FrameType type, uint64_t tag, Bytes data, UniqueFd fd) {
  if (left_) return;
  Link &link = links_[to];
  if (link.gone) return;
  if (link.tx || link.numbered) {
    if (fd && !(link.tx && link.tx->is_unix()))
      return fail(
          about(to, Code::system,
                fmt::format("a descriptor cannot be sent to {}: its unix-domain listener cannot be reached", name(to))));
    transmit(to, link, type, tag, data, std::move(fd));
  } else {
    queued_->fetch_add(data.size());
    link.waiting.push_back({type, tag, std::move(data), std::move(fd)});
    if ((to == next() || to == prev()) && !link.was_up) return; // ring connections are made by joining
  }
  if (!link.tx && !link.dialer && !link.candidate && !link.restoring)
    reach(to, link, Clock::now() + config_->duration("core.connect_timeout"));
}

void Member::reach(int to, Link &link, Clock::time_point deadline) {
  Contact contact;
  {
    std::lock_guard lock(m_);
    if (static_cast<size_t>(to) >= contacts_.size()) return;
    contact = contacts_[static_cast<size_t>(to)];
  }
  dial(to, link, contact, deadline);
}

void Member::frame(int from, Frame f) {
  switch (f.type) {
  case FrameType::message:
    return deliver(Message{from, f.tag, std::move(f.payload), std::move(f.fd)});
  case FrameType::gather: {
    Reader r(f.payload);
    const int origin = r.i32();
    const uint8_t dir = r.u8();
    const auto rest = r.rest();
    if (!r.ok() || origin < 0 || origin >= nranks_ || origin == rank_ || dir > down || from != (dir == up ? prev() : next()))
      break;
    const auto piece = std::make_shared<const Bytes>(rest.begin(), rest.end());
    if (!expects(f.tag)) break;
    spread(f.tag, origin, static_cast<Direction>(dir), piece);
    return store(f.tag, origin, piece);
  }
  case FrameType::failure:
    if (auto e = decode_error(f.payload)) {
      return fail(*e, true);
    }
    break;
  case FrameType::council:
    return council_.hear(from, f.payload);
  case FrameType::gone: {
    Reader r(f.payload);
    const int rank = r.i32();
    if (!r.done() || rank < 0 || rank >= nranks_) break;
    if (rank != rank_) note_lost(rank); // of itself it knows better
    return;
  }
  case FrameType::goodbye: {
    Link &link = links_[from];
    const bool clean = !f.payload.empty() && f.payload[0] == std::byte(1);
    link.gone = true;
    for (auto &c : link.conns) c->finish();
    link.conns.clear();
    link.tx = nullptr;
    forget(from, link);
    if (left_) return left_link(from);
    return peer_gone(from, clean);
  }
  default:
    break;
  }
  malformed(from);
}

void Member::malformed(int from) {
  fail(about(from, Code::internal, fmt::format("{} sent a malformed message on the control connection", name(from))));
}

void Member::lost(int peer, const Conn::Ptr &conn, const Status &why) {
  Link &link = links_[peer];
  std::erase(link.conns, conn);
  const bool live = link.live == conn, candidate = link.candidate == conn;
  if (live) link.live = nullptr;
  if (candidate) link.candidate = nullptr;
  if (link.tx == conn) link.tx = nullptr;
  if (link.gone) return;
  if (candidate) return candidate_lost(peer, link, why);
  if (!live && !conn->is_unix()) return;                           // it had not begun
  if (left_ && why.error().sys_errno == 0) return left_link(peer); // the other end has read the goodbye, and closed
  if (live && may_resume(peer, link)) return interrupted(peer, link, why);
  if (pass_over(peer, link)) return;
  fail(about(peer, Code::remote, fmt::format("{}: {}", name(peer), why.error().message)));
  // That connection has ended; whether the process has shows when it is dialled once more.
  if (!link.tx && !link.dialer) send_council(peer, council_.greeting());
}

// Its end is no failure where everybody is done.
bool Member::pass_over(int peer, Link &link) {
  {
    std::lock_guard lock(m_);
    if (!closing_ && !closed_) return false;
    if (static_cast<size_t>(peer) < gone_.size()) gone_[static_cast<size_t>(peer)] = true;
    cv_.notify_all();
  }
  link.gone = true;
  note_lost(peer);
  return true;
}

// To all links that are up or were, but that to `except`.
void Member::send_all(FrameType type, const Bytes &data, int except) {
  std::vector<int> to;
  for (const auto &[peer, link] : links_)
    if ((link.tx || link.numbered) && !link.gone && peer != except) to.push_back(peer);
  for (const int peer : to) transmit(peer, links_[peer], type, 0, data);
}

void Member::tell_lost(int rank) {
  Writer w;
  w.i32(rank);
  send_all(FrameType::gone, w.take(), rank);
}

void Member::send_council(int to, Bytes data) {
  if (!met_.load(std::memory_order_acquire)) return; // who fails while ranks join goes on with nobody
  if (to != rank_ && peer(to).process != hub_.process()) return push(to, FrameType::council, 0, std::move(data), {});
  const auto target = to == rank_ ? shared_from_this() : hub_.find(comm(), to);
  if (!target) return note_lost(to);
  service_.post([target, from = rank_, held = std::move(data)] { target->council_.hear(from, held); });
}

// Over every connection, so around the ring both ways; each rank passes the first one it hears on.
void Member::flood(const Error &error) {
  const Bytes data = encode(error);
  send_all(FrameType::failure, data, -1);
  if (!at_root_) return;
  if (root_conn_) root_conn_->send(FrameType::failure, 0, data);
  if (local_root_) local_root_->failed(generation_, rank_, error);
}

// What was sent before leaving still arrives: a connection that is being made or restored for it gets a moment to come about,
// and one that may have to be restored stays until its other end has closed it.
void Member::leave_links(bool clean) {
  left_ = clean;
  for (auto it = links_.begin(); it != links_.end();) {
    Link &link = it->second;
    const bool comes = !link.tx && (link.dialer || link.candidate || link.restoring);
    const bool may_break = link.live && link.tx == link.live && !link.kept.empty() && may_resume(it->first, link);
    if (!link.gone && (may_break || (comes && !(link.waiting.empty() && link.kept.empty())))) {
      if (may_break) say_goodbye(link);
      ++it;
      continue;
    }
    leave_link(it->first, link);
    it = links_.erase(it);
  }
  if (links_.empty()) return;
  service_.draining++;
  hub_.add_leaving(comm(), rank_, shared_from_this());
  linger_timer_ = service_.at(Clock::now() + kLinger, [self = shared_from_this()] {
    self->linger_timer_ = 0;
    self->service_.draining--;
    for (auto &[peer, link] : self->links_) self->leave_link(peer, link);
    self->links_.clear();
    self->hub_.remove_leaving(self->comm(), self->rank_);
  });
}

void Member::say_goodbye(Link &link) {
  const std::vector<Conn::Ptr> conns = link.conns; // one may get lost meanwhile
  for (const auto &c : conns)
    c->send(FrameType::goodbye, 0, Bytes{std::byte(*left_ ? 1 : 0)}); // on each: they are read in any order
}

void Member::leave_link(int peer, Link &link) {
  send_waiting(peer, link);
  say_goodbye(link);
  for (const auto &c : link.conns) c->finish();
  forget(peer, link);
}

// What waits for a full socket, or for a connection that is being made, is looked at again: both are rare here.
void Member::when_written(const std::shared_ptr<std::promise<void>> &done, Clock::time_point limit) {
  if (queued_->load() == 0 || Clock::now() >= limit) return done->set_value();
  service_.at(Clock::now() + std::chrono::milliseconds(2),
              [self = shared_from_this(), done, limit] { self->when_written(done, limit); });
}

void Member::left_link(int peer) {
  const auto self = shared_from_this(); // the timer may hold the last reference
  leave_link(peer, links_[peer]);
  links_.erase(peer);
  if (!links_.empty() || linger_timer_ == 0) return;
  service_.cancel(std::exchange(linger_timer_, 0));
  service_.draining--;
  hub_.remove_leaving(comm(), rank_);
}

} // namespace tutti::boot
