// tutti.h: memory and introspection.
#include "comm/handle.h"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

using namespace tutti;

namespace {

// In front of what tuttiMemAlloc gives; a page of its own keeps the user's part aligned.
struct Head {
  uint64_t magic;
  uint64_t mapped;
};
constexpr uint64_t kMemMagic = 0x7475'7474'694d'656dull;

uint64_t page_bytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Status allocate(void **ptr, size_t bytes) {
  if (!ptr) return fail(Code::invalid_argument, "mem alloc: ptr is NULL");
  if (bytes > SIZE_MAX - 2 * page_bytes()) return fail(Code::invalid_argument, "mem alloc: {} bytes are too many", bytes);
  const uint64_t mapped = align_up(std::max<uint64_t>(bytes, 1), page_bytes()) + page_bytes();
  void *at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return fail_errno(errno, fmt::format("mem alloc: cannot map {} bytes", mapped));
  // Fewer page faults and TLB misses for big buffers; a refusal does no harm.
  if (bytes >= 4u << 20) (void)madvise(at, mapped, MADV_HUGEPAGE);
  *static_cast<Head *>(at) = {kMemMagic, mapped};
  *ptr = static_cast<std::byte *>(at) + page_bytes();
  return {};
}

Status release(void *ptr) {
  auto *head = reinterpret_cast<Head *>(static_cast<std::byte *>(ptr) - page_bytes());
  if (reinterpret_cast<uintptr_t>(ptr) % page_bytes() || head->magic != kMemMagic)
    return fail(Code::invalid_argument, "mem free: {} was not made by tuttiMemAlloc", ptr);
  const uint64_t mapped = head->mapped;
  head->magic = 0;
  if (munmap(head, mapped) != 0) return fail_errno(errno, "mem free: munmap");
  return {};
}

} // namespace

extern "C" {

tuttiResult_t tuttiMemAlloc(void **ptr, size_t bytes) {
  return without_comm([&] { return allocate(ptr, bytes); });
}

tuttiResult_t tuttiMemFree(void *ptr) {
  if (!ptr) return tuttiSuccess;
  return without_comm([&] { return release(ptr); });
}

tuttiResult_t tuttiCommExplain(tuttiComm_t comm, const char *coll, size_t count, tuttiDataType_t type, char *text, size_t cap) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!coll || !text || cap == 0) return fail(Code::invalid_argument, "explain: coll or text is NULL, or cap is 0");
    TUTTI_ASSIGN(json, c.explain(coll, count, type));
    if (json.size() + 1 > cap)
      return fail(Code::invalid_argument, "explain: cap {} is short of {} bytes", cap, json.size() + 1);
    std::memcpy(text, json.c_str(), json.size() + 1);
    return {};
  });
}

tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t *bytes, uint64_t *fds) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_TRY(c.health());
    const Engine::Usage u = c.usage();
    if (bytes) *bytes = u.bytes;
    if (fds) *fds = u.fds;
    return {};
  });
}

} // extern "C"
