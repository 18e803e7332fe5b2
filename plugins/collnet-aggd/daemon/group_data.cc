// tutti/plugins/collnet-aggd/daemon/group_data.cc: bytes in, folded, and out.
#include "group.h"
#include "upstream.h"
#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace tutti::aggd {
namespace {

constexpr size_t kShare = 512 << 10; // bytes that one child may move in a turn
constexpr size_t kDrop = 64 << 10;   // of what comes when its group has ended
constexpr uint64_t kGrain = 8 << 10; // bytes worth folding before the chunk is whole

bool reduces(const Header &h) {
  return h.coll != TUTTI_COLL_BROADCAST;
}

} // namespace

bool Group::gives(const Child &child, const Header &h) const {
  return reduces(h) || child.cover.members.has(static_cast<uint32_t>(h.root));
}

uint32_t Group::width(const Child &child, const Header &h) {
  return child.daemon && is_narrow(h.dtype) && reduces(h) ? 4 : element_bytes(h.dtype);
}

// A broadcast's root has what it sent. Results that the daemon above gave no body are the same for all.
bool Group::gets(const Child &child, const Header &h) const {
  if (h.flags & flag_empty) return true;
  if (h.coll == TUTTI_COLL_REDUCE) return child.cover.members.has(static_cast<uint32_t>(h.root));
  return h.coll != TUTTI_COLL_BROADCAST || child.daemon || child.member != h.root;
}

bool Group::turn() {
  bool more = false;
  for (Child &c : children_) {
    if (!c.peer) continue;
    if (c.peer->readable) more |= read(c);
    if (state_ == State::gathering && c.peer) (void)take_frame(c);
  }
  if (state_ == State::running) fold();
  if (up_) more |= up_->turn();
  for (Child &c : children_)
    if (c.peer) more |= send(c);
  free_results();
  if (state_ == State::running && headers_ == children_.size()) fold(); // what was sent made room
  for (const Child &c : children_)
    more |= c.peer && ((c.peer->readable && c.in.room() > 0) || (c.peer->writable && c.sent < results_->head));
  return more;
}

// ---- in ------------------------------------------------------------------------------------------------------------------
bool Group::read(Child &child) {
  static std::array<uint8_t, kDrop> drop;
  size_t moved = 0;
  while (child.peer && child.peer->readable) {
    const bool wanted = state_ != State::ended;
    const size_t room = wanted ? std::min<uint64_t>(child.in.room(), kShare - moved) : kDrop - std::min(moved, kDrop);
    if (room == 0) {
      if (wanted && moved < kShare && child.peer->hung_up && child.in.room() == 0)
        ended_stream(child, 0); // words may lie behind
      return (!wanted || moved >= kShare) && child.peer;
    }
    const ssize_t n = ::recv(child.peer->fd.get(), wanted ? child.in.at(child.in.head) : drop.data(), room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      child.peer->readable = false;
      return false;
    }
    if (n <= 0) {
      ended_stream(child, n < 0 ? errno : child.peer->error);
      return false;
    }
    moved += static_cast<size_t>(n);
    if (!wanted) continue;
    child.in.head += static_cast<uint64_t>(n);
    server_.counters().bytes_in += static_cast<uint64_t>(n);
    if (static_cast<size_t>(n) < room) { // epoll tells when more comes
      child.peer->readable = child.peer->hung_up;
      if (!child.peer->readable) return false;
    }
  }
  return false;
}

// What the child said behind what cannot be folded any more, in its ring or still in the socket.
LastWords Group::words_of(const Child &child) const {
  uint64_t rest = 0;
  if ((open_ || child.has_header) && gives(child, first_)) { // of the chunk's body
    const uint64_t elements = first_.bytes / element_bytes(first_.dtype), bytes = width(child, first_);
    rest = padded(elements * bytes) - (open_ ? folded_ * bytes : 0);
  }
  LastWords words(rest, all_.chunk ? all_.chunk : most_chunk, asked_.members);
  words.feed({child.in.at(child.in.tail), child.in.used()});
  for (;;) {
    static std::array<uint8_t, 64 << 10> more;
    const ssize_t n = ::recv(child.peer->fd.get(), more.data(), more.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return words;
    words.feed({more.data(), static_cast<size_t>(n)});
  }
}

void Group::ended_stream(Child &child, int err) {
  const bool alive = state_ != State::ended && !child.left;
  const LastWords words = alive ? words_of(child) : LastWords(0, 0, 0);
  Peer *peer = std::exchange(child.peer, nullptr);
  peer->group = nullptr;
  peer->close();
  if (!alive) return;
  if (words.goodbye() && !open_ && !child.has_header) return void(child.left = true);
  if (words.fault()) return told(child, *words.fault());
  const std::string why = why_lost(err);
  fail({child.daemon ? Reason::aggregator_lost : Reason::member_lost, Field::none, child.member, 0, 0,
        is_silence(err) ? fmt::format("the host of {} answers nothing: {}", child.name(), why)
        : why.empty()   ? fmt::format("{} closed its connection without a goodbye: it died or was ended", child.name())
                        : fmt::format("{} broke its connection: {}: it died or was ended", child.name(), why)});
}

// A member may say why it leaves: another of its daemons may be gone, which this one cannot know. It is passed on as said by
// it. A daemon below speaks for its own members.
void Group::told(const Child &child, Fault fault) {
  if (child.daemon) {
    for (const Child &other : children_)
      if (&other != &child && fault.member >= 0 && other.cover.members.has(static_cast<uint32_t>(fault.member)))
        return broke(child, fmt::format("an error about member {}, which is not below it", fault.member));
    if (fault.member >= static_cast<int32_t>(asked_.members)) return broke(child, "an error about nobody");
  } else {
    const bool its_to_say = fault.reason == Reason::member_lost || fault.reason == Reason::aggregator_lost ||
                            fault.reason == Reason::mismatch || fault.reason == Reason::timeout;
    if (!its_to_say) fault.reason = Reason::member_lost;
    fault.hearsay = fault.member != child.member;
    fault.member = child.member;
  }
  fault.text = fmt::format("{} {} {}", child.name(), child.daemon ? "says:" : "left:", fault.text);
  fail(std::move(fault));
}

bool Group::take_frame(Child &child) {
  Header h;
  while (!child.has_header && !child.left && child.in.used() >= sizeof h && state_ != State::ended) {
    std::memcpy(&h, child.in.at(child.in.tail), sizeof h);
    if (const std::string bad = check_header(h, all_.chunk, asked_.members); !bad.empty()) return broke(child, bad), false;
    if (h.kind == Kind::chunk) {
      if (state_ == State::gathering) return broke(child, "data before the group has started"), false;
      return take_chunk(child, h);
    }
    const bool fits = h.kind == Kind::goodbye || h.kind == Kind::error ||
                      (h.kind == Kind::cover && child.daemon && state_ == State::gathering) ||
                      (h.kind == Kind::waits && child.daemon && state_ == State::running);
    if (!fits)
      return broke(child, fmt::format("a frame of kind {} that does not belong there", static_cast<int>(h.kind))), false;
    if (child.in.used() < frame_bytes(h)) return false;
    const std::span<const uint8_t> body(child.in.at(child.in.tail + sizeof h), h.bytes);
    child.in.tail += frame_bytes(h);
    if (h.kind == Kind::goodbye) {
      child.left = true;
      if (state_ == State::gathering)
        return fail({Reason::member_lost, Field::none, child.member, 0, 0, child.name() + " left before all had come"}), false;
    } else if (h.kind == Kind::error) {
      const auto fault = read_fault(body);
      if (!fault) return broke(child, "an error that makes no sense"), false;
      return told(child, *fault), false;
    } else if (h.kind == Kind::waits) {
      auto waits = Members::from(asked_.members, body);
      if (!waits || !child.cover.members.holds(*waits))
        return broke(child, "a report about members that are not below it"), false;
      child.waits = std::move(*waits);
      child.asked = {};
      child.answered = Clock::now();
    } else {
      auto cover = read_cover(body, asked_.members);
      Members others(asked_.members);
      for (const Child &c : children_)
        if (&c != &child) others.add(c.cover.members);
      if (!cover) return broke(child, "a list of members that makes no sense"), false;
      if (cover->members.meets(others)) return came_twice(child, cover->members, others), false;
      child.cover = std::move(*cover);
      child.member = child.cover.members.first();
      update_cover();
      if (state_ != State::gathering) return false; // children have other places now
    }
  }
  return false;
}

void Group::came_twice(const Child &child, const Members &below, const Members &others) {
  Members twice(asked_.members);
  for (uint32_t m = 0; m < asked_.members; m++)
    if (below.has(m) && others.has(m)) twice.add(m);
  fail({Reason::mismatch, Field::members, twice.first(), asked_.members, 0,
        fmt::format("the daemon at {} brings members that have come another way, too: {}; do parents lead in a circle?",
                    child.from, twice.list(true))});
}

bool Group::take_chunk(Child &child, const Header &h) {
  const bool wide = width(child, h) > element_bytes(h.dtype);
  if (bool(h.flags & flag_empty) == gives(child, h) || bool(h.flags & flag_wide) != wide)
    return broke(child, "a chunk with flags that do not fit it"), false;
  if (headers_ == 0) {
    const bool later = !any_ || h.seq - last_.seq - 1 < 1u << 31 || (h.seq == last_.seq && h.offset > last_.offset);
    if (!later) return broke(child, "a chunk out of its order"), false;
    first_ = h;
    first_from_ = static_cast<size_t>(&child - children_.data());
    since_ = Clock::now();
    wanted_ = {};
  } else if (const Field field = difference(first_, h); field != Field::none) {
    const Child &other = children_[first_from_];
    fail({Reason::mismatch, field, child.member, 0, 0,
          fmt::format("{} differs in the {} of post {}: {}, but {} has {}", child.name(), field_name(field), first_.seq,
                      field_value(field, h), other.name(), field_value(field, first_))});
    return false;
  }
  child.in.tail += sizeof h;
  child.has_header = true;
  child.waits = Members();
  child.ask = false;
  child.asked = child.answered = {};
  headers_++;
  return true;
}

// ---- folding -------------------------------------------------------------------------------------------------------------
void Group::fold() {
  while (state_ == State::running) {
    if (!open_) {
      for (Child &c : children_) (void)take_frame(c);
      if (state_ != State::running || headers_ == 0) return;
      for (const Child &c : children_)
        if (c.left && !c.has_header)
          return fail({Reason::member_lost, Field::none, c.member, 0, 0,
                       fmt::format("{} has left the group, and others go on: {}", c.name(), post_text(first_))});
      if (headers_ < children_.size() || !open_chunk()) return;
    }
    if (!fold_some()) return;
  }
}

bool Group::open_chunk() {
  Header &h = first_;
  h.flags &= flag_average; // how the result goes on
  const bool root_below = h.coll == TUTTI_COLL_BROADCAST && cover_.members.has(static_cast<uint32_t>(h.root));
  if (up_ && is_narrow(h.dtype) && reduces(h)) h.flags |= flag_wide;
  if (up_ && !reduces(h) && !root_below) h.flags |= flag_empty;
  if (out_.room() < frame_bytes(h)) return false;
  open_ = true;
  folded_ = 0;
  elements_ = h.flags & flag_empty ? 0 : h.bytes / element_bytes(h.dtype);
  return true;
}

// As far as all have come. True when the chunk is done.
bool Group::fold_some() {
  const Header &h = first_;
  const uint32_t element = element_bytes(h.dtype);
  uint64_t there = elements_ - folded_;
  bool whole = true;
  for (const Child &c : children_) {
    if (elements_ == 0 || !gives(c, h)) continue;
    const uint32_t bytes = width(c, h);
    const uint64_t left = (elements_ - folded_) * bytes, pad = padded(elements_ * bytes) - elements_ * bytes;
    if (c.in.used() < left + pad) {
      whole = false;
      there = std::min(there, std::min(c.in.used(), left) / bytes);
    }
    if (!whole && there * element < kGrain) return false;
  }
  const uint32_t out_width = h.flags & flag_wide ? 4 : element;
  uint8_t *out = out_.at(out_.head + sizeof h + folded_ * out_width);
  operands_.clear();
  for (const Child &c : children_)
    if (gives(c, h)) operands_.push_back({c.in.at(c.in.tail), width(c, h) > element});
  if (there > 0) folder_.fold(h.dtype, h.op, operands_, out, h.flags & flag_wide, there);
  folded_ += there;
  for (Child &c : children_) {
    if (elements_ == 0 || !gives(c, h)) continue;
    const uint32_t bytes = width(c, h);
    c.in.tail += there * bytes;
    if (whole) c.in.tail += padded(elements_ * bytes) - elements_ * bytes;
  }
  if (!whole) return false;
  close_chunk();
  return true;
}

void Group::close_chunk() {
  const Header &h = first_;
  uint8_t *body = out_.at(out_.head + sizeof h);
  const uint64_t bytes = body_bytes(h);
  if (!up_ && (h.flags & flag_average)) Folder::divide(h.dtype, body, asked_.members, bytes);
  std::memset(body + bytes, 0, padded(bytes) - bytes);
  std::memcpy(out_.at(out_.head), &h, sizeof h);
  out_.head += frame_bytes(h);
  if (!up_ && (h.coll == TUTTI_COLL_REDUCE || h.coll == TUTTI_COLL_BROADCAST)) rooted_until_ = out_.head;
  chunks_++;
  bytes_ += h.bytes;
  server_.counters().chunks++;
  for (Child &c : children_) {
    c.has_header = false;
    c.chunks++;
  }
  last_ = h;
  any_ = true;
  told_ = Members();
  if (up_ && answered_ + 1 == chunks_) above_since_ = Clock::now();
  headers_ = 0;
  open_ = false;
  if (!up_) published();
}

// ---- out -----------------------------------------------------------------------------------------------------------------
void Group::published() {
  const auto now = Clock::now();
  for (Child &c : children_)
    if (c.moved == Clock::time_point{}) c.moved = now;
}

void Group::answered() {
  answered_++;
  above_since_ = Clock::now();
}

bool Group::send(Child &child) {
  Peer &peer = *child.peer;
  if (child.ask && child.sent == child.boundary && child.stub_left == 0) {
    child.ask = false;
    peer.say(asks_frame());
  }
  if (!peer.flush()) return false;
  const bool more = send_plain(child);
  if (more || child.sent < results_->head || state_ != State::ended || !peer.writable) return more;
  if (child.stub_left == 0 && !child.left) { // all that was folded has gone: the last words
    child.left = true;
    peer.say(frame(fault_));
  }
  if (peer.flush()) ::shutdown(peer.fd.get(), SHUT_WR);
  return false;
}

// Frames that all get go out as they lie; else frame by frame, with a bare header where a child gets no body.
bool Group::send_plain(Child &child) {
  Peer &peer = *child.peer;
  size_t moved = 0;
  const auto cross = [&] { // frames that have gone
    Header h;
    while (child.boundary < child.sent) {
      std::memcpy(&h, results_->at(child.boundary), sizeof h);
      if (child.boundary + frame_bytes(h) > child.sent) break;
      child.boundary += frame_bytes(h);
      child.moved = child.boundary < results_->head ? Clock::now() : Clock::time_point{};
    }
  };
  while (peer.writable && moved < kShare && (child.sent < results_->head || child.stub_left > 0)) {
    const uint8_t *from = results_->at(child.sent);
    size_t bytes = results_->head - child.sent;
    bool stub = child.stub_left > 0;
    if (!stub && child.boundary < rooted_until_) {
      Header h;
      std::memcpy(&h, results_->at(child.boundary), sizeof h);
      if (child.sent == child.boundary && !gets(child, h)) {
        child.stub = h;
        child.stub.flags |= flag_empty;
        child.stub_left = sizeof h;
        stub = true;
      } else {
        bytes = child.boundary + frame_bytes(h) - child.sent;
      }
    }
    if (stub) {
      from = reinterpret_cast<const uint8_t *>(&child.stub) + sizeof child.stub - child.stub_left;
      bytes = child.stub_left;
    }
    const ssize_t n = ::send(peer.fd.get(), from, std::min(bytes, kShare), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      peer.writable = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) peer.error = errno, peer.readable = true; // its end shows there
      break;
    }
    moved += static_cast<size_t>(n);
    if (stub) {
      child.stub_left -= static_cast<uint32_t>(n);
      if (child.stub_left > 0) continue;
      Header whole = child.stub;
      whole.flags &= static_cast<uint8_t>(~flag_empty);
      child.sent += frame_bytes(whole);
    } else {
      child.sent += static_cast<uint64_t>(n);
    }
    cross();
  }
  server_.counters().bytes_out += moved;
  return peer.writable && child.sent < results_->head;
}

void Group::free_results() {
  uint64_t least = results_->head;
  for (const Child &c : children_)
    if (c.peer && !(c.left && state_ != State::ended)) least = std::min(least, c.boundary);
  results_->tail = std::max(results_->tail, least);
}

} // namespace tutti::aggd
