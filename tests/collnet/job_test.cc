// Whole jobs, through the public API, against tutti-aggd on loopback: ranks that claim to be on several hosts.
#include "daemon.h"
#include "operations.h"
#include "text.h"
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <optional>
#include <thread>

using namespace support;

namespace {

// Ranks run the test case again: the daemon is the test's own.
bool in_rank() {
  return std::getenv("TEST_RANK") != nullptr;
}

class Job {
public:
  Job(std::string setting, std::string more = "") : setting_(std::move(setting)) {
    if (in_rank()) return;
    folder_.emplace();
    key_ = folder_->key();
    daemon_.emplace(*folder_, "root", std::move(more));
  }
  int run(const std::vector<int> &host, const Body &body) {
    std::vector<std::string> env{"TUTTI_COLLNET_ENABLE=" + setting_, "TUTTI_CALIBRATE=off", "TUTTI_COLLNET=aggd",
                                 "TUTTI_ALGO=all_reduce:collnet_direct"};
    if (daemon_) {
      env.push_back("TUTTI_PLUGIN_COLLNET_AGGD_SERVERS=" + daemon_->address());
      env.push_back("TUTTI_PLUGIN_COLLNET_AGGD_KEY_FILE=" + key_);
    }
    return run_processes(static_cast<int>(host.size()), {.env = env, .limit = std::chrono::seconds(120), .init = false},
                         [&](Rank &r, const tuttiUniqueId &id) {
                           setenv("TUTTI_HOSTID", std::to_string(host[static_cast<size_t>(r.rank)]).c_str(), 1);
                           if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) body(r);
                         });
  }
  collnet::Daemon *daemon() { return daemon_ ? &*daemon_ : nullptr; }

private:
  const std::string setting_;
  std::string key_;
  std::optional<collnet::Folder> folder_;
  std::optional<collnet::Daemon> daemon_;
};

std::string explained(Rank &r) {
  std::vector<char> text(1 << 17);
  EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", 1000, tuttiFloat32, text.data(), text.size()));
  return text.data();
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

TEST_CASE("a job outlives the daemon where collnet is preferred, and its results stay right") {
  Job job("preferred");
  std::thread killer;
  if (job.daemon())
    killer = std::thread([&] {
      (void)job.daemon()->becomes(
          [](const nlohmann::json &s) { return s.dump().find("\"operations\":0") == std::string::npos; });
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      job.daemon()->signal(SIGKILL);
    });
  CHECK(job.run({0, 1, 2}, [](Rank &r) {
    int failed = 0, after = 0, wrong = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (after < 20 && std::chrono::steady_clock::now() < end) {
      std::vector<float> in(2000, static_cast<float>(r.rank)), out(2000);
      tuttiResult_t s = tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, r.comm, nullptr);
      if (s == tuttiSuccess) s = tuttiCommSynchronize(r.comm);
      failed += s != tuttiSuccess;
      for (const float v : out) wrong += s == tuttiSuccess && v != 3;
      // All ranks stop after the same operation: how many have failed here is a rank's own.
      int lost = has(explained(r), "\"lost: ") ? 1 : 0, all = 0;
      EXPECT_OK(r, tuttiAllReduce(&lost, &all, 1, tuttiInt32, tuttiMin, r.comm, nullptr));
      if (tuttiCommSynchronize(r.comm) != tuttiSuccess) continue;
      after += all;
    }
    EXPECT(r, wrong == 0);
    EXPECT(r, after == 20);
    EXPECT(r, failed <= 3);
  }) == 0);
  if (killer.joinable()) killer.join();
}
