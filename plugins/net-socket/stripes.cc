// tutti/plugins/net-socket/stripes.cc
#include "stripes.h"
#include "context.h"
#include <csignal>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace tutti::net_socket {

constexpr size_t bytes_per_call = 512 << 10; // so that one socket does not keep the others waiting
constexpr int calls_per_turn = 4;
constexpr int idle_turns = 64; // before a helper sleeps

void Stripe::push(uint8_t *at, uint64_t bytes, Pieces *pieces) {
  const uint32_t t = tail_.load(std::memory_order_relaxed);
  tasks_[t % capacity] = {at, bytes, pieces};
  tail_.store(t + 1, std::memory_order_release); // pairs with advance()'s acquire
}

bool Stripe::advance() {
  return sending_ ? advance_send() : advance_receive();
}

// The last piece publishes the whole message to the communicator's thread.
void Stripe::finish(uint32_t h) {
  Pieces *pieces = tasks_[h % capacity].pieces;
  head_.store(h + 1, std::memory_order_release);
  if (pieces->fetch_sub(1, std::memory_order_acq_rel) == 1)
    if (Context *ctx = owner.load(std::memory_order_acquire)) ctx->notify();
}

// After a call that brought nothing. False when that is all for now.
bool Stripe::fail(ssize_t n) {
  if (n < 0 && would_block(errno)) return false;
  int healthy = 0; // unless the owner has found out before, and was told why
  error_.compare_exchange_strong(healthy,
                                 n == 0     ? closed_by_peer
                                 : sending_ ? why_broken(fd_.get(), errno)
                                            : errno,
                                 std::memory_order_acq_rel);
  if (Context *ctx = owner.load(std::memory_order_acquire)) ctx->notify();
  return true;
}

bool Stripe::release() {
  bool any = false;
  for (uint32_t h = head_.load(std::memory_order_relaxed); h != taken_; ++h, any = true) {
    const Task &task = tasks_[h % capacity];
    if (!history_.ready(task.bytes, fd_)) break;
    history_.release(task.at, task.bytes);
    finish(h);
  }
  return any;
}

ssize_t Stripe::give() {
  iovec parts[2];
  int used = history_.next(parts);
  if (used == 0) {
    const Task &task = tasks_[taken_ % capacity];
    parts[0] = {task.at + moved_, std::min<uint64_t>(task.bytes - moved_, bytes_per_call)};
    used = 1;
  }
  return fd_.write(parts, used);
}

bool Stripe::advance_send() {
  bool moved = false;
  for (int call = 0; call < calls_per_turn; ++call) {
    if (error_.load(std::memory_order_relaxed)) return moved;
    const bool again = history_.behind();
    if (!again && taken_ == tail_.load(std::memory_order_acquire)) break;
    const ssize_t n = give();
    if (n <= 0) {
      if (fail(n)) return true;
      break;
    }
    moved = true;
    history_.gave(static_cast<uint64_t>(n));
    if (again) continue;
    moved_ += static_cast<uint64_t>(n);
    if (moved_ < tasks_[taken_ % capacity].bytes) continue;
    moved_ = 0;
    ++taken_;
  }
  return release() || moved;
}

bool Stripe::advance_receive() {
  bool moved = false;
  for (int call = 0; call < calls_per_turn; ++call) {
    const uint32_t h = head_.load(std::memory_order_relaxed);
    if (h == tail_.load(std::memory_order_acquire)) return moved;
    while (!old_.empty() && old_.front().left == 0) old_.erase(old_.begin());
    if (old_.empty() && error_.load(std::memory_order_relaxed)) return moved;
    const Task &task = tasks_[h % capacity];
    const uint64_t limit = old_.empty() ? bytes_per_call : old_.front().left;
    const Fd &from = old_.empty() ? fd_ : old_.front().fd;
    const ssize_t n = from.read(task.at + moved_, std::min(task.bytes - moved_, limit));
    if (n <= 0) return fail(n) || moved;
    moved = true;
    moved_ += static_cast<uint64_t>(n);
    read_ += static_cast<uint64_t>(n);
    if (!old_.empty()) old_.front().left -= static_cast<uint64_t>(n);
    if (moved_ < task.bytes) continue;
    moved_ = 0;
    finish(h);
  }
  return moved;
}

uint64_t Stripe::position() const {
  uint64_t all = read_ + fd_.unread();
  for (const Old &o : old_) all += o.left;
  return all;
}

void Stripe::receive_from(Fd fd) {
  const uint64_t left = fd_.unread();
  fd_.unwatch();
  old_.push_back({std::move(fd_), left});
  fd_ = std::move(fd);
  error_.store(0, std::memory_order_relaxed);
  lost = false;
}

bool Stripe::send_from(Fd fd, uint64_t position) {
  if (!history_.rewind(position)) return false;
  fd_ = std::move(fd);
  error_.store(0, std::memory_order_relaxed);
  lost = false;
  taken_ = head_.load(std::memory_order_relaxed);
  moved_ = 0;
  for (uint64_t at = history_.released(); at < position;) {
    const uint64_t bytes = tasks_[taken_ % capacity].bytes, n = std::min(position - at, bytes);
    at += n;
    if (n == bytes)
      ++taken_;
    else
      moved_ = n;
  }
  return true;
}

Helpers::Helpers(uint32_t threads) {
  for (uint32_t i = 0; i < threads; ++i) {
    auto h = std::make_unique<Helper>();
    h->epoll.reset(epoll_create1(EPOLL_CLOEXEC));
    h->event.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!h->epoll || !h->event) plugin::fail_errno(errno, "cannot make a helper thread's event descriptors");
    epoll_event e{EPOLLIN, {.ptr = nullptr}};
    epoll_ctl(h->epoll.get(), EPOLL_CTL_ADD, h->event.get(), &e);
    h->start();
    helpers_.push_back(std::move(h));
  }
}

Helpers::Helper::~Helper() {
  if (!thread.joinable()) return;
  stop = true;
  kick();
  thread.join();
}

void Helpers::add(Stripe *stripe) {
  Helper &h = of(stripe);
  h.wanted++;
  const std::lock_guard lock(h.mutex);
  h.wanted--;
  h.stripes.push_back(stripe);
  stripe->file().unwatch();
  stripe->file().watch(h.epoll.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, stripe);
}

void Helpers::remove(Stripe *stripe) {
  Helper &h = of(stripe);
  h.wanted++;
  const std::lock_guard lock(h.mutex);
  h.wanted--;
  h.stripes.erase(std::remove(h.stripes.begin(), h.stripes.end(), stripe), h.stripes.end());
  stripe->file().unwatch();
}

void Helpers::wake(Stripe *stripe) {
  Helper &h = of(stripe);
  // Both sides exchange: either this sees that the helper sleeps, or the helper's last look sees what was pushed before.
  if (h.asleep.exchange(false, std::memory_order_acq_rel)) h.kick();
}

void Helpers::Helper::start() {
  sigset_t all, old; // signals belong to the application's threads, but for those that a thread's own faults raise
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    thread = std::thread([this] { run(); });
  } catch (const std::system_error &) {
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Helpers::Helper::kick() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(event.get(), &one, sizeof one);
}

bool Helpers::Helper::serve() {
  while (wanted.load(std::memory_order_relaxed)) sched_yield();
  const std::lock_guard lock(mutex);
  bool moved = false;
  for (Stripe *s : stripes) moved |= s->advance();
  return moved;
}

bool Helpers::Helper::unacknowledged() {
  const std::lock_guard lock(mutex);
  return std::any_of(stripes.begin(), stripes.end(), [](const Stripe *s) { return s->unacknowledged() && !s->error(); });
}

void Helpers::Helper::run() {
  int idle = 0;
  while (!stop) {
    if (serve()) {
      idle = 0;
      continue;
    }
    if (++idle < idle_turns) {
      sched_yield();
      continue;
    }
    asleep.exchange(true, std::memory_order_acq_rel);
    if (!stop && !serve()) {
      epoll_event events[16];
      // Only a safety net, as sockets and kick() end the wait; but nothing says that bytes have been acknowledged.
      const int recheck_ms = unacknowledged() ? 1 : 1000;
      epoll_wait(epoll.get(), events, 16, recheck_ms);
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(event.get(), &count, sizeof count);
    }
    asleep.store(false, std::memory_order_relaxed);
    idle = 0;
  }
}

} // namespace tutti::net_socket
