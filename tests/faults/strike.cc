// This program's own connect, accept4, send and sendmsg stand before the system's, also for the library and its plugins.
#include "strike.h"
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <stdexcept>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace faults {
namespace {

Fault armed; // written before `left` is
// Calls until it happens; 0: it happens right now, and no other thread says anything meanwhile; less: nothing is armed.
std::atomic<int64_t> left{-1};
std::atomic<bool> owed{false}; // armed, and it has not happened
std::atomic<bool> now{false};  // a thread of the application is to do it

void wake_later() {
  const pid_t self = getpid();
  if (fork() != 0) return;
  std::this_thread::sleep_for(std::chrono::duration<double>(armed.wake_s));
  kill(self, SIGCONT);
  std::_Exit(0);
}

bool happen() { // false: another thread does it
  if (!owed.exchange(false)) return false;
  armed.say();
  if (armed.what == "die") raise(SIGKILL);
  if (armed.what == "exit") std::exit(3);
  if (armed.what == "abort") std::abort();
  if (armed.what == "throw") throw std::runtime_error("as told");
  if (armed.what == "stop") {
    if (armed.wake_s > 0) wake_later();
    raise(SIGSTOP); // all threads of the process, this one before it goes on
  }
  return true;
}

// While `left` is 0.
void happen_and_go_on() {
  if (!happen()) return left.wait(0);
  left.store(-1); // it was stopped, and has been woken
  left.notify_all();
}

// The library's threads call exit() and throw in no program: one of the application's does, while they go on.
bool belongs_to_application() {
  return armed.what != "die" && armed.what != "stop";
}

void call() {
  int64_t n = left.load();
  while (n >= 0 && (n == 0 || !left.compare_exchange_weak(n, n - 1))) {
    if (n == 0) left.wait(0);
    n = left.load();
  }
  if (n != 1) return;
  if (!belongs_to_application()) return happen_and_go_on();
  left.store(-1);
  left.notify_all();
  now.store(true);
  now.notify_all();
}

// The library writes the word by plain stores: whichever of them is seen, something has arrived.
__attribute__((no_sanitize("thread"))) bool is(const int64_t *word, int64_t value) {
  return *static_cast<const volatile int64_t *>(word) == value;
}

template <class F> F *system_function(const char *name) {
  return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

} // namespace

void strike_at_call(const Fault &fault, int calls) {
  armed = fault;
  owed.store(true);
  if (calls == 0) {
    happen();
    return;
  }
  if (belongs_to_application())
    std::thread([] {
      now.wait(false);
      happen();
    }).detach();
  left.store(calls, std::memory_order_release);
}

void strike_at_word(const Fault &fault, const int64_t *word, int64_t before) {
  armed = fault;
  owed.store(true);
  std::thread([word, before] {
    while (is(word, before)) std::this_thread::yield();
    happen();
  }).detach();
}

void strike_at_last() {
  if (belongs_to_application()) {
    left.store(-1);
    happen();
    return;
  }
  int64_t n = left.load(); // what the phase has left to its threads to say is not said either
  while (n > 0 && !left.compare_exchange_weak(n, 0)) {
  }
  happen_and_go_on();
}

} // namespace faults

extern "C" {

int connect(int fd, const sockaddr *to, socklen_t length) {
  static auto *const next = faults::system_function<decltype(connect)>("connect");
  faults::call();
  return next(fd, to, length);
}

int accept4(int fd, sockaddr *from, socklen_t *length, int flags) {
  static auto *const next = faults::system_function<decltype(accept4)>("accept4");
  faults::call();
  return next(fd, from, length, flags);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags) {
  static auto *const next = faults::system_function<decltype(send)>("send");
  faults::call();
  return next(fd, data, bytes, flags);
}

ssize_t sendmsg(int fd, const msghdr *message, int flags) {
  static auto *const next = faults::system_function<decltype(sendmsg)>("sendmsg");
  faults::call();
  return next(fd, message, flags);
}

} // extern "C"
