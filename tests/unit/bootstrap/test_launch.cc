// Where ranks meet when the application hands over no id: addresses, files, job keys.
#include "../../support/temp_folder.h"
#include "bootstrap/helper.h"
#include "bootstrap/hub.h"
#include "processes.h"
#include <arpa/inet.h>
#include <filesystem>
#include <future>
#include <sys/stat.h>

using namespace help;
namespace fs = std::filesystem;

namespace {

void write_file(const std::string &path, const std::string &content, mode_t mode) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
  REQUIRE(fd);
  REQUIRE(write(fd.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size()));
  REQUIRE(fchmod(fd.get(), mode) == 0);
}

uint16_t free_port() {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  boot::Endpoint e;
  e.storage.ss_family = AF_INET;
  socklen_t n = sizeof e.storage;
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr *>(&e.storage), e.length()) == 0);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr *>(&e.storage), &n) == 0);
  return e.port();
}

std::string address() {
  return "127.0.0.1:" + std::to_string(free_port());
}

// Joins as rank of nranks with this environment and says the error, or "done".
Child rank_from(int rank, int nranks, const Environment &environment, std::chrono::milliseconds limit = 20s, int rounds = 1) {
  return spawn([=](const Say &say) {
    setenv("TUTTI_RANK", std::to_string(rank).c_str(), 1);
    setenv("TUTTI_NRANKS", std::to_string(nranks).c_str(), 1);
    const auto c = Config::from("", "t", environment);
    if (!c.ok()) return say(line(c));
    for (int i = 0; i < rounds; i++) {
      auto launch = Bootstrap::launch_from_env(*c.value(), Deadline::in(limit));
      if (!launch.ok()) return say(line(launch));
      auto b = Bootstrap::join(launch.value().id, nranks, rank, c.value(), Deadline::in(limit));
      if (!b.ok()) return say(line(b));
      if (Status s = b.value()->barrier(soon(), "t"); !s.ok()) return say(line(s));
      b.value()->expect_close();
    }
    say("done");
  });
}

std::vector<std::string> job(int n, const Environment &environment, int rounds = 1) {
  std::vector<Child> ranks;
  for (int r = 0; r < n; r++) ranks.push_back(rank_from(r, n, environment, 20s, rounds));
  std::vector<std::string> said;
  for (auto &c : ranks) said.push_back(c.read_line());
  for (auto &c : ranks) CHECK(reap(c) == 0);
  return said;
}

const std::vector<std::string> kAllDone(3, "done");

} // namespace

TEST_CASE("ranks meet at host:port, several times over, with and without a job key") {
  const support::TempFolder d;
  write_file(d.file("key"), std::string(32, 'k'), 0600);
  CHECK(job(3, {{"TUTTI_COMM_ID", address()}}, 3) == kAllDone);
  CHECK(job(3, {{"TUTTI_COMM_ID", address()}, {"TUTTI_JOB_KEY_FILE", d.file("key")}, {"TUTTI_SECURITY", "required"}}) ==
        kAllDone);
}

TEST_CASE("without a job key security=required refuses, and a key that others can read is refused") {
  const support::TempFolder d;
  auto refused = rank_from(0, 2, {{"TUTTI_COMM_ID", address()}, {"TUTTI_SECURITY", "required"}});
  CHECK(refused.read_line().find("core.security is \"required\"") != std::string::npos);
  reap(refused);
  for (const auto &[content, mode, word] : {std::tuple(std::string(32, 'k'), 0644, "mode 0600, it is 0644"),
                                            std::tuple(std::string(3, 'k'), 0600, "at least 16 are needed")}) {
    write_file(d.file("key"), content, static_cast<mode_t>(mode));
    auto c = rank_from(0, 2, {{"TUTTI_COMM_ID", address()}, {"TUTTI_JOB_KEY_FILE", d.file("key")}});
    const std::string said = c.read_line();
    CHECK_MESSAGE(said.find(word) != std::string::npos, said);
    reap(c);
  }
}

TEST_CASE("ranks with different job keys do not meet") {
  const support::TempFolder d;
  write_file(d.file("a"), std::string(32, 'a'), 0600);
  write_file(d.file("b"), std::string(32, 'b'), 0600);
  const std::string where = address();
  auto first = rank_from(0, 2, {{"TUTTI_COMM_ID", where}, {"TUTTI_JOB_KEY_FILE", d.file("a")}}, 2s);
  auto second = rank_from(1, 2, {{"TUTTI_COMM_ID", where}, {"TUTTI_JOB_KEY_FILE", d.file("b")}}, 2s);
  CHECK(first.read_line().find("missing: 1") != std::string::npos);
  CHECK(second.read_line().find("cannot reach the root") != std::string::npos);
  reap(first), reap(second);
}

TEST_CASE("one process may meet at two addresses: each has a root of its own") {
  const std::string one = address(), two = address();
  std::vector<Child> ranks;
  for (int r = 0; r < 2; r++)
    ranks.push_back(spawn([=](const Say &say) {
      setenv("TUTTI_RANK", std::to_string(r).c_str(), 1);
      setenv("TUTTI_NRANKS", "2", 1);
      for (const std::string &where : {one, two}) {
        const auto c = config({{"TUTTI_COMM_ID", where}});
        auto launch = Bootstrap::launch_from_env(*c, soon());
        if (!launch.ok()) return say(line(launch));
        auto b = Bootstrap::join(launch.value().id, 2, r, c, soon());
        if (!b.ok()) return say(line(b));
        (void)b.value()->barrier(soon(), "t");
        b.value()->expect_close();
      }
      say("done");
    }));
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  for (auto &c : ranks) reap(c);
}

TEST_CASE("ranks meet through a file, which is gone afterwards; one left by an earlier job does not mislead them") {
  const support::TempFolder d;
  const std::string path = d.file("id");
  CHECK(job(3, {{"TUTTI_COMM_ID", "file:" + path}}) == kAllDone);
  CHECK_FALSE(fs::exists(path));
  auto dead = spawn([&](const Say &say) { // a job that died: its id is well formed and leads nowhere
    const auto id = Bootstrap::create_id(*config());
    write_file(path, std::string(id.value().internal, sizeof id.value().internal), 0600);
    say("written");
    pause();
  });
  REQUIRE(dead.read_line() == "written");
  kill(dead.pid, SIGKILL);
  reap(dead);
  auto late = rank_from(1, 2, {{"TUTTI_COMM_ID", "file:" + path}}); // meets the stale file first
  auto root = rank_from(0, 2, {{"TUTTI_COMM_ID", "file:" + path}});
  CHECK(late.read_line() == "done");
  CHECK(root.read_line() == "done");
  reap(late), reap(root);
}

TEST_CASE("a rank that finds an earlier job's file keeps its patience until rank 0 comes late") {
  const support::TempFolder d;
  const std::string path = d.file("id");
  const auto id = Bootstrap::create_id(*config());
  release_id(id.value()); // well formed, and leads nowhere
  write_file(path, std::string(id.value().internal, sizeof id.value().internal), 0600);
  auto late = rank_from(1, 2, {{"TUTTI_COMM_ID", "file:" + path}}, 30s);
  std::this_thread::sleep_for(5s); // doubled at each try, an unbounded patience has overflown by then
  auto root = rank_from(0, 2, {{"TUTTI_COMM_ID", "file:" + path}});
  CHECK(late.read_line(30s) == "done");
  CHECK(root.read_line() == "done");
  reap(late), reap(root);
}

TEST_CASE("an id file that others can read, or that belongs to somebody else, is refused") {
  const support::TempFolder d;
  write_file(d.file("open"), std::string(128, 'x'), 0644);
  auto c = rank_from(1, 2, {{"TUTTI_COMM_ID", "file:" + d.file("open")}});
  CHECK(c.read_line().find("has mode 0644") != std::string::npos);
  reap(c);
  if (geteuid() != 0) return; // only root can give files away
  write_file(d.file("other"), std::string(128, 'x'), 0600);
  REQUIRE(chown(d.file("other").c_str(), 12345, 12345) == 0);
  c = rank_from(1, 2, {{"TUTTI_COMM_ID", "file:" + d.file("other")}});
  CHECK(c.read_line().find("belongs to user 12345") != std::string::npos);
  reap(c);
}

TEST_CASE("ranks meet through an inherited memory file, as the launcher starts them, any number of times") {
  auto id = create_job_id(*config());
  REQUIRE(id.ok());
  auto fd = create_id_fd(id.value());
  REQUIRE(fd.ok());
  CHECK(job(3, {{"TUTTI_COMM_ID", "file:/proc/self/fd/" + std::to_string(fd.value().get())}}, 3) == kAllDone);
  release_id(id.value());
}

TEST_CASE("listeners stay in the given port range, and a full one is an error that names the setting") {
  const uint16_t port = free_port();
  const std::string range = std::to_string(port) + "-" + std::to_string(port);
  auto holder = spawn([&](const Say &say) {
    const auto id = Bootstrap::create_id(*config({{"TUTTI_SOCKET_PORT_RANGE", range}}));
    if (!id.ok()) return say(line(id));
    const auto parsed = boot::decode(id.value());
    bool inside = parsed.ok();
    for (const auto &e : parsed.ok() ? parsed.value().endpoints : std::vector<boot::Endpoint>())
      inside = inside && e.port() == port;
    say(inside ? "inside" : "outside");
    pause();
  });
  CHECK(holder.read_line() == "inside");
  auto second = spawn([&](const Say &say) { say(line(Bootstrap::create_id(*config({{"TUTTI_SOCKET_PORT_RANGE", range}})))); });
  CHECK(second.read_line().find("all ports of " + range + " are taken") != std::string::npos);
  reap(second);
  kill(holder.pid, SIGKILL);
  reap(holder);
}

TEST_CASE("many ranks check in one after the other") {
  const Environment slow = {{"TUTTI_SOCKET_STAGGER_THRESHOLD", "2"}, {"TUTTI_SOCKET_STAGGER_RATE", "10"}};
  auto id = create_job_id(*config());
  const auto began = Clock::now();
  std::vector<Child> ranks;
  for (int r = 0; r < 4; r++)
    ranks.push_back(spawn([&, r](const Say &say) {
      auto b = Bootstrap::join(id.value(), 4, r, config(slow), soon());
      if (b.ok()) b.value()->expect_close();
      say(b.ok() ? "done" : line(b));
    }));
  for (auto &c : ranks) CHECK(c.read_line() == "done");
  CHECK(Clock::now() - began >= 300ms); // rank 3 waits for 3 tenths of a second
  for (auto &c : ranks) reap(c);
}

namespace {

bool connects(const char *ip, uint16_t port) {
  boot::Endpoint e;
  e.storage.ss_family = AF_INET;
  inet_pton(AF_INET, ip, &reinterpret_cast<sockaddr_in *>(&e.storage)->sin_addr);
  e.set_port(port);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr *>(&e.storage), e.length()) == 0;
}

} // namespace

TEST_CASE("with a rule for interfaces nothing listens at other addresses") {
  for (const auto &[rule, confined] : {std::pair("127.0.0.1", true), std::pair("", false)}) {
    auto child = spawn([rule = std::string(rule)](const Say &say) {
      const auto id = Bootstrap::create_id(*config({{"TUTTI_SOCKET_IFNAME", rule}}));
      if (!id.ok()) return say(line(id));
      const auto parsed = boot::decode(id.value());
      for (const auto &e : parsed.value().endpoints) {
        if (e.family() != AF_INET) continue;
        return say(!connects("127.0.0.1", e.port()) ? "unreachable" : connects("127.0.0.2", e.port()) ? "open" : "confined");
      }
      say("no address");
    });
    CHECK(child.read_line() == (confined ? "confined" : "open"));
    reap(child);
  }
}

TEST_CASE("of several launchers in one environment the innermost counts") {
  const Environment srun = {{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}},
                    pmix = {{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "1"}}, // no server: asking it is an error
      mpirun = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, ranks = {{"RANK", "5"}, {"WORLD_SIZE", "8"}},
                    local = {{"LOCAL_RANK", "1"}}, elastic = {{"TORCHELASTIC_RUN_ID", "r"}},
                    same_size = {{"RANK", "1"}, {"WORLD_SIZE", "2"}},
                    pmi = {{"PMI_FD", "99"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
                    own = {{"TUTTI_RANK", "3"}, {"TUTTI_NRANKS", "4"}};
  const std::tuple<const char *, std::vector<Environment>, const char *> table[] = {
      {"torchrun", {ranks, local, elastic}, "torchrun 5 of 8"},
      {"torchrun under srun", {srun, ranks, local, elastic}, "torchrun 5 of 8"},
      {"torchrun under srun, of an old kind", {srun, ranks, local}, "torchrun 5 of 8"},
      {"torchrun under srun --mpi=pmix", {srun, pmix, ranks, local, elastic}, "torchrun 5 of 8"},
      {"torchrun under mpirun", {mpirun, pmix, ranks, local, elastic}, "torchrun 5 of 8"},
      {"one worker per agent", {srun, pmix, same_size, local, elastic}, "torchrun 1 of 2"},
      {"ranks without a local one", {ranks}, "RANK and WORLD_SIZE 5 of 8"},
      {"torchrun under mpiexec", {pmi, ranks, local}, "torchrun 5 of 8"},
      {"mpiexec, and a script that sets RANK", {pmi, same_size, local}, "PMI 1 of 2"},
      {"mpiexec in a step of srun", {pmi, srun}, "PMI 1 of 2"},
      {"mpirun in a step of srun", {mpirun, srun}, "Open MPI 1 of 2"},
      {"srun", {srun}, "srun 1 of 2"},
      {"srun, and a script that sets RANK", {srun, same_size, local}, "srun 1 of 2"},
      {"srun, and RANK without more", {srun, ranks}, "srun 1 of 2"},
      {"mpirun without a server", {mpirun}, "Open MPI 1 of 2"},
      {"our own names", {own, srun, ranks, local, elastic}, "TUTTI_RANK 3 of 4"},
  };
  for (const auto &row : table) {
    auto child = spawn([&](const Say &say) {
      for (const Environment &e : std::get<1>(row))
        for (const auto &[name, value] : e) setenv(name.c_str(), value.c_str(), 1);
      const auto launch = Bootstrap::launch_from_env(*config({{"TUTTI_COMM_ID", "127.0.0.1:1"}}), soon());
      if (!launch.ok()) return say(line(launch));
      say(fmt::format("{} {} of {}", launch.value().source, launch.value().rank, launch.value().nranks));
    });
    CHECK_MESSAGE(child.read_line() == std::get<2>(row), std::get<0>(row));
    reap(child);
  }
}

TEST_CASE("what is no file in the place of one is an error at once") {
  const support::TempFolder d;
  REQUIRE(mkfifo(d.file("fifo").c_str(), 0600) == 0);
  auto key = rank_from(0, 2, {{"TUTTI_COMM_ID", address()}, {"TUTTI_JOB_KEY_FILE", d.file("fifo")}});
  CHECK(key.read_line(5s).find("it must be a regular file") != std::string::npos);
  auto id = rank_from(1, 2, {{"TUTTI_COMM_ID", "file:" + d.file("fifo")}});
  CHECK(id.read_line(5s).find("is no regular file") != std::string::npos);
  reap(key), reap(id);
}

TEST_CASE("a call that may hang is left alone at its deadline") {
  const auto release = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  CHECK(boot::within<int>(soon(), [] { return 7; }) == 7);
  CHECK_FALSE(boot::within<int>(Deadline::in(20ms), [f = release->get_future().share(), ended] {
                f.wait();
                ended->set_value();
                return 1;
              }).has_value());
  release->set_value();
  CHECK(ended->get_future().wait_for(20s) == std::future_status::ready);
}

TEST_CASE("a root at which nobody checks in ends by itself") {
  const auto id = Bootstrap::create_id(*config({{"TUTTI_INIT_TIMEOUT", "10ms"}})); // the root stays ten times as long
  REQUIRE(id.ok());
  auto &service = boot::Service::get();
  const auto there = [&] {
    std::promise<bool> answer;
    service.post([&] { answer.set_value(service.hub().find_root(boot::decode(id.value()).value().base) != nullptr); });
    return answer.get_future().get();
  };
  CHECK(there());
  const Deadline d = soon();
  while (there() && !d.expired()) std::this_thread::yield();
  CHECK_FALSE(there());
}
