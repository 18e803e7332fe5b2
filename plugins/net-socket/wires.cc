// tutti/plugins/net-socket/wires.cc
#include "wires.h"
#include <sodium.h>
#include <sys/socket.h>

namespace tutti::net_socket {

Wires::Wires() {
  randombytes_buf(self_.data(), self_.size());
}

// Both ends compare the same two identities, so that just one of them goes over.
void Wires::dialled(const std::shared_ptr<Wire> &wire) {
  if (self_ < wire->peer) dialled_.push_back(wire);
}

void Wires::accepted(const std::shared_ptr<Wire> &wire) {
  if (wire->peer < self_) accepted_.push_back(wire);
}

std::shared_ptr<Wire> Wires::find_dialled(const Identity &connection) const {
  for (const std::shared_ptr<Wire> &wire : dialled_)
    if (wire->connection == connection) return wire;
  return nullptr;
}

std::shared_ptr<Wire> Wires::take_dialled(const Identity &connection) {
  for (size_t i = 0; i < dialled_.size(); ++i) {
    if (dialled_[i]->connection != connection) continue;
    std::shared_ptr<Wire> wire = std::move(dialled_[i]);
    dialled_.erase(dialled_.begin() + static_cast<long>(i));
    return wire;
  }
  return nullptr;
}

// The oldest: both sides first connect what they use first.
std::shared_ptr<Wire> Wires::take_accepted(const Identity &peer) {
  for (size_t i = 0; i < accepted_.size();) {
    std::shared_ptr<Wire> wire = accepted_[i].lock();
    const bool taken = wire && wire->peer == peer;
    if (wire && !taken) {
      ++i;
      continue;
    }
    accepted_.erase(accepted_.begin() + static_cast<long>(i)); // also one whose receiver has gone
    if (taken) return wire;
  }
  return nullptr;
}

// What the peer may have sent there already is still asked for by its name.
void Wires::leave(const std::shared_ptr<Wire> &wire) {
  std::erase_if(accepted_, [&](const std::weak_ptr<Wire> &w) { return w.expired() || w.lock() == wire; });
}

void Wires::drop_closed() {
  std::erase_if(dialled_, [](const std::shared_ptr<Wire> &wire) {
    char byte;
    return wire.use_count() == 1 && recv(wire->fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  });
}

} // namespace tutti::net_socket
