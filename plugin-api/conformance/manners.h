// tutti/plugin-api/conformance/manners.h: what of its process a plugin must leave as it found it, and how it uses the host.
// Rules P-PROC and P-HOST. For the child in which a plugin is looked at: one at a time.
#pragma once
#include "plugin/registry.h"
#include <array>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tutti::conformance {

using Complain = std::function<void(const char *rule, const std::string &text, const std::string &todo)>;

// The process at one moment.
class ProcessState {
public:
  static ProcessState now();
  // What is different now from what was `before`, as complaints that begin with `who`: "open()".
  void compare(const ProcessState &before, const std::string &who, const Complain &complain) const;

private:
  std::string folder_, locale_;
  mode_t umask_ = 0;
  std::vector<std::string> environment_; // sorted
  std::array<struct sigaction, 65> handlers_{};
  sigset_t blocked_{};
  std::map<int, std::string> files_; // by descriptor: what it leads to
  uint64_t forks_ = 0;
  bool children_ = false;
};

// Between the plugin and the services of the host, all of whose calls it counts.
class WatchedHost {
public:
  // Before open(): files that no plugin has any business with are opened, and what it is given is replaced.
  static void attach(Plugin *plugin);
  // After close() has returned: what was not given back, and what ran on. `threads`: how many there were before open().
  static void after_close(const Complain &complain, size_t threads);
  // At any time: lines beyond those that a plugin may write.
  static void check_log(const Complain &complain);
};

// fork() of a case, which is none of the plugin's.
pid_t own_fork();
size_t threads_now();
// Waits a moment for threads that are ending.
size_t threads_at_rest(size_t expected);

} // namespace tutti::conformance
