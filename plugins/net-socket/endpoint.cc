// tutti/plugins/net-socket/endpoint.cc
#include "endpoint.h"
#include <netinet/tcp.h>

namespace tutti::net_socket {

constexpr uint64_t piece_alignment = 64;

Endpoint::~Endpoint() {
  drop_stripes();
  ctx_.deactivate(this);
  ctx_.remove(this);
  for (; head_ != tail_; ++head_)
    if (at(head_).ends_call) ctx_.complete(at(head_).cookie, 0, TUTTI_ERR_CANCELLED);
}

// On return no helper touches a posted buffer.
void Endpoint::drop_stripes() noexcept {
  if (Helpers *helpers = ctx_.helpers())
    for (auto &s : stripes_) helpers->remove(s.get());
  stripes_.clear();
}

void Endpoint::use(std::shared_ptr<Wire> wire) {
  wire_ = std::move(wire);
  const Address peer = peer_address(control().get());
  if (port_of(peer) == 0) return; // lost meanwhile
  local_ = local_address(control().get());
  peer_ = peer;
}

void Endpoint::open(std::shared_ptr<Wire> wire, std::vector<Fd> data, bool sending, bool resumes, uint64_t min_task) {
  resumes_ = resumes;
  sending_ = sending;
  min_task_ = min_task;
  ctx_.watch(wire->fd, &wire->watch);
  use(std::move(wire));
  stripe_watches_.resize(data.size());
  for (Fd &fd : data) {
    stripes_.push_back(std::make_unique<Stripe>(std::move(fd), sending, resumes));
    stripes_.back()->owner = &ctx_;
    serve(stripes_.size() - 1);
  }
}

void Endpoint::serve(size_t i) {
  if (Helpers *helpers = ctx_.helpers()) {
    helpers->add(stripes_[i].get()); // watches it with an epoll set of its own
    return helpers->wake(stripes_[i].get());
  }
  stripe_watches_[i] = {};
  ctx_.watch(stripes_[i]->file(), &stripe_watches_[i]);
}

void Endpoint::unserve(size_t i) {
  if (Helpers *helpers = ctx_.helpers()) helpers->remove(stripes_[i].get());
}

std::string Endpoint::describe() const {
  return plugin::text(endpoint_text(local_), sending_ ? " -> " : " <- ", endpoint_text(peer_), " (",
                      ctx_.device_towards(peer_).interface.name, ")");
}

tutti_status Endpoint::post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
  if (failed_ != TUTTI_OK) plugin::fail(failed_, "the connection to peer ", peer_text(), " has failed before");
  if (n == 0 || n > max_batch) plugin::fail(TUTTI_ERR_INVALID, "a call with ", n, " buffers; 1 to ", max_batch, " are allowed");
  if (calls_ == max_calls) return TUTTI_AGAIN;
  for (uint32_t i = 0; i < n; ++i) {
    Message &m = at(tail_ + i);
    m.addr = static_cast<uint8_t *>(bufs[i].addr);
    m.bytes = bufs[i].bytes;
    m.received = received ? received + i : nullptr;
    m.cookie = cookie;
    m.pieces.store(0, std::memory_order_relaxed);
    m.pushed = false;
    m.ends_call = i + 1 == n;
  }
  tail_ += n;
  ++calls_;
  ctx_.activate(this);
  return TUTTI_OK;
}

// Equal pieces of at least min_task_, one per data socket, the first on the socket after the previous message's last.
void Endpoint::push_pieces(Message &m) {
  const auto sockets = static_cast<uint32_t>(stripes_.size());
  const uint64_t share = (m.bytes + sockets - 1) / sockets;
  const uint64_t piece = std::max(min_task_, (share + piece_alignment - 1) / piece_alignment * piece_alignment);
  const auto count = static_cast<uint32_t>((m.bytes + piece - 1) / piece);
  m.pieces.store(count, std::memory_order_relaxed);
  m.pushed = true;
  for (uint32_t i = 0; i < count; ++i) {
    Stripe &s = *stripes_[next_stripe_++ % sockets];
    const uint64_t from = i * piece;
    s.push(m.addr + from, std::min(piece, m.bytes - from), &m.pieces);
    if (Helpers *helpers = ctx_.helpers()) helpers->wake(&s);
  }
}

bool Endpoint::stripes_may_move() const {
  for (size_t i = 0; i < stripes_.size(); ++i) {
    if (stripes_[i]->lost) continue;
    if (stripes_[i]->error() || (!ctx_.helpers() && stripes_[i]->unacknowledged())) return true;
    if (!ctx_.helpers() && !stripes_[i]->idle() && (sending_ ? stripe_watches_[i].writable : stripe_watches_[i].readable))
      return true;
  }
  return head_ != cursor_ && queue_[head_ % max_messages].pieces.load(std::memory_order_acquire) == 0;
}

bool Endpoint::move_stripes() {
  for (size_t i = 0; i < stripes_.size(); ++i) {
    Stripe &s = *stripes_[i];
    if (!ctx_.helpers() && !s.idle() && !s.advance())
      (sending_ ? stripe_watches_[i].writable : stripe_watches_[i].readable) = false;
    if (s.error() && !s.lost && !stripe_failed(i)) return false;
  }
  return true;
}

bool Endpoint::stripe_failed(size_t i) {
  Stripe &s = *stripes_[i];
  if (!resumes_ || !may_come_back(s.error())) return fail_calls(TUTTI_ERR_REMOTE, lost_text(s.error())), false;
  s.lost = true;
  stripe_lost(i, s.error());
  return failed_ == TUTTI_OK;
}

// Keepalive asks only on idle connections, and the kernel retransmits for a quarter of an hour. A peer that does not receive
// still answers the kernel's probes, so it never looks dead here.
bool Endpoint::host_silent(int fd, std::chrono::nanoseconds limit, int unanswered, std::chrono::milliseconds &silent) {
  tcp_info info{};
  socklen_t len = sizeof info;
  if (limit.count() == 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return false;
  silent = std::chrono::milliseconds(info.tcpi_last_ack_recv);
  return std::max(info.tcpi_retransmits, info.tcpi_probes) >= unanswered && silent >= limit;
}

void Endpoint::retire(uint32_t upto) {
  while (head_ != upto) {
    Message &m = at(head_);
    if (m.pieces.load(std::memory_order_acquire) != 0) return;
    if (m.received) *m.received = m.bytes;
    call_bytes_ += m.bytes;
    ++head_;
    if (!m.ends_call) continue;
    ctx_.complete(m.cookie, std::exchange(call_bytes_, 0), TUTTI_OK);
    --calls_;
  }
  if (head_ == tail_) ctx_.deactivate(this);
}

std::string Endpoint::lost_text(int err) const {
  if (err == closed_by_peer) return plugin::text("peer ", peer_text(), " closed the connection");
  return plugin::text("connection to peer ", peer_text(), " (", ctx_.device_towards(peer_).interface.name,
                      ") failed: ", err == EBADMSG ? "what came was not written by the peer" : errno_text(err));
}

void Endpoint::fail_calls(tutti_status status, const std::string &why) noexcept {
  if (failed_ != TUTTI_OK) return;
  failed_ = status;
  host().set_error(status, why.c_str());
  host().debug(why);
  drop_stripes();
  for (; head_ != tail_; ++head_)
    if (at(head_).ends_call) ctx_.complete(at(head_).cookie, 0, status);
  cursor_ = tail_;
  calls_ = 0;
  wire_.reset();
  ctx_.deactivate(this);
}

} // namespace tutti::net_socket
