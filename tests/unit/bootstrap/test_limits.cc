// Poor surroundings: few descriptors, no /sys and /proc, a rank that floods.
#include "processes.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

using namespace help;

namespace {

std::vector<Child> eight(const std::function<bool()> &prepare) {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> out;
  for (int r = 0; r < 8; r++)
    out.push_back(spawn([&, r](const Say &say) {
      if (!prepare()) return say("cannot prepare");
      auto b = Bootstrap::join(id.value(), 8, r, config(), soon());
      if (!b.ok()) return say(line(b));
      const uint64_t tag = make_tag(MsgKind::user, 1);
      for (int to = 0; to < 8; to++) (void)b.value()->send(to, tag, bytes("x"));
      for (int from = 0; from < 8; from++)
        if (auto m = b.value()->recv(from, tag, soon(), "t"); !m.ok()) return say(line(m));
      const Status s = b.value()->barrier(soon(), "t");
      b.value()->expect_close();
      say(s.ok() ? "done" : line(s));
    }));
  return out;
}

void check_done(std::vector<Child> ranks) {
  const std::string first = ranks[0].read_line();
  if (first == "cannot prepare")
    MESSAGE("skipped: not possible here");
  else
    CHECK(first == "done");
  for (size_t r = 1; r < ranks.size(); r++) CHECK(ranks[r].read_line() == first);
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

} // namespace

TEST_CASE("8 ranks that all talk to each other need fewer than 256 descriptors each") {
  check_done(eight([] {
    const rlimit few{256, 256};
    return setrlimit(RLIMIT_NOFILE, &few) == 0;
  }));
}

TEST_CASE("8 ranks join where there is neither /sys nor /proc") {
  check_done(eight([] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    return mount("none", "/sys", "tmpfs", MS_RDONLY, nullptr) == 0 && mount("none", "/proc", "tmpfs", MS_RDONLY, nullptr) == 0;
  }));
}

TEST_CASE("a full queue of unexpected messages is a failure that names who floods") {
  auto w = world(3);
  const uint64_t tag = make_tag(MsgKind::user, 1);
  REQUIRE(w[2]->send(0, tag, {}).ok());
  const Deadline d = Deadline::in(60s);
  while (!w[0]->failed() && !d.expired()) (void)w[1]->send(0, tag, {});
  REQUIRE(w[2]->failure().code() != Code::ok);
  const std::string said = line(w[0]->failure());
  CHECK_MESSAGE(said.find("the queue of unexpected messages is full (262144 messages, 0 bytes): rank 1 (pid ") !=
                    std::string::npos,
                said);
  CHECK_MESSAGE(said.find(") sent 262143 that nobody received") != std::string::npos, said);
}

TEST_CASE("the root's process may open as many files as ranks check in") {
  auto child = spawn([](const Say &say) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    const auto id = Bootstrap::create_id(*config());
    (void)Bootstrap::join(id.value(), 400, 0, config(), Deadline::in(50ms)); // the others never come
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    say(now.rlim_cur == std::min<rlim_t>(400 + 256, limit.rlim_max) ? "raised" : "limit is " + std::to_string(now.rlim_cur));
  });
  CHECK(child.read_line() == "raised");
  reap(child);
}
