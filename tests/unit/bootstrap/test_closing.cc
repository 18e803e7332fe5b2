// Leaving: nothing that was sent is lost, and nothing is left behind.
#include "processes.h"
#include <barrier>
#include <filesystem>

using namespace help;

namespace {

// fn(rank) for ranks as threads: two in each of n processes.
std::vector<Child> pairs(int n, const std::function<void(Bootstrap &)> &fn, int rounds) {
  std::vector<tuttiUniqueId> ids;
  for (int i = 0; i < rounds; i++) {
    auto id = create_job_id(*config());
    REQUIRE(id.ok());
    ids.push_back(id.value());
  }
  std::vector<Child> out;
  for (int p = 0; p < n; p++)
    out.push_back(spawn([=](const Say &say) {
      auto c = config({{"TUTTI_HOSTID", "h" + std::to_string(p)}});
      std::string wrong;
      std::mutex m; // guards wrong
      for (const auto &id : ids)
        each(2, [&](int t) {
          auto b = Bootstrap::join(id, 2 * n, 2 * p + t, c, soon());
          if (b.ok()) fn(*b.value());
          const Status s = !b.ok() ? b.status() : b.value()->failure();
          std::lock_guard lock(m);
          if (!s.ok() && wrong.empty()) wrong = line(s);
        });
      say(wrong.empty() ? "done" : wrong);
    }));
  return out;
}

size_t entries(const char *directory) {
  size_t n = 0;
  for ([[maybe_unused]] const auto &e : std::filesystem::directory_iterator(directory)) n++;
  return n;
}

} // namespace

TEST_CASE("ranks that leave right after a barrier have passed on what others still wait for") {
  for (int n : {2, 3}) {
    auto ranks = pairs(
        n,
        [](Bootstrap &b) {
          const Status s = b.barrier(Deadline::in(5s), "finalize");
          if (!s.ok()) b.report_failure(s.error());
          b.expect_close();
        },
        60);
    for (auto &c : ranks) CHECK(c.read_line(60s) == "done");
    for (auto &c : ranks) CHECK(reap(c) == 0);
  }
}

TEST_CASE("a process that ends without exit handlers right after leaving has said goodbye") {
  for (int i = 0; i < 20; i++)
    for (bool same_host : {true, false}) {
      const auto id = create_job_id(*config());
      REQUIRE(id.ok());
      std::vector<Child> ranks;
      for (int r = 0; r < 4; r++)
        ranks.push_back(spawn([&, r](const Say &say) {
          const auto c = config(same_host ? Environment{} : Environment{{"TUTTI_HOSTID", "h" + std::to_string(r)}});
          auto b = Bootstrap::join(id.value(), 4, r, c, soon());
          if (!b.ok()) return say(line(b));
          auto owner = std::move(b).value();
          const Status s = owner->barrier(soon(), "finalize");
          owner->expect_close();
          owner.reset();
          say(s.ok() ? "done" : line(s));
          _exit(0);
        }));
      for (auto &c : ranks) CHECK(c.read_line() == "done");
      for (auto &c : ranks) CHECK(reap(c) == 0);
      release_id(id.value());
    }
}

TEST_CASE("leaving waits for a socket that is full, but not long") {
  const auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> ranks;
  for (int r = 0; r < 2; r++)
    ranks.push_back(spawn([&, r](const Say &say) {
      auto b = Bootstrap::join(id.value(), 2, r, config(), soon());
      if (!b.ok()) return say(line(b));
      auto owner = std::move(b).value();
      if (r == 1) pause();
      kill(owner->peer(1).pid, SIGSTOP);
      (void)owner->send(1, make_tag(MsgKind::user, 1), Bytes(32 << 20)); // more than sockets hold
      owner->expect_close();
      const auto began = Clock::now();
      owner.reset();
      const auto took = Clock::now() - began;
      say(took < 900ms ? "did not wait" : took > 5s ? "waited too long" : "done");
    }));
  CHECK(ranks[0].read_line() == "done");
  kill(ranks[1].pid, SIGKILL);
  for (auto &c : ranks) reap(c);
  release_id(id.value());
}

TEST_CASE("messages sent right before leaving arrive, also over connections that are still being made") {
  constexpr size_t kBytes = 8 << 20; // more than sockets hold
  for (bool same_host : {true, false}) {
    auto ranks = processes(5, same_host, [](Bootstrap &b, const Say &say) {
      const uint64_t tag = make_tag(MsgKind::user, 1);
      if (Status s = b.barrier(soon(), "t"); !s.ok()) return say(line(s));
      b.expect_close();
      if (b.rank() == 0) { // 2 and 3 are no neighbours: nothing connects to them before
        for (int to : {1, 2, 3})
          if (Status s = b.send(to, tag, Bytes(kBytes)); !s.ok()) return say(line(s));
      } else if (b.rank() < 4) {
        auto m = b.recv(0, tag, soon(), "t");
        if (!m.ok()) return say(line(m));
        if (m.value().data.size() != kBytes) return say("cut short");
      }
      say("done");
    });
    for (auto &c : ranks) CHECK(c.read_line() == "done");
    for (auto &c : ranks) CHECK(reap(c) == 0);
  }
}

TEST_CASE("a rank that leaves before the others are done is a failure that names it") {
  auto ranks = processes(3, true, [](Bootstrap &b, const Say &say) {
    if (b.rank() == 1) return say("left");
    say(line(b.recv(1, make_tag(MsgKind::user, 1), soon(), "t")));
  });
  CHECK(ranks[1].read_line() == "left");
  for (size_t r : {0, 2}) {
    const std::string said = ranks[r].read_line();
    CHECK_MESSAGE(said.find("left the communicator before it was finalized") != std::string::npos, said);
    CHECK_MESSAGE(said.find("rank 1 (pid ") != std::string::npos, said);
  }
  for (auto &c : ranks) reap(c);
}

TEST_CASE("after everything is destroyed no descriptor and no thread is left but the service's") {
  {
    auto first = world(2), second = world(3);
    close(first), close(second);
  } // starts what stays
  const size_t fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  for (int i = 0; i < 5; i++) {
    auto w = world(4);
    each(4, [&](int r) {
      auto half = w[static_cast<size_t>(r)]->split(r % 2, 0, config(), soon());
      REQUIRE(half.ok());
      half.value()->expect_close();
      CHECK(w[static_cast<size_t>(r)]->barrier(soon(), "t").ok());
    });
    close(w);
  }
  auto ranks = processes(3, true, [](Bootstrap &b, const Say &say) {
    const bool good = b.barrier(soon(), "t").ok();
    b.expect_close();
    say(good ? "done" : "wrong");
  });
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) CHECK(reap(c) == 0);
  ranks.clear();
  const Deadline d = soon(); // the service thread closes what said goodbye a moment later
  while (entries("/proc/self/fd") > fds && !d.expired()) std::this_thread::yield();
  CHECK(entries("/proc/self/fd") == fds);
  CHECK(entries("/proc/self/task") == threads);
}

TEST_CASE("a process forked while communicators live gets a service of its own and disturbs nobody") {
  auto w = world(3);
  auto child = spawn([&](const Say &say) {
    w.clear(); // the parent's: no goodbye may come of it
    auto own = Bootstrap::create_id(*config());
    if (!own.ok()) return say(line(own));
    std::vector<std::unique_ptr<Bootstrap>> mine(2);
    each(2, [&](int r) {
      auto b = Bootstrap::join(own.value(), 2, r, config(), soon());
      if (b.ok()) mine[static_cast<size_t>(r)] = std::move(b).value();
    });
    if (!mine[0] || !mine[1]) return say("not joined");
    each(2, [&](int r) { (void)mine[static_cast<size_t>(r)]->barrier(soon(), "t"); });
    say(line(mine[0]->failure()).empty() ? "done" : "failed");
    for (auto &b : mine) b->expect_close();
  });
  CHECK(child.read_line() == "done");
  CHECK(reap(child) == 0);
  each(3, [&](int r) { CHECK(line(w[static_cast<size_t>(r)]->barrier(soon(), "t")) == ""); });
  close(w);
}

TEST_CASE("a signal to a process that waits for others ends it") {
  auto ranks = processes(2, true, [](Bootstrap &b, const Say &say) {
    say("joined");
    if (b.rank() == 0) (void)b.barrier(soon(), "never");
    if (b.rank() == 1) pause();
  });
  for (auto &c : ranks) REQUIRE(c.read_line() == "joined");
  kill(ranks[0].pid, SIGTERM);
  const int status = reap(ranks[0]);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
  kill(ranks[1].pid, SIGKILL);
  reap(ranks[1]);
}
