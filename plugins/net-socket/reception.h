// tutti/plugins/net-socket/reception.h: where peers that have lost a connection come back, one for all receivers of a context.
#pragma once
#include "resume.h"
#include <map>

namespace tutti::net_socket {

class Context;

// A receiver, as the reception sees it.
class Resumable {
public:
  virtual ~Resumable() = default;
  virtual const Secret &secret() const = 0;
  virtual bool has_stream(uint16_t index) const = 0;
  // Goes on with the new socket, unless the attempt is an old one or cannot be served now: from which byte on is told through
  // `say` before anything changes; it may fail.
  virtual bool resume(const ResumeHello &hello, Fd &fd, bool (*say)(void *, uint64_t), void *arg) = 0;
};

class Reception final {
public:
  explicit Reception(Context &ctx) : ctx_(ctx) {}
  // Listens at the address, or not at all: peers will then not come back here. The port, 0: none.
  uint16_t listen(const Address &at);
  void expect(const Identity &connection, Resumable *receiver) { receivers_[connection] = receiver; }
  void forget(const Identity &connection) { receivers_.erase(connection); }
  void drive() noexcept;
  bool waits() const { return watch_.readable || !guests_.empty(); } // drive() may do something

private:
  using Time = std::chrono::steady_clock::time_point;
  struct Guest {
    Fd fd;
    Time since;
    ResumeAcceptor handshake;
    std::unique_ptr<Watched> watch; // keeps its place when the list moves
  };
  void take_guests();
  bool serve(Guest &guest); // false: it has gone, or is one of ours now
  static const Secret *find(void *self, const ResumeHello &hello);

  Context &ctx_;
  std::map<Address, uint16_t, bool (*)(const Address &, const Address &)> ports_{before};
  static bool before(const Address &a, const Address &b);
  std::vector<Fd> fds_;
  Watched watch_;
  std::vector<Guest> guests_;
  std::map<Identity, Resumable *> receivers_;
};

} // namespace tutti::net_socket
