// The data path of NetPort: what is posted, from which memory, and what has come.
//
// Receives. A device that takes any memory lets messages wait on the way, so a receive is posted when its step is reached, for
// just what comes then. A device that needs registrations writes into the receiver's memory by itself: no message leaves before
// a buffer for it is known on the other side, and a receive that waits for its step costs every message a round trip. There up
// to NetLink::ahead buffers are posted before it is known what comes, small and large ones in turn (net_link.h): kAheadPairs of
// each, or as many as the ring has slots, as far as the device takes calls and kAheadBytes hold the large ones. Many, because
// devices tell their peers of buffers in groups, and each telling takes packets of its own. Not so where a message may land in
// the user's memory, if that of the last one was registered: copying costs a large message more than the round trip. So no more
// are posted than messages come before it, and it waits for its step, which says where; or, while the message before it is on
// its way, is posted as the second one, where the plan proves that nothing touches its place before (kRecvEarly).
#include "base/crc32c.h"
#include "plugin/guard.h"
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
bool is_filler(const NetCall &front) {
  return front.complete && front.status == TUTTI_OK && front.bytes == 0;
}
uint64_t length_in(const NetHeader &header) {
  return header.bytes & kLengthMask;
}
// Of the calls that a message came in.
uint64_t calls_of(const NetCall &front) {
  const NetHeader header = header_in(front);
  return front.kind == NetCall::Kind::pair || is_lent(header) || length_in(header) <= kStagedBytes ? 1 : 2;
}

uint64_t checksum(const NetHeader &header, const void *payload, uint64_t bytes) {
  const uint64_t plain[2] = {header.word, header.bytes & (kLent | kLengthMask)};
  const uint32_t crc = crc32c(crc32c(0, plain, sizeof plain), payload, bytes);
  return static_cast<uint64_t>(crc & kChecksumMask) << kChecksumShift;
}

} // namespace

void NetPort::reset(NetCall &c, NetCall::Kind kind) {
  c.kind = kind;
  c.complete = false;
  c.home = nullptr;
  c.payload = nullptr;
  c.payload_mr = c.mr = nullptr;
  c.status = TUTTI_OK;
}

// ---- sending

void NetPort::seal(NetHeader *header, const void *payload, uint64_t bytes) const {
  if (checksums_) header->bytes |= checksum(*header, payload, bytes);
}

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
  MrCache::Entry *lent = home && lends(link) ? lendable(link, data, bytes) : nullptr;
  if (lent) return lend(link, c, lent, data);
  seal(&c.header, data, bytes);
  c.staged = reinterpret_cast<uint8_t *>(&c.header);
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
  tutti_net_buf buf[2] = {{c.staged, sizeof(NetHeader), c.mr, 0}, {c.payload, c.bytes, c.payload_mr, 0}};
  const uint32_t n = c.bytes <= kStagedBytes ? 1 : 2;
  if (n == 1) buf[0].bytes += c.bytes;
  if (n == 2 && link.tag % 2) {
    tutti_net_buf none{};
    if (!hand_over(link, link.filler, &none, 1)) return false;
    sends_pending_++;
  }
  if (!hand_over(link, c, buf, n)) return false;
  link.unposted++;
  return true;
}

bool NetPort::hand_over(NetLink &link, NetCall &c, tutti_net_buf *buf, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) buf[i].tag = link.tag + i;
  const tutti_status s = guarded(net_.plugin, "send", net_.table->send, link.ep, buf, n, reinterpret_cast<uint64_t>(&c));
  if (s < 0) fault(*link.device, link.ring->peer, s, fmt::format("sending to rank {}", link.ring->peer));
  if (s != TUTTI_OK) return false;
  link.tag += n;
  return true;
}

// ---- receiving

// What need not be posted now is no fault when it cannot be: the step that needs the message will tell.
bool NetPort::post_recv(NetLink &link, NetCall &c, tutti_net_buf *buf, uint32_t n, bool must) {
  for (uint32_t i = 0; i < n; i++) buf[i].tag = link.tag + i;
  const tutti_status s =
      guarded(net_.plugin, "recv", net_.table->recv, link.ep, buf, n, nullptr, reinterpret_cast<uint64_t>(&c));
  if (s != TUTTI_OK) {
    if (c.home) link.device->cache->give_back(std::exchange(c.home, nullptr));
    if (s < 0) end(link, s);
    if (s < 0 && must) tell_end(link);
    return false;
  }
  c.busy = true;
  c.tag = link.tag;
  link.tag += n;
  link.posted++;
  return true;
}

// For a header with its short payload, or whatever comes at its place.
bool NetPort::post_single(NetLink &link, NetStage &stage, uint64_t piece, bool must) {
  if (!make_stage(link, stage, must)) return false;
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::single);
  c.staged = stage.at(piece);
  c.payload = c.staged + sizeof(NetHeader);
  c.mr = stage.mr;
  tutti_net_buf buf{c.staged, stage.room, stage.mr, 0};
  return post_recv(link, c, &buf, 1, must);
}

bool NetPort::post_pair(NetLink &link, uint64_t bytes, void *home, bool must) {
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::pair);
  const bool at_home = use_home(link, c, home, bytes);
  if (!make_stage(link, link.small, must) || !(at_home || make_large(link, must))) {
    if (c.home) link.device->cache->give_back(std::exchange(c.home, nullptr));
    return false;
  }
  c.staged = link.small.at(link.tag / 2);
  c.mr = link.small.mr;
  if (!at_home) {
    c.payload = link.large.at(link.tag / 2);
    c.payload_mr = link.large.mr;
  }
  tutti_net_buf buf[2] = {{c.staged, sizeof(NetHeader), c.mr, 0}, {c.payload, bytes, c.payload_mr, 0}};
  return post_recv(link, c, buf, 2, must);
}

// Of a message whose header came in a buffer that had been posted ahead.
bool NetPort::post_payload(NetLink &link, uint64_t bytes, void *home) {
  NetCall &c = link.call(link.posted);
  reset(c, NetCall::Kind::payload);
  if (!use_home(link, c, home, bytes)) {
    if (!make_large(link, true)) return false;
    c.payload = link.large.at(link.tag / 2);
    c.payload_mr = link.large.mr;
  }
  tutti_net_buf buf{c.payload, bytes, c.payload_mr, 0};
  return post_recv(link, c, &buf, 1);
}

// What a message of `bytes` needs, which comes next, beside what is posted already.
bool NetPort::post_known(NetLink &link, uint64_t bytes, void *home) {
  const uint64_t next = link.next();
  const bool two = bytes > kStagedBytes, filled = two && next % 2;
  if (link.tag == next && (!two || filled) && !post_single(link, link.small, next / 2, true)) return false;
  if (!two) return true;
  const uint64_t header = next + filled;
  if (link.tag == header) return post_pair(link, bytes, home);
  return link.tag > header + 1 || post_payload(link, bytes, home);
}

// For so many messages, of any size.
void NetPort::post_ahead(NetLink &link, uint32_t messages, bool must) {
  if (link.ended || !link.ahead || !messages) return;
  if (!make_stage(link, link.small, must) || !make_large(link, must)) return set_ahead(link, 0);
  const uint64_t next = link.next(), end = next + std::min<uint64_t>(link.ahead, 2 * messages + next % 2);
  while (link.tag < end && post_single(link, link.tag % 2 ? link.large : link.small, link.tag / 2, must)) {
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
  while (link.posted != link.taken && is_filler(link.call(link.taken))) link.taken++;
  // The sender's call has header and payload, and a device may wait until it has a buffer for each.
  if (!lends(link) && !post_known(link, bytes, home)) return 0;
  if (lends(link) && link.tag - link.next() < 2) post_ahead(link, kAllAhead, true); // lent or not, it fits
  if (link.posted == link.taken) return 0;
  const NetCall &front = link.call(link.taken);
  if (!came(link, front)) return 0;
  *got = 0;
  if (front.status == TUTTI_ERR_TRUNCATED) return -1; // no header to look at
  NetHeader header{};
  if (front.bytes < sizeof header) return differs(link, header, nullptr, 0);
  header = header_in(front);
  *got = signature_in(header.word, ring.seq + 1);
  const bool lent = lends(link) && is_lent(header);
  const uint64_t came_with = front.bytes - sizeof header;
  const uint64_t plain = checksums_ ? header.bytes & (kLent | kLengthMask) : header.bytes;
  const bool mine = header.word == slot_word(ring.seq + 1, signature) && plain == (lent ? bytes | kLent : bytes);
  if (lent) {
    if (!mine || came_with != sizeof(NetDescriptor)) return differs(link, header, front.payload, came_with);
    return intact(link, header, front.payload, came_with) ? fetch(link, bytes, home, payload) : 0;
  }
  *payload = front.payload;
  const bool together = bytes <= kStagedBytes || front.kind == NetCall::Kind::pair;
  if (!mine || (together && came_with != bytes)) return differs(link, header, front.payload, came_with);
  if (together) return intact(link, header, *payload, bytes) ? 1 : 0;
  if (came_with != 0 || front.tag % 2) return differs(link, header, front.payload, came_with);
  if (link.posted - link.taken < 2) return 0; // the device took no more: again after progress
  const NetCall &second = link.call(link.taken + 1);
  if (!came(link, second)) return 0;
  *payload = second.kind == NetCall::Kind::payload ? second.payload : second.staged;
  if (second.status != TUTTI_OK) return -1;
  if (second.bytes != bytes) return differs(link, header, *payload, second.bytes);
  return intact(link, header, *payload, bytes) ? 1 : 0;
}

// Not what is expected: because the peer called something else, or because of damage, which is an error of its own. Of a header
// whose payload comes apart nobody can tell.
int NetPort::differs(NetLink &link, const NetHeader &header, const void *payload, uint64_t bytes) {
  const bool alone = bytes == 0 && length_in(header) > kStagedBytes;
  return alone || intact(link, header, payload, bytes) ? -1 : 0;
}

// False once the link is known to bring other bytes than were sent.
bool NetPort::intact(NetLink &link, const NetHeader &header, const void *payload, uint64_t bytes) {
  const uint64_t number = link.ring->ring.seq + 1;
  if (!checksums_ || link.checked == number) return true;
  const uint64_t carried = header.bytes & (uint64_t{kChecksumMask} << kChecksumShift), here = checksum(header, payload, bytes);
  if (carried == here) return link.checked = number, true;
  const int peer = link.ring->peer;
  Status damaged = fail(Code::remote,
                        "message {} from rank {} ({} bytes, link {}) was damaged on its way: it carries the checksum "
                        "{:#x}, what arrived has {:#x}",
                        number, peer, bytes, link.ring->conn, carried >> kChecksumShift, here >> kChecksumShift)
                       .peer(peer)
                       .phase("operation");
  damaged.error().endpoint = describe(peer);
  raise(*link.device, damaged.error(), TUTTI_ERR_SYSTEM);
  return false;
}

void NetPort::consume(Ring &ring, const void *home, uint32_t staged) {
  NetLink &link = *ring.net;
  const NetCall &front = link.call(link.taken);
  const NetHeader header = header_in(front);
  const uint64_t bytes = length_in(header);
  link.taken += calls_of(front);
  ring_advance(ring, bytes, is_lent(header) ? bytes + sizeof(NetDescriptor) : bytes);
  if (is_lent(header)) {
    add_relaxed(ring.lent, bytes);
    owe(link);
  }
  if (home && bytes > kStagedBytes && link.ahead) link.homeless = !reaches(link, home, bytes);
  post_ahead(link, lends(link) || bytes <= kStagedBytes || link.homeless ? kAllAhead : staged);
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
  uint64_t front = link.taken;
  while (front != link.posted && is_filler(link.call(front))) front++;
  if (front == link.posted || !link.call(front).complete) return false;
  const tutti_status status = link.call(front).status;
  if (status < 0) return status == TUTTI_ERR_TRUNCATED;
  return calls_of(link.call(front)) == 1 || (link.posted - front > 1 && link.call(front + 1).complete);
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

} // namespace tutti
