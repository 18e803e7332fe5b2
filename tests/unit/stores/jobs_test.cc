// Jobs of several processes whose ranks meet through a store.
#include "bootstrap/crypto.h"
#include "bootstrap/rendezvous.h"
#include "fakes.h"
#include "processes.h"
#include "servers.h"
#include <csignal>
#include <sys/un.h>

using namespace help;
using stores::Etcd;
using stores::FakeEtcd;
using stores::Redis;

namespace {

bool has(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
bool missing(bool installed, const char *what) {
  if (!installed) MESSAGE("skipped: no " << what << " here");
  return !installed;
}

Environment at(const std::string &url, const Environment &more = {}) {
  Environment e = {{"TUTTI_RENDEZVOUS", url}, {"TUTTI_JOB_NAME", "job"}};
  for (const auto &[name, value] : more) e[name] = value;
  return e;
}

// Joins `rounds` times as rank of nranks, and says "done" or the error.
Child member(int rank, int nranks, const Environment &environment, std::chrono::milliseconds limit = 30s, int rounds = 1) {
  return spawn([=](const Say &say) {
    for (const auto &[name, value] : environment) setenv(name.c_str(), value.c_str(), 1); // plugins' options, too
    setenv("TUTTI_RANK", std::to_string(rank).c_str(), 1);
    setenv("TUTTI_NRANKS", std::to_string(nranks).c_str(), 1);
    const auto c = Config::load();
    if (!c.ok()) return say(line(c));
    for (int i = 0; i < rounds; i++) {
      const auto l = Bootstrap::launch_from_env(**c, Deadline::in(limit));
      if (!l.ok()) return say(line(l));
      auto b = Bootstrap::join(l->id, nranks, rank, *c, Deadline::in(limit));
      if (!b.ok()) return say(line(b));
      if (Status s = b.value()->barrier(soon(), "t"); !s.ok()) return say(line(s));
      b.value()->expect_close();
    }
    say("done");
  });
}

std::vector<std::string> job(int n, const Environment &environment, int rounds = 1) {
  std::vector<Child> ranks;
  for (int r = n - 1; r >= 0; r--) ranks.push_back(member(r, n, environment, 30s, rounds)); // rank 0 comes last
  std::vector<std::string> said;
  for (auto &c : ranks) said.push_back(c.read_line(40s));
  for (auto &c : ranks) CHECK(reap(c) == 0);
  return said;
}
std::string alone(int rank, const Environment &environment, std::chrono::milliseconds limit = 30s) {
  auto c = member(rank, 4, environment, limit);
  const std::string said = c.read_line(40s);
  reap(c);
  return said;
}
const std::vector<std::string> kDone(4, "done");

// One command of Redis' inline form, on a connection that has logged in.
std::string ask(const Redis &server, const std::string &command) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::strncpy(a.sun_path, server.socket().c_str(), sizeof(a.sun_path) - 1);
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr *>(&a), sizeof a) == 0);
  const std::string text = std::string("AUTH ") + Redis::kPassword + "\r\n" + command + "\r\nQUIT\r\n";
  REQUIRE(write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = read(fd.get(), buffer, sizeof buffer)) > 0;) said.append(buffer, static_cast<size_t>(n));
  REQUIRE(said.starts_with("+OK\r\n"));
  said.erase(0, 5);
  said.resize(said.size() - std::min<size_t>(said.size(), 5)); // +OK of QUIT
  return said;
}
// Waits for what other processes do; they are given the time that tests have.
template <class Fn> bool comes(Fn &&fn) {
  for (const Deadline d = soon(); !d.expired(); std::this_thread::sleep_for(20ms))
    if (fn()) return true;
  return false;
}

struct Key {
  support::Folder folder;
  std::string file(const char *name, char fill) const {
    const std::string path = (folder.path / name).string();
    stores::write_file(path, std::string(32, fill));
    return path;
  }
};

} // namespace

TEST_CASE("a store's name for a job holds any name and has a bound") {
  CHECK(boot::store_key("a/b", 3) == "tutti/a/b/3/id");
  const std::string one(300, 'n'), two = one + "x";
  CHECK(boot::store_key(one, 0).size() < 400);
  CHECK(boot::store_key(one, 0) != boot::store_key(two, 0));
}

TEST_CASE("four processes meet through an etcd gateway, three times over, and leave nothing there") {
  FakeEtcd server;
  CHECK(job(4, at(server.url()), 3) == kDone);
  CHECK(server.contents().empty());
}

TEST_CASE("with a job key the id in the store is boxed, and a rank with another key or none does not get it") {
  FakeEtcd server;
  Key keys;
  const std::string a = keys.file("a", 'a'), b = keys.file("b", 'b');
  CHECK(job(4, at(server.url(), {{"TUTTI_JOB_KEY_FILE", a}, {"TUTTI_SECURITY", "required"}})) == kDone);
  auto root = member(0, 4, at(server.url(), {{"TUTTI_JOB_KEY_FILE", a}}), 6s);
  REQUIRE(comes([&] { return !server.contents().empty(); }));
  CHECK(server.contents().begin()->second.starts_with("dHV0dGktYm94LTEg")); // "tutti-box-1 "
  const std::string other = alone(1, at(server.url(), {{"TUTTI_JOB_KEY_FILE", b}}), 1s), none = alone(2, at(server.url()), 1s);
  CHECK_MESSAGE(has(other, "boxed with another job key"), other);
  CHECK_MESSAGE(has(none, "boxed with a job key, and this rank has none"), none);
  const std::string second = alone(0, at(server.url(), {{"TUTTI_JOB_KEY_FILE", b}}), 5s);
  CHECK_MESSAGE(has(second, "which is left as it is: what is there is boxed with another job key"), second);
  const std::string missing_ranks = root.read_line(); // it was not disturbed, and says who is missing
  CHECK_MESSAGE(has(missing_ranks, "missing: 1"), missing_ranks);
  reap(root);
  CHECK(comes([&] { return server.contents().empty(); }));
  const std::string required = alone(0, at(server.url(), {{"TUTTI_SECURITY", "required"}}));
  CHECK_MESSAGE(has(required, "core.security is \"required\""), required);
}

TEST_CASE("a rank whose job key finds an id that is not boxed does not take it") {
  FakeEtcd server;
  Key keys;
  auto root = member(0, 4, at(server.url()), 4s);
  REQUIRE(comes([&] { return !server.contents().empty(); }));
  const std::string said = alone(1, at(server.url(), {{"TUTTI_JOB_KEY_FILE", keys.file("a", 'a')}}), 1s);
  CHECK_MESSAGE(has(said, "what is there is not boxed"), said);
  root.read_line();
  reap(root);
}

TEST_CASE("what a crashed job has left misleads nobody, and a job that lives is not disturbed") {
  FakeEtcd server;
  const Environment here = at(server.url());
  auto dead = member(0, 4, here);
  REQUIRE(comes([&] { return !server.contents().empty(); }));
  const std::string second = alone(0, here, 10s); // while the first one lives
  CHECK_MESSAGE(has(second, "a job meets in " + server.url() + " under tutti/job/0/id already: its root answers"), second);
  kill(dead.pid, SIGKILL);
  reap(dead);
  REQUIRE(server.contents().size() == 1);
  CHECK(job(4, here) == kDone);
  CHECK(comes([&] { return server.contents().empty(); }));
}

TEST_CASE("ranks without rank 0, without a name of the job, or without a plugin for the URL say what is missing") {
  FakeEtcd server;
  const std::string lonely = alone(1, at(server.url()), 700ms);
  CHECK_MESSAGE(has(lonely, "rank 0 has not put its unique id into " + server.url() + " under tutti/job/0/id within 0.7 s"),
                lonely);
  CHECK(has(lonely, "nothing is there"));
  const std::string nameless = alone(1, {{"TUTTI_RENDEZVOUS", server.url()}});
  CHECK_MESSAGE(has(nameless, "set TUTTI_JOB_NAME"), nameless);
  CHECK(has(alone(1, at("memcached://here")), "no plugin knows the store \"memcached://here\"; there is: "));
  const std::string secret = alone(1, at("etcd://u:hunter2@127.0.0.1:1"), 500ms);
  CHECK_MESSAGE(has(secret, "etcd://u:***@127.0.0.1:1"), secret);
  CHECK_FALSE(has(secret, "hunter2"));
}

TEST_CASE("launchers that name their job need no name, and TUTTI_COMM_ID beats the store") {
  const auto recognised = [](const Environment &environment) {
    auto child = spawn([&](const Say &say) {
      for (const auto &[name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
      const auto c = Config::load();
      const auto l = recognise_launcher(**c);
      say(!l.ok() ? line(l) : !*l ? "none" : (*l)->job + ": " + (*l)->where);
    });
    const std::string said = child.read_line();
    reap(child);
    return said;
  };
  const std::string url = "redis://:hunter2@h";
  const Environment step = {{"SLURM_JOB_ID", "4711"},      {"SLURM_STEP_ID", "2"},      {"SLURM_PROCID", "0"},
                            {"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_CLUSTER_NAME", "c"}, {"SLURM_STEP_NODELIST", "n[1-3]"},
                            {"TUTTI_RENDEZVOUS", url}};
  const std::string slurm = recognised(step);
  CHECK(slurm.starts_with("slurm/c/4711/2: "));
  CHECK(has(slurm, "travels through redis://:***@h under tutti/slurm/c/4711/2/0/id, readable by all"));
  const std::string torch = recognised({{"RANK", "0"},
                                        {"WORLD_SIZE", "3"},
                                        {"MASTER_ADDR", "m"},
                                        {"MASTER_PORT", "1"},
                                        {"TORCHELASTIC_RUN_ID", "run"},
                                        {"TORCHELASTIC_RESTART_COUNT", "2"},
                                        {"TUTTI_RENDEZVOUS", url}});
  CHECK_MESSAGE(torch.starts_with("torch/m/1/run/3/2: "), torch);
  CHECK(recognised({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}, {"FLUX_JOB_ID", "f"}, {"TUTTI_RENDEZVOUS", url}})
            .starts_with("FLUX_JOB_ID/f: "));
  Environment both = step;
  both["TUTTI_COMM_ID"] = "h:1";
  CHECK(recognised(both) == ": TUTTI_COMM_ID=h:1");
}

TEST_SUITE_BEGIN("redis-server");

TEST_CASE("four processes meet through redis, over TCP and a socket, with and without a job key") {
  if (missing(Redis::installed(), "redis-server")) return;
  Redis server;
  Key keys;
  CHECK(job(4, at(server.url()), 3) == kDone);
  CHECK(job(4, at(server.unix_url(), {{"TUTTI_JOB_KEY_FILE", keys.file("k", 'k')}})) == kDone);
  CHECK(comes([&] { return ask(server, "DBSIZE") == ":0\r\n"; }));
}

TEST_CASE("what lies in redis expires soon after the time to join") {
  if (missing(Redis::installed(), "redis-server")) return;
  Redis server;
  auto root = member(0, 4, at(server.url(), {{"TUTTI_INIT_TIMEOUT", "20s"}}), 20s);
  REQUIRE(comes([&] { return ask(server, "EXISTS tutti/job/0/id") == ":1\r\n"; }));
  const long ms = std::atol(ask(server, "PTTL tutti/job/0/id").substr(1).c_str());
  CHECK(ms > 20'000);
  CHECK(ms <= 50'000);
  kill(root.pid, SIGKILL);
  reap(root);
}

TEST_CASE("a redis that is stopped, or refuses the password, is named by every rank") {
  if (missing(Redis::installed(), "redis-server")) return;
  Redis server;
  const std::string plain = "redis://127.0.0.1:" + std::to_string(server.port());
  for (int rank : {0, 1}) CHECK(has(alone(rank, at(plain)), plain + ": PING: NOAUTH"));
  server.signal(SIGSTOP);
  for (int rank : {0, 1}) {
    const std::string said = alone(rank, at(server.url()), 700ms);
    CHECK_MESSAGE(has(said, "has not been answered within 0.7 s"), said);
    CHECK_FALSE(has(said, Redis::kPassword));
  }
  server.signal(SIGCONT);
  CHECK(job(4, at(server.url())) == kDone);
}

TEST_SUITE_END();
TEST_SUITE_BEGIN("etcd");

TEST_CASE("four processes meet through etcd") {
  if (missing(Etcd::installed(), "etcd")) return;
  Etcd server;
  CHECK(job(4, at(server.url()), 2) == kDone);
}

TEST_SUITE_END();
