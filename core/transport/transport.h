// tutti/core/transport/transport.h: the links of one communicator: creates rings, connects them, knows what each peer is
// reached by.
//
// The receiver owns a ring and creates it when a plan is bound. The sender asks for it with a message when it first needs it;
// the receiver's service thread answers at once, or as soon as a plan with that ring is bound. Nobody waits inside bind().
#pragma once
#include "bootstrap/bootstrap.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "transport/link_class.h"
#include "transport/memory.h"
#include "transport/ring.h"
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

class NetPort;
class Transport;

struct RingCold {
  Ring ring;
  Transport *transport = nullptr;
  int peer = -1;
  uint16_t conn = 0;
  bool sending = false;
  bool given = false; // receive ring of a shm link: the peer has it (guarded by Transport::mutex_)
  Geometry geometry;
  LinkClass link_class = LinkClass::local;
  Block block;
  UniqueFd fd; // of the block until the peer has it
  // Send rings: 0 new, 1 asked, 2 granted (`offer` may be taken by the owner), 3 connected.
  std::atomic<uint32_t> state{0};
  Block offer;
};

// The next message of a receive ring in memory is there, of whatever operation.
inline bool word_arrived(const Ring &ring) {
  return uint32_t(load_acquire(slot_at(ring) + ring.cold->geometry.word_offset)) == uint32_t(ring.seq + 1);
}

class Transport {
public:
  using OnError = std::function<void(const Error &)>; // [any thread]
  static Result<std::unique_ptr<Transport>> create(Bootstrap &bootstrap, std::shared_ptr<const Config> config,
                                                   Iface<tutti_net_v1> net, OnError on_error);
  ~Transport();

  Bytes local_info() const;
  Status set_peers(std::span<const Bytes> infos);
  LinkClass link_class(int peer) const { return classes_[static_cast<size_t>(peer)]; }
  std::string describe(int peer) const;

  // The ring of (peer, conn, direction, geometry), made if need be. [binder]
  Result<Ring *> ring(int peer, uint16_t conn, bool sending, const Geometry &geometry);
  // True when the peer uses, or asks for, another ring of this receive link while this one is empty: it runs another operation.
  // Of links in memory only: a request may overtake what a network carries.
  bool peer_went_elsewhere(const Ring &ring);

  bool connect(RingCold &ring); // a step towards a usable send ring [owner]
  bool has_net() const { return net_ != nullptr; }
  NetPort *net() { return net_.get(); }
  MemoryBudget &budget() { return budget_; }
  uint64_t fds() const;
  Bootstrap &bootstrap() { return bootstrap_; }
  const Config &config() const { return *config_; }
  void report(const Error &error) { on_error_(error); }
  void stop(); // no message is handled any more; idempotent

  // Used by NetPort: the address where this rank listens for (peer, conn, geometry).
  void send_net_grant(RingCold &ring, std::span<const std::byte> address);

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
  Status make_receive(RingCold &ring);
  void on_message(Message message);
  void on_request(int from, uint16_t conn, const Geometry &geometry);
  void on_grant(RingCold &ring, uint64_t id, const UniqueFd &fd, std::span<const std::byte> rest);
  Status grant(RingCold &ring);

  Bootstrap &bootstrap_;
  std::shared_ptr<const Config> config_;
  OnError on_error_;
  MemoryBudget budget_;
  bool shm_ = true;
  bool stopped_ = false;
  std::vector<LinkClass> classes_;
  std::unique_ptr<NetPort> net_;
  mutable std::mutex mutex_; // guards rings_, wanted_ and RingCold::given, fd
  std::map<Key, std::unique_ptr<RingCold>> rings_;
  std::vector<Wanted> wanted_; // requests for rings that no bound plan has yet
};

} // namespace tutti
