// tutti/core/tools/doctor/listener.h: the end of a test that answers. A thread of its own, for as long as it lives.
#pragma once
#include "config/config.h"
#include "tools/doctor/wire.h"
#include <atomic>
#include <list>
#include <thread>

namespace tutti::doctor {

class Listener {
public:
  // Listens at the addresses that socket.ifname and socket.family select, at ports of socket.port_range.
  static Result<std::unique_ptr<Listener>> open(const Config &config, const boot::Secret &key, int rank);
  ~Listener();
  const std::vector<Place> &places() const { return places_; }

private:
  Listener(const boot::Secret &key, int rank) : key_(key), rank_(rank) {}
  Status listen_at(const Config &config, Place place);
  struct Guest {
    UniqueFd fd;
    std::thread thread;
    std::atomic<bool> done{false};
  };
  void loop();
  void admit(UniqueFd fd);
  void serve(int fd);
  Status answer(int fd);
  void answer_datagram(int fd);

  const boot::Secret key_;
  const int rank_;
  std::vector<Place> places_;
  std::vector<UniqueFd> streams_, datagrams_;
  std::atomic<bool> stop_{false};
  std::list<Guest> guests_; // of thread_ and, after it, of the destructor
  std::thread thread_;
};

} // namespace tutti::doctor
