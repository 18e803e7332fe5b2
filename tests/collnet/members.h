// tests/collnet/members.h: processes that are members of a group, through the plugin's table as the core would use it.
#pragma once
#include "daemon.h"
#include "plugin/registry.h"
#include "tutti/plugin/collnet.h"
#include <functional>
#include <map>

namespace collnet {

constexpr int kMost = 16; // members of a test

// What the members of a run have in common; lives in memory that they share.
struct Shared;

class Member {
public:
  Member(Shared &shared, int my_rank, int members) : rank(my_rank), n(members), shared_(shared) {}
  ~Member();
  Member(const Member &) = delete;

  const int rank, n;
  tutti_collnet_caps caps{};
  tutti_collnet_why why{};
  std::string text; // of the last error

  using Options = std::map<std::string, std::string>;
  // Opens plugin and context. False: `text` says why not.
  bool open(const Options &options);
  // The whole of set-up; the status that it ends with.
  tutti_status join(const tutti_collnet_config &config);
  tutti_status join(uint64_t job = 1, uint32_t deadline_ms = 10'000, uint32_t progress_ms = 10'000);
  tutti_status announce(); // listens, and tells the others where, as the first half of join()
  void leave();            // destroys the group
  // Posts and waits: the completion's status, or that of the post.
  tutti_status run(const tutti_collnet_op &op, milliseconds limit = milliseconds(20'000));
  tutti_status post(const tutti_collnet_op &op, uint64_t cookie); // waits while it is told AGAIN
  tutti_status wait(uint64_t cookie, milliseconds limit = milliseconds(20'000));
  static tutti_collnet_op all_reduce(tutti_dtype type, tutti_redop op, const void *send, void *recv, uint64_t bytes);
  // All members are here; bounded.
  bool meet();
  void note(const std::string &what); // for the parent: Run::said
  const tutti_collnet_v1 &api() const { return *api_; }
  tutti_collnet_group *group() const { return group_; }
  void adopt(tutti_collnet_group *group) { group_ = group; } // an earlier one, again
  tutti_collnet_ctx *ctx() const { return ctx_; }

private:
  tutti_status failed(tutti_status status);
  void poll();

  Shared &shared_;
  std::unique_ptr<tutti::Registry> registry_;
  const tutti::Plugin *plugin_ = nullptr;
  const tutti_collnet_v1 *api_ = nullptr;
  tutti_collnet_ctx *ctx_ = nullptr;
  tutti_collnet_listener *listener_ = nullptr;
  tutti_collnet_group *group_ = nullptr;
  std::map<uint64_t, tutti_status> done_;
  uint64_t cookie_ = 1;
};

// How a member's process ended.
struct End {
  int status = -1; // exit status: 0 all right, 1 an exception; 128 + signal; -1 killed because it took too long
  std::string said;
};

// Forks n members that each run body, and keeps them.
class Run {
public:
  Run(int n, std::function<void(Member &)> body);
  ~Run(); // kills who is left
  Run(const Run &) = delete;
  void signal(int member, int number) const;
  const std::vector<End> &wait(milliseconds limit = milliseconds(60'000));
  // Waits until so many members have come to a point that they name with meet(); for faults in the middle of something.
  bool arrived(uint32_t meetings, milliseconds limit = milliseconds(20'000));

private:
  Shared *shared_;
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
  std::vector<End> ends_;
};

std::string joined(const std::vector<std::string> &list);
bool full(); // TEST_FULL=1: many repetitions
int repetitions();

} // namespace collnet
