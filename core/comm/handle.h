// tutti/core/comm/handle.h: from the C API's handles to objects and back, and the errors of calls.
#pragma once
#include "comm/communicator.h"
#include "comm/group.h"

namespace tutti {

// The last error of this thread, for calls without a communicator.
void set_thread_error(const Error &error);
const Error &thread_error();

// Records a failed call: with its communicator, its thread and its group. Returns the code for the user.
tuttiResult_t refused(const std::shared_ptr<Communicator> *comm, Status status);

// Asymmetric barrier: abort() pays so that the owner's calls need none. False: the kernel has none and Inside uses a full
// fence.
bool asymmetric_fences();
void heavy_fence();

// While it lives, abort() does not free the communicator.
class Inside {
public:
  explicit Inside(Communicator &c) : count_(c.inside) {
    count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (asymmetric_)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  ~Inside() { count_.store(count_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }
  Inside(const Inside &) = delete;
  Inside &operator=(const Inside &) = delete;

private:
  static inline const bool asymmetric_ = asymmetric_fences();
  std::atomic<uint32_t> &count_;
};

Status check_handle(const tuttiComm *comm);

// Runs fn(communicator, shared pointer) for a call of the owner.
template <class Fn> tuttiResult_t on_comm(tuttiComm_t comm, Fn &&fn) {
  if (comm == nullptr || comm->head != tuttiComm::kMagic || comm->tail != tuttiComm::kMagic) [[unlikely]]
    return refused(nullptr, check_handle(comm));
  Communicator &c = *comm->c;
  Inside inside(c);
  Status s = fn(c);
  if (s.ok()) [[likely]]
    return tuttiSuccess;
  return refused(&comm->c, std::move(s));
}

template <class Fn> tuttiResult_t without_comm(Fn &&fn) {
  Status s = fn();
  return s.ok() ? tuttiSuccess : refused(nullptr, std::move(s));
}

} // namespace tutti
