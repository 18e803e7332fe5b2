// tutti/core/transport/transport.h: the links of one communicator: creates rings, connects them, knows what each peer is
// reached by.
//
// The receiver owns a ring and creates it when a plan is bound. The sender asks for it with a message when it first needs it;
// the receiver's service thread answers at once, or as soon as a plan with that ring is bound. Nobody waits inside bind().
// A ring with several readers is the sender's in the same way, and each reader asks for it.
#pragma once
#include "bootstrap/bootstrap.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "transport/link_class.h"
#include "transport/memory.h"
#include "transport/net_route.h"
#include "transport/pull.h"
#include "transport/regions.h"
#include "transport/ring.h"
#include "transport/traffic.h"
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace tutti {

class NetPort;
class CollnetPort;
class Transport;

struct RingCold {
  Ring ring;
  Transport *transport = nullptr;
  int peer = -1; // the sender, of a ring with several readers
  uint16_t conn = 0;
  bool sending = false;
  uint32_t given = 0; // ring of this rank in memory: how many peers have it (guarded by Transport::mutex_)
  Geometry geometry;
  LinkClass link_class = LinkClass::local;
  std::string protocols; // that plans use it with (guarded by Transport::mutex_)
  Block block;
  UniqueFd fd; // of the block until all peers have it
  // Rings of peers: 0 new, 1 asked, 2 granted (`offer` may be taken by the engine's owner), 3 connected, as this rank's own
  // are.
  std::atomic<uint32_t> state{0};
  Block offer;
  uint64_t described = 0; // send ring: the last message that the peer reads in this rank's memory
  bool owned() const { return sending == (geometry.readers != 0); }
};

// What the sender has put into this receive ring in memory can be seen here.
inline bool visible(const Ring &ring) {
  return ring.cold->state.load(std::memory_order_relaxed) == 3;
}
// The next message of a receive ring in memory is there, of whatever operation.
inline bool word_arrived(const Ring &ring) {
  return uint32_t(load_acquire(slot_at(ring) + ring.cold->geometry.word_offset)) == uint32_t(ring.seq + 1);
}

class Transport : private regions::Listener {
public:
  using OnError = std::function<void(const Error &)>; // [any thread]
  enum class Turn { ran, ended, busy };
  // Runs it while nobody else moves the links, as their owner. ended: the links have ended, and all registrations with them;
  // those of an operation that has failed are ended for that. busy: neither could be had in time. [any thread but the owner]
  using Alone = std::function<Turn(const std::function<void()> &)>;
  static Result<std::unique_ptr<Transport>> create(Bootstrap &bootstrap, std::shared_ptr<const Config> config,
                                                   Iface<tutti_net_v1> net, OnError on_error);
  ~Transport() override;

  void set_alone(Alone alone) { alone_ = std::move(alone); } // before the first link

  Bytes local_info() const;
  void set_routes(NetRoutes routes) { routes_ = std::move(routes); } // before set_peers(), which opens the devices
  const NetRoutes &routes() const { return routes_; }
  Status set_peers(std::span<const Bytes> infos);
  LinkClass link_class(int peer) const { return classes_[static_cast<size_t>(peer)]; }
  std::string describe(int peer) const;
  bool shares_memory() const { return shares_memory_; } // every rank with every other one; all ranks see it alike
  // Why this rank cannot read the private memory of a process that it shares memory with, and of whose rank; "" = it can.
  const std::string &unreadable() const { return unreadable_; }
  // Over a network: both can read what the other has registered.
  bool can_lend(int peer) const { return lends_[static_cast<size_t>(peer)] != 0; }
  bool readable(int peer) const { return readable_[static_cast<size_t>(peer)] != 0; }
  int32_t pid(int peer) const { return pids_[static_cast<size_t>(peer)]; }
  // What a peer reads of this rank's memory from now on is thrown away, but for links that the owner connects meanwhile. [any
  // thread]
  void revoke();
  // After revoke(), when nothing is sent any more: the ranks of this process that did not stop reading in time.
  std::set<int> still_reading(const Deadline &patience);
  // Memory of tuttiMemAlloc: peers' as mapped here, and this rank's for peers.
  PeerRegions &peer_regions() { return peer_regions_; }
  void ask_region(int peer, uint64_t id);
  // What the user says will be used again, by a number of his own: nets that need registrations may keep one of it, until
  // forget(), which returns an error when one may be left. [any thread]
  void keep(uint64_t number, const void *at, uint64_t bytes);
  Status forget(uint64_t number);
  Status offer_region(uint64_t id); // to all processes that share memory with this one, before they ask

  // The ring of (peer, conn, direction, geometry), made if need be. To several readers: peer is this rank. Protocols share
  // rings of one geometry. [binder]
  Result<Ring *> ring(int peer, uint16_t conn, bool sending, const Geometry &geometry, std::string_view protocol);
  std::vector<LinkTraffic> traffic() const; // of all links so far, by peer, conn, direction [any thread]
  // True when the peer uses, or asks for, another ring of this receive link while this one is empty: it runs another operation.
  // Of links in memory only: a request may overtake what a network carries.
  bool peer_went_elsewhere(const Ring &ring);

  bool connect(RingCold &ring);                     // a step towards a usable ring of a peer [owner]
  std::vector<int> full_at(const Ring &ring) const; // peers for whom this send ring in memory has no free slot
  bool has_net() const { return net_ != nullptr; }
  NetPort *net() { return net_.get(); }
  // Opens a device of a collnet plugin, of whose groups this communicator makes use. [setup]
  Status open_collnet(Iface<tutti_collnet_v1> collnet, uint32_t device);
  void close_collnet(); // [setup]
  CollnetPort *collnet() { return collnet_.get(); }
  MemoryBudget &budget() { return budget_; }
  uint64_t fds() const;
  Bootstrap &bootstrap() { return bootstrap_; }
  const Config &config() const { return *config_; }
  void report(const Error &error) { on_error_(error); }
  void stop(); // no message is handled any more; idempotent

  // Used by NetPort: the address where this rank listens for (peer, conn, geometry), and what connect() to such an address
  // said.
  void send_net_grant(RingCold &ring, std::span<const std::byte> address);
  void send_net_answer(RingCold &ring, std::span<const std::byte> answer);

private:
  struct Key { // in this order: the rings of one receive link stand side by side
    int peer;
    uint16_t conn;
    bool sending;
    Geometry geometry;
    auto operator<=>(const Key &) const = default;
  };
  struct Wanted {
    int peer;
    uint16_t conn;
    Geometry geometry;
  };

  Transport(Bootstrap &bootstrap, std::shared_ptr<const Config> config, OnError on_error);
  Status probe(int peer, int32_t pid, uint64_t address, uint64_t word);
  Result<std::unique_ptr<RingCold>> make_ring(int peer, uint16_t conn, bool sending, const Geometry &geometry);
  Status make_memory(RingCold &ring);
  Status give_region(int peer, uint64_t id);
  Status end_registrations(const std::function<bool()> &end, std::string_view what, const Deadline &patience);
  std::vector<RingCold *> lending() const; // connected, so their memory stays
  Status region_freed(const Region &region, const Deadline &patience) override;
  void on_message(Message message);
  void on_answer(int from, uint16_t conn, const Geometry &geometry, std::span<const std::byte> answer);
  void send_net(uint32_t type, const RingCold &ring, std::span<const std::byte> data);
  bool want(int from, uint16_t conn, const Geometry &geometry); // under mutex_
  void on_request(int from, uint16_t conn, const Geometry &geometry);
  void on_grant(RingCold &ring, uint64_t id, const UniqueFd &fd, std::span<const std::byte> rest);
  Status grant(RingCold &ring, int to);

  Bootstrap &bootstrap_;
  std::shared_ptr<const Config> config_;
  OnError on_error_;
  Alone alone_;
  MemoryBudget budget_;
  bool shm_ = true, shares_memory_ = false;
  bool stopped_ = false;
  std::vector<LinkClass> classes_;
  std::vector<uint8_t> readable_; // by rank: its private memory can be read from here
  std::vector<int32_t> pids_;
  std::vector<uint8_t> lends_; // by rank
  std::string unreadable_;
  uint64_t probe_word_; // what peers read to see whether they can
  std::unique_ptr<NetPort> net_;
  std::unique_ptr<CollnetPort> collnet_;
  NetRoutes routes_;
  PeerRegions peer_regions_;
  mutable std::mutex mutex_;                 // guards rings_, wanted_, given_ and RingCold::given, fd, protocols
  std::set<std::pair<uint64_t, int>> given_; // this process's regions, and the ranks that were given them
  std::map<Key, std::unique_ptr<RingCold>> rings_;
  std::vector<Wanted> wanted_; // requests for rings of this rank that no bound plan has yet
};

} // namespace tutti
