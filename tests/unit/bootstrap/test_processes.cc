// Ranks as forked processes; each reports one line through a pipe.
#include "bootstrap/launch.h"
#include "help.h"
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

using namespace help;

namespace {

struct Child {
  pid_t pid = -1;
  UniqueFd out;
  std::string read_line(std::chrono::milliseconds limit = 20s) {
    std::string s;
    const Deadline d = Deadline::in(limit);
    char c;
    while (!d.expired()) {
      pollfd p{out.get(), POLLIN, 0};
      if (poll(&p, 1, d.left_ms()) <= 0) break;
      if (read(out.get(), &c, 1) != 1 || c == '\n') break;
      s += c;
    }
    return s;
  }
};

using Say = std::function<void(const std::string &)>;

Child spawn(const std::function<void(const Say &)> &fn) {
  int p[2];
  REQUIRE(pipe2(p, O_CLOEXEC) == 0);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    ::close(p[0]);
    alarm(50); // nothing is left if the test dies
    fn([&](const std::string &s) {
      const std::string text = s + "\n";
      if (write(p[1], text.data(), text.size()) < 0) _exit(3);
    });
    std::exit(0); // runs the exit handlers: the service thread ends
  }
  ::close(p[1]);
  return Child{pid, UniqueFd(p[0])};
}

int reap(Child &c) {
  int status = 0;
  waitpid(c.pid, &status, 0);
  c.pid = -1;
  return status;
}

// n ranks in processes; the root is in this one. same_host false: nothing but TCP is used.
std::vector<Child> processes(int n, bool same_host, const std::function<void(Bootstrap &, const Say &)> &fn) {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> out;
  for (int r = 0; r < n; r++)
    out.push_back(spawn([&, r](const Say &say) {
      auto c = Config::from("", "t", same_host ? Environment{} : Environment{{"TUTTI_HOSTID", "h" + std::to_string(r)}});
      auto b = Bootstrap::join(id.value(), n, r, c.value(), Deadline::in(20s));
      if (!b.ok()) return say("join: " + line(b));
      fn(*b.value(), say);
    }));
  return out;
}

void work(Bootstrap &b, const Say &say) {
  for (int i = 0; i < 3; i++) {
    auto all = b.allgather(bytes(std::to_string(b.rank())), soon(), "t");
    if (!all.ok()) return say(line(all));
    if (text(all.value().back()) != std::to_string(b.nranks() - 1)) return say("wrong piece");
  }
  for (int to = 0; to < b.nranks(); to++)
    if (Status s = b.send(to, make_tag(MsgKind::user, 1), bytes("from " + std::to_string(b.rank()))); !s.ok())
      return say(line(s));
  for (int from = 0; from < b.nranks(); from++) {
    auto m = b.recv(from, make_tag(MsgKind::user, 1), soon(), "t");
    if (!m.ok()) return say(line(m));
    if (text(m.value().data) != "from " + std::to_string(from)) return say("wrong message");
  }
  auto half = b.split(b.rank() % 2, 0, config(), soon());
  if (!half.ok()) return say(line(half));
  if (Status s = half.value()->barrier(soon(), "half"); !s.ok()) return say(line(s));
  half.value()->expect_close();
  if (Status s = b.barrier(soon(), "end"); !s.ok()) return say(line(s));
  b.expect_close();
  say("done");
}

} // namespace

TEST_CASE("processes of one host gather, send, split and leave") {
  auto ranks = processes(5, true, work);
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

TEST_CASE("processes that share no host do the same over TCP") {
  for (int n : {2, 4}) {
    auto ranks = processes(n, false, work);
    for (auto &c : ranks) CHECK(c.read_line() == "done");
    for (auto &c : ranks) CHECK(reap(c) == 0);
  }
}

TEST_CASE("a killed rank ends every other rank's wait, which names it") {
  for (bool same_host : {true, false}) {
    auto ranks = processes(4, same_host, [](Bootstrap &b, const Say &say) {
      say("joined");
      if (b.rank() == 2) {
        pause();
        return;
      }
      auto m = b.recv(3, make_tag(MsgKind::user, 9), soon(), "t");
      say(line(m));
    });
    for (auto &c : ranks) REQUIRE(c.read_line() == "joined");
    kill(ranks[2].pid, SIGKILL);
    const std::string who = "rank 2 (pid " + std::to_string(ranks[2].pid) + " on ";
    for (int r : {0, 1, 3}) {
      const std::string said = ranks[static_cast<size_t>(r)].read_line();
      CHECK_MESSAGE(said.find(": " + who) != std::string::npos, said);
      CHECK_MESSAGE(said.find("control connection closed: process ended or host unreachable") != std::string::npos, said);
    }
    for (auto &c : ranks) reap(c);
  }
}

TEST_CASE("a rank killed while others still join is named by the root") {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  std::vector<Child> ranks;
  for (int r = 0; r < 3; r++)
    ranks.push_back(spawn([&, r](const Say &say) {
      auto b = Bootstrap::join(id.value(), 4, r, config(), Deadline::in(20s)); // rank 3 never comes
      say(line(b));
    }));
  CHECK(ranks[1].read_line(500ms) == ""); // all are waiting by now
  kill(ranks[1].pid, SIGKILL);
  for (int r : {0, 2}) {
    const std::string said = ranks[static_cast<size_t>(r)].read_line();
    CHECK_MESSAGE(said.find("rank 1 (pid " + std::to_string(ranks[1].pid)) != std::string::npos, said);
  }
  for (auto &c : ranks) reap(c);
}
