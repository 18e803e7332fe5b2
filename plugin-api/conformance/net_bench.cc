#include "net_bench.h"
#include "plugin/services.h"
#include <cstring>
#include <filesystem>
#include <thread>

namespace tutti::conformance {
namespace {

constexpr unsigned char kCanary = 0xa5;
constexpr size_t kGuard = 64; // bytes of canary on either side

void check(const Plugin &plugin, tutti_status status, const char *what) {
  if (status != TUTTI_OK) broken("{}", plugin_error(plugin, status, what).error().message);
}
size_t entries(const char *directory) {
  size_t n = 0;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) n++;
  return n;
}

} // namespace

std::string status_name(int32_t status) {
  static const char *const names[] = {"OK",      "INVALID",   "UNSUPPORTED", "NO_MEMORY", "SYSTEM", "REMOTE",
                                      "TIMEOUT", "CANCELLED", "INTERNAL",    "TRUNCATED", "DENIED"};
  if (status == TUTTI_AGAIN) return "AGAIN";
  if (status <= 0 && status >= -10) return names[-status];
  return fmt::format("status {}", status);
}
size_t open_descriptors() {
  return entries("/proc/self/fd");
}
size_t live_threads() {
  return entries("/proc/self/task");
}

Side::Side(const Plugin &plugin, const tutti_net_v1 &net, uint32_t dev, uint32_t flags, int rank, uint32_t wishes)
    : plugin_(plugin), net_(net), flags_(flags) {
  tutti_net_ctx_config config{};
  config.struct_size = sizeof(config);
  config.traffic_class = -1;
  config.comm_id = 0x7e57;
  config.rank = rank;
  config.nranks = 2;
  config.flags = wishes;
  check(plugin, net.ctx_create(plugin.state, dev, &config, &ctx_), "ctx_create");
  require(ctx_ != nullptr, "ctx_create returned OK and no context");
}

Side::~Side() {
  for (tutti_net_mr *mr : mrs_) net_.mr_release(mr);
  if (ctx_) net_.ctx_destroy(ctx_);
}

void Side::poll(uint32_t cap) {
  constexpr uint32_t kMax = 64;
  tutti_net_completion out[kMax + 1];
  std::memset(out, kCanary, sizeof(out));
  cap = std::min(cap, kMax);
  const int32_t n = timed("progress", [&] { return net_.progress(ctx_, out, cap); });
  if (n < 0) check(plugin_, n, "progress");
  require(static_cast<uint32_t>(n) <= cap, "progress was given room for {} completions and returned {}", cap, n);
  const auto *bytes = reinterpret_cast<const unsigned char *>(out + cap);
  for (size_t i = 0; i < sizeof(out[0]); i++)
    require(bytes[i] == kCanary, "progress wrote beyond the {} completions it was given", cap);
  for (int32_t i = 0; i < n; i++) {
    require(out[i].reserved0 == 0, "completion of cookie {:#x}: reserved0 is {:#x}", out[i].cookie, out[i].reserved0);
    require(out[i].status <= 0, "completion of cookie {:#x} has status {}", out[i].cookie, status_name(out[i].status));
    Done &d = done_[out[i].cookie];
    d.times++;
    d.last = out[i];
    reported_++;
  }
}

tutti_net_buf Side::buf(void *addr, uint64_t bytes) {
  tutti_net_buf b{addr, bytes, nullptr, 0};
  if (!(flags_ & TUTTI_NET_NEEDS_MR) || bytes == 0) return b; // what is empty needs none
  tutti_region region{};
  region.struct_size = sizeof(region);
  region.kind = TUTTI_MEM_HOST;
  region.addr = addr;
  region.bytes = bytes;
  region.device = region.dmabuf_fd = -1;
  check(plugin_, net_.mr_register(ctx_, &region, &b.mr), "mr_register");
  mrs_.push_back(b.mr);
  return b;
}

NetBench::NetBench(const Plugin &plugin, const void *table, uint32_t wishes)
    : plugin_(plugin), net_(*static_cast<const tutti_net_v1 *>(table)), wishes_(wishes) {
  uint32_t count = 0;
  check(plugin, net_.device_count(plugin.state, &count), "device_count");
  if (count == 0) skip("there is no usable device on this machine");
  dev_.struct_size = sizeof(dev_);
  check(plugin, net_.device_info(plugin.state, 0, &dev_), "device_info");
  a_ = side(0);
  b_ = side(1);
}

NetBench::~NetBench() {
  for (tutti_net_ep *ep : eps_) net_.ep_destroy(ep);
  tutti_net_completion rest[64];
  for (Side *s : {a_.get(), b_.get()}) // what was outstanding is reported now
    for (int i = 0; s && i < 100 && net_.progress(s->ctx(), rest, 64) > 0; i++) {
    }
}

void NetBench::destroy(tutti_net_ep *ep) {
  std::erase(eps_, ep);
  sent_.erase(ep);
  received_.erase(ep);
  timed("ep_destroy", [&] { return net_.ep_destroy(ep), 0; });
}

void NetBench::until(const std::function<bool()> &ready, std::string_view what) {
  const Deadline deadline = Deadline::in(kWait);
  while (!ready()) {
    require(!deadline.expired(), "waited {} s for {}", kWait.count(), what);
    a().poll();
    b().poll();
    std::this_thread::yield(); // helper threads of the plugin need the core as well
  }
}

void NetBench::idle(std::chrono::milliseconds span) {
  const Deadline deadline = Deadline::in(span);
  while (!deadline.expired()) {
    a().poll();
    b().poll();
    std::this_thread::yield();
  }
}

tutti_status NetBench::connect(tutti_net_ctx *ctx, const void *addr, uint32_t bytes, Answer *answer, tutti_net_ep **ep) const {
  std::memset(answer->bytes, kCanary, sizeof(answer->bytes));
  answer->size = TUTTI_NET_ADDR_BYTES;
  const tutti_status s = timed("connect", [&] { return net_.connect(ctx, addr, bytes, answer->bytes, &answer->size, ep); });
  if (s != TUTTI_OK) return s;
  require(answer->size <= TUTTI_NET_ADDR_BYTES, "connect answers with {} bytes, at most {} are possible", answer->size,
          static_cast<int>(TUTTI_NET_ADDR_BYTES));
  require(answer->size > 0 || !answers(), "connect gives no answer though the device has ANSWERS");
  for (size_t i = answer->size; i < sizeof(answer->bytes); i++)
    require(answer->bytes[i] == kCanary, "connect wrote beyond its answer of {} bytes", answer->size);
  return s;
}

tutti_status NetBench::accept(tutti_net_listener *listener, const Answer &answer, tutti_net_ep **ep) const {
  const void *bytes = answers() ? answer.bytes : nullptr;
  return timed("accept", [&] { return net_.accept(listener, bytes, answers() ? answer.size : 0, ep); });
}

Pair NetBench::pair(Side &from, Side &to) {
  unsigned char addr[TUTTI_NET_ADDR_BYTES];
  uint32_t size = sizeof(addr);
  tutti_net_listener *listener = nullptr;
  check(plugin_, timed("listen", [&] { return net_.listen(to.ctx(), addr, &size, &listener); }), "listen");
  Pair p;
  Answer answer;
  check(plugin_, connect(from.ctx(), addr, size, &answer, &p.tx), "connect");
  keep(p.tx);
  tutti_status tx = TUTTI_AGAIN, rx = TUTTI_AGAIN;
  const Deadline deadline = Deadline::in(kWait);
  while (tx != TUTTI_OK || rx != TUTTI_OK) {
    require(!deadline.expired(), "waited {} s for a connection: connecting side {}, accepting side {}", kWait.count(),
            status_name(tx), p.rx ? status_name(rx) : "has accepted nobody");
    if (!p.rx) {
      const tutti_status s = accept(listener, answer, &p.rx);
      if (s != TUTTI_AGAIN) check(plugin_, s, "accept");
      if (p.rx) keep(p.rx);
    }
    if (tx == TUTTI_AGAIN) tx = timed("ep_ready", [&] { return net_.ep_ready(p.tx); });
    if (p.rx && rx == TUTTI_AGAIN) rx = timed("ep_ready", [&] { return net_.ep_ready(p.rx); });
    if (tx < 0) check(plugin_, tx, "ep_ready of the connecting side");
    if (rx < 0) check(plugin_, rx, "ep_ready of the accepting side");
    from.poll();
    to.poll();
    std::this_thread::yield();
  }
  timed("listener_destroy", [&] { return net_.listener_destroy(listener), 0; });
  return p;
}

tutti_status NetBench::try_send(tutti_net_ep *ep, std::vector<tutti_net_buf> bufs, uint64_t cookie) {
  uint64_t &count = sent_[ep];
  for (size_t i = 0; i < bufs.size(); i++) bufs[i].tag = count + i;
  const auto n = static_cast<uint32_t>(bufs.size());
  const tutti_status status = timed("send", [&] { return net_.send(ep, bufs.data(), n, cookie); });
  std::memset(static_cast<void *>(bufs.data()), kCanary, n * sizeof(tutti_net_buf)); // the array is ours again
  if (status == TUTTI_OK) count += n;
  return status;
}

tutti_status NetBench::try_recv(tutti_net_ep *ep, std::vector<tutti_net_buf> bufs, uint64_t cookie, uint64_t *received) {
  uint64_t &count = received_[ep];
  for (size_t i = 0; i < bufs.size(); i++) bufs[i].tag = count + i;
  const auto n = static_cast<uint32_t>(bufs.size());
  const tutti_status status = timed("recv", [&] { return net_.recv(ep, bufs.data(), n, received, cookie); });
  std::memset(static_cast<void *>(bufs.data()), kCanary, n * sizeof(tutti_net_buf));
  if (status == TUTTI_OK) count += n;
  return status;
}

void NetBench::send(tutti_net_ep *ep, const std::vector<tutti_net_buf> &bufs, uint64_t cookie) {
  tutti_status status = TUTTI_AGAIN;
  until(
      [&] {
        status = try_send(ep, bufs, cookie);
        return status != TUTTI_AGAIN;
      },
      "room in the send queue");
  check(plugin_, status, "send");
}

void NetBench::recv(tutti_net_ep *ep, const std::vector<tutti_net_buf> &bufs, uint64_t cookie, uint64_t *received) {
  tutti_status status = TUTTI_AGAIN;
  until(
      [&] {
        status = try_recv(ep, bufs, cookie, received);
        return status != TUTTI_AGAIN;
      },
      "room in the receive queue");
  check(plugin_, status, "recv");
}

void NetBench::expect(Side &s, uint64_t cookie, tutti_status status, uint64_t bytes) {
  until([&] { return s.done(cookie).times > 0; }, fmt::format("the completion of cookie {:#x}", cookie));
  const Done &d = s.done(cookie);
  require(d.times == 1, "cookie {:#x} was reported {} times", cookie, d.times);
  require(d.last.status == status, "cookie {:#x} completed with {}, expected {}", cookie, status_name(d.last.status),
          status_name(status));
  require(status != TUTTI_OK || d.last.bytes == bytes, "cookie {:#x} completed with {} bytes, expected {}", cookie,
          d.last.bytes, bytes);
}

void NetBench::transfer(const Pair &p, uint64_t bytes, uint64_t room, uint64_t seed, size_t misalign) {
  std::vector<unsigned char> out(bytes + misalign + 1), in(room + misalign + 2 * kGuard, kCanary);
  Random(seed).fill(out.data() + misalign, bytes);
  unsigned char *at = in.data() + kGuard + misalign;
  const uint64_t cookie = 0x1000 + seed;
  recv(p.rx, {b().buf(at, room)}, cookie);
  send(p.tx, {a().buf(out.data() + misalign, bytes)}, cookie);
  expect(a(), cookie, TUTTI_OK, bytes);
  expect(b(), cookie, TUTTI_OK, bytes);
  require(std::memcmp(at, out.data() + misalign, bytes) == 0, "{} bytes arrived changed", bytes);
  for (size_t i = 0; i < in.size(); i++)
    if (in.data() + i < at || in.data() + i >= at + bytes)
      require(in[i] == kCanary, "byte {} relative to a message of {} was written", in.data() + i - at, bytes);
  a().forget();
  b().forget();
}

} // namespace tutti::conformance
