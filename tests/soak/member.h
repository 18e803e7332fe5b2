// tests/soak/member.h: one process of a job that does all that ranks may do.
#pragma once
#include "plan.h"
#include <array>
#include <atomic>
#include <string>
#include <thread>

namespace soak {

struct Settings {
  uint64_t seed = 1, job = 0, first = 0, steps = 40;
  int rank = -1, n = 0;   // in the communicator of all at step `first`
  std::string folder, id; // id: a file with the unique id; `grown`: of a grow
  bool grown = false;
};

class Member {
public:
  explicit Member(const Settings &settings);
  ~Member();
  Member(const Member &) = delete;
  Member &operator=(const Member &) = delete;
  int run(); // exit status

private:
  bool one(uint64_t step); // false: this rank leaves the job
  void operations(Draw &draw);
  void burst(Draw &draw);
  void split(Draw &draw);
  void end_sets(size_t keep);
  void abort_set(int who);
  void revoke(int who);
  void death(Draw &draw, int who);
  bool leave(int who);
  void grow(uint64_t step);
  void restart(uint64_t step);
  void look_for_leaks();
  bool come(); // makes the first communicator

  tuttiResult_t sum(size_t count);
  void until_error();
  void take(tuttiComm_t next, int n); // in the place of the communicator of all
  void named(int who);
  std::string id_file(uint64_t step) const;
  void spawn(uint64_t step) const;

  struct Left { // by communicators that have ended
    int fds = -1, threads = -1;
    size_t heap = 0;
  };

  Settings s_;
  support::Rank r_; // in the communicator of all
  std::vector<tuttiComm_t> sets_;
  std::array<tuttiStream_t, 2> streams_{};
  Left left_;
  uint64_t operations_ = 0, round_ = 0;
  std::atomic<uint64_t> step_{0};
  std::atomic<int64_t> since_{0};
  std::atomic<bool> over_{false};
  std::thread watchdog_;
};

void say(const std::string &line); // to whoever started the job

} // namespace soak
