// A network plugin, complete: messages between processes of one host over UNIX domain sockets.
//
// A listener is a socket with an abstract name; its address is that name and a random secret. Who connects sends the secret
// first, and whoever sends anything else is dropped. A message is an 8-byte length, then its bytes. A context polls its sockets
// in progress(): no threads, no locks, nothing blocks. Queues hold kMaxCalls calls per endpoint and direction; beyond,
// TUTTI_AGAIN.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <tutti/plugin/cxx/plugin.hpp>
#include <unistd.h>

using namespace tutti::plugin;

namespace {

constexpr uint32_t kMaxCalls = 64, kMaxBatch = 16;
constexpr uint64_t kMaxMessage = 1ull << 30;
constexpr size_t kSecretBytes = 16, kMaxStrangers = 8;
constexpr std::chrono::seconds kStrangerTime{2}; // to show the secret: a peer sends it as it connects
using Secret = std::array<unsigned char, kSecretBytes>;

// What a peer needs to reach a listener. Travels over the core's authenticated channel.
struct UnixAddress {
  uint64_t name;
  Secret secret;
};

struct Fd {
  int fd = -1;
  Fd() = default;
  explicit Fd(int f) : fd(f) {}
  Fd(Fd &&o) noexcept : fd(std::exchange(o.fd, -1)) {}
  Fd &operator=(Fd &&o) noexcept {
    std::swap(fd, o.fd);
    return *this;
  }
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

socklen_t abstract_name(uint64_t number, sockaddr_un *out) {
  *out = {};
  out->sun_family = AF_UNIX;
  const std::string name = text("tutti-net-unix-", number);
  std::memcpy(out->sun_path + 1, name.data(), name.size()); // a leading NUL: no file, gone with the socket
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool would_block(int err) {
  return err == EAGAIN || err == EWOULDBLOCK || err == EINTR;
}

// One posted call: `n` messages of which `at` are finished.
struct Call {
  std::vector<tutti_net_buf> bufs;
  uint64_t *received = nullptr;
  uint64_t cookie = 0;
  size_t at = 0;
  uint64_t total = 0;
};

struct Mr {}; // sockets need no registration

class Ctx;

class Ep : public NetObject {
public:
  Ep(Ctx &ctx, Fd fd, const UnixAddress *peer); // peer: whom to connect to, NULL when accepted
  ~Ep();
  bool ready();
  std::string describe() const { return text("unix socket ", fd_.fd, greeting_left_ ? " (connecting)" : ""); }
  tutti_status send(const tutti_net_buf *bufs, uint32_t n, uint64_t cookie) { return post(&sends_, bufs, n, nullptr, cookie); }
  tutti_status recv(const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
    return post(&recvs_, bufs, n, received, cookie);
  }
  void progress();

private:
  tutti_status post(std::deque<Call> *queue, const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie);
  void greet();
  void write_some();
  void read_some();
  bool finish_message(Call *call, uint64_t bytes); // true: the call is complete
  void complete(std::deque<Call> *queue, tutti_status status);
  void break_down(tutti_status status, const std::string &why);

  Ctx &ctx_;
  Fd fd_;
  UnixAddress peer_{};
  bool connected_;
  size_t greeting_left_; // bytes of the secret still to be sent
  tutti_status broken_ = TUTTI_OK;
  std::string why_;
  std::deque<Call> sends_, recvs_;
  // The message under way in each direction.
  uint64_t out_head_ = 0, out_done_ = 0; // done counts the 8 bytes of length too
  uint64_t in_head_ = 0, in_done_ = 0;
};

class Listener : public NetObject {
public:
  Listener(Ctx &ctx, Fd fd, const Secret &secret);
  std::unique_ptr<Ep> accept();

private:
  struct Stranger { // connected, but has not shown the secret yet
    Fd fd;
    Secret got{};
    size_t have = 0;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  enum class Proof { waiting, right, wrong };
  Proof look_at(Stranger &s) const;
  Ctx &ctx_;
  Fd fd_;
  Secret secret_;
  std::vector<Stranger> strangers_;
  bool taken_ = false;
};

class Ctx : public NetObject {
public:
  explicit Ctx(const Host &host) : NetObject(host) {}

  std::unique_ptr<Listener> listen(Address &addr) {
    Fd fd = make_socket();
    UnixAddress a{};
    if (::getrandom(&a, sizeof(a), 0) != sizeof(a)) fail_errno(errno, "getrandom");
    sockaddr_un name;
    const socklen_t size = abstract_name(a.name, &name);
    if (::bind(fd.fd, reinterpret_cast<sockaddr *>(&name), size) != 0) fail_errno(errno, "bind");
    if (::listen(fd.fd, kMaxStrangers) != 0) fail_errno(errno, "listen");
    addr.set(a);
    return std::make_unique<Listener>(*this, std::move(fd), a.secret);
  }

  std::unique_ptr<Ep> connect(const Address &addr) {
    const auto a = addr.get<UnixAddress>();
    return std::make_unique<Ep>(*this, make_socket(), &a);
  }

  std::unique_ptr<Mr> mr_register(const tutti_region &region) {
    if (region.kind != TUTTI_MEM_HOST) unsupported("net unix sends host memory only");
    return std::make_unique<Mr>();
  }

  int32_t progress(tutti_net_completion *out, uint32_t cap) {
    for (Ep *ep : eps_) ep->progress();
    uint32_t n = 0;
    for (; n < cap && !completions_.empty(); n++) {
      out[n] = completions_.front();
      completions_.pop_front();
    }
    return static_cast<int32_t>(n);
  }

  void add(Ep *ep) { eps_.push_back(ep); }
  void remove(Ep *ep) { eps_.erase(std::find(eps_.begin(), eps_.end(), ep)); }
  void report(uint64_t cookie, uint64_t bytes, tutti_status status) { completions_.push_back({cookie, bytes, status, 0}); }

private:
  static Fd make_socket() {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.fd < 0) fail_errno(errno, "socket");
    return fd;
  }
  std::vector<Ep *> eps_; // borrowed: the core destroys endpoints before their context
  std::deque<tutti_net_completion> completions_;
};

Listener::Listener(Ctx &ctx, Fd fd, const Secret &secret)
    : NetObject(ctx.host()), ctx_(ctx), fd_(std::move(fd)), secret_(secret) {}

std::unique_ptr<Ep> Listener::accept() {
  if (taken_) return nullptr; // a listener accepts one endpoint
  // Bounded work for each call. Who is silent makes room for who comes: strangers cannot keep the peer out.
  for (size_t n = 0; n < kMaxStrangers; n++) {
    Fd fd(::accept4(fd_.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.fd < 0) break;
    strangers_.push_back({std::move(fd)});
  }
  for (size_t i = 0; i < strangers_.size();) {
    const Proof proof = look_at(strangers_[i]);
    if (proof == Proof::right) {
      taken_ = true;
      return std::make_unique<Ep>(ctx_, std::move(strangers_[i].fd), nullptr);
    }
    if (proof == Proof::wrong)
      strangers_.erase(strangers_.begin() + static_cast<long>(i));
    else
      i++;
  }
  if (strangers_.size() > kMaxStrangers) // the oldest first
    strangers_.erase(strangers_.begin(), strangers_.end() - static_cast<long>(kMaxStrangers));
  return nullptr;
}

Listener::Proof Listener::look_at(Stranger &s) const {
  const ssize_t n = ::recv(s.fd.fd, s.got.data() + s.have, kSecretBytes - s.have, 0);
  if (n < 0 && would_block(errno)) {
    const bool late = std::chrono::steady_clock::now() - s.since > kStrangerTime;
    return late ? Proof::wrong : Proof::waiting;
  }
  if (n <= 0) return Proof::wrong;
  s.have += static_cast<size_t>(n);
  if (s.have < kSecretBytes) return Proof::waiting;
  return s.got == secret_ ? Proof::right : Proof::wrong;
}

Ep::Ep(Ctx &ctx, Fd fd, const UnixAddress *peer)
    : NetObject(ctx.host()), ctx_(ctx), fd_(std::move(fd)), connected_(!peer), greeting_left_(peer ? kSecretBytes : 0) {
  if (peer) peer_ = *peer;
  ctx_.add(this);
}

Ep::~Ep() {
  ctx_.remove(this);
  for (auto *queue : {&sends_, &recvs_})
    while (!queue->empty()) complete(queue, TUTTI_ERR_CANCELLED);
}

bool Ep::ready() {
  greet();
  if (broken_) fail(broken_, why_);
  return greeting_left_ == 0;
}

void Ep::greet() {
  if (!connected_ && !broken_) {
    sockaddr_un name;
    const socklen_t size = abstract_name(peer_.name, &name);
    if (::connect(fd_.fd, reinterpret_cast<sockaddr *>(&name), size) != 0) {
      if (would_block(errno)) return; // strangers fill the listener's queue: it will get to us
      return break_down(TUTTI_ERR_REMOTE, text("connect: ", std::generic_category().message(errno)));
    }
    connected_ = true;
  }
  while (greeting_left_ > 0 && !broken_) {
    const ssize_t n = ::send(fd_.fd, peer_.secret.data() + kSecretBytes - greeting_left_, greeting_left_, MSG_NOSIGNAL);
    if (n < 0 && would_block(errno)) return;
    if (n < 0) return break_down(TUTTI_ERR_REMOTE, text("peer refused: ", std::generic_category().message(errno)));
    greeting_left_ -= static_cast<size_t>(n);
  }
}

tutti_status Ep::post(std::deque<Call> *queue, const tutti_net_buf *bufs, uint32_t n, uint64_t *received, uint64_t cookie) {
  if (broken_) fail(broken_, why_);
  if (n == 0 || n > kMaxBatch) fail(TUTTI_ERR_INVALID, n, " buffers in one call, 1 to ", kMaxBatch, " are possible");
  for (uint32_t i = 0; i < n; i++)
    if (bufs[i].bytes > kMaxMessage) fail(TUTTI_ERR_INVALID, "message of ", bufs[i].bytes, " bytes, at most ", kMaxMessage);
  if (queue->size() >= kMaxCalls) return TUTTI_AGAIN;
  queue->push_back({{bufs, bufs + n}, received, cookie, 0, 0});
  return TUTTI_OK;
}

void Ep::complete(std::deque<Call> *queue, tutti_status status) {
  ctx_.report(queue->front().cookie, queue->front().total, status);
  queue->pop_front();
}

void Ep::break_down(tutti_status status, const std::string &why) {
  broken_ = status;
  why_ = why;
  host().set_error(status, why.c_str());
  for (auto *queue : {&sends_, &recvs_})
    while (!queue->empty()) complete(queue, status);
}

bool Ep::finish_message(Call *call, uint64_t bytes) {
  if (call->received) call->received[call->at] = bytes;
  call->total += bytes;
  return ++call->at == call->bufs.size();
}

void Ep::progress() {
  greet();
  if (greeting_left_ > 0 || broken_) return;
  write_some();
  if (!broken_) read_some();
}

void Ep::write_some() {
  while (!sends_.empty()) {
    Call &call = sends_.front();
    const tutti_net_buf &buf = call.bufs[call.at];
    out_head_ = buf.bytes;
    const uint64_t head_done = std::min<uint64_t>(out_done_, 8), data_done = out_done_ - head_done;
    iovec parts[2] = {{reinterpret_cast<char *>(&out_head_) + head_done, 8 - head_done},
                      {static_cast<char *>(buf.addr) + data_done, buf.bytes - data_done}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t n = ::sendmsg(fd_.fd, &message, MSG_NOSIGNAL);
    if (n < 0 && would_block(errno)) return;
    if (n < 0) return break_down(TUTTI_ERR_REMOTE, text("send: ", std::generic_category().message(errno)));
    out_done_ += static_cast<uint64_t>(n);
    if (out_done_ < 8 + buf.bytes) continue;
    out_done_ = 0;
    if (finish_message(&call, buf.bytes)) complete(&sends_, TUTTI_OK);
  }
}

void Ep::read_some() {
  while (!recvs_.empty()) { // without a posted buffer the bytes stay in the socket, and the sender feels it
    Call &call = recvs_.front();
    const tutti_net_buf &buf = call.bufs[call.at];
    const bool head = in_done_ < 8;
    char *at = head ? reinterpret_cast<char *>(&in_head_) + in_done_ : static_cast<char *>(buf.addr) + (in_done_ - 8);
    const uint64_t want = head ? 8 - in_done_ : in_head_ - (in_done_ - 8);
    if (want > 0) {
      const ssize_t n = ::recv(fd_.fd, at, want, 0);
      if (n < 0 && would_block(errno)) return;
      if (n < 0) return break_down(TUTTI_ERR_REMOTE, text("receive: ", std::generic_category().message(errno)));
      if (n == 0) return break_down(TUTTI_ERR_REMOTE, "the peer closed the connection");
      in_done_ += static_cast<uint64_t>(n);
    }
    if (in_done_ == 8 && in_head_ > buf.bytes)
      return break_down(TUTTI_ERR_TRUNCATED, text("message of ", in_head_, " bytes for a buffer of ", buf.bytes));
    if (in_done_ < 8 || in_done_ < 8 + in_head_) continue;
    in_done_ = 0;
    if (finish_message(&call, in_head_)) complete(&recvs_, TUTTI_OK);
  }
}

struct UnixNet {
  using Ctx = ::Ctx;
  using Listener = ::Listener;
  using Ep = ::Ep;
  using Mr = ::Mr;
  static constexpr Info info{"net-unix", "1.0.0", "tutti", "Apache-2.0", "UNIX domain sockets, as an example"};
  static constexpr const char *net_name = "unix";

  explicit UnixNet(const Host &host) : host_(host) {}
  uint32_t device_count() { return 1; }
  void device_info(uint32_t dev, tutti_net_dev &out) {
    if (dev != 0) fail(TUTTI_ERR_INVALID, "there is no device ", dev);
    std::strcpy(out.name, "unix");
    out.mem_kinds = TUTTI_MEM_HOST;
    out.max_message_bytes = kMaxMessage;
    out.max_inflight = kMaxCalls;
    out.max_batch = kMaxBatch;
    out.flags = TUTTI_NET_DUPLEX | TUTTI_NET_LOOPBACK;
    out.numa_node = out.rail = -1;
  }
  std::unique_ptr<Ctx> ctx_create(uint32_t dev, const tutti_net_ctx_config &) {
    if (dev != 0) fail(TUTTI_ERR_INVALID, "there is no device ", dev);
    return std::make_unique<Ctx>(host_);
  }

private:
  Host host_;
};

} // namespace

TUTTI_CXX_PLUGIN(UnixNet)
