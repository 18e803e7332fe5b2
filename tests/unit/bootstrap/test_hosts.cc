// Two hosts: two network namespaces joined by a veth pair, two ranks each. The namespaces belong to processes of this test and
// end with them. Exit 77: not possible here.
#define DOCTEST_CONFIG_IMPLEMENT
#include "bootstrap/wire.h"
#include "processes.h"
#include <cstring>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

using namespace help;

namespace {

bool run(const std::string &command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

class Hosts {
public:
  Hosts() {
    for (int h = 0; h < 2; h++)
      holders_[h] = spawn([](const Say &say) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        say(unshare(CLONE_NEWNET) == 0 ? "ready" : "no");
        pause();
      });
    good_ = holders_[0].read_line() == "ready";
    good_ = holders_[1].read_line() == "ready" && good_;
    good_ = good_ && run(fmt::format("ip link add veth0 netns {} type veth peer name veth0 netns {}", pid(0), pid(1)));
  }
  ~Hosts() {
    for (Child &c : holders_) kill(c.pid, SIGKILL), reap(c);
  }
  bool good() const { return good_; }
  bool ip(int host, const std::string &arguments) const {
    return run(fmt::format("nsenter -t {} -n ip {}", pid(host), arguments));
  }
  // An address each, "{}" becomes 1 or 2; and up.
  bool up(const std::string &address) const {
    for (int h = 0; h < 2; h++) {
      if (!address.empty() && !ip(h, "addr add " + fmt::format(fmt::runtime(address), h + 1) + " dev veth0 nodad"))
        return false;
      if (!ip(h, "link set lo up") || !ip(h, "link set veth0 up")) return false;
    }
    return true;
  }
  void enter(int host) const { // in a child, before anything of the library runs there
    const UniqueFd ns(open(fmt::format("/proc/{}/ns/net", pid(host)).c_str(), O_RDONLY | O_CLOEXEC));
    if (setns(ns.get(), CLONE_NEWNET) != 0) _exit(4);
  }

private:
  pid_t pid(int host) const { return holders_[host].pid; }
  Child holders_[2];
  bool good_ = false;
};

// Ranks 0 and 1 on the first host, 2 and 3 on the second one; rank 0 hosts the root.
std::vector<Child> four(const Hosts &hosts, const Environment &environment,
                        const std::function<void(Bootstrap &, const Say &)> &fn) {
  int p[2];
  REQUIRE(pipe2(p, O_CLOEXEC) == 0);
  const UniqueFd in(p[0]), out(p[1]);
  std::vector<Child> ranks;
  for (int r = 0; r < 4; r++)
    ranks.push_back(spawn([&, r](const Say &say) {
      hosts.enter(r / 2);
      const auto c = config(environment);
      tuttiUniqueId id{};
      if (r == 0) {
        auto made = Bootstrap::create_id(*c);
        if (!made.ok()) return say(line(made));
        id = made.value();
        for (int i = 0; i < 3; i++)
          if (write(out.get(), id.internal, sizeof id.internal) != static_cast<ssize_t>(sizeof id.internal)) return say("pipe");
      } else if (read(in.get(), id.internal, sizeof id.internal) != static_cast<ssize_t>(sizeof id.internal)) {
        return say("pipe");
      }
      auto b = Bootstrap::join(id, 4, r, c, soon());
      if (!b.ok()) return say(line(b));
      fn(*b.value(), say);
    }));
  return ranks;
}

void talk(Bootstrap &b, const Say &say) {
  const uint64_t tag = make_tag(MsgKind::user, 1);
  if ((b.peer(0).host == b.peer(3).host) || b.peer(0).host != b.peer(1).host) return say("hosts are confused");
  for (int to = 0; to < 4; to++)
    if (Status s = b.send(to, tag, bytes("x")); !s.ok()) return say(line(s));
  for (int from = 0; from < 4; from++)
    if (auto m = b.recv(from, tag, soon(), "t"); !m.ok()) return say(line(m));
  const Status s = b.barrier(soon(), "t");
  b.expect_close();
  say(s.ok() ? "done" : line(s));
}

void check_talk(const Hosts &hosts, const Environment &environment = {}) {
  auto ranks = four(hosts, environment, talk);
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

} // namespace

TEST_CASE("ranks of two hosts talk, with a dead interface listed first, by rule and without one") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  for (int h = 0; h < 2; h++) { // up, with an address, and nobody at its other end
    REQUIRE(hosts.ip(h, "link add aaa0 type veth peer name aaa1"));
    REQUIRE(hosts.ip(h, fmt::format("addr add 10.66.{}.1/24 dev aaa0", h + 1)));
    REQUIRE(hosts.ip(h, "link set aaa0 up"));
  }
  REQUIRE(hosts.up("10.77.0.{}/24"));
  check_talk(hosts);
  check_talk(hosts, {{"TUTTI_SOCKET_IFNAME", "aaa0,veth0"}});
  check_talk(hosts, {{"TUTTI_SOCKET_IFNAME", "=veth0"}});
}

TEST_CASE("connections leave from the interface that the rule names") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  for (int h = 0; h < 2; h++) REQUIRE(hosts.ip(h, fmt::format("addr add 10.77.0.10{}/24 dev veth0", h + 1)));
  auto ranks = four(hosts, {{"TUTTI_SOCKET_IFNAME", "10.77.0.96/27"}}, [](Bootstrap &b, const Say &say) {
    const Status s = b.barrier(soon(), "t");
    const bool other = run("ss -Htn state established | grep -E '10[.]77[.]0[.][12]:'"); // the first address of the interface
    (void)b.barrier(soon(), "t");
    b.expect_close();
    say(!s.ok() ? line(s) : other ? "a connection uses another address" : "done");
  });
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) reap(c);
}

namespace {

// Puts a file with this content in the place of another one, for the calling process only.
bool replace_file(const char *path, const std::string &content) {
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  char copy[] = "/tmp/tutti-file-XXXXXX";
  const UniqueFd file(mkstemp(copy));
  const bool good = write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()) &&
                    fchmod(file.get(), 0644) == 0 && mount(copy, path, nullptr, MS_BIND, nullptr) == 0;
  unlink(copy);
  return good;
}

Child rank_at(const Hosts &hosts, int rank, const std::string &where, const char *file, const std::string &content,
              std::chrono::milliseconds limit, const Environment &more = {}) {
  return spawn([=, &hosts](const Say &say) {
    hosts.enter(rank);
    if (!replace_file(file, content)) return say("cannot replace " + std::string(file));
    setenv("TUTTI_RANK", std::to_string(rank).c_str(), 1);
    setenv("TUTTI_NRANKS", "2", 1);
    Environment environment = more;
    environment["TUTTI_COMM_ID"] = where;
    const auto c = config(environment);
    const auto launch = Bootstrap::launch_from_env(*c, Deadline::in(limit));
    if (!launch.ok()) return say(line(launch));
    auto b = Bootstrap::join(launch.value().id, 2, rank, c, Deadline::in(limit));
    if (!b.ok()) return say(line(b));
    const Status s = b.value()->barrier(soon(), "t");
    b.value()->expect_close();
    say(s.ok() ? "done" : line(s));
  });
}

} // namespace

TEST_CASE("ranks meet at a name that its own host takes for its loopback") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  for (const Environment &rule : {Environment{}, Environment{{"TUTTI_SOCKET_IFNAME", "veth0"}}}) {
    auto first = rank_at(hosts, 0, "head:4477", "/etc/hosts", "127.0.1.1 head\n", 10s, rule);
    auto second = rank_at(hosts, 1, "head:4477", "/etc/hosts", "10.77.0.1 head\n", 10s, rule);
    CHECK(first.read_line() == "done");
    CHECK(second.read_line() == "done");
    reap(first), reap(second);
  }
}

TEST_CASE("ranks of srun and torchrun on two hosts meet at the first one, whatever it calls itself") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  const Environment slurm = {{"SLURM_JOB_ID", "9"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NUM_TASKS", "2"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_STEP_NODELIST", "n[1-2]"},
                             {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}},
                    torch = {{"WORLD_SIZE", "2"},   {"LOCAL_RANK", "0"},      {"LOCAL_WORLD_SIZE", "1"},
                             {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}, {"TORCHELASTIC_RUN_ID", "x"}};
  for (const auto &[base, names] : {std::pair(slurm, std::vector<const char *>{"SLURM_PROCID", "SLURM_NODEID"}),
                                    std::pair(torch, std::vector<const char *>{"RANK"})}) {
    std::vector<Child> ranks;
    for (int r = 1; r >= 0; r--)
      ranks.push_back(spawn([&, r, base = base, names = names](const Say &say) {
        hosts.enter(r);
        if (!replace_file("/etc/hosts", r == 0 ? "127.0.1.1 n1\n" : "10.77.0.1 n1\n")) return say("cannot replace /etc/hosts");
        for (const auto &[name, value] : base) setenv(name.c_str(), value.c_str(), 1);
        for (const char *name : names) setenv(name, std::to_string(r).c_str(), 1);
        const auto c = config();
        const auto launch = Bootstrap::launch_from_env(*c, soon());
        if (!launch.ok()) return say(line(launch));
        auto b = Bootstrap::join(launch.value().id, 2, r, c, soon());
        if (!b.ok()) return say(line(b));
        const Status s = b.value()->barrier(soon(), "t");
        b.value()->expect_close();
        say(s.ok() ? launch.value().source : line(s));
      }));
    for (auto &c : ranks) CHECK(c.read_line() == (names.size() == 2 ? "srun" : "torchrun"));
    for (auto &c : ranks) reap(c);
  }
}

TEST_CASE("a name server that does not answer is an error at the deadline") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  const auto began = Clock::now();
  auto rank = rank_at(hosts, 1, "head.example:4477", "/etc/resolv.conf", "nameserver 10.77.0.99\n", 500ms);
  const std::string said = rank.read_line();
  CHECK_MESSAGE(said.find("\"head.example\" has not been resolved within 0.5 s") != std::string::npos, said);
  CHECK(Clock::now() - began < 10s);
  reap(rank);
}

TEST_CASE("IPv6 suffices, also with link-local addresses only") {
  {
    const Hosts hosts;
    REQUIRE(hosts.good());
    REQUIRE(hosts.up("fd77::{}/64"));
    check_talk(hosts, {{"TUTTI_SOCKET_FAMILY", "AF_INET6"}});
  }
  const Hosts hosts;
  REQUIRE(hosts.good());
  for (int h = 0; h < 2; h++) REQUIRE(hosts.ip(h, fmt::format("addr add fe80::{}/64 dev veth0 nodad", h + 1)));
  REQUIRE(hosts.up(""));
  check_talk(hosts, {{"TUTTI_SOCKET_IFNAME", "veth"}});
}

TEST_CASE("a link that is down for longer than silence may last comes back, and nothing is lost") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  constexpr uint64_t kMessages = 200;
  const auto tag = make_tag(MsgKind::user, 3);
  auto ranks = four(hosts, {{"TUTTI_SOCKET_DEAD_AFTER", "2s"}}, [&](Bootstrap &b, const Say &say) {
    const int peer = (b.rank() + 2) % 4;
    const auto exchange = [&](uint64_t from) -> Status {
      for (uint64_t i = from; i < from + kMessages; i++) TUTTI_TRY(b.send(peer, tag, std::as_bytes(std::span(&i, 1))));
      for (uint64_t i = from; i < from + kMessages; i++) {
        auto m = b.recv(peer, tag, soon(), "t");
        if (!m.ok()) return m.status();
        uint64_t n = 0;
        std::memcpy(&n, m.value().data.data(), std::min(sizeof n, m.value().data.size()));
        if (n != i) return fail(Code::internal, "got {} instead of {}", n, i);
      }
      return {};
    };
    say(line(exchange(0)));
    const auto gone = b.recv(b.rank(), make_tag(MsgKind::user, 9), Deadline::in(4s), "t"); // the connections are lost meanwhile
    say(line(gone));
    say(line(exchange(kMessages)));
    say(line(b.barrier(soon(), "t")));
    b.expect_close();
  });
  for (auto &c : ranks) REQUIRE(c.read_line() == "");
  REQUIRE(hosts.ip(0, "link set veth0 down"));
  bool told = false;
  for (auto &c : ranks) told = c.read_line().find(") lost ") != std::string::npos || told;
  CHECK(told); // by whoever has noticed so far
  REQUIRE(hosts.ip(0, "link set veth0 up"));
  for (auto &c : ranks) CHECK(c.read_line() == "");
  for (auto &c : ranks) CHECK(c.read_line() == "");
  for (auto &c : ranks) CHECK(reap(c) == 0);
}

TEST_CASE("a process killed on another host is found within seconds, though connections may come back") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  auto ranks = four(hosts, {}, [](Bootstrap &b, const Say &say) {
    say("joined");
    if (b.rank() >= 2) pause(); // both of the other host: nobody there tells
    say(line(b.recv(3, make_tag(MsgKind::user, 9), soon(), "t")));
  });
  for (auto &c : ranks) REQUIRE(c.read_line() == "joined");
  const auto began = Clock::now();
  for (size_t r : {2, 3}) kill(ranks[r].pid, SIGKILL);
  for (size_t r : {0, 1}) {
    const std::string said = ranks[r].read_line();
    CHECK_MESSAGE(said.find("nobody listens at 10.77.0.2 any more") != std::string::npos, said);
  }
  CHECK(Clock::now() - began < 6s);
  for (auto &c : ranks) reap(c);
}

TEST_CASE("a link that goes down is found within the time that is set, and the host behind it is named") {
  const Hosts hosts;
  REQUIRE(hosts.good());
  REQUIRE(hosts.up("10.77.0.{}/24"));
  const Environment limits = {{"TUTTI_SOCKET_DEAD_AFTER", "2s"}, {"TUTTI_SOCKET_RECONNECT_TIMEOUT", "0s"}};
  auto ranks = four(hosts, limits, [](Bootstrap &b, const Say &say) {
    say("joined");
    auto m = b.recv((b.rank() + 2) % 4, make_tag(MsgKind::user, 9), soon(), "t"); // nothing is sent: silence must do
    say(line(m));
  });
  for (auto &c : ranks) REQUIRE(c.read_line() == "joined");
  const auto began = Clock::now();
  REQUIRE(hosts.ip(0, "link set veth0 down"));
  for (auto &c : ranks) {
    const std::string said = c.read_line();
    CHECK_MESSAGE(said.find("no answer from the host for 2 s, host or link is down") != std::string::npos, said);
  }
  CHECK(Clock::now() - began < 8s);
  for (auto &c : ranks) reap(c);
}

int main(int argc, char **argv) {
  if (!run("unshare -n ip link add veth0 type veth peer name veth1")) {
    std::fputs("skipped: cannot make network namespaces joined by veth\n", stderr);
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
