// Messages, allgather and failures of a member. Setting up is in member_join.cc, connections are in member_link.cc.
#include "bootstrap/member.h"
#include "log/log.h"
#include <fcntl.h>
#include <new>

namespace tutti::boot {
namespace {

// A call made without the lock, counted while it lasts, however it ends.
class Outside {
public:
  Outside(int &running, std::unique_lock<std::mutex> &lock, std::condition_variable &over)
      : running_(running), lock_(lock), over_(over) {
    running_++;
    lock_.unlock();
  }
  ~Outside() {
    lock_.lock();
    if (--running_ == 0) over_.notify_all();
  }
  Outside(const Outside &) = delete;
  Outside &operator=(const Outside &) = delete;

private:
  int &running_;
  std::unique_lock<std::mutex> &lock_;
  std::condition_variable &over_;
};

constexpr size_t kQueueBytes = 256u << 20; // unexpected messages of one rank
constexpr size_t kQueueCount = 1u << 18;
constexpr uint64_t kSendBytes = 256u << 20;        // queued for connections of one rank
constexpr auto kGoodbye = std::chrono::seconds(1); // that a leaving rank waits for its own sockets

} // namespace

Member::Member(Service &service, const Identity &identity, std::shared_ptr<const Config> config)
    : service_(service), hub_(service.hub()), identity_(identity), asking_(ask_identity(identity.key)),
      config_(std::move(config)) {}

std::string Member::name(int rank) const {
  std::lock_guard lock(m_);
  if (static_cast<size_t>(rank) < contacts_.size() && contacts_[static_cast<size_t>(rank)].pid != 0)
    return fmt::format("rank {} ({})", rank, contacts_[static_cast<size_t>(rank)].text());
  return fmt::format("rank {}", rank);
}

Error Member::about(int peer, Code code, std::string message) const {
  Error e;
  e.code = code;
  e.rank = rank_;
  e.peer = peer;
  e.phase = "bootstrap";
  e.message = std::move(message);
  return e;
}

Status Member::locate(Status s) const {
  if (s.ok()) return s;
  if (s.error().rank < 0) s.error().rank = rank_;
  if (s.error().phase.empty()) s.error().phase = "bootstrap";
  return s;
}

bool Member::later(std::function<void()> fn) {
  if (configured_) return false;
  early_.push_back(std::move(fn));
  return true;
}

// ---- allgather: every piece travels both ways around the ring, half of it each way: n/2 steps, 2 n/2 messages per rank. Ranks
// pass pieces on whether or not they are in the call themselves, so what is missing at the deadline is exactly who did not
// come.

// Nobody can be more than one allgather further than this rank: for the one after it all need this rank's piece.
bool Member::expects(uint64_t seq) const {
  std::lock_guard lock(m_);
  return seq <= next_gather_ + 1;
}

void Member::store(uint64_t seq, int origin, const Piece &piece) {
  std::lock_guard lock(m_);
  if (closed_ || seq < next_gather_) return;
  Gather &g = gathers_[seq];
  if (g.pieces.empty()) g.pieces.resize(static_cast<size_t>(nranks_));
  Piece &slot = g.pieces[static_cast<size_t>(origin)];
  if (slot) return;
  slot = piece;
  if (++g.count == nranks_) cv_.notify_all();
}

// Carries a piece on from this rank, over members of this process in one loop, until it leaves the process or has gone far
// enough. Only then is it given to those that it passed: a rank with all pieces may leave at once, so by then it must have
// passed on each of them.
void Member::spread(uint64_t seq, int origin, Direction dir, const Piece &piece) {
  const int limit = dir == up ? nranks_ / 2 : (nranks_ - 1) / 2;
  std::vector<std::shared_ptr<Member>> passed;
  std::shared_ptr<Member> at = shared_from_this();
  for (;;) {
    const int gone = dir == up ? (at->rank_ - origin + nranks_) % nranks_ : (origin - at->rank_ + nranks_) % nranks_;
    if (gone >= limit) break;
    std::shared_ptr<Member> to;
    bool is_local;
    {
      std::lock_guard lock(at->m_);
      if (!at->ring_up_[dir]) { // the neighbour on one side can be faster than we find the other one
        at->ring_waiting_[dir].push_back([at, seq, origin, dir, piece] { at->spread(seq, origin, dir, piece); });
        break;
      }
      is_local = at->ring_is_local_[dir];
      to = at->ring_local_[dir].lock();
    }
    if (!is_local) {
      at->pass_on(seq, origin, dir, piece);
      break;
    }
    if (!to) break; // it has left, which is reported where it matters
    {
      std::lock_guard lock(to->m_);
      if (to->later([to, seq, origin, dir, piece] { to->spread(seq, origin, dir, piece), to->store(seq, origin, piece); }))
        break;
    }
    passed.push_back(to);
    at = std::move(to);
  }
  for (const auto &m : passed) m->store(seq, origin, piece);
}

void Member::pass_on(uint64_t seq, int origin, Direction dir, const Piece &piece) {
  Writer w;
  w.i32(origin);
  w.u8(static_cast<uint8_t>(dir));
  w.raw(*piece);
  const int peer = dir == up ? next() : prev();
  if (service_.on_thread()) return push(peer, FrameType::gather, seq, w.take(), {});
  posted_ += kFrameHeader + w.size();
  service_.post([self = shared_from_this(), peer, seq, data = w.take()]() mutable {
    self->posted_ -= kFrameHeader + data.size();
    self->push(peer, FrameType::gather, seq, std::move(data), {});
  });
}

Result<std::vector<Bytes>> Member::allgather(std::span<const std::byte> mine, Deadline deadline, std::string_view what) {
  if (mine.size() + 64 > kFrameLimit)
    return locate(tutti::fail(Code::invalid_argument, "{}: a piece of {} bytes is above the limit of {}", what, mine.size(),
                              kFrameLimit - 64));
  if (Status s = failure(); !s.ok()) return s;
  const Piece piece = std::make_shared<const Bytes>(mine.begin(), mine.end());
  uint64_t seq;
  bool again; // it expired before: what was sent is on its way
  {
    std::lock_guard lock(m_);
    seq = next_gather_;
    again = gathers_.count(seq) && gathers_[seq].pieces[static_cast<size_t>(rank_)];
  }
  if (nranks_ > 1 && !again) {
    spread(seq, rank_, up, piece);
    spread(seq, rank_, down, piece);
  }
  store(seq, rank_, piece);
  std::unique_lock lock(m_);
  Gather &g = gathers_[seq]; // its place in the map is stable
  const bool complete = cv_.wait_until(lock, deadline.at(), [&] { return g.count == nranks_ || error_; });
  if (g.count < nranks_) {
    if (error_) return Status(*error_);
    (void)complete;
    lock.unlock();
    return gather_missing(seq, deadline, what);
  }
  std::vector<Bytes> out(static_cast<size_t>(nranks_));
  for (size_t i = 0; i < out.size(); i++) out[i] = *g.pieces[i];
  gathers_.erase(seq);
  next_gather_ = seq + 1;
  return out;
}

Status Member::gather_missing(uint64_t seq, Deadline deadline, std::string_view what) {
  std::vector<int> ranks;
  {
    std::lock_guard lock(m_);
    const Gather &g = gathers_[seq];
    for (int r = 0; r < nranks_; r++)
      if (!g.pieces[static_cast<size_t>(r)]) ranks.push_back(r);
  }
  std::string who = list_ranks(ranks);
  if (ranks.size() == 1) who = name(ranks.front()).substr(5);
  Error e = about(ranks.empty() ? -1 : ranks.front(), Code::timeout,
                  fmt::format("{}: {} of {} ranks came within {}; missing: {}{}", what,
                              nranks_ - static_cast<int>(ranks.size()), nranks_, seconds(deadline.span()), who, outage_note()));
  return Status(std::move(e));
}

// ---- messages

void Member::deliver(Message message) {
  const size_t kind = static_cast<size_t>(message.tag >> 56);
  std::unique_lock lock(m_);
  if (closed_) return;
  if (!configured_) {
    auto held = std::make_shared<Message>(std::move(message));
    early_.push_back([self = shared_from_this(), held] { self->deliver(std::move(*held)); });
    return;
  }
  if (kind < handlers_.size() && handlers_[kind].live) {
    Handler &h = handlers_[kind];
    const auto fn = h.fn; // a copy: set_handler() waits until it has returned
    const Outside outside(h.running, lock, cv_);
    return fn(std::move(message));
  }
  if (mailbox_bytes_ + message.data.size() > kQueueBytes || mailbox_count_ >= kQueueCount) {
    std::map<int, size_t> senders;
    for (const auto &[key, waiting] : mailbox_) senders[key.first] += waiting.size();
    const auto most =
        std::max_element(senders.begin(), senders.end(), [](const auto &a, const auto &b) { return a.second < b.second; });
    const auto [from, count] = *most;
    const size_t messages = mailbox_count_, held = mailbox_bytes_;
    lock.unlock();
    return fail(
        about(from, Code::internal,
              fmt::format("the queue of unexpected messages is full ({} messages, {} bytes): {} sent {} that nobody received",
                          messages, held, name(from), count)));
  }
  mailbox_bytes_ += message.data.size();
  mailbox_count_++;
  mailbox_[{message.from, message.tag}].push_back(std::move(message));
  cv_.notify_all();
}

Status Member::unreachable(int to) const {
  return Status(about(to, Code::remote, name(to) + " has left the communicator"));
}

Status Member::send(int to, uint64_t tag, std::span<const std::byte> data, int fd) {
  if (to < 0 || to >= nranks_)
    return locate(tutti::fail(Code::invalid_argument, "cannot send to rank {}: the ranks are 0 to {}", to, nranks_ - 1));
  if (data.size() > kFrameLimit)
    return locate(
        tutti::fail(Code::invalid_argument, "a message of {} bytes is above the limit of {}", data.size(), kFrameLimit));
  if (failed()) return failure();
  UniqueFd copy;
  if (fd >= 0) {
    if (peer(to).host != peer(rank_).host)
      return locate(tutti::fail(Code::invalid_usage, "a descriptor cannot be sent to {}: it is on another host", name(to)));
    copy.reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return locate(fail_errno(errno, "cannot duplicate a descriptor"));
  }
  Bytes bytes(data.begin(), data.end());
  if (peer(to).process == hub_.process()) {
    const auto target = to == rank_ ? shared_from_this() : hub_.find(comm(), to);
    if (!target) return unreachable(to);
    target->deliver(Message{rank_, tag, std::move(bytes), std::move(copy)});
    return {};
  }
  {
    std::lock_guard lock(m_);
    if (gone_[static_cast<size_t>(to)]) copy.reset(-1), bytes.clear();
    if (gone_[static_cast<size_t>(to)]) to = -1 - to;
  }
  if (to < 0) return unreachable(-1 - to);
  if (posted_.load() + std::max(queued_->load(), kept_.load()) + bytes.size() > kSendBytes) // what is kept may be queued, too
    return locate(Status(about(to, Code::remote,
                               fmt::format("more than {} bytes wait to be sent to other ranks; {} does not read{}", kSendBytes,
                                           name(to), outage_note()))));
  posted_ += kFrameHeader + bytes.size();
  auto held = std::make_shared<UniqueFd>(std::move(copy)); // std::function wants copyable things
  service_.post([self = shared_from_this(), to, tag, held, b = std::move(bytes)]() mutable {
    self->posted_ -= kFrameHeader + b.size(); // from here on counted by the link
    self->push(to, FrameType::message, tag, std::move(b), std::move(*held));
  });
  return {};
}

bool Member::try_recv(int from, uint64_t tag, Message *out) {
  std::lock_guard lock(m_);
  auto it = mailbox_.find({from, tag});
  if (it == mailbox_.end()) return false;
  *out = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) mailbox_.erase(it);
  mailbox_bytes_ -= out->data.size();
  mailbox_count_--;
  return true;
}

Result<Message> Member::recv(int from, uint64_t tag, Deadline deadline, std::string_view what) {
  if (from < 0 || from >= nranks_)
    return locate(
        tutti::fail(Code::invalid_argument, "{}: cannot receive from rank {}: the ranks are 0 to {}", what, from, nranks_ - 1));
  Message m;
  if (try_recv(from, tag, &m)) return m;
  {
    std::unique_lock lock(m_);
    cv_.wait_until(lock, deadline.at(), [&] {
      return mailbox_.count({from, tag}) || error_ || gone_[static_cast<size_t>(from)];
    });
  }
  if (try_recv(from, tag, &m)) return m;
  if (Status s = failure(); !s.ok()) return s;
  {
    std::lock_guard lock(m_);
    if (!gone_[static_cast<size_t>(from)]) from = -1 - from;
  }
  if (from >= 0) return unreachable(from);
  from = -1 - from;
  return Status(
      about(from, Code::timeout,
            fmt::format("{}: no message from {} within {}{}", what, name(from), seconds(deadline.span()), outage_note())));
}

void Member::set_handler(MsgKind kind, std::function<void(Message)> fn) {
  Handler &h = handlers_[static_cast<size_t>(kind)];
  std::unique_lock lock(m_);
  h.live = false;
  cv_.wait(lock, [&] { return h.running == 0; });
  h.fn = std::move(fn);
  if (!h.fn) return;
  for (;;) { // queued ones first; what arrives meanwhile is queued behind them
    auto it = mailbox_.begin();
    while (it != mailbox_.end() && it->first.second >> 56 != static_cast<uint64_t>(kind)) ++it;
    if (it == mailbox_.end()) break;
    Message m = std::move(it->second.front());
    it->second.pop_front();
    if (it->second.empty()) mailbox_.erase(it);
    mailbox_bytes_ -= m.data.size();
    mailbox_count_--;
    const Outside outside(h.running, lock, cv_);
    h.fn(std::move(m));
  }
  h.live = true;
}

// ---- failures

Status Member::failure() const {
  std::lock_guard lock(m_);
  return error_ ? Status(*error_) : Status();
}

void Member::on_failure(std::function<void(const Error &)> fn) {
  std::unique_lock lock(m_);
  cv_.wait(lock, [&] { return failure_running_ == 0; });
  on_failure_ = std::move(fn);
  if (!error_ || !on_failure_) return;
  const auto call = std::exchange(on_failure_, nullptr); // it happened before
  const Error e = *error_;
  lock.unlock();
  call(e);
}

void Member::report_failure(const Error &error) {
  Error e = error;
  if (e.rank < 0) e.rank = rank_;
  if (e.phase == "abort" && e.peer == rank_) council_.stop(e, true);
  fail(std::move(e));
}

void Member::fail(Error error, bool relayed) {
  Error out = error; // what others hear: whom it is about, and who says so where that is not the same
  error.rank = rank_;
  if (!relayed) {
    if (out.code != Code::remote)
      out.message = fmt::format("{} failed: {}", name(rank_), out.message);
    else if (!out.endpoint.empty())
      out.message = fmt::format("{} reports: {}", name(rank_), out.message); // about its own connection
    if (out.peer < 0) out.peer = rank_;
    out.code = Code::remote;
  }
  std::function<void(const Error &)> call;
  std::shared_ptr<Member> child;
  std::unique_lock lock(m_, std::defer_lock);
  // Made before anything is kept: where there is no memory for all of it, nothing has happened.
  auto kept = std::make_shared<Error>(error);
  Error told = out;
  std::function<void()> flood = [self = shared_from_this(), out] { self->flood(out); };
  lock.lock();
  if (error_ || closed_) return;
  error_ = std::move(kept);
  told_ = std::move(told);
  failed_.store(true);
  call = std::exchange(on_failure_, nullptr);
  child = pending_child_.lock();
  cv_.notify_all();
  if (call) {
    const Outside outside(failure_running_, lock, cv_);
    try {
      call(error);
    } catch (const std::bad_alloc &) { // others must hear of it all the same
    }
  }
  lock.unlock();
  log::debug(log::Subsys::bootstrap, "comm {:#x} rank {}: failed: {}", comm(), rank_, error.message);
  if (child) child->fail(error, true);
  for (const auto &m : hub_.local(comm()))
    if (m.get() != this) m->fail(out, true);
  service_.post(std::move(flood));
}

std::vector<Contact> Member::contacts() const {
  std::lock_guard lock(m_);
  return contacts_;
}

std::vector<int> Member::gone() const {
  std::lock_guard lock(m_);
  std::vector<int> out;
  for (size_t r = 0; r < gone_.size(); r++)
    if (gone_[r]) out.push_back(static_cast<int>(r));
  return out;
}

std::string Member::joining() const {
  std::lock_guard lock(m_);
  return ring_done_ ? "" : progress_.empty() ? "a neighbour has not connected" : progress_;
}

void Member::expect_close() {
  std::lock_guard lock(m_);
  closing_ = true;
}

void Member::peer_gone(int rank, bool clean) {
  {
    std::lock_guard lock(m_);
    if (closed_ || static_cast<size_t>(rank) >= gone_.size()) return;
    clean = clean || closing_;
  }
  // Before waits for this rank end: who returns from one and leaves must have told the reason.
  if (!clean) fail(about(rank, Code::remote, name(rank) + " left the communicator before it was finalized"));
  {
    std::lock_guard lock(m_);
    gone_[static_cast<size_t>(rank)] = true;
    cv_.notify_all();
  }
  note_lost(rank);
}

bool Member::is_lost(int rank) const {
  std::lock_guard lock(m_);
  return static_cast<size_t>(rank) < lost_.size() && lost_[static_cast<size_t>(rank)];
}

// Only the first failure is told to everybody as such; who goes on after it has to hear of the others, too.
void Member::note_lost(int rank) {
  std::shared_ptr<Member> child;
  {
    std::lock_guard lock(m_);
    if (closed_ || static_cast<size_t>(rank) >= lost_.size() || lost_[static_cast<size_t>(rank)]) return;
    lost_[static_cast<size_t>(rank)] = true;
    if (std::find(shrunk_of_.begin(), shrunk_of_.end(), rank) != shrunk_of_.end()) child = shrunk_.lock();
    cv_.notify_all();
  }
  if (child)
    child->fail(child->about(-1, Code::remote, name(rank) + " has gone while the ranks that go on were meeting"), true);
  const bool tell = failed();
  service_.post([self = shared_from_this(), rank, tell] {
    if (tell) self->tell_lost(rank);
    self->council_.gone(rank);
  });
  if (!tell) return;
  for (const auto &m : hub_.local(comm()))
    if (m.get() != this) m->note_lost(rank);
}

uint64_t Member::fds() const {
  return fds_->load() + hub_.listener_fds();
}

void Member::close() {
  bool clean;
  std::shared_ptr<Error> told;
  {
    std::unique_lock lock(m_);
    if (closed_) return;
    if (error_) told = std::make_shared<Error>(told_);
    closed_ = true;
    clean = closing_ || !configured_;
    for (Handler &h : handlers_) h.live = false;
    if (!service_.on_thread()) // on return no callback of ours runs
      cv_.wait(lock, [&] {
        return failure_running_ == 0 &&
               std::all_of(handlers_.begin(), handlers_.end(), [](const Handler &h) { return h.running == 0; });
      });
    for (Handler &h : handlers_) h.fn = nullptr;
    on_failure_ = nullptr;
    early_.clear();
    for (auto &waiting : ring_waiting_) waiting.clear();
    mailbox_.clear();
    gathers_.clear();
  }
  hub_.remove(comm(), rank_, this);
  if (rank_ >= 0)
    for (const auto &m : hub_.local(comm()))
      if (m.get() != this) {
        if (told) m->fail(*told, true); // the reason comes before the goodbye
        m->peer_gone(rank_, clean);
      }
  const auto written = std::make_shared<std::promise<void>>();
  auto future = written->get_future();
  const auto limit = Clock::now() + kGoodbye;
  service_.post([self = shared_from_this(), clean, told, written, limit] {
    self->council_.close();
    if (told) self->flood(*told);
    self->leave_root();
    self->leave_links(clean);
    self->when_written(written, limit);
  });
  if (!service_.on_thread()) future.wait_until(limit); // the application may end without exit handlers
}

} // namespace tutti::boot
