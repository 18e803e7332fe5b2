#include "exec/driver.h"
#include "base/thread.h"
#include "exec/engine_impl.h"
#include "log/log.h"
#include <algorithm>
#include <condition_variable>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::driver {
namespace {

constexpr auto kNap = std::chrono::microseconds(500);       // between looks while there were operations lately, ...
constexpr auto kLongestNap = std::chrono::milliseconds(4);  // ... and when somebody waited for all of them for some time
constexpr auto kIdleAfter = std::chrono::milliseconds(1);   // without any at the last look, then the thread sleeps
constexpr auto kBlocked = std::chrono::microseconds(50);    // between looks at operations that wait for peers, ...
constexpr auto kLongBlocked = std::chrono::milliseconds(1); // ... and when they have waited for 20 ms
constexpr auto kLongestSleep = std::chrono::milliseconds(100);
constexpr auto kRetry = std::chrono::seconds(1); // after the system had no thread

struct State {
  std::mutex mutex; // guards engines, busy and next
  std::vector<EngineImpl *> engines;
  std::vector<EngineImpl *> busy; // being driven from here, once per driving thread
  std::condition_variable let_go; // of an engine in busy
  size_t next = 0;
  std::mutex life; // guards thread, retry_at and warned; taken before mutex
  std::thread thread;
  Clock::time_point retry_at{};
  bool warned = false;
  std::atomic<bool> running{false}, stop{false};
  std::atomic<uint32_t> asleep{0};
  bool barrier = false;
  State *parents = nullptr; // of the process that this one was forked from: kept, never used
};

State *current = nullptr;
void before_fork() {
  current->life.lock();
  current->mutex.lock();
}
void after_fork() {
  current->mutex.unlock();
  current->life.unlock();
}
// The thread and the engines are the parent's: a child that drove them would write into links of its parent.
void in_child() {
  auto *fresh = new State;
  fresh->parents = current;
  current = fresh;
}
State &state() {
  static const bool made = [] {
    current = new State; // never destroyed: the thread may look at it while the process ends
    ::pthread_atfork(before_fork, after_fork, in_child);
    return true;
  }();
  (void)made;
  return *current;
}

void futex_wait(std::atomic<uint32_t> &word, uint32_t value, Nanos longest) { // under a second
  const timespec limit{0, longest.count()};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, value, &limit, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t> &word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
// Orders this thread's stores before its loads, and the same for all others: they pay nothing for it.
void heavy_fence(const State &s) {
  if (s.barrier) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

// An engine that wants a driver, kept from remove() until let_go(). Caller holds mutex.
EngineImpl *take(State &s, const EngineImpl *self) {
  for (size_t i = 0; i < s.engines.size(); i++) {
    EngineImpl *e = s.engines[s.next++ % s.engines.size()];
    if (e == self || !e->wants_driver()) continue;
    s.busy.push_back(e);
    return e;
  }
  return nullptr;
}
bool drive(State &s, EngineImpl *e) {
  const bool moved = e->progress();
  {
    std::lock_guard lock(s.mutex);
    s.busy.erase(std::find(s.busy.begin(), s.busy.end(), e));
  }
  s.let_go.notify_all();
  return moved;
}
bool any_work(State &s) {
  std::lock_guard lock(s.mutex);
  return std::any_of(s.engines.begin(), s.engines.end(), [](EngineImpl *e) { return e->wants_driver(); });
}

// The sleeper pays for the order of "I sleep" and "is there work": the other side then needs only a plain load.
void sleep_until_work(State &s) {
  s.asleep.store(1, std::memory_order_seq_cst);
  heavy_fence(s);
  if (!any_work(s) && !s.stop.load()) futex_wait(s.asleep, 1, kLongestSleep);
  s.asleep.store(0, std::memory_order_relaxed);
}
// Operations wait for their peers. A wake-up that is lost costs one nap.
void nap(State &s, Nanos quiet) {
  s.asleep.store(1, std::memory_order_seq_cst);
  if (!s.stop.load()) futex_wait(s.asleep, 1, quiet < 20 * kIdleAfter ? Nanos(kBlocked) : Nanos(kLongBlocked));
  s.asleep.store(0, std::memory_order_relaxed);
}

void loop(State &s) {
  ::pthread_setname_np(::pthread_self(), "tutti-progress");
  auto last_move = Clock::now();
  bool had_work = false;
  uint64_t seen = 0;    // operations of all engines
  size_t fruitless = 0; // engines driven in vain since the last nap
  Nanos doze = kNap;
  while (!s.stop.load(std::memory_order_acquire)) {
    EngineImpl *e;
    size_t engines;
    uint64_t operations = 0;
    {
      std::lock_guard lock(s.mutex);
      e = take(s, nullptr);
      engines = s.engines.size();
      for (const EngineImpl *one : s.engines) operations += one->arrived();
    }
    const bool moved = e && drive(s, e);
    const auto now = Clock::now();
    // Callers that wait for each of their operations need this thread for none: while they go on it must not sleep, or each one
    // would pay for waking it.
    if (moved || (e ? !had_work : operations != seen)) last_move = now, fruitless = 0;
    had_work = e != nullptr;
    seen = operations;
    if (e) doze = kNap;
    if (moved) continue;
    if (now - last_move < kIdleAfter) {
      if (e) {
        std::this_thread::yield();
      } else {
        futex_wait(s.asleep, 0, doze); // only the end of the last engine wakes it
        doze = std::min<Nanos>(2 * doze, kLongestNap);
      }
    } else if (!e) {
      sleep_until_work(s);
      doze = kNap;
    } else if (++fruitless >= engines) {
      nap(s, now - last_move);
      fruitless = 0;
    }
  }
}

// Caller holds life. Without a thread, operations make progress when somebody waits.
void start(State &s) {
  if (Clock::now() < s.retry_at) return;
  s.barrier = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  auto thread = start_thread([&s] { loop(s); });
  if (!thread.ok()) {
    s.retry_at = Clock::now() + kRetry;
    if (!std::exchange(s.warned, true))
      log::warn(log::Subsys::coll, "{}; operations go on only while a call waits", thread.status().error().message);
    return;
  }
  s.thread = std::move(*thread);
  s.running.store(true, std::memory_order_release);
}

} // namespace

void add(EngineImpl *engine) {
  State &s = state();
  std::lock_guard lock(s.mutex);
  s.engines.push_back(engine);
}

void remove(EngineImpl *engine) {
  State &s = state();
  {
    std::unique_lock lock(s.mutex);
    std::erase(s.engines, engine);
    // A round is bounded, and nobody takes the engine up again.
    s.let_go.wait(lock, [&] { return std::find(s.busy.begin(), s.busy.end(), engine) == s.busy.end(); });
    if (!s.engines.empty()) return;
  }
  std::lock_guard life(s.life);
  {
    std::lock_guard lock(s.mutex);
    if (!s.engines.empty()) return;
  }
  if (!s.running.load()) return;
  s.stop.store(true);
  s.asleep.store(0); // it looks at `stop` after it has set this
  futex_wake(s.asleep);
  s.thread.join();
  s.running.store(false);
  s.stop.store(false);
  heavy_fence(s); // who still saw it running has enqueued before
  if (any_work(s)) start(s);
}

bool drive_another(EngineImpl *self) {
  State &s = state();
  EngineImpl *e;
  {
    std::unique_lock lock(s.mutex, std::try_to_lock);
    if (!lock.owns_lock() || !(e = take(s, self))) return false;
  }
  return drive(s, e);
}

void work_arrived() {
  State &s = state();
  if (s.running.load(std::memory_order_acquire)) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst); // the sleeper's membarrier makes it a real one
    if (s.asleep.load(std::memory_order_relaxed) == 1 && s.asleep.exchange(0) == 1) futex_wake(s.asleep);
    return;
  }
  std::lock_guard life(s.life);
  if (!s.running.load()) start(s);
}

} // namespace tutti::driver
