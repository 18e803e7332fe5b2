// tutti/plugins/net-ib/events.cc
#include "events.h"
#include <cerrno>

namespace tutti::net_ib {

using plugin::text;

namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool of_port(ibv_event_type type) {
  switch (type) {
  case IBV_EVENT_PORT_ACTIVE:
  case IBV_EVENT_PORT_ERR:
  case IBV_EVENT_LID_CHANGE:
  case IBV_EVENT_PKEY_CHANGE:
  case IBV_EVENT_SM_CHANGE:
  case IBV_EVENT_CLIENT_REREGISTER:
  case IBV_EVENT_GID_CHANGE:
    return true;
  default:
    return false;
  }
}

} // namespace

DeviceEvents::DeviceEvents(const Host &host, Verbs &verbs, ibv_context *context, std::string device, uint8_t ports,
                           const Settings &settings)
    : host_(host), verbs_(verbs), context_(context), device_(std::move(device)), fatal_counts_(settings.return_async_events),
      port_count_(ports), ports_(std::make_unique<PortState[]>(ports)) {
  const auto *watch = host_.service<tutti_host_watch_v1>(TUTTI_HOST_WATCH);
  // Watched before it is asked, and asked before an event is handled: no change between the two is missed.
  const std::lock_guard lock(reading_);
  if (watch && watch->add(host_.c(), context_->async_fd, TUTTI_WATCH_READ, on_ready, this) == TUTTI_OK) watch_ = watch;
  for (uint8_t p = 1; p <= ports; p++) {
    ibv_port_attr attr{};
    if (verbs_.query_port(context_, p, &attr) == 0 && attr.state != IBV_PORT_ACTIVE && attr.state != IBV_PORT_ACTIVE_DEFER)
      set_port(p, false, nullptr);
  }
}

DeviceEvents::~DeviceEvents() {
  if (watch_) watch_->remove(host_.c(), context_->async_fd);
}

std::string DeviceEvents::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

std::vector<DeviceEvents::Broken> DeviceEvents::take_broken() {
  if (!any_broken()) return {};
  const std::lock_guard lock(mutex_);
  broken_count_.store(0, std::memory_order_release);
  return std::exchange(broken_, {});
}

void DeviceEvents::on_ready(void *self, uint32_t) {
  static_cast<DeviceEvents *>(self)->read();
}

void DeviceEvents::poll() {
  // The descriptor of a lost device stays readable for ever.
  if (lost_.load(std::memory_order_acquire)) {
    if (watch_) std::exchange(watch_, nullptr)->remove(host_.c(), context_->async_fd);
    return;
  }
  if (!watch_) read();
}

void DeviceEvents::read() {
  const std::lock_guard lock(reading_);
  while (!lost_.load(std::memory_order_relaxed)) {
    ibv_async_event event{};
    if (verbs_.get_async_event(context_, &event) != 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      kill(text("its events cannot be read any more (", std::generic_category().message(errno), "): it was removed"));
      lost_.store(true, std::memory_order_release);
      return;
    }
    handle(event);
    verbs_.ack_async_event(&event); // a queue pair or completion queue that is being destroyed waits for this
  }
}

void DeviceEvents::handle(const ibv_async_event &event) {
  const ibv_event_type type = event.event_type;
  if (of_port(type)) return handle_port(type, event.element.port_num);
  switch (type) {
  case IBV_EVENT_QP_FATAL:
    return add_broken(event.element.qp->qp_num, "the device found an error of its own in it");
  case IBV_EVENT_QP_REQ_ERR:
    return add_broken(event.element.qp->qp_num, "the peer's request was invalid");
  case IBV_EVENT_QP_ACCESS_ERR:
    return add_broken(event.element.qp->qp_num, "the peer wanted memory that it may not access");
  case IBV_EVENT_CQ_ERR:
    return add_broken(0, "a completion queue overflowed or broke");
  case IBV_EVENT_DEVICE_FATAL:
    return kill("the device reported a fatal error; its driver resets it, and what was open is lost");
  default: // COMM_EST and the like need no answer
    host_.debug(device_, ": event ", static_cast<int>(type));
  }
}

void DeviceEvents::handle_port(ibv_event_type type, int number) {
  if (number < 1 || number > port_count_) return;
  PortState &port = ports_[static_cast<size_t>(number - 1)];
  switch (type) {
  case IBV_EVENT_PORT_ACTIVE:
    return set_port(static_cast<uint8_t>(number), true, "is active again");
  case IBV_EVENT_PORT_ERR:
    return set_port(static_cast<uint8_t>(number), false, "went down");
  default:
    break;
  }
  port.changes_.fetch_add(1, std::memory_order_release);
  host_.debug(device_, ":", number, ": ",
              type == IBV_EVENT_GID_CHANGE    ? "its GID table changed"
              : type == IBV_EVENT_LID_CHANGE  ? "its LID changed"
              : type == IBV_EVENT_PKEY_CHANGE ? "its partition keys changed"
              : type == IBV_EVENT_SM_CHANGE   ? "the subnet manager moved"
                                              : "the subnet manager wants everybody to register again");
}

// `what` is null for what was found at the start.
void DeviceEvents::set_port(uint8_t number, bool active, const char *what) {
  PortState &port = ports_[number - 1u];
  const int64_t since = port.down_since_.load(std::memory_order_relaxed);
  if (active == (since == 0)) return;
  const int64_t now = now_ns();
  port.down_since_.store(active ? 0 : now, std::memory_order_release);
  port.changes_.fetch_add(1, std::memory_order_release);
  if (!what) return;
  if (active)
    host_.warn(device_, ":", static_cast<int>(number), " ", what, " after ", (now - since) / 1000000, " ms");
  else
    host_.warn(device_, ":", static_cast<int>(number), " ", what);
}

void DeviceEvents::add_broken(uint32_t qp_num, const std::string &why) {
  const std::string what = qp_num == 0 ? text(device_, ": ", why) : text(device_, ": queue pair ", qp_num, ": ", why);
  host_.warn(what);
  if (!fatal_counts_) return;
  const std::lock_guard lock(mutex_);
  if (broken_.size() >= max_broken) return; // nobody asks: the context is being torn down
  broken_.push_back({qp_num, what});
  broken_count_.store(static_cast<uint32_t>(broken_.size()), std::memory_order_release);
}

void DeviceEvents::kill(const std::string &why) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) return;
    reason_ = text(device_, ": ", why);
  }
  for (uint8_t p = 1; p <= port_count_; p++) set_port(p, false, nullptr);
  host_.warn(reason());
  if (fatal_counts_) dead_.store(true, std::memory_order_release);
}

} // namespace tutti::net_ib
