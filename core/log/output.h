// tutti/core/log/output.h: where lines go when that is no file: a terminal, a pipe, a socket. Whoever is to read them may have
// stopped, and then a plain write would wait for ever, with all threads that log behind it.
#pragma once
#include <chrono>
#include <string>
#include <string_view>

namespace tutti::log {

// Writes to a descriptor that others share, without changing how it behaves for them. A line waits for room for `patience` at
// most; one that finds none is lost, and so are all that follow, without waiting, until there is room again: the first line
// that goes through tells how many they were.
class Output {
public:
  Output(int fd, std::chrono::milliseconds patience) : fd_(fd), patience_(patience) {}
  void write(std::string_view line); // without its end

private:
  bool put(std::string_view bytes);

  const int fd_;
  const std::chrono::milliseconds patience_;
  unsigned long lost_ = 0;
  bool torn_ = false; // the last line that was written lacks its end
};

// Whether a path names something that a write may wait at: a pipe, a terminal.
bool may_block(const std::string &path);

} // namespace tutti::log
