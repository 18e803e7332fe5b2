#include "comm/handle.h"
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {
thread_local Error last = no_error();
}

void set_thread_error(const Error &error) {
  last = error;
}
const Error &thread_error() {
  return last;
}

tuttiResult_t refused(const std::shared_ptr<Communicator> *comm, Status status) {
  Code code = status.code();
  if (code == Code::ok || code == Code::in_progress) return static_cast<tuttiResult_t>(code);
  if (comm) {
    if (status.error().rank < 0 && (*comm)->known().ok()) status.error().rank = (*comm)->rank();
    code = (*comm)->note(status);
  }
  set_thread_error(status.error());
  if (Group &group = Group::of_this_thread(); group.open()) group.fail(status);
  return static_cast<tuttiResult_t>(code);
}

bool asymmetric_fences() {
  static const bool registered = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  return registered;
}

void heavy_fence() {
  if (!asymmetric_fences() || syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

Status check_handle(const tuttiComm *comm) {
  if (!comm) return fail(Code::invalid_argument, "the communicator is NULL");
  if (comm->head == tuttiComm::kDead) return fail(Code::invalid_argument, "the communicator was destroyed");
  if (comm->head != tuttiComm::kMagic || comm->tail != tuttiComm::kMagic)
    return fail(Code::invalid_argument, "the communicator handle is damaged or was never one");
  return {};
}

} // namespace tutti
