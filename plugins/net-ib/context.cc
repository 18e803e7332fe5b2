// tutti/plugins/net-ib/context.cc
#include "context.h"
#include "endpoint.h"
#include "listener.h"
#include <cerrno>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace tutti::net_ib {

using plugin::fail_errno;

constexpr uint32_t look_interval = 64; // calls of progress() between two looks at the clock
constexpr int poll_batch = 32;
constexpr auto farewell_wait = std::chrono::milliseconds(200); // for those that are left when the context is destroyed
constexpr long wake_interval_ns = 200'000'000;                 // of a sleeper whose endpoints have something to wait for
constexpr uint32_t slot_bits = 20;

Mr::Mr(Context &ctx, const tutti_region &region, bool relaxed_ordering)
    : NetObject(ctx.host()), addr_(reinterpret_cast<uint64_t>(region.addr)), bytes_(region.bytes) {
  for (const Rail &r : ctx.rails()) ports_.push_back(r.hca_index);
  keys_.reserve(ctx.hcas().size());
  for (const auto &hca : ctx.hcas()) keys_.emplace_back(ctx.verbs(), *hca, region, relaxed_ordering, ctx.settings().use_dmabuf);
}

void Mr::key(plugin::NetKey &out) const {
  ReadKey key{addr_, bytes_, static_cast<uint32_t>(ports_.size()), 0, {}};
  for (size_t i = 0; i < ports_.size(); ++i) key.rkey[i] = keys_[ports_[i]].rkey();
  out.set(key);
}

Context::Context(const Host &host, const Settings &settings, Verbs &verbs, const Device &device,
                 const tutti_net_ctx_config &config, std::function<Time()> now)
    : NetObject(host), settings_(settings), verbs_(verbs), now_(std::move(now)),
      own_(static_cast<uint32_t>(device.own.size())) {
  if (config.traffic_class >= 0) settings_.traffic_class = static_cast<uint8_t>(config.traffic_class);
  try {
    for (const Port &p : device.own) open_port(p);
    for (const Port &p : device.spare)
      if (settings_.failover && rails_.size() < max_paths) open_port(p);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (epoll_ < 0 || timer_ < 0) fail_errno(errno, "cannot make event descriptors");
    watch(timer_);
    for (const auto &hca : hcas_) {
      watch(hca->event_fd());
      if (!hca->events().watched()) watch(hca->context()->async_fd);
    }
  } catch (...) {
    if (epoll_ >= 0) close(epoll_);
    if (timer_ >= 0) close(timer_);
    throw;
  }
  ring_.resize(64);
}

Context::~Context() {
  const auto limit = std::chrono::steady_clock::now() + farewell_wait;
  try {
    while (!farewells_.empty() && std::chrono::steady_clock::now() < limit) {
      poll();
      std::erase_if(farewells_, [&](const auto &f) { return f->over(now()); });
    }
  } catch (const std::exception &e) { // the peers find out by themselves
    host().debug(e.what());
  }
  farewells_.clear();
  empty_graves();
  close(epoll_);
  close(timer_);
}

void Context::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail_errno(errno, "cannot watch a device's events");
}

void Context::open_port(const Port &port) {
  Rail rail;
  rail.port = port;
  for (; rail.hca_index < hcas_.size() && hcas_[rail.hca_index]->name() != port.device;) ++rail.hca_index;
  if (rail.hca_index == hcas_.size()) hcas_.push_back(std::make_unique<Hca>(host(), verbs_, port.device, settings_));
  rail.hca = hcas_[rail.hca_index].get();
  if (port.port < 1 || port.port > rail.hca->attributes().phys_port_cnt)
    plugin::fail(TUTTI_ERR_INVALID, port.device, " has no port ", static_cast<int>(port.port));
  rail.changes = rail.hca->events().port(port.port).changes();
  ibv_port_attr attr{};
  if (const int err = verbs_.query_port(rail.hca->context(), port.port, &attr))
    fail_errno(err, port.name(), ": ibv_query_port");
  rail.largest = std::clamp<uint32_t>(attr.max_msg_sz, 4096, 1u << 30);
  refresh(rail);
  rails_.push_back(std::move(rail));
}

bool Context::refresh(Rail &rail) {
  std::string why;
  rail.up = refresh_port(settings_, verbs_, rail.hca->context(), rail.port, why);
  if (!why.empty()) host().debug(rail.port.name(), ": ", why);
  return rail.up;
}

std::unique_ptr<Listener> Context::listen(plugin::Address &addr) {
  return std::make_unique<Listener>(*this, addr);
}

std::unique_ptr<Endpoint> Context::connect(const plugin::Address &addr, plugin::Address &answer) {
  const Card card = addr.get<Card>();
  if (!genuine(card)) plugin::fail(TUTTI_ERR_INVALID, "this is no address of a listener of net-ib");
  Card reply{};
  auto ep = std::make_unique<Endpoint>(*this, false);
  ep->connect(card, reply);
  answer.set(reply);
  return ep;
}

uint64_t Context::enter(QueuePair *qp) {
  if (free_slots_.empty()) {
    if (slots_.size() >> slot_bits) plugin::fail(TUTTI_ERR_NO_MEMORY, "more than ", 1u << slot_bits, " queue pairs");
    free_slots_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const uint32_t at = free_slots_.back();
  free_slots_.pop_back();
  slots_[at].qp = qp;
  slots_[at].generation = (slots_[at].generation + 1) & 0x7ffff; // 39 bits with the index
  return uint64_t{slots_[at].generation} << slot_bits | at;
}

void Context::leave(uint64_t slot) {
  const auto at = static_cast<uint32_t>(slot & ((1u << slot_bits) - 1));
  slots_[at].qp = nullptr;
  free_slots_.push_back(at);
}

void Context::remove(Endpoint *ep) {
  std::erase(endpoints_, ep);
}

void Context::add(std::unique_ptr<Farewell> farewell) {
  farewells_.push_back(std::move(farewell));
}

bool Context::poll(Hca &hca) {
  bool any = false;
  ibv_wc list[poll_batch];
  for (size_t i = 0; i < hca.completions().size(); ++i) { // more may be made meanwhile
    Completions &c = *hca.completions()[i];
    int n = poll_batch;
    while (n == poll_batch) {
      n = verbs_.poll_cq(c.cq, poll_batch, list);
      if (n < 0) plugin::fail(TUTTI_ERR_SYSTEM, hca.name(), ": ibv_poll_cq failed: its completions cannot be known any more");
      for (int k = 0; k < n; ++k) {
        const uint64_t slot = list[k].wr_id << 1 >> 25;
        const Slot &s = slots_[slot & ((1u << slot_bits) - 1)];
        if (s.qp && s.generation == slot >> slot_bits) s.qp->completed(list[k]);
      }
      any |= n > 0;
    }
    if (n == 0) c.used -= std::exchange(c.leaving, 0);
  }
  return any;
}

void Context::poll() {
  for (const auto &hca : hcas_) poll(*hca);
}

int32_t Context::progress(tutti_net_completion *out, uint32_t cap) {
  ++turn_;
  poll();
  if (turn_ % look_interval == 0 || std::exchange(look_, false)) look_after(now());
  for (Endpoint *ep : endpoints_) ep->pump();
  empty_graves(); // before anybody is told that a buffer is his again
  int32_t n = 0;
  Reason said;
  for (; static_cast<uint32_t>(n) < cap && count_ > 0; ++n, --count_, ++collected_) {
    const bool reasoned = !failures_.empty() && failures_.front().number == collected_;
    if (reasoned && said && failures_.front().why != said) break; // one reason for each call of progress()
    out[n] = ring_[first_++ & (ring_.size() - 1)];
    if (!reasoned) continue;
    said = std::move(failures_.front().why);
    failures_.pop_front();
    host().set_error(out[n].status, said->c_str()); // again: the endpoint may have failed in an earlier call
  }
  return n;
}

void Context::look_after(Time now) {
  for (const auto &hca : hcas_) hear(*hca);
  for (Endpoint *ep : endpoints_) ep->look_after(now);
  std::erase_if(farewells_, [&](const auto &f) { return f->over(now); });
}

void Context::hear(Hca &hca) {
  DeviceEvents &events = hca.events();
  events.poll();
  for (Rail &r : rails_) {
    if (r.hca != &hca) continue;
    const PortState &state = events.port(r.port.port);
    const bool was = r.up;
    if (r.changes == state.changes()) continue;
    r.changes = state.changes();
    r.up = state.active() && refresh(r);
    if (r.up != was)
      for (Endpoint *ep : endpoints_) ep->rail_changed(r, r.up);
  }
  if (events.dead())
    for (Endpoint *ep : endpoints_) ep->device_failed(hca, events.reason());
  for (const DeviceEvents::Broken &b : events.take_broken())
    for (Endpoint *ep : endpoints_) ep->queue_failed(hca, b.qp_num, b.reason);
}

bool Context::arm() {
  for (const auto &hca : hcas_) hca->arm();
  look_ = true;
  for (const auto &hca : hcas_)
    if (poll(*hca)) return false;
  if (count_ > 0) return false;
  itimerspec wake{};
  if (std::any_of(endpoints_.begin(), endpoints_.end(), [](const Endpoint *ep) { return ep->waits(); }) || !farewells_.empty())
    wake.it_value.tv_nsec = wake_interval_ns;
  timerfd_settime(timer_, 0, &wake, nullptr); // also takes back what it said before
  return true;
}

void Context::reserve_completions(size_t more) {
  reserved_ += more;
  grow(count_ + reserved_);
}

void Context::grow(size_t completions) {
  const size_t want = std::bit_ceil(completions);
  if (want <= ring_.size()) return;
  std::vector<tutti_net_completion> grown(want);
  for (size_t i = 0; i < count_; ++i) grown[i] = ring_[(first_ + i) & (ring_.size() - 1)];
  ring_ = std::move(grown);
  first_ = 0;
}

void Context::complete(uint64_t cookie, uint64_t bytes, tutti_status status, const Reason &why) {
  if (count_ == ring_.size()) grow(2 * count_); // nobody collects: rather grow than lose one
  if (why) failures_.push_back({collected_ + count_, why});
  ring_[(first_ + count_++) & (ring_.size() - 1)] = {cookie, bytes, status, 0};
}

void describe_limits(const Settings &settings, uint64_t largest_message_of_ports, tutti_net_dev &out) {
  out.max_message_bytes = std::min(max_message, max_pieces * largest_message_of_ports);
  out.max_inflight = std::min(settings.max_inflight, max_calls);
  out.max_batch = max_batch;
  out.flags |= TUTTI_NET_NEEDS_MR | TUTTI_NET_ANSWERS;
}

} // namespace tutti::net_ib
