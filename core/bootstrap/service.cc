#include "bootstrap/service.h"
#include "bootstrap/hub.h"
#include "log/log.h"
#include "tutti/plugin/host.h"
#include <array>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace tutti::boot {
namespace {

std::mutex g_start; // guards the creation of g_service, and what a child must close of a TrackedFd; held over a fork
std::atomic<Service *> g_service{}; // leaked on purpose: other threads may still use it while the process ends
constexpr size_t kReserve = 512 << 10;
constexpr int kRetellMs = 20;
constexpr int kTracked = 1 << 16; // descriptors above this are not closed in a child
std::atomic<uint64_t> g_tracked[kTracked / 64];

uint32_t to_epoll(uint32_t events) {
  return (events & TUTTI_WATCH_READ ? EPOLLIN : 0u) | (events & TUTTI_WATCH_WRITE ? EPOLLOUT : 0u);
}

uint32_t from_epoll(uint32_t events) { // an error or hang-up makes both kinds of call return at once
  uint32_t out = 0;
  if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) out |= TUTTI_WATCH_READ;
  if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) out |= TUTTI_WATCH_WRITE;
  return out;
}

// g_start held, as in the next
void track_fd(int fd) {
  if (fd >= 0 && fd < kTracked) g_tracked[fd / 64].fetch_or(1ull << (fd % 64), std::memory_order_relaxed);
}

void untrack_fd(int fd) {
  if (fd >= 0 && fd < kTracked) g_tracked[fd / 64].fetch_and(~(1ull << (fd % 64)), std::memory_order_relaxed);
}

} // namespace

TrackedFd TrackedFd::socket(int family, int type) {
  TrackedFd made;
  std::lock_guard lock(g_start);
  made.fd_.reset(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  track_fd(made.get());
  return made;
}

TrackedFd TrackedFd::accept(int listener, sockaddr_storage *from) {
  TrackedFd made;
  socklen_t length = sizeof *from;
  std::lock_guard lock(g_start);
  made.fd_.reset(::accept4(listener, reinterpret_cast<sockaddr *>(from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  track_fd(made.get());
  return made;
}

TrackedFd &TrackedFd::operator=(TrackedFd &&o) noexcept {
  reset();
  fd_ = std::move(o.fd_);
  return *this;
}

void TrackedFd::reset() {
  if (!fd_) return;
  std::lock_guard lock(g_start);
  untrack_fd(fd_.get());
  fd_.reset();
}

bool raise_fd_limit(rlim_t need, std::string_view why) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return false;
  const rlim_t had = std::exchange(limit.rlim_cur, std::min(need, limit.rlim_max));
  if (limit.rlim_cur <= had || setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  log::info(log::Subsys::bootstrap, "soft limit of open files raised from {} to {}: {}", had, limit.rlim_cur, why);
  return true;
}

bool more_fds() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && raise_fd_limit(2 * limit.rlim_cur, "all were in use");
}

std::string fd_limit_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return "unknown";
  return fmt::format("{}, of at most {}", limit.rlim_cur, limit.rlim_max);
}

void Service::child_after_fork() { // only async-signal-safe calls
  for (int w = 0; w < kTracked / 64; w++) {
    uint64_t bits = g_tracked[w].exchange(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1) ::close(w * 64 + __builtin_ctzll(bits));
  }
  g_service.store(nullptr, std::memory_order_release);
}

Service &Service::get() {
  if (Service *s = g_service.load(std::memory_order_acquire)) return *s;
  std::lock_guard lock(g_start);
  if (Service *s = g_service.load(std::memory_order_acquire)) return *s;
  static const bool once = [] {
    pthread_atfork([] { g_start.lock(); }, [] { g_start.unlock(); },
                   [] {
                     child_after_fork();
                     g_start.unlock();
                   });
    std::atexit(&Service::at_exit);
    return true;
  }();
  (void)once;
  auto *s = new Service;
  g_service.store(s, std::memory_order_release);
  return *s;
}

void Service::at_exit() {
  Service *s = g_service.load(std::memory_order_acquire);
  if (s && s->pid_ == getpid()) s->stop();
}

Service::Service()
    : pid_(getpid()), epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reserve_(new std::byte[kReserve]) {
  track_fd(epoll_.get());
  track_fd(wake_.get());
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.u64 = 0;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &e);
  hub_ = std::make_unique<Hub>(*this);
  sigset_t all, old; // signals belong to the application's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  pthread_setname_np(thread_.native_handle(), "tutti-service");
}

void Service::stop() {
  if (!thread_.joinable() || on_thread()) return;
  {
    std::lock_guard lock(m_);
    stopping_ = true;
  }
  post([] {});
  thread_.join();
}

void Service::post(std::function<void()> task) {
  bool first;
  {
    std::lock_guard lock(m_);
    first = tasks_.empty();
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  if (first) [[maybe_unused]]
    ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

template <class Fn> bool Service::whole(Fn &&fn) noexcept {
  try {
    fn();
    return true;
  } catch (...) {
    reserve_.reset();
    exhausted_ = true;
    tell_all();
    return false;
  }
}

void Service::tell_all() noexcept {
  try {
    hub_->end_all();
    exhausted_ = false;
  } catch (...) { // the next turn tries again
  }
}

void Service::run_tasks() {
  std::vector<std::function<void()>> batch;
  {
    std::lock_guard lock(m_);
    batch.swap(tasks_);
  }
  for (auto &task : batch) whole(task);
}

int Service::run_timers() {
  while (!timers_.empty()) {
    auto it = timers_.begin();
    const auto left = it->first.first - Clock::now();
    if (left.count() > 0) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count() + 1;
      return static_cast<int>(std::min<int64_t>(ms, 60'000));
    }
    auto fn = std::move(it->second);
    timer_at_.erase(it->first.second);
    timers_.erase(it);
    whole(fn);
  }
  return -1;
}

void Service::run() {
  std::array<epoll_event, 64> events; // nothing that a forked child, which has no such thread, would seem to leak
  Clock::time_point give_up{};
  for (;;) {
    run_tasks();
    int wait = run_timers();
    if (exhausted_) {
      tell_all();
      wait = wait < 0 ? kRetellMs : std::min(wait, kRetellMs);
    }
    {
      std::lock_guard lock(m_);
      if (!tasks_.empty())
        wait = 0;
      else if (stopping_) { // what was said goodbye to gets a moment to read it
        if (give_up == Clock::time_point{}) give_up = Clock::now() + kLinger;
        if (Clock::now() >= give_up || draining == 0) break;
        wait = wait < 0 ? 10 : std::min(wait, 10);
      }
    }
    const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
    for (int i = 0; i < n; i++) {
      if (events[i].data.u64 == 0) {
        uint64_t count;
        [[maybe_unused]] ssize_t r = ::read(wake_.get(), &count, sizeof count);
      } else {
        dispatch(events[i].data.u64, events[i].events);
      }
    }
  }
  hub_->close_all();
}

void Service::dispatch(uint64_t token, uint32_t events) {
  if (auto it = watches_.find(token); it != watches_.end()) {
    const auto watch = it->second; // it may remove itself
    // Whoever cannot even take what has come would be woken for it without end.
    if (!whole([&] { watch->fn(events); }) && std::exchange(watch->threw, true)) remove(token);
    return;
  }
  Outside o;
  {
    std::lock_guard lock(m_);
    auto it = outside_.find(token);
    if (it == outside_.end()) return;
    o = it->second;
    running_outside_ = token;
  }
  o.fn(o.arg, from_epoll(events));
  {
    std::lock_guard lock(m_);
    running_outside_ = 0;
  }
  outside_idle_.notify_all();
}

Status Service::add(int fd, uint32_t events, Ready fn, uint64_t *token) {
  const uint64_t id = next_token_.fetch_add(1);
  epoll_event e{};
  e.events = events;
  e.data.u64 = id;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0) return fail_errno(errno, "cannot watch a socket");
  watches_[id] = std::make_shared<Watch>(Watch{fd, std::move(fn)});
  if (!reserve_) reserve_.reset(new (std::nothrow) std::byte[kReserve]);
  *token = id;
  return {};
}

void Service::modify(uint64_t token, uint32_t events) {
  auto it = watches_.find(token);
  if (it == watches_.end()) return;
  epoll_event e{};
  e.events = events;
  e.data.u64 = token;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, it->second->fd, &e);
}

void Service::remove(uint64_t token) {
  auto it = watches_.find(token);
  if (it == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, it->second->fd, nullptr);
  watches_.erase(it);
}

uint64_t Service::at(Clock::time_point when, std::function<void()> fn) {
  const uint64_t id = next_timer_++;
  timers_.emplace(std::pair(when, id), std::move(fn));
  timer_at_[id] = when;
  return id;
}

void Service::cancel(uint64_t timer) {
  auto it = timer_at_.find(timer);
  if (it == timer_at_.end()) return;
  timers_.erase(std::pair(it->second, timer));
  timer_at_.erase(it);
}

Status Service::watch(int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg) {
  if (fd < 0 || !fn || events == 0 || (events & ~(TUTTI_WATCH_READ | TUTTI_WATCH_WRITE)) != 0)
    return fail(Code::invalid_argument, "cannot watch descriptor {} for events {:#x}: read is 1, write is 2", fd, events);
  std::lock_guard lock(m_);
  for (const auto &[token, o] : outside_)
    if (o.fd == fd) return fail(Code::invalid_usage, "descriptor {} is watched already", fd);
  const uint64_t id = next_token_.fetch_add(1);
  epoll_event e{};
  e.events = to_epoll(events);
  e.data.u64 = id;
  outside_[id] = Outside{fd, fn, arg};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0) {
    const int err = errno;
    outside_.erase(id);
    return fail_errno(err, fmt::format("cannot watch descriptor {}", fd));
  }
  return {};
}

void Service::unwatch(int fd) {
  std::unique_lock lock(m_);
  for (auto it = outside_.begin(); it != outside_.end(); ++it) {
    if (it->second.fd != fd) continue;
    const uint64_t token = it->first;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    outside_.erase(it);
    if (!on_thread()) outside_idle_.wait(lock, [&] { return running_outside_ != token; });
    return;
  }
}

} // namespace tutti::boot

namespace tutti {

Status service_watch(int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg) {
  return boot::Service::get().watch(fd, events, fn, arg);
}

void service_unwatch(int fd) {
  boot::Service::get().unwatch(fd);
}

} // namespace tutti
