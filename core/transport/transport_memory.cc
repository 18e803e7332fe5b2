// Users' memory, as the transport knows it: regions that peers map, registrations that a network keeps, and their end.
#include "transport/collnet_port.h"
#include "transport/link_message.h"
#include "transport/net_port.h"
#include <cerrno>
#include <thread>

namespace tutti {
namespace {

constexpr auto kEndTime = std::chrono::seconds(5); // for posts that use a buffer which is deregistered

} // namespace

void Transport::ask_region(int peer, uint64_t id) {
  const LinkMessage m{LinkMessage::region_ask, 0, {}, id};
  if (Status s = bootstrap_.send(peer, kLinkTag, std::as_bytes(std::span(&m, 1))); !s.ok()) report(s.error());
}

Status Transport::give_region(int peer, uint64_t id) {
  LinkMessage m{LinkMessage::region_give, 0, {}, id};
  const auto data = std::as_bytes(std::span(&m, 1));
  {
    std::lock_guard lock(mutex_);
    given_.insert({id, peer});
  }
  const auto shared = regions::share(id);
  if (shared.ok() && bootstrap_.send(peer, kLinkTag, data, shared->get()).ok()) {
    if (regions::alive(id)) return {};
    // Freed since: what was said of that may have come before what was just given.
    {
      std::lock_guard lock(mutex_);
      given_.erase({id, peer});
    }
    m.type = LinkMessage::region_gone;
    (void)bootstrap_.send(peer, kLinkTag, data); // who is gone needs no word
    return {};
  }
  // Freed, or no descriptor to be had. A peer that can read this process's memory copies it; another one's operation fails.
  const int err = shared.ok() ? 0 : shared.status().error().sys_errno;
  m.conn = static_cast<uint32_t>(err ? err : EIO);
  return bootstrap_.send(peer, kLinkTag, data);
}

Status Transport::offer_region(uint64_t id) {
  for (int r = 0; r < bootstrap_.nranks(); r++) {
    if (link_class(r) != LinkClass::shm) continue;
    {
      std::lock_guard lock(mutex_);
      if (given_.count({id, r})) continue;
    }
    TUTTI_TRY(give_region(r, id));
  }
  return {};
}

void Transport::keep(uint64_t number, const void *at, uint64_t bytes) {
  if ((!net_ && !collnet_) || !alone_) return;
  (void)alone_([&] {
    if (net_) net_->allow(number, at, bytes);
    if (collnet_) collnet_->allow(number, at, bytes);
  });
}

Status Transport::forget(uint64_t number) {
  return end_registrations(
      [&] {
        const bool net = !net_ || net_->disallow(number);
        return (!collnet_ || collnet_->disallow(number)) && net;
      },
      "a buffer is deregistered", Deadline::in(kEndTime));
}

// Posts that still use the memory end first. None is left where its operations have completed, as the caller promised. Where
// one is all the same, the communicator fails and its endpoints are closed: then nothing reaches the memory, whatever it
// becomes.
Status Transport::end_registrations(const std::function<bool()> &end, std::string_view what, const Deadline &patience) {
  if ((!net_ && !collnet_) || !alone_) return {};
  for (bool late = false;;) {
    bool gone = false;
    const Turn turn = alone_([&] {
      gone = end();
      if (gone) return;
      if (net_) (void)net_->progress();
      if (collnet_) (void)collnet_->progress();
    });
    if (gone || turn == Turn::ended) return {};
    if (turn == Turn::ran && !patience.expired()) {
      std::this_thread::yield();
      continue;
    }
    Error e;
    e.code = Code::invalid_usage;
    e.message = fmt::format("{} while the network still uses it: operations on it have not completed", what);
    if (std::exchange(late, true)) return e;
    report(e); // now the next turn is the end
  }
}

Status Transport::region_freed(const Region &region, const Deadline &patience) {
  const uint64_t id = region.id;
  TUTTI_TRY(end_registrations(
      [&] {
        const bool net = !net_ || net_->drop(region.at, region.bytes);
        return (!collnet_ || collnet_->drop(region.at, region.bytes)) && net;
      },
      "memory of tuttiMemAlloc is freed", patience));
  std::vector<int> peers;
  {
    std::lock_guard lock(mutex_);
    auto it = given_.lower_bound({id, 0});
    while (it != given_.end() && it->first == id) {
      peers.push_back(it->second);
      it = given_.erase(it);
    }
  }
  const LinkMessage m{LinkMessage::region_gone, 0, {}, id};
  for (const int peer : peers)
    (void)bootstrap_.send(peer, kLinkTag, std::as_bytes(std::span(&m, 1))); // who is gone needs no word
  return {};
}

} // namespace tutti
