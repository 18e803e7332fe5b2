// tutti/plugins/net-socket/sender.cc: the connecting side.
#include "connector.h"

namespace tutti::net_socket {

namespace {

constexpr size_t max_vectors = 64;             // messages whose headers and payloads go out in one call, times two
constexpr uint64_t shared_bytes = 16 << 10;    // larger ones would keep what arrives waiting for the socket's lock
constexpr uint64_t bytes_per_call = 512 << 10; // so that a large message does not keep other endpoints waiting
constexpr size_t joined_bytes = 4160;          // header and payload copied together cost less than a list of two parts

class Sender final : public Endpoint, Pending {
public:
  Sender(Context &ctx, const Blob &blob) : Endpoint(ctx), connector_(std::make_unique<Connector>(ctx, blob)) {
    peer_ = connector_->peer();
    local_ = ctx.devices().front().interface.addresses.front();
    sending_ = true;
    queue_ = std::make_unique<Message[]>(max_messages);
    ctx.reserve_completions(max_calls);
    ctx.add_pending(this);
  }
  ~Sender() override {
    ctx_.remove_pending(this);
    if (wire_ && wire_.use_count() > 1) shutdown(control(), SHUT_WR); // the other direction stays
  }

  bool ready() override {
    if (failed_ != TUTTI_OK) plugin::fail(failed_, why_);
    if (connector_) drive();
    if (failed_ != TUTTI_OK) plugin::fail(failed_, why_);
    return !connector_;
  }

  // What finds the socket idle goes out at once: it may be all that the peer waits for.
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) override {
    const bool first = head_ == tail_;
    const tutti_status s = post(bufs, n, nullptr, cookie);
    if (!first || s != TUTTI_OK) return s;
    if (wire_ && !shared_ && !next_ && ctx_.wires().any_accepted() && bufs[n - 1].bytes <= shared_bytes) share();
    pump();
    return s;
  }
  tutti_status recv(const tutti_net_buf *, uint32_t, uint64_t *, uint64_t) override {
    plugin::fail(TUTTI_ERR_INVALID, "the connecting side of ", describe(), " only sends");
  }

  void drive() noexcept override {
    try {
      if (!connector_ || !connector_->advance()) return;
      open(connector_->take_control(), connector_->take_data(), true, ctx_.settings().min_task);
      ctx_.wires().dialled(wire_);
      finish_setup();
    } catch (const plugin::Error &e) {
      give_up(e.code(), e.what());
    } catch (const std::exception &e) {
      give_up(TUTTI_ERR_INTERNAL, e.what());
    }
  }

  bool may_move() const override {
    return !connector_ && ((cursor_ != tail_ && wire_ && wire_->watch.writable) || stripes_may_move());
  }

  void pump() noexcept override {
    if (!wire_) return; // not connected yet, or no more
    if (next_ && !go_over()) return;
    if (cursor_ != tail_ && !flush()) return;
    if (!stripes_.empty() && !move_stripes()) return;
    retire(cursor_);
  }

private:
  void finish_setup() {
    connector_.reset();
    ctx_.remove_pending(this);
  }
  void give_up(tutti_status status, const char *why) noexcept {
    why_ = why;
    finish_setup();
    fail_calls(status, why_);
  }

  // Goes over to a socket that the peer has dialled, if there is one. Nothing of a message may be under way here.
  void share() noexcept {
    next_ = ctx_.wires().take_accepted(wire_->peer);
    if (!next_) return;
    const uint64_t header = moves_bit | sizeof(Identity);
    std::memcpy(last_, &header, sizeof header);
    std::memcpy(last_ + sizeof header, next_->connection.data(), sizeof(Identity));
  }

  // Sends the last message of the old socket. False while that is not done.
  bool go_over() noexcept {
    const ssize_t n = ::send(control(), last_ + last_sent_, sizeof last_ - last_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return keep_waiting(errno), false;
    last_sent_ += static_cast<size_t>(n);
    if (last_sent_ < sizeof last_) return false;
    use(std::move(next_));
    shared_ = true;
    return true;
  }

  // Headers and payloads of as many messages as fit, in one call. False when the endpoint has failed.
  bool flush() noexcept {
    if (cursor_ + 1 == tail_ && sent_ == 0 && at(cursor_).bytes <= joined_bytes && !wants_stripes(at(cursor_).bytes)) {
      Message &m = at(cursor_);
      uint8_t joined[sizeof m.header + joined_bytes];
      m.header = m.bytes;
      std::memcpy(joined, &m.header, sizeof m.header);
      if (m.bytes) std::memcpy(joined + sizeof m.header, m.addr, m.bytes);
      const uint64_t total = sizeof m.header + m.bytes;
      return sent(::send(control(), joined, total, MSG_NOSIGNAL | MSG_DONTWAIT), total);
    }
    iovec iov[max_vectors];
    size_t used = 0;
    uint64_t total = 0, skip = sent_;
    for (uint32_t i = cursor_; i != tail_ && used + 2 <= max_vectors && total < bytes_per_call; ++i) {
      Message &m = at(i);
      const bool striped = wants_stripes(m.bytes);
      if (i != cursor_ || sent_ == 0) m.header = m.bytes | (striped ? striped_bit : 0);
      total += append(iov[used], &m.header, sizeof m.header, skip, used);
      if (!striped && m.bytes) total += append(iov[used], m.addr, std::min(m.bytes, bytes_per_call + skip), skip, used);
    }
    msghdr msg{};
    msg.msg_iov = iov;
    msg.msg_iovlen = used;
    return sent(sendmsg(control(), &msg, MSG_NOSIGNAL | MSG_DONTWAIT), total);
  }

  // After a call that failed. False when the endpoint has, too.
  bool keep_waiting(int err) noexcept {
    if (would_block(err)) return wire_->watch.writable = err == EINTR, true;
    return fail_calls(TUTTI_ERR_REMOTE, lost_text(err == EPIPE ? Stripe::closed_by_peer : err)), false;
  }

  // After a call that was to send `total` bytes.
  bool sent(ssize_t n, uint64_t total) noexcept {
    if (n < 0) return keep_waiting(errno);
    if (static_cast<uint64_t>(n) < total) wire_->watch.writable = false;
    account(static_cast<uint64_t>(n));
    return true;
  }

  // What `skip` bytes do not cover of a part.
  static uint64_t append(iovec &v, void *data, uint64_t bytes, uint64_t &skip, size_t &used) {
    const uint64_t cut = std::min(skip, bytes);
    skip -= cut;
    if (cut == bytes) return 0;
    v = {static_cast<uint8_t *>(data) + cut, bytes - cut};
    ++used;
    return bytes - cut;
  }

  void account(uint64_t n) {
    while (n > 0) {
      Message &m = at(cursor_);
      const bool striped = m.header & striped_bit;
      const uint64_t left = sizeof m.header + (striped ? 0 : m.bytes) - sent_;
      if (n < left) {
        sent_ += n;
        return;
      }
      n -= left;
      sent_ = 0;
      ++cursor_;
      if (striped) push_pieces(m);
    }
  }

  std::unique_ptr<Connector> connector_; // until ready
  std::string why_;
  uint64_t sent_ = 0;          // of the header and payload at cursor_
  std::shared_ptr<Wire> next_; // while it goes over there
  uint8_t last_[sizeof(uint64_t) + sizeof(Identity)];
  size_t last_sent_ = 0;
  bool shared_ = false; // the socket with a receiver
};

} // namespace

std::unique_ptr<Endpoint> make_sender(Context &ctx, const Blob &blob) {
  return std::make_unique<Sender>(ctx, blob);
}

} // namespace tutti::net_socket
