// tutti/plugins/net-socket/receiver.cc: the accepting side.
#include "listener.h"
#include "reception.h"

namespace tutti::net_socket {

namespace {

constexpr uint64_t bytes_per_call = 512 << 10;
constexpr int calls_per_turn = 4;
constexpr uint32_t max_expected = 8; // messages
// What fill_expected() reads at most before what is ahead: it adds no message once it has bytes_per_call.
constexpr uint64_t max_expected_bytes = 2 * bytes_per_call + sizeof(uint64_t);

constexpr size_t max_old = 8; // sockets that were lost, and hold bytes that are not taken yet
using Clock = std::chrono::steady_clock;

class Receiver final : public Endpoint, Resumable {
public:
  Receiver(Context &ctx, std::shared_ptr<Wire> wire, std::vector<Fd> data, uint64_t min_task, const Origin &origin)
      : Endpoint(ctx), origin_(origin), losses_(1 + data.size()), room_(ctx.settings().read_ahead),
        ahead_(std::make_unique_for_overwrite<uint8_t[]>(max_expected_bytes + room_)) {
    queue_ = std::make_unique<Message[]>(max_messages);
    ctx.reserve_completions(max_calls);
    tune_connection(wire->fd.get(), ctx.settings(), ctx.stays_here(peer_address(wire->fd.get())));
    const bool resumes = origin.resumes && ctx.reception();
    open(std::move(wire), std::move(data), false, resumes, min_task);
    ctx.wires().accepted(wire_);
    if (resumes) ctx.reception()->expect(origin.connection, this);
  }
  ~Receiver() override {
    if (resumes()) ctx_.reception()->forget(origin_.connection);
  }

  bool ready() override { return true; }
  tutti_status send(const tutti_net_buf *, uint32_t, uint64_t) override {
    plugin::fail(TUTTI_ERR_INVALID, "the accepting side of ", describe(), " only receives");
  }
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) override {
    return post(bufs, n, received, cookie);
  }

  bool may_move() const override {
    const bool may_read = !losses_[0].err && wire_ && wire_->watch.readable;
    return (cursor_ != tail_ && (may_read || from_ != to_ || ended_ || !old_.empty())) || stripes_may_move();
  }
  bool needs_time() const override {
    return std::any_of(losses_.begin(), losses_.end(), [](const Loss &l) { return l.err != 0; });
  }

  // A lost connection comes back in time, or never.
  void check_link() noexcept override {
    for (const Loss &l : losses_)
      if (l.err && Clock::now() >= l.since + ctx_.settings().reconnect) return never_came_back(l);
  }
  void peer_gone(const Identity &peer, const std::string &why) noexcept override {
    if (failed_ == TUTTI_OK && wire_ && wire_->peer == peer && needs_time()) fail_calls(TUTTI_ERR_REMOTE, why);
  }

  void pump() noexcept override {
    drained_ = false;
    for (int call = 0; call <= calls_per_turn; ++call) {
      if (!consume()) return;
      if (cursor_ == tail_ || (drained_ && old_.empty()) || !fill()) break;
    }
    if (failed_ != TUTTI_OK) return;
    if (!stripes_.empty() && !move_stripes()) return;
    retire(cursor_);
  }

private:
  struct Loss {
    int err = 0; // why, while the socket is lost
    Clock::time_point since{};
  };
  struct Old {
    std::shared_ptr<Wire> wire;
    uint64_t left; // bytes of the stream that it holds
  };

  // ---- lost connections

  void note_loss(size_t stream, int err) {
    losses_[stream] = {err, Clock::now()};
    host().debug(lost_text(err), stream ? plugin::text(" (data socket ", stream, ")") : "", "; the peer may come back");
  }
  void stripe_lost(size_t i, int err) override { note_loss(i + 1, err); }
  void never_came_back(const Loss &l) noexcept {
    const auto s = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - l.since).count();
    fail_calls(TUTTI_ERR_REMOTE, plugin::text(lost_text(l.err), " ", s, " s ago, and the peer has not come back"));
  }

  const Secret &secret() const override { return origin_.secret; }
  bool has_stream(uint16_t index) const override { return failed_ == TUTTI_OK && index < losses_.size(); }
  bool resume(const ResumeHello &hello, Fd &fd, bool (*say)(void *, uint64_t), void *arg) override {
    if (!has_stream(hello.index) || hello.attempt <= attempts_[hello.index]) return false; // one that was overtaken
    const bool done = hello.index ? resume_stripe(hello.index - 1u, fd, say, arg) : resume_control(hello, fd, say, arg);
    if (!done) return false;
    attempts_[hello.index] = hello.attempt;
    losses_[hello.index] = {};
    if (head_ != tail_) ctx_.activate(this);
    return true;
  }
  bool resume_stripe(size_t i, Fd &fd, bool (*say)(void *, uint64_t), void *arg) {
    unserve(i);
    const bool done = say(arg, stripes_[i]->position());
    if (done) {
      tune_connection(fd.get(), ctx_.settings(), ctx_.stays_here(peer_address(fd.get())));
      stripes_[i]->receive_from(std::move(fd));
    }
    serve(i);
    return done;
  }

  // The stream goes on where the bytes end that have come: those taken, and those that lost sockets still hold.
  bool resume_control(const ResumeHello &hello, Fd &fd, bool (*say)(void *, uint64_t), void *arg) {
    if (old_.size() + 2 > max_old || ended_) return false;
    uint64_t position = read_;
    for (const Old &o : old_) position += o.left;
    uint64_t left = control().unread();
    std::shared_ptr<Wire> over; // where the sender went, which is not known here yet
    if (hello.moved_to != Identity{} && hello.moved_to != moved_to_) {
      over = ctx_.wires().find_dialled(hello.moved_to); // or it was lost before it brought anything
      if (hello.moved_at < position || hello.moved_at - position > left) return false;
      left = hello.moved_at - position;
    }
    const uint64_t over_left = over ? over->fd.unread() : 0;
    if (!say(arg, position + left + over_left)) return false;
    if (over) ctx_.wires().take_dialled(hello.moved_to);
    take_over(hello, fd, left, over, over_left);
    return true;
  }
  void take_over(const ResumeHello &hello, Fd &fd, uint64_t left, const std::shared_ptr<Wire> &over, uint64_t over_left) {
    const std::shared_ptr<Wire> lost = over ? over : wire_;
    if (left) old_.push_back({wire_, left});
    if (over_left) old_.push_back({over, over_left});
    if (hello.moved_to != Identity{}) moved_to_ = hello.moved_to; // also when the next attempt says so again
    void_before_ = hello.void_before;
    auto wire = std::make_shared<Wire>();
    wire->fd = std::move(fd);
    wire->connection = hello.wire;
    wire->peer = wire_->peer;
    tune_connection(wire->fd.get(), ctx_.settings(), ctx_.stays_here(peer_address(wire->fd.get())));
    ctx_.watch(wire->fd, &wire->watch);
    use(std::move(wire));
    drained_ = false;
    abandon(lost->fd.get());     // an end would tell a receiver there that nothing more comes
    ctx_.lost(lost, ECONNRESET); // who sends there may not have noticed
    ctx_.wires().accepted(wire_);
  }

  // Of lost sockets: what they hold of the stream, in turn.
  bool fill_old() noexcept {
    Old &o = old_.front();
    const bool direct = inside_ && from_ == to_;
    uint8_t *const at = direct ? body() : &ahead_[to_];
    const uint64_t want = std::min(o.left, direct ? left_ : room_ > to_ ? room_ - to_ : 0);
    const ssize_t n = o.wire->fd.read(at, want);
    if (n <= 0) return fail_calls(TUTTI_ERR_INTERNAL, "a lost socket holds less than it said"), false;
    o.left -= static_cast<uint64_t>(n);
    read_ += static_cast<uint64_t>(n);
    if (o.left == 0) old_.erase(old_.begin());
    if (!direct) return to_ += static_cast<uint64_t>(n), true;
    left_ -= static_cast<uint64_t>(n);
    if (left_ == 0) end();
    return true;
  }
  uint8_t *body() { return at(cursor_).addr + (at(cursor_).bytes - left_); } // what comes next goes there

  // Takes messages out of what was read ahead. False when the endpoint has failed.
  bool consume() noexcept {
    awaits_dialling_ = false;
    while (cursor_ != tail_) {
      Message &m = at(cursor_);
      if (!inside_) {
        if (to_ - from_ < sizeof(uint64_t)) return true;
        uint64_t header;
        std::memcpy(&header, &ahead_[from_], sizeof header);
        if ((header & moves_bit) && to_ - from_ < sizeof header + sizeof(Identity)) return true;
        if (header & moves_bit) {
          if (!move()) return false;
          if (awaits_dialling_) return true;
          continue;
        }
        from_ += sizeof header;
        if (!begin(m, header)) return false;
        continue;
      }
      const uint64_t n = std::min<uint64_t>(left_, to_ - from_);
      if (n) std::memcpy(body(), &ahead_[from_], n);
      from_ += n;
      left_ -= n;
      if (left_) return true;
      end();
    }
    return true;
  }

  // Matches a header with the oldest posted buffer.
  bool begin(Message &m, uint64_t header) noexcept {
    const uint64_t bytes = header & ~striped_bit;
    if (bytes > m.bytes) {
      shutdown(control().get(), SHUT_RDWR); // the peer learns it too
      fail_calls(TUTTI_ERR_TRUNCATED, plugin::text("peer ", peer_text(), " sent ", bytes, " bytes for a buffer of ", m.bytes,
                                                   ": the ranks disagree about the operation"));
      return false;
    }
    m.bytes = bytes;
    if (header & striped_bit) {
      if (stripes_.empty()) return fail_calls(TUTTI_ERR_REMOTE, lost_text(EPROTO)), false;
      push_pieces(m);
      ++cursor_;
    } else {
      left_ = bytes;
      inside_ = true;
    }
    return true;
  }

  void end() {
    inside_ = false;
    ++cursor_;
  }

  // The stream goes on on a socket that this side has dialled; or is just dialling anew: then the record is looked at again
  // later.
  bool move() noexcept {
    Identity connection;
    std::memcpy(connection.data(), &ahead_[from_ + sizeof(uint64_t)], sizeof connection);
    const size_t after = from_ + sizeof(uint64_t) + sizeof connection;
    // Void: the sender did not get there, or has left there again.
    if (read_ - (to_ - after) <= void_before_) return from_ = after, true;
    std::shared_ptr<Wire> next = ctx_.wires().take_dialled(connection);
    awaits_dialling_ = !next && resumes();
    if (awaits_dialling_) return true;
    if (!next || after != to_ || !old_.empty()) return fail_calls(TUTTI_ERR_REMOTE, lost_text(EPROTO)), false;
    from_ = after;
    moved_to_ = connection;
    use(std::move(next));
    drained_ = false;
    return true;
  }

  // One read. False when there is nothing more now.
  bool fill() noexcept {
    if (ended_) return lose(), false;
    if ((losses_[0].err && old_.empty()) || awaits_dialling_) return false;
    if (from_ == to_)
      from_ = to_ = 0;
    else if (from_) {
      std::memmove(ahead_.get(), &ahead_[from_], to_ - from_);
      to_ -= std::exchange(from_, 0);
    }
    if (!old_.empty()) return fill_old();
    if (inside_) return fill_rest();
    return to_ == 0 && expects_much() ? fill_expected() : fill_ahead();
  }

  // More than can be read ahead: less is copied faster than a list of parts is gone through. A header of the core's may come
  // before the payload, in the same call.
  bool expects_much() {
    const Message &m = at(cursor_);
    const uint64_t bytes = m.bytes + (m.ends_call ? 0 : sizeof(uint64_t) + at(cursor_ + 1).bytes);
    return sizeof(uint64_t) + bytes > room_ && !wants_stripes(m.bytes);
  }

  // What follows, up to a bound: one system call for a small message or several.
  bool fill_ahead() noexcept {
    const uint64_t want =
        room_ > to_ ? room_ - to_ : 0; // never 0: what is here is less than a header, or than what it announces
    const uint64_t n = took(control().read(&ahead_[to_], want), want);
    to_ += n;
    return n != 0;
  }

  // The rest of the message straight to its buffer, and what follows ahead.
  bool fill_rest() noexcept {
    iovec iov[2];
    const uint64_t rest = std::min(left_, bytes_per_call), room = rest == left_ && room_ > to_ ? room_ - to_ : 0;
    iov[0] = {body(), rest};
    iov[1] = {&ahead_[to_], room};
    const uint64_t n = read(iov, room ? 2 : 1, rest + room), direct = std::min(n, rest);
    left_ -= direct;
    to_ += n - direct;
    if (n && left_ == 0) end();
    return n != 0;
  }

  // Headers and payloads of the posted messages, if they are as long as their buffers: the payloads straight to their place.
  bool fill_expected() noexcept {
    uint64_t headers[max_expected];
    iovec iov[2 * max_expected + 1];
    int used = 0;
    uint64_t want = 0;
    for (uint32_t i = cursor_; i != tail_ && i - cursor_ < max_expected && want < bytes_per_call && !wants_stripes(at(i).bytes);
         ++i) {
      iov[used++] = {&headers[i - cursor_], sizeof(uint64_t)};
      iov[used++] = {at(i).addr, std::min(at(i).bytes, bytes_per_call)};
      want += iov[used - 2].iov_len + iov[used - 1].iov_len;
      if (at(i).bytes > bytes_per_call) break;
    }
    if (iov[used - 1].iov_len == at(cursor_ + static_cast<uint32_t>(used) / 2 - 1).bytes) {
      iov[used++] = {&ahead_[max_expected_bytes], room_}; // in front of it there is room for gather()
      want += room_;
    }
    uint64_t n = read(iov, used, want);
    if (n == 0) return false;
    for (int k = 0; k + 1 < used; k += 2) {
      Message &m = at(cursor_);
      if (n < sizeof(uint64_t)) {
        std::memcpy(ahead_.get(), iov[k].iov_base, n);
        return to_ = n, true;
      }
      if (headers[k / 2] != m.bytes) return gather(iov + k, used - k, n), true;
      n -= sizeof(uint64_t);
      left_ = m.bytes - std::min<uint64_t>(n, m.bytes);
      inside_ = true;
      n -= m.bytes - left_;
      if (left_) return true;
      end();
    }
    from_ = max_expected_bytes;
    to_ = from_ + n;
    return true;
  }

  // n bytes came otherwise than expected: takes them out of the places where they landed.
  void gather(const iovec *iov, int count, uint64_t n) noexcept {
    for (int k = 0; k < count && to_ < n; ++k) {
      const uint64_t part = std::min<uint64_t>(iov[k].iov_len, n - to_);
      if (part == 0) continue;                           // of an empty message, which has no address
      std::memmove(&ahead_[to_], iov[k].iov_base, part); // the last place is further on in ahead_
      to_ += part;
    }
  }

  uint64_t read(iovec *iov, int count, uint64_t want) noexcept { return took(control().read(iov, count), want); }

  // After a call for `want` bytes: how many came, 0 for none now or an end.
  uint64_t took(ssize_t n, uint64_t want) noexcept {
    if (n < 0 && would_block(errno)) return wire_->watch.readable = errno == EINTR, 0;
    if (n <= 0) return end_of_wire(n == 0 ? closed_by_peer : errno), 0;
    read_ += static_cast<uint64_t>(n);
    drained_ = static_cast<uint64_t>(n) < want;
    return static_cast<uint64_t>(n);
  }

  void end_of_wire(int err) noexcept {
    if (err == closed_by_peer && wire_->lost) err = wire_->lost;
    if (resumes() && may_come_back(err)) {
      note_loss(0, err);
      return ctx_.lost(wire_, err);
    }
    ended_ = err;
    lose();
  }

  // The connection ended while buffers wait. Messages that came before have been taken out already.
  void lose() noexcept {
    std::string why = lost_text(ended_);
    if (inside_)
      why += plugin::text(" in the middle of a message (", at(cursor_).bytes - left_, " of ", at(cursor_).bytes, " bytes)");
    if (head_ != cursor_) { // striped messages before it may still complete
      move_stripes();
      if (failed_ == TUTTI_OK) retire(cursor_);
      if (failed_ == TUTTI_OK && head_ != cursor_ && ended_ == closed_by_peer) return;
    }
    fail_calls(TUTTI_ERR_REMOTE, why);
  }

  const Origin origin_;
  std::vector<Loss> losses_;                                               // by stream: 0 control
  std::vector<uint32_t> attempts_ = std::vector<uint32_t>(losses_.size()); // of each stream the last that came through
  std::vector<Old> old_;
  uint64_t read_ = 0;        // bytes of the control stream that were taken from sockets
  Identity moved_to_{};      // where the sender went last
  uint64_t void_before_ = 0; // moves up to this position have been undone

  const uint64_t room_;              // for reading ahead; gather() may leave more there
  std::unique_ptr<uint8_t[]> ahead_; // max_expected_bytes + room_; pages that nothing uses cost nothing
  size_t from_ = 0, to_ = 0;         // unread part of ahead_
  bool drained_ = false;             // the last read got less than it asked for: another would find nothing
  bool awaits_dialling_ = false;     // the next record tells of a socket that is not there yet
  bool inside_ = false;              // the message at cursor_ has begun
  uint64_t left_ = 0;                // bytes of it still to come
  int ended_ = 0;                    // closed_by_peer or an errno, once the control socket has nothing more
};

} // namespace

std::unique_ptr<Endpoint> make_receiver(Context &ctx, std::shared_ptr<Wire> control, std::vector<Fd> data, uint64_t min_task,
                                        const Origin &origin) {
  return std::make_unique<Receiver>(ctx, std::move(control), std::move(data), min_task, origin);
}

} // namespace tutti::net_socket
