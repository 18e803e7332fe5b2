// tutti/plugins/net-socket/context.h: one device opened for one communicator: its endpoints, completions and descriptors.
#pragma once
#include "stripes.h"
#include "tutti/plugin/cxx/net.hpp"
#include "wires.h"

namespace tutti::net_socket {

class Endpoint;
class Listener;
class Reception;

// Something that still needs driving by time or events before data flows.
class Pending {
public:
  virtual ~Pending() = default;
  virtual void drive() noexcept = 0;
};

// Host memory needs no registration; the handle only proves that the call was made.
struct Mr {};

class Context : public plugin::NetObject {
public:
  // devices: the one to use, and the others, whose addresses serve when it does not reach a peer.
  Context(const Host &host, const Settings &settings, std::vector<Device> devices, const tutti_net_ctx_config &config);
  ~Context();

  std::unique_ptr<Listener> listen(plugin::Address &addr);
  std::unique_ptr<Endpoint> connect(const plugin::Address &addr);
  std::unique_ptr<Mr> mr_register(const tutti_region &region);
  int32_t progress(tutti_net_completion *out, uint32_t cap);
  int event_fd() { return epoll_.get(); }
  bool arm();

  const Settings &settings() const { return settings_; }
  const std::vector<Device> &devices() const { return devices_; }
  // The one whose network the address belongs to, else the one to use.
  const Device &device_towards(const Address &peer) const;
  bool stays_here(const Address &peer) const { return stays_on_host(device_towards(peer), peer); }
  const Encryption *encryption() const { return encryption_ ? &*encryption_ : nullptr; }
  Helpers *helpers() { return helpers_.get(); }
  Wires &wires() { return wires_; }
  Reception *reception() { return reception_.get(); } // null: nobody has listened yet, or lost connections stay lost
  uint16_t resume_port(const Address &at);            // of the reception at an address of ours, 0: none
  void add(Endpoint *ep) { all_.push_back(ep); }
  void remove(Endpoint *ep) { all_.erase(std::remove(all_.begin(), all_.end(), ep), all_.end()); }
  void lost(const std::shared_ptr<Wire> &wire, int err);   // tells the other endpoints that use it
  void gone(const Identity &peer, const std::string &why); // a context: tells those that wait for it to come back
  void watch(Fd &fd, Watched *target);                     // also moves a descriptor to a new target
  void activate(Endpoint *ep);                             // it has posted calls
  void deactivate(Endpoint *ep);
  void add_pending(Pending *p) { pending_.push_back(p); }
  void remove_pending(Pending *p) { pending_.erase(std::remove(pending_.begin(), pending_.end(), p), pending_.end()); }
  void complete(uint64_t cookie, uint64_t bytes, tutti_status status);
  void reserve_completions(size_t more); // room for an endpoint's, so that complete() never allocates
  void notify();                         // [any thread] something for progress() to do

private:
  bool collect_events(); // true when there were any
  void look_for_broken();
  void look_around();
  void wake_again();
  void drive_pending();
  void look_for_dead_links();

  Settings settings_;
  std::optional<Encryption> encryption_;
  std::vector<Device> devices_;
  Fd epoll_, event_, timer_; // timer_: made when first needed
  Wires wires_;
  std::atomic<bool> armed_{false};
  Watched event_watch_, timer_watch_;
  bool broken_ = false; // something watched is
  bool due_ = true;     // what is seldom looked at is to be looked at in the next progress()
  std::unique_ptr<Reception> reception_;
  std::vector<Endpoint *> active_, all_;
  std::vector<Pending *> pending_;
  uint32_t turn_ = 0;
  std::chrono::steady_clock::time_point looked_{};
  std::vector<tutti_net_completion> ring_; // size is a power of two
  size_t first_ = 0, count_ = 0, reserved_ = 0;
  std::unique_ptr<Helpers> helpers_;
};

} // namespace tutti::net_socket
