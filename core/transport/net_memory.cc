// Memory of NetPort's links: what messages are staged in, and users' memory that the device can reach.
#include "log/log.h"
#include "plugin/guard.h"
#include "transport/net_port.h"
#include <algorithm>

namespace tutti {

std::unique_ptr<MrCache> NetPort::make_cache(const NetDevice &device) {
  const Config &config = transport_.config();
  const MrCache::Limits limits{static_cast<uint64_t>(config.number("net.registrations")),
                               static_cast<uint64_t>(config.number("net.registered_bytes"))};
  const auto make = [this, &device](void *at, uint64_t bytes) -> tutti_net_mr * {
    const tutti_region region = host_region(at, bytes);
    tutti_net_mr *mr = nullptr;
    const tutti_status s = guarded(net_.plugin, "mr_register", net_.table->mr_register, device.ctx, &region, &mr);
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
  link.filler.link = &link;
  link.fetched.count = 1;
  if (link.ring->sending || g.descriptors == kNetAcks) {
    link.calls.resize(link.ring->sending ? in_flight : kAheadPairs);
    link.small.count = link.large.count = link.calls.size();
  } else {
    uint32_t pairs = 0;
    if (link.device->needs_mr())
      pairs = std::min({std::max(g.depth, kAheadPairs), std::max(1u, link.device->info.max_inflight / 2),
                        static_cast<uint32_t>(kAheadBytes / g.slot_bytes), kAllAhead});
    set_ahead(link, pairs);
    if (lends(link)) link.get = std::make_unique<NetCall>();
    if (lends(link)) link.get->link = &link;
    link.calls.resize(std::max(link.ahead, 4u)); // a filler, header and payload in a call each, and one more
  }
  for (NetCall &c : link.calls) c.link = &link;
}

// What is not posted ahead takes two of each at most, where the next message is expected at home as well.
void NetPort::set_ahead(NetLink &link, uint32_t pairs) {
  if (pairs == 0 && lends(link)) pairs = 1; // it is not known whether they are lent
  link.ahead = 2 * pairs;
  if (!link.small.memory) link.small.count = std::max(pairs, 2u);
  if (!link.large.memory) link.large.count = pairs ? pairs : link.device->needs_mr() ? 2 : 1;
}

bool NetPort::make_stage(NetLink &link, NetStage &stage, bool must) {
  if (stage.memory) return true;
  const uint32_t slot = link.ring->geometry.slot_bytes;
  const bool bare = link.ring->geometry.descriptors == kNetAcks;
  stage.room = sizeof(NetHeader) + (bare ? 0 : std::min<uint64_t>(kStagedBytes, slot));
  if (&stage != &link.small) stage.room = link.ring->sending ? sizeof(NetHeader) + slot : std::max<uint64_t>(stage.room, slot);
  const uint64_t bytes = stage.room * stage.count;
  Status s = transport_.budget().take(bytes, fmt::format("staging for rank {}", link.ring->peer));
  if (s.ok()) stage.memory.reset(static_cast<uint8_t *>(::operator new[](bytes, std::align_val_t(4096), std::nothrow)));
  if (s.ok() && !stage.memory) {
    transport_.budget().give(bytes);
    s = fail(Code::system, "out of memory: {} bytes for a link", bytes).peer(link.ring->peer);
  }
  if (!s.ok()) {
    if (must && !std::exchange(broken_, true)) transport_.report(s.error());
    return false;
  }
  if (!link.device->needs_mr()) return true;
  const tutti_region region = host_region(stage.memory.get(), bytes);
  const tutti_status made = guarded(net_.plugin, "mr_register", net_.table->mr_register, link.device->ctx, &region, &stage.mr);
  if (made >= 0) return true;
  stage.memory.reset();
  transport_.budget().give(bytes);
  if (must) fault(*link.device, link.ring->peer, made, fmt::format("registering {} bytes", bytes));
  return false;
}

// Where there is no memory for all that might be posted ahead, each message is posted for at its step.
bool NetPort::make_large(NetLink &link, bool must) {
  if (make_stage(link, link.large, false)) return true;
  set_ahead(link, 0);
  return make_stage(link, link.large, must);
}

bool NetPort::reaches(NetLink &link, const void *home, uint64_t bytes) {
  MrCache::Entry *e = link.device->cache->take(home, bytes);
  if (e) link.device->cache->give_back(e);
  return e;
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
