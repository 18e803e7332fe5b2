#include "transport/pull.h"
#include <cerrno>
#include <sys/uio.h>

namespace tutti {

int read_process(int32_t pid, void *to, uint64_t address, uint64_t bytes) {
  auto *at = static_cast<uint8_t *>(to);
  while (bytes) {
    const iovec here{at, bytes};
    const iovec there{reinterpret_cast<void *>(address), bytes};
    const ssize_t n = ::process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return n < 0 ? errno : EFAULT;
    }
    at += n; // short where a page is missing, which the next call finds out, and at most 2 GiB
    address += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
  return 0;
}

} // namespace tutti
