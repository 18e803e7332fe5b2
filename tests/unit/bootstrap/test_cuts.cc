// Processes of several hosts talk while their connections are cut again and again, in the middle of whatever goes over them.
#include "processes.h"
#include <cstring>
#include <dirent.h>
#include <random>

using namespace help;

namespace {

// Of this process, connected over TCP.
std::vector<int> connections() {
  std::vector<int> out;
  DIR *folder = opendir("/proc/self/fd");
  while (const dirent *e = folder ? readdir(folder) : nullptr) {
    const int fd = std::atoi(e->d_name);
    sockaddr_storage other{};
    socklen_t n = sizeof other;
    if (fd > 2 && getpeername(fd, reinterpret_cast<sockaddr *>(&other), &n) == 0 &&
        (other.ss_family == AF_INET || other.ss_family == AF_INET6))
      out.push_back(fd);
  }
  if (folder) closedir(folder);
  return out;
}

// The kernel resets it, and throws away what has not been sent or read.
void cut(int fd) {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  (void)connect(fd, &none, sizeof none);
}

Bytes numbered(uint64_t n, size_t size) {
  Bytes data(8 + size, std::byte(n));
  std::memcpy(data.data(), &n, 8);
  return data;
}

} // namespace

TEST_CASE("whatever is cut, all messages and allgathers of three hosts arrive once, and in order") {
  constexpr uint64_t kRounds = 150;
  constexpr int kRanks = 3;
  auto ranks = processes(kRanks, false, [](Bootstrap &b, const Say &say) {
    std::minstd_rand random(static_cast<unsigned>(77 + b.rank()));
    const uint64_t tag = make_tag(MsgKind::user, 4);
    size_t cuts = 0;
    for (uint64_t i = 0; i < kRounds; i++) {
      const size_t size = i % 25 == 0 ? 3 << 20 : i % 7 * 1000;
      for (int to = 0; to < kRanks; to++)
        if (Status s = to == b.rank() ? Status() : b.send(to, tag, numbered(i, size)); !s.ok()) return say(line(s));
      if (random() % 3 == 0) {
        const auto open = connections();
        if (!open.empty()) cut(open[random() % open.size()]), cuts++;
      }
      for (int from = 0; from < kRanks; from++) {
        if (from == b.rank()) continue;
        const auto m = b.recv(from, tag, Deadline::in(30s), "round");
        if (!m.ok()) return say(line(m));
        if (m.value().data != numbered(i, size)) return say(fmt::format("round {} from rank {} is wrong", i, from));
      }
      if (i % 10) continue;
      const auto all = b.allgather(numbered(i, size), Deadline::in(30s), "round");
      if (!all.ok()) return say(line(all));
      for (const Bytes &piece : all.value())
        if (piece != numbered(i, size)) return say(fmt::format("allgather of round {} is wrong", i));
    }
    Message more;
    for (int from = 0; from < kRanks; from++)
      if (b.try_recv(from, tag, &more)) return say("a message came twice");
    const Status s = b.barrier(Deadline::in(30s), "end");
    b.expect_close();
    say(!s.ok() ? line(s) : cuts == 0 ? "nothing was cut" : "done");
  });
  for (auto &c : ranks) CHECK(c.read_line(45s) == "done");
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

TEST_CASE("what a rank sent before it left arrives, also where its connection is cut at that moment") {
  for (int round = 0; round < 5; round++) {
    auto ranks = processes(2, false, [](Bootstrap &b, const Say &say) {
      const uint64_t tag = make_tag(MsgKind::user, 5);
      if (Status s = b.barrier(soon(), "t"); !s.ok()) return say(line(s)); // the other one has joined, too
      if (b.rank() == 0) {
        for (uint64_t i = 0; i < 20; i++)
          if (Status s = b.send(1, tag, numbered(i, 100'000)); !s.ok()) return say(line(s));
        for (const int fd : connections()) cut(fd);
        b.expect_close();
        return say("done"); // leaves now
      }
      for (uint64_t i = 0; i < 20; i++) {
        const auto m = b.recv(0, tag, soon(), "t");
        if (!m.ok()) return say(line(m));
        if (m.value().data != numbered(i, 100'000)) return say("wrong");
      }
      b.expect_close();
      say("done");
    });
    for (auto &c : ranks) CHECK(c.read_line() == "done");
    for (auto &c : ranks) CHECK(reap(c) == 0);
  }
}

TEST_CASE("a rank that is killed while its connections are being cut is named") {
  auto ranks = processes(3, false, [](Bootstrap &b, const Say &say) {
    say("joined");
    if (b.rank() == 1) {
      for (;;) {
        for (const int fd : connections()) cut(fd);
        std::this_thread::sleep_for(50ms);
      }
    }
    say(line(b.recv(1, make_tag(MsgKind::user, 9), soon(), "t")));
  });
  for (auto &c : ranks) REQUIRE(c.read_line() == "joined");
  kill(ranks[1].pid, SIGKILL);
  for (size_t r : {0, 2}) {
    const std::string said = ranks[r].read_line();
    CHECK_MESSAGE(said.find("rank 1 (pid " + std::to_string(ranks[1].pid)) != std::string::npos, said);
  }
  for (auto &c : ranks) reap(c);
}
