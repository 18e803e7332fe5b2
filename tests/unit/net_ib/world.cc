#include "world.h"
#include <cstring>

namespace tutti::net_ib::test {
namespace {

Core &self(const tutti_host *h) {
  return *static_cast<Core *>(h->impl);
}
int32_t log_enabled(const tutti_host *, tutti_log_level) noexcept {
  return 1;
}
void log(const tutti_host *h, tutti_log_level, const char *text) noexcept {
  self(h).log += std::string(text) + "\n";
}
void set_error(const tutti_host *h, tutti_status, const char *text) noexcept {
  if (self(h).error.empty()) self(h).error = text;
  self(h).last = text;
}
const void *get_iface(const tutti_host *, const char *id) noexcept {
  static constexpr tutti_host_diag_v1 diag = {sizeof(tutti_host_diag_v1), 0, log_enabled, log, set_error};
  return std::strcmp(id, TUTTI_HOST_DIAG) == 0 ? &diag : nullptr;
}

Port port_of(const DoubleDevice &d) {
  Port p;
  p.device = d.name;
  p.ethernet = true;
  p.gid_index = 0;
  p.gid = d.ports[0].gid;
  p.gid_text = gid_text(p.gid);
  p.mtu = d.ports[0].mtu;
  return p;
}

Settings plain() {
  Settings s;
  s.roce_version = 2;
  s.split_min = 4096;
  s.inline_bytes = 128;
  s.retry_count = 3;
  s.max_inflight = 16;
  s.connect_timeout = std::chrono::seconds(20);
  s.link_down_timeout = std::chrono::seconds(3);
  return s;
}

} // namespace

Core::Core() : host_{sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, this, get_iface} {}

std::vector<std::string> names(const std::string &prefix, size_t n) {
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i) out.push_back(prefix + std::to_string(i));
  return out;
}

Process::Process(test::Machine &host, Core &core, size_t rails, const Settings &settings, std::function<Time()> now)
    : home(host) {
  Device device;
  device.name = host.name;
  for (size_t i = 0; i < host.devices.size(); ++i) (i < rails ? device.own : device.spare).push_back(port_of(host.devices[i]));
  const tutti_net_ctx_config config = {sizeof config, -1, 1, 0, 2, 0, 0};
  ctx = std::make_unique<Context>(core.host(), settings, host.verbs, device, config, std::move(now));
}

int32_t Process::progress(uint32_t cap) {
  tutti_net_completion out[64];
  const int32_t n = ctx->progress(out, std::min(cap, 64u));
  for (int32_t i = 0; i < n; ++i) done[out[i].cookie].push_back(out[i]);
  return n;
}

tutti_net_buf Process::buf(void *p, uint64_t n) {
  tutti_region region{};
  region.struct_size = sizeof region;
  region.kind = TUTTI_MEM_HOST;
  region.addr = p;
  region.bytes = std::max<uint64_t>(n, 1);
  region.device = region.dmabuf_fd = -1;
  mrs.push_back(ctx->mr_register(region));
  return {p, n, reinterpret_cast<tutti_net_mr *>(mrs.back().get()), 0};
}

World::World(const Options &o) : fabric(o.seed), settings(plain()) {
  o.settings(settings);
  Machine &ha = fabric.host("a", names("a", o.rails + o.spares));
  Machine &hb = fabric.host("b", names("b", o.rails + o.spares));
  o.fabric(fabric);
  a.emplace(ha, core, o.rails, settings, [this] { return now; });
  b.emplace(hb, core, o.rails, settings, [this] { return now; });
}

void World::rebuild(std::optional<Process> &p, size_t rails, const Settings &with) {
  Machine &home = p->home;
  p.reset();
  home.devices.resize(rails);
  p.emplace(home, core, rails, with, [this] { return now; });
}

World::~World() {
  tx.reset();
  rx.reset();
  for (int i = 0; i < 200; ++i) turn();
}

void World::connect(std::unique_ptr<Endpoint> &out_tx, std::unique_ptr<Endpoint> &out_rx) {
  plugin::Address addr, answer;
  std::unique_ptr<Listener> listener = b->ctx->listen(addr);
  CHECK(listener->accept({}) == nullptr);
  out_tx = a->ctx->connect(addr, answer);
  out_rx = listener->accept(answer);
  REQUIRE(out_rx);
  listener.reset();
  REQUIRE(until([&] {
    const bool r = out_rx->ready(), t = out_tx->ready();
    return r && t;
  }));
}

void World::turn(int steps) {
  fabric.run(steps);
  if (a && fabric.below(4)) a->progress();
  fabric.run(steps);
  if (b && fabric.below(4)) b->progress();
  now += std::chrono::milliseconds(1);
}

bool World::until(const std::function<bool()> &ready, int turns) {
  for (int i = 0; i < turns; ++i) {
    if (ready()) return true;
    turn();
  }
  return false;
}

tutti_status World::send(void *p, uint64_t n, uint64_t cookie) {
  const tutti_net_buf buf = a->buf(p, n);
  return tx->send(&buf, 1, cookie);
}

tutti_status World::recv(void *p, uint64_t n, uint64_t cookie, uint64_t *got) {
  const tutti_net_buf buf = b->buf(p, n);
  return rx->recv(&buf, 1, got, cookie);
}

} // namespace tutti::net_ib::test
