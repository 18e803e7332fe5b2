// tutti/core/base/fork.h: mutexes that a forked child finds free.
#pragma once
#include <mutex>

namespace tutti {

// A mutex that a forked child finds free though a thread that the child lacks held it: for turns at something long, within
// which other mutexes are taken. What is left half done when the process forks stays so in the child.
class ChildFreeMutex {
public:
  ChildFreeMutex();
  ~ChildFreeMutex();
  ChildFreeMutex(const ChildFreeMutex &) = delete;
  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

private:
  friend struct FreedInChild;
  std::mutex mutex_;
};

// From now on `m` is held while the process forks. It must never be destroyed, and whoever holds it takes no other such mutex.
void hold_over_fork(std::mutex &m);

} // namespace tutti
