// Kernels, memory, turns of a core.
#include "base/thread.h"
#include "comm/select/measure.h"
#include "exec/kernels.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

namespace tutti {
namespace {

constexpr uint32_t kMostThreads = 8;

template <class Fn> double ns_per_byte(size_t bytes, int times, Fn fn) {
  fn(); // pages exist, lines are in the cache if they can be
  const auto start = Clock::now();
  for (int i = 0; i < times; i++) fn();
  return us_since(start) * 1e3 / (double(bytes) * times);
}

// A line of 64 bytes with a word at its end, as protocols with the word in the data have it: there and back.
double words_ns(const std::vector<uint8_t> &from, std::vector<uint8_t> &lines, std::vector<uint8_t> &to, uint64_t word) {
  constexpr size_t kPayload = 56, kLine = 64;
  const size_t n = lines.size() / kLine;
  for (size_t i = 0; i < n; i++) {
    std::memcpy(&lines[i * kLine], &from[i * kPayload], kPayload);
    __atomic_store_n(reinterpret_cast<uint64_t *>(&lines[i * kLine + kPayload]), word, __ATOMIC_RELEASE);
  }
  uint64_t good = 0;
  for (size_t i = 0; i < n; i++) {
    if (__atomic_load_n(reinterpret_cast<uint64_t *>(&lines[i * kLine + kPayload]), __ATOMIC_ACQUIRE) != word) break;
    std::memcpy(&to[i * kPayload], &lines[i * kLine], kPayload);
    good++;
  }
  return static_cast<double>(good);
}

// Joins what has begun, whatever comes in between.
struct Threads {
  std::vector<std::thread> running;
  explicit Threads(size_t most) { running.reserve(most); }
  Threads(const Threads &) = delete;
  Threads &operator=(const Threads &) = delete;
  ~Threads() { join(); }
  void join() {
    for (auto &t : running) t.join();
    running.clear();
  }
};

// Two pieces of memory that nobody has touched: each thread's lie where it runs.
using Memory = std::unique_ptr<uint8_t[]>;
struct Pieces {
  Memory from, to;
};
// Empty where there is not that much memory.
std::vector<Pieces> make_pieces(uint32_t count, size_t bytes_each) {
  const auto piece = [&] { return Memory(new (std::nothrow) uint8_t[bytes_each]); };
  std::vector<Pieces> out(count);
  for (auto &p : out) {
    p = {piece(), piece()};
    if (!p.from || !p.to) return {};
  }
  return out;
}

// All threads at once copy pieces of their own; ns per byte of one of them, -1 when there is no memory for it.
double copy_together(uint32_t threads, const CpuSet &cpus, size_t bytes_each, tutti_copy_fn copy, const Deadline &deadline) {
  std::atomic<uint32_t> ready{0};
  std::vector<double> ns(threads, -1);
  const std::vector<Pieces> pieces = make_pieces(threads, bytes_each); // a thread must not fail
  if (pieces.empty()) return -1;
  const auto body = [&](uint32_t t) {
    uint8_t *const from = pieces[t].from.get(), *const to = pieces[t].to.get();
    std::memset(from, 1, bytes_each);
    copy(to, from, bytes_each);
    ready++;
    while (ready < threads)
      if (deadline.expired()) return;
    constexpr size_t kEnough = 8 << 20; // bytes that a run copies at least
    const int times = static_cast<int>(std::max<size_t>(1, kEnough / bytes_each));
    const auto start = Clock::now();
    for (int i = 0; i < times; i++) copy(to, from, bytes_each);
    ns[t] = us_since(start) * 1e3 / (double(bytes_each) * times);
  };
  Threads others(threads);
  for (uint32_t t = 1; t < threads; t++) {
    auto thread = start_thread([&, t, here = sched_getcpu()] {
      move_to(cpus, here);
      body(t);
    });
    if (thread.ok())
      others.running.push_back(std::move(*thread));
    else
      ready++;
  }
  body(0);
  others.join();
  return *std::max_element(ns.begin(), ns.end());
}

int first_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
  for (int c = 0; c < CPU_SETSIZE; c++)
    if (CPU_ISSET(c, &set)) return c;
  return -1;
}

// Two threads on one core that hand a number to and fro, each giving way until it has come.
double turn_us(const Deadline &deadline) {
  constexpr int kTurns = 1000;
  const int cpu = first_cpu();
  if (cpu < 0) return -1;
  std::atomic<int> turn{0};
  std::atomic<bool> good{true};
  double us = -1;
  const auto body = [&](int me) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) good = false;
    const auto start = Clock::now();
    for (int i = 0; i < kTurns && good; i++) {
      while (turn.load(std::memory_order_acquire) != 2 * i + me && good) {
        sched_yield();
        if (deadline.expired()) good = false;
      }
      turn.store(2 * i + me + 1, std::memory_order_release);
    }
    if (me == 0) us = us_since(start) / (2 * kTurns);
  };
  Threads both(2);
  for (const int me : {1, 0}) {
    auto thread = start_thread([&body, me] { body(me); });
    if (thread.ok())
      both.running.push_back(std::move(*thread));
    else
      good = false;
  }
  both.join();
  return good ? us : -1;
}

} // namespace

void move_to(const CpuSet &cpus, int but_not) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto words = cpus.words();
  for (size_t c = 0; c < std::min<size_t>(words.size() * 64, CPU_SETSIZE); c++)
    if ((words[c / 64] >> c % 64 & 1) && static_cast<int>(c) != but_not) CPU_SET(c, &set);
  if (CPU_COUNT(&set) > 0) (void)sched_setaffinity(0, sizeof set, &set); // where it may not, it stays
}

void measure_kernels(CostConstants *costs, const Deadline &deadline) {
  constexpr size_t kBytes = 32 << 10;
  constexpr int kTimes = 16;
  const auto *kernels = host_reduce_service();
  const auto copy = kernels->copy(0);
  const auto add = kernels->reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 0);
  std::vector<uint8_t> a(kBytes), b(kBytes), c(kBytes / 56 * 64);
  const double copied =
      median_of(5, deadline, [&] { return ns_per_byte(kBytes, kTimes, [&] { copy(b.data(), a.data(), kBytes); }); });
  if (copied <= 0) return;
  costs->copy_ns = copied;
  const double reduced =
      median_of(5, deadline, [&] { return ns_per_byte(kBytes, kTimes, [&] { add(b.data(), a.data(), b.data(), kBytes); }); });
  if (reduced > 0) costs->reduce_ns = std::max(0.1 * copied, reduced - copied / 2); // of a copy, half is to store the result
  const double words = median_of(5, deadline, [&] { return ns_per_byte(kBytes, kTimes, [&] { (void)words_ns(a, c, b, 1); }); });
  if (words > 0) costs->piece_ns = std::max(0.2, (words - 2 * copied) * 56 / 2);
}

bool measure_memory(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline) {
  const auto *kernels = host_reduce_service();
  const auto copy = kernels->copy(0), past = kernels->copy(TUTTI_KERNEL_NONTEMPORAL);
  const uint32_t threads = std::clamp(cpus.count(), 1u, kMostThreads);
  double before = 0, last_us = 0;
  for (size_t i = 0; i < CostConstants::kFootprints.size(); i++) {
    if (std::chrono::duration<double, std::micro>(deadline.left()).count() < 5 * last_us) return false; // four times as much
    const auto start = Clock::now();
    const double footprint = CostConstants::kFootprints[i];
    const size_t each = std::max<size_t>(64 << 10, static_cast<size_t>(footprint) / (2 * threads)) / 64 * 64;
    const double cached = copy_together(threads, cpus, each, copy, deadline);
    if (cached <= 0) return false;
    if (i == 0) before = cached;
    costs->memory_ns[i] = std::max(0.0, cached - before) / 2; // read and written
    last_us = us_since(start);
    if (i < 2 || !past || deadline.expired()) continue; // what the caches hold is not stored past them
    if (const double direct = copy_together(threads, cpus, each, past, deadline); direct > 0)
      costs->past_cache_ns[i] = std::max(0.0, direct - before) / 2;
    last_us = us_since(start);
  }
  return true;
}

void measure_system(CostConstants *costs, const Deadline &deadline) {
  // A rank also looks at its links in vain for a while before it gives way.
  constexpr double kLooks = 1.6;
  if (const double turn = median_of(3, deadline, [&] { return turn_us(deadline); }); turn > 0) costs->turn_us = kLooks * turn;
  std::vector<uint8_t> a(64 << 10, 1), b(64 << 10);
  const auto read = [&](size_t bytes, int times) -> double {
    iovec local{b.data(), bytes}, remote{a.data(), bytes};
    const auto start = Clock::now();
    for (int i = 0; i < times; i++)
      if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes)) return -1;
    return us_since(start) / times;
  };
  const double little = median_of(3, deadline, [&] { return read(64, 200); });
  const double much = median_of(3, deadline, [&] { return read(a.size(), 20); });
  if (little < 0 || much < 0) return; // not allowed here: nobody will pull private memory either
  // Another process's memory is more work to get at than one's own, and comes from another core's cache; by how much was
  // measured between processes.
  constexpr double kOthers = 2.4, kOthersBytes = 3.5;
  costs->pull_us = kOthers * little;
  costs->pull_ns = kOthersBytes * std::max(0.0, much - little) * 1e3 / double(a.size());
}

} // namespace tutti
