// How a member comes into being: check-in at the root, ring, exchange of contacts; or a split of a parent.
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {

void Member::configure(int nranks, int rank) {
  std::vector<std::function<void()>> early;
  {
    std::lock_guard lock(m_);
    nranks_ = nranks;
    rank_ = rank;
    gone_.assign(static_cast<size_t>(nranks), false);
    lost_ = gone_;
    configured_ = true;
    if (nranks == 1) {
      ring_up_ = {true, true};
      ring_done_ = true;
    }
    early.swap(early_);
  }
  for (auto &fn : early) fn();
}

Member::Seat Member::seat_of(std::span<const UniqueId> ids) const {
  Seat s;
  s.nroots = static_cast<int>(ids.size());
  s.root = root_of_rank(nranks_, s.nroots, rank_);
  s.id = ids[static_cast<size_t>(s.root)];
  s.ids = hash_ids(ids);
  // The box: a root process may know no rank that would tell it, and the id holds a secret.
  const tuttiUniqueId first = encode(ids.front());
  if (s.root > 0) s.first_root = seal(root_identity(s.id).key, std::as_bytes(std::span(first.internal)));
  return s;
}

Status Member::join(std::span<const UniqueId> ids, int nranks, int rank, Deadline deadline) {
  configure(nranks, rank);
  hub_.expect_ranks(nranks);
  TUTTI_ASSIGN(self, hub_.contact(*config_));
  self_ = self;
  {
    std::lock_guard lock(m_);
    contacts_.resize(static_cast<size_t>(nranks));
    contacts_[static_cast<size_t>(rank)] = self_;
    progress_ = "the root has not been reached";
  }
  if (!hub_.add(comm(), rank, shared_from_this())) {
    Error e = about(rank, Code::invalid_usage,
                    fmt::format("rank {} checked in twice: both are in this process ({})", rank, self_.text()));
    if (auto first = hub_.find(comm(), rank)) first->fail(e);
    return Status(std::move(e));
  }
  service_.post([me = shared_from_this(), seat = seat_of(ids), deadline] { me->check_in(seat, deadline); });
  // A little longer than asked for: at the deadline the root names who is missing, which says more than this rank can.
  const Deadline after_root = deadline.extended(std::min<Nanos>(deadline.span() / 2, std::chrono::seconds(1)));
  TUTTI_TRY(wait_ring(after_root));
  return exchange_contacts(after_root);
}

CheckIn Member::check_in_data(const Seat &seat, Deadline deadline) const {
  CheckIn in;
  in.generation = seat.id.generation;
  in.nranks = nranks_;
  in.rank = rank_;
  in.library = library_version();
  in.left_ns = static_cast<uint64_t>(deadline.left().count());
  in.span_ns = static_cast<uint64_t>(deadline.span().count());
  in.nroots = seat.nroots;
  in.root = seat.root;
  in.ids = seat.ids;
  in.security = config_->text("core.security");
  in.first_root = seat.first_root;
  in.contact = self_;
  return in;
}

void Member::check_in(const Seat &seat, Deadline deadline) {
  {
    std::lock_guard lock(m_);
    if (closed_) return;
  }
  generation_ = seat.id.generation;
  set_up_deadline_ = deadline.at();
  if ((local_root_ = hub_.find_root(seat.id.base))) {
    at_root_ = true;
    std::weak_ptr<Member> weak = weak_from_this();
    return local_root_->check_in(check_in_data(seat, deadline), [weak](FrameType type, const Bytes &data) {
      auto m = weak.lock();
      if (!m) return;
      m->service_.post([m, type, data] { m->root_frame(type, data); }); // the root is still busy with its tables
    });
  }
  const int64_t threshold = config_->number("socket.stagger_threshold");
  const RankRange here = ranks_of_root(nranks_, seat.nroots, seat.root);
  if (here.size() <= threshold) return dial_root(seat, deadline);
  const Nanos delay(1'000'000'000ll * (rank_ - here.low) / config_->number("socket.stagger_rate"));
  stagger_timer_ = service_.at(Clock::now() + delay, [me = shared_from_this(), seat, deadline] {
    me->stagger_timer_ = 0;
    me->dial_root(seat, deadline);
  });
}

void Member::dial_root(const Seat &seat, Deadline deadline) {
  Dialer::Job job = root_job(seat.id, rank_, *config_, deadline.at());
  root_text_ = "the process that made the unique id";
  std::weak_ptr<Member> weak = weak_from_this();
  root_dialer_ = Dialer::start(service_, std::move(job), [weak, seat, deadline](Result<Conn::Ptr> r) {
    auto m = weak.lock();
    if (!m) {
      if (r.ok()) r.value()->close();
      return;
    }
    m->root_dialer_ = nullptr;
    if (!r.ok())
      return m->fail(m->about(-1, r.status().code() == Code::timeout ? Code::timeout : Code::remote,
                              fmt::format("cannot reach the root: {}", r.status().error().message)));
    m->root_conn_ = r.value();
    m->root_conn_->own(m->queued_, m->fds_);
    m->root_conn_->on_frame = [weak](Frame f) {
      if (auto me = weak.lock()) me->root_frame(f.type, f.payload);
    };
    m->root_conn_->on_close = [weak](const Status &why) {
      if (auto me = weak.lock()) me->root_lost(why);
    };
    m->at_root_ = true;
    m->root_conn_->send(FrameType::check_in, 0, encode(m->check_in_data(seat, deadline)));
    std::lock_guard lock(m->m_);
    m->progress_ = fmt::format("checked in at the root, which has not named rank {}", m->next());
  });
}

void Member::root_frame(FrameType type, const Bytes &data) {
  Reader r(data);
  Contact c;
  switch (type) {
  case FrameType::welcome:
    root_rank_ = r.i32();
    if (get(r, &c))
      root_text_ = root_rank_ >= 0 ? fmt::format("rank {} ({})", root_rank_, c.text()) : fmt::format("the root ({})", c.text());
    return;
  case FrameType::successor: {
    const bool is_next = r.u8() != 0;
    if (nranks_ == 1) return ring_progress();
    if (!get(r, &c) || !at_root_) return;
    {
      std::lock_guard lock(m_);
      contacts_[static_cast<size_t>(is_next ? next() : prev())] = c;
    }
    if (is_next) connect_ring(c, c.process == self_.process ? hub_.find(comm(), next()) : nullptr);
    return;
  }
  case FrameType::failure:
    at_root_ = false; // it told everybody else itself
    if (auto e = decode_error(data)) fail(with_own_view(std::move(*e)), true);
    return;
  case FrameType::goodbye:
    at_root_ = false;
    local_root_ = nullptr;
    if (root_conn_) root_conn_->finish();
    root_conn_ = nullptr;
    return;
  default:
    return;
  }
}

// The root knows who is in the ring, its ranks know which neighbour keeps them out of it.
Error Member::with_own_view(Error e) const {
  if (e.code != Code::timeout) return e;
  std::lock_guard lock(m_);
  std::vector<int> absent;
  for (const Direction d : {up, down})
    if (!ring_up_[d] && !contacts_[static_cast<size_t>(d == up ? next() : prev())].hostname.empty())
      absent.push_back(d == up ? next() : prev());
  if (absent.empty() || ring_done_) return e;
  std::sort(absent.begin(), absent.end());
  e.message += fmt::format("; rank {} waits for rank{} {}", rank_, absent.size() == 1 ? "" : "s", list_ranks(absent));
  e.peer = absent.front();
  return e;
}

void Member::root_lost(const Status &why) {
  root_conn_ = nullptr;
  if (!std::exchange(at_root_, false)) return;
  Error e = about(root_rank_, Code::remote, fmt::format("{}: {} while ranks were joining", root_text_, why.error().message));
  fail(std::move(e));
}

// The connection to rank + 1; the one to rank - 1 is made from there. Of two ranks the lower one connects.
void Member::connect_ring(const Contact &to, const std::shared_ptr<Member> &same_process) {
  const int peer = next();
  next_contact_ = to;
  {
    std::lock_guard lock(m_);
    progress_ = ring_up_[down] ? fmt::format("rank {} ({}) has not been reached", peer, to.text())
                               : fmt::format("rank {} has not connected", prev());
  }
  if (same_process) {
    ring_neighbour(peer, same_process);
    const auto me = shared_from_this();
    bool held;
    {
      std::lock_guard lock(same_process->m_);
      held = same_process->later([same_process, me] { same_process->ring_neighbour(me->rank_, me); });
    }
    if (!held) same_process->ring_neighbour(rank_, me);
    return;
  }
  if (to.process == self_.process)
    return fail(about(peer, Code::remote, fmt::format("rank {} ({}) gave up joining", peer, to.text())));
  if (nranks_ == 2 && rank_ == 1) return;
  Link &link = links_[peer];
  if (!link.tx && !link.dialer) dial(peer, link, to, set_up_deadline_);
}

void Member::ring_neighbour(int rank, const std::shared_ptr<Member> &member) {
  for (Direction d : {up, down}) {
    if (rank != (d == up ? next() : prev())) continue;
    {
      std::lock_guard lock(m_);
      ring_local_[d] = member;
      ring_is_local_[d] = true;
    }
    ring_joined(d);
  }
}

void Member::ring_joined(Direction dir) {
  std::vector<std::function<void()>> waiting;
  {
    std::lock_guard lock(m_);
    if (ring_up_[dir]) return;
    ring_up_[dir] = true;
    waiting.swap(ring_waiting_[dir]);
  }
  for (auto &fn : waiting) fn();
  ring_progress();
}

void Member::ring_progress() {
  {
    std::lock_guard lock(m_);
    if (closed_ || !ring_up_[up] || !ring_up_[down]) return;
    if (ring_done_ && nranks_ > 1) return;
    ring_done_ = true;
    cv_.notify_all();
  }
  service_.post([self = shared_from_this()] {
    if (!self->at_root_) return;
    if (self->local_root_)
      self->local_root_->in_ring(self->generation_, self->rank_);
    else if (self->root_conn_)
      self->root_conn_->send(FrameType::in_ring, 0, {});
    self->at_root_ = false;
  });
}

Status Member::wait_ring(Deadline deadline) {
  std::unique_lock lock(m_);
  cv_.wait_until(lock, deadline.at(), [&] { return ring_done_ || error_; });
  if (error_) return Status(*error_);
  if (ring_done_) return {};
  const std::string progress = progress_;
  lock.unlock();
  const auto told = std::make_shared<std::string>(progress);
  Error e = about(-1, Code::timeout, fmt::format("not joined within {}: {}", seconds(deadline.span()), *told));
  fail(e);
  return Status(std::move(e));
}

Status Member::exchange_contacts(Deadline deadline) {
  Writer w;
  put(w, self_);
  auto came = allgather(w.take(), deadline, "joining");
  if (!came.ok()) {
    fail(came.status().error()); // for the others, who would hear the goodbye only
    return std::move(came.status());
  }
  const std::vector<Bytes> &all = came.value();
  std::vector<Contact> contacts(all.size());
  infos_.resize(all.size());
  for (size_t i = 0; i < all.size(); i++) {
    Reader r(all[i]);
    Contact &c = contacts[i];
    if (!get(r, &c) || !r.done())
      return Status(about(static_cast<int>(i), Code::internal, fmt::format("rank {} described itself wrongly", i)));
    infos_[i] = PeerInfo{static_cast<int>(i), c.process, c.host, c.pid, c.hostname};
  }
  met_.store(true, std::memory_order_release);
  std::lock_guard lock(m_);
  contacts_ = std::move(contacts);
  return {};
}

void Member::leave_root() {
  service_.cancel(stagger_timer_);
  stagger_timer_ = 0;
  if (root_dialer_) root_dialer_->cancel();
  root_dialer_ = nullptr;
  if (std::exchange(at_root_, false)) { // gave up before the ring was closed
    Status s = failure();
    Error e = s.ok() ? about(rank_, Code::remote, fmt::format("rank {} ({}) gave up joining", rank_, self_.text())) : s.error();
    if (local_root_) local_root_->failed(generation_, rank_, e);
    if (root_conn_) root_conn_->send(FrameType::failure, 0, encode(e));
  }
  local_root_ = nullptr;
  if (root_conn_) root_conn_->finish();
  root_conn_ = nullptr;
}

// ---- split

Result<std::shared_ptr<Member>> Member::split(int color, int key, std::shared_ptr<const Config> config, Deadline deadline,
                                              bool *all_came) {
  uint64_t number;
  std::shared_ptr<Member> child;
  {
    std::lock_guard lock(m_);
    number = splits_++;
  }
  if (color >= 0) { // known to this process before anybody can look for it
    child = std::make_shared<Member>(service_, child_identity(identity_, number, color), std::move(config));
    child->ask_under(asking_);
    hub_.add_child(comm(), number, rank_, child);
  }
  Writer w;
  w.i32(color);
  w.i32(key);
  auto all = allgather(w.take(), deadline, "split");
  if (!all.ok() || !child) {
    if (child) hub_.remove_child(comm(), number, rank_);
    if (!all.ok()) return std::move(all.status());
  }
  if (all_came) *all_came = true;
  if (!child) return child;
  std::vector<std::pair<int, int>> order; // (key, rank) of those with this color
  int wrong = -1;
  for (int r = 0; r < nranks_; r++) {
    Reader reader(all.value()[static_cast<size_t>(r)]);
    const int c = reader.i32(), k = reader.i32();
    if (!reader.done()) wrong = r;
    if (c == color) order.emplace_back(k, r);
  }
  if (wrong >= 0) {
    hub_.remove_child(comm(), number, rank_);
    return locate(
        tutti::fail(Code::invalid_usage, "rank {} splits the communicator, rank {} calls something else", rank_, wrong)
            .peer(wrong)
            .phase("split"));
  }
  std::sort(order.begin(), order.end());
  std::vector<int> members;
  int index = 0;
  for (const auto &[k, r] : order) {
    if (r == rank_) index = static_cast<int>(members.size());
    members.push_back(r);
  }
  Status s = enter_child(child, members, index, number, deadline);
  hub_.remove_child(comm(), number, rank_);
  {
    std::lock_guard lock(m_);
    pending_child_.reset();
  }
  if (s.ok()) return child;
  child->fail(s.error(), true);
  child->close();
  return s;
}

Status Member::enter_child(const std::shared_ptr<Member> &child, const std::vector<int> &members, int index, uint64_t number,
                           Deadline deadline) {
  {
    std::lock_guard lock(m_);
    if (error_) return Status(*error_);
    pending_child_ = child; // if a rank of the parent fails now, the child must not wait for it
  }
  TUTTI_TRY(seat_child(child, members, index));
  if (members.size() == 1) return {};
  return meet(child, deadline, [&] { return hub_.find_child(comm(), number, members[static_cast<size_t>(child->next())]); });
}

// The child knows who is in it, and others can find it.
Status Member::seat_child(const std::shared_ptr<Member> &child, const std::vector<int> &members, int index) {
  {
    std::lock_guard lock(m_);
    child->contacts_.clear();
    for (int r : members) child->contacts_.push_back(contacts_[static_cast<size_t>(r)]);
  }
  child->self_ = self_;
  child->infos_.clear();
  for (size_t i = 0; i < members.size(); i++) {
    PeerInfo info = peer(members[i]);
    info.rank = static_cast<int>(i);
    child->infos_.push_back(info);
  }
  child->met_.store(true, std::memory_order_release);
  child->configure(static_cast<int>(members.size()), index);
  if (!hub_.add(child->comm(), index, child))
    return child->locate(tutti::fail(Code::internal, "comm {:#x} has a rank {} already", child->comm(), index));
  return {};
}

// local: the child of the next rank, where that is in this process.
Status Member::meet(const std::shared_ptr<Member> &child, Deadline deadline,
                    const std::function<std::shared_ptr<Member>()> &local) {
  const Contact to = child->contacts_[static_cast<size_t>(child->next())];
  const auto next = to.process == self_.process ? local() : nullptr;
  service_.post([child, to, next, deadline] {
    child->set_up_deadline_ = deadline.at();
    child->connect_ring(to, next);
  });
  TUTTI_TRY(child->wait_ring(deadline));
  auto all = child->allgather({}, deadline, "meeting"); // after it everybody is registered
  return all.ok() ? Status() : std::move(all.status());
}

} // namespace tutti::boot
