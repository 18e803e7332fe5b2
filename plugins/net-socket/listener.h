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

// What a receiver knows of how its connection was made.
struct Origin {
  Identity connection;
  Secret secret;
  bool resumes; // the peer comes back when it is lost
};
std::unique_ptr<Endpoint> make_receiver(Context &ctx, std::shared_ptr<Wire> control, std::vector<Fd> data, uint64_t min_task,
                                        const Origin &origin);

} // namespace tutti::net_socket
