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
  bool moved = false;
  for (int call = 0; call < calls_per_turn; ++call) {
    const uint32_t h = head_.load(std::memory_order_relaxed);
    if (h == tail_.load(std::memory_order_acquire) || error_.load(std::memory_order_relaxed)) return moved;
    const Task task = tasks_[h % capacity];
    const size_t want = std::min<uint64_t>(task.bytes - moved_, bytes_per_call);
    const ssize_t n = sending_ ? ::send(fd_.get(), task.at + moved_, want, MSG_NOSIGNAL | MSG_DONTWAIT)
                               : ::recv(fd_.get(), task.at + moved_, want, MSG_DONTWAIT);
    if (n < 0 && would_block(errno)) return moved;
    if (n <= 0) {
      error_.store(n == 0 ? closed_by_peer : errno, std::memory_order_release);
      if (Context *ctx = owner.load(std::memory_order_acquire)) ctx->notify();
      return true;
    }
    moved = true;
    moved_ += static_cast<size_t>(n);
    if (moved_ < task.bytes) continue;
    moved_ = 0;
    head_.store(h + 1, std::memory_order_release);
    // The last piece publishes the whole message to the communicator's thread.
    if (task.pieces->fetch_sub(1, std::memory_order_acq_rel) == 1)
      if (Context *ctx = owner.load(std::memory_order_acquire)) ctx->notify();
  }
  return moved;
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
      constexpr int recheck_ms = 1000; // only a safety net: sockets and kick() end the wait
      epoll_wait(epoll.get(), events, 16, recheck_ms);
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(event.get(), &count, sizeof count);
    }
    asleep.store(false, std::memory_order_relaxed);
    idle = 0;
  }
}

} // namespace tutti::net_socket
