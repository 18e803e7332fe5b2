#include "exec/pull.h"
#include "transport/transport.h"
#include <cerrno>
#include <cstring>

namespace tutti {

int Loans::find(Frame &f, uint32_t k, uint64_t bytes) {
  const BoundLink &link = links_[k];
  const Ring &r = *link.ring;
  const uint8_t *slot = slot_at(r);
  payloads_[k] = {slot + payload_offset(bytes), 0};
  if (bytes <= kInlineBytes) return 1;
  Descriptor d;
  std::memcpy(&d, slot, sizeof d);
  if (d.address == 0) return 1;
  if (r.cold->link_class == LinkClass::local) {
    payloads_[k].at = reinterpret_cast<const uint8_t *>(d.address);
    return 1;
  }
  payloads_[k] = {nullptr, d.address};
  return d.region ? find_mapped(f, link, d, bytes, &payloads_[k]) : 1;
}

// By pointer once the region is mapped here; until then as private memory, where that can be read.
int Loans::find_mapped(Frame &f, const BoundLink &link, const Descriptor &d, uint64_t bytes, Payload *p) {
  Transport &transport = *link.ring->cold->transport;
  PeerRegions &all = transport.peer_regions();
  if (!mapped_) mapped_ = std::unique_lock(all.mutex());
  const PeerRegions::View v = all.look(link.peer, d.region);
  if (v.state == PeerRegions::State::mapped && d.offset <= v.bytes && bytes <= v.bytes - d.offset) {
    p->at = v.at + d.offset;
    return 1;
  }
  if (v.state == PeerRegions::State::unknown) transport.ask_region(link.peer, d.region);
  if (transport.readable(link.peer)) return 1;
  if (v.state == PeerRegions::State::unknown || v.state == PeerRegions::State::asked) {
    f.unread = &link;
    return 0;
  }
  f.mismatch = {&link, 0, v.err ? v.err : EFAULT, true};
  return -1;
}

bool Loans::give_back() {
  bool good = true;
  for (; taken_ > 0; taken_--) good &= end_reading(*links_[taken_ - 1].ring);
  if (mapped_) mapped_.unlock();
  return good;
}

int fetch(Frame &f, const BoundLink &link, const Payload &p, uint64_t at, uint8_t *to, uint64_t bytes) {
  const RingCold &cold = *link.ring->cold;
  const int err = read_process(cold.transport->pid(cold.peer), to, p.remote + at, bytes);
  if (!err) return 1;
  f.mismatch = {&link, 0, err, false};
  return -1;
}

int fetch_whole(Frame &f, const BoundLink &link, uint8_t *to, uint64_t bytes) {
  Payload p;
  Loans loan(f, &link, 1, &p);
  if (!loan.taken()) return 0;
  int r = loan.find(f, 0, bytes);
  if (r > 0 && p.at) std::memcpy(to, p.at, bytes);
  if (r > 0 && !p.at) r = fetch(f, link, p, 0, to, bytes);
  return loan.give_back() ? r : 0;
}

namespace {

const Region *region_of(const Frame &f, const uint8_t *at, uint64_t bytes) {
  for (const Region &r : f.regions)
    if (r.holds(at, bytes)) return &r;
  return nullptr;
}

} // namespace

bool may_lend(const Frame &f, const Ring &to, const uint8_t *at, uint64_t bytes) {
  if (bytes <= kInlineBytes) return false;
  if (to.cold->link_class == LinkClass::local || region_of(f, at, bytes)) return true;
  return pull_header(to).readable && !(f.bound->selection.flags & TUTTI_CAND_SHARED_ONLY);
}

void lend(const Frame &f, Ring &to, uint8_t *slot, const uint8_t *at, uint64_t bytes) {
  Descriptor d{reinterpret_cast<uintptr_t>(at), 0, 0};
  if (const Region *r = region_of(f, at, bytes)) d.region = r->id, d.offset = static_cast<uint64_t>(at - r->at);
  std::memcpy(slot, &d, sizeof d);
  if (f.bound->store_fence) store_fence(); // what was stored past the caches has to be seen there
  to.cold->described = to.seq + 1;
  add_relaxed(to.lent, bytes);
}

void consume_lent(Ring &r, uint64_t bytes) {
  Descriptor d{};
  if (bytes > kInlineBytes) std::memcpy(&d, slot_at(r), sizeof d);
  if (d.address) add_relaxed(r.lent, bytes);
  ring_consume(r, bytes);
}

void stage(uint8_t *slot, const uint8_t *at, uint64_t bytes, tutti_kernel encode) {
  if (bytes > kInlineBytes) {
    const Descriptor none{};
    std::memcpy(slot, &none, sizeof none);
  }
  uint8_t *payload = slot + payload_offset(bytes);
  if (payload != at) reinterpret_cast<tutti_copy_fn>(encode)(payload, at, bytes);
}

} // namespace tutti
