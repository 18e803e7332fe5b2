// tutti/core/bootstrap/conn.h: one control connection (TCP or unix domain): handshake, then frames; over TCP in a TLS session
// where either end wants that. Lives on the service thread.
#pragma once
#include "bootstrap/crypto.h"
#include "bootstrap/service.h"
#include "bootstrap/tls.h"
#include "bootstrap/wire.h"
#include <deque>

namespace tutti::boot {

// A place to connect to: an address, or the unix-domain listener of a process on this host.
struct Target {
  std::string unix_name; // without the leading zero byte; "" = use endpoint
  Endpoint endpoint;
  Endpoint source; // family 0 = the kernel chooses
  std::string text() const { return unix_name.empty() ? endpoint.text() : "unix:" + unix_name; }
};

constexpr Nanos kDeadAfter = std::chrono::seconds(15);

class Conn : public std::enable_shared_from_this<Conn> {
public:
  using Ptr = std::shared_ptr<Conn>;
  // Of a listener: waits for a hello, asks on_hello, which answers with admit() or refuse(), at once or later.
  static Ptr accepted(Service &service, TrackedFd fd, bool is_unix, std::string from);
  // Starts to connect; on_verified is called when the other end has proved that it knows the key.
  static Ptr dial(Service &service, const Target &target, const Hello &hello, const Secret &key);
  ~Conn();

  std::function<void(const Hello &)> on_hello;
  std::function<void()> on_verified; // the caller then proves, or closes
  std::function<void()> on_open;     // accepted end: the other end has proved itself
  std::function<void(Frame)> on_frame;
  std::function<void(Status why)> on_close;            // once, unless close() was called here
  std::shared_ptr<std::atomic<uint64_t>> queued_bytes; // of the owner; counts what waits to be written
  std::shared_ptr<std::atomic<uint64_t>> owner_fds;    // of the owner; counts descriptors

  void admit(const Secret &key);
  void refuse(Refusal why);
  void prove();
  void own(std::shared_ptr<std::atomic<uint64_t>> queued, std::shared_ptr<std::atomic<uint64_t>> fds);
  void dead_after(Nanos silence);                          // how long the other host may be silent
  void most_frame(uint32_t bytes) { most_frame_ = bytes; } // a longer one ends the connection
  std::optional<ucred> credentials() const;                // of the process at the other end; only on a unix-domain one
  void send(FrameType type, uint64_t tag, std::span<const std::byte> payload, UniqueFd fd = {});
  void finish(); // writes what is queued, then closes; nothing is read any more
  void close();

  bool is_unix() const { return is_unix_; }
  bool open() const { return state_ == State::open; }
  bool encrypted() const { return tls_ != nullptr; }
  bool closed() const { return state_ == State::closed; }
  const Hello &hello() const { return hello_; }
  const std::string &remote() const { return remote_; }

private:
  enum class State { connecting, wait_challenge, verified, wait_hello, parked, wait_proof, securing, open, finishing, closed };
  struct Out {
    Bytes data;
    size_t at = 0;
    UniqueFd fd;
  };
  Conn(Service &service, TrackedFd fd, bool is_unix, std::string remote);
  void start(uint32_t events);
  Nanos dialling() const;
  void allow(Nanos limit);
  void out_of_time(Nanos limit);
  void ready(uint32_t events);
  void readable();
  void writable();
  bool read_some();   // false: closed
  bool unseal_some(); // the same, of what the session holds
  bool secure();      // the same, of a session that is being made
  void secured();
  void take_sealed(); // what the session has to say goes into the queue
  void begin_session(Tls::Role role);
  bool disagree(); // one end wants what the other cannot do: the connection is lost
  bool to_encrypt() const;
  uint16_t own_security() const;
  void opened();
  bool unsecured() const { return tls_ && !tls_->ready(); }
  void put(Out out);     // sealed, where there is a session
  void handle_input();   // as many steps as the bytes allow
  bool handshake_step(); // false: needs more bytes, or closed
  void parse_frames();
  void queue_raw(Bytes data);
  void update_events();
  void lost(Status why);
  Status ended(int err) const; // what the remote end looks like when the connection breaks
  void drop();
  void forget_output();
  void retire_callbacks();
  size_t allowance() const;

  Service &service_;
  TrackedFd fd_;
  bool is_unix_;
  bool deaf_ = false; // the other end reads no more; what it sent may still be read
  uint32_t most_frame_ = kFrameLimit;
  Nanos dead_after_ = kDeadAfter;
  std::string remote_;
  State state_ = State::connecting;
  uint64_t token_ = 0;
  uint32_t events_ = 0;
  uint64_t timer_ = 0;
  Hello hello_;
  Challenge challenge_;
  Secret key_{};
  Bytes in_;
  size_t in_at_ = 0;
  std::deque<UniqueFd> in_fds_;
  std::deque<Out> out_;
  std::unique_ptr<Tls> tls_;
  Bytes sealed_;               // came, and is not with the session yet
  std::deque<Out> unsealed_;   // until the session stands
  bool finish_sealed_ = false; // finish() as soon as it does
};

constexpr auto kLinger = std::chrono::seconds(5); // for the other end to take what was sent before leaving
// Keep-alive and time-outs: a dead host or link is noticed after about this time.
void tune_tcp(int fd, Nanos dead_after);
std::string unix_listener_name(uint64_t process);

} // namespace tutti::boot
