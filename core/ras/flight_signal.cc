// The signal that asks a process for its flight recorders. Its handler only counts a descriptor up; the service thread writes.
#include "base/fd.h"
#include "base/fork.h"
#include "bootstrap/bootstrap.h"
#include "log/log.h"
#include "ras/flight.h"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

namespace tutti::ras {
namespace {

// Written before the handler is installed, and once more in a forked child that has communicators of its own.
std::atomic<int> wake{-1};
std::atomic<pid_t> owner{0};
struct sigaction before {}; // the application's

void handler(int number, siginfo_t *info, void *context) {
  const int kept = errno;
  if (owner.load(std::memory_order_relaxed) == ::getpid()) { // not a child's: its parent was not asked
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake.load(std::memory_order_relaxed), &one, sizeof one);
  }
  errno = kept;
  if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) return; // with SA_SIGINFO, too: the two are one place
  if (before.sa_flags & SA_SIGINFO)
    before.sa_sigaction(number, info, context);
  else
    before.sa_handler(number);
}

// [the service thread]
void on_wake(void *, uint32_t) {
  uint64_t count;
  if (::read(wake.load(), &count, sizeof count) != sizeof count) return;
  for (const auto &flight : flights()) flight->on_signal();
}

int number_of(std::string_view name) {
  constexpr std::pair<std::string_view, int> kSignals[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP},
                                                           {"QUIT", SIGQUIT}, {"URG", SIGURG},   {"WINCH", SIGWINCH}};
  for (const auto &[known, number] : kSignals)
    if (known == name) return number;
  return 0;
}

Status install(int number) {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return fail_errno(errno, "cannot make a descriptor for record.signal");
  TUTTI_TRY(service_watch(fd.get(), TUTTI_WATCH_READ, on_wake, nullptr));
  const bool again = owner.load() != 0; // in a child: the parent's handler is there
  wake.store(fd.release());             // open for good: the handler may run at any time
  owner.store(::getpid());
  if (again) return {};
  struct sigaction ours {};
  if (::sigaction(number, nullptr, &before) != 0) return fail_errno(errno, "record.signal");
  ours.sa_sigaction = handler;
  ours.sa_mask = before.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  if (::sigaction(number, &ours, nullptr) != 0) return fail_errno(errno, "record.signal");
  return {};
}

} // namespace

void watch_signal(const Config &config) {
  const int number = number_of(config.text("record.signal"));
  if (number == 0 || owner.load() == ::getpid()) return;
  static auto &turn = *new ChildFreeMutex; // of communicators that come up side by side
  std::lock_guard lock(turn);
  if (owner.load() == ::getpid()) return;
  if (const Status s = install(number); !s.ok()) log::warn(log::Subsys::init, "{}", s.error().message);
}

} // namespace tutti::ras
