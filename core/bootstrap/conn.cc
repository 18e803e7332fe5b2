// Bytes and frames of a control connection, and its end. The handshake is in conn_handshake.cc.
#include "bootstrap/conn.h"
#include <cstring>
#include <netinet/tcp.h>
#include <sys/epoll.h>

namespace tutti::boot {
namespace {

constexpr size_t kReadStep = 64 << 10;
constexpr size_t kMaxInFds = 64; // descriptors that arrived and whose frame has not

} // namespace

std::string unix_listener_name(uint64_t process) {
  return fmt::format("tutti-{:016x}", process);
}

void tune_tcp(int fd, Nanos dead_after) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(dead_after).count();
  const int on = 1, count = 3, idle = std::max(1, static_cast<int>(ms / 3000)),
            interval = std::max(1, static_cast<int>(ms / 5000));
  const auto user_ms = static_cast<unsigned>(ms);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof user_ms);
}

Conn::Conn(Service &service, TrackedFd fd, bool is_unix, std::string remote)
    : service_(service), fd_(std::move(fd)), is_unix_(is_unix), remote_(std::move(remote)) {
  if (!is_unix_ && fd_) tune_tcp(fd_.get(), dead_after_);
}

Conn::~Conn() {
  drop();
}

Status Conn::ended(int err) const {
  if (state_ == State::wait_hello && in_.empty() && (err == 0 || err == ECONNRESET))
    return fail(Code::remote, "it said nothing");
  if (err == 0 || err == ECONNRESET || err == EPIPE)
    return fail(Code::remote, "control connection closed: process ended or host unreachable").because(err);
  if (err == ETIMEDOUT || err == EHOSTUNREACH || err == ENETUNREACH)
    return fail(Code::remote, "control connection lost: no answer from the host for {}, host or link is down",
                seconds(dead_after_))
        .because(err);
  return fail_errno(err, "control connection failed");
}

std::optional<ucred> Conn::credentials() const {
  ucred who{};
  socklen_t n = sizeof who;
  if (!is_unix_ || !fd_ || getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &who, &n) != 0) return {};
  return who;
}

void Conn::dead_after(Nanos silence) {
  dead_after_ = silence;
  if (!is_unix_ && fd_) tune_tcp(fd_.get(), silence);
}

void Conn::ready(uint32_t events) {
  const Ptr self = shared_from_this();
  if (state_ == State::connecting) {
    int err = 0;
    socklen_t n = sizeof err;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &err, &n);
    if (err != 0) return lost(fail_errno(err, "cannot connect"));
    state_ = State::wait_challenge;
    queue_raw(encode(hello_));
    update_events();
    return;
  }
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) readable();
  if (state_ != State::closed && (events & EPOLLOUT)) writable();
}

bool Conn::read_some() {
  const bool authenticated = state_ == State::open || state_ == State::finishing || state_ == State::securing;
  const size_t have = in_.size() - in_at_;
  size_t want = kReadStep;
  // A dialling end may send frames right behind its proof: those stay in the socket until the proof was checked.
  if (!authenticated) want = allowance() > have ? allowance() - have : 0;
  if (want == 0) return true;
  Bytes &to = tls_ ? sealed_ : in_;
  const size_t old = to.size();
  to.resize(old + want);
  iovec io{to.data() + old, want};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 16)];
  msghdr msg{};
  msg.msg_iov = &io;
  msg.msg_iovlen = 1;
  if (authenticated && is_unix_) { // strangers' descriptors are dropped by the kernel
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
  }
  ssize_t n;
  do n = recvmsg(fd_.get(), &msg, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  const int err = errno;
  to.resize(old + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n < 0 && (err == EAGAIN || err == EWOULDBLOCK)) return true;
  if (n <= 0) {
    if (state_ == State::finishing) {
      close();
      return false;
    }
    lost(ended(n < 0 ? err : 0));
    return false;
  }
  for (cmsghdr *c = msg.msg_controllen ? CMSG_FIRSTHDR(&msg) : nullptr; c; c = CMSG_NXTHDR(&msg, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      in_fds_.emplace_back(fd);
    }
  }
  return !tls_ || unseal_some();
}

void Conn::readable() {
  if (state_ == State::parked || state_ == State::verified) { // only look whether the other end left
    char byte;
    const ssize_t n = recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      lost(ended(n < 0 ? errno : 0));
    else if (n > 0) { // not to be woken again for the same bytes
      events_ &= ~static_cast<uint32_t>(EPOLLIN);
      service_.modify(token_, events_);
    }
    return;
  }
  if (!read_some()) return;
  if (state_ == State::finishing) {
    in_.clear();
    in_at_ = 0;
    in_fds_.clear();
    return;
  }
  handle_input();
}

void Conn::own(std::shared_ptr<std::atomic<uint64_t>> queued, std::shared_ptr<std::atomic<uint64_t>> fds) {
  queued_bytes = std::move(queued);
  owner_fds = std::move(fds);
  if (owner_fds && fd_) owner_fds->fetch_add(1);
}

void Conn::parse_frames() {
  const Ptr self = shared_from_this();
  while (state_ == State::open && in_.size() - in_at_ >= kFrameHeader) {
    const auto header = decode_header(std::span<const std::byte, kFrameHeader>(in_.data() + in_at_, kFrameHeader));
    if (!header || header->length > most_frame_)
      return lost(fail(Code::internal, "control connection carried a malformed frame"));
    if (in_.size() - in_at_ - kFrameHeader < header->length) {
      in_.reserve(in_at_ + kFrameHeader + std::min<size_t>(header->length, 2 * (in_.size() - in_at_) + kReadStep));
      break;
    }
    Frame f;
    f.type = header->type;
    f.tag = header->tag;
    const auto body = in_.begin() + static_cast<ptrdiff_t>(in_at_ + kFrameHeader);
    f.payload.assign(body, body + header->length);
    in_at_ += kFrameHeader + header->length;
    if (header->fd) {
      if (in_fds_.empty())
        return lost(fail(Code::system, "a descriptor that was sent did not arrive; is the limit of open files reached?"));
      f.fd = std::move(in_fds_.front());
      in_fds_.pop_front();
    }
    if (on_frame) on_frame(std::move(f));
  }
  if (in_fds_.size() > kMaxInFds)
    return lost(fail(Code::internal, "control connection carried descriptors that no frame names"));
  in_.erase(in_.begin(), in_.begin() + static_cast<ptrdiff_t>(in_at_));
  in_at_ = 0;
}

void Conn::send(FrameType type, uint64_t tag, std::span<const std::byte> payload, UniqueFd fd) {
  if (state_ != State::open || deaf_) return;
  Out o;
  o.data.resize(kFrameHeader + payload.size());
  encode(FrameHeader{static_cast<uint32_t>(payload.size()), type, static_cast<bool>(fd), tag}, o.data.data());
  if (!payload.empty()) std::memcpy(o.data.data() + kFrameHeader, payload.data(), payload.size());
  o.fd = std::move(fd);
  put(std::move(o));
}

void Conn::put(Out o) {
  if (tls_) {
    if (tls_->ready()) {
      size_t taken = 0; // each call seals at most a record
      for (std::span<const std::byte> rest(o.data); !rest.empty(); rest = rest.subspan(taken))
        if (tls_->write(rest, &taken) != Tls::Step::done || taken == 0)
          return lost(fail(Code::internal, "a frame cannot be encrypted: {}", tls_->error()));
      return take_sealed();
    }
    if (queued_bytes) queued_bytes->fetch_add(o.data.size());
    unsealed_.push_back(std::move(o));
    return;
  }
  if (queued_bytes) queued_bytes->fetch_add(o.data.size());
  out_.push_back(std::move(o));
  if (out_.size() == 1) writable();
}

void Conn::queue_raw(Bytes data) {
  Out o;
  o.data = std::move(data);
  if (queued_bytes) queued_bytes->fetch_add(o.data.size());
  out_.push_back(std::move(o));
  writable();
}

void Conn::writable() {
  const Ptr self = shared_from_this();
  while (!out_.empty()) {
    Out &o = out_.front();
    iovec io{o.data.data() + o.at, o.data.size() - o.at};
    msghdr msg{};
    msg.msg_iov = &io;
    msg.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (o.fd) { // travels with the frame's first byte
      msg.msg_control = control;
      msg.msg_controllen = sizeof control;
      cmsghdr *c = CMSG_FIRSTHDR(&msg);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = o.fd.get();
      std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    const ssize_t n = sendmsg(fd_.get(), &msg, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) {
      const int err = errno;
      if (state_ == State::finishing) return close();
      if (state_ != State::open || (err != EPIPE && err != ECONNRESET)) return lost(ended(err));
      deaf_ = true; // it is gone; a goodbye may wait to be read, and epoll wakes us for that or for the end
      forget_output();
      break;
    }
    o.fd.reset();
    o.at += static_cast<size_t>(n);
    if (o.at < o.data.size()) continue;
    if (queued_bytes) queued_bytes->fetch_sub(o.data.size());
    out_.pop_front();
  }
  if (state_ == State::finishing && out_.empty()) shutdown(fd_.get(), SHUT_WR);
  update_events();
}

void Conn::update_events() {
  if (token_ == 0) return;
  uint32_t want = EPOLLIN;
  if (!out_.empty() || state_ == State::connecting) want |= EPOLLOUT;
  if (want == events_) return;
  events_ = want;
  service_.modify(token_, events_);
}

// Waits for the other end to read: closing with unread input would make the kernel throw our last frame away.
void Conn::finish() {
  if (state_ == State::closed || state_ == State::finishing) return;
  if (!(state_ == State::open || state_ == State::parked)) return close();
  const Ptr self = shared_from_this();
  retire_callbacks();
  if (unsecured() && !unsealed_.empty()) { // what was sent goes out first
    finish_sealed_ = true;
    service_.draining++;
    service_.cancel(timer_);
    timer_ = service_.at(Clock::now() + kLinger, [self] { self->close(); });
    return;
  }
  state_ = State::finishing;
  service_.draining++;
  service_.cancel(timer_);
  timer_ = service_.at(Clock::now() + kLinger, [self] { self->close(); }); // keeps the connection alive until then
  writable();
}

// One of them may be running, and may own what it uses: they die later.
void Conn::retire_callbacks() {
  if (!on_hello && !on_verified && !on_open && !on_frame && !on_close) return;
  service_.post([a = std::move(on_hello), b = std::move(on_verified), c = std::move(on_open), d = std::move(on_frame),
                 e = std::move(on_close)] {});
  on_hello = nullptr;
  on_verified = on_open = nullptr;
  on_frame = nullptr;
  on_close = nullptr;
}

void Conn::lost(Status why) {
  if (state_ == State::closed) return;
  const Ptr self = shared_from_this();
  auto tell = std::move(on_close);
  close();
  if (tell) tell(std::move(why));
}

void Conn::close() {
  const Ptr self = weak_from_this().lock();
  retire_callbacks();
  drop();
}

void Conn::drop() {
  if (state_ == State::finishing || std::exchange(finish_sealed_, false)) service_.draining--;
  state_ = State::closed;
  if (token_) service_.remove(token_);
  token_ = 0;
  service_.cancel(timer_);
  timer_ = 0;
  if (fd_) {
    fd_.reset();
    if (owner_fds) owner_fds->fetch_sub(1);
  }
  forget_output();
  in_fds_.clear();
}

void Conn::forget_output() {
  if (queued_bytes)
    for (const auto *queue : {&out_, &unsealed_})
      for (const Out &o : *queue) queued_bytes->fetch_sub(o.data.size());
  out_.clear();
  unsealed_.clear();
}

} // namespace tutti::boot
