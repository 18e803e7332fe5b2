// tutti/plugins/net-ib/hca.h: a device of the host, opened for one context: its protection domain, completion queues and
// events.
#pragma once
#include "events.h"
#include "ports.h"
#include "tutti/plugin/net.h"
#include <memory>

namespace tutti::net_ib {

// A completion queue, and the entries that the queue pairs on it may need at once.
struct Completions {
  ibv_cq *cq = nullptr;
  uint32_t capacity = 0, used = 0;
  uint32_t leaving = 0; // of `used`: of queue pairs that are gone, until the queue has been found empty
  unsigned events = 0;  // not acknowledged
};

class Hca {
public:
  Hca(const Host &host, Verbs &verbs, std::string name, const Settings &settings);
  ~Hca();
  Hca(const Hca &) = delete;
  Hca &operator=(const Hca &) = delete;

  const std::string &name() const { return name_; }
  ibv_context *context() const { return context_; }
  ibv_pd *pd() const { return pd_; }
  const ibv_device_attr &attributes() const { return attributes_; }
  std::vector<std::unique_ptr<Completions>> &completions() { return completions_; }
  int event_fd() const { return channel_->fd; }
  DeviceEvents &events() { return *events_; }

  // Room for the completions of a queue pair, also when all its work is flushed at once.
  Completions &reserve(uint32_t entries);
  void release(Completions &c, uint32_t entries) { c.leaving += entries; }
  // Every queue will say when something comes. Takes what the channel said before.
  void arm();

private:
  Verbs &verbs_;
  std::string name_;
  ibv_context *context_ = nullptr;
  ibv_device_attr attributes_{};
  ibv_pd *pd_ = nullptr;
  ibv_comp_channel *channel_ = nullptr;
  std::vector<std::unique_ptr<Completions>> completions_;
  std::unique_ptr<DeviceEvents> events_;
  void close() noexcept;
};

// A port in use.
struct Rail {
  Hca *hca = nullptr;
  uint32_t hca_index = 0;
  Port port;
  uint32_t largest = 0; // message that the port takes
  bool up = true;
  uint64_t changes = 0; // of its events, that were seen
};

// What one device needs to know of a registered region.
class Registration {
public:
  Registration(Verbs &verbs, Hca &hca, const tutti_region &region, bool relaxed_ordering, bool use_dmabuf);
  ~Registration() {
    if (mr_) verbs_->dereg_mr(mr_);
  }
  Registration(Registration &&other) noexcept : verbs_(other.verbs_), mr_(std::exchange(other.mr_, nullptr)) {}
  Registration &operator=(Registration &&) = delete;
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }

private:
  Verbs *verbs_;
  ibv_mr *mr_ = nullptr;
};

} // namespace tutti::net_ib
