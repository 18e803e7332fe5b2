// tutti/core/base/thread.h: threads of the library.
#pragma once
#include "base/status.h"
#include <csignal>
#include <system_error>
#include <thread>

namespace tutti {

// Starts a thread that takes none of the application's signals, but for those that its own faults raise. An error when the
// system gives no thread.
template <class F> Result<std::thread> start_thread(F body) {
  sigset_t ours, old;
  sigfillset(&ours);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS}) sigdelset(&ours, fault);
  pthread_sigmask(SIG_SETMASK, &ours, &old); // the new thread inherits it
  std::thread thread;
  Status status;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error &e) {
    status = fail(Code::system, "cannot start a thread: {}", e.what());
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (!status.ok()) return status;
  return thread;
}

} // namespace tutti
