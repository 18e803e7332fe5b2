#include "exec/driver.h"
#include "exec/engine_impl.h"
#include <algorithm>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace tutti::driver {
namespace {

constexpr auto kNap = std::chrono::microseconds(500);     // between looks while there was work lately
constexpr auto kIdleAfter = std::chrono::milliseconds(1); // then the thread sleeps until it is woken
constexpr long kLongestSleepNs = 100'000'000;

struct State {
  std::mutex mutex; // guards engines, next, and the run of an engine found here
  std::vector<EngineImpl *> engines;
  size_t next = 0;
  std::mutex life; // guards thread and owner_pid
  std::thread thread;
  pid_t owner_pid = 0;
  std::atomic<bool> running{false}, stop{false};
  std::atomic<uint32_t> asleep{0};
  bool barrier = false;
};
State &state() {
  static auto *s = new State; // never destroyed: the thread may look at it while the process ends
  return *s;
}

void futex_wait(std::atomic<uint32_t> &word, uint32_t value) {
  const timespec limit{0, kLongestSleepNs};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT_PRIVATE, value, &limit, nullptr, 0);
}
void futex_wake(std::atomic<uint32_t> &word) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Caller holds mutex.
bool drive_next(State &s, EngineImpl *self) {
  for (size_t i = 0; i < s.engines.size(); i++) {
    EngineImpl *e = s.engines[s.next++ % s.engines.size()];
    if (e != self && e->wants_driver()) return e->progress();
  }
  return false;
}
bool any_work(State &s) {
  return std::any_of(s.engines.begin(), s.engines.end(), [](EngineImpl *e) { return e->wants_driver(); });
}

// The sleeper pays for the order of "I sleep" and "is there work": the other side then needs only a plain load.
void sleep_until_work(State &s) {
  s.asleep.store(1, std::memory_order_seq_cst);
  if (s.barrier) ::syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  bool work;
  {
    std::lock_guard lock(s.mutex);
    work = any_work(s);
  }
  if (!work && !s.stop.load()) futex_wait(s.asleep, 1);
  s.asleep.store(0, std::memory_order_relaxed);
}

void loop(State &s) {
  ::pthread_setname_np(::pthread_self(), "tutti-progress");
  auto last_work = Clock::now();
  while (!s.stop.load(std::memory_order_acquire)) {
    bool moved = false, work = false;
    {
      std::lock_guard lock(s.mutex);
      moved = drive_next(s, nullptr);
      work = moved || any_work(s);
    }
    if (work) last_work = Clock::now();
    if (moved) continue;
    if (work) std::this_thread::yield();
    if (work && Clock::now() - last_work < kIdleAfter) continue;
    if (Clock::now() - last_work < kIdleAfter)
      std::this_thread::sleep_for(kNap);
    else
      sleep_until_work(s);
  }
}

} // namespace

void add(EngineImpl *engine) {
  State &s = state();
  std::lock_guard lock(s.mutex);
  s.engines.push_back(engine);
}

void remove(EngineImpl *engine) {
  State &s = state();
  bool last;
  {
    std::lock_guard lock(s.mutex);
    std::erase(s.engines, engine);
    last = s.engines.empty();
  }
  if (!last) return;
  std::lock_guard life(s.life);
  {
    std::lock_guard lock(s.mutex);
    if (!s.engines.empty()) return;
  }
  if (!s.running.load() || s.owner_pid != ::getpid()) return;
  s.stop.store(true, std::memory_order_release);
  futex_wake(s.asleep);
  s.thread.join();
  s.running.store(false);
  s.stop.store(false);
}

bool drive_another(EngineImpl *self) {
  State &s = state();
  std::unique_lock lock(s.mutex, std::try_to_lock);
  return lock.owns_lock() && drive_next(s, self);
}

void work_arrived() {
  State &s = state();
  if (s.running.load(std::memory_order_acquire)) [[likely]] {
    std::atomic_signal_fence(std::memory_order_seq_cst); // the sleeper's membarrier makes it a real one
    if (s.asleep.load(std::memory_order_relaxed) == 1 && s.asleep.exchange(0) == 1) futex_wake(s.asleep);
    return;
  }
  std::lock_guard life(s.life);
  if (s.running.load()) return;
  s.barrier = ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  s.owner_pid = ::getpid();
  s.thread = std::thread([&s] { loop(s); });
  s.running.store(true, std::memory_order_release);
}

} // namespace tutti::driver
