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

// An exception that the library in use has thrown (no memory, no thread), as an error. Called while it is handled.
Status caught();
template <class Fn> Status guarded(Fn &&fn) {
  try {
    return fn();
  } catch (...) {
    return caught();
  }
}

tuttiComm *make_handle(std::shared_ptr<Communicator> c);
// False when somebody else has destroyed or aborted it. From here on no call begins.
bool retire(tuttiComm *comm, uint64_t to = tuttiComm::kDead);
void revive(tuttiComm *comm);      // undoes retire()
void free_handle(tuttiComm *comm); // when nobody is inside
void wait_for_visitors(const tuttiComm *comm);

// Asymmetric barrier: abort() pays so that the owner's calls need none. False: the kernel has none and Inside uses a full
// fence.
bool asymmetric_fences();
void heavy_fence();

// While it lives, abort() does not free the communicator; if it came too late, the handle is not live any more.
class Inside {
public:
  explicit Inside(tuttiComm &comm) : count_(comm.inside) {
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

inline bool live(const tuttiComm *comm) {
  return comm->head.load(std::memory_order_acquire) == tuttiComm::kMagic;
}
Status check_handle(const tuttiComm *comm); // waits while it is aborted; not to be called inside
// The communicator, for a call that any thread may make at any time.
Result<std::shared_ptr<Communicator>> visit(tuttiComm *comm);

// An error for which there is no memory: only its code is left.
template <class Fn> tuttiResult_t last_resort(Fn &&fn) noexcept {
  try {
    return fn();
  } catch (...) {
    return tuttiSystemError;
  }
}

// Runs fn(communicator) for a call of the owner.
template <class Fn> tuttiResult_t on_comm(tuttiComm_t comm, Fn &&fn) noexcept {
  return last_resort([&] {
    if (comm == nullptr || !live(comm) || comm->tail != tuttiComm::kMagic) [[unlikely]]
      return refused(nullptr, check_handle(comm));
    {
      Inside inside(*comm);
      if (live(comm)) [[likely]] {
        Status s = guarded([&] { return fn(*comm->c); });
        return s.ok() ? tuttiSuccess : refused(&comm->c, std::move(s));
      }
    }
    return refused(nullptr, check_handle(comm));
  });
}

template <class Fn> tuttiResult_t without_comm(Fn &&fn) noexcept {
  return last_resort([&] {
    Status s = guarded(fn);
    return s.ok() ? tuttiSuccess : refused(nullptr, std::move(s));
  });
}

} // namespace tutti
