// tutti/plugins/net-ib/receives.cc
#include "receives.h"
#include "endpoint.h"

namespace tutti::net_ib {

using plugin::fail;
using plugin::text;

void Receives::open(uint32_t calls) {
  queue_.open(calls);
}

tutti_status Receives::post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
  if (n == 0 || n > max_batch) fail(TUTTI_ERR_INVALID, "a receive of ", n, " messages, expected 1 to ", max_batch);
  if (queue_.full()) return TUTTI_AGAIN;
  for (uint32_t i = 0; i < n; ++i) {
    const auto *mr = reinterpret_cast<const Mr *>(bufs[i].mr);
    if (bufs[i].bytes && !(mr && mr->holds(bufs[i].addr, bufs[i].bytes)))
      fail(TUTTI_ERR_INVALID, "a receive into ", bufs[i].bytes, " bytes that are not registered: net-ib needs every buffer so");
    Message &m = queue_[queue_.tail + i];
    m = {};
    m.addr = static_cast<uint8_t *>(bufs[i].addr);
    m.room = bufs[i].bytes;
    m.mr = mr;
    m.received = received ? received + i : nullptr;
    m.cookie = cookie;
    m.ends_call = i + 1 == n;
  }
  queue_.tail += n;
  ++queue_.calls;
  grant();
  return TUTTI_OK;
}

// As many in one write as lie together in the ring. A sender that has some left is told of more only when that is a quarter of
// what is posted: each telling is a packet and its acknowledgement.
void Receives::grant() {
  constexpr uint64_t enough = 4;
  if (const uint64_t left = granted_ - queue_.head; left >= enough && queue_.tail - granted_ < 3 * left) return;
  const uint32_t entries = ep_.window().shape().messages;
  const size_t stride = credit_bytes(ep_.window().shape().ports);
  while (granted_ != queue_.tail && !withheld_ && ep_.works()) {
    QueuePair *qp = ep_.credit_queue();
    if (!qp || qp->room() == 0) return;
    const uint64_t first = granted_;
    const uint32_t at = static_cast<uint32_t>(first % entries);
    const uint64_t end = std::min(queue_.tail, first + (entries - at));
    uint8_t *ring = ep_.window().at(0);
    for (; granted_ != end; ++granted_) {
      const Message &m = queue_[granted_];
      Credit c{reinterpret_cast<uint64_t>(m.addr), m.room, static_cast<uint32_t>(granted_), {}};
      std::vector<Rail> &rails = ep_.ctx().rails();
      for (size_t i = 0; m.mr && i < rails.size(); ++i) c.rkey[i] = m.mr->rkey(rails[i]);
      std::memcpy(ring + granted_ % entries * stride, &c, stride);
    }
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = htonl(Tag::note(Note::credits, granted_).imm());
    wr.wr.rdma.remote_addr = ep_.peer_window() + at * stride;
    wr.wr.rdma.rkey = ep_.window_rkey(*qp);
    qp->add(wr, ring + at * stride, static_cast<uint32_t>((end - first) * stride), ep_.window().mr().lkey(qp->rail()), true,
            {granted_, Work::credits, 0});
    qp->flush();
  }
}

void Receives::grant_again(uint64_t from) {
  if (!withheld_) return;
  withheld_ = false;
  granted_ = std::min(granted_, std::max(from, queue_.head));
}

void Receives::arrived(Tag tag, uint32_t bytes, uint32_t piece) {
  const uint64_t number = tag.whole(queue_.head);
  const uint64_t bit = uint64_t{1} << tag.share;
  if (number >= granted_)
    return ep_.fail(TUTTI_ERR_INTERNAL,
                    text("message ", number, " came, of which the peer was not told; the next is ", granted_));
  Message &m = queue_[number];
  if ((m.shares != 0 && m.shares != tag.shares) || tag.share >= tag.shares || (m.arrived & bit))
    return ep_.fail(TUTTI_ERR_INTERNAL, text("share ", tag.share, " of ", tag.shares, " of message ", number, " came twice"));
  m.shares = tag.shares;
  m.arrived |= bit;
  m.bytes += bytes + uint64_t{tag.pieces} * piece;
  if (m.arrived != (uint64_t{1} << m.shares) - 1) return;
  m.done = true;
  retire();
}

void Receives::retire() {
  while (queue_.head != queue_.tail && queue_[queue_.head].done) {
    const Message &m = queue_[queue_.head++];
    call_bytes_ += m.bytes;
    if (m.received) *m.received = m.bytes;
    if (!m.ends_call) continue;
    --queue_.calls;
    ep_.ctx().complete(m.cookie, std::exchange(call_bytes_, 0), TUTTI_OK);
  }
}

uint32_t Receives::write_arrived(uint8_t *out) const {
  uint32_t n = 0;
  for (uint64_t number = queue_.head; number != queue_.tail; ++number) {
    const uint64_t word = queue_[number].arrived;
    std::memcpy(out + (number - queue_.head) * sizeof word, &word, sizeof word);
    if (word) n = static_cast<uint32_t>(number - queue_.head + 1);
  }
  return n;
}

void Receives::finish(tutti_status status) {
  for (; queue_.head != queue_.tail; ++queue_.head)
    if (queue_[queue_.head].ends_call) ep_.ctx().complete(queue_[queue_.head].cookie, 0, status, ep_.why());
  queue_.calls = 0;
  granted_ = queue_.tail;
}

} // namespace tutti::net_ib
