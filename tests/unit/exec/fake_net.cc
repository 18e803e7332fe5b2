#include "fake_net.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

// Opaque in net.h; here they are what they stand for.
struct tutti_net_mr {
  tutti_net_ctx *ctx;
  uint8_t *addr;
  uint64_t bytes;
  uint64_t id; // of all that there ever were
};

namespace {

using Clock = std::chrono::steady_clock;
std::atomic<int64_t> latency_ms{0};
std::atomic<uint64_t> moved{0}, empty{0}, room{0}, violations{0}, endpoints{0}, registered{0}, inside{0}, waiting{0}, got{0},
    together{0};
std::atomic<const uint8_t *> watched{nullptr};
std::atomic<uint64_t> watched_bytes{0}, pinnable{~0ull}, refused{0}, counters_read{0};
std::atomic<uint64_t> damaged{0}, damaged_at{0};
std::atomic<bool> acknowledged{false}, renamed{false}, forge{false}, needs_mr{true};

void violation(const char *what) {
  if (violations++ < 5) std::fprintf(stderr, "fake net: %s\n", what);
}

struct Call {
  std::vector<tutti_net_buf> bufs;
  uint64_t cookie;
  uint64_t last = 0; // of its messages, once they have left
};
uint64_t room_of(const Call &c) {
  uint64_t bytes = 0;
  for (const tutti_net_buf &b : c.bufs) bytes += b.bytes;
  return bytes;
}
struct Get {
  tutti_net_buf to;
  uint64_t remote, key, cookie;
  Clock::time_point due;
};

// From one connecting to one accepting side.
struct Pipe {
  std::mutex mutex;                                        // guards the members below
  bool connected = false, ended = false, finished = false; // ended by the receiver, finished by the sender
  bool cut = false;                                        // a message was longer than its buffer
  Clock::time_point known{};                               // to the receiver
  uint64_t credits = 0;                                    // buffers posted and not filled
  uint64_t left = 0, taken = 0;                            // messages so far
  struct Message {
    std::vector<uint8_t> bytes;
    Clock::time_point due;
  };
  std::deque<Message> messages;
};

std::mutex keys_mutex; // guards keys
std::map<uint64_t, std::pair<uint8_t *, uint64_t>> keys;

std::mutex pipes_mutex; // guards pipes
std::map<uint64_t, std::shared_ptr<Pipe>> pipes;

} // namespace

struct tutti_net_listener {
  tutti_net_ctx *ctx;
  uint64_t id;
  std::shared_ptr<Pipe> pipe;
};
struct tutti_net_ep {
  tutti_net_ctx *ctx;
  bool sending;
  std::shared_ptr<Pipe> pipe;
  std::deque<Call> calls;
  std::deque<Get> gets;
};
struct tutti_net_ctx {
  std::vector<tutti_net_ep *> eps;
  std::vector<tutti_net_mr *> mrs;
  std::deque<tutti_net_completion> done;
};

namespace {

constexpr uint32_t kInFlight = 8, kBatch = 2;
constexpr auto kKnownLate = std::chrono::milliseconds(20); // to the receiver, of a message that is cut: after the sender

bool within(const void *p, uint64_t n, const uint8_t *begin, uint64_t bytes) {
  const auto *at = static_cast<const uint8_t *>(p);
  return begin && at >= begin && at + n <= begin + bytes;
}

void check_registered(const tutti_net_ep &ep, const tutti_net_buf &b) {
  const auto &mrs = ep.ctx->mrs;
  const auto *at = static_cast<const uint8_t *>(b.addr);
  if (std::find(mrs.begin(), mrs.end(), b.mr) == mrs.end())
    violation("a buffer without a live registration");
  else if (at < b.mr->addr || at + b.bytes > b.mr->addr + b.mr->bytes)
    violation("a buffer outside its registration");
}

tutti_status post(tutti_net_ep &ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) {
  if (n == 0 || n > kBatch) violation("a call of a forbidden number of buffers");
  for (uint32_t i = 0; i < n; i++)
    if (bufs[i].bytes && needs_mr) check_registered(ep, bufs[i]);
  if (ep.calls.size() == kInFlight) return TUTTI_AGAIN;
  ep.calls.push_back({{bufs, bufs + n}, cookie, 0});
  for (uint32_t i = 0; i < n; i++) inside += within(bufs[i].addr, bufs[i].bytes, watched, watched_bytes);
  if (ep.sending) return TUTTI_OK;
  waiting++;
  room += room_of(ep.calls.back());
  const auto touches = [](const Call &c) {
    return std::any_of(c.bufs.begin(), c.bufs.end(),
                       [](const tutti_net_buf &b) { return within(b.addr, b.bytes, watched, watched_bytes); });
  };
  together = std::max<uint64_t>(together, static_cast<uint64_t>(std::count_if(ep.calls.begin(), ep.calls.end(), touches)));
  return TUTTI_OK;
}

bool move_one(tutti_net_ep &ep) {
  if (ep.calls.empty()) return false;
  Call &c = ep.calls.front();
  std::lock_guard lock(ep.pipe->mutex);
  tutti_net_completion done{c.cookie, 0, TUTTI_OK, 0};
  if (ep.sending) {
    if (ep.pipe->ended) done.status = TUTTI_ERR_REMOTE;
    if (!ep.pipe->ended && !c.last && ep.pipe->credits < c.bufs.size()) return false;
    for (const tutti_net_buf &b : c.bufs) {
      const auto *at = static_cast<const uint8_t *>(b.addr);
      if (done.status == TUTTI_OK && !c.last) {
        ep.pipe->messages.push_back({{at, at + b.bytes}, Clock::now() + std::chrono::milliseconds(latency_ms)});
        if (b.bytes > 15 && forge.exchange(false)) ep.pipe->messages.back().bytes[15] |= 0x80;
        if (uint64_t wanted = b.bytes; b.bytes && damaged.compare_exchange_strong(wanted, 0))
          ep.pipe->messages.back().bytes[damaged_at] ^= 0x10;
        ep.pipe->credits--;
        ep.pipe->left++;
      }
      done.bytes += b.bytes;
    }
    if (acknowledged && !ep.pipe->ended) {
      if (!c.last) c.last = ep.pipe->left;
      if (ep.pipe->taken < c.last && !ep.pipe->cut) return false;
      if (ep.pipe->cut) done.status = TUTTI_ERR_TRUNCATED;
    }
  } else {
    const bool gone = ep.pipe->finished && ep.pipe->messages.size() < c.bufs.size();
    if (gone) done.status = TUTTI_ERR_REMOTE;
    if (acknowledged && !ep.pipe->messages.empty() && ep.pipe->messages.front().bytes.size() > c.bufs[0].bytes) {
      if (!ep.pipe->cut) ep.pipe->known = Clock::now() + kKnownLate;
      ep.pipe->cut = true;
      if (ep.pipe->known > Clock::now()) return false;
      ep.ctx->done.push_back({c.cookie, 0, TUTTI_ERR_TRUNCATED, 0});
      waiting--;
      room -= room_of(c);
      ep.calls.pop_front();
      return true;
    }
    if (!gone && (ep.pipe->messages.size() < c.bufs.size() || ep.pipe->messages[c.bufs.size() - 1].due > Clock::now()))
      return false;
    for (const tutti_net_buf &b : c.bufs) {
      if (gone) break;
      const auto m = std::move(ep.pipe->messages.front().bytes);
      ep.pipe->messages.pop_front();
      ep.pipe->taken++;
      if (m.size() > b.bytes) done.status = TUTTI_ERR_TRUNCATED;
      std::copy_n(m.data(), std::min<size_t>(m.size(), b.bytes), static_cast<uint8_t *>(b.addr));
      done.bytes += m.size();
      moved++;
      empty += m.empty();
    }
    waiting--;
    room -= room_of(c);
  }
  ep.ctx->done.push_back(done);
  ep.calls.pop_front();
  return true;
}

tutti_status mr_key(tutti_net_mr *mr, void *key, uint32_t *bytes) noexcept {
  if (*bytes < TUTTI_NET_KEY_BYTES) violation("too little room for a key");
  std::memcpy(key, &mr->id, *bytes = sizeof mr->id);
  return TUTTI_OK;
}

tutti_status get(tutti_net_ep *ep, const tutti_net_buf *to, uint64_t remote, const void *key, uint32_t key_bytes,
                 uint64_t cookie) noexcept {
  uint64_t id = 0;
  if (key_bytes != sizeof id) return violation("a key that nobody gave"), TUTTI_ERR_INVALID;
  std::memcpy(&id, key, sizeof id);
  if (needs_mr) check_registered(*ep, *to);
  if (ep->gets.size() == kInFlight) return TUTTI_AGAIN;
  ep->gets.push_back({*to, remote, id, cookie, Clock::now() + std::chrono::milliseconds(latency_ms)});
  return TUTTI_OK;
}

void read_one(tutti_net_ep &ep) {
  if (ep.gets.empty() || ep.gets.front().due > Clock::now()) return;
  const Get g = ep.gets.front();
  ep.gets.pop_front();
  std::lock_guard lock(keys_mutex);
  const auto it = keys.find(g.key);
  const bool good =
      it != keys.end() && within(reinterpret_cast<void *>(g.remote), g.to.bytes, it->second.first, it->second.second);
  if (good) std::memcpy(g.to.addr, reinterpret_cast<void *>(g.remote), g.to.bytes);
  got += good;
  ep.ctx->done.push_back({g.cookie, good ? g.to.bytes : 0, good ? TUTTI_OK : TUTTI_ERR_REMOTE, 0});
}

tutti_status device_count(void *, uint32_t *count) noexcept {
  *count = 1;
  return TUTTI_OK;
}
tutti_status device_info(void *, uint32_t, tutti_net_dev *out) noexcept {
  std::strcpy(out->name, renamed ? "fake1" : "fake0");
  out->mem_kinds = TUTTI_MEM_HOST;
  out->max_message_bytes = 1 << 20;
  out->max_inflight = kInFlight;
  out->max_batch = kBatch;
  out->flags = (needs_mr ? uint32_t(TUTTI_NET_NEEDS_MR) : 0u) | TUTTI_NET_ANSWERS;
  out->speed_mbps = 1000;
  return TUTTI_OK;
}
tutti_status ctx_create(void *, uint32_t, const tutti_net_ctx_config *, tutti_net_ctx **out) noexcept {
  *out = new tutti_net_ctx;
  return TUTTI_OK;
}
void ctx_destroy(tutti_net_ctx *ctx) noexcept {
  if (!ctx->eps.empty() || !ctx->mrs.empty()) violation("a context destroyed before what was made from it");
  delete ctx;
}
tutti_status listen_at(tutti_net_ctx *ctx, void *addr, uint32_t *bytes, tutti_net_listener **out) noexcept {
  static std::atomic<uint64_t> next{1};
  const uint64_t id = next++;
  auto pipe = std::make_shared<Pipe>();
  std::lock_guard lock(pipes_mutex);
  pipes[id] = pipe;
  std::memcpy(addr, &id, *bytes = sizeof id);
  *out = new tutti_net_listener{ctx, id, pipe};
  return TUTTI_OK;
}
tutti_status connect_to(tutti_net_ctx *ctx, const void *addr, uint32_t, void *answer, uint32_t *answer_bytes,
                        tutti_net_ep **out) noexcept {
  uint64_t id;
  std::memcpy(&id, addr, sizeof id);
  std::lock_guard lock(pipes_mutex);
  const auto pipe = pipes.at(id);
  std::lock_guard inner(pipe->mutex);
  pipe->connected = true;
  if (*answer_bytes < TUTTI_NET_ADDR_BYTES) violation("too little room for an answer");
  const uint64_t said = ~id;
  std::memcpy(answer, &said, *answer_bytes = sizeof said);
  ctx->eps.push_back(*out = new tutti_net_ep{ctx, true, pipe, {}, {}});
  endpoints++;
  return TUTTI_OK;
}
tutti_status accept_from(tutti_net_listener *l, const void *answer, uint32_t answer_bytes, tutti_net_ep **out) noexcept {
  uint64_t said = 0;
  if (answer_bytes == sizeof said) std::memcpy(&said, answer, sizeof said);
  if (said != ~l->id) violation("accept() without what the peer's connect() answered");
  std::lock_guard lock(l->pipe->mutex);
  if (!l->pipe->connected) return TUTTI_AGAIN;
  l->ctx->eps.push_back(*out = new tutti_net_ep{l->ctx, false, l->pipe, {}, {}});
  endpoints++;
  return TUTTI_OK;
}
tutti_status ep_ready(tutti_net_ep *) noexcept {
  return TUTTI_OK;
}
tutti_status ep_describe(tutti_net_ep *, char *text, uint32_t cap) noexcept {
  std::snprintf(text, cap, "fake");
  return TUTTI_OK;
}
void ep_destroy(tutti_net_ep *ep) noexcept {
  for (const Get &g : ep->gets) ep->ctx->done.push_back({g.cookie, 0, TUTTI_ERR_CANCELLED, 0});
  for (const Call &c : ep->calls) ep->ctx->done.push_back({c.cookie, 0, TUTTI_ERR_CANCELLED, 0});
  if (!ep->sending) waiting -= ep->calls.size();
  for (const Call &c : ep->calls) room -= ep->sending ? 0 : room_of(c);
  std::erase(ep->ctx->eps, ep);
  {
    std::lock_guard lock(ep->pipe->mutex);
    ep->pipe->ended |= !ep->sending;
    ep->pipe->finished |= ep->sending;
  }
  endpoints--;
  delete ep;
}
void listener_destroy(tutti_net_listener *l) noexcept {
  {
    std::lock_guard lock(pipes_mutex);
    pipes.erase(l->id);
  }
  delete l;
}
tutti_status mr_register(tutti_net_ctx *ctx, const tutti_region *r, tutti_net_mr **out) noexcept {
  if (r->bytes > pinnable || r->bytes == refused) return TUTTI_ERR_NO_MEMORY;
  static std::atomic<uint64_t> next{1};
  registered++;
  ctx->mrs.push_back(*out = new tutti_net_mr{ctx, static_cast<uint8_t *>(r->addr), r->bytes, next++});
  std::lock_guard lock(keys_mutex);
  keys[(*out)->id] = {(*out)->addr, r->bytes};
  return TUTTI_OK;
}
void mr_release(tutti_net_mr *mr) noexcept {
  for (const tutti_net_ep *ep : mr->ctx->eps)
    for (const Call &c : ep->calls)
      for (const tutti_net_buf &b : c.bufs)
        if (b.mr == mr) violation("a registration released while a post names it");
  for (const tutti_net_ep *ep : mr->ctx->eps)
    for (const Get &g : ep->gets)
      if (g.to.mr == mr) violation("a registration released while a get names it");
  {
    std::lock_guard lock(keys_mutex);
    keys.erase(mr->id);
  }
  if (std::erase(mr->ctx->mrs, mr) != 1) violation("a registration released twice");
  registered--;
  delete mr;
}
tutti_status send_on(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) noexcept {
  if (!ep->sending) violation("a send on the accepting side");
  return post(*ep, bufs, n, cookie);
}
tutti_status recv_on(tutti_net_ep *ep, const tutti_net_buf *bufs, uint32_t n, uint64_t *, uint64_t cookie) noexcept {
  if (ep->sending) violation("a receive on the connecting side");
  const tutti_status s = post(*ep, bufs, n, cookie);
  if (s != TUTTI_OK) return s;
  std::lock_guard lock(ep->pipe->mutex);
  ep->pipe->credits += n;
  return TUTTI_OK;
}
int32_t progress(tutti_net_ctx *ctx, tutti_net_completion *out, uint32_t cap) noexcept {
  for (tutti_net_ep *ep : ctx->eps) {
    move_one(*ep);
    read_one(*ep);
  }
  if (cap == 0 || ctx->done.empty()) return 0;
  out[0] = ctx->done.front();
  ctx->done.pop_front();
  return 1;
}

tutti_net_v1 make_table() {
  tutti_net_v1 t{};
  t.struct_size = sizeof t;
  t.name = "fake";
  t.device_count = device_count;
  t.device_info = device_info;
  t.ctx_create = ctx_create;
  t.ctx_destroy = ctx_destroy;
  t.listen = listen_at;
  t.connect = connect_to;
  t.accept = accept_from;
  t.ep_ready = ep_ready;
  t.ep_describe = ep_describe;
  t.ep_destroy = ep_destroy;
  t.listener_destroy = listener_destroy;
  t.mr_register = mr_register;
  t.mr_release = mr_release;
  t.send = send_on;
  t.recv = recv_on;
  t.progress = progress;
  return t;
}

std::atomic<uint64_t> lost{7};
tutti_status read_counters(void *, uint32_t, tutti_net_counter *out, uint32_t *count) noexcept {
  counters_read++;
  const tutti_net_counter all[] = {{"moved", nullptr, moved, 0}, {"lost", "somebody pulled the plug", lost, 0}};
  for (uint32_t i = 0; i < 2 && i < *count; i++) out[i] = all[i];
  *count = 2;
  return TUTTI_OK;
}
const tutti_net_counters_v1 counters_table = {sizeof counters_table, 0, read_counters};
const tutti_net_rma_v1 rma_table = {sizeof rma_table, 0, mr_key, get};
const char *const ifaces[] = {TUTTI_NET, TUTTI_NET_COUNTERS, nullptr};
const char *const ifaces_with_rma[] = {TUTTI_NET, TUTTI_NET_COUNTERS, TUTTI_NET_RMA, nullptr};
const void *get_iface(void *, const char *id) noexcept {
  if (std::strcmp(id, TUTTI_NET_RMA) == 0) return &rma_table;
  return std::strcmp(id, TUTTI_NET_COUNTERS) == 0 ? &counters_table : nullptr;
}

} // namespace

namespace tutti::test {

namespace {
Iface<tutti_net_v1> made(Plugin &plugin, tutti_plugin_desc &desc, const char *const *offers) {
  static const tutti_net_v1 table = make_table();
  desc.struct_size = sizeof desc;
  desc.name = "fake-net";
  desc.ifaces = offers;
  desc.get_iface = get_iface;
  plugin.desc = &desc;
  return {&plugin, &table};
}
} // namespace

Iface<tutti_net_v1> fake_net() {
  static tutti_plugin_desc desc{};
  static Plugin plugin;
  static const auto net = made(plugin, desc, ifaces);
  return net;
}
Iface<tutti_net_v1> fake_rma_net() {
  static tutti_plugin_desc desc{};
  static Plugin plugin;
  static const auto net = made(plugin, desc, ifaces_with_rma);
  return net;
}
uint64_t fake_net_gets() {
  return got;
}
void fake_net_latency(std::chrono::milliseconds latency) {
  latency_ms = latency.count();
}
void fake_net_lose(uint64_t messages) {
  lost += messages;
}
void fake_net_watch(const void *at, uint64_t bytes) {
  watched = static_cast<const uint8_t *>(at);
  watched_bytes = bytes;
  inside = together = 0;
}
uint64_t fake_net_inside() {
  return inside;
}
uint64_t fake_net_together() {
  return together;
}
uint64_t fake_net_registered() {
  return registered;
}
uint64_t fake_net_waiting() {
  return waiting;
}
uint64_t fake_net_waiting_bytes() {
  return room;
}
void fake_net_needs_mr(bool yes) {
  needs_mr = yes;
}
void fake_net_pinnable(uint64_t bytes) {
  pinnable = bytes;
}
void fake_net_refuse(uint64_t bytes) {
  refused = bytes;
}
void fake_net_acknowledge(bool yes) {
  acknowledged = yes;
}
void fake_net_rename(bool yes) {
  renamed = yes;
}
void fake_net_forge() {
  forge = true;
}
void fake_net_damage(uint64_t bytes, uint64_t at) {
  damaged_at = at;
  damaged = bytes;
}
uint64_t fake_net_counters_read() {
  return counters_read;
}
uint64_t fake_net_messages() {
  return moved;
}
uint64_t fake_net_empty() {
  return empty;
}
uint64_t fake_net_endpoints() {
  return endpoints;
}
uint64_t fake_net_violations() {
  return violations;
}

} // namespace tutti::test
