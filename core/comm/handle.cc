#include "comm/handle.h"
#include "base/fork.h"
#include <deque>
#include <linux/membarrier.h>
#include <new>
#include <sys/syscall.h>
#include <system_error>
#include <unistd.h>

namespace tutti {
namespace {

thread_local Error last = no_error();

// Freed handles. The one freed longest ago serves again, and only when there are many: who uses a handle after its end is told.
struct Freed {
  static constexpr size_t kKept = 1024;
  ChildFreeMutex mutex; // guards handles
  std::deque<tuttiComm *> handles;
};
Freed &freed() {
  static auto *f = new Freed;
  return *f;
}

} // namespace

Status caught() {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    return fail(Code::system, "out of memory");
  } catch (const std::system_error &e) {
    return fail(Code::system, "a thread or a lock is not to be had: {}", e.what());
  } catch (const std::exception &e) {
    return fail(Code::internal, "unexpected exception: {}", e.what());
  } catch (...) {
    return fail(Code::internal, "unexpected exception");
  }
}

tuttiComm *make_handle(std::shared_ptr<Communicator> c) {
  tuttiComm *handle = nullptr;
  {
    std::lock_guard lock(freed().mutex);
    if (auto &all = freed().handles; all.size() > Freed::kKept) {
      handle = all.front();
      all.pop_front();
    }
  }
  if (!handle) handle = new tuttiComm;
  handle->c = std::move(c);
  handle->head.store(tuttiComm::kMagic, std::memory_order_release);
  return handle;
}

bool retire(tuttiComm *comm, uint64_t to) {
  uint64_t alive = tuttiComm::kMagic;
  return comm->head.compare_exchange_strong(alive, to);
}

void revive(tuttiComm *comm) {
  comm->head.store(tuttiComm::kMagic);
}

void free_handle(tuttiComm *comm) {
  comm->c.reset();
  std::lock_guard lock(freed().mutex);
  freed().handles.push_back(comm);
}

void wait_for_visitors(const tuttiComm *comm) {
  while (comm->visitors.load() != 0) std::this_thread::yield(); // they only copy a pointer
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
  comm->head.wait(tuttiComm::kEnding);
  const uint64_t head = comm->head.load(std::memory_order_acquire);
  if (head == tuttiComm::kDead) return fail(Code::invalid_argument, "the communicator was destroyed");
  if (head != tuttiComm::kMagic || comm->tail != tuttiComm::kMagic)
    return fail(Code::invalid_argument, "the communicator handle is damaged or was never one");
  return {};
}

Result<std::shared_ptr<Communicator>> visit(tuttiComm *comm) {
  TUTTI_TRY(check_handle(comm));
  comm->visitors.fetch_add(1);
  std::shared_ptr<Communicator> c;
  if (comm->head.load() == tuttiComm::kMagic) c = comm->c;
  comm->visitors.fetch_sub(1);
  if (!c) return check_handle(comm);
  return c;
}

} // namespace tutti
