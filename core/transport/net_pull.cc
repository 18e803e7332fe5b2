// Protocol `pull` over a network whose plugin reads a peer's registered memory (tutti.net.rma/1).
//
// What is in rings of shared memory a slot with a descriptor and a credit is here a message with the address and the key, and,
// once the reader has fetched it, a message on the link the other way. Memory with a registration that peers can read is lent;
// everything else travels as on any link. The registration stays in use until the reader has told that it is done: a loan. Who
// fails closes his endpoints and registrations, after which no peer can read what was lent: no revoking is needed.
#include "transport/net_port.h"
#include <algorithm>
#include <cstring>

namespace tutti {

bool NetPort::lends(const NetLink &link) {
  return link.ring->geometry.descriptors == kNetLends;
}

void NetPort::pair(Ring &ring, Ring &acks) {
  NetLink &link = *ring.net, &way_back = *acks.net;
  if (link.acks) return;
  link.acks = &way_back;
  way_back.acks = &link;
  way_back.is_acks = true;
  std::lock_guard lock(mutex_);
  paired_.push_back(&link);
  asked_.store(true, std::memory_order_release);
}

// ---- the lender

MrCache::Entry *NetPort::lendable(NetLink &link, const void *at, uint64_t bytes) {
  if (bytes <= kStagedBytes || !link.device->cache) return nullptr;
  MrCache::Entry *e = link.device->cache->take(at, bytes);
  if (!e) return nullptr;
  if (!e->asked) {
    e->asked = true;
    e->key.resize(TUTTI_NET_KEY_BYTES);
    uint32_t n = TUTTI_NET_KEY_BYTES;
    if (rma_->mr_key(static_cast<tutti_net_mr *>(e->mr), e->key.data(), &n) != TUTTI_OK)
      n = 0; // this memory travels as on any link
    e->key.resize(std::min<uint32_t>(n, TUTTI_NET_KEY_BYTES));
  }
  if (!e->key.empty()) return e;
  link.device->cache->give_back(e);
  return nullptr;
}

void NetPort::lend(NetLink &link, NetCall &c, MrCache::Entry *entry, const void *at) {
  Ring &ring = link.ring->ring;
  link.loans.push_back({ring.seq + 1, entry});
  lent_++;
  if (!make_stage(link, link.small, true)) return;
  NetDescriptor d{reinterpret_cast<uintptr_t>(at), static_cast<uint32_t>(entry->key.size()), 0, {}};
  std::memcpy(d.key, entry->key.data(), entry->key.size());
  const uint64_t bytes = std::exchange(c.bytes, sizeof d);
  c.header.bytes = bytes | kLent;
  seal(&c.header, &d, sizeof d);
  c.staged = link.small.at(ring.seq);
  c.mr = link.small.mr;
  std::memcpy(c.staged, &c.header, sizeof c.header);
  std::memcpy(c.staged + sizeof c.header, &d, sizeof d);
  add_relaxed(ring.lent, bytes);
  count_and_post(link, c, bytes, bytes + sizeof d);
}

// Memory that is given back is the user's again, so nothing is taken on trust. False: it ends the communicator.
bool NetPort::take_ack(NetLink &acks, const NetCall &c) {
  NetLink &lender = *acks.acks;
  NetHeader header{};
  const bool whole = c.status == TUTTI_OK && c.bytes == sizeof header;
  if (whole) std::memcpy(&header, c.staged, sizeof header);
  if (whole && !intact(acks, header, nullptr, 0)) return false;
  if (!whole || lender.loans.empty() || header.word > lender.loans.back().message) {
    const int peer = acks.ring->peer;
    Status wrong = fail(Code::remote, "rank {} says that it has read {}; {}", peer,
                        whole ? fmt::format("message {}", header.word) : fmt::format("what takes {} bytes to say", c.bytes),
                        lender.loans.empty() ? "nothing is lent to it"
                                             : fmt::format("the last that is lent to it is message {} (link {})",
                                                           lender.loans.back().message, lender.ring->conn))
                       .peer(peer)
                       .phase("operation");
    wrong.error().endpoint = describe(peer);
    raise(*acks.device, wrong.error(), TUTTI_ERR_SYSTEM);
    return false;
  }
  for (; !lender.loans.empty() && lender.loans.front().message <= header.word; lender.loans.pop_front(), lent_--)
    lender.device->cache->give_back(lender.loans.front().entry);
  return true;
}

// What the peer has read, from the way back; as many buffers wait there as it has calls.
bool NetPort::hear(NetLink &acks) {
  if (!acks.ready) return false;
  NetLink &lender = *acks.acks;
  bool moved = false;
  for (; acks.taken < acks.posted && acks.call(acks.taken).complete; acks.taken++, moved = true) {
    const NetCall &c = acks.call(acks.taken);
    if (c.status < 0 && c.status != TUTTI_ERR_TRUNCATED) { // the peer's ordinary end, unless it has still to read
      if (!lender.loans.empty()) (void)came(acks, c);
      return moved;
    }
    if (!take_ack(acks, c)) return moved;
    ring_advance(acks.ring->ring, 0, 0);
  }
  const bool must = !lender.loans.empty(); // else nothing comes, so nothing need be said when there is no memory for it
  while (!acks.ended && acks.posted - acks.taken < acks.calls.size() && post_single(acks, acks.small, acks.posted, must)) {
  }
  return moved;
}

// ---- the reader

// 1 it is at *payload, 0 not yet.
int NetPort::fetch(NetLink &link, uint64_t bytes, void *home, const uint8_t **payload) {
  NetCall &get = *link.get;
  if (!get.busy && !get.complete && !start_get(link, bytes, home)) return 0;
  if (!came(link, get)) return 0;
  *payload = get.payload;
  return get.status == TUTTI_OK && get.bytes == bytes ? 1 : -1;
}

bool NetPort::start_get(NetLink &link, uint64_t bytes, void *home) {
  const NetCall &front = link.call(link.taken);
  NetDescriptor d;
  std::memcpy(&d, front.staged + sizeof(NetHeader), sizeof d);
  NetCall &get = *link.get;
  reset(get, NetCall::Kind::get);
  if (!use_home(link, get, home, bytes)) {
    if (!make_stage(link, link.fetched, true)) return false;
    get.payload = link.fetched.at(0);
    get.payload_mr = link.fetched.mr;
  }
  const tutti_net_buf to{get.payload, bytes, get.payload_mr, 0};
  const uint32_t key_bytes = std::min<uint32_t>(d.key_bytes, TUTTI_NET_KEY_BYTES);
  const tutti_status s = rma_->get(link.ep, &to, d.address, d.key, key_bytes, reinterpret_cast<uint64_t>(&get));
  if (s == TUTTI_OK) return get.busy = true;
  if (get.home) link.device->cache->give_back(std::exchange(get.home, nullptr));
  if (s < 0) fault(*link.device, link.ring->peer, s, fmt::format("reading the memory of rank {}", link.ring->peer));
  return false;
}

void NetPort::owe(NetLink &link) {
  link.get->complete = false;
  if (link.read == link.told) owed_++;
  link.read = link.ring->ring.seq;
  (void)tell(link);
}

// The peer waits for this before its operation ends.
bool NetPort::tell(NetLink &link) {
  if (link.read == link.told || broken_) return false;
  NetLink &acks = *link.acks;
  RingCold &way_back = *acks.ring;
  if (way_back.state.load(std::memory_order_relaxed) != 3 && !transport_.connect(way_back)) return false;
  if (!can_send(way_back.ring)) return false;
  NetCall &c = acks.call(way_back.ring.seq);
  if (!make_stage(acks, acks.small, true)) return false;
  reset(c, NetCall::Kind::send);
  c.busy = true;
  c.bytes = 0;
  c.header = {link.read, 0};
  seal(&c.header, nullptr, 0);
  c.staged = acks.small.at(way_back.ring.seq);
  c.mr = acks.small.mr;
  std::memcpy(c.staged, &c.header, sizeof c.header);
  link.told = link.read;
  owed_--;
  count_and_post(acks, c, 0, 0);
  return true;
}

std::vector<int> NetPort::unread_by() const {
  std::vector<int> peers;
  for (const NetLink *l : lenders_)
    if (!l->loans.empty()) peers.push_back(l->ring->peer);
  return peers;
}

bool NetPort::settle() {
  bool moved = false;
  for (size_t i = 0; i < lenders_.size(); i++) moved |= hear(*lenders_[i]->acks);
  for (size_t i = 0; i < readers_.size(); i++) moved |= tell(*readers_[i]);
  return moved;
}

} // namespace tutti
