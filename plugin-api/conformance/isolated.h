// tutti/plugin-api/conformance/isolated.h: runs a function in a forked child with a time limit and hears what it says, line by
// line.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

// Speaks from the child. Fields must hold no tab or newline; they are replaced.
class Speaker {
public:
  explicit Speaker(int fd) : fd_(fd) {}
  void say(char kind, const std::string &a, const std::string &b = "", const std::string &c = "") const;
  [[noreturn]] void end() const; // the child says that it came to its end, and exits; nothing is destroyed

private:
  int fd_;
};
struct Said {
  char kind;
  std::string a, b, c;
};
struct Outcome {
  enum class End { returned, crashed, timed_out, not_started } end = End::not_started;
  std::string how; // "signal 11 (Segmentation fault)", "exit status 3", or why it did not start
  std::vector<Said> said;
};
// The child and what it started in its process group are gone on return.
Outcome run_isolated(const std::function<void(const Speaker &)> &fn, std::chrono::seconds limit);

} // namespace tutti
