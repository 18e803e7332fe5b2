// tutti/plugins/net-socket/connector.h: brings up all sockets of an outgoing connection, without blocking.
//
// The listener may be at several addresses, of which some may lead nowhere or to somebody else. The control socket tries them
// all, one after the other with a small delay; the first that proves to be the listener wins, and the rest goes there.
#pragma once
#include "endpoint.h"
#include "handshake.h"

namespace tutti::net_socket {

class Connector {
public:
  // resumes: whoever connects can come back when the connection is lost.
  Connector(Context &ctx, const Blob &blob, bool resumes);
  bool resumes() const { return resumes_on(*control_); } // as the peer was told, once it is connected
  // True when all sockets are connected and have proved themselves. Throws what is final.
  bool advance();
  std::shared_ptr<Wire> take_control();
  std::vector<Fd> take_data();
  const Identity &connection() const { return id_; }
  const Address &peer() const { return (control_ ? *control_ : *attempts_.front()).to; }

private:
  using Time = std::chrono::steady_clock::time_point;
  // One socket on its way to one address.
  struct Attempt {
    Address to;
    bool local = false, own = false;
    uint16_t index = 0;
    Fd fd;
    uint32_t tries = 0;      // that failed
    uint32_t unanswered = 0; // that brought no answer in time
    Time next{};             // not before
    Time begun{};            // of this try
    std::chrono::milliseconds patience = answer_limit;
    // given: the proof is with the kernel. proved: so it was at some time, and the peer may have it.
    bool connected = false, given = false, proved = false, done = false, dead = false, denied = false;
    std::string why; // of the last failure
    std::unique_ptr<ConnectorHandshake> handshake;
    Watched watch;
  };
  bool resumes_on(const Attempt &a) const { return resumes_ && (!a.own || ctx_.settings().reconnect_local); }
  using Attempts = std::vector<std::unique_ptr<Attempt>>; // the context's epoll set knows where they are
  void add(Attempts &list, const Address &to, uint16_t index);
  void start(Attempt &a);
  void retry(Attempt &a, int err);
  void try_anew(Attempt &a);
  bool accepted(Attempt &a);
  bool delivered(Attempt &a);
  Step advance(Attempt &a);
  void race();
  bool finish(Attempt &a);
  [[noreturn]] void give_up() const;
  std::string failures() const;

  Context &ctx_;
  Secret secret_;
  bool resumes_;
  Identity id_, listener_;
  Time begin_;
  Attempts attempts_; // of the control socket, while control_ is empty
  std::unique_ptr<Attempt> control_;
  Attempts data_;
};

std::unique_ptr<Endpoint> make_sender(Context &ctx, const Blob &blob);

} // namespace tutti::net_socket
