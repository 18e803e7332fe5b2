// tutti/plugins/net-socket/receiver.cc: the accepting side.
#include "listener.h"

namespace tutti::net_socket {

namespace {

constexpr uint64_t bytes_per_call = 512 << 10;
constexpr int calls_per_turn = 4;
constexpr uint32_t max_expected = 8; // messages
// What fill_expected() reads at most before what is ahead: it adds no message once it has bytes_per_call.
constexpr uint64_t max_expected_bytes = 2 * bytes_per_call + sizeof(uint64_t);

class Receiver final : public Endpoint {
public:
  Receiver(Context &ctx, std::shared_ptr<Wire> wire, std::vector<Fd> data, uint64_t min_task)
      : Endpoint(ctx), room_(ctx.settings().read_ahead),
        ahead_(std::make_unique_for_overwrite<uint8_t[]>(max_expected_bytes + room_)) {
    queue_ = std::make_unique<Message[]>(max_messages);
    ctx.reserve_completions(max_calls);
    tune_connection(wire->fd.get(), ctx.settings(), ctx.stays_here(peer_address(wire->fd.get())));
    open(std::move(wire), std::move(data), false, min_task);
    ctx.wires().accepted(wire_);
  }

  bool ready() override { return true; }
  tutti_status send(const tutti_net_buf *, uint32_t, uint64_t) override {
    plugin::fail(TUTTI_ERR_INVALID, "the accepting side of ", describe(), " only receives");
  }
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) override {
    return post(bufs, n, received, cookie);
  }

  bool may_move() const override {
    return (cursor_ != tail_ && wire_ && (wire_->watch.readable || from_ != to_ || ended_)) || stripes_may_move();
  }

  void pump() noexcept override {
    drained_ = false;
    for (int call = 0; call <= calls_per_turn; ++call) {
      if (!consume()) return;
      if (cursor_ == tail_ || drained_ || !fill()) break;
    }
    if (failed_ != TUTTI_OK) return;
    if (!stripes_.empty() && !move_stripes()) return;
    retire(cursor_);
  }

private:
  // Takes messages out of what was read ahead. False when the endpoint has failed.
  bool consume() noexcept {
    while (cursor_ != tail_) {
      Message &m = at(cursor_);
      if (!inside_) {
        if (to_ - from_ < sizeof(uint64_t)) return true;
        uint64_t header;
        std::memcpy(&header, &ahead_[from_], sizeof header);
        if ((header & moves_bit) && to_ - from_ < sizeof header + sizeof(Identity)) return true;
        from_ += sizeof header;
        if (!(header & moves_bit ? move() : begin(m, header))) return false;
        continue;
      }
      const uint64_t n = std::min<uint64_t>(left_, to_ - from_);
      if (n) std::memcpy(m.addr + (m.bytes - left_), &ahead_[from_], n);
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
      shutdown(control(), SHUT_RDWR); // the peer learns it too
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

  // The stream goes on on a socket that this side has dialled.
  bool move() noexcept {
    Identity connection;
    std::memcpy(connection.data(), &ahead_[from_], sizeof connection);
    from_ += sizeof connection;
    std::shared_ptr<Wire> next = ctx_.wires().take_dialled(connection);
    if (!next || from_ != to_) return fail_calls(TUTTI_ERR_REMOTE, lost_text(EPROTO)), false;
    use(std::move(next));
    drained_ = false;
    return true;
  }

  // One read. False when there is nothing more now.
  bool fill() noexcept {
    if (ended_) return lose(), false;
    if (from_ == to_)
      from_ = to_ = 0;
    else if (from_) {
      std::memmove(ahead_.get(), &ahead_[from_], to_ - from_);
      to_ -= std::exchange(from_, 0);
    }
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
    const uint64_t n = took(::recv(control(), &ahead_[to_], want, MSG_DONTWAIT), want);
    to_ += n;
    return n != 0;
  }

  // The rest of the message straight to its buffer, and what follows ahead.
  bool fill_rest() noexcept {
    iovec iov[2];
    const uint64_t rest = std::min(left_, bytes_per_call), room = rest == left_ && room_ > to_ ? room_ - to_ : 0;
    iov[0] = {at(cursor_).addr + (at(cursor_).bytes - left_), rest};
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
      std::memmove(&ahead_[to_], iov[k].iov_base, part); // the last place is further on in ahead_
      to_ += part;
    }
  }

  uint64_t read(iovec *iov, int count, uint64_t want) noexcept {
    msghdr msg{};
    msg.msg_iov = iov;
    msg.msg_iovlen = static_cast<size_t>(count);
    return took(recvmsg(control(), &msg, MSG_DONTWAIT), want);
  }

  // After a call for `want` bytes: how many came, 0 for none now or an end.
  uint64_t took(ssize_t n, uint64_t want) noexcept {
    if (n < 0 && would_block(errno)) return wire_->watch.readable = errno == EINTR, 0;
    if (n <= 0) return ended_ = n == 0 ? Stripe::closed_by_peer : errno, lose(), 0;
    drained_ = static_cast<uint64_t>(n) < want;
    return static_cast<uint64_t>(n);
  }

  // The connection ended while buffers wait. Messages that came before have been taken out already.
  void lose() noexcept {
    std::string why = lost_text(ended_);
    if (inside_)
      why += plugin::text(" in the middle of a message (", at(cursor_).bytes - left_, " of ", at(cursor_).bytes, " bytes)");
    if (head_ != cursor_) { // striped messages before it may still complete
      move_stripes();
      if (failed_ == TUTTI_OK) retire(cursor_);
      if (failed_ == TUTTI_OK && head_ != cursor_ && ended_ == Stripe::closed_by_peer) return;
    }
    fail_calls(TUTTI_ERR_REMOTE, why);
  }

  const uint64_t room_;              // for reading ahead; gather() may leave more there
  std::unique_ptr<uint8_t[]> ahead_; // max_expected_bytes + room_; pages that nothing uses cost nothing
  size_t from_ = 0, to_ = 0;         // unread part of ahead_
  bool drained_ = false;             // the last read got less than it asked for: another would find nothing
  bool inside_ = false;              // the message at cursor_ has begun
  uint64_t left_ = 0;                // bytes of it still to come
  int ended_ = 0;                    // closed_by_peer or an errno, once the control socket has nothing more
};

} // namespace

std::unique_ptr<Endpoint> make_receiver(Context &ctx, std::shared_ptr<Wire> control, std::vector<Fd> data, uint64_t min_task) {
  return std::make_unique<Receiver>(ctx, std::move(control), std::move(data), min_task);
}

} // namespace tutti::net_socket
