// The two ranks of a pair map one memfd. The leader, who has the lower rank, makes it; they hand a word back and forth, then
// the leader copies blocks in and the other one copies them out.
#include "tools/doctor/local.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>

namespace tutti::doctor {
namespace {

constexpr size_t kBlock = 1 << 20, kSlots = 2;
constexpr int kPings = 1000, kBlocks = 64;

struct Shared {
  alignas(128) std::atomic<uint32_t> to_follower;
  alignas(128) std::atomic<uint32_t> to_leader;
  alignas(128) std::byte blocks[kSlots][kBlock];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

class Mapping {
public:
  explicit Mapping(int fd) : at_(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (at_ != MAP_FAILED) munmap(at_, sizeof(Shared));
  }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  Shared *get() const { return at_ == MAP_FAILED ? nullptr : static_cast<Shared *>(at_); }

private:
  void *at_;
};

// Spins for a while, then lets others have the core: there may be more ranks than cores.
bool wait_until(const std::atomic<uint32_t> &word, uint32_t value, Deadline deadline) {
  for (uint32_t spins = 0; word.load(std::memory_order_acquire) != value; spins++) {
    if (spins < 2000) continue;
    sched_yield();
    if (spins % 1024 == 0 && deadline.expired()) return false;
  }
  return true;
}

bool follow(Shared &s, Deadline deadline) {
  uint32_t n = 0;
  for (int i = 0; i < kPings; i++) {
    if (!wait_until(s.to_follower, ++n, deadline)) return false;
    s.to_leader.store(n, std::memory_order_release);
  }
  std::vector<std::byte> out(kBlock);
  for (int i = 0; i < kBlocks; i++) {
    if (!wait_until(s.to_follower, ++n, deadline)) return false;
    std::memcpy(out.data(), s.blocks[i % static_cast<int>(kSlots)], kBlock);
    s.to_leader.store(n, std::memory_order_release);
  }
  return true;
}

bool lead(Shared &s, LocalPair &out, Deadline deadline) {
  using Seconds = std::chrono::duration<double>;
  uint32_t n = 0;
  std::vector<double> times;
  for (int i = 0; i < kPings; i++) {
    const auto begin = Clock::now();
    s.to_follower.store(++n, std::memory_order_release);
    if (!wait_until(s.to_leader, n, deadline)) return false;
    times.push_back(Seconds(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + kPings / 2, times.end());
  out.latency_us = times[kPings / 2] / 2 * 1e6;
  const std::vector<std::byte> in(kBlock, std::byte{1});
  double best = 1e9; // of a block: the first ones touch memory for the first time
  for (int i = 0; i < kBlocks; i++) {
    const auto begin = Clock::now();
    std::memcpy(s.blocks[i % static_cast<int>(kSlots)], in.data(), kBlock);
    s.to_follower.store(++n, std::memory_order_release);
    if (!wait_until(s.to_leader, n, deadline)) return false;
    best = std::min(best, Seconds(Clock::now() - begin).count());
  }
  out.gbs = static_cast<double>(kBlock) / best / 1e9;
  return true;
}

std::string run_pair(Bootstrap &bootstrap, LocalPair &pair, uint64_t tag, Deadline deadline) {
  const int me = bootstrap.rank(), other = me == pair.a ? pair.b : pair.a;
  const std::string what = "doctor, ranks of one host";
  UniqueFd memory;
  if (me == pair.a) {
    memory.reset(memfd_create("tutti-doctor", MFD_CLOEXEC));
    if (!memory || ftruncate(memory.get(), sizeof(Shared)) != 0) memory.reset();
    // An empty message: the other one need not wait for what does not come.
    if (Status s = bootstrap.send(other, tag, {}, memory.get()); !s.ok()) return s.error().line();
  } else {
    auto message = bootstrap.recv(other, tag, deadline, what);
    if (!message.ok()) return message.status().error().line();
    memory = std::move(message->fd);
  }
  if (!memory) return "no memory could be shared";
  const Mapping mapping(memory.get());
  if (!mapping.get()) return "shared memory could not be mapped";
  const bool ended = me == pair.a ? lead(*mapping.get(), pair, deadline) : follow(*mapping.get(), deadline);
  return ended ? "" : fmt::format("rank {} stopped answering", other);
}

} // namespace

int rounds(int count) {
  return count < 2 ? 0 : count % 2 ? count : count - 1;
}

// The circle method: one stands still, the others move on by one place each round. Of an odd number one sits out.
int opponent(int count, int round, int index) {
  const int even = count + count % 2, turning = even - 1;
  int other = 0;
  if (index == turning) {
    other = round * (even / 2) % turning; // the one whose partner would be itself
  } else {
    other = ((round - index) % turning + turning) % turning;
    if (other == index) other = turning;
  }
  return other < count ? other : -1;
}

std::vector<LocalPair> measure_local(Bootstrap &bootstrap, const std::vector<int> &group, Deadline deadline) {
  std::vector<LocalPair> out;
  const auto me = std::find(group.begin(), group.end(), bootstrap.rank());
  if (me == group.end()) return out;
  const int count = static_cast<int>(group.size()), index = static_cast<int>(me - group.begin());
  for (int round = 0; round < rounds(count) && !deadline.expired(); round++) {
    const int other = opponent(count, round, index);
    if (other < 0) continue;
    const auto [low, high] = std::minmax(index, other);
    LocalPair pair;
    pair.a = group[static_cast<size_t>(low)];
    pair.b = group[static_cast<size_t>(high)];
    const Deadline soon = Deadline::in(std::min<Nanos>(deadline.left(), std::chrono::seconds(10)));
    pair.problem = run_pair(bootstrap, pair, make_tag(MsgKind::user, static_cast<uint64_t>(round)), soon);
    if (index == low) out.push_back(std::move(pair));
  }
  return out;
}

} // namespace tutti::doctor
