// tutti/plugins/net-socket/connector.h: brings up all sockets of an outgoing connection, without blocking.
#pragma once
#include "endpoint.h"
#include "handshake.h"

namespace tutti::net_socket {

class Connector {
public:
  Connector(Context &ctx, const Blob &blob);
  // True when all sockets are connected and have proved themselves. Throws what is final.
  bool advance();
  Fd take_control() { return std::move(links_[0].fd); }
  std::vector<Fd> take_data();
  const Address &peer() const { return peer_; }

private:
  using Time = std::chrono::steady_clock::time_point;
  struct Link {
    Fd fd;
    uint16_t index = 0;
    uint32_t tries = 0;
    Time next{}; // not before
    bool connected = false, done = false;
    std::unique_ptr<ConnectorHandshake> handshake;
    Watched watch;
  };
  void start(Link &link);
  void retry(Link &link, int err);
  bool advance(Link &link);

  Context &ctx_;
  Secret secret_;
  Address peer_;
  uint8_t id_[16];
  bool local_;
  Time deadline_;
  std::vector<Link> links_;
};

std::unique_ptr<Endpoint> make_sender(Context &ctx, const Blob &blob);

} // namespace tutti::net_socket
