#include "base/fork.h"
#include <pthread.h>
#include <vector>

namespace tutti {
namespace {

struct Held {
  std::mutex mutex; // guards list; held over the fork itself
  std::vector<std::mutex *> list;
};

void before() noexcept;
void after() noexcept;

Held &held() {
  static Held *h = [] {
    ::pthread_atfork(before, after, after);
    return new Held;
  }();
  return *h;
}

void before() noexcept {
  held().mutex.lock();
  for (std::mutex *m : held().list) m->lock();
}
void after() noexcept {
  for (std::mutex *m : held().list) m->unlock();
  held().mutex.unlock();
}

} // namespace

void hold_over_fork(std::mutex &m) {
  std::lock_guard lock(held().mutex);
  held().list.push_back(&m);
}

} // namespace tutti
