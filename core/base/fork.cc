#include "base/fork.h"
#include <memory>
#include <pthread.h>
#include <unordered_set>
#include <vector>

namespace tutti {

struct FreedInChild {
  static void renew(ChildFreeMutex *m) { std::construct_at(&m->mutex_); } // whoever has locked the old one is not there
};

namespace {

struct Held {
  std::mutex mutex; // guards the rest; held over the fork itself
  std::vector<std::mutex *> list;
  std::unordered_set<ChildFreeMutex *> renewed;
};

void before() noexcept;
void after() noexcept;
void in_child() noexcept;

Held &held() {
  static Held *h = [] {
    ::pthread_atfork(before, after, in_child);
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

void in_child() noexcept {
  for (ChildFreeMutex *m : held().renewed) FreedInChild::renew(m);
  after();
}

} // namespace

ChildFreeMutex::ChildFreeMutex() {
  std::lock_guard lock(held().mutex);
  held().renewed.insert(this);
}
ChildFreeMutex::~ChildFreeMutex() {
  std::lock_guard lock(held().mutex);
  held().renewed.erase(this);
}

void hold_over_fork(std::mutex &m) {
  std::lock_guard lock(held().mutex);
  held().list.push_back(&m);
}

} // namespace tutti
