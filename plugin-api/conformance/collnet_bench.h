// tutti/plugin-api/conformance/collnet_bench.h: groups of this process, each member with a context of its own, and what the
// cases of collnets do with them. What is posted follows from what caps allow.
#pragma once
#include "base/time.h"
#include "proto_operands.h"
#include "suite.h"
#include <memory>

namespace tutti::conformance {

constexpr std::chrono::seconds kCollnetCall{2}; // for one call: [control] has 1 s, and a busy machine should raise no alarm

// Bytes at an address that is a multiple of `align` and of nothing more, between guards.
class Memory {
public:
  Memory(uint64_t bytes, uint64_t align);
  uint8_t *data() { return data_; }
  const uint8_t *data() const { return data_; }
  uint64_t size() const { return bytes_; }
  bool guarded() const; // nothing was written beside it
  void fill(std::span<const unsigned char> from);

private:
  uint64_t bytes_;
  std::vector<uint8_t> room_;
  uint8_t *data_;
};
using Memories = std::vector<Memory>; // of each member

class Seat;

// A member's context.
class CollnetSide {
public:
  CollnetSide(const Plugin &plugin, const tutti_collnet_v1 &net, int rank, int n, bool short_structs, uint32_t flags);
  ~CollnetSide();
  CollnetSide(const CollnetSide &) = delete;
  void poll(); // one progress() call, checked
  tutti_collnet_buf buf(void *addr, uint64_t bytes);
  tutti_collnet_ctx *ctx() const { return ctx_; }
  const tutti_collnet_v1 &net() const { return net_; }
  std::vector<Seat *> seats;

private:
  const tutti_collnet_v1 &net_;
  const uint32_t flags_; // of the device
  tutti_collnet_ctx *ctx_ = nullptr;
  std::vector<tutti_collnet_mr *> mrs_;
};

// A member's side of one group, and what progress() reported of it: always the oldest post, and each once.
class Seat {
public:
  Seat(CollnetSide &side, int member) : side_(side), member_(member) { side.seats.push_back(this); }
  ~Seat();
  Seat(const Seat &) = delete;
  void listen(unsigned char *addr);
  void create(const unsigned char *addrs, int n, const tutti_collnet_config &config);
  tutti_status ready();
  tutti_status post(const tutti_collnet_op &op); // the k-th that is taken is post k
  size_t posted() const { return posted_; }
  size_t completed() const { return statuses_.size(); }
  tutti_status status(size_t k) const { return statuses_[k]; }
  void complete(const tutti_collnet_completion &c);
  void destroy();
  tutti_collnet_why why() const;
  CollnetSide &side() const { return side_; }
  tutti_collnet_group *group() const { return group_; }
  tutti_collnet_caps caps{};

private:
  CollnetSide &side_;
  const int member_;
  tutti_collnet_listener *listener_ = nullptr;
  tutti_collnet_group *group_ = nullptr;
  size_t posted_ = 0;
  std::vector<tutti_status> statuses_;
};

using Team = std::vector<std::unique_ptr<Seat>>; // a group, by member

// What one post has, beside its buffers.
struct Work {
  tutti_coll coll = TUTTI_COLL_ALL_REDUCE;
  tutti_dtype dtype = TUTTI_DT_INT32;
  tutti_redop op = TUTTI_RED_SUM;
  int32_t root = -1;
  uint32_t flags = 0;
  uint64_t tag = 0;
};

class CollnetBench {
public:
  CollnetBench(const Plugin &plugin, const void *table, int n = 3, bool short_structs = false);
  CollnetBench &up(); // a ready group
  size_t size() const { return sides.size(); }
  Team &team(size_t i = 0) { return *teams[i]; }
  const tutti_collnet_caps &caps() { return team()[0]->caps; }

  template <class Fn>
  void until(Fn holds, const std::string &what, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    for (const Deadline deadline = Deadline::in(limit); !holds();) {
      require(!deadline.expired(), "waited {} ms for {}", limit.count(), what);
      poll();
    }
  }
  void poll() {
    for (auto &s : sides) s->poll();
  }

  bool has(tutti_coll coll) { return caps().colls >> coll & 1; }
  bool has(tutti_dtype dtype, tutti_redop op) { return caps().dtype_ops >> (dtype * 4 + op) & 1; }
  bool in_place() { return caps().flags & TUTTI_COLLNET_IN_PLACE; }
  Work any(); // a type and a reduction that the group has, int32 sums if it can
  // At most `bytes`, as far as caps allow, in whole elements of every type and of the alignment; at least one such piece.
  uint64_t fit(uint64_t bytes);
  uint64_t piece() { return fit(1); }
  Memory memory(uint64_t bytes) { return {bytes, caps().alignment}; }

  // Of seat m of a team: what goes into its post. Buffers of members that send, or receive, nothing are NULL.
  tutti_collnet_op op(Seat &seat, int member, const Work &w, Memory *send, Memory *recv, uint64_t bytes);
  // Every member posts; the members' order is that of `first`, first + 1, ... An idle group must take it.
  void post(Team &team, const Work &w, Memories &send, Memories &recv, uint64_t bytes, size_t first = 0);
  void all_done(Team &team, tutti_status expected = TUTTI_OK); // what every member has posted
  // Posts one operation of random operands, waits, and compares what came with what should have.
  void run(Team &team, const Work &w, uint64_t bytes, Random &random, bool in_place = false);

  const Plugin &plugin;
  const tutti_collnet_v1 &net;
  tutti_collnet_dev dev{};
  tutti_collnet_config config{};
  std::vector<std::unique_ptr<CollnetSide>> sides;
  std::vector<std::unique_ptr<Team>> teams;

private:
  const bool short_structs_;
};

// Operands of a reduction by all members, and its result, the same bits however it is folded: integers of all sizes, which
// wrap, and floats that are small whole numbers of either sign.
struct Gathered {
  std::vector<std::vector<unsigned char>> in;
  std::vector<unsigned char> want;
};
Gathered gathered(tutti_dtype dtype, tutti_redop op, size_t members, uint64_t bytes, Random &random);
// A whole number from -8 to 8 in a type, exactly.
void put_number(tutti_dtype dtype, int value, unsigned char *at);
std::string work_text(const Work &w, uint64_t bytes);

} // namespace tutti::conformance
