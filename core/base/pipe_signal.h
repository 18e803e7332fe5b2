// tutti/core/base/pipe_signal.h: writing where the reader may have left.
#pragma once
#include <cerrno>
#include <csignal>
#include <ctime>

namespace tutti {

// A reader that has gone is no reason to end the process: SIGPIPE of this thread's own writes is taken back.
class NoPipeSignal {
public:
  NoPipeSignal() {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigpending(&pending);
    theirs_ = sigismember(&pending, SIGPIPE) == 1;
    if (!theirs_) pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    if (theirs_) return;
    constexpr timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal &) = delete;

private:
  sigset_t pipe_, before_{};
  bool theirs_ = false;
};

} // namespace tutti
