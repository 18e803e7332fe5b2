// A collnet within one process, for the suite of collnets. As it is it keeps every promise; FORM in the environment is one of
//   narrow     the least that is allowed: float sums alone, short posts, alignment, registrations, no collective but
//   all_reduce,
//              nothing in place, nothing compared
//   or the name of a bug, which broken() asks for.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <tutti/plugin/cxx/plugin.hpp>

namespace bent {
using namespace tutti::plugin;
using Clock = std::chrono::steady_clock;

bool form(const char *name) {
  static const char *const is = std::getenv("FORM") ? std::getenv("FORM") : "";
  return std::strcmp(is, name) == 0;
}
bool broken(const char *bug) {
  return form(bug);
}

class Ctx;
class Group;

struct Post {
  tutti_collnet_op op;
  uint64_t cookie;
  std::vector<unsigned char> data; // what was sent
};
struct Desk { // a member's side; stays when the member goes
  std::vector<Post> posts;
  size_t done = 0;
  bool in = false, gone = false;
};
// One per group, known by the address of member 0's listener.
struct Room {
  std::vector<Desk> desks;
  tutti_collnet_why why{};
  std::vector<uint32_t> order; // in which members came to the latest operation
  Clock::time_point since{};   // the oldest operation that is not complete waits
  void fail(tutti_collnet_reason reason, int32_t member, tutti_collnet_field field = TUTTI_COLLNET_FIELD_NONE) {
    if (why.reason) return;
    why.reason = reason, why.member = member, why.field = field;
    std::snprintf(why.text, sizeof why.text, "member %d, reason %u", member, reason);
  }
};
std::map<uint64_t, std::weak_ptr<Room>> rooms;

struct Mr : NetObject {
  Mr(const Host &host, const tutti_region &r) : NetObject(host), at(static_cast<char *>(r.addr)), bytes(r.bytes) {}
  char *at;
  uint64_t bytes;
};

tutti_collnet_caps granted(uint32_t progress_ms) {
  tutti_collnet_caps c{};
  const bool narrow = form("narrow");
  c.colls = narrow
                ? 1u << TUTTI_COLL_ALL_REDUCE
                : 1u << TUTTI_COLL_ALL_REDUCE | 1u << TUTTI_COLL_REDUCE | 1u << TUTTI_COLL_BROADCAST | 1u << TUTTI_COLL_BARRIER;
  c.dtype_ops = narrow ? uint64_t{1} << (TUTTI_DT_FLOAT32 * 4) : (uint64_t{1} << (TUTTI_DT_COUNT * 4)) - 1;
  c.max_bytes = narrow ? 1024 : 1 << 24;
  c.window_bytes = narrow ? 4096 : 0;
  c.max_outstanding = narrow ? 2 : 16;
  c.alignment = narrow ? 16 : 1;
  c.mem_kinds = TUTTI_MEM_HOST;
  c.accumulate = narrow ? TUTTI_COLLNET_ACC_ELEMENT : TUTTI_COLLNET_ACC_FLOAT32;
  c.repeat = narrow ? TUTTI_COLLNET_REPEAT_NONE : TUTTI_COLLNET_REPEAT_SIZE;
  c.flags = narrow ? 0 : TUTTI_COLLNET_IN_PLACE | TUTTI_COLLNET_AVERAGES;
  c.tree_depth = c.aggregators = 1;
  c.order_id = narrow ? 0 : 1;
  c.progress_ms = progress_ms + 200;
  return c;
}

class Group : public NetObject {
public:
  Group(Ctx &ctx, std::shared_ptr<Room> room, uint32_t member, const tutti_collnet_config &config);
  ~Group();
  Group(const Group &) = delete;
  bool ready(tutti_collnet_caps &out) {
    if (room_->why.reason) fail(TUTTI_ERR_REMOTE, room_->why.text);
    for (const Desk &d : room_->desks) {
      if (d.in) continue;
      if (Clock::now() > deadline_) room_->fail(TUTTI_COLLNET_TIMEOUT, 0), fail(TUTTI_ERR_TIMEOUT, "not all have come");
      return false;
    }
    out = caps_;
    if (broken("caps_differ")) out.max_outstanding += member_;
    return true;
  }
  void why(tutti_collnet_why &out) const {
    out = room_->why;
    if (!out.reason) out.member = -1;
  }
  std::string describe() const { return "member " + std::to_string(member_); }
  tutti_status post(const tutti_collnet_op &op, uint64_t cookie);
  void progress();

private:
  Desk &desk() { return room_->desks[member_]; }
  void check(const tutti_collnet_op &op) const;
  void check(const tutti_collnet_buf &buf, uint64_t bytes) const;
  bool complete(size_t k);
  void compare(size_t k);
  void finish(Post &post, size_t k);
  void reduce(const Post &post, size_t k, unsigned char *out);

  Ctx &ctx_;
  const std::shared_ptr<Room> room_;
  const uint32_t member_;
  const tutti_collnet_caps caps_;
  const Clock::time_point deadline_;
  const std::chrono::milliseconds patience_;
};

class Listener : public NetObject {
public:
  Listener(Ctx &ctx, CollnetAddress &addr);
  std::unique_ptr<Group> group_create(const std::vector<CollnetAddress> &addrs, int32_t member,
                                      const tutti_collnet_config &config) {
    const auto name = addrs[0].get<uint64_t>();
    std::shared_ptr<Room> room = rooms[name].lock();
    if (!room) rooms[name] = room = std::make_shared<Room>();
    room->desks.resize(addrs.size());
    return std::make_unique<Group>(ctx_, room, static_cast<uint32_t>(member), config);
  }

private:
  Ctx &ctx_;
};

class Ctx : public NetObject {
public:
  explicit Ctx(const Host &host) : NetObject(host), kernels(host.need<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE)) {}
  std::unique_ptr<Listener> listen(CollnetAddress &addr) { return std::make_unique<Listener>(*this, addr); }
  std::unique_ptr<Mr> mr_register(const tutti_region &region) { return std::make_unique<Mr>(host(), region); }
  int32_t progress(tutti_collnet_completion *out, uint32_t cap) {
    for (Group *g : groups) g->progress();
    if (broken("touches") && late) *late = 1;
    uint32_t n = 0;
    for (; n < cap && !done.empty(); n++) {
      const bool last = broken("order") && done.size() > 1;
      out[n] = last ? done.back() : done.front();
      last ? done.pop_back() : done.pop_front();
    }
    return static_cast<int32_t>(n);
  }
  const tutti_host_reduce_v1 &kernels;
  std::vector<Group *> groups;
  std::deque<tutti_collnet_completion> done;
  char *late = nullptr; // a buffer that was given back
};

Listener::Listener(Ctx &ctx, CollnetAddress &addr) : NetObject(ctx.host()), ctx_(ctx) {
  static uint64_t next = 1;
  addr.set(next++);
}

Group::Group(Ctx &ctx, std::shared_ptr<Room> room, uint32_t member, const tutti_collnet_config &config)
    : NetObject(ctx.host()), ctx_(ctx), room_(std::move(room)), member_(member),
      caps_(granted(config.progress_ms ? config.progress_ms : 60'000)),
      deadline_(Clock::now() + std::chrono::milliseconds(config.deadline_ms)), patience_(caps_.progress_ms - 200) {
  desk().in = true;
  ctx_.groups.push_back(this);
}

Group::~Group() {
  for (size_t k = desk().done; k < desk().posts.size(); k++) {
    ctx_.done.push_back({desk().posts[k].cookie, TUTTI_ERR_CANCELLED, 0});
    ctx_.late = static_cast<char *>(desk().posts[k].op.recv.addr);
    room_->fail(TUTTI_COLLNET_MEMBER_LOST, static_cast<int32_t>(member_));
  }
  if (broken("ends_early")) room_->fail(TUTTI_COLLNET_MEMBER_LOST, static_cast<int32_t>(member_));
  desk().gone = true;
  if (broken("not_apart"))
    for (auto &[name, room] : rooms)
      if (auto r = room.lock()) r->fail(TUTTI_COLLNET_MEMBER_LOST, static_cast<int32_t>(member_));
  ctx_.groups.erase(std::find(ctx_.groups.begin(), ctx_.groups.end(), this));
}

void Group::check(const tutti_collnet_buf &buf, uint64_t bytes) const {
  if (reinterpret_cast<uintptr_t>(buf.addr) % caps_.alignment) fail(TUTTI_ERR_INVALID, "not aligned");
  if (!form("narrow") || !buf.addr || !bytes) return;
  const auto *mr = reinterpret_cast<const Mr *>(buf.mr);
  const auto *at = static_cast<const char *>(buf.addr);
  if (!mr || at < mr->at || at + bytes > mr->at + mr->bytes) fail(TUTTI_ERR_INVALID, "a buffer that is not registered");
}

void Group::check(const tutti_collnet_op &op) const {
  if (broken("takes_all")) return;
  if (op.coll > TUTTI_COLL_BARRIER || !(caps_.colls >> op.coll & 1)) fail(TUTTI_ERR_UNSUPPORTED, "collective ", op.coll);
  const bool reduces = op.coll == TUTTI_COLL_ALL_REDUCE || op.coll == TUTTI_COLL_REDUCE;
  if (op.dtype >= TUTTI_DT_COUNT || op.op >= TUTTI_RED_COUNT || (reduces && !(caps_.dtype_ops >> (op.dtype * 4 + op.op) & 1)))
    fail(TUTTI_ERR_UNSUPPORTED, "type ", op.dtype, ", reduction ", op.op);
  const bool rooted = op.coll == TUTTI_COLL_REDUCE || op.coll == TUTTI_COLL_BROADCAST;
  if (rooted && (op.root < 0 || op.root >= static_cast<int32_t>(room_->desks.size())))
    fail(TUTTI_ERR_INVALID, "root ", op.root);
  if (op.flags & ~(caps_.flags & TUTTI_COLLNET_AVERAGES ? uint32_t{TUTTI_COLLNET_AVERAGE} : 0u))
    fail(TUTTI_ERR_UNSUPPORTED, "flags ", op.flags);
  if (op.bytes > caps_.max_bytes) fail(TUTTI_ERR_UNSUPPORTED, op.bytes, " bytes");
  if (op.bytes % caps_.alignment) fail(TUTTI_ERR_INVALID, op.bytes, " bytes");
  if (!(caps_.flags & TUTTI_COLLNET_IN_PLACE) && op.recv.addr && op.recv.addr == op.send.addr)
    fail(TUTTI_ERR_INVALID, "in place");
}

tutti_status Group::post(const tutti_collnet_op &op, uint64_t cookie) {
  if (room_->why.reason) fail(TUTTI_ERR_REMOTE, room_->why.text);
  check(op);
  check(op.send, op.bytes);
  check(op.recv, op.bytes);
  const size_t taken = desk().posts.size() - desk().done;
  uint64_t bytes = op.bytes;
  for (size_t k = desk().done; k < desk().posts.size(); k++) bytes += desk().posts[k].op.bytes;
  if (taken == caps_.max_outstanding || (taken && caps_.window_bytes && bytes > caps_.window_bytes)) return TUTTI_AGAIN;
  if (broken("stingy") && taken > 1) return TUTTI_AGAIN;
  Post p{op, cookie, {}};
  if (op.send.addr)
    p.data.assign(static_cast<unsigned char *>(op.send.addr), static_cast<unsigned char *>(op.send.addr) + op.bytes);
  desk().posts.push_back(std::move(p));
  room_->order.push_back(member_);
  return TUTTI_OK;
}

bool Group::complete(size_t k) {
  if (broken("early") && desk().posts[k].op.coll == TUTTI_COLL_BARRIER) return true;
  return std::all_of(room_->desks.begin(), room_->desks.end(), [&](const Desk &d) { return d.posts.size() > k; });
}

void Group::compare(size_t k) {
  const tutti_collnet_op &a = room_->desks[0].posts[k].op;
  for (size_t m = 1; m < room_->desks.size() && !form("narrow"); m++) {
    const tutti_collnet_op &b = room_->desks[m].posts[k].op;
    tutti_collnet_field f = TUTTI_COLLNET_FIELD_NONE;
    if (a.coll != b.coll)
      f = TUTTI_COLLNET_FIELD_COLL;
    else if (a.dtype != b.dtype)
      f = TUTTI_COLLNET_FIELD_DTYPE;
    else if (a.op != b.op)
      f = TUTTI_COLLNET_FIELD_OP;
    else if (a.bytes != b.bytes && !broken("blind"))
      f = TUTTI_COLLNET_FIELD_BYTES;
    else if (a.root != b.root)
      f = TUTTI_COLLNET_FIELD_ROOT;
    else if (a.flags != b.flags)
      f = TUTTI_COLLNET_FIELD_AVERAGE;
    else if (a.tag != b.tag)
      f = TUTTI_COLLNET_FIELD_TAG;
    if (f && broken("field")) f = TUTTI_COLLNET_FIELD_ORDER;
    if (f) return room_->fail(TUTTI_COLLNET_MISMATCH, static_cast<int32_t>(m), f);
  }
}

void Group::reduce(const Post &p, size_t k, unsigned char *out) {
  std::vector<const void *> operands;
  for (const Desk &d : room_->desks) operands.push_back(d.posts[k].data.data());
  if (broken("first_come"))
    for (size_t i = 0, n = operands.size(); i < n; i++)
      operands[i] = room_->desks[room_->order[k * n + i]].posts[k].data.data();
  tutti_redop op = p.op.op;
  if (broken("max_is_sum") && p.op.dtype == TUTTI_DT_INT8 && op == TUTTI_RED_MAX) op = TUTTI_RED_SUM;
  if (broken("rounds")) {
    std::memcpy(out, operands[0], p.op.bytes);
    for (size_t i = 1; i < operands.size(); i++) ctx_.kernels.reduce(p.op.dtype, op, 0)(out, out, operands[i], p.op.bytes);
  } else {
    ctx_.kernels.reduce_n(p.op.dtype, op, 0)(out, operands.data(), static_cast<uint32_t>(operands.size()), p.op.bytes);
  }
  if ((p.op.flags & TUTTI_COLLNET_AVERAGE) && !broken("sums"))
    ctx_.kernels.divide(p.op.dtype)(out, out, operands.size(), p.op.bytes);
  if (broken("large") && p.op.bytes > 65536) out[65536] ^= 1;
  if (broken("pads") && p.op.bytes % 4) out[p.op.bytes] = 0;
}

void Group::finish(Post &p, size_t k) {
  auto *out = static_cast<unsigned char *>(p.op.recv.addr);
  const auto members = static_cast<int32_t>(room_->desks.size());
  if (p.op.coll == TUTTI_COLL_BROADCAST) {
    const auto &from = room_->desks[static_cast<size_t>(broken("root") ? members - 1 - p.op.root : p.op.root)].posts[k].data;
    if (out && from.size() == p.op.bytes) std::memcpy(out, from.data(), from.size());
    if (out && broken("zeros") && p.op.bytes) out[p.op.bytes - 1] &= 0x7f;
  } else if (out && p.op.bytes && !(broken("root") && p.op.coll == TUTTI_COLL_REDUCE)) {
    reduce(p, k, out);
  }
  ctx_.done.push_back({p.cookie, TUTTI_OK, 0});
}

void Group::progress() {
  Desk &d = desk();
  while (!room_->why.reason && d.done < d.posts.size()) {
    if (!complete(d.done)) {
      if (room_->since == Clock::time_point{} && !broken("hurries")) room_->since = Clock::now();
      for (size_t m = 0; m < room_->desks.size(); m++) {
        const Desk &other = room_->desks[m];
        if (other.posts.size() > d.done) continue;
        if (other.gone && !broken("waits")) room_->fail(TUTTI_COLLNET_MEMBER_LOST, static_cast<int32_t>(m));
        if (Clock::now() - room_->since > patience_ && !broken("waits"))
          room_->fail(TUTTI_COLLNET_TIMEOUT, broken("blames") ? 0 : static_cast<int32_t>(m));
      }
      break;
    }
    room_->since = {};
    if (complete(d.done) && d.posts[d.done].op.coll != TUTTI_COLL_BARRIER) compare(d.done);
    if (room_->why.reason) break;
    finish(d.posts[d.done], d.done);
    d.done++;
  }
  if (!room_->why.reason) return;
  host().set_error(TUTTI_ERR_REMOTE, room_->why.text);
  for (; d.done < d.posts.size(); d.done++) ctx_.done.push_back({d.posts[d.done].cookie, TUTTI_ERR_REMOTE, 0});
}

class Plugin {
public:
  static constexpr Info info{"bad-collnet", "0.1.0", "tutti", "Apache-2.0", "for tests"};
  static constexpr const char *collnet_name = "bent";
  using CollnetCtx = Ctx;
  using CollnetListener = Listener;
  using CollnetGroup = Group;
  using CollnetMr = Mr;
  explicit Plugin(const Host &host) : host_(host) {}
  uint32_t collnet_device_count() { return 1; }
  void collnet_device_info(uint32_t dev, tutti_collnet_dev &out) {
    if (dev > 0) fail(TUTTI_ERR_INVALID, "device ", dev);
    std::strncpy(out.name, "bent0", sizeof out.name - 1);
    out.mem_kinds = TUTTI_MEM_HOST;
    out.flags = form("narrow") ? TUTTI_COLLNET_NEEDS_MR : TUTTI_COLLNET_IN_PLACE;
    out.numa_node = out.rail = -1;
  }
  std::unique_ptr<Ctx> collnet_ctx_create(uint32_t, const tutti_collnet_ctx_config &) { return std::make_unique<Ctx>(host_); }

private:
  Host host_;
};

} // namespace bent

TUTTI_CXX_PLUGIN(bent::Plugin)
