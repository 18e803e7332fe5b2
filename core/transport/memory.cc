#include "transport/memory.h"
#include "base/fork.h"
#include "log/log.h"
#include "plan/chunks.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <linux/memfd.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>

namespace tutti {
namespace {

constexpr uint64_t kHugePage = 2 << 20;

// Blocks of this process that may be opened by id; guards against a peer that is already gone.
struct LocalBlocks {
  struct Entry {
    uint8_t *data;
    uint64_t bytes;
    uint32_t refs;
  };
  std::mutex mutex; // guards the members below
  std::map<uint64_t, Entry> entries;
  uint64_t next = 1;
};
LocalBlocks &local_blocks() {
  static auto *blocks = [] { // never destroyed: engines may outlive static destruction
    auto *made = new LocalBlocks;
    hold_over_fork(made->mutex);
    return made;
  }();
  return *blocks;
}

} // namespace

Status MemoryBudget::take(uint64_t bytes, const std::string &what) {
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (cap_ && (bytes > cap_ || used > cap_ - bytes))
      return fail(Code::invalid_usage, "{} needs {} bytes, but {} of the cap of {} bytes (memory.cap) are in use", what, bytes,
                  used, cap_)
          .phase("connect")
          .hint("raise memory.cap or use fewer channels or smaller slots");
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return {};
}

Result<Block> Block::create_empty(uint64_t bytes) {
  void *p = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return fail_errno(errno, fmt::format("mapping {} bytes for a link", bytes)).phase("connect");
  Block b;
  b.data_ = static_cast<uint8_t *>(p);
  b.bytes_ = bytes;
  return b;
}

Result<Block> Block::create_local(uint64_t bytes) {
  void *p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!p) return fail(Code::system, "out of memory: {} bytes for a link", bytes).phase("connect");
  std::memset(p, 0, bytes);
  Block b;
  b.data_ = static_cast<uint8_t *>(p);
  b.bytes_ = bytes;
  auto &all = local_blocks();
  std::lock_guard lock(all.mutex);
  b.id_ = all.next++;
  all.entries[b.id_] = {b.data_, bytes, 1};
  return b;
}

Result<Block> Block::open_local(uint64_t id) {
  auto &all = local_blocks();
  std::lock_guard lock(all.mutex);
  const auto it = all.entries.find(id);
  if (it == all.entries.end()) return fail(Code::remote, "the peer has closed the link").phase("connect");
  it->second.refs++;
  Block b;
  b.data_ = it->second.data;
  b.bytes_ = it->second.bytes;
  b.id_ = id;
  return b;
}

Result<Block> Block::create_shared(uint64_t bytes, bool huge, UniqueFd *fd, bool touch) {
  if (huge && bytes >= kHugePage) {
    auto block = create_memfd(align_up(bytes, kHugePage), MFD_HUGETLB | MFD_HUGE_2MB, fd, touch);
    if (block.ok()) return block;
    static std::atomic<bool> said{false};
    if (!said.exchange(true))
      log::warn(log::Subsys::shm, "shm.huge_pages: {}; ordinary pages serve", block.status().error().message);
  }
  return create_memfd(bytes, 0, fd, touch);
}

Result<Block> Block::create_memfd(uint64_t bytes, unsigned flags, UniqueFd *fd, bool touch) {
  UniqueFd mem(::memfd_create("tutti-link", MFD_CLOEXEC | flags));
  if (!mem) {
    const int err = errno;
    const char *hint =
        err == EMFILE || err == ENFILE ? "raise ulimit -n" : "set TUTTI_SHM_DISABLE=1 to use the network instead";
    return fail_errno(err, fmt::format("cannot create shared memory of {} bytes: memfd_create", bytes))
        .phase("connect")
        .hint(hint);
  }
  if (::ftruncate(mem.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno(errno, fmt::format("cannot size shared memory to {} bytes: ftruncate", bytes)).phase("connect");
  auto block = map_shared(mem.get(), bytes, touch);
  if (block.ok()) {
    if (touch) std::memset(block->data(), 0, bytes); // first-touch faults belong here, not into the first operation
    *fd = std::move(mem);
  }
  return block;
}

Result<Block> Block::map_shared(int fd, uint64_t bytes, bool touch) {
  struct stat st {};
  if (::fstat(fd, &st) != 0 || static_cast<uint64_t>(st.st_size) < bytes)
    return fail(Code::remote, "shared memory of a peer has {} bytes, {} were announced", st.st_size, bytes).phase("connect");
  const uint64_t whole = align_up(bytes, static_cast<uint64_t>(st.st_blksize)); // of huge pages only whole ones are unmapped
  void *p = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | (touch ? MAP_POPULATE : 0), fd, 0);
  if (p == MAP_FAILED)
    return fail_errno(errno, fmt::format("cannot map {} bytes of shared memory: mmap", whole)).phase("connect");
  Block b;
  b.data_ = static_cast<uint8_t *>(p);
  b.bytes_ = whole;
  return b;
}

void Block::reset() {
  if (!data_) return;
  if (!id_) {
    ::munmap(data_, bytes_);
  } else {
    auto &all = local_blocks();
    std::lock_guard lock(all.mutex);
    const auto it = all.entries.find(id_);
    if (--it->second.refs == 0) {
      std::free(data_);
      all.entries.erase(it);
    }
  }
  data_ = nullptr;
  bytes_ = id_ = 0;
}

} // namespace tutti
