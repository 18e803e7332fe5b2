// tutti/plugins/collnet-aggd/daemon/upstream.cc
#include "upstream.h"
#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>

namespace tutti::aggd {
namespace {
constexpr size_t kShare = 512 << 10; // bytes moved each way in a turn
constexpr int kFrames = 16;          // taken in a turn before data flows
} // namespace

Upstream::Upstream(Group &group)
    : group_(group),
      dialer_(*group.server().settings().parent, {group.server().settings().key, group.server().settings().key_name},
              Role::daemon, {group.window(), group.server().settings().silence},
              Clock::now() + milliseconds(std::clamp<uint32_t>(group.asked().deadline_ms, 100, 3'600'000)),
              "the group's deadline") {}

Upstream::~Upstream() {
  if (!fd_ || ended_ || !joined_ || sent_ < group_.out_.head) return;
  const std::string words = goodbye_frame(); // all below have left in good order
  (void)!::send(fd_.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Upstream::on_events(uint32_t events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
  group_.server().runnable(&group_);
}

void Upstream::lost(const std::string &what) {
  closed_ = true;
  fd_.reset();
  group_.fail({Reason::aggregator_lost, Field::none, -1, 0, 0, fmt::format("the daemon above, {}, {}", dialer_.name(), what)});
}

void Upstream::ended(int err) {
  if (!granted_ && !is_silence(err)) { // crowded out before it was let in: see Shard::ended()
    fd_.reset();
    front_.clear();
    in_ = {};
    has_header_ = ready_ = joined_ = false;
    has_pending_ = pending_.members.size() > 0;
    readable_ = writable_ = true;
    return dialer_.again("it closed the connection before it had answered");
  }
  const std::string why = why_lost(err);
  if (is_silence(err)) return lost("answers nothing: " + why);
  lost(why.empty() ? "closed the connection without a goodbye: it died or was ended"
                   : "broke the connection: " + why + ": it died or was ended");
}

void Upstream::cover(const CoverOf &cover) {
  pending_ = cover;
  has_pending_ = true;
}

void Upstream::advance() {
  const auto step = dialer_.advance();
  if (step == Dialer::Step::failed) {
    closed_ = true;
    return group_.fail({dialer_.fault().reason, Field::none, -1, 0, 0, "the daemon above: " + dialer_.fault().text});
  }
  if (dialer_.fd() && !dialer_.fd().watched()) group_.server().watch(dialer_.fd(), this);
  if (step != Dialer::Step::ready) return;
  fd_ = dialer_.release();
  ready_ = true;
}

bool Upstream::turn() {
  if (closed_) return false;
  if (!ready_) advance();
  if (!ready_ || closed_) return false;
  if (!joined_) {
    Join join = group_.asked();
    join.member = -1;
    join.local = 0;
    join.window = group_.window();
    front_ += frame(join);
    joined_ = true;
  }
  if (std::exchange(has_pending_, false)) front_ += frame(pending_);
  if (sent_ == boundary_) front_ += std::exchange(report_, {});
  if (!send_front()) return false;
  bool more = group_.state() == Group::State::gathering ? read_control() : read_results();
  if (!closed_ && group_.state() != Group::State::gathering) more |= send();
  return more;
}

bool Upstream::send_front() {
  while (!front_.empty() && writable_) {
    const ssize_t n = ::send(fd_.get(), front_.data(), front_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      writable_ = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno, readable_ = true; // its end shows there
      break;
    }
    front_.erase(0, static_cast<size_t>(n));
  }
  return front_.empty();
}

// Grant, start, error: frame by frame, so that no data is taken before there is a ring for it.
bool Upstream::read_control() {
  using T = Transfer::Step;
  for (int i = 0; i < kFrames && group_.state() == Group::State::gathering; i++) {
    T step = T::done;
    if (!has_header_) {
      step = in_.receive(fd_.get(), &header_, sizeof header_);
      if (step == T::done && (!check_header(header_, 0, 0).empty() || header_.kind == Kind::chunk))
        return lost("sent bytes that are no frame"), false;
      if (step == T::done) {
        has_header_ = true;
        body_.resize(padded(header_.bytes));
      }
    }
    if (step == T::done) step = in_.receive(fd_.get(), body_.data(), body_.size());
    if (step == T::again) return false;
    if (step != T::done) return ended(step == T::failed ? in_.error() : error_), false;
    has_header_ = false;
    const std::span<const uint8_t> body(reinterpret_cast<const uint8_t *>(body_.data()), header_.bytes);
    if (header_.kind == Kind::error) {
      auto fault = read_fault(body);
      ended_ = true;
      group_.fail(fault ? *fault : Fault{Reason::aggregator_lost, Field::none, -1, 0, 0, "the daemon above ended the group"});
    } else if (header_.kind == Kind::start) {
      const auto start = read_start(body);
      if (!start || !granted_) return lost("sent a start that makes no sense"), false;
      group_.begin(start->all);
    } else if (header_.kind == Kind::grant) {
      if (!read_grant(body)) return lost("sent a grant that makes no sense"), false;
      granted_ = true;
    } else {
      return lost("sent a frame that does not belong there"), false;
    }
  }
  return true;
}

// Raw bytes go into the ring of results; it shows whole frames only, all of which are for the children.
bool Upstream::read_results() {
  Ring &down = group_.down_;
  size_t moved = 0;
  while (readable_ && moved < kShare) {
    static std::array<uint8_t, 64 << 10> drop;
    const bool wanted = group_.state() == Group::State::running;
    const uint64_t free = wanted ? down.capacity() - (received_ - down.tail) : drop.size();
    if (free == 0) break;
    const ssize_t n =
        ::recv(fd_.get(), wanted ? down.at(received_) : drop.data(), std::min<uint64_t>(free, kShare), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) readable_ = false;
    if (n < 0 && !readable_) break;
    if (n <= 0) {
      if (!wanted) closed_ = true, fd_.reset();
      if (wanted) ended(n < 0 ? errno : error_);
      return false;
    }
    moved += static_cast<size_t>(n);
    if (!wanted) continue;
    received_ += static_cast<uint64_t>(n);
    Header h;
    while (received_ - down.head >= sizeof h) {
      std::memcpy(&h, down.at(down.head), sizeof h);
      if (!check_header(h, group_.all_.chunk, group_.asked().members).empty() || (h.flags & flag_wide))
        return lost("sent bytes that are no frame"), false;
      if (received_ - down.head < frame_bytes(h)) break;
      if (h.kind == Kind::error) {
        auto fault = read_fault({down.at(down.head + sizeof h), h.bytes});
        ended_ = true;
        group_.fail(fault ? *fault : Fault{Reason::aggregator_lost, Field::none, -1, 0, 0, "the daemon above ended the group"});
        return false;
      }
      if (h.kind == Kind::asks) { // not for the children: taken out of what goes to them
        received_ -= frame_bytes(h);
        std::memmove(down.at(down.head), down.at(down.head + frame_bytes(h)), received_ - down.head);
        group_.asked_from_above();
        continue;
      }
      if (h.kind != Kind::chunk) return lost("sent a frame that does not belong there"), false;
      down.head += frame_bytes(h);
      group_.answered();
      if (h.coll == TUTTI_COLL_REDUCE || h.coll == TUTTI_COLL_BROADCAST) group_.rooted_until_ = down.head;
    }
    group_.published();
  }
  return readable_ && moved >= kShare;
}

void Upstream::say_last(const std::string &frame) {
  if (!ended_ && !closed_) last_ = frame;
}

// Moves on over frames that have gone, up to the start of the one that is on its way.
void Upstream::cross() {
  Ring &out = group_.out_;
  Header h;
  next_ = boundary_;
  while (boundary_ < sent_) {
    std::memcpy(&h, out.at(boundary_), sizeof h);
    next_ = boundary_ + frame_bytes(h);
    if (next_ > sent_) break;
    boundary_ = next_;
  }
  out.tail = boundary_;
}

bool Upstream::send() {
  Ring &out = group_.out_;
  size_t moved = 0;
  const bool over = group_.state() == Group::State::ended;
  while (writable_ && !ended_ && moved < kShare) {
    const uint64_t until = over ? next_ : out.head; // at the end only what has been begun
    if (sent_ >= until) break;
    const ssize_t n = ::send(fd_.get(), out.at(sent_), std::min<uint64_t>(until - sent_, kShare), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      writable_ = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno, readable_ = true;
      break;
    }
    sent_ += static_cast<uint64_t>(n);
    moved += static_cast<size_t>(n);
    cross();
  }
  if (over && sent_ == boundary_ && !std::exchange(ended_, true)) { // between two frames: the last words
    front_ = last_;
    last_.clear();
  }
  if (ended_ && send_front()) ::shutdown(fd_.get(), SHUT_WR);
  return writable_ && sent_ < out.head && group_.state() == Group::State::running;
}

void Upstream::tick(Clock::time_point now) {
  if (closed_) return;
  if (!ready_) return advance();
  if (silence_.look(fd_.get(), now) >= group_.server().settings().silence)
    lost(fmt::format("answers nothing for {} ms", group_.server().settings().silence.count()));
}

} // namespace tutti::aggd
