#include "ranks.h"
#include <condition_variable>
#include <cstdlib>
#include <dirent.h>
#include <mutex>
#include <thread>
#include <unistd.h>

namespace support {

struct Watchdog::State {
  std::mutex mutex; // guards done
  std::condition_variable changed;
  bool done = false;
  std::thread thread;
};

Watchdog::Watchdog(std::string what, std::chrono::seconds limit) : state_(new State) {
#ifdef TUTTI_SANITIZED
  limit *= 4; // as ctest's limits
#endif
  state_->thread = std::thread([s = state_, what = std::move(what), limit] {
    std::unique_lock lock(s->mutex);
    if (s->changed.wait_for(lock, limit, [&] { return s->done; })) return;
    std::fprintf(stderr, "watchdog: \"%s\" took longer than %lld s\n", what.c_str(), static_cast<long long>(limit.count()));
    std::_Exit(124);
  });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard lock(state_->mutex);
    state_->done = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
  delete state_;
}

bool full() {
  const char *v = std::getenv("TEST_FULL");
  return v && std::string(v) == "1";
}

static int entries(const char *path) {
  DIR *d = opendir(path);
  if (!d) return -1;
  int n = 0;
  while (const dirent *e = readdir(d)) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

int open_fds() {
  return entries("/proc/self/fd") - 1;
} // without the one that lists
int live_threads() {
  return entries("/proc/self/task");
}

} // namespace support
