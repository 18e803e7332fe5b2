// tutti/plugins/net-socket/listener.h: accepts one endpoint and refuses strangers.
#pragma once
#include "endpoint.h"
#include "handshake.h"

namespace tutti::net_socket {

class Listener final : public plugin::NetObject, Pending {
public:
  Listener(Context &ctx, plugin::Address &addr);
  ~Listener() override;
  std::unique_ptr<Endpoint> accept(); // null: nobody yet
  void drive() noexcept override;

private:
  using Time = std::chrono::steady_clock::time_point;
  // A connection that has not yet proved itself.
  struct Guest {
    Fd fd;
    Time since;
    AcceptorHandshake handshake;
    std::unique_ptr<Watched> watch; // keeps its place when the list moves
  };
  void take_guests(int fd);
  void admit(Guest &guest);
  void refuse(const Guest &guest, std::string_view why);
  bool complete() const;
  void listen_everywhere(Blob &blob);

  Context &ctx_;
  Secret secret_;
  std::vector<Fd> fds_; // one for each address; empty after accept()
  Watched watch_;
  std::vector<Guest> guests_;
  // The sockets of the connection that has begun to prove itself, by index.
  std::vector<Fd> joined_;
  Hello first_{};
  std::unique_ptr<Watched> joined_watch_ = std::make_unique<Watched>();
};

std::unique_ptr<Endpoint> make_receiver(Context &ctx, std::shared_ptr<Wire> control, std::vector<Fd> data, uint64_t min_task);

} // namespace tutti::net_socket
