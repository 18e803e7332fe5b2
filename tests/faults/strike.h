// tests/faults/strike.h: when and how a victim goes wrong. Places are counted, not timed: at the n-th system call on a socket
// of a phase, or when a certain element of an operation's result has been written.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace faults {

// What the victim does: die, stop, exit, abort, throw. `say` is called before, once.
struct Fault {
  std::string what;
  double wake_s = 0; // a stopped victim goes on after so long; 0: never
  std::function<void()> say;
};

// From here on the fault happens at the `calls`-th connect, accept, send or sendmsg of this process; 0: at once.
void strike_at_call(const Fault &fault, int calls);
// Happens when *word is no longer `before`.
void strike_at_word(const Fault &fault, const int64_t *word, int64_t before);
// The phase is over: what has not happened yet happens now. Nothing where nothing was armed.
void strike_at_last();

} // namespace faults
