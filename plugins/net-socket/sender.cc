// tutti/plugins/net-socket/sender.cc: the connecting side.
//
// Messages [head_, free_) are done with on the control socket, their bytes acknowledged by the peer's kernel or kept in the
// history; [free_, cursor_) are with the kernel, and their buffers are what is sent again if the connection is lost; [cursor_,
// tail_) wait.
#include "connector.h"
#include "redial.h"

namespace tutti::net_socket {

namespace {

constexpr size_t max_vectors = 64;             // messages whose headers and payloads go out in one call, times two
constexpr uint64_t shared_bytes = 16 << 10;    // larger ones would keep what arrives waiting for the socket's lock
constexpr uint64_t bytes_per_call = 512 << 10; // so that a large message does not keep other endpoints waiting
constexpr size_t joined_bytes = 4160;          // header and payload copied together cost less than a list of two parts

class Sender final : public Endpoint, Pending {
public:
  Sender(Context &ctx, const Blob &blob) : Endpoint(ctx), listener_(blob.listener), secret_(blob.secret) {
    if (ctx.settings().reconnect.count() > 0) places_ = resume_places(blob, ctx.devices().front().interface.index);
    connector_ = std::make_unique<Connector>(ctx, blob, !places_.empty());
    peer_ = connector_->peer();
    local_ = ctx.devices().front().interface.addresses.front();
    sending_ = true;
    queue_ = std::make_unique<Message[]>(max_messages);
    ctx.reserve_completions(max_calls);
    ctx.add_pending(this);
  }
  ~Sender() override {
    ctx_.remove_pending(this);
    redials_.clear();
    if (wire_ && wire_.use_count() > 1) shutdown(control().get(), SHUT_WR); // the other direction stays
  }

  bool ready() override {
    if (failed_ != TUTTI_OK) plugin::fail(failed_, why_);
    if (connector_) drive();
    if (failed_ != TUTTI_OK) plugin::fail(failed_, why_);
    return !connector_;
  }

  // What finds the socket idle goes out at once: it may be all that the peer waits for.
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) override {
    const bool first = cursor_ == tail_;
    const tutti_status s = post(bufs, n, nullptr, cookie);
    if (!first || s != TUTTI_OK) return s;
    if (wire_ && !shared_ && !next_ && free_ == cursor_ && ctx_.wires().any_accepted() && bufs[n - 1].bytes <= shared_bytes)
      share();
    pump();
    return s;
  }
  tutti_status recv(const tutti_net_buf *, uint32_t, uint64_t *, uint64_t) override {
    plugin::fail(TUTTI_ERR_INVALID, "the connecting side of ", describe(), " only sends");
  }

  void drive() noexcept override {
    try {
      if (!connector_) return redial();
      if (!connector_->advance()) return;
      connection_ = connector_->connection();
      if (!connector_->resumes()) places_.clear();
      if (!places_.empty()) history_.turn_on();
      open(connector_->take_control(), connector_->take_data(), true, !places_.empty(), ctx_.settings().min_task);
      prefer_place();
      ctx_.wires().dialled(wire_);
      finish_setup();
    } catch (const plugin::Error &e) {
      give_up(e.code(), e.what());
    } catch (const std::exception &e) {
      give_up(TUTTI_ERR_INTERNAL, e.what());
    }
  }

  bool may_move() const override {
    const bool waits = wire_ && (cursor_ != tail_ || history_.behind()) && wire_->watch.writable;
    return !connector_ && (waits || (wire_ && unacknowledged() && history_.patient()) || stripes_may_move());
  }
  bool needs_time() const override { return (wire_ && unacknowledged()) || !redials_.empty(); }

  void pump() noexcept override {
    if (connector_ || failed_ != TUTTI_OK) return;
    if (wire_ && !move_control()) return;
    if (!stripes_.empty() && !move_stripes()) return;
    retire(free_);
    if (behind()) ctx_.activate(this); // though nothing is posted
  }

  void check_link() noexcept override {
    std::chrono::milliseconds silent;
    const Settings &s = ctx_.settings();
    if (ctx_.helpers()) look_if_broken();
    if (wire_ && resumes()) history_.ask(control());
    const auto lost = [&](int fd) { return resumes() && host_silent(fd, s.silence, unanswered_before_lost, silent); };
    if (wire_ && history_.acked() < history_.sent() && lost(control().get())) lose(ETIMEDOUT);
    for (const auto &stripe : stripes_)
      if (!stripe->lost && lost(stripe->fd())) stripe->give_up(ETIMEDOUT);
    if (wire_ && !resumes() && host_silent(control().get(), 2 * s.keepalive, unanswered_before_dead, silent))
      fail_calls(TUTTI_ERR_REMOTE,
                 plugin::text("the host of peer ", peer_text(), " (", ctx_.device_towards(peer_).interface.name,
                              ") has answered nothing for ", silent.count() / 1000, " s"));
  }

  // An end is told to the next send.
  void look_if_broken() noexcept override {
    for (size_t i = 0; i < stripes_.size() && resumes(); ++i) {
      // Those that helpers serve have their events there.
      if (stripes_[i]->lost || !(std::exchange(stripe_watches_[i].broken, false) || ctx_.helpers())) continue;
      const int err = why_broken(stripes_[i]->fd(), EPIPE);
      if (err == closed_by_peer || !may_come_back(err)) continue;
      stripes_[i]->give_up(err);
      if (!stripe_failed(i)) return;
    }
    if (!wire_ || !std::exchange(wire_->watch.broken, false)) return;
    const int err = why_broken(control().get(), EPIPE);
    if (err != closed_by_peer && may_come_back(err)) lose(err);
  }

  void wire_lost(const Wire *wire, int err) noexcept override {
    if (wire_.get() == wire) lose(err);
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

  bool behind() const {
    const auto stripe_behind = [](const auto &s) { return s->behind() && !s->lost; };
    return wire_ && (history_.behind() || (!ctx_.helpers() && std::any_of(stripes_.begin(), stripes_.end(), stripe_behind)));
  }
  bool unacknowledged() const { return free_ != cursor_ || (next_ && !history_.behind()); }

  // False when there is nothing more to do in this turn.
  bool move_control() noexcept {
    if (history_.behind() && !send_again()) return false;
    if (next_ && !go_over()) return failed_ == TUTTI_OK;
    if (cursor_ != tail_ && !history_.behind() && !flush()) return failed_ == TUTTI_OK;
    if (wire_) release();
    return true;
  }

  static uint64_t on_control(const Message &m) { return sizeof m.header + (m.header & striped_bit ? 0 : m.bytes); }

  void release() noexcept {
    for (; free_ != cursor_; ++free_) {
      const Message &m = at(free_);
      if (!history_.ready(on_control(m), control())) return;
      history_.release(&m.header, sizeof m.header);
      if (on_control(m) > sizeof m.header) history_.release(m.addr, m.bytes);
    }
  }

  // The history's part of the stream.
  bool send_again() noexcept {
    iovec parts[2];
    const ssize_t n = control().write(parts, history_.next(parts));
    if (n < 0) return keep_waiting(errno) && wire_;
    history_.gave(static_cast<uint64_t>(n));
    return true;
  }

  // ---- lost connections

  // The control socket is no good any more. One that a receiver here shares stays for what it still holds for that one.
  void lose(int err) noexcept {
    if (failed_ != TUTTI_OK || !wire_) return;
    if (err != closed_by_peer) wire_->lost = err;
    if (!resumes() || !may_come_back(err)) return fail_calls(TUTTI_ERR_REMOTE, lost_text(err));
    const std::shared_ptr<Wire> wire = std::move(wire_);
    wire_.reset();
    next_.reset();
    // An end that reached the peer would mean that this side has nothing more to say.
    if (wire.use_count() == 1) abandon(wire->fd.get());
    start_redial(0, err);
    ctx_.lost(wire, err);
  }
  void stripe_lost(size_t i, int err) override {
    abandon(stripes_[i]->fd());
    start_redial(static_cast<uint16_t>(i + 1), err);
  }
  void start_redial(uint16_t index, int err) noexcept {
    host().debug(lost_text(err), index ? plugin::text(" (data socket ", index, ")") : "", "; it is dialled anew");
    if (redials_.empty()) ctx_.add_pending(this);
    redials_.push_back(std::make_unique<Redial>(ctx_, places_, secret_, index, err));
  }

  void redial() {
    if (failed_ != TUTTI_OK) redials_.clear(); // for another reason
    for (size_t i = 0; i < redials_.size();) {
      Redial &r = *redials_[i];
      switch (r.step([this](uint16_t index) { return hello(index); })) {
      case Redial::Result::waits:
        ++i;
        continue;
      case Redial::Result::restored:
        if (!restore(r)) return;
        break;
      case Redial::Result::gone: {
        const std::string why =
            plugin::text("connection to peer ", peer_text(), " (", ctx_.device_towards(peer_).interface.name, ") ", r.story(),
                         ": its process has ended or has closed it");
        give_up(TUTTI_ERR_REMOTE, why.c_str());
        return ctx_.gone(listener_, why);
      }
      case Redial::Result::late:
        return give_up(TUTTI_ERR_REMOTE, plugin::text("connection to peer ", peer_text(), " (",
                                                      ctx_.device_towards(peer_).interface.name, ") ", r.story())
                                             .c_str());
      }
      redials_.erase(redials_.begin() + static_cast<long>(i));
    }
    if (redials_.empty()) ctx_.remove_pending(this);
  }

  ResumeHello hello(uint16_t index) {
    ResumeHello h = make_resume_hello(index, ++attempts_, connection_);
    if (index) return h;
    if (shared_) h.moved_to = moved_to_, h.moved_at = moved_at_;
    h.void_before = std::max(history_.sent(), history_.released());
    return h;
  }

  // False when the endpoint has failed: the peer lacks what its kernel had acknowledged, or what stands between.
  bool restore(Redial &r) {
    const uint64_t before = r.index() ? 0 : history_.sent();
    const bool good = r.index() ? restore_stripe(r) : restore_control(r);
    if (!good) {
      give_up(TUTTI_ERR_REMOTE, plugin::text("connection to peer ", peer_text(), " was restored after ", r.lasted(),
                                             ", but the peer lacks bytes that had been acknowledged for it")
                                    .c_str());
      return false;
    }
    host().debug("connection to peer ", peer_text(), " restored after ", r.lasted(),
                 r.index() ? "" : plugin::text(": ", before - r.position(), " bytes go out once more"));
    return true;
  }
  bool restore_stripe(Redial &r) {
    const size_t i = r.index() - 1u;
    unserve(i);
    if (!stripes_[i]->send_from(r.take(), r.position())) return false;
    serve(i);
    ctx_.activate(this);
    return true;
  }
  bool restore_control(Redial &r) {
    if (!history_.rewind(r.position())) return false;
    auto wire = std::make_shared<Wire>();
    wire->fd = r.take();
    wire->connection = r.hello().wire;
    wire->peer = listener_;
    ctx_.watch(wire->fd, &wire->watch);
    use(std::move(wire));
    ctx_.wires().dialled(wire_);
    shared_ = false;
    cursor_ = free_;
    sent_ = 0;
    for (uint64_t from = history_.released(); from < r.position();) {
      const uint64_t n = std::min(r.position() - from, on_control(at(cursor_)));
      from += n;
      if (n == on_control(at(cursor_)))
        ++cursor_;
      else
        sent_ = n;
    }
    ctx_.activate(this);
    return true;
  }
  // The place where the peer has answered comes first.
  void prefer_place() {
    std::stable_partition(places_.begin(), places_.end(),
                          [&](const Address &a) { return netif::to_text(a) == netif::to_text(peer_); });
  }

  // ---- a socket for both directions

  // Goes over to a socket that the peer has dialled, if there is one. Nothing of a message may be under way here.
  void share() noexcept {
    uint8_t record[sizeof(uint64_t) + sizeof(Identity)];
    if (!history_.fits(sizeof record)) return;
    next_ = ctx_.wires().take_accepted(wire_->peer);
    if (!next_) return;
    const uint64_t header = moves_bit | sizeof(Identity);
    std::memcpy(record, &header, sizeof header);
    std::memcpy(record + sizeof header, next_->connection.data(), sizeof(Identity));
    history_.release(record, sizeof record); // which sends it
  }

  // When the last message of the old socket is there. What comes after it must not be lost without it.
  bool go_over() noexcept {
    if (history_.behind()) return false;
    if (resumes()) history_.ask(control());
    if (resumes() && history_.acked() < history_.released()) return false;
    moved_to_ = next_->connection;
    moved_at_ = history_.released();
    use(std::move(next_));
    shared_ = true;
    if (wire_->lost) lose(wire_->lost); // meanwhile
    return wire_ != nullptr;
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
      iovec part{joined, total};
      return sent(control().write(&part, 1), total);
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
    return sent(control().write(iov, static_cast<int>(used)), total);
  }

  // After a call that failed. False when the endpoint has, too.
  bool keep_waiting(int err) noexcept {
    if (would_block(err)) return wire_->watch.writable = err == EINTR, true;
    const int why = why_broken(control().get(), err);
    return lose(why == closed_by_peer && wire_->lost ? wire_->lost : why), false;
  }

  // After a call that was to send `total` bytes.
  bool sent(ssize_t n, uint64_t total) noexcept {
    if (n < 0) return keep_waiting(errno);
    if (static_cast<uint64_t>(n) < total) wire_->watch.writable = false;
    history_.gave(static_cast<uint64_t>(n));
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
      if (striped && !m.pushed) push_pieces(m);
    }
  }

  static constexpr int unanswered_before_lost = 3, unanswered_before_dead = 5; // retransmissions or window probes in a row

  std::unique_ptr<Connector> connector_; // until ready
  std::string why_;
  uint64_t sent_ = 0; // of the header and payload at cursor_
  uint32_t free_ = 0;
  History history_;            // of the control stream
  std::shared_ptr<Wire> next_; // while it goes over there
  bool shared_ = false;        // the socket with a receiver
  Identity moved_to_{};        // if it is, which
  uint64_t moved_at_ = 0;

  Identity listener_, connection_{};
  Secret secret_;
  std::vector<Address> places_; // where the peer can be found when a socket is lost; empty: nowhere
  std::vector<std::unique_ptr<Redial>> redials_;
  uint32_t attempts_ = 0;
};

} // namespace

std::unique_ptr<Endpoint> make_sender(Context &ctx, const Blob &blob) {
  return std::make_unique<Sender>(ctx, blob);
}

} // namespace tutti::net_socket
