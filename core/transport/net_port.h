// tutti/core/transport/net_port.h: slots as messages of a net plugin. A context per engine and device in use; all calls are
// made by the engine's owner, but for those marked [any].
#pragma once
#include "base/fd.h"
#include "base/time.h"
#include "transport/net_link.h"
#include "transport/transport.h"
#include <array>
#include <optional>

namespace tutti {

// Nothing that others could read leaves the host through it, where it is asked for that.
inline bool encrypts(const tutti_net_dev &dev) {
  return dev.flags & (TUTTI_NET_ENCRYPTS | TUTTI_NET_LOOPBACK);
}

class NetPort {
public:
  // Null when the net has no device.
  static Result<std::unique_ptr<NetPort>> create(Transport &transport, Iface<tutti_net_v1> net);
  ~NetPort();
  // Before the first link: contexts of the devices that the routes name, else of one: the plugin's first that reaches other
  // hosts. What a name's number is, is asked now: devices may have come and gone since the routes were made.
  Status open(const NetRoutes &routes);
  void close();

  Status prepare(RingCold &ring);  // makes the link's local part; no call to the plugin [binder]
  bool connect(RingCold &ring);    // a step; true when messages can be sent
  void ask_listen(RingCold &ring); // the peer wants this receive link [any]
  void set_address(RingCold &ring, std::span<const std::byte> address); // of the peer's listener [any, once]
  void set_answer(RingCold &ring, std::span<const std::byte> answer);   // of the peer's connect() [the service thread]
  bool progress();                                                      // true when something moved

  // Ranks whose nets can all read each other's registered memory may lend messages: `ring` then has descriptors, and `acks`,
  // the other way, says what has been read. Idempotent. [binder]
  bool can_lend() const { return rma_ != nullptr; }
  void pair(Ring &ring, Ring &acks);

  uint32_t window(const Ring &ring) const; // messages of a send ring that may be under way at once
  bool can_send(Ring &ring);
  // After can_send(). home: `data` stays as it is until sends_pending() is 0 again.
  void send(Ring &ring, const void *data, uint64_t bytes, uint32_t signature, bool home);
  // Receives the next message, of `bytes`: into `home` if set, else staged. 1 it is at *payload, 0 not yet, -1 it is not what
  // was expected: *got is its signature.
  int receive(Ring &ring, uint64_t bytes, uint32_t signature, void *home, const uint8_t **payload, uint32_t *got);
  // home: as receive() was told. staged: so many messages come next on this link, as far as is known, before one that may be
  // received into user memory.
  void consume(Ring &ring, const void *home, uint32_t staged);
  // While receive() waits for a long message: the next one, of more than kStagedBytes, may land in `home` from now on. Of use
  // where wants_next().
  bool wants_next(const Ring &ring) const;
  void expect(Ring &ring, uint64_t bytes, void *home);
  bool arrived(const Ring &ring) const;
  // Messages that the device has not finished, or the peer has not read; and what a peer waits to be told.
  uint64_t sends_pending() const { return sends_pending_ + lent_ + owed_; }

  // Users' memory: may be registered; may no longer, or goes. False: posts still use it, try again after progress().
  void allow(uint64_t number, const void *at, uint64_t bytes);
  bool disallow(uint64_t number);
  bool drop(const void *at, uint64_t bytes);

  std::vector<int> unread_by() const; // peers that have still to read what was lent to them

  std::string describe(int peer) const; // [any]
  // [any] Contexts, listeners and endpoints, one each: a plugin does not tell how many it needs for them.
  uint64_t fds() const { return open_.load(std::memory_order_relaxed); }
  static constexpr int kEventsWaiting = -2;
  int wait_fd(); // armed descriptor to sleep on, -1 = none, kEventsWaiting = do not sleep

private:
  NetPort(Transport &transport, Iface<tutti_net_v1> net);
  Result<std::vector<tutti_net_dev>> survey() const; // in the turn of the plugin's setup
  Status open_device(uint32_t number, const tutti_net_dev &info);
  Status watch_events();
  void *state() const { return net_.plugin ? net_.plugin->state : nullptr; }
  void fault(const NetDevice &device, int peer, tutti_status status, std::string_view doing);
  void start_listen(RingCold &ring);
  bool accept(NetLink &link);
  bool open_connection(NetLink &link);
  bool became_ready(NetLink &link);
  void give_up_connecting(NetLink &link);
  void complete(const tutti_net_completion &done);
  Error error_of(int peer, tutti_status status, std::string_view doing) const;
  void raise(const NetDevice &device, Error error, tutti_status status);
  std::string risen(const NetDevice &device) const; // of its counters; may take 100 ms

  // net_memory.cc
  std::unique_ptr<MrCache> make_cache(const NetDevice &device);
  static void size_calls(NetLink &link);
  static void set_ahead(NetLink &link, uint32_t pairs);
  bool make_stage(NetLink &link, NetStage &stage, bool must);
  bool make_large(NetLink &link, bool must);
  static bool reaches(NetLink &link, const void *home, uint64_t bytes);
  static bool use_home(NetLink &link, NetCall &c, void *home, uint64_t bytes);

  // net_data.cc
  static void reset(NetCall &c, NetCall::Kind kind);
  void seal(NetHeader *header, const void *payload, uint64_t bytes) const; // with net.checksum
  bool post_send(NetLink &link, NetCall &c);
  bool hand_over(NetLink &link, NetCall &c, tutti_net_buf *buf, uint32_t n);
  void count_and_post(NetLink &link, NetCall &c, uint64_t bytes, uint64_t rest);
  bool post_recv(NetLink &link, NetCall &c, tutti_net_buf *buf, uint32_t n, bool must = true);
  bool post_single(NetLink &link, NetStage &stage, uint64_t piece, bool must);
  bool post_pair(NetLink &link, uint64_t bytes, void *home, bool must = true);
  bool post_payload(NetLink &link, uint64_t bytes, void *home);
  bool post_known(NetLink &link, uint64_t bytes, void *home);
  void post_ahead(NetLink &link, uint32_t messages, bool must = false);
  int came(NetLink &link, const NetCall &c);
  int differs(NetLink &link, const NetHeader &header, const void *payload, uint64_t bytes);
  bool intact(NetLink &link, const NetHeader &header, const void *payload, uint64_t bytes);
  void end(NetLink &link, tutti_status status);
  void tell_end(NetLink &link);

  // net_pull.cc
  static bool lends(const NetLink &link);
  MrCache::Entry *lendable(NetLink &link, const void *at, uint64_t bytes);
  void lend(NetLink &link, NetCall &c, MrCache::Entry *entry, const void *at);
  int fetch(NetLink &link, uint64_t bytes, void *home, const uint8_t **payload);
  bool start_get(NetLink &link, uint64_t bytes, void *home);
  void owe(NetLink &link);
  bool settle();
  bool tell(NetLink &link);
  bool hear(NetLink &acks);
  bool take_ack(NetLink &acks, const NetCall &c);

  Transport &transport_;
  Iface<tutti_net_v1> net_;
  const tutti_net_rma_v1 *rma_ = nullptr; // null: no peer's memory is read
  const Nanos connect_timeout_;
  NetRoutes routes_;
  std::vector<std::unique_ptr<NetDevice>> devices_;  // open ones, as the routes list them; one where these list none
  UniqueFd events_;                                  // of several devices: ready when one of theirs is
  uint64_t sends_pending_ = 0, lent_ = 0, owed_ = 0; // owed: links whose peer has still to be told what was read
  bool broken_ = false;
  bool checksums_ = false;    // net.checksum
  std::optional<Error> late_; // of a link that the peer ended, reported at late_until_ unless the peer said why before
  Clock::time_point late_until_{};
  std::atomic<uint64_t> open_{0};
  std::vector<std::unique_ptr<NetLink>> links_;
  std::vector<NetLink *> lenders_, readers_; // links that lend, of either side
  std::vector<NetLink *> opening_, backlog_; // waiting for accept or ready; with messages that the device has not taken
  std::atomic<bool> asked_{false};
  mutable std::mutex mutex_; // guards growth of links_, the end of devices_, closed_, to_listen_, paired_ and texts_
  bool closed_ = false;      // no link is made any more
  std::vector<RingCold *> to_listen_;
  std::vector<NetLink *> paired_;                         // new ones
  std::map<std::pair<int, uint32_t>, std::string> texts_; // by peer and device
};

} // namespace tutti
