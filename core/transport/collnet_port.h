// tutti/core/transport/collnet_port.h: messages to collnet groups as posts of a collnet plugin. One context and device per
// engine. Set-up is by the thread that makes the communicator, the rest by the engine's owner, but for what is marked.
//
// The k-th message to a group and the k-th from it are one post. What a member sends leaves from where it is, or from a copy;
// what comes back lands in a slot, and stays there until the step that receives it has been done.
#pragma once
#include "transport/mr_cache.h"
#include "transport/transport.h"
#include "tutti/plugin/collnet.h"
#include <optional>

namespace tutti {

// How a bound plan uses a group: the same for all posts of its operation.
struct GroupCall {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE; // ALL_REDUCE, REDUCE, BROADCAST
  tutti_dtype dtype = 0;
  tutti_redop op = 0;
  int32_t root = -1; // member number
};

class GroupLink;

struct GroupPost {
  GroupLink *link = nullptr;
  tutti_collnet_op op{};          // op.bytes: with what alignment adds
  uint64_t bytes = 0;             // of the message
  MrCache::Entry *home = nullptr; // holds what is sent while that is posted, where it is the user's memory
  bool taken = false;             // by the plugin
  bool complete = false;
};

class CollnetGroup {
public:
  uint32_t number = 0;
  std::vector<int> members; // ranks
  int32_t member = -1;      // this rank's place among them
  tutti_collnet_listener *listener = nullptr;
  tutti_collnet_group *group = nullptr;
  tutti_collnet_caps caps{};
  bool ready = false;
  uint64_t outstanding = 0, bytes_out = 0; // taken by the plugin, not complete
  std::vector<GroupPost *> backlog;        // not taken by the plugin so far, in order
};

// Both ways between this rank and a group, with slots of one size.
class GroupLink {
public:
  CollnetGroup *group = nullptr;
  RingCold send, recv;
  struct Free {
    void operator()(uint8_t *p) const { ::operator delete[](p, std::align_val_t(4096)); }
  };
  std::unique_ptr<uint8_t[], Free> memory; // made at first use: a slot each way for every post
  tutti_collnet_mr *mr = nullptr;          // of all of it
  std::vector<GroupPost> posts;            // post k in k % size
  uint64_t posted = 0, complete = 0;       // `complete`: in the order of posts
  uint64_t collected = 0;                  // by steps that receive, or complete where none does
  GroupPost &post(uint64_t k) { return posts[k % posts.size()]; }
  uint8_t *slot(uint64_t k, bool receiving) {
    return memory.get() + (2 * (k % posts.size()) + (receiving ? 1 : 0)) * uint64_t(send.geometry.slot_bytes);
  }
};

class CollnetPort {
public:
  static Result<std::unique_ptr<CollnetPort>> create(Transport &transport, Iface<tutti_collnet_v1> collnet, uint32_t device);
  ~CollnetPort();

  // ---- set-up: listen(), join() for each group that this rank is in, then poll() until it is true or an error
  Result<Bytes> listen(uint32_t group);
  // addresses: of all members, in their order.
  Status join(uint32_t group, std::span<const Bytes> addresses, std::vector<int> members, const tutti_collnet_config &config);
  Result<bool> poll();
  std::vector<const CollnetGroup *> groups() const;
  const CollnetGroup *group(uint32_t number) const; // nullptr: this rank is no member
  const tutti_collnet_dev &device() const { return info_; }
  const char *plugin_name() const { return collnet_.table->name; }
  std::string describe(uint32_t group) const;

  // ---- links
  Result<Ring *> ring(uint32_t group, bool sending, uint32_t slot_bytes); // [binder]
  uint32_t window(uint32_t group, uint32_t slot_bytes) const;             // messages under way at once
  bool can_send(Ring &ring);
  // After can_send(). tag: what members should agree on. home: `data` stays as it is until pending() is false.
  void send(Ring &ring, const void *data, uint64_t bytes, uint64_t tag, bool home, const GroupCall &call);
  // Receives of a member that gives nothing may be posted before their step: while it takes one more, in the order of steps.
  // expected(): posted, and not consumed.
  bool takes_receive(Ring &ring, const GroupCall &call);
  void expect(Ring &ring, uint64_t bytes, uint64_t tag, const GroupCall &call);
  static uint64_t expected(const Ring &ring) { return ring.group->posted - ring.group->collected; }
  // 1 the next message, of `bytes`, is at *payload; 0 not yet.
  int receive(Ring &ring, uint64_t bytes, uint64_t tag, const GroupCall &call, const uint8_t **payload);
  void consume(Ring &ring);
  bool progress(); // true when something moved
  // A post of an operation whose turn has not come; its data is copied. caught_up(): the turn of the first of them.
  void send_ahead(Ring &ring, const void *data, uint64_t bytes, uint64_t tag, const GroupCall &call) {
    send(ring, data, bytes, tag, false, call);
    ahead_++;
  }
  uint64_t ahead() const { return ahead_; }
  void caught_up() { ahead_ -= ahead_ > 0; }
  // Posts that the plugin, or the backlog, still has, but for those ahead.
  bool pending() const { return outstanding_ > ahead_; }
  const std::optional<Error> &failure() const { return failure_; } // why a group, and so all of them, ended
  tutti_collnet_reason reason() const { return reason_; }          // the same; FINE: not known
  bool arrived(const Ring &ring) const;                            // the next message from the group
  int wait_fd();                                                   // as NetPort's
  void close(); // all groups and the context: on return no posted buffer is touched again. Idempotent

  void allow(uint64_t number, const void *at, uint64_t bytes);
  bool disallow(uint64_t number);
  bool drop(const void *at, uint64_t bytes);

private:
  CollnetPort(Transport &transport, Iface<tutti_collnet_v1> collnet) : transport_(transport), collnet_(collnet) {}
  Status open(uint32_t device);
  void make_cache();
  bool needs_mr() const { return info_.flags & TUTTI_COLLNET_NEEDS_MR; }
  CollnetGroup *find(uint32_t group) const;
  bool make_memory(GroupLink &link);
  bool has_room(const GroupLink &link) const;
  void post(GroupLink &link, const void *data, uint64_t bytes, uint64_t tag, bool home, const GroupCall &call);
  bool give(GroupPost &post);
  void complete(const tutti_collnet_completion &done);
  void fail_group(const CollnetGroup &group, tutti_status status, std::string_view doing);

  Transport &transport_;
  Iface<tutti_collnet_v1> collnet_;
  tutti_collnet_dev info_{};
  tutti_collnet_ctx *ctx_ = nullptr;
  std::unique_ptr<MrCache> cache_; // where buffers need registrations
  std::vector<std::unique_ptr<CollnetGroup>> groups_;
  mutable std::mutex mutex_; // guards growth of links_
  std::vector<std::unique_ptr<GroupLink>> links_;
  uint64_t outstanding_ = 0, ahead_ = 0;
  std::optional<Error> failure_;
  tutti_collnet_reason reason_ = TUTTI_COLLNET_FINE;
};

} // namespace tutti
