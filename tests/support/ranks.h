// tests/support/ranks.h: run a function on every rank of a communicator.
#pragma once
#include "tutti/tutti.h"
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace support {

// One rank at work. Failed expectations are printed with the rank and counted.
struct Rank {
  int rank = 0, n = 0;
  tuttiComm_t comm = nullptr;
  int failures = 0;
  bool expect(bool ok, const char *text, const char *file, int line);
  bool expect_ok(tuttiResult_t r, const char *text, const char *file, int line); // prints the last error
};
#define EXPECT(rank, cond) (rank).expect(bool(cond), #cond, __FILE__, __LINE__)
#define EXPECT_OK(rank, call) (rank).expect_ok((call), #call, __FILE__, __LINE__)

// Ends the process with a message when `limit` passes: no test may hang.
class Watchdog {
public:
  Watchdog(std::string what, std::chrono::seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog &) = delete;
  Watchdog &operator=(const Watchdog &) = delete;

private:
  struct State;
  State *state_;
};

using Body = std::function<void(Rank &)>;

// tuttiCommInitAll, a thread per rank, tuttiCommDestroy. Returns failed expectations.
int run_threads(int n, const Body &body, std::chrono::seconds limit = std::chrono::seconds(60));

// The id that rank 0 made and all processes of the run share.
using ProcessBody = std::function<void(Rank &, const tuttiUniqueId &)>;
struct ProcessOptions {
  std::vector<std::string> env = {}; // "NAME=value"
  std::chrono::seconds limit{60};
  std::vector<int> may_die = {}; // ranks whose death by a signal is expected
  bool init = true;              // false: the body gets the id and no communicator
};
// Of run_processes(): the process ends as it is, with what its rank has found so far.
[[noreturn]] void end_process(const Rank &r);
// Processes that run the same test case again up to this call, then `body`. Returns failed expectations and unexpected ends.
int run_processes(int n, const ProcessOptions &options, const ProcessBody &body);
inline int run_processes(int n, const Body &body, ProcessOptions options = {}) {
  return run_processes(n, options, [&](Rank &r, const tuttiUniqueId &) { body(r); });
}

bool full(); // TEST_FULL=1: the long list of cases

// What this process holds now.
int open_fds();
int live_threads();

} // namespace support
