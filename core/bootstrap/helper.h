// tutti/core/bootstrap/helper.h: calls of other libraries that cannot be given a deadline: name look-up, a launcher's server.
#pragma once
#include "base/status.h"
#include "base/time.h"
#include <functional>
#include <future>
#include <optional>
#include <signal.h>
#include <thread>

namespace tutti::boot {

// What fn returns, or nothing when the deadline comes first. fn then goes on alone on its thread: it must own all it uses.
template <class T> std::optional<T> within(Deadline deadline, std::function<T()> fn) {
  auto answer = std::make_shared<std::promise<T>>();
  auto future = answer->get_future();
  sigset_t all, old; // signals belong to the application's threads
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread([answer, fn = std::move(fn)] { answer->set_value(fn()); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (future.wait_until(deadline.at()) != std::future_status::ready) return std::nullopt;
  return future.get();
}

} // namespace tutti::boot
