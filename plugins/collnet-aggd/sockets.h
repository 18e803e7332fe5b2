// tutti/plugins/collnet-aggd/sockets.h: descriptors, addresses and connections that know each other's key.
#pragma once
#include "wire.h"
#include <chrono>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace tutti::aggd {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A descriptor that closes. A process that was forked meanwhile may hold what it stands for as well: so a watched socket is
// first taken out of its epoll set, which would go on to tell of it, and shut down, so that the peer learns of the end.
class Fd {
public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd &&o) noexcept : fd_(std::exchange(o.fd_, -1)), epoll_(std::exchange(o.epoll_, -1)) {}
  Fd &operator=(Fd &&o) noexcept {
    reset(std::exchange(o.fd_, -1));
    epoll_ = std::exchange(o.epoll_, -1);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);
  // Edge-triggered, in and out; again with another target. 0, or errno.
  int watch(int epoll, void *target);
  bool watched() const { return epoll_ >= 0; }

private:
  int fd_ = -1, epoll_ = -1;
};

struct Address {
  sockaddr_storage raw{};
  socklen_t size = 0;
  std::string text() const; // "10.0.0.1:4797", "[fe80::1]:4797"
};
struct Place { // a daemon, as it is written in a setting
  std::string name;
  std::vector<Address> addresses;
  bool with_port = false; // it was written, too
};
// "host", "host:port", "[::1]:port". Asks the resolver, which may block. Empty: `why` is the rest of a sentence.
std::optional<Place> resolve(const std::string &text, bool passive, std::string &why);

struct Tuning {
  uint32_t buffer = 0; // SO_SNDBUF and SO_RCVBUF, bytes; 0: the system's
  milliseconds keepalive{0};
};
void tune(int fd, const Tuning &tuning);
// How long the peer's host has answered nothing while it should have: something is on its way, or a shut window is asked about.
// A peer that only does not read still answers, which is why TCP_USER_TIMEOUT would not do: it counts a shut window like a dead
// link, and a rank that computes while results wait for it is no error.
class SilenceWatch {
public:
  milliseconds look(int fd, Clock::time_point now); // 0: nothing is wrong

private:
  Clock::time_point since_{};
};

// Of a connection's errno: it tells that nothing has come from the peer's host.
bool is_silence(int err);
// What a connection's errno adds to its having been lost; "": the peer has closed it, in whatever way.
std::string why_lost(int err);

// Moves the bytes of one struct, piece by piece.
class Transfer {
public:
  enum class Step { again, done, closed, failed };
  Step send(int fd, const void *data, size_t bytes);
  Step receive(int fd, void *data, size_t bytes);
  int error() const { return error_; }

private:
  size_t done_ = 0;
  int error_ = 0;
};

struct Secret {
  Key key{};
  std::string name; // 'key_file "/etc/k" (tutti.toml:4)', for messages
};

// Brings a connection to a daemon up, without blocking, to where frames begin. A refused connection is tried again, at the next
// address, until the deadline.
class Dialer {
public:
  enum class Step { again, ready, failed };
  // limit: what the deadline follows from, for messages.
  Dialer(const Place &place, Secret secret, Role role, const Tuning &tuning, Clock::time_point deadline, std::string limit);
  Step advance();
  // The connection that was given away has come to nothing before its peer had taken it in: makes another, until the deadline.
  void again(const std::string &what) { again_later(what); }
  const Fault &fault() const { return fault_; }
  const std::string &name() const { return place_.name; }
  Fd &fd() { return fd_; } // none between two tries
  Fd release() { return std::move(fd_); }

private:
  enum class Stage { idle, connecting, hello, challenge, proof };
  Step start();
  Step again_later(const std::string &what);
  std::string connect_failed(const Address &to, int err) const;
  Step fail(Reason reason, const std::string &what);
  Step greet();

  const Place &place_;
  const Secret secret_;
  const std::string limit_;
  const Role role_;
  const Tuning tuning_;
  const Clock::time_point deadline_, begin_ = Clock::now();
  Clock::time_point next_{};
  Stage stage_ = Stage::idle;
  size_t tries_ = 0;
  Fd fd_;
  std::string last_;
  Hello hello_{};
  Challenge challenge_{};
  Proof proof_{};
  Transfer transfer_;
  Fault fault_;
};

} // namespace tutti::aggd
