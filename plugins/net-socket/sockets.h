// tutti/plugins/net-socket/sockets.h: file descriptors, addresses and socket options.
#pragma once
#include "device.h"
#include "encryption.h"
#include <cerrno>
#include <chrono>
#include <optional>

namespace tutti::net_socket {

// Leaves the epoll set that watches it before it closes: where the program has forked, the child's copy would keep it in. A
// connected socket may have a session; what it carries goes through write() and read() then, and only there.
class Fd {
public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd &&o) noexcept : fd_(std::exchange(o.fd_, -1)), epoll_(std::exchange(o.epoll_, -1)), session_(std::move(o.session_)) {}
  Fd &operator=(Fd &&o) noexcept {
    if (this == &o) return *this;
    reset(std::exchange(o.fd_, -1));
    epoll_ = std::exchange(o.epoll_, -1);
    session_ = std::move(o.session_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    unwatch();
    session_.reset();
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  int watch(int epoll, uint32_t events, void *target); // or moves it to another target; an errno
  void unwatch();

  // What sendmsg() and recvmsg() return, without blocking.
  ssize_t write(iovec *parts, int count) const;
  ssize_t read(iovec *parts, int count) const;
  ssize_t read(void *data, size_t bytes) const {
    iovec part{data, bytes};
    return read(&part, 1);
  }
  // Bytes of the stream that have come and read() gives. With a session nothing that comes later is given any more.
  uint64_t unread() const;
  // At most so many bytes of what was written has the peer not got yet; nothing: who knows.
  std::optional<uint64_t> unacknowledged() const;
  Session *session() const { return session_.get(); }
  void secure(std::unique_ptr<Session> session) { session_ = std::move(session); }

private:
  int fd_ = -1, epoll_ = -1;
  std::unique_ptr<Session> session_;
};

uint16_t port_of(const Address &a);
void set_port(Address &a, uint16_t port);
std::string endpoint_text(const Address &a); // with the port
Address local_address(int fd);
Address peer_address(int fd);
std::string errno_text(int err);

bool all_acknowledged(int fd);    // by the peer's kernel
void acknowledge_at_once(int fd); // what comes next
// What a send that failed with `err` means: EPIPE comes after the peer's end, and after what ended the connection was told.
int why_broken(int fd, int err);
void abandon(int fd); // closing it will send a reset, and no end
// Whether the peer may still be there, behind a network that is not.
bool may_come_back(int err);

constexpr int closed_by_peer = -1; // beside errno

// How long one socket may take to connect before another one is tried: after two SYNs the kernel repeats itself ever more
// seldom, and would find a network that comes back after 20 s only half a minute later.
inline constexpr std::chrono::milliseconds syn_limit{1500};
// And then to be answered. Each further one may take twice as long: the process there may just be busy with something else.
inline constexpr std::chrono::milliseconds answer_limit{3000}, longest_answer_limit{30000};

inline bool would_block(int err) {
  return err == EAGAIN || err == EWOULDBLOCK || err == EINTR;
}

// Non-blocking, close-on-exec, with the settings applied. Throws.
Fd make_socket(const Settings &settings, int family);
// Options of a connected socket: no delay, congestion control, liveness, traffic class. `local`: packets stay on this host.
void tune_connection(int fd, const Settings &settings, bool local);
// Bound to the address and a port of the range, listening. Throws.
Fd make_listener(const Settings &settings, const Address &address, int backlog);
// Says of a connection that does not belong here why it is closed.
void refuse(const Host &host, int fd, std::string_view why);
// Throws when the congestion control that is asked for does not exist here.
void check_congestion(const Settings &settings, const Host &host);

} // namespace tutti::net_socket
