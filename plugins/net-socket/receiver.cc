// tutti/plugins/net-socket/receiver.cc: the accepting side.
#include "listener.h"

namespace tutti::net_socket {

namespace {

constexpr uint64_t bytes_per_call = 512 << 10;
constexpr int calls_per_turn = 4;

class Receiver final : public Endpoint {
public:
  Receiver(Context &ctx, Fd control, std::vector<Fd> data, uint64_t min_task)
      : Endpoint(ctx), ahead_(ctx.settings().read_ahead) {
    queue_ = std::make_unique<Message[]>(max_messages);
    ctx.reserve_completions(max_calls);
    tune_connection(control.get(), ctx.settings(), ctx.stays_here(peer_address(control.get())));
    open(std::move(control), std::move(data), false, min_task);
  }

  bool ready() override { return true; }
  tutti_status send(const tutti_net_buf *, uint32_t, uint64_t) override {
    plugin::fail(TUTTI_ERR_INVALID, "the accepting side of ", describe(), " only receives");
  }
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) override {
    return post(bufs, n, received, cookie);
  }

  bool may_move() const override {
    return (cursor_ != tail_ && (watch_.readable || from_ != to_ || ended_)) || stripes_may_move();
  }

  void pump() noexcept override {
    bool drained = false; // the last read got less than it asked for: another would find nothing
    for (int call = 0; call <= calls_per_turn; ++call) {
      if (!consume()) return;
      if (cursor_ == tail_ || drained || !fill(drained)) break;
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
        if (!begin(m)) return false;
        continue;
      }
      const uint64_t n = std::min<uint64_t>(left_, to_ - from_);
      if (n) std::memcpy(m.addr + (m.bytes - left_), &ahead_[from_], n);
      from_ += n;
      left_ -= n;
      if (left_) return true;
      inside_ = false;
      ++cursor_;
    }
    return true;
  }

  // Reads a header and matches it with the oldest posted buffer.
  bool begin(Message &m) noexcept {
    uint64_t header;
    std::memcpy(&header, &ahead_[from_], sizeof header);
    from_ += sizeof header;
    const uint64_t bytes = header & ~striped_bit;
    if (bytes > m.bytes) {
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

  // One read: the rest of the message straight to its buffer, and what follows ahead. False when there is nothing more now.
  bool fill(bool &drained) noexcept {
    if (ended_) return lose(), false;
    if (from_ == to_)
      from_ = to_ = 0;
    else if (from_) {
      std::memmove(ahead_.data(), &ahead_[from_], to_ - from_);
      to_ -= std::exchange(from_, 0);
    }
    iovec iov[2];
    int used = 0;
    const uint64_t rest = inside_ ? std::min(left_, bytes_per_call) : 0;
    if (rest) iov[used++] = {at(cursor_).addr + (at(cursor_).bytes - left_), rest};
    const size_t room = rest == left_ || !inside_ ? ahead_.size() - to_ : 0;
    if (room) iov[used++] = {&ahead_[to_], room};
    msghdr msg{};
    msg.msg_iov = iov;
    msg.msg_iovlen = static_cast<size_t>(used);
    const ssize_t n = recvmsg(control_.get(), &msg, MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) return watch_.readable = errno == EINTR, false;
    if (n <= 0) return ended_ = n == 0 ? Stripe::closed_by_peer : errno, lose(), false;
    drained = static_cast<uint64_t>(n) < rest + room;
    const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(n), rest);
    left_ -= direct;
    to_ += static_cast<uint64_t>(n) - direct;
    if (inside_ && left_ == 0) {
      inside_ = false;
      ++cursor_;
    }
    return true;
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

  std::vector<uint8_t> ahead_;
  size_t from_ = 0, to_ = 0; // unread part of ahead_
  bool inside_ = false;      // the message at cursor_ has begun
  uint64_t left_ = 0;        // bytes of it still to come
  int ended_ = 0;            // closed_by_peer or an errno, once the control socket has nothing more
};

} // namespace

std::unique_ptr<Endpoint> make_receiver(Context &ctx, Fd control, std::vector<Fd> data, uint64_t min_task) {
  return std::make_unique<Receiver>(ctx, std::move(control), std::move(data), min_task);
}

} // namespace tutti::net_socket
