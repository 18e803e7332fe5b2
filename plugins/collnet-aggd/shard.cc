// tutti/plugins/collnet-aggd/shard.cc
#include "shard.h"
#include <algorithm>
#include <cerrno>
#include <sys/uio.h>

namespace tutti::aggd {
namespace {

constexpr size_t kStash = 64 << 10;
constexpr size_t kDirect = 8 << 10; // of a body: from here on it is received where it belongs
constexpr size_t kFrames = 16;      // in one system call
constexpr size_t kSegment = 1400;   // bytes that fill a packet
constexpr auto kGather = std::chrono::microseconds(20);
static_assert(kStash >= sizeof(Header) + padded(most_body));

} // namespace

Shard::Shard(Posts &posts, const Place &place, const Secret &secret, const Join &join, uint32_t index, uint32_t count,
             const Tuning &tuning, milliseconds connect, milliseconds deadline)
    : posts_(posts), place_(place), join_(join), index_(index), count_(count), silence_(tuning.keepalive),
      dialer_(std::make_unique<Dialer>(place, secret, Role::member, tuning, Clock::now() + std::min(connect, deadline),
                                       connect <= deadline ? "connect_timeout" : "the group's deadline")),
      stash_(kStash) {}

void Shard::fail(Reason reason, const std::string &what) {
  posts_.failed({reason, Field::none, -1, 0, 0, place_.name + " " + what});
}

void Shard::find(Cursor &c) {
  // A post that is complete has no chunk of this shard left; one without any may have come and gone unseen.
  if (!c.post && c.number < posts_.oldest()) c = {posts_.oldest(), 0, nullptr, 0};
  while (!c.post) {
    Post *post = posts_.post(c.number);
    if (!post) return;
    while (c.chunk < post->chunks && (post->first + c.chunk) % count_ != index_) c.chunk++;
    if (c.chunk < post->chunks) {
      c.post = post;
    } else {
      c.number++;
      c.chunk = 0;
    }
  }
}

bool Shard::waits() {
  find(sends_);
  find(receives_);
  return sends_.post || behind(receives_, sends_);
}

void Shard::next(Cursor &c) {
  c.post = nullptr;
  c.moved = 0;
  c.chunk++;
  find(c);
}

Header Shard::header_of(const Cursor &c, bool with_body) const {
  Header h = c.post->header;
  h.offset = c.chunk * c.post->chunk;
  h.bytes = std::min(c.post->chunk, h.total - h.offset);
  if (!with_body) h.flags |= flag_empty;
  return h;
}

void Shard::dial() {
  const auto step = dialer_->advance();
  if (step == Dialer::Step::failed) {
    const Fault fault = dialer_->fault();
    dialing_ = false;
    return posts_.failed(fault);
  }
  if (step != Dialer::Step::ready) return;
  fd_ = dialer_->release();
  dialing_ = false;
  readable = writable = true;
  front_ = frame(join_);
}

// A daemon that others crowd may drop a connection whose proof is still on its way: nobody has been let in by then.
void Shard::ended(int err) {
  if (!granted_ && !is_silence(err)) {
    fd_.reset();
    front_.clear();
    from_ = to_ = 0;
    watch_ = {};
    dialing_ = true;
    return dialer_->again("it closed the connection before it had answered");
  }
  const std::string why = why_lost(err);
  if (is_silence(err)) return fail(Reason::aggregator_lost, "answers nothing: " + why + ": its host or the link to it is gone");
  fail(Reason::aggregator_lost, (why.empty() ? "closed the connection without a word" : "broke the connection: " + why) +
                                    ": the daemon died or was ended");
}

bool Shard::pump(size_t share) {
  if (dialing_) {
    dial();
    return false;
  }
  if (!fd_ || heard_) return false;
  if (writable) send(share);
  if (readable) receive(share);
  return true;
}

void Shard::tick(Clock::time_point now) {
  if (fd_ && !heard_ && watch_.look(fd_.get(), now) >= silence_)
    fail(Reason::aggregator_lost,
         "answers nothing for " + std::to_string(silence_.count()) + " ms: its host or the link to it is gone");
}

// ---- out -----------------------------------------------------------------------------------------------------------------
// Less than a packet's worth waits for a moment while results are under way, so that posts in a row share a packet: it costs
// more than what they carry. The first post never waits.
bool Shard::gathers() {
  find(sends_);
  size_t bytes = front_.size() + sends_.moved;
  if (bytes == 0 && sends_.post && behind(receives_, sends_))
    for (Cursor at = sends_; at.post && bytes < kSegment; next(at)) bytes += frame_bytes(header_of(at, at.post->gives));
  if (bytes == 0 || bytes >= kSegment || sends_.moved > 0 || !front_.empty()) {
    gathering_ = {};
    return false;
  }
  const auto now = Clock::now();
  if (gathering_ == Clock::time_point{}) gathering_ = now;
  if (now - gathering_ < kGather) return true;
  gathering_ = {};
  return false;
}

void Shard::send(size_t share) {
  static constexpr std::array<uint8_t, 8> zeros{};
  if (gathers()) return;
  size_t all = 0;
  while (writable && all < share) {
    std::array<Header, kFrames> headers;
    std::array<iovec, 3 * kFrames + 1> iov;
    size_t n = 0, bytes = 0;
    const auto add = [&](const void *data, size_t size, uint64_t &skip) {
      const size_t skipped = static_cast<size_t>(std::min<uint64_t>(skip, size));
      skip -= skipped;
      if (size == skipped) return;
      iov[n++] = {const_cast<char *>(static_cast<const char *>(data)) + skipped, size - skipped};
      bytes += size - skipped;
    };
    uint64_t skip = 0;
    add(front_.data(), front_.size(), skip);
    find(sends_);
    Cursor at = sends_;
    for (size_t i = 0; started_ && at.post && i < kFrames && bytes < share; i++, next(at)) {
      Header &h = headers[i] = header_of(at, at.post->gives);
      const uint64_t body = body_bytes(h);
      skip = at.moved;
      add(&h, sizeof h, skip);
      if (body > 0) add(at.post->send + h.offset, body, skip);
      add(zeros.data(), padded(body) - body, skip);
    }
    if (n == 0) return;
    msghdr message{};
    message.msg_iov = iov.data();
    message.msg_iovlen = n;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      writable = false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) error_ = errno, readable = true; // last words, or the end, are read first
      return;
    }
    all += static_cast<size_t>(sent);
    size_t left = static_cast<size_t>(sent);
    const size_t front = std::min(left, front_.size());
    front_.erase(0, front);
    left -= front;
    while (left > 0) {
      const uint64_t frame = frame_bytes(header_of(sends_, sends_.post->gives));
      const uint64_t step = std::min<uint64_t>(left, frame - sends_.moved);
      sends_.moved += step;
      left -= step;
      if (sends_.moved == frame) next(sends_);
    }
    if (static_cast<size_t>(sent) < bytes) writable = false; // epoll tells when there is room again
  }
}

// ---- in ------------------------------------------------------------------------------------------------------------------
void Shard::receive(size_t share) {
  size_t all = 0;
  while (!heard_ && readable && all < share) {
    if (from_ == to_) from_ = to_ = 0;
    if (from_ > 0 && (to_ == kStash || !in_body_)) { // frames that are no chunks are read from one piece
      std::memmove(stash_.data(), stash_.data() + from_, to_ - from_);
      to_ -= from_;
      from_ = 0;
    }
    std::array<iovec, 2> iov;
    const bool direct = in_body_ && from_ == to_ && body_left_ >= kDirect;
    size_t n = 0, room = 0;
    if (direct) iov[n++] = {body_, body_left_}, room += body_left_;
    iov[n++] = {stash_.data() + to_, kStash - to_};
    room += kStash - to_;
    const ssize_t got = ::readv(fd_.get(), iov.data(), static_cast<int>(n));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      readable = false;
      return;
    }
    if (got <= 0) return ended(got < 0 ? errno : error_);
    all += static_cast<size_t>(got);
    size_t rest = static_cast<size_t>(got);
    if (direct) {
      const size_t mine = std::min<size_t>(rest, body_left_);
      body_ += mine;
      body_left_ -= mine;
      rest -= mine;
    }
    to_ += rest;
    while (!heard_ && parse()) {
    }
    if (static_cast<size_t>(got) < room) readable = false; // epoll tells when more comes
  }
}

// One frame, or a part of a body. False: more must come first.
bool Shard::parse() {
  if (in_body_) {
    const size_t mine = static_cast<size_t>(std::min<uint64_t>(body_left_, to_ - from_));
    if (mine > 0) std::memcpy(body_, stash_.data() + from_, mine);
    body_ += mine;
    body_left_ -= mine;
    from_ += mine;
    const size_t pad = static_cast<size_t>(std::min<uint64_t>(body_left_ == 0 ? pad_left_ : 0, to_ - from_));
    pad_left_ -= pad;
    from_ += pad;
    if (body_left_ > 0 || pad_left_ > 0) return false;
    body_done();
    return true;
  }
  Header h;
  if (to_ - from_ < sizeof h) return false;
  std::memcpy(&h, stash_.data() + from_, sizeof h);
  const std::string bad = check_header(h, started_ ? start_.all.chunk : 0, join_.members);
  if (!bad.empty()) return fail(Reason::aggregator_lost, "sent " + bad), false;
  return h.kind == Kind::chunk ? take_chunk(h) : take_control(h);
}

bool Shard::take_control(const Header &h) {
  if (to_ - from_ < frame_bytes(h)) return false;
  const std::span<const uint8_t> body(stash_.data() + from_ + sizeof h, h.bytes);
  from_ += frame_bytes(h);
  if (h.kind == Kind::error) {
    auto fault = read_fault(body);
    if (!fault) return fail(Reason::aggregator_lost, "sent an error that makes no sense"), false;
    if (fault->member >= static_cast<int32_t>(join_.members)) fault->member = -1;
    fault->text = place_.name + ": " + fault->text;
    heard_ = true;
    posts_.failed(std::move(*fault));
    return false;
  }
  if (h.kind == Kind::grant && !granted_) {
    if (const auto grant = read_grant(body)) return dialer_.reset(), grant_ = *grant, granted_ = true;
  } else if (h.kind == Kind::start && granted_ && !started_) {
    if (const auto start = read_start(body)) return start_ = *start, started_ = true;
  }
  return fail(Reason::aggregator_lost, "sent a frame that does not belong there"), false;
}

bool Shard::take_chunk(const Header &h) {
  find(receives_);
  if (!receives_.post || !behind(receives_, sends_))
    return fail(Reason::aggregator_lost, "sent a result that nobody asked for"), false;
  const Header expected = header_of(receives_, receives_.post->gets);
  if (difference(h, expected) != Field::none || ((h.flags ^ expected.flags) & (flag_empty | flag_wide)))
    return fail(Reason::aggregator_lost,
                "sent the result of another operation: " + std::string(field_name(difference(h, expected))) + " differs"),
           false;
  from_ += sizeof h;
  in_body_ = true;
  body_left_ = body_bytes(h);
  pad_left_ = padded(body_left_) - body_left_;
  body_ = receives_.post->recv + (body_left_ ? h.offset : 0);
  return true;
}

void Shard::body_done() {
  in_body_ = false;
  const uint64_t number = receives_.number;
  next(receives_);
  posts_.chunk_done(number);
}

std::string Shard::rest_of_frame() const {
  if (sends_.moved == 0) return {};
  const Header h = header_of(sends_, sends_.post->gives);
  std::string out(reinterpret_cast<const char *>(&h), sizeof h);
  out.append(reinterpret_cast<const char *>(sends_.post->send + h.offset), body_bytes(h));
  out.resize(frame_bytes(h), '\0');
  return out.substr(sends_.moved);
}

Farewell Shard::leave(const Fault *fault) {
  dialing_ = false;
  dialer_.reset();
  if (heard_) fd_.reset(); // it knows
  if (!fd_) return {};
  return {std::move(fd_), front_ + rest_of_frame() + (fault ? frame(*fault) : goodbye_frame())};
}

} // namespace tutti::aggd
