// A collnet for tests: members are processes of one machine that see each other's posts in memory of member 0, and each
// combines for itself. Insists on what collnet.h lets a plugin insist on. FAKE_COLLNET_* in the environment shape it:
//   REFUSE=M:TEXT     member M's group fails to be made, for that reason
//   REFUSE_ALONE=M:TEXT   likewise, but the others are not told and wait for it for as long as they were given;
//   DEADLINE=MS       in place of that
//   OUTSTANDING=N     granted; WINDOW=BYTES likewise; MBPS=N of all aggregators, HOST_MBPS=N of a host's link
//   DTYPES=MASK       types that it reduces
//   DIE=K             the aggregator dies when member 1 has posted K operations: later ones have no result
//   STOP=K            it stops then: later ones have no result, and nobody says so
//   REGISTERED=1      every buffer needs a registration
//   ALIGN=N           buffers and sizes have to be multiples of it
//   RAILS=N,N         of its devices fake0, fake1
//   PAIRS=BYTES       posts as long have a result once the member has posted the next one
//   UNEVEN=1          member 1 is granted half of the window, and half of the posts
//   NO_DEVICE=1       there is none
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <fcntl.h>
#include <map>
#include <string>
#include <sys/mman.h>
#include <tutti/plugin/cxx/plugin.hpp>
#include <unistd.h>

namespace fake {
using namespace tutti::plugin;

constexpr uint32_t kMembers = 16, kSlots = 64;
constexpr uint64_t kMostBytes = 1 << 20;

uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = std::getenv((std::string("FAKE_COLLNET_") + name).c_str());
  return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

struct Header {
  tutti_coll coll;
  tutti_dtype dtype;
  tutti_redop op;
  int32_t root;
  uint64_t bytes, tag;
  bool operator==(const Header &) const = default;
};
struct Slot {
  Header header;
  alignas(64) unsigned char data[kMostBytes];
};
struct Seat {
  alignas(64) std::atomic<uint32_t> joined, gone;
  std::atomic<uint64_t> posted, done;
  Slot slots[kSlots];
};
struct Room { // of a group; zeroed
  std::atomic<uint32_t> reason;
  std::atomic<int32_t> member;
  std::atomic<uint64_t> died; // 1 + operations that still have a result
  Seat seats[kMembers];
};
struct Place { // where a listener's room is
  int32_t pid, fd;
};

class Ctx;

struct Mr : NetObject {
  Mr(const Host &host, const tutti_region &r) : NetObject(host), at(static_cast<char *>(r.addr)), bytes(r.bytes) {}
  char *at;
  uint64_t bytes;
};

class Group : public NetObject {
public:
  Group(Ctx &ctx, int room_fd, int32_t members, int32_t member, const tutti_collnet_config &config);
  ~Group();
  Group(const Group &) = delete;
  bool ready(tutti_collnet_caps &out);
  void why(tutti_collnet_why &out) const;
  std::string describe() const { return "member " + std::to_string(member_) + " of " + std::to_string(members_); }
  tutti_status post(const tutti_collnet_op &op, uint64_t cookie);
  void progress();

private:
  struct Post {
    tutti_collnet_op op;
    uint64_t cookie;
  };
  void check(const tutti_collnet_buf &buf, uint64_t bytes) const;
  void fail_all(tutti_collnet_reason reason, int32_t member);
  uint32_t reason() const { return own_reason_ ? own_reason_ : room_->reason.load(); }
  void finish(const Post &post);
  void look();
  std::string text() const;

  Ctx &ctx_;
  Room *room_ = nullptr;
  const uint32_t members_;
  const int32_t member_;
  const uint64_t share_ = setting("UNEVEN", 0) && member_ == 1 ? 2 : 1;
  const uint64_t outstanding_ = setting("OUTSTANDING", 8) / share_, window_ = setting("WINDOW", 1 << 20) / share_;
  const std::chrono::steady_clock::time_point deadline_;
  uint32_t own_reason_ = 0; // not the others'
  uint64_t bytes_out_ = 0, refused_ = 0;
  std::deque<Post> posts_; // not complete
};

struct Listener : NetObject {
  Listener(Ctx &ctx, const Host &host);
  ~Listener() { ::close(fd); }
  std::unique_ptr<Group> group_create(const std::vector<CollnetAddress> &addrs, int32_t member,
                                      const tutti_collnet_config &config);
  Ctx &ctx;
  int fd;
};

class Ctx : public NetObject {
public:
  explicit Ctx(const Host &host) : NetObject(host), reduce_(host.need<tutti_host_reduce_v1>(TUTTI_HOST_REDUCE)) {}
  std::unique_ptr<Listener> listen(CollnetAddress &addr) {
    auto listener = std::make_unique<Listener>(*this, host());
    addr.set(Place{::getpid(), listener->fd});
    return listener;
  }
  std::unique_ptr<Mr> mr_register(const tutti_region &region) { return std::make_unique<Mr>(host(), region); }
  int32_t progress(tutti_collnet_completion *out, uint32_t cap) {
    for (Group *g : groups) g->progress();
    uint32_t n = 0;
    for (; n < cap && !done.empty(); n++) {
      out[n] = done.front();
      done.pop_front();
    }
    return static_cast<int32_t>(n);
  }
  const tutti_host_reduce_v1 &reduce() const { return reduce_; }
  std::vector<Group *> groups;
  std::deque<tutti_collnet_completion> done;

private:
  const tutti_host_reduce_v1 &reduce_;
};

Listener::Listener(Ctx &of, const Host &host) : NetObject(host), ctx(of), fd(::memfd_create("fake-collnet", MFD_CLOEXEC)) {
  if (fd < 0 || ::ftruncate(fd, sizeof(Room)) != 0) fail(TUTTI_ERR_SYSTEM, "no memory file");
}

std::unique_ptr<Group> Listener::group_create(const std::vector<CollnetAddress> &addrs, int32_t member,
                                              const tutti_collnet_config &config) {
  const Place p = addrs[0].get<Place>();
  const std::string path = "/proc/" + std::to_string(p.pid) + "/fd/" + std::to_string(p.fd);
  const int room = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (room < 0) fail(TUTTI_ERR_SYSTEM, path, " cannot be opened");
  auto group = std::make_unique<Group>(ctx, room, static_cast<int32_t>(addrs.size()), member, config);
  ::close(room);
  return group;
}

bool is_refused(const char *name, int32_t member) {
  const char *text = std::getenv(name);
  return text && std::atoi(text) == member;
}

Group::Group(Ctx &ctx, int room_fd, int32_t members, int32_t member, const tutti_collnet_config &config)
    : NetObject(ctx.host()), ctx_(ctx), members_(static_cast<uint32_t>(members)), member_(member),
      deadline_(std::chrono::steady_clock::now() + std::chrono::milliseconds(setting("DEADLINE", config.deadline_ms))) {
  if (members_ > kMembers) fail(TUTTI_ERR_UNSUPPORTED, members, " members, of at most ", kMembers);
  void *at = ::mmap(nullptr, sizeof(Room), PROT_READ | PROT_WRITE, MAP_SHARED, room_fd, 0);
  if (at == MAP_FAILED) fail(TUTTI_ERR_SYSTEM, "mmap");
  room_ = static_cast<Room *>(at);
  if (is_refused("FAKE_COLLNET_REFUSE", member)) {
    room_->member = member;
    room_->reason = TUTTI_COLLNET_NO_RESOURCE;
  }
  if (is_refused("FAKE_COLLNET_REFUSE_ALONE", member))
    own_reason_ = TUTTI_COLLNET_AUTH;
  else
    room_->seats[member].joined = 1;
  ctx_.groups.push_back(this);
}

Group::~Group() {
  for (const Post &p : posts_) ctx_.done.push_back({p.cookie, TUTTI_ERR_CANCELLED, 0});
  if (!posts_.empty()) fail_all(TUTTI_COLLNET_MEMBER_LOST, member_);
  room_->seats[member_].gone = 1;
  std::erase(ctx_.groups, this);
  ::munmap(room_, sizeof(Room));
}

std::string Group::text() const {
  const auto reason = this->reason();
  if (reason == TUTTI_COLLNET_TIMEOUT) return "not all members came";
  if (reason == TUTTI_COLLNET_AUTH) return std::strchr(std::getenv("FAKE_COLLNET_REFUSE_ALONE"), ':') + 1;
  const std::string who = "member " + std::to_string(room_->member.load());
  if (reason == TUTTI_COLLNET_NO_RESOURCE) {
    const char *refuse = std::getenv("FAKE_COLLNET_REFUSE");
    const char *colon = refuse ? std::strchr(refuse, ':') : nullptr;
    return who + " was refused: " + (colon ? colon + 1 : "no room");
  }
  return reason == TUTTI_COLLNET_AGGREGATOR_LOST ? "the aggregator is lost"
         : reason == TUTTI_COLLNET_MISMATCH      ? who + " posted something else"
                                                 : who + " is lost";
}

void Group::fail_all(tutti_collnet_reason reason, int32_t member) {
  uint32_t fine = TUTTI_COLLNET_FINE;
  if (room_->reason.load() == fine) room_->member = member;
  room_->reason.compare_exchange_strong(fine, reason);
}

bool Group::ready(tutti_collnet_caps &out) {
  bool all = true;
  for (uint32_t m = 0; m < members_; m++) all = all && room_->seats[m].joined;
  if (!all && !own_reason_ && std::chrono::steady_clock::now() >= deadline_) own_reason_ = TUTTI_COLLNET_TIMEOUT;
  if (reason()) fail(TUTTI_ERR_REMOTE, text());
  if (!all) return false;
  out.colls = 1u << TUTTI_COLL_ALL_REDUCE | 1u << TUTTI_COLL_REDUCE | 1u << TUTTI_COLL_BROADCAST | 1u << TUTTI_COLL_BARRIER;
  const uint64_t types = setting("DTYPES", ~uint64_t{0});
  for (uint32_t t = 0; t < TUTTI_DT_COUNT; t++)
    if (types >> t & 1) out.dtype_ops |= uint64_t{15} << (4 * t);
  out.max_bytes = kMostBytes;
  out.window_bytes = window_;
  out.max_outstanding = static_cast<uint32_t>(outstanding_);
  out.alignment = static_cast<uint32_t>(setting("ALIGN", 1));
  out.max_members = kMembers;
  out.mem_kinds = TUTTI_MEM_HOST;
  out.repeat = TUTTI_COLLNET_REPEAT_SIZE;
  out.progress_ms = 60'000; // it is never late
  out.tree_depth = 1;
  out.aggregators = 1;
  out.bandwidth_mbps = setting("MBPS", 0);
  out.order_id = 1;
  return true;
}

void Group::why(tutti_collnet_why &out) const {
  out.reason = reason();
  if (!out.reason) return;
  out.member = own_reason_ || out.reason == TUTTI_COLLNET_AGGREGATOR_LOST ? -1 : room_->member.load();
  std::strncpy(out.text, text().c_str(), sizeof out.text - 1);
}

void Group::check(const tutti_collnet_buf &buf, uint64_t bytes) const {
  const uint64_t unit = setting("ALIGN", 1);
  if (bytes % unit || reinterpret_cast<uintptr_t>(buf.addr) % unit) fail(TUTTI_ERR_INVALID, "not aligned to ", unit, " bytes");
  if (!buf.addr || !setting("REGISTERED", 0)) return;
  const auto *mr = reinterpret_cast<const Mr *>(buf.mr);
  const auto *at = static_cast<const char *>(buf.addr);
  if (!mr || at < mr->at || at + bytes > mr->at + mr->bytes) fail(TUTTI_ERR_INVALID, "a buffer that is not registered");
}

tutti_status Group::post(const tutti_collnet_op &op, uint64_t cookie) {
  if (room_->reason.load()) fail(TUTTI_ERR_REMOTE, text());
  if (op.bytes > kMostBytes) fail(TUTTI_ERR_UNSUPPORTED, op.bytes, " bytes");
  if (posts_.size() >= outstanding_ || (!posts_.empty() && bytes_out_ + op.bytes > window_))
    fail(TUTTI_ERR_INTERNAL, "more posted than was granted");
  if (!posts_.empty() && ++refused_ % 7 == 0) return TUTTI_AGAIN; // may always be
  const bool root = op.root == member_;
  const bool gives = op.coll != TUTTI_COLL_BROADCAST || root,
             gets = op.coll == TUTTI_COLL_ALL_REDUCE || (op.coll == TUTTI_COLL_REDUCE) == root;
  if (gives != (op.send.addr != nullptr) || gets != (op.recv.addr != nullptr))
    fail(TUTTI_ERR_INVALID, "buffers of another kind");
  if (!(setting("DTYPES", ~uint64_t{0}) >> op.dtype & 1)) fail(TUTTI_ERR_UNSUPPORTED, "type ", op.dtype, " was not offered");
  check(op.send, op.bytes);
  check(op.recv, op.bytes);
  Seat &seat = room_->seats[member_];
  const uint64_t k = seat.posted.load();
  for (uint32_t m = 0; m < members_; m++)
    if (k - room_->seats[m].done.load() >= kSlots) return TUTTI_AGAIN;
  Slot &slot = seat.slots[k % kSlots];
  slot.header = {op.coll, op.dtype, op.op, op.root, op.bytes, op.tag};
  if (gives) std::memcpy(slot.data, op.send.addr, op.bytes);
  if (member_ == 1 && k + 1 == setting("DIE", 0)) room_->died = k + 1;
  seat.posted.store(k + 1, std::memory_order_release);
  posts_.push_back({op, cookie});
  bytes_out_ += op.bytes;
  return TUTTI_OK;
}

void Group::finish(const Post &p) {
  Seat &mine = room_->seats[member_];
  const uint64_t k = mine.done.load();
  for (uint32_t m = 0; m < members_; m++)
    if (!(room_->seats[m].slots[k % kSlots].header == mine.slots[k % kSlots].header))
      return fail_all(TUTTI_COLLNET_MISMATCH, static_cast<int32_t>(m));
  if (p.op.recv.addr && p.op.coll == TUTTI_COLL_BROADCAST)
    std::memcpy(p.op.recv.addr, room_->seats[p.op.root].slots[k % kSlots].data, p.op.bytes);
  else if (p.op.recv.addr) {
    std::vector<const void *> operands;
    for (uint32_t m = 0; m < members_; m++) operands.push_back(room_->seats[m].slots[k % kSlots].data);
    if (members_ == 1)
      std::memcpy(p.op.recv.addr, operands[0], p.op.bytes);
    else
      ctx_.reduce().reduce_n(p.op.dtype, p.op.op, 0)(p.op.recv.addr, operands.data(), members_, p.op.bytes);
  }
  ctx_.done.push_back({p.cookie, TUTTI_OK, 0});
  bytes_out_ -= p.op.bytes;
  mine.done.store(k + 1, std::memory_order_release);
}

void Group::look() {
  Seat &mine = room_->seats[member_];
  while (!posts_.empty()) {
    const uint64_t k = mine.done.load(), died = room_->died.load();
    if (died && k >= died) return fail_all(TUTTI_COLLNET_AGGREGATOR_LOST, -1);
    if (k >= setting("STOP", UINT64_MAX)) return;
    if (posts_.size() < 2 && posts_.front().op.bytes >= setting("PAIRS", UINT64_MAX)) return;
    for (uint32_t m = 0; m < members_; m++) {
      if (room_->seats[m].posted.load(std::memory_order_acquire) > k) continue;
      if (room_->seats[m].gone) fail_all(TUTTI_COLLNET_MEMBER_LOST, static_cast<int32_t>(m));
      return;
    }
    finish(posts_.front());
    if (room_->reason.load() == TUTTI_COLLNET_MISMATCH) return;
    posts_.pop_front();
  }
}

void Group::progress() {
  const auto reason = room_->reason.load();
  if (!reason || reason == TUTTI_COLLNET_AGGREGATOR_LOST) look(); // what has a result gets it
  if (!room_->reason.load() || posts_.empty()) return;
  host().set_error(TUTTI_ERR_REMOTE, text().c_str());
  for (const Post &p : posts_) ctx_.done.push_back({p.cookie, TUTTI_ERR_REMOTE, 0});
  posts_.clear();
}

class Plugin {
public:
  static constexpr Info info{"collnet-fake", "0.1.0", "tutti", "Apache-2.0", "for tests"};
  static constexpr const char *collnet_name = "fake";
  using CollnetCtx = Ctx;
  using CollnetListener = Listener;
  using CollnetGroup = Group;
  using CollnetMr = Mr;
  explicit Plugin(const Host &host) : host_(host) {}
  uint32_t collnet_device_count() {
    if (!setting("NO_DEVICE", 0)) return std::getenv("FAKE_COLLNET_RAILS") ? 2 : 1;
    host_.set_error(TUTTI_ERR_UNSUPPORTED, "none was wanted");
    return 0;
  }
  void collnet_device_info(uint32_t dev, tutti_collnet_dev &out) {
    std::strncpy(out.name, dev == 0 ? "fake0" : "fake1", sizeof out.name - 1);
    out.mem_kinds = TUTTI_MEM_HOST;
    out.flags = TUTTI_COLLNET_IN_PLACE | (setting("REGISTERED", 0) ? uint32_t{TUTTI_COLLNET_NEEDS_MR} : 0u);
    out.speed_mbps = static_cast<uint32_t>(setting("HOST_MBPS", 0));
    out.numa_node = out.rail = -1;
    if (const char *rails = std::getenv("FAKE_COLLNET_RAILS"))
      out.rail = std::atoi(dev == 0 ? rails : std::strchr(rails, ',') + 1);
  }
  std::unique_ptr<Ctx> collnet_ctx_create(uint32_t, const tutti_collnet_ctx_config &) { return std::make_unique<Ctx>(host_); }

private:
  Host host_;
};

} // namespace fake

TUTTI_CXX_PLUGIN(fake::Plugin)
