// Jobs of fault_rank processes: who dies, stops or misunderstands, and what every other rank says of it.
#include "../support/temp_folder.h"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

struct Child {
  pid_t pid = -1;
  int out = -1;
  std::string text;
  bool over = false;
};

struct Said {
  int rank = -1;
  bool came = false; // it printed its line in time
  Json line;
};

struct Job {
  int n = 3;
  std::vector<std::string> args;
  std::vector<std::string> victim_env = {}; // "NAME=value", of rank `victim` alone
  int victim = 1;
  bool victim_speaks = false; // is waited for as well
  double limit_s = 20;
};

Child start(const Job &job, int rank, const std::string &id) {
  Child c;
  int out[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  std::vector<std::string> env = {"TUTTI_RANK=" + std::to_string(rank), "TUTTI_NRANKS=" + std::to_string(job.n),
                                  "TUTTI_COMM_ID=file:" + id};
  if (rank == job.victim) env.insert(env.end(), job.victim_env.begin(), job.victim_env.end());
  for (char **e = environ; *e; e++)
    if (std::none_of(env.begin(), env.end(),
                     [&](const std::string &s) { return std::string(*e).starts_with(s.substr(0, s.find('=') + 1)); }))
      env.emplace_back(*e);
  std::vector<std::string> args = {FAULT_RANK};
  args.insert(args.end(), job.args.begin(), job.args.end());
  std::vector<char *> a, v;
  for (auto &s : args) a.push_back(s.data());
  for (auto &s : env) v.push_back(s.data());
  a.push_back(nullptr), v.push_back(nullptr);
  c.pid = fork();
  if (c.pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    execve(a[0], a.data(), v.data());
    std::_Exit(127);
  }
  close(out[1]);
  c.out = out[0];
  return c;
}

struct Running {
  explicit Running(const Job &j) : job(j) {
    for (int r = 0; r < job.n; r++) children.push_back(start(job, r, folder.file("id")));
  }
  const Job job;
  const support::TempFolder folder;
  std::vector<Child> children;
  const Clock::time_point began = Clock::now();
};

// The last line of each rank that has `result`; whoever has not ended by then is killed.
std::vector<Said> end(Running &running) {
  const Job &job = running.job;
  std::vector<Child> &children = running.children;
  const auto until = running.began + std::chrono::duration<double>(job.limit_s);
  std::vector<Said> said(static_cast<size_t>(job.n));
  const auto look = [&](size_t r) {
    std::string &text = children[r].text;
    for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      Json line = Json::parse(text.substr(0, end), nullptr, false);
      if (line.is_object() && line.contains("result")) said[r] = {static_cast<int>(r), true, std::move(line)};
    }
  };
  const auto waiting = [&] {
    return std::any_of(children.begin(), children.end(), [&](const Child &c) {
      const auto r = static_cast<size_t>(&c - children.data());
      return !c.over && (static_cast<int>(r) != job.victim || job.victim_speaks);
    });
  };
  while (waiting() && Clock::now() < until) {
    std::vector<pollfd> fds;
    for (auto &c : children) fds.push_back({c.over ? -1 : c.out, POLLIN, 0});
    poll(fds.data(), fds.size(), 100);
    for (size_t r = 0; r < children.size(); r++) {
      if (fds[r].revents == 0) continue;
      char buf[4096];
      const ssize_t n = read(children[r].out, buf, sizeof buf);
      if (n > 0) children[r].text.append(buf, static_cast<size_t>(n)), look(r);
      if (n == 0) children[r].over = true;
    }
  }
  for (auto &c : children) {
    kill(c.pid, SIGKILL); // at most a zombie of our own
    int status = 0;
    while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(c.out);
  }
  return said;
}

std::vector<Said> run(const Job &job) {
  Running running(job);
  return end(running);
}

bool names(const Json &line, int victim) {
  const std::string error = line.value("error", "");
  const std::string rank = "rank " + std::to_string(victim);
  const auto at = error.find(rank);
  return line.value("peer", -1) == victim || (at != std::string::npos && !std::isdigit(error.c_str()[at + rank.size()])) ||
         error.find("missing: " + std::to_string(victim)) != std::string::npos;
}

// Every other rank has an error, in time, that names the victim.
void check_named(const Job &job, const std::vector<Said> &said, double within_s) {
  for (const Said &s : said) {
    const auto r = static_cast<int>(&s - said.data());
    if (r == job.victim) continue;
    CAPTURE(r);
    CHECK(s.came);
    if (!s.came) continue;
    CAPTURE(s.line.dump());
    CHECK(s.line["result"].get<int>() != 0);
    CHECK(s.line["right"].get<bool>());
    CHECK(names(s.line, job.victim));
    CHECK(s.line["seconds"].get<double>() < within_s);
  }
}

Job job_of(const std::string &what, const std::string &when, bool shm, double timeout_s) {
  Job j;
  j.args = {
      "--who",          "1", "--what", what, "--when", when, "--shm", shm ? "1" : "0", "--timeout", std::to_string(timeout_s),
      "--init-timeout", "4"};
  return j;
}

// Jobs that mostly wait, a few side by side.
template <class Check> void run_each(const std::vector<Job> &jobs, Check &&check) {
  constexpr size_t at_once = 4;
  for (size_t first = 0; first < jobs.size(); first += at_once) {
    std::deque<Running> running;
    for (size_t i = first; i < std::min(jobs.size(), first + at_once); i++) running.emplace_back(jobs[i]);
    for (Running &one : running) {
      const auto said = end(one);
      std::string args;
      for (const std::string &a : one.job.args) args += a + " ";
      CAPTURE(args);
      check(one.job, said);
    }
  }
}

bool full() {
  return std::getenv("TEST_FULL") != nullptr;
}

} // namespace

// Times are what the deadlines allow and a second, and as long again for a crowded machine.
TEST_CASE("a rank that is killed, exits or throws in any phase is named by all others, soon") {
  for (const char *what : {"die", "exit", "throw"})
    for (const char *when : {"bootstrap", "connect", "operation", "finalize"})
      for (const bool shm : {true, false}) {
        if (!full() && std::string(what) != "die" && std::string(when) != "operation") continue;
        CAPTURE(what);
        CAPTURE(when);
        CAPTURE(shm);
        Job j = job_of(what, when, shm, 8);
        check_named(j, run(j), std::string(when) == "bootstrap" ? 4 + 6 : 6);
      }
}
TEST_CASE("a rank that is stopped in any phase is named by all others when its time is up") {
  for (const char *when : {"bootstrap", "connect", "operation", "finalize"})
    run_each({job_of("stop", when, true, 1.5), job_of("stop", when, false, 1.5)},
             [&](const Job &j, const std::vector<Said> &said) {
               check_named(j, said, std::string(when) == "bootstrap" ? 4 + 6 : 1.5 + 6);
             });
}
TEST_CASE("a rank that is stopped while the ring is made is named by its neighbours, not all ranks") {
  std::vector<Job> jobs;
  for (int step = 2; step <= 12; step += 2) { // checks in, dials, accepts, exchanges contacts
    jobs.push_back(job_of("stop", "bootstrap", true, 2));
    jobs.back().args.insert(jobs.back().args.end(), {"--step", std::to_string(step)});
  }
  run_each(jobs,
           [](const Job &j, const std::vector<Said> &said) { check_named(j, said, 2 * 4 + 6); }); // joining, and comparing
}
TEST_CASE("who does not answer is known when the deadline has passed, not as long again later") {
  double soonest = 60; // of some: a crowded machine may hold one up
  for (int i = 0; i < 3 && soonest > 2 + 1; i++) {
    Job j = job_of("stop", "operation", true, 2);
    const auto said = run(j);
    check_named(j, said, 2 + 6);
    double latest = 0;
    for (const Said &s : said)
      if (s.came && s.rank != j.victim) latest = std::max(latest, s.line["seconds"].get<double>());
    soonest = std::min(soonest, latest);
  }
  CHECK(soonest > 2);
  CHECK(soonest < 2 + 1);
}
TEST_CASE("ranks that misunderstand each other all learn of both calls") {
  for (const char *what : {"count", "type", "op", "collective", "root", "order"})
    for (const bool shm : {true, false}) {
      CAPTURE(what);
      CAPTURE(shm);
      Job j = job_of(what, "operation", shm, 8);
      j.victim_speaks = true;
      const auto said = run(j);
      check_named(j, said, 6);
      for (const Said &s : said) {
        const std::string error = s.came ? s.line.value("error", "") : "nothing";
        CAPTURE(error);
        const bool both = error.find(" calls ") != std::string::npos && error.find(" calls ") != error.rfind(" calls ");
        CHECK((s.came && both));
      }
    }
}
TEST_CASE("those who are left after a fault go on in a smaller communicator") {
  for (const char *what : {"die", "stop"})
    for (const bool shm : {true, false}) {
      CAPTURE(what);
      CAPTURE(shm);
      Job j = job_of(what, "operation", shm, 1.5);
      j.args.insert(j.args.end(), {"--then", "shrink"});
      setenv("TUTTI_SHRINK_TIMEOUT", "4s", 1);
      const auto said = run(j);
      for (const Said &s : said) {
        if (&s - said.data() == j.victim) continue;
        CHECK(s.came);
        const auto line = s.line.dump();
        CAPTURE(line);
        CHECK((s.came && s.line.value("shrink", "") == "ok, 2 ranks"));
      }
      unsetenv("TUTTI_SHRINK_TIMEOUT");
    }
}

namespace {

// What an error says, without who says it.
std::string said_by_all(const Said &s) {
  const std::string error = s.came ? s.line.value("error", "") : "nothing";
  const auto colon = error.find(": ");
  return error.starts_with("rank ") && colon != std::string::npos ? error.substr(colon + 2) : error;
}

// All ranks, the odd one too, say the same line, and it holds these words.
void check_told(const std::string &env, std::vector<std::string> words) {
  CAPTURE(env);
  Job j = job_of("none", "bootstrap", true, 8);
  j.args.insert(j.args.end(), {"--rounds", "1"});
  j.victim_env = {env};
  j.victim_speaks = true;
  const auto said = run(j);
  const std::string line = said_by_all(said[0]);
  CAPTURE(line);
  for (const Said &s : said) {
    CHECK(s.came);
    CHECK(said_by_all(s) == line);
    if (s.came) CHECK(s.line["result"].get<int>() == 5); // tuttiInvalidUsage
  }
  for (const std::string &word : words) {
    CAPTURE(word);
    CHECK(line.find(word) != std::string::npos);
  }
}

// A folder with one plugin of ours, of another build: a byte more at the end of the file.
struct OtherBuild : support::TempFolder {
  explicit OtherBuild(const std::string &plugin) {
    const std::string name = "libtutti-" + plugin + ".so";
    std::filesystem::copy_file(std::filesystem::path(PLUGIN_DIR) / name, path() / name);
    std::ofstream(path() / name, std::ios::app) << '\0';
  }
};

} // namespace

TEST_CASE("ranks that were started differently all say the same of it") {
  check_told("TUTTI_MEMORY_CAP=64MiB",
             {"ranks disagree: setting memory.cap of rank 1 is \"67108864\"", "of rank 0 it is \"268435456\""});
  check_told("TUTTI_SHM_DISABLE=1", {"setting shm.disable of rank 1", "of rank 0", "also network"});
  check_told("TUTTI_NET=socket", {"setting net.name of rank 1 is \"socket\"", "also network"});
  check_told("TUTTI_PLUGIN_DISABLE=algo-tree",
             {"setting plugins.disable of rank 1", "also algorithm \"tree\" (absent and algo-tree "});
}
TEST_CASE("a plugin of another build on one rank is named with both builds by all ranks") {
  const OtherBuild other("algo-tree");
  check_told("TUTTI_PLUGIN_PATH=" + other.path().string(),
             {"ranks disagree: algorithm \"tree\" of rank 1 is algo-tree ", "(build ", "of rank 0 it is algo-tree "});
}
