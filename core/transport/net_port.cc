#include "transport/net_port.h"
#include "log/log.h"
#include "plugin/guard.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>

namespace tutti {
namespace {

constexpr uint32_t kBatch = 32; // completions per look
// A peer that fails says why over the control channel and then closes its links, and one that got a longer message than it
// waited for asks what was called: the reason should come first.
constexpr auto kReasonTime = std::chrono::milliseconds(500);

std::string_view name_of(const tutti_net_dev &d) {
  return {d.name, ::strnlen(d.name, sizeof d.name)};
}
std::string listed(const std::vector<tutti_net_dev> &devices) {
  std::string names;
  for (const tutti_net_dev &d : devices) names += fmt::format("{}{}", names.empty() ? "is: " : ", ", name_of(d));
  return names.empty() ? "is none" : names;
}

} // namespace

NetPort::NetPort(Transport &transport, Iface<tutti_net_v1> net)
    : transport_(transport), net_(net), connect_timeout_(transport.config().duration("core.connect_timeout")) {}

Result<std::unique_ptr<NetPort>> NetPort::create(Transport &transport, Iface<tutti_net_v1> net) {
  auto port = std::unique_ptr<NetPort>(new NetPort(transport, net));
  const auto turn = plugin_setup(net.plugin);
  uint32_t count = 0;
  if (const tutti_status s = guarded(net.plugin, "device_count", net.table->device_count, port->state(), &count); s < 0)
    return plugin_error(*net.plugin, s, "listing devices");
  if (count == 0) {
    log::info(log::Subsys::net, "net {}: no usable device", net.table->name);
    return std::unique_ptr<NetPort>();
  }
  port->checksums_ = transport.config().flag("net.checksum");
  port->rma_ = net.plugin ? static_cast<const tutti_net_rma_v1 *>(net.plugin->iface(TUTTI_NET_RMA)) : nullptr;
  return port;
}

Result<std::vector<tutti_net_dev>> NetPort::survey() const {
  uint32_t count = 0;
  if (const tutti_status s = guarded(net_.plugin, "device_count", net_.table->device_count, state(), &count); s < 0)
    return plugin_error(*net_.plugin, s, "listing devices");
  std::vector<tutti_net_dev> all(count);
  for (uint32_t i = 0; i < count; i++) {
    all[i].struct_size = sizeof all[i];
    if (const tutti_status s = guarded(net_.plugin, "device_info", net_.table->device_info, state(), i, &all[i]); s < 0)
      return plugin_error(*net_.plugin, s, fmt::format("asking about device {}", i));
  }
  return all;
}

Status NetPort::open(const NetRoutes &routes) {
  routes_ = routes;
  const auto turn = plugin_setup(net_.plugin); // until all are open: their numbers hold as long
  TUTTI_ASSIGN(all, survey());
  const auto open = [&](auto found) { return open_device(static_cast<uint32_t>(found - all.begin()), *found); };
  for (const std::string &wanted : routes.devices()) {
    const auto at = std::find_if(all.begin(), all.end(), [&](const tutti_net_dev &d) { return name_of(d) == wanted; });
    if (at == all.end())
      return fail(Code::system, "net {}: device {}, which channels go by, is not there any more; there {}", net_.table->name,
                  wanted, listed(all))
          .phase("connect")
          .hint("its port may have gone down while the communicator was set up");
    TUTTI_TRY(open(at));
  }
  if (routes.devices().empty()) {
    if (all.empty()) return fail(Code::system, "net {}: no device is left", net_.table->name).phase("connect");
    const auto far =
        std::find_if(all.begin(), all.end(), [](const tutti_net_dev &d) { return !(d.flags & TUTTI_NET_LOOPBACK); });
    TUTTI_TRY(open(far == all.end() ? all.begin() : far));
  }
  return devices_.size() > 1 ? watch_events() : Status();
}

Status NetPort::open_device(uint32_t number, const tutti_net_dev &info) {
  auto device = std::make_unique<NetDevice>();
  device->number = number;
  device->info = info;
  Bootstrap &b = transport_.bootstrap();
  tutti_net_ctx_config config{};
  config.struct_size = sizeof config;
  config.traffic_class = static_cast<int32_t>(transport_.config().number("net.traffic_class"));
  config.comm_id = b.comm_id();
  config.rank = b.rank();
  config.nranks = b.nranks();
  if (transport_.config().text("core.security") == "encrypted") {
    if (!encrypts(device->info))
      return fail(Code::invalid_usage, "{}: {} does not encrypt, and core.security is \"encrypted\"", net_.table->name,
                  device->info.name)
          .phase("connect");
    config.flags = device->info.flags & TUTTI_NET_ENCRYPTS ? uint32_t{TUTTI_NET_ENCRYPT} : 0;
  }
  if (const tutti_status s = guarded(net_.plugin, "ctx_create", net_.table->ctx_create, state(), number, &config, &device->ctx);
      s < 0)
    return plugin_error(*net_.plugin, s, fmt::format("opening device {}", device->info.name));
  if (device->needs_mr() || rma_) device->cache = make_cache(*device);
  device->at_start = read_counters(net_.plugin, number);
  devices_.push_back(std::move(device));
  open_++;
  return {};
}

// A plugin without descriptors is polled.
Status NetPort::watch_events() {
  const tutti_net_v1 &t = *net_.table;
  if (!TUTTI_HAS(tutti_net_v1, &t, event_fd) || !TUTTI_HAS(tutti_net_v1, &t, arm)) return {};
  UniqueFd all(::epoll_create1(EPOLL_CLOEXEC));
  if (!all) return fail_errno(errno, "making a descriptor for the events of several network devices");
  for (const auto &device : devices_) {
    int32_t fd = -1;
    if (t.event_fd(device->ctx, &fd) != TUTTI_OK) return {};
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(all.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return fail_errno(errno, fmt::format("watching the events of {}", device->info.name));
  }
  events_ = std::move(all);
  open_++;
  return {};
}

NetPort::~NetPort() {
  close();
}

void NetPort::close() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true) || devices_.empty()) return;
  }
  const tutti_net_v1 &t = *net_.table;
  for (const auto &link : links_) {
    if (link->ep) t.ep_destroy(link->ep);
    if (link->listener) t.listener_destroy(link->listener);
    link->ep = nullptr;
    link->listener = nullptr;
  }
  tutti_net_completion done[kBatch];
  for (const auto &device : devices_)
    for (const Deadline patience = Deadline::in(kCloseTime);
         guarded_up_to(kBatch, net_.plugin, "progress", t.progress, device->ctx, done, kBatch) > 0 && !patience.expired();) {
    }
  for (const auto &link : links_)
    for (NetStage *stage : {&link->small, &link->large, &link->fetched})
      if (stage->mr) t.mr_release(std::exchange(stage->mr, nullptr));
  for (const auto &device : devices_) device->cache.reset();
  events_.reset();
  const auto turn = plugin_setup(net_.plugin);
  for (const auto &device : devices_) t.ctx_destroy(device->ctx);
  std::lock_guard lock(mutex_);
  devices_.clear();
  open_ = 0;
}

Error NetPort::error_of(int peer, tutti_status status, std::string_view doing) const {
  const Status s = plugin_error(*net_.plugin, status, doing);
  Error e = s.ok() ? Error{} : s.error();
  e.peer = peer;
  e.endpoint = describe(peer);
  if (status == TUTTI_ERR_REMOTE) e.code = Code::remote;
  return e;
}

std::string NetPort::risen(const NetDevice &device) const {
  const auto turn = plugin_setup(net_.plugin);
  tutti_net_dev now{}; // devices may have come and gone, with what their numbers mean
  now.struct_size = sizeof now;
  if (guarded(net_.plugin, "device_info", net_.table->device_info, state(), device.number, &now) < 0 ||
      std::strcmp(now.name, device.info.name) != 0)
    return {};
  return risen_counters(device.at_start, read_counters(net_.plugin, device.number));
}

void NetPort::raise(const NetDevice &device, Error error, tutti_status status) {
  if (std::exchange(broken_, true)) return;
  if (const std::string counted = risen(device); !counted.empty())
    error.hint += fmt::format("{}since this communicator began {} has counted {}", error.hint.empty() ? "" : "; ",
                              device.info.name, counted);
  if (status != TUTTI_ERR_REMOTE && status != TUTTI_ERR_TRUNCATED) return transport_.report(error);
  late_ = std::move(error);
  late_until_ = Clock::now() + kReasonTime;
}

void NetPort::fault(const NetDevice &device, int peer, tutti_status status, std::string_view doing) {
  if (!broken_) raise(device, error_of(peer, status, doing), status);
}

Status NetPort::prepare(RingCold &ring) {
  const auto index = static_cast<size_t>(std::max(0, routes_.device(ring.geometry.route, ring.conn, ring.sending)));
  std::lock_guard lock(mutex_);
  if (closed_ || index >= devices_.size()) // by another thread, which knows why
    return fail(Code::remote, "the links over net {} have ended", net_.table->name).peer(ring.peer).phase("connect");
  NetDevice &device = *devices_[index];
  if (ring.geometry.slot_bytes > device.info.max_message_bytes)
    return fail(Code::invalid_argument, "slots of {} bytes are larger than a message of {} can be ({} bytes)",
                ring.geometry.slot_bytes, device.info.name, device.info.max_message_bytes)
        .peer(ring.peer)
        .phase("connect");
  auto link = std::make_unique<NetLink>();
  link->ring = &ring;
  link->device = &device;
  size_calls(*link);
  ring.ring.net = link.get();
  links_.push_back(std::move(link));
  return {};
}

void NetPort::ask_listen(RingCold &ring) {
  std::lock_guard lock(mutex_);
  to_listen_.push_back(&ring);
  asked_.store(true, std::memory_order_release);
}

void NetPort::set_address(RingCold &ring, std::span<const std::byte> address) {
  ring.ring.net->address.assign(address.begin(), address.end());
}

void NetPort::set_answer(RingCold &ring, std::span<const std::byte> answer) {
  NetLink &link = *ring.ring.net;
  if (link.answered.load(std::memory_order_relaxed) || answer.size() > TUTTI_NET_ADDR_BYTES) return; // no peer of ours
  link.answer.assign(answer.begin(), answer.end());
  link.answered.store(true, std::memory_order_release);
}

void NetPort::start_listen(RingCold &ring) {
  NetLink &link = *ring.ring.net;
  if (link.listener || link.ep) return;
  std::byte address[TUTTI_NET_ADDR_BYTES];
  uint32_t bytes = sizeof address;
  const tutti_status s = guarded(net_.plugin, "listen", net_.table->listen, link.device->ctx, address, &bytes, &link.listener);
  if (s < 0) return fault(*link.device, ring.peer, s, fmt::format("listening for rank {}", ring.peer));
  open_++;
  opening_.push_back(&link);
  transport_.send_net_grant(ring, std::span(address, std::min<size_t>(bytes, sizeof address)));
}

bool NetPort::accept(NetLink &link) {
  const bool wants = link.device->info.flags & TUTTI_NET_ANSWERS;
  if (wants && !link.answered.load(std::memory_order_acquire)) return false;
  const tutti_status s = guarded(net_.plugin, "accept", net_.table->accept, link.listener, wants ? link.answer.data() : nullptr,
                                 wants ? static_cast<uint32_t>(link.answer.size()) : 0, &link.ep);
  if (s == TUTTI_AGAIN) return false;
  if (s < 0) {
    fault(*link.device, link.ring->peer, s, fmt::format("accepting rank {}", link.ring->peer));
    return false;
  }
  net_.table->listener_destroy(std::exchange(link.listener, nullptr));
  return true;
}

bool NetPort::became_ready(NetLink &link) {
  if (!link.ep && !(link.listener && accept(link))) return false;
  const tutti_status s = guarded(net_.plugin, "ep_ready", net_.table->ep_ready, link.ep);
  if (s == TUTTI_AGAIN) {
    if (link.connecting && Clock::now() - *link.connecting >= connect_timeout_) give_up_connecting(link);
    return false;
  }
  if (s < 0) {
    fault(*link.device, link.ring->peer, s, fmt::format("connecting with rank {}", link.ring->peer));
    return false;
  }
  link.ready = true;
  char text[256] = "";
  if (net_.table->ep_describe(link.ep, text, sizeof text) == TUTTI_OK) {
    std::lock_guard lock(mutex_);
    texts_[{link.ring->peer, link.device->number}] = text;
  }
  return true;
}

void NetPort::give_up_connecting(NetLink &link) {
  const int peer = link.ring->peer;
  Error e;
  e.code = Code::timeout;
  e.peer = peer;
  e.phase = "connect";
  e.endpoint = describe(peer);
  e.message = fmt::format("{}: no connection with rank {} within {} ms", e.endpoint, peer,
                          std::chrono::duration_cast<std::chrono::milliseconds>(connect_timeout_).count());
  e.hint = "see core.connect_timeout (TUTTI_CONNECT_TIMEOUT); is a firewall between the hosts?";
  raise(*link.device, std::move(e), TUTTI_ERR_TIMEOUT);
}

bool NetPort::connect(RingCold &ring) {
  NetLink &link = *ring.ring.net;
  if (broken_) return false;
  if (!link.ep && !open_connection(link)) return false;
  if (!link.ready) return false;
  ring.state.store(3, std::memory_order_relaxed);
  return true;
}

bool NetPort::open_connection(NetLink &link) {
  const int peer = link.ring->peer;
  std::byte answer[TUTTI_NET_ADDR_BYTES];
  uint32_t bytes = sizeof answer;
  const tutti_status s = guarded(net_.plugin, "connect", net_.table->connect, link.device->ctx, link.address.data(),
                                 static_cast<uint32_t>(link.address.size()), answer, &bytes, &link.ep);
  if (s < 0) {
    fault(*link.device, peer, s, fmt::format("connecting to rank {}", peer));
    return false;
  }
  open_++;
  link.connecting = Clock::now();
  opening_.push_back(&link);
  if (bytes) transport_.send_net_answer(*link.ring, std::span(answer, std::min<size_t>(bytes, sizeof answer)));
  return true;
}

bool NetPort::progress() {
  if (late_ && Clock::now() >= late_until_) transport_.report(*std::exchange(late_, std::nullopt));
  if (broken_ || devices_.empty()) return false;
  bool moved = false;
  if (asked_.load(std::memory_order_relaxed)) {
    std::vector<RingCold *> rings;
    {
      std::lock_guard lock(mutex_);
      rings.swap(to_listen_);
      for (NetLink *l : std::exchange(paired_, {})) (l->ring->sending ? lenders_ : readers_).push_back(l);
      asked_.store(false, std::memory_order_relaxed);
    }
    for (RingCold *r : rings) start_listen(*r);
    moved = true;
  }
  if (!opening_.empty()) moved |= std::erase_if(opening_, [this](NetLink *l) { return became_ready(*l); }) != 0;
  for (const auto &device : devices_) {
    tutti_net_completion done[kBatch];
    const int32_t n = guarded_up_to(kBatch, net_.plugin, "progress", net_.table->progress, device->ctx, done, kBatch);
    if (n < 0) {
      fault(*device, -1, n, fmt::format("driving device {}", device->info.name));
      return false;
    }
    for (int32_t i = 0; i < n; i++) complete(done[i]);
    moved |= n > 0;
  }
  if (!lenders_.empty() || !readers_.empty()) moved |= settle();
  if (backlog_.empty()) return moved;
  std::erase_if(backlog_, [&](NetLink *l) {
    while (l->unposted < l->ring->ring.seq && post_send(*l, l->call(l->unposted))) moved = true;
    return l->unposted == l->ring->ring.seq;
  });
  return moved;
}

std::string NetPort::describe(int peer) const {
  std::lock_guard lock(mutex_);
  std::string ways;
  for (auto it = texts_.lower_bound({peer, 0}); it != texts_.end() && it->first.first == peer; ++it)
    ways += fmt::format("{}{}", ways.empty() ? "" : ", ", it->second);
  if (ways.empty())
    for (const auto &device : devices_) ways += fmt::format("{}{}", ways.empty() ? "" : ", ", device->info.name);
  return fmt::format("net {} {}", net_.table->name, ways);
}

int NetPort::wait_fd() {
  const tutti_net_v1 &t = *net_.table;
  if (broken_ || !opening_.empty() || !TUTTI_HAS(tutti_net_v1, &t, event_fd) || !TUTTI_HAS(tutti_net_v1, &t, arm)) return -1;
  int32_t fd = events_.get();
  if (devices_.size() == 1 && t.event_fd(devices_.front()->ctx, &fd) != TUTTI_OK) return -1;
  if (fd < 0) return -1;
  for (const auto &device : devices_) {
    const tutti_status s = t.arm(device->ctx);
    if (s != TUTTI_OK) return s == TUTTI_AGAIN ? kEventsWaiting : -1;
  }
  return fd;
}

} // namespace tutti
