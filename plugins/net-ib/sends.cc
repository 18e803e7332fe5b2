// tutti/plugins/net-ib/sends.cc
#include "sends.h"
#include "endpoint.h"

namespace tutti::net_ib {

using plugin::fail;

void Sends::open(uint32_t calls, uint32_t most_shares, uint32_t credits) {
  queue_.open(calls);
  most_ = most_shares;
  homes_.resize(size_t{std::bit_ceil(calls * max_batch)} * most_);
  ring_.resize(credits);
  again_.reserve(16);
}

tutti_status Sends::post(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) {
  if (n == 0 || n > max_batch) fail(TUTTI_ERR_INVALID, "a send of ", n, " messages, expected 1 to ", max_batch);
  if (queue_.full()) return TUTTI_AGAIN;
  for (uint32_t i = 0; i < n; ++i) {
    const auto *mr = reinterpret_cast<const Mr *>(bufs[i].mr);
    if (bufs[i].bytes && !(mr && mr->holds(bufs[i].addr, bufs[i].bytes)))
      fail(TUTTI_ERR_INVALID, "a send of ", bufs[i].bytes, " bytes that are not registered: net-ib needs every buffer so");
    if (const uint64_t most = ep_.largest(); bufs[i].bytes > most)
      fail(TUTTI_ERR_INVALID, "a message of ", bufs[i].bytes, " bytes; both devices take up to ", most);
    Message &m = queue_[queue_.tail + i];
    m = {static_cast<const uint8_t *>(bufs[i].addr), bufs[i].bytes, mr, cookie, {}, 0, i + 1 == n};
  }
  queue_.tail += n;
  ++queue_.calls;
  pump();
  return TUTTI_OK;
}

void Sends::credits(uint64_t end) {
  const size_t stride = credit_bytes(ep_.window().shape().ports);
  for (; granted_ != end; ++granted_) {
    Credit &c = ring_[granted_ % ring_.size()];
    std::memcpy(&c, ep_.window().at(granted_ % ring_.size() * stride), stride);
    if (c.number != static_cast<uint32_t>(granted_))
      return ep_.fail(TUTTI_ERR_INTERNAL,
                      plugin::text("the receiver granted message ", c.number, " in the place of ", granted_));
  }
}

uint32_t Sends::requests(const Message &m) const {
  const uint64_t largest = m.split.length(0);
  return largest == 0 ? 1 : static_cast<uint32_t>((largest + ep_.piece() - 1) / ep_.piece());
}

bool Sends::start(uint64_t number) {
  Message &m = queue_[number];
  const Settings &s = ep_.ctx().settings();
  m.split = Split::of(m.bytes, s.split_data ? std::min(ep_.share_limit(), most_) : 1, s.split_min);
  // Each share has a queue pair of its own; where one of them has no room all wait, so that none overtakes.
  const uint32_t n = requests(m), first = ep_.lightest();
  for (uint32_t i = 0; i < m.split.count; ++i) {
    const QueuePair *qp = ep_.data_queue(first + i);
    if (!qp || qp->room() < n) return false;
  }
  m.missing = (uint64_t{1} << m.split.count) - 1;
  for (uint32_t i = 0; i < m.split.count; ++i)
    if (QueuePair *qp = ep_.data_queue(first + i); qp && qp->room() >= n)
      post_share(*qp, number, i);
    else // a path has failed meanwhile
      again_.push_back({number, static_cast<uint8_t>(i)});
  return true;
}

void Sends::post_share(QueuePair &qp, uint64_t number, uint32_t share) {
  const Message &m = queue_[number];
  const Credit &c = credit(number);
  const uint32_t piece = ep_.piece();
  const uint64_t bytes = m.split.length(share);
  const uint8_t *from = m.addr + m.split.offset(share);
  const uint32_t lkey = m.mr ? m.mr->lkey(qp.rail()) : 0;
  uint64_t done = 0;
  uint8_t pieces = 0;
  home(number, share) = Home::of(qp);
  touch(qp);
  ibv_send_wr wr{};
  wr.wr.rdma.rkey = c.rkey[ep_.peer_port(qp)];
  for (; bytes - done > piece; done += piece, ++pieces) {
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr = c.addr + m.split.offset(share) + done;
    qp.add(wr, from + done, piece, lkey, false, {number, Work::piece, static_cast<uint8_t>(share)});
  }
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.wr.rdma.remote_addr = c.addr + m.split.offset(share) + done;
  const Tag tag{static_cast<uint32_t>(number) & Tag::number_mask, static_cast<uint8_t>(m.split.count),
                static_cast<uint8_t>(share), pieces};
  wr.imm_data = htonl(tag.imm());
  qp.add(wr, from + done, static_cast<uint32_t>(bytes - done), lkey, true, {number, Work::data, static_cast<uint8_t>(share)});
}

void Sends::touch(QueuePair &qp) {
  if (std::find(touched_.begin(), touched_.end(), &qp) == touched_.end()) touched_.push_back(&qp);
}

void Sends::flush() {
  for (size_t i = 0; i < touched_.size(); ++i) touched_[i]->flush();
  touched_.clear();
}

void Sends::pump() {
  while (!again_.empty() && ep_.works()) {
    const Share s = again_.back();
    if (s.number < queue_.head || !(queue_[s.number].missing >> s.share & 1)) { // it was there after all
      again_.pop_back();
      continue;
    }
    QueuePair *qp = ep_.next_queue(requests(queue_[s.number]));
    if (!qp) break;
    again_.pop_back();
    post_share(*qp, s.number, s.share);
  }
  for (; again_.empty() && next_ != queue_.tail && next_ != granted_ && ep_.works(); ++next_) {
    if (const Message &m = queue_[next_]; m.bytes > credit(next_).bytes) {
      if (next_ == queue_.head) ep_.too_long(next_, m.bytes); // what is before it shall arrive
      break;
    }
    if (!start(next_)) break;
  }
  flush();
}

void Sends::acknowledged(uint64_t number, uint8_t share) {
  if (number < queue_.head || number >= next_) return;
  queue_[number].missing &= ~(uint64_t{1} << share);
  if (number == queue_.head) retire();
}

void Sends::unposted(uint64_t number, uint8_t share) {
  home(number, share) = {};
  again_.push_back({number, share});
}

void Sends::all_arrived(uint64_t end) {
  for (uint64_t number = queue_.head; number < std::min(end, next_); ++number) queue_[number].missing = 0;
  retire();
}

void Sends::replay(const Path &path, uint64_t done, const std::vector<uint64_t> &arrived) {
  for (uint64_t number = queue_.head; number < next_; ++number) {
    Message &m = queue_[number];
    const uint64_t has = number < done ? ~uint64_t{0} : number - done < arrived.size() ? arrived[number - done] : 0;
    for (uint32_t share = 0; share < m.split.count; ++share) {
      const uint64_t bit = uint64_t{1} << share;
      if (!(m.missing & bit) || !home(number, share).at(path)) continue;
      home(number, share) = {};
      if (has & bit)
        m.missing &= ~bit;
      else
        again_.push_back({number, static_cast<uint8_t>(share)});
    }
  }
  retire();
}

void Sends::retire() {
  while (queue_.head != next_ && queue_[queue_.head].missing == 0) {
    const Message &m = queue_[queue_.head++];
    call_bytes_ += m.bytes;
    if (!m.ends_call) continue;
    --queue_.calls;
    ep_.ctx().complete(m.cookie, std::exchange(call_bytes_, 0), TUTTI_OK);
  }
}

void Sends::finish(tutti_status status) {
  for (; queue_.head != queue_.tail; ++queue_.head)
    if (queue_[queue_.head].ends_call) ep_.ctx().complete(queue_[queue_.head].cookie, 0, status, ep_.why());
  next_ = queue_.tail;
  queue_.calls = 0;
  again_.clear();
}

} // namespace tutti::net_ib
