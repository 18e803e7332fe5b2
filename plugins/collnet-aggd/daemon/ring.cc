// tutti/plugins/collnet-aggd/daemon/ring.cc
#include "ring.h"
#include "sockets.h"
#include <cerrno>
#include <sys/mman.h>

namespace tutti::aggd {

Ring &Ring::operator=(Ring &&o) noexcept {
  std::swap(base_, o.base_);
  std::swap(mask_, o.mask_);
  std::swap(head, o.head);
  std::swap(tail, o.tail);
  return *this;
}

Ring::~Ring() {
  if (base_) ::munmap(base_, 2 * capacity());
}

Result<Ring> Ring::make(uint32_t bytes) {
  const Fd file(::memfd_create("tutti-aggd", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), bytes) != 0)
    return fail(Code::system, "cannot make a ring of {} bytes", bytes).sys(errno);
  void *all = ::mmap(nullptr, size_t{bytes} * 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return fail(Code::system, "cannot map a ring of {} bytes", bytes).sys(errno);
  Ring ring;
  ring.base_ = static_cast<uint8_t *>(all);
  ring.mask_ = bytes - 1;
  for (int i = 0; i < 2; i++)
    if (::mmap(ring.base_ + size_t{bytes} * static_cast<size_t>(i), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               file.get(), 0) == MAP_FAILED)
      return fail(Code::system, "cannot map a ring of {} bytes", bytes).sys(errno);
  return ring;
}

} // namespace tutti::aggd
