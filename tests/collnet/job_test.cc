// Whole jobs, through the public API, against tutti-aggd on loopback: ranks that claim to be on several hosts.
#include "daemon.h"
#include "operations.h"
#include "text.h"
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <unistd.h>

using namespace support;

namespace {

// Ranks run the test case again: the daemon is the test's own.
bool in_rank() {
  return std::getenv("TEST_RANK") != nullptr;
}

// Marks that processes of a job leave for each other, in the job's folder.
std::string mark(const std::string &name) {
  return std::string(std::getenv("TEST_FOLDER")) + "/" + name;
}
void leave_mark(const std::string &name, const std::string &text = "") {
  std::ofstream(mark(name) + ".new") << text;
  std::rename((mark(name) + ".new").c_str(), mark(name).c_str());
}

class Job {
public:
  explicit Job(const std::string &setting, std::vector<std::string> env = {}) : env_(std::move(env)) {
    const bool own = std::any_of(env_.begin(), env_.end(), [](const auto &e) { return e.starts_with("TUTTI_ALGO="); });
    env_.insert(env_.end(), {"TUTTI_COLLNET_ENABLE=" + setting, "TUTTI_CALIBRATE=off", "TUTTI_COLLNET=aggd"});
    if (!own) env_.push_back("TUTTI_ALGO=all_reduce:collnet_direct");
    if (in_rank()) return;
    folder_.emplace();
    daemon_.emplace(*folder_, "root");
    env_.push_back("TUTTI_PLUGIN_COLLNET_AGGD_SERVERS=" + daemon_->address());
    env_.push_back("TUTTI_PLUGIN_COLLNET_AGGD_KEY_FILE=" + folder_->key());
    env_.push_back("TEST_FOLDER=" + folder_->file(""));
  }
  ~Job() {
    if (fault_.joinable()) fault_.join();
  }
  // fault: done to the daemon, or to a rank, by the test while the ranks run.
  Job &meanwhile(const std::function<void(Job &)> &fault) {
    if (!in_rank()) fault_ = std::thread([this, fault] { fault(*this); });
    return *this;
  }
  int run(const std::vector<int> &host, const Body &body, std::vector<int> may_die = {},
          const std::function<void(const Rank &)> &before = {}) {
    return run_processes(static_cast<int>(host.size()),
                         {.env = env_, .limit = std::chrono::seconds(120), .may_die = std::move(may_die), .init = false},
                         [&](Rank &r, const tuttiUniqueId &id) {
                           setenv("TUTTI_HOSTID", std::to_string(host[static_cast<size_t>(r.rank)]).c_str(), 1);
                           if (before) before(r);
                           if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) body(r);
                         });
  }
  collnet::Daemon &daemon() { return *daemon_; }
  // Ranks are in the middle of it.
  void wait_for_chunks() {
    (void)daemon_->becomes([](const nlohmann::json &s) { return s["totals"]["chunks"] >= 60; }, collnet::milliseconds(60'000));
  }
  std::string wait_for_mark(const std::string &name) {
    for (const auto end = collnet::Clock::now() + std::chrono::seconds(100); collnet::Clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (std::ifstream in(folder_->file(name)); in) return {std::istreambuf_iterator<char>(in), {}};
    return "";
  }

private:
  std::vector<std::string> env_;
  std::optional<collnet::Folder> folder_;
  std::optional<collnet::Daemon> daemon_;
  std::thread fault_;
};

std::string explained(Rank &r) {
  std::vector<char> text(1 << 17);
  EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", 1000, tuttiFloat32, text.data(), text.size()));
  return text.data();
}

// Sums until collnet is lost and 20 more have been right; every one has a result or an error that names the daemon.
void outlive(Rank &r) {
  int failed = 0, after = 0, wrong = 0, silent = 0;
  const auto count = [&](tuttiResult_t s) {
    if (s == tuttiSuccess) s = tuttiCommSynchronize(r.comm);
    if (s == tuttiSuccess) return true;
    failed++;
    silent += !has(tuttiGetLastError(r.comm), "127.0.0.1:");
    return false;
  };
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (after < 20 && std::chrono::steady_clock::now() < end) {
    std::vector<float> in(2000, static_cast<float>(r.rank)), out(2000);
    const bool good = count(tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr));
    for (const float v : out) wrong += good && v != 3;
    // All ranks stop after the same operation: how many have failed here is a rank's own.
    int lost = has(explained(r), "\"lost: ") ? 1 : 0, all = 0;
    if (count(tuttiAllReduce(&lost, &all, 1, tuttiInt32, tuttiMin, r.comm, nullptr))) after += all;
  }
  EXPECT(r, wrong == 0);
  EXPECT(r, silent == 0);
  EXPECT(r, after == 20);
  EXPECT(r, failed <= 3);
  int most = 0;
  EXPECT_OK(r, tuttiAllReduce(&failed, &most, 1, tuttiInt32, tuttiMax, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  EXPECT(r, most >= 1);
}

// Sums until the communicator ends.
std::string sum_to_the_end(Rank &r, const std::function<void(int)> &before = {}) {
  tuttiResult_t s = tuttiSuccess;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  for (int turn = 0; std::chrono::steady_clock::now() < end; turn++) {
    if (before) before(turn);
    std::vector<float> in(2000, static_cast<float>(r.rank)), out(2000);
    s = tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr);
    if (s == tuttiSuccess) s = tuttiCommSynchronize(r.comm);
    tuttiResult_t state = tuttiSuccess;
    EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
    if (s != tuttiSuccess && state != tuttiSuccess) return tuttiGetLastError(r.comm);
  }
  EXPECT(r, s != tuttiSuccess);
  return "";
}

} // namespace

TEST_CASE("jobs reduce in a daemon, all types and operations, short and long, one after the other and many at once") {
  Job job("required");
  CHECK(job.run({0, 1, 1, 2}, [](Rank &r) {
    EXPECT(r, has(explained(r), "\"algo\":\"collnet_"));
    run_all(r, {1, 250, 5003}, true);
    run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 1'000'003});
    run_case(r, {Coll::broadcast, tuttiFloat32, tuttiSum, 400'000, true, 0, 2});
    std::vector<int> in(6400, 1), out(6400);
    for (int op = 0; op < 100; op++)
      EXPECT_OK(r, tuttiAllReduce(&in[op * 64], &out[op * 64], 64, tuttiInt32, tuttiSum, r.comm, nullptr));
    EXPECT_OK(r, tuttiCommSynchronize(r.comm));
    int wrong = 0;
    for (const int v : out) wrong += v != r.n;
    EXPECT(r, wrong == 0);
  }) == 0);
}

// More than all plans of are looked at; heads alone on their hosts, and with others.
TEST_CASE("jobs of more than sixteen ranks reduce in a daemon") {
  for (const int per_host : {1, 8}) {
    CAPTURE(per_host);
    std::vector<int> host;
    for (int r = 0; r < (per_host == 1 ? 17 : 32); r++) host.push_back(r / per_host);
    Job job("required");
    CHECK(job.run(host, [](Rank &r) {
      EXPECT(r, has(explained(r), "\"algo\":\"collnet_"));
      for (const size_t count : {1u, 5003u, 200'003u}) {
        run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, count});
        run_case(r, {Coll::broadcast, tuttiInt32, tuttiSum, count, false, 0, r.n - 1});
        run_case(r, {Coll::reduce, tuttiInt32, tuttiMax, count, false, 0, 1});
      }
    }) == 0);
  }
}

TEST_CASE("a key file that one rank cannot read is no error where collnet is only preferred, or off") {
  for (const char *setting : {"preferred", "off"}) {
    Job job(setting, {"TUTTI_ALGO=ring"});
    CHECK_MESSAGE(job.run(
                      {0, 1, 2},
                      [](Rank &r) {
                        run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 1000});
                        if (std::string_view(std::getenv("TUTTI_COLLNET_ENABLE")) != "preferred") return;
                        const std::string why = explained(r);
                        EXPECT(r, has(why, "key_file"));
                        EXPECT(r, has(why, "No such file or directory"));
                      },
                      {},
                      [](const Rank &r) {
                        if (r.rank == 1) setenv("TUTTI_PLUGIN_COLLNET_AGGD_KEY_FILE", "/nowhere/key", 1);
                      }) == 0,
                  setting);
  }
}

TEST_CASE("a job outlives a daemon that dies, or stops, where collnet is preferred, and its results stay right") {
  for (const int how : {SIGKILL, SIGSTOP}) {
    Job job("preferred", {"TUTTI_TIMEOUT=6s"});
    job.meanwhile([&](Job &j) {
      j.wait_for_chunks();
      j.daemon().signal(how);
    });
    CHECK_MESSAGE(job.run({0, 1, 2}, outlive) == 0, how);
  }
}

TEST_CASE("where collnet is required, a daemon that dies, or stops, is what the ranks' errors name") {
  for (const int how : {SIGKILL, SIGSTOP}) {
    Job job("required", {"TUTTI_TIMEOUT=6s"});
    job.meanwhile([&](Job &j) {
      j.wait_for_chunks();
      j.daemon().signal(how);
    });
    CHECK_MESSAGE(job.run({0, 1, 1},
                          [](Rank &r) {
                            const std::string error = sum_to_the_end(r);
                            EXPECT(r, has(error, "127.0.0.1:"));
                          }) == 0,
                  how);
  }
}

// The daemon names it; going on without collnet needs an answer of it, so there is none of that.
TEST_CASE("a rank that stops is what the others' errors name") {
  for (const char *setting : {"preferred", "required"}) {
    Job job(setting, {"TUTTI_TIMEOUT=6s"});
    job.meanwhile([](Job &j) {
      const pid_t pid = std::atoi(j.wait_for_mark("stops").c_str());
      j.wait_for_mark("done0");
      j.wait_for_mark("done1");
      if (pid > 0) ::kill(pid, SIGKILL);
    });
    CHECK_MESSAGE(job.run({0, 1, 2},
                          [](Rank &r) {
                            const std::string error = sum_to_the_end(r, [&](int turn) {
                              if (r.rank != 2 || turn != 20) return;
                              leave_mark("stops", std::to_string(::getpid()));
                              std::raise(SIGSTOP);
                            });
                            EXPECT(r, has(error, "rank 2"));
                            leave_mark("done" + std::to_string(r.rank));
                          },
                          {2}) == 0,
                  setting);
  }
}
