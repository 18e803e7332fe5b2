// The data path of NetPort: what is posted, from which memory, and what has come.
//
// Receives. A device that takes any memory lets messages wait on the way, so a receive is posted when its step is reached, for
// just what comes then. A device that needs registrations writes into the receiver's memory by itself: no message leaves before
// a buffer for it is known on the other side, and a receive that waits for its step costs every message a round trip. There up
// to NetLink::ahead buffers with room for any message of the link are posted before it is known what comes: as many as the ring
// has slots, the device takes calls, and kAheadBytes hold. Not so where the next message may land in the user's memory: copying
// costs a large message more than the round trip. So it waits for its step, which says where; or, while the message before it
// is on its way, is posted as the second one, where the plan proves that nothing touches its place before (kRecvEarly).
#include "log/log.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

NetHeader header_in(const NetCall &c) {
  NetHeader header;
  std::memcpy(&header, c.staged, sizeof header);
  return header;
}

bool is_lent(const NetHeader &header) {
  return header.bytes & kLent;
}
// Of the calls that a message came in.
uint64_t calls_of(const NetCall &front) {
  const NetHeader header = header_in(front);
  return front.kind == NetCall::Kind::pair || is_lent(header) || header.bytes <= kStagedBytes ? 1 : 2;
}

} // namespace

std::unique_ptr<MrCache> NetPort::make_cache(const NetDevice &device) {
  const Config &config = transport_.config();
  const MrCache::Limits limits{static_cast<uint64_t>(config.number("net.registrations")),
                               static_cast<uint64_t>(config.number("net.registered_bytes"))};
  const auto make = [this, &device](void *at, uint64_t bytes) -> tutti_net_mr * {
    const tutti_region region = host_region(at, bytes);
    tutti_net_mr *mr = nullptr;
    const tutti_status s = net_.table->mr_register(device.ctx, &region, &mr);
    if (s >= 0) return mr;
    const Status why = plugin_error(*net_.plugin, s, fmt::format("registering {} bytes at {}", bytes, at));
    log::write_once(log::Level::warn, log::Subsys::net, fmt::format("mr {}", device.info.name),
                    fmt::format("net {} {}: messages from and to this memory are copied: {}", net_.table->name,
                                device.info.name, why.error().line()));
    return nullptr;
  };
  return std::make_unique<MrCache>(limits, make, [this](void *mr) { net_.table->mr_release(static_cast<tutti_net_mr *>(mr)); });
}

void NetPort::size_calls(NetLink &link) {
  const Geometry &g = link.ring->geometry;
  const uint32_t in_flight = std::min(g.depth, std::max(1u, link.device->info.max_inflight));
  if (link.ring->sending) {
    link.calls.resize(in_flight);
  } else {
    const bool ahead = link.device->needs_mr();
    link.ahead = ahead ? std::min<uint32_t>(in_flight, kAheadBytes / (sizeof(NetHeader) + g.slot_bytes)) : 0;
    if (link.ahead < 2) link.ahead = lends(link) ? 2 : 0; // a header and its payload take one each
    if (lends(link)) link.get = std::make_unique<NetCall>();
    if (lends(link)) link.get->link = &link;
    link.calls.resize(std::max(link.ahead, ahead ? 2u : 1u));
  }
  for (NetCall &c : link.calls) c.link = &link;
  link.small.count = link.large.count = link.calls.size();
}

bool NetPort::make_stage(NetLink &link, NetStage &stage, bool must) {
  if (stage.memory) return true;
  const uint32_t slot = link.ring->geometry.slot_bytes;
  stage.room = sizeof(NetHeader) + (&stage == &link.small ? std::min<uint64_t>(kStagedBytes, slot) : slot);
  const uint64_t bytes = stage.room * stage.count;
  Status s = transport_.budget().take(bytes, fmt::format("staging for rank {}", link.ring->peer));
  if (s.ok()) stage.memory.reset(static_cast<uint8_t *>(::operator new[](bytes, std::align_val_t(4096), std::nothrow)));
  if (s.ok() && !stage.memory) s = fail(Code::system, "out of memory: {} bytes for a link", bytes).peer(link.ring->peer);
  if (!s.ok()) {
    if (must && !std::exchange(broken_, true)) transport_.report(s.error());
    return false;
  }
  if (!link.device->needs_mr()) return true;
  const tutti_region region = host_region(stage.memory.get(), bytes);
  const tutti_status made = net_.table->mr_register(link.device->ctx, &region, &stage.mr);
  if (made >= 0) return true;
  stage.memory.reset();
  transport_.budget().give(bytes);
  if (must) fault(*link.device, link.ring->peer, made, fmt::format("registering {} bytes", bytes));
  return false;
}

// The payload stays where the user has it, if the device can reach that.
bool NetPort::use_home(NetLink &link, NetCall &c, void *home, uint64_t bytes) {
  if (!home || bytes <= kStagedBytes) return false;
  if (link.device->needs_mr()) {
    c.home = link.device->cache->take(home, bytes);
    if (!c.home) return false;
    c.payload_mr = static_cast<tutti_net_mr *>(c.home->mr);
  }
  c.payload = static_cast<uint8_t *>(home);
  return true;
}

void NetPort::reset(NetCall &c, NetCall::Kind kind) {
  c.kind = kind;
  c.complete = false;
  c.home = nullptr;
  c.payload = nullptr;
  c.payload_mr = c.mr = nullptr;
  c.status = TUTTI_OK;
}

// ---- sending

uint32_t NetPort::window(const Ring &ring) const {
  return static_cast<uint32_t>(ring.net->calls.size());
}

bool NetPort::can_send(Ring &ring) {
  const NetLink &link = *ring.net;
  return !broken_ && !ring.net->call(ring.seq).busy && link.loans.size() < link.calls.size();
}

void NetPort::send(Ring &ring, const void *data, uint64_t bytes, uint32_t signature, bool home) {
  NetLink &link = *ring.net;
  NetCall &c = link.call(ring.seq);
  reset(c, NetCall::Kind::send);
  c.busy = true;
  c.bytes = bytes;
  c.header = {slot_word(ring.seq + 1, signature), bytes};
  c.staged = reinterpret_cast<uint8_t *>(&c.header);
  MrCache::Entry *lent = home && lends(link) ? lendable(link, data, bytes) : nullptr;
  if (lent) return lend(link, c, lent, data);
  const bool staged = !home || !use_home(link, c, const_cast<void *>(data), bytes);
  if (staged || link.device->needs_mr()) {
    NetStage &stage = staged && bytes > kStagedBytes ? link.large : link.small;
    if (!make_stage(link, stage, true)) return;
    c.staged = stage.at(ring.seq);
    c.mr = stage.mr;
    std::memcpy(c.staged, &c.header, sizeof c.header);
  }
  if (staged) {
    std::memcpy(c.staged + sizeof c.header, data, bytes);
    c.payload = c.staged + sizeof c.header;
    c.payload_mr = c.mr;
  }
  count_and_post(link, c, bytes, bytes);
}

// Of `bytes`, for which the network is given `rest` beside the header.
void NetPort::count_and_post(NetLink &link, NetCall &c, uint64_t bytes, uint64_t rest) {
  Ring &ring = link.ring->ring;
  sends_pending_++;
  const bool first = link.unposted == ring.seq;
  ring_advance(ring, bytes, rest);
  if (first && post_send(link, c)) return;
  if (std::find(backlog_.begin(), backlog_.end(), &link) == backlog_.end()) backlog_.push_back(&link);
}

bool NetPort::post_send(NetLink &link, NetCall &c) {
  if (broken_) return false;
  tutti_net_buf buf[2] = {{c.staged, sizeof(NetHeader), c.mr, link.tag}, {c.payload, c.bytes, c.payload_mr, link.tag + 1}};
  const uint32_t n = c.bytes <= kStagedBytes ? 1 : 2;
  if (n == 1) buf[0].bytes += c.bytes;
  const tutti_status s = net_.table->send(link.ep, buf, n, reinterpret_cast<uint64_t>(&c));
  if (s == TUTTI_AGAIN) return false;
  if (s < 0) {
    fault(*link.device, link.ring->peer, s, fmt::format("sending to rank {}", link.ring->peer));
    return false;
  }
  link.tag += n;
  link.unposted++;
  return true;
}

// ---- receiving

// What need not be posted now is no fault when it cannot be: the step that needs the message will tell.
bool NetPort::post_recv(NetLink &link, NetCall &c, tutti_net_buf *buf, uint32_t n, bool must) {
  for (uint32_t i = 0; i < n; i++) buf[i].tag = link.tag + i;
  const tutti_status s = net_.table->recv(link.ep, buf, n, nullptr, reinterpret_cast<uint64_t>(&c));
  if (s != TUTTI_OK) {
    if (c.home) link.device->cache->give_back(std::exchange(c.home, nullptr));
    if (s < 0) end(link, s);
    if (s < 0 && must) tell_end(link);
    return false;
  }
  c.busy = true;
  link.tag += n;
  link.posted++;
  return true;
}

// For a header with its short payload, or whatever comes.
bool NetPort::post_single(NetLink &link, NetStage &stage, bool must) {
  if (!make_stage(link, stage, must)) return false;
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::single);
  c.staged = stage.at(link.posted);
  c.payload = c.staged + sizeof(NetHeader);
  c.mr = stage.mr;
  tutti_net_buf buf{c.staged, stage.room, stage.mr, 0};
  return post_recv(link, c, &buf, 1, must);
}

bool NetPort::post_pair(NetLink &link, uint64_t bytes, void *home, bool must) {
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::pair);
  const bool at_home = use_home(link, c, home, bytes);
  NetStage &stage = at_home ? link.small : link.large;
  if (!make_stage(link, stage, must)) {
    if (c.home) link.device->cache->give_back(std::exchange(c.home, nullptr));
    return false;
  }
  c.staged = stage.at(link.posted);
  c.mr = stage.mr;
  if (!at_home) {
    c.payload = c.staged + sizeof(NetHeader);
    c.payload_mr = c.mr;
  }
  tutti_net_buf buf[2] = {{c.staged, sizeof(NetHeader), c.mr, 0}, {c.payload, bytes, c.payload_mr, 0}};
  return post_recv(link, c, buf, 2, must);
}

// Of a message whose header came in a buffer that had been posted ahead.
bool NetPort::post_payload(NetLink &link, uint64_t bytes, void *home) {
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::payload);
  if (!use_home(link, c, home, bytes)) {
    if (!make_stage(link, link.large, true)) return false;
    c.staged = c.payload = link.large.at(link.posted);
    c.payload_mr = link.large.mr;
  }
  tutti_net_buf buf{c.payload, bytes, c.payload_mr, 0};
  return post_recv(link, c, &buf, 1);
}

void NetPort::post_ahead(NetLink &link, bool must) {
  while (link.ahead && !link.ended && link.posted - link.taken < link.ahead)
    if (!post_single(link, link.large, must)) {
      if (!link.large.memory) link.ahead = 0; // no memory for that: each is posted at its step
      return;
    }
}

// 1 it has come, 0 not yet, or never. A link that the peer has closed is a fault only now, when a message of it is needed: what
// was posted ahead fails at the peer's ordinary end, too.
int NetPort::came(NetLink &link, const NetCall &c) {
  if (!c.complete) return 0;
  if (c.status >= 0 || c.status == TUTTI_ERR_TRUNCATED) return 1;
  tell_end(link);
  return 0;
}

// Nothing more will come, which at a peer's ordinary end is no fault. The reason is the first one.
void NetPort::end(NetLink &link, tutti_status status) {
  if (link.ended || broken_) return;
  link.ended = error_of(link.ring->peer, status, fmt::format("receiving from rank {}", link.ring->peer));
  link.ended_status = status;
}
void NetPort::tell_end(NetLink &link) {
  if (link.ended) raise(*link.device, *link.ended, link.ended_status);
}

int NetPort::receive(Ring &ring, uint64_t bytes, uint32_t signature, void *home, const uint8_t **payload, uint32_t *got) {
  NetLink &link = *ring.net;
  if (broken_ || !link.ready) return 0;
  if (lends(link) && link.posted - link.taken < 2) post_ahead(link, true); // lent or not, it fits
  if (link.posted == link.taken &&
      (lends(link) || !(bytes > kStagedBytes ? post_pair(link, bytes, home) : post_single(link, link.small, true))))
    return 0;
  const NetCall &front = link.call(link.taken);
  // The sender's call has header and payload, and a device may wait until it has a buffer for each.
  const bool two = bytes > kStagedBytes && front.kind != NetCall::Kind::pair;
  if (two && !lends(link) && link.posted - link.taken < 2 && !post_payload(link, bytes, home)) return 0;
  if (!came(link, front)) return 0;
  *got = 0;
  if (front.status == TUTTI_ERR_TRUNCATED || front.bytes < sizeof(NetHeader)) return -1; // no header to look at
  const NetHeader header = header_in(front);
  *got = signature_in(header.word, ring.seq + 1);
  const bool lent = lends(link) && is_lent(header);
  const bool mine = header.word == slot_word(ring.seq + 1, signature) && (lent ? header.bytes & ~kLent : header.bytes) == bytes;
  if (!mine || (lent && front.bytes != sizeof header + sizeof(NetDescriptor))) return -1;
  if (lent) return fetch(link, bytes, home, payload);
  *payload = front.payload;
  if (!two) return front.bytes == sizeof header + bytes ? 1 : -1;
  if (link.posted - link.taken < 2) return 0; // the device took no more: again after progress
  const NetCall &second = link.call(link.taken + 1);
  if (!came(link, second)) return 0;
  *payload = second.kind == NetCall::Kind::payload ? second.payload : second.staged;
  return second.status == TUTTI_OK && second.bytes == bytes ? 1 : -1;
}

void NetPort::consume(Ring &ring, bool next_home) {
  NetLink &link = *ring.net;
  const NetCall &front = link.call(link.taken);
  const NetHeader header = header_in(front);
  const uint64_t bytes = header.bytes & ~kLent;
  link.taken += calls_of(front);
  ring_advance(ring, bytes, is_lent(header) ? bytes + sizeof(NetDescriptor) : bytes);
  if (is_lent(header)) {
    add_relaxed(ring.lent, bytes);
    owe(link);
  }
  if (lends(link) || bytes <= kStagedBytes || !next_home) post_ahead(link);
}

bool NetPort::wants_next(const Ring &ring) const {
  NetLink &link = *ring.net;
  return link.device->needs_mr() && !lends(link) && !broken_ && !link.ended && link.posted - link.taken == 1 &&
         link.call(link.taken).kind == NetCall::Kind::pair;
}

void NetPort::expect(Ring &ring, uint64_t bytes, void *home) {
  (void)post_pair(*ring.net, bytes, home, false);
}

bool NetPort::arrived(const Ring &ring) const {
  NetLink &link = *ring.net;
  if (link.posted == link.taken || !link.call(link.taken).complete) return false;
  const tutti_status status = link.call(link.taken).status;
  if (status < 0) return status == TUTTI_ERR_TRUNCATED;
  return calls_of(link.call(link.taken)) == 1 || (link.posted - link.taken > 1 && link.call(link.taken + 1).complete);
}

void NetPort::complete(const tutti_net_completion &done) {
  auto &c = *reinterpret_cast<NetCall *>(done.cookie);
  NetLink &link = *c.link;
  if (c.home) link.device->cache->give_back(std::exchange(c.home, nullptr));
  c.busy = false;
  c.complete = true;
  c.status = done.status;
  const bool failed = done.status < 0 && done.status != TUTTI_ERR_CANCELLED;
  const int peer = link.ring->peer;
  if (c.kind == NetCall::Kind::send) {
    sends_pending_--;
    if (failed) fault(*link.device, peer, done.status, fmt::format("sending to rank {}", peer));
    return;
  }
  c.bytes = done.bytes;
  if (failed && done.status != TUTTI_ERR_TRUNCATED) end(link, done.status);
}

// ---- registrations of users' memory

void NetPort::allow(uint64_t number, const void *at, uint64_t bytes) {
  for (const auto &device : devices_) {
    if (!device->cache) continue;
    device->cache->allow(number, at, bytes);
    if (MrCache::Entry *e = device->cache->take(at, bytes)) device->cache->give_back(e); // now, rather than in an operation
  }
}

bool NetPort::disallow(uint64_t number) {
  bool gone = true;
  for (const auto &device : devices_) gone &= !device->cache || device->cache->disallow(number);
  return gone;
}

bool NetPort::drop(const void *at, uint64_t bytes) {
  bool gone = true;
  for (const auto &device : devices_) gone &= !device->cache || device->cache->drop(at, bytes);
  return gone;
}

} // namespace tutti
