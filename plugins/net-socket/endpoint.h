// tutti/plugins/net-socket/endpoint.h: what both directions share: the queue of posted messages, striping, failure.
//
// On the control socket a message is an 8-byte header, its size and whether it is striped, and then the payload unless it is.
// A header that says so is followed by the identity of the connection on whose control socket the stream goes on.
#pragma once
#include "context.h"

namespace tutti::net_socket {

inline constexpr uint64_t striped_bit = uint64_t{1} << 63, moves_bit = uint64_t{1} << 62;

struct Message {
  uint64_t header = 0;
  uint8_t *addr = nullptr;
  uint64_t bytes = 0; // of the buffer; once it is matched, of the message
  uint64_t *received = nullptr;
  uint64_t cookie = 0;
  Pieces pieces{0};       // data-socket pieces still moving
  bool ends_call = false; // last message of its send() or recv() call
  bool pushed = false;    // its pieces went to the data sockets
};

class Endpoint : public plugin::NetObject {
public:
  static constexpr uint32_t max_calls = 64, max_batch = 4, max_messages = max_calls * max_batch;
  static constexpr size_t inactive = ~size_t{0};

  Endpoint(Context &ctx) : NetObject(ctx.host()), ctx_(ctx) { ctx.add(this); }
  virtual ~Endpoint();
  Endpoint(const Endpoint &) = delete;

  virtual bool ready() = 0;
  virtual tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) = 0;
  virtual tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) = 0;
  virtual void pump() noexcept = 0;  // one bounded round for the posted calls
  virtual bool may_move() const = 0; // whether pump() could do anything, by the events seen so far
  std::string describe() const;
  virtual void check_link() noexcept = 0;                                   // once a second
  virtual void look_if_broken() noexcept {}                                 // something watched is
  virtual void wire_lost(const Wire *, int) noexcept {}                     // found by the endpoint of the other direction
  virtual void peer_gone(const Identity &, const std::string &) noexcept {} // the context at the other end
  virtual bool needs_time() const { return false; }                         // pump() may do something without any event
  size_t active_at = inactive;                                              // the context's

protected:
  void open(std::shared_ptr<Wire> control, std::vector<Fd> data, bool sending, bool resumes, uint64_t min_task);
  tutti_status post(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
  Message &at(uint32_t i) { return queue_[i % max_messages]; }
  bool wants_stripes(uint64_t bytes) const { return !stripes_.empty() && bytes >= min_task_; }
  void use(std::shared_ptr<Wire> wire); // from now on
  const Fd &control() const { return wire_->fd; }
  void push_pieces(Message &m); // hands the payload to the data sockets
  bool move_stripes();          // without helpers: serves them; looks for their errors
  bool stripes_may_move() const;
  // A data socket has failed. False: so has the endpoint.
  bool stripe_failed(size_t i);
  virtual void stripe_lost(size_t i, int err) = 0; // of an endpoint that resumes
  void unserve(size_t i);                          // no helper touches the stripe until
  void serve(size_t i);
  static bool host_silent(int fd, std::chrono::nanoseconds limit, int unanswered, std::chrono::milliseconds &silent);
  bool resumes() const { return resumes_; }
  void retire(uint32_t upto); // completes finished messages from head_ on, in order, up to `upto`
  void fail_calls(tutti_status status, const std::string &why) noexcept;
  std::string peer_text() const { return netif::to_text(peer_, port_of(peer_)); }
  std::string lost_text(int err) const; // why a connection ended, for fail_calls()

  Context &ctx_;
  std::shared_ptr<Wire> wire_;
  Address local_, peer_;
  bool sending_ = false;
  tutti_status failed_ = TUTTI_OK;
  std::unique_ptr<Message[]> queue_;
  // Messages [head_, cursor_) are on the wire or matched, [cursor_, tail_) wait for the control socket.
  uint32_t head_ = 0, cursor_ = 0, tail_ = 0, calls_ = 0;
  uint64_t call_bytes_ = 0; // of the finished messages of the oldest call
  std::vector<std::unique_ptr<Stripe>> stripes_;
  std::vector<Watched> stripe_watches_;
  uint32_t next_stripe_ = 0;
  uint64_t min_task_ = 0;
  bool resumes_ = false; // lost sockets are replaced

private:
  void drop_stripes() noexcept;
};

} // namespace tutti::net_socket
