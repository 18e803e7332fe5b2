// tutti/plugins/net-socket/wires.h: one control socket for two endpoints of opposite directions.
//
// Of a socket that carries data one way only, every message is acknowledged by a packet of its own, which costs both ends about
// as much as a small message; on a socket that carries data both ways the answer acknowledges. So each side dials for what
// it sends, as both may do so at the same time, and the context with the greater identity later goes over to a socket that
// the other one has dialled: its sender ends the stream on its own socket with a message that names the new one.
#pragma once
#include "sockets.h"
#include <array>
#include <memory>

namespace tutti::net_socket {

using Identity = std::array<uint8_t, 16>; // random; of a context or of a connection

// A descriptor in the context's epoll set (edge-triggered). Flags stay set until an operation would have blocked.
struct Watched {
  bool readable = true, writable = true, broken = false; // broken: until somebody has looked why
};

// A control socket that has proved itself, held by the endpoints that use it.
struct Wire {
  Fd fd;
  Watched watch;
  int lost = 0;                  // an errno: the system tells it only once, to the first who asks
  Identity connection{}, peer{}; // of the sockets dialled together; of the context at the other end
};

// Those of one context whose direction towards the dialling side is not in use.
class Wires {
public:
  Wires();
  const Identity &self() const { return self_; }
  void dialled(const std::shared_ptr<Wire> &wire);                // by this context: the peer will say when it sends there
  void accepted(const std::shared_ptr<Wire> &wire);               // a sender of this context may go over to it
  std::shared_ptr<Wire> take_dialled(const Identity &connection); // null: there is none
  std::shared_ptr<Wire> find_dialled(const Identity &connection) const;
  std::shared_ptr<Wire> take_accepted(const Identity &peer);
  bool any_accepted() const { return !accepted_.empty(); }
  void leave(const std::shared_ptr<Wire> &wire); // it was lost: no sender goes over to it any more
  void drop_closed();                            // what nobody here uses and the peer has left

private:
  Identity self_;
  std::vector<std::shared_ptr<Wire>> dialled_; // also those that the sender here has left: the peer may just be going over
  std::vector<std::weak_ptr<Wire>> accepted_;
};

} // namespace tutti::net_socket
