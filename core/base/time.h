// tutti/core/base/time.h: monotonic time and deadlines. Every wait takes one.
#pragma once
#include <chrono>
#include <cstdint>

namespace tutti {

using Clock = std::chrono::steady_clock;
using Nanos = std::chrono::nanoseconds;

class Deadline {
public:
  static Deadline in(Nanos span) { return Deadline(Clock::now() + span, span); }
  bool expired() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }
  Nanos left() const {
    auto d = at_ - Clock::now();
    return d.count() > 0 ? d : Nanos(0);
  }
  int left_ms() const { return static_cast<int>((left().count() + 999'999) / 1'000'000); } // for poll()
  Nanos span() const { return span_; } // as configured, for messages: "after 30 s"
  // As late by `more` and called the same: for a wait that another one's verdict, due at the deadline itself, should end.
  Deadline extended(Nanos more) const { return Deadline(at_ + more, span_); }

private:
  Deadline(Clock::time_point at, Nanos span) : at_(at), span_(span) {}
  Clock::time_point at_;
  Nanos span_;
};

} // namespace tutti
