// tutti/plugins/net-ib/events.h: what a device reports by itself. Written on the core's service thread, or by who calls poll()
// where the core has none; read by endpoints from their own threads.
#pragma once
#include "settings.h"
#include "verbs.h"
#include <atomic>
#include <memory>
#include <mutex>

namespace tutti::net_ib {

// A port, as its device last reported it.
class PortState {
public:
  bool active() const { return down_since_.load(std::memory_order_acquire) == 0; }
  // Grows when the port goes down or comes back, and with every change of its GIDs, LID and partition keys: what was read of it
  // before may be wrong.
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

private:
  friend class DeviceEvents;
  std::atomic<int64_t> down_since_{0}; // steady clock's nanoseconds; 0 while active
  std::atomic<uint64_t> changes_{0};
};

// Of an opened device: one object per ibv_context, destroyed before that is closed.
class DeviceEvents {
public:
  // `ports`: how many the device has. What a port is now is asked at once.
  DeviceEvents(const Host &host, Verbs &verbs, ibv_context *context, std::string device, uint8_t ports,
               const Settings &settings);
  ~DeviceEvents();
  DeviceEvents(const DeviceEvents &) = delete;
  DeviceEvents &operator=(const DeviceEvents &) = delete;

  const PortState &port(uint8_t number) const { return ports_[number - 1u]; } // counted from 1

  // The whole device is lost, for ever; `reason` is a sentence. Cheap while it is not.
  bool dead() const { return dead_.load(std::memory_order_acquire); }
  std::string reason() const;

  // Numbers of queue pairs that the device says are broken since the last call, each with a sentence; cheap while there are
  // none. Those of other endpoints of the context are among them: who asks hands them out.
  struct Broken {
    uint32_t qp_num = 0; // 0: any of the completion queue that was lost
    std::string reason;
  };
  bool any_broken() const { return broken_count_.load(std::memory_order_acquire) != 0; }
  std::vector<Broken> take_broken();

  // Reads what has come where watched() is false; elsewhere it stops the watch on a device that is lost. Cheap.
  void poll();
  bool watched() const { return watch_ != nullptr; }

private:
  static constexpr size_t max_broken = 4096;
  static void on_ready(void *self, uint32_t ready);
  void read();
  void handle(const ibv_async_event &event);
  void handle_port(ibv_event_type type, int number);
  void set_port(uint8_t number, bool active, const char *what);
  void add_broken(uint32_t qp_num, const std::string &why);
  void kill(const std::string &why);

  Host host_;
  Verbs &verbs_;
  ibv_context *context_;
  std::string device_;
  bool fatal_counts_;
  uint8_t port_count_;
  const tutti_host_watch_v1 *watch_ = nullptr;
  std::unique_ptr<PortState[]> ports_;
  std::atomic<bool> dead_{false}, lost_{false}; // lost: there is nothing to read any more
  std::atomic<uint32_t> broken_count_{0};
  std::mutex reading_;       // one thread at a time reads events, so that they are handled in order
  mutable std::mutex mutex_; // guards broken_ and reason_
  std::vector<Broken> broken_;
  std::string reason_;
};

} // namespace tutti::net_ib
