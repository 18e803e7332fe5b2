// tutti/plugins/net-socket/context.cc
#include "context.h"
#include "connector.h"
#include "listener.h"
#include "reception.h"
#include <bit>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

namespace tutti::net_socket {

constexpr size_t polled_directly = 4;     // up to so many busy endpoints, trying a socket is cheaper than asking epoll first
constexpr uint32_t pending_interval = 16; // connections being set up are looked at every so many calls
constexpr uint32_t clock_interval = 1024; // and the clock every so many
constexpr auto link_interval = std::chrono::seconds(1);
constexpr long sleep_ms = 5; // while something is to be done that no descriptor tells of

Context::Context(const Host &host, const Settings &settings, std::vector<Device> devices, const tutti_net_ctx_config &config)
    : NetObject(host), settings_(settings), devices_(std::move(devices)), epoll_(epoll_create1(EPOLL_CLOEXEC)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !event_) plugin::fail_errno(errno, "cannot make event descriptors");
  settings_.traffic_class = config.traffic_class;
  if (config.flags & TUTTI_NET_ENCRYPT) encryption_.emplace(Encryption{host, host.need<tutti_host_tls_v1>(TUTTI_HOST_TLS)});
  watch(event_, &event_watch_);
  ring_.resize(64);
  if (settings_.threads) helpers_ = std::make_unique<Helpers>(settings_.threads);
}

Context::~Context() = default;

std::unique_ptr<Listener> Context::listen(plugin::Address &addr) {
  return std::make_unique<Listener>(*this, addr);
}

std::unique_ptr<Endpoint> Context::connect(const plugin::Address &addr) {
  return make_sender(*this, addr.get<Blob>());
}

std::unique_ptr<Mr> Context::mr_register(const tutti_region &region) {
  if (region.kind != TUTTI_MEM_HOST) plugin::unsupported("sockets move host memory only, not memory kind ", region.kind);
  return std::make_unique<Mr>();
}

void Context::watch(Fd &fd, Watched *target) {
  if (const int err = fd.watch(epoll_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, target))
    plugin::fail_errno(err, "cannot watch a socket");
}

bool Context::collect_events() {
  epoll_event events[64];
  int n = 0;
  bool any = false;
  do {
    n = epoll_wait(epoll_.get(), events, 64, 0);
    any |= n > 0;
    for (int i = 0; i < n; ++i) {
      auto *w = static_cast<Watched *>(events[i].data.ptr);
      if (events[i].events & ~static_cast<uint32_t>(EPOLLOUT)) w->readable = true;
      if (events[i].events & ~static_cast<uint32_t>(EPOLLIN)) w->writable = true;
      if (events[i].events & (EPOLLERR | EPOLLHUP)) w->broken = broken_ = true;
    }
  } while (n == 64);
  return any;
}

const Device &Context::device_towards(const Address &peer) const {
  for (const Device &d : devices_)
    for (const Address &a : d.interface.addresses)
      if (same_network(a, peer)) return d;
  return devices_.front();
}

// Of an endpoint that has nothing posted nobody would notice otherwise, and the peer may wait for it to come back.
void Context::look_for_broken() {
  broken_ = false;
  for (Endpoint *ep : std::vector<Endpoint *>(all_)) ep->look_if_broken();
}

uint16_t Context::resume_port(const Address &at) {
  if (settings_.reconnect.count() == 0) return 0;
  if (!reception_) reception_ = std::make_unique<Reception>(*this);
  return reception_->listen(at);
}

void Context::lost(const std::shared_ptr<Wire> &wire, int err) {
  wire->lost = err;
  wires_.leave(wire);
  for (Endpoint *ep : std::vector<Endpoint *>(all_)) ep->wire_lost(wire.get(), err);
}

void Context::gone(const Identity &peer, const std::string &why) {
  for (Endpoint *ep : std::vector<Endpoint *>(all_)) ep->peer_gone(peer, why);
}

void Context::look_for_dead_links() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < link_interval) return;
  looked_ = now;
  wires_.drop_closed();
  for (Endpoint *ep : std::vector<Endpoint *>(all_)) ep->check_link();
}

void Context::drive_pending() {
  // drive() may remove the entry itself.
  for (size_t i = pending_.size(); i-- > 0;)
    if (i < pending_.size()) pending_[i]->drive();
}

// What is not due at every turn.
void Context::look_around() {
  look_for_dead_links();
  if (active_.size() <= polled_directly) collect_events();
  if (broken_) look_for_broken();
  if (reception_ && reception_->waits()) reception_->drive();
}

int32_t Context::progress(tutti_net_completion *out, uint32_t cap) {
  ++turn_;
  const bool due = std::exchange(due_, false);
  if (!pending_.empty() && (due || turn_ % pending_interval == 0)) drive_pending();
  if (due || turn_ % clock_interval == 0) look_around();
  const bool direct = active_.size() <= polled_directly;
  if (!direct) collect_events();
  // Backwards: pump() may take its endpoint off the list, which moves the last one, already visited, into its place.
  for (size_t i = active_.size(); i-- > 0;)
    if (direct || active_[i]->may_move()) active_[i]->pump();
  int32_t n = 0;
  for (; static_cast<uint32_t>(n) < cap && count_ > 0; ++n, --count_) out[n] = ring_[first_++ & (ring_.size() - 1)];
  return n;
}

bool Context::arm() {
  // Edges seen here would not wake the sleeper any more; those after this will.
  armed_.store(true, std::memory_order_seq_cst);
  if (event_watch_.readable) {
    uint64_t count;
    [[maybe_unused]] const ssize_t n = read(event_.get(), &count, sizeof count);
  }
  const bool seen = collect_events();
  // Connections being set up take their steps in progress() and accept(): look there once more before sleeping.
  due_ = true;
  const bool ready = count_ > 0 || (seen && !pending_.empty()) || broken_ || (seen && reception_ && reception_->waits()) ||
                     std::any_of(active_.begin(), active_.end(), [](Endpoint *e) { return e->may_move(); });
  if (ready)
    armed_.store(false, std::memory_order_relaxed);
  else if (!pending_.empty() || std::any_of(all_.begin(), all_.end(), [](Endpoint *e) { return e->needs_time(); }))
    wake_again();
  return !ready;
}

void Context::wake_again() {
  if (!timer_) {
    timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!timer_) return; // the core looks again by itself, later
    watch(timer_, &timer_watch_);
  }
  const itimerspec in{{0, 0}, {0, sleep_ms * 1000000}};
  timerfd_settime(timer_.get(), 0, &in, nullptr);
}

void Context::notify() {
  if (!armed_.exchange(false, std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof one);
}

void Context::activate(Endpoint *ep) {
  if (ep->active_at != Endpoint::inactive) return;
  ep->active_at = active_.size();
  active_.push_back(ep);
}

void Context::deactivate(Endpoint *ep) {
  if (ep->active_at == Endpoint::inactive) return;
  active_[ep->active_at] = active_.back();
  active_[ep->active_at]->active_at = ep->active_at;
  active_.pop_back();
  ep->active_at = Endpoint::inactive;
}

void Context::reserve_completions(size_t more) {
  active_.reserve(++reserved_);
  const size_t want = std::bit_ceil(count_ + reserved_ * more + more);
  if (want <= ring_.size()) return;
  std::vector<tutti_net_completion> grown(want);
  for (size_t i = 0; i < count_; ++i) grown[i] = ring_[(first_ + i) & (ring_.size() - 1)];
  ring_ = std::move(grown);
  first_ = 0;
}

void Context::complete(uint64_t cookie, uint64_t bytes, tutti_status status) {
  if (count_ == ring_.size()) reserve_completions(ring_.size()); // nobody collects: rather grow than lose one
  ring_[(first_ + count_++) & (ring_.size() - 1)] = {cookie, bytes, status, 0};
}

} // namespace tutti::net_socket
