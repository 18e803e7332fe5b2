#include "transport/regions.h"
#include "base/fork.h"
#include "log/log.h"
#include "plan/chunks.h"
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <fcntl.h>
#include <linux/memfd.h>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace tutti {
namespace {

constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kWorthHuge = 2 * kHugePage;     // below, a huge page would mostly be left over
constexpr auto kEndTime = std::chrono::seconds(5); // for posts that use memory which is freed

struct Entry {
  uint64_t id, bytes, mapped;
  UniqueFd fd; // none: private memory
};
struct All {
  std::mutex mutex;                   // guards the two below
  std::map<uintptr_t, Entry> entries; // by address
  uint64_t next = 1;
  std::mutex
      listening; // guards those below, which belong to the process `pid`: a forked child tells its parent's peers nothing
  std::vector<regions::Listener *> listeners, called; // called: once by each thread that is there
  std::condition_variable returned;
  pid_t pid = 0;
  All() { hold_over_fork(mutex); }
};
All &all() {
  static auto *a = new All; // never destroyed: memory may be freed during static destruction
  return *a;
}

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Result<Entry> shared_memory(uint64_t mapped, void **at) {
  UniqueFd fd(::memfd_create("tutti-memory", MFD_CLOEXEC));
  if (!fd) return fail_errno(errno, "memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(mapped)) != 0) return fail_errno(errno, "ftruncate");
  *at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (*at == MAP_FAILED) return fail_errno(errno, "mmap");
  return Entry{0, 0, mapped, std::move(fd)};
}

// Each listener once. None of them is waited for with the mutex held: others come and go meanwhile.
Status tell_freed(All &a, const Region &region) {
  const Deadline patience = Deadline::in(kEndTime);
  std::vector<regions::Listener *> told;
  std::unique_lock lock(a.listening);
  if (a.pid != ::getpid()) return {};
  Status first;
  for (;;) {
    const auto it = std::find_if(a.listeners.begin(), a.listeners.end(),
                                 [&](regions::Listener *l) { return std::find(told.begin(), told.end(), l) == told.end(); });
    if (it == a.listeners.end()) return first;
    regions::Listener *l = told.emplace_back(*it);
    a.called.push_back(l);
    lock.unlock();
    Status s = l->region_freed(region, patience);
    lock.lock();
    a.called.erase(std::find(a.called.begin(), a.called.end(), l));
    a.returned.notify_all();
    if (first.ok()) first = std::move(s);
  }
}

// What regions of the process hold: the one before the address that follows.
std::map<uintptr_t, Entry>::iterator holder(All &a, const void *p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  auto it = a.entries.upper_bound(at);
  if (it == a.entries.begin()) return a.entries.end();
  --it;
  return at - it->first < it->second.mapped ? it : a.entries.end();
}

} // namespace

namespace regions {

Result<void *> allocate(uint64_t bytes) {
  if (bytes > UINT64_MAX - kHugePage) return fail(Code::invalid_argument, "mem alloc: {} bytes are too many", bytes);
  const uint64_t mapped = align_up(std::max<uint64_t>(bytes, 1), page_bytes());
  void *at = MAP_FAILED;
  auto entry = shared_memory(mapped, &at);
  if (!entry.ok()) {
    at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return fail_errno(errno, fmt::format("mem alloc: cannot map {} bytes", mapped));
    log::write_once(log::Level::warn, log::Subsys::shm, "tuttiMemAlloc",
                    fmt::format("memory of tuttiMemAlloc is not shared, so peers copy it: {}", entry.status().error().message));
    entry = Entry{0, 0, mapped, {}};
  }
  if (bytes >= kWorthHuge)
    (void)::madvise(at, mapped, MADV_HUGEPAGE); // fewer page faults and TLB misses; a refusal does no harm
  All &a = all();
  std::lock_guard lock(a.mutex);
  entry->id = a.next++;
  entry->bytes = bytes;
  a.entries.emplace(reinterpret_cast<uintptr_t>(at), std::move(*entry));
  return at;
}

Status release(void *at) {
  All &a = all();
  std::optional<Entry> entry;
  {
    std::lock_guard lock(a.mutex);
    const auto it = a.entries.find(reinterpret_cast<uintptr_t>(at));
    if (it == a.entries.end()) return fail(Code::invalid_argument, "mem free: {} was not made by tuttiMemAlloc", at);
    entry = std::move(it->second);
    a.entries.erase(it);
  }
  if (Status s = entry->fd ? tell_freed(a, {entry->id, static_cast<uint8_t *>(at), entry->mapped}) : Status(); !s.ok()) {
    std::lock_guard lock(a.mutex);
    a.entries.emplace(reinterpret_cast<uintptr_t>(at), std::move(*entry));
    return s;
  }
  if (::munmap(at, entry->mapped) != 0) return fail_errno(errno, "mem free: munmap");
  return {};
}

Region find(const void *p) {
  All &a = all();
  std::lock_guard lock(a.mutex);
  const auto it = holder(a, p);
  if (it == a.entries.end() || !it->second.fd) return {};
  return {it->second.id, reinterpret_cast<uint8_t *>(it->first), it->second.mapped};
}

Result<UniqueFd> share(uint64_t id) {
  All &a = all();
  std::lock_guard lock(a.mutex);
  for (const auto &[at, e] : a.entries) {
    if (e.id != id || !e.fd) continue;
    UniqueFd copy(::fcntl(e.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail_errno(errno, "sharing memory of tuttiMemAlloc");
    return copy;
  }
  return fail(Code::invalid_usage, "memory {} of tuttiMemAlloc was freed", id).because(ENOENT);
}

bool alive(uint64_t id) {
  All &a = all();
  std::lock_guard lock(a.mutex);
  return std::any_of(a.entries.begin(), a.entries.end(), [id](const auto &e) { return e.second.id == id; });
}

void listen(Listener *listener) {
  All &a = all();
  std::lock_guard lock(a.listening);
  if (a.pid != ::getpid()) {
    a.listeners.clear();
    a.called.clear();
  }
  a.pid = ::getpid();
  a.listeners.push_back(listener);
}

void leave(Listener *listener) {
  All &a = all();
  std::unique_lock lock(a.listening);
  std::erase(a.listeners, listener);
  a.returned.wait(
      lock, [&] { return a.pid != ::getpid() || std::find(a.called.begin(), a.called.end(), listener) == a.called.end(); });
}

} // namespace regions

PeerRegions::~PeerRegions() {
  for (const auto &[key, v] : views_)
    if (v.at) ::munmap(const_cast<uint8_t *>(v.at), v.bytes);
}

PeerRegions::View PeerRegions::look(int peer, uint64_t id) {
  View &v = views_[{peer, id}];
  const View seen = v;
  if (v.state == State::unknown) v.state = State::asked;
  return seen;
}

void PeerRegions::map(int peer, uint64_t id, int fd, int err) {
  View v;
  v.state = State::refused;
  v.err = err ? err : EMFILE; // the kernel drops a descriptor that the receiver has no room for
  struct stat st {};
  if (fd >= 0 && ::fstat(fd, &st) == 0) {
    v.bytes = static_cast<uint64_t>(st.st_size);
    void *at = ::mmap(nullptr, v.bytes, PROT_READ, MAP_SHARED, fd, 0);
    v.err = at == MAP_FAILED ? errno : 0;
    if (at != MAP_FAILED) {
      v.state = State::mapped;
      v.at = static_cast<uint8_t *>(at);
      if (v.bytes >= kWorthHuge) (void)::madvise(at, v.bytes, MADV_HUGEPAGE);
    }
  }
  std::lock_guard lock(mutex_);
  View &old = views_[{peer, id}];
  if (old.at) { // it came twice
    if (v.at) ::munmap(const_cast<uint8_t *>(v.at), v.bytes);
    return;
  }
  old = v;
}

void PeerRegions::drop(int peer, uint64_t id) {
  std::lock_guard lock(mutex_);
  const auto it = views_.find({peer, id});
  if (it == views_.end()) return;
  if (it->second.at) ::munmap(const_cast<uint8_t *>(it->second.at), it->second.bytes);
  views_.erase(it);
}

} // namespace tutti
