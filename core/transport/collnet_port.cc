#include "transport/collnet_port.h"
#include "log/log.h"
#include "plan/chunks.h"
#include "plugin/guard.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cstring>

namespace tutti {
namespace {

constexpr uint32_t kBatch = 32; // completions per look
// Slots of a link. Twice what a plan was proved with is enough: as many messages on either side of the group.
constexpr uint32_t kMostPosts = 64;

} // namespace

Result<std::unique_ptr<CollnetPort>> CollnetPort::create(Transport &transport, Iface<tutti_collnet_v1> collnet,
                                                         uint32_t device) {
  auto port = std::unique_ptr<CollnetPort>(new CollnetPort(transport, collnet));
  TUTTI_TRY(port->open(device));
  return port;
}

Status CollnetPort::open(uint32_t device) {
  const auto turn = plugin_setup(collnet_.plugin);
  void *const state = collnet_.plugin->state;
  info_.struct_size = sizeof info_;
  if (const auto s = guarded(collnet_.plugin, "device_info", collnet_.table->device_info, state, device, &info_); s < 0)
    return plugin_error(*collnet_.plugin, s, fmt::format("asking about device {}", device));
  if (!(info_.mem_kinds & TUTTI_MEM_HOST)) return fail(Code::invalid_usage, "device {} takes no host memory", info_.name);
  Bootstrap &b = transport_.bootstrap();
  tutti_collnet_ctx_config config{};
  config.struct_size = sizeof config;
  config.traffic_class = static_cast<int32_t>(transport_.config().number("net.traffic_class"));
  config.comm_id = b.comm_id();
  config.rank = b.rank();
  config.nranks = b.nranks();
  if (const auto s = guarded(collnet_.plugin, "ctx_create", collnet_.table->ctx_create, state, device, &config, &ctx_); s < 0)
    return plugin_error(*collnet_.plugin, s, fmt::format("opening device {}", info_.name));
  if (needs_mr()) make_cache();
  return {};
}

void CollnetPort::make_cache() {
  const Config &config = transport_.config();
  const MrCache::Limits limits{static_cast<uint64_t>(config.number("net.registrations")),
                               static_cast<uint64_t>(config.number("net.registered_bytes"))};
  const auto make = [this](void *at, uint64_t bytes) -> void * {
    const tutti_region region = host_region(at, bytes);
    tutti_collnet_mr *mr = nullptr;
    const auto s = guarded(collnet_.plugin, "mr_register", collnet_.table->mr_register, ctx_, &region, &mr);
    if (s >= 0) return mr;
    const Status why = plugin_error(*collnet_.plugin, s, fmt::format("registering {} bytes at {}", bytes, at));
    log::write_once(
        log::Level::warn, log::Subsys::net, fmt::format("mr {}", info_.name),
        fmt::format("collnet {} {}: posts from this memory are copied: {}", plugin_name(), info_.name, why.error().line()));
    return nullptr;
  };
  cache_ = std::make_unique<MrCache>(limits, make,
                                     [this](void *mr) { collnet_.table->mr_release(static_cast<tutti_collnet_mr *>(mr)); });
}

CollnetPort::~CollnetPort() {
  close();
}

void CollnetPort::close() {
  if (!ctx_) return;
  const tutti_collnet_v1 &t = *collnet_.table;
  for (const auto &g : groups_) {
    if (g->group) t.group_destroy(std::exchange(g->group, nullptr));
    if (g->listener) t.listener_destroy(std::exchange(g->listener, nullptr));
    g->ready = false;
    g->backlog.clear();
  }
  tutti_collnet_completion done[kBatch];
  for (const Deadline patience = Deadline::in(kCloseTime);
       guarded_up_to(kBatch, collnet_.plugin, "progress", t.progress, ctx_, done, kBatch) > 0 && !patience.expired();) {
  }
  {
    std::lock_guard lock(mutex_); // links may be added meanwhile, for operations that will not use them
    for (const auto &link : links_) {
      if (link->mr) t.mr_release(std::exchange(link->mr, nullptr));
      for (GroupPost &p : link->posts)
        if (p.home) cache_->give_back(std::exchange(p.home, nullptr));
    }
  }
  cache_.reset();
  outstanding_ = ahead_ = 0;
  const auto turn = plugin_setup(collnet_.plugin);
  t.ctx_destroy(std::exchange(ctx_, nullptr));
}

CollnetGroup *CollnetPort::find(uint32_t number) const {
  for (const auto &g : groups_)
    if (g->number == number) return g.get();
  return nullptr;
}
const CollnetGroup *CollnetPort::group(uint32_t number) const {
  return find(number);
}
std::vector<const CollnetGroup *> CollnetPort::groups() const {
  std::vector<const CollnetGroup *> out;
  for (const auto &g : groups_) out.push_back(g.get());
  return out;
}

std::string CollnetPort::describe(uint32_t number) const {
  const CollnetGroup *g = find(number);
  char text[256] = "";
  if (g && g->group) (void)collnet_.table->group_describe(g->group, text, sizeof text);
  const bool told = std::string_view(text).find(info_.name) != std::string_view::npos; // long names, once
  return fmt::format("collnet {}{}{}{}{}", plugin_name(), told ? "" : " ", told ? "" : info_.name, *text ? ": " : "", text);
}

Result<Bytes> CollnetPort::listen(uint32_t number) {
  auto g = std::make_unique<CollnetGroup>();
  g->number = number;
  Bytes address(TUTTI_COLLNET_ADDR_BYTES);
  auto size = static_cast<uint32_t>(address.size());
  if (const auto s = guarded(collnet_.plugin, "listen", collnet_.table->listen, ctx_, address.data(), &size, &g->listener);
      s < 0)
    return plugin_error(*collnet_.plugin, s, "listening");
  address.resize(size);
  groups_.push_back(std::move(g));
  return address;
}

Status CollnetPort::join(uint32_t number, std::span<const Bytes> addresses, std::vector<int> members,
                         const tutti_collnet_config &config) {
  CollnetGroup &g = *find(number);
  g.members = std::move(members);
  g.member =
      static_cast<int32_t>(std::find(g.members.begin(), g.members.end(), transport_.bootstrap().rank()) - g.members.begin());
  Bytes all(addresses.size() * TUTTI_COLLNET_ADDR_BYTES);
  for (size_t i = 0; i < addresses.size(); i++)
    std::copy_n(addresses[i].begin(), std::min<size_t>(addresses[i].size(), TUTTI_COLLNET_ADDR_BYTES),
                all.begin() + static_cast<std::ptrdiff_t>(i * TUTTI_COLLNET_ADDR_BYTES));
  const auto s = guarded(collnet_.plugin, "group_create", collnet_.table->group_create, g.listener, all.data(),
                         TUTTI_COLLNET_ADDR_BYTES, static_cast<int32_t>(g.members.size()), g.member, &config, &g.group);
  return s < 0 ? plugin_error(*collnet_.plugin, s, "joining a group") : Status();
}

Result<bool> CollnetPort::poll() {
  (void)progress();
  bool all = true;
  for (const auto &g : groups_) {
    if (g->ready) continue;
    g->caps = {};
    g->caps.struct_size = sizeof g->caps;
    const auto s = guarded(collnet_.plugin, "group_ready", collnet_.table->group_ready, g->group, &g->caps);
    if (s < 0) {
      fail_group(*g, s, "creating a group");
      return Status(*failure_);
    }
    g->ready = s == TUTTI_OK;
    all &= g->ready;
  }
  return all;
}

// The text is the plugin's: it knows members by number, and says so.
void CollnetPort::fail_group(const CollnetGroup &g, tutti_status status, std::string_view doing) {
  if (failure_) return;
  const Status s = plugin_error(*collnet_.plugin, status, doing); // takes what the plugin said on this thread
  tutti_collnet_why why{};
  why.struct_size = sizeof why;
  why.member = -1;
  Error e;
  e.code = Code::remote;
  e.message = s.ok() ? "it ended" : s.error().message;
  if (g.group && collnet_.table->group_why(g.group, &why) == TUTTI_OK && why.reason != TUTTI_COLLNET_FINE) {
    if (*why.text) e.message = std::string(why.text, strnlen(why.text, sizeof why.text));
    reason_ = why.reason;
    if (why.reason == TUTTI_COLLNET_TIMEOUT) e.code = Code::timeout;
    if (why.member >= 0 && static_cast<size_t>(why.member) < g.members.size()) {
      e.peer = g.members[static_cast<size_t>(why.member)];
      e.message += fmt::format(" (member {} is rank {})", why.member, e.peer);
    }
  }
  const bool told = e.message.find(info_.name) != std::string::npos;
  e.message = fmt::format("{}: {}", told ? fmt::format("collnet {}", plugin_name()) : describe(g.number), e.message);
  e.endpoint = info_.name;
  failure_ = std::move(e);
}

Result<Ring *> CollnetPort::ring(uint32_t number, bool sending, uint32_t slot_bytes) {
  CollnetGroup *g = find(number);
  if (!g) return fail(Code::internal, "rank {} is no member of group {}", transport_.bootstrap().rank(), number);
  std::lock_guard lock(mutex_);
  const auto it = std::find_if(links_.begin(), links_.end(),
                               [&](const auto &l) { return l->group == g && l->send.geometry.slot_bytes == slot_bytes; });
  GroupLink *link = it != links_.end() ? it->get() : nullptr;
  if (!link) {
    auto made = std::make_unique<GroupLink>();
    link = made.get();
    link->group = g;
    for (RingCold *cold : {&link->send, &link->recv}) {
      cold->transport = &transport_;
      cold->ring.cold = cold;
      cold->ring.group = link;
      cold->sending = cold == &link->send;
      cold->geometry.slot_bytes = slot_bytes;
      cold->link_class = LinkClass::net;
      cold->state.store(3, std::memory_order_relaxed);
    }
    const uint32_t posts = std::min(2 * window(number, slot_bytes), kMostPosts);
    link->posts.resize(std::max(4u, posts));
    TUTTI_TRY(transport_.budget().take(2 * link->posts.size() * uint64_t(slot_bytes), fmt::format("link to group {}", number)));
    links_.push_back(std::move(made));
  }
  return sending ? &link->send.ring : &link->recv.ring;
}

uint32_t CollnetPort::window(uint32_t number, uint32_t slot_bytes) const {
  const CollnetGroup *g = find(number);
  if (!g) return 0;
  const uint64_t by_bytes = g->caps.window_bytes ? g->caps.window_bytes / std::max(1u, slot_bytes) : kMostPosts;
  return static_cast<uint32_t>(std::clamp<uint64_t>(by_bytes, 1, std::max(1u, g->caps.max_outstanding)));
}

bool CollnetPort::make_memory(GroupLink &link) {
  if (link.memory) return true;
  const uint64_t bytes = 2 * link.posts.size() * uint64_t(link.send.geometry.slot_bytes);
  link.memory.reset(new (std::align_val_t(4096), std::nothrow) uint8_t[bytes]);
  if (!link.memory) {
    transport_.report(fail(Code::system, "no memory for {} bytes of slots of a collnet group", bytes).error());
    return false;
  }
  if (!needs_mr()) return true;
  const tutti_region region = host_region(link.memory.get(), bytes);
  if (const auto s = guarded(collnet_.plugin, "mr_register", collnet_.table->mr_register, ctx_, &region, &link.mr); s < 0) {
    link.memory.reset(); // nothing may be posted from it
    transport_.report(plugin_error(*collnet_.plugin, s, fmt::format("registering {} bytes of slots", bytes)).error());
    return false;
  }
  return true;
}

// A group takes any post when it has none.
bool CollnetPort::has_room(const GroupLink &link) const {
  const CollnetGroup &g = *link.group;
  if (!g.backlog.empty() || link.posted - link.collected >= link.posts.size()) return false;
  if (g.outstanding == 0) return true;
  return g.outstanding < g.caps.max_outstanding &&
         (g.caps.window_bytes == 0 || g.bytes_out + link.send.geometry.slot_bytes <= g.caps.window_bytes);
}

bool CollnetPort::can_send(Ring &ring) {
  return ctx_ && !failure_ && make_memory(*ring.group) && has_room(*ring.group);
}

void CollnetPort::post(GroupLink &link, const void *data, uint64_t bytes, uint64_t tag, bool home, const GroupCall &call) {
  CollnetGroup &g = *link.group;
  const uint64_t k = link.posted++;
  GroupPost &p = link.post(k);
  p.link = &link;
  p.taken = p.complete = false;
  tutti_collnet_op &op = p.op = {};
  op.struct_size = sizeof op;
  op.coll = call.coll, op.dtype = call.dtype, op.op = call.op, op.root = call.root;
  const uint64_t unit = std::max(1u, g.caps.alignment);
  p.bytes = bytes;
  op.bytes = align_up(bytes, unit); // alike on all members
  op.tag = tag;
  const bool root = call.root == g.member;
  if (call.coll != TUTTI_COLL_BROADCAST || root) {
    const bool fits = home && op.bytes == bytes && reinterpret_cast<uintptr_t>(data) % unit == 0;
    p.home = fits && cache_ ? cache_->take(data, bytes) : nullptr;
    if (fits && (p.home || !needs_mr())) {
      op.send = {const_cast<void *>(data), p.home ? static_cast<tutti_collnet_mr *>(p.home->mr) : nullptr};
    } else {
      op.send = {link.slot(k, false), link.mr};
      std::memcpy(op.send.addr, data, bytes);
      std::memset(static_cast<uint8_t *>(op.send.addr) + bytes, 0, op.bytes - bytes);
    }
  }
  if (call.coll == TUTTI_COLL_ALL_REDUCE || (call.coll == TUTTI_COLL_REDUCE) == root) op.recv = {link.slot(k, true), link.mr};
  outstanding_++;
  if (!give(p)) g.backlog.push_back(&p);
}

// False: the plugin has no room, although what it granted is not used up.
bool CollnetPort::give(GroupPost &p) {
  CollnetGroup &g = *p.link->group;
  const auto s = guarded(collnet_.plugin, "post", collnet_.table->post, g.group, &p.op, reinterpret_cast<uintptr_t>(&p));
  if (s == TUTTI_AGAIN) return false;
  if (s < 0) {
    fail_group(g, s, fmt::format("posting {} bytes", p.op.bytes));
    return true;
  }
  p.taken = true;
  g.outstanding++;
  g.bytes_out += p.op.bytes;
  return true;
}

void CollnetPort::send(Ring &ring, const void *data, uint64_t bytes, uint64_t tag, bool home, const GroupCall &call) {
  post(*ring.group, data, bytes, tag, home, call);
  ring_advance(ring, bytes, bytes);
}

// Else the member's own post is another step's.
bool CollnetPort::takes_receive(Ring &ring, const GroupCall &call) {
  return call.coll == TUTTI_COLL_BROADCAST && can_send(ring);
}
void CollnetPort::expect(Ring &ring, uint64_t bytes, uint64_t tag, const GroupCall &call) {
  post(*ring.group, nullptr, bytes, tag, false, call);
}

int CollnetPort::receive(Ring &ring, uint64_t bytes, uint64_t tag, const GroupCall &call, const uint8_t **payload) {
  GroupLink &link = *ring.group;
  if (expected(ring) == 0) {
    if (!takes_receive(ring, call)) return 0;
    expect(ring, bytes, tag, call);
  }
  if (link.collected >= link.complete) return 0; // what has come counts, though the group may have failed since
  *payload = link.slot(link.collected, true);
  return 1;
}

void CollnetPort::consume(Ring &ring) {
  GroupLink &link = *ring.group;
  const uint64_t bytes = link.post(link.collected).bytes;
  link.collected++;
  ring_advance(ring, bytes, bytes);
}

bool CollnetPort::arrived(const Ring &ring) const {
  return ring.group->collected < ring.group->complete;
}

void CollnetPort::complete(const tutti_collnet_completion &done) {
  auto &p = *reinterpret_cast<GroupPost *>(static_cast<uintptr_t>(done.cookie));
  GroupLink &link = *p.link;
  CollnetGroup &g = *link.group;
  p.complete = true;
  outstanding_--;
  g.outstanding--;
  g.bytes_out -= p.op.bytes;
  if (p.home) cache_->give_back(std::exchange(p.home, nullptr));
  if (done.status < 0) return fail_group(g, done.status, "an operation of the group");
  link.complete++;                       // in the order of posts
  if (!p.op.recv.addr) link.collected++; // nobody comes for it
}

bool CollnetPort::progress() {
  if (!ctx_) return false;
  bool moved = false;
  tutti_collnet_completion done[kBatch];
  const int32_t n = guarded_up_to(kBatch, collnet_.plugin, "progress", collnet_.table->progress, ctx_, done, kBatch);
  if (n < 0 && !groups_.empty()) fail_group(*groups_.front(), n, "driving the device");
  for (int32_t i = 0; i < n; i++) complete(done[i]);
  moved |= n > 0;
  for (const auto &g : groups_) {
    if (g->ready && g->outstanding == 0 && g->backlog.empty()) continue;
    size_t given = 0;
    while (given < g->backlog.size() && !failure_ && give(*g->backlog[given])) given++;
    g->backlog.erase(g->backlog.begin(), g->backlog.begin() + static_cast<std::ptrdiff_t>(given));
    moved |= given > 0;
  }
  return moved;
}

int CollnetPort::wait_fd() {
  const tutti_collnet_v1 &t = *collnet_.table;
  if (!ctx_ || failure_ || !TUTTI_HAS(tutti_collnet_v1, &t, event_fd) || !TUTTI_HAS(tutti_collnet_v1, &t, arm)) return -1;
  int32_t fd = -1;
  if (t.event_fd(ctx_, &fd) != TUTTI_OK) return -1;
  const auto s = t.arm(ctx_);
  return s == TUTTI_OK ? fd : s == TUTTI_AGAIN ? NetPort::kEventsWaiting : -1;
}

void CollnetPort::allow(uint64_t number, const void *at, uint64_t bytes) {
  if (cache_) cache_->allow(number, at, bytes);
}
bool CollnetPort::disallow(uint64_t number) {
  return !cache_ || cache_->disallow(number);
}
bool CollnetPort::drop(const void *at, uint64_t bytes) {
  return !cache_ || cache_->drop(at, bytes);
}

} // namespace tutti
