// tutti/core/base/fork.h: mutexes that a forked child finds free.
#pragma once
#include <mutex>

namespace tutti {

// From now on `m` is held while the process forks. It must never be destroyed, and whoever holds it takes no other such mutex.
void hold_over_fork(std::mutex &m);

} // namespace tutti
