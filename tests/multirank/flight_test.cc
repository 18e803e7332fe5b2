// The flight recorder of live communicators: written when they fail, on a signal and on request, also while they are stuck.
#include "folder.h"
#include "ranks.h"
#include "text.h"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

json read(const fs::path &path) {
  std::ifstream in(path);
  return json::parse(in, nullptr, false);
}

// By rank.
std::map<int, json> read_all(const fs::path &folder) {
  std::map<int, json> out;
  for (const auto &f : fs::directory_iterator(folder)) {
    json j = read(f.path());
    if (j.is_object()) out[j.value("rank", -1)] = j;
  }
  return out;
}

bool eventually(const std::function<bool()> &fn) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    if (fn()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

tuttiResult_t sum(Rank &r, size_t count = 64) {
  std::vector<float> x(count, 1), y(count);
  const tuttiResult_t e = tuttiAllReduce(x.data(), y.data(), count, tuttiFloat32, tuttiSum, r.comm, nullptr);
  return e == tuttiSuccess ? tuttiCommSynchronize(r.comm) : e;
}

void abandon(Rank &r) {
  tuttiCommAbort(r.comm);
  r.comm = nullptr;
}

// Ranks as threads of a process of their own: settings are read once per process.
int threads(int n, const Body &body, const std::vector<std::string> &env) {
  return run_processes(1, {.env = env, .init = false},
                       [&](Rank &r, const tuttiUniqueId &) { r.failures += run_threads(n, body); });
}

std::atomic<int> handled{0};
void application_handler(int) {
  handled++;
}

} // namespace

TEST_CASE("ranks that call different things each leave a file that says what they called, and why they failed") {
  const Folder folder;
  CHECK(run_processes(3,
                      [](Rank &r) {
                        EXPECT_OK(r, sum(r));
                        EXPECT_OK(r, sum(r));
                        std::vector<float> x(8);
                        tuttiResult_t e;
                        if (r.rank == 2) {
                          e = tuttiBcast(x.data(), x.size(), tuttiFloat32, 1, r.comm, nullptr);
                          if (e == tuttiSuccess) e = tuttiCommSynchronize(r.comm);
                        } else
                          e = sum(r);
                        EXPECT(r, e != tuttiSuccess);
                        abandon(r);
                      },
                      {.env = {folder.env(), "TUTTI_RECORD_FILE=" + folder.path.string() + "/"}}) == 0);
  const auto files = read_all(folder.path);
  REQUIRE(files.size() == 3);
  for (const auto &file : files) {
    const auto &f = file.second;
    CAPTURE(f.dump());
    CHECK(f["format"] == "tutti.flight/1");
    CHECK(f["reason"] == "error");
    CHECK(f["nranks"] == 3);
    REQUIRE(f["operations"].size() == 3);
    CHECK(f["operations"][0]["coll"] == "all_reduce");
    CHECK(f["operations"][0]["completed_ns"].get<int64_t>() >= f["operations"][0]["started_ns"].get<int64_t>());
    CHECK(f["operations"][2]["coll"] == (file.first == 2 ? "broadcast" : "all_reduce"));
    CHECK(f["operations"][2].count("completed_ns") == 0);
    CHECK(f["events"][0]["kind"] == "set up");
    CHECK(f["events"].back()["kind"] == "failed");
    const std::string why = f["state"]["error"]["text"];
    CHECK(has(why, "calls broadcast #3"));
    CHECK(has(why, "calls all_reduce #3"));
  }
}

TEST_CASE("a signal has all communicators of a process written while they are stuck, and the application's handler is called") {
  const Folder folder;
  CHECK(threads(2,
                [&](Rank &r) {
                  static std::atomic<tuttiComm_t> other{nullptr};
                  if (r.rank == 0) {
                    other = r.comm;
                    EXPECT_OK(r, sum(r));
                    return;
                  }
                  EXPECT(r, eventually([] { return other.load() != nullptr; }));
                  const std::string asked = folder.path.string() + "/asked-%r.json";
                  // Until it is stuck, as the other thread sees it.
                  EXPECT(r, eventually([&] {
                           EXPECT_OK(r, tuttiCommDump(other, asked.c_str()));
                           return read(folder.path / "asked-0.json")["state"]["doing"] == "waiting";
                         }));
                  const json stuck = read(folder.path / "asked-0.json");
                  EXPECT(r, stuck["reason"] == "call");
                  EXPECT(r, stuck["state"]["waits"].size() == 1);
                  EXPECT(r, stuck["state"]["waits"][0]["peer"] == 1);
                  EXPECT(r, stuck["operations"][0]["call"] == "all_reduce #1 (64 float sum)");
                  EXPECT(r, stuck["operations"][0].count("started_ns") == 1);
                  fs::remove(folder.path / "asked-0.json");
                  ::kill(::getpid(), SIGUSR2);
                  EXPECT(r, eventually([&] { return read_all(folder.path).size() == 2 && folder.files().size() == 2; }));
                  const auto files = read_all(folder.path);
                  EXPECT(r, files.at(0)["reason"] == "signal");
                  EXPECT(r, files.at(0)["state"]["doing"] == "waiting");
                  EXPECT(r, files.at(1)["state"]["doing"] == "idle");
                  EXPECT(r, files.at(1)["operations"].empty());
                  EXPECT(r, files.at(0)["comm"] == files.at(1)["comm"]);
                  EXPECT_OK(r, sum(r));
                },
                {folder.env(), "TUTTI_RECORD_SIGNAL=SIGUSR2", "TUTTI_RECORD_FILE=" + folder.path.string() + "/"}) == 0);
}

TEST_CASE("the signal's handler calls the one that was there before") {
  const Folder folder;
  CHECK(
      run_processes(1,
                    {.env = {folder.env(), "TUTTI_RECORD_SIGNAL=USR1", "TUTTI_RECORD_FILE=" + folder.path.string() + "/f.json"},
                     .init = false},
                    [&](Rank &r, const tuttiUniqueId &) {
                      struct sigaction a {};
                      a.sa_handler = application_handler;
                      EXPECT(r, ::sigaction(SIGUSR1, &a, nullptr) == 0);
                      r.failures += run_threads(2, [&](Rank &t) {
                        EXPECT_OK(t, sum(t));
                        if (t.rank) return;
                        ::kill(::getpid(), SIGUSR1);
                        EXPECT(t, eventually([&] { return handled == 1 && read_all(folder.path).size() == 2; }));
                      });
                      EXPECT(r, handled == 1);
                    }) == 0);
}

TEST_CASE("a handler that was to ignore the signal, whatever its flags, is not called") {
  const Folder folder;
  CHECK(
      run_processes(1,
                    {.env = {folder.env(), "TUTTI_RECORD_SIGNAL=USR1", "TUTTI_RECORD_FILE=" + folder.path.string() + "/f.json"},
                     .init = false},
                    [&](Rank &r, const tuttiUniqueId &) {
                      struct sigaction a {};
                      a.sa_handler = SIG_IGN;
                      a.sa_flags = SA_SIGINFO;
                      EXPECT(r, ::sigaction(SIGUSR1, &a, nullptr) == 0);
                      r.failures += run_threads(2, [&](Rank &t) {
                        EXPECT_OK(t, sum(t));
                        if (t.rank) return;
                        ::kill(::getpid(), SIGUSR1);
                        EXPECT(t, eventually([&] { return read_all(folder.path).size() == 2; }));
                      });
                    }) == 0);
}

// The service thread goes on, and with it all that keeps the job together.
TEST_CASE("a dump into a pipe that nobody reads holds up no file of a failure") {
  const Folder folder;
  const fs::path files = folder.path / "files", pipe = folder.path / "pipe";
  if (folder.own()) {
    fs::create_directory(files);
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  }
  CHECK(threads(2,
                [&](Rank &r) {
                  static std::atomic<int> ready{0};
                  for (int i = 0; i < 100; i++) EXPECT_OK(r, sum(r)); // more than the pipe holds
                  ready++;
                  EXPECT(r, eventually([] { return ready == 2; }));
                  if (r.rank == 1) {
                    EXPECT(r, eventually([] { return ready == 3; }));
                    return abandon(r);
                  }
                  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
                  EXPECT(r, reader >= 0 && ::fcntl(reader, F_SETPIPE_SZ, 4096) >= 0);
                  std::atomic<bool> over{false};
                  std::thread dumping([&] {
                    EXPECT_OK(r, tuttiCommDump(r.comm, pipe.c_str()));
                    over = true;
                  });
                  int there = 0;
                  EXPECT(r, eventually([&] { return ::ioctl(reader, FIONREAD, &there) == 0 && there > 0; }));
                  EXPECT_OK(r, tuttiCommRevoke(r.comm, 0));
                  EXPECT(r, eventually([&] { return over || read_all(files).count(0) == 1; }));
                  EXPECT(r, !over);
                  char part[4096];
                  while (!over) (void)!::read(reader, part, sizeof part);
                  dumping.join();
                  ::close(reader);
                  ready++;
                  abandon(r);
                },
                {folder.env(), "TUTTI_RECORD_FILE=" + files.string() + "/"}) == 0);
}

TEST_CASE("a dump that cannot be written is one error, leaves nothing behind and harms no communicator") {
  const Folder folder;
  CHECK(run_threads(2, [&](Rank &r) {
          const auto refused = [&](const char *path, tuttiResult_t code, const char *why) {
            EXPECT(r, tuttiCommDump(r.comm, path) == code);
            if (!EXPECT(r, has(tuttiGetLastError(nullptr), why))) std::fprintf(stderr, "%s\n", tuttiGetLastError(nullptr));
          };
          refused(nullptr, tuttiInvalidArgument, "record.file");
          refused((folder.path / "none" / "x.json").c_str(), tuttiSystemError, "No such file");
          refused("/proc/x-%r.json", tuttiSystemError, "/proc/x-");
          EXPECT(r, tuttiCommDump(nullptr, "x") == tuttiInvalidArgument);
          EXPECT_OK(r, sum(r));
          EXPECT_OK(r, tuttiCommFinalize(r.comm));
          EXPECT_OK(r, tuttiCommDump(r.comm, (folder.path / "%r.json").c_str()));
        }) == 0);
  const auto files = read_all(folder.path);
  CHECK(files.size() == 2);
  CHECK(folder.files().size() == 2);
  CHECK(files.at(1)["events"].back()["kind"] == "finalized");
}

TEST_CASE("a full disk is one error, and neither half a file nor an end of the communicator") {
  const Folder folder;
  if (folder.own() && ::mount("tmpfs", folder.path.c_str(), "tmpfs", 0, "size=64k") != 0) {
    MESSAGE("skipped: a small file system needs root");
    return;
  }
  const std::string to = folder.path.string();
  CHECK(threads(2,
                [&](Rank &r) {
                  static std::atomic<int> ready{0};
                  for (int i = 0; i < 300; i++) EXPECT_OK(r, sum(r)); // more than fits
                  EXPECT(r, tuttiCommDump(r.comm, (to + "/%r.json").c_str()) == tuttiSystemError);
                  EXPECT(r, has(tuttiGetLastError(nullptr), "No space left"));
                  ready++;
                  EXPECT(r, eventually([] { return ready == 2; }));
                  EXPECT(r, fs::is_empty(to));
                  EXPECT_OK(r, sum(r));
                  EXPECT(r, (r.rank ? sum(r, 65) : sum(r)) != tuttiSuccess); // and the file of record.file
                  EXPECT(r, has(tuttiGetLastError(r.comm), "calls all_reduce #302"));
                  abandon(r);
                },
                {folder.env(), "TUTTI_RECORD_FILE=" + to + "/f.json"}) == 0);
  CHECK(folder.files().size() <= 1); // one of the two may fit
  for (const auto &f : folder.files()) CHECK(read(f).is_object());
  CHECK(::umount(folder.path.c_str()) == 0);
}

TEST_CASE("whom a rank waits for may itself wait: the rank at the end is named") {
  for (const bool broadcast : {true, false}) {
    CAPTURE(broadcast);
    CHECK(run_processes(3,
                        [&](Rank &r) {
                          float x[4] = {};
                          EXPECT_OK(r, sum(r));
                          if (r.rank == 2) { // does nothing, until the others have given up
                            while (true) {
                              tuttiResult_t state;
                              EXPECT_OK(r, tuttiCommGetAsyncError(r.comm, &state));
                              if (state != tuttiSuccess) break;
                              std::this_thread::sleep_for(std::chrono::milliseconds(5));
                            }
                          } else {
                            if (r.rank == 0)
                              std::this_thread::sleep_for(std::chrono::milliseconds(400)); // rank 1 gives up first
                            tuttiResult_t e = r.rank == 0 ? tuttiRecv(x, 4, tuttiFloat32, 2, r.comm, nullptr)
                                              : broadcast ? tuttiBcast(x, 4, tuttiFloat32, 0, r.comm, nullptr)
                                                          : tuttiRecv(x, 4, tuttiFloat32, 0, r.comm, nullptr);
                            if (e == tuttiSuccess) e = tuttiCommSynchronize(r.comm);
                            EXPECT(r, e != tuttiSuccess);
                          }
                          if (r.rank == 2) EXPECT(r, sum(r) != tuttiSuccess); // and hears why
                          tuttiErrorInfo info{};
                          info.size = sizeof info;
                          EXPECT_OK(r, tuttiCommGetLastError(r.comm, &info));
                          if (!EXPECT(r, info.peer == 2)) std::fprintf(stderr, "%s\n", info.message);
                          if (!EXPECT(r, has(info.message, "in the end rank 2 has not called it")))
                            std::fprintf(stderr, "%s\n", info.message);
                          abandon(r);
                        },
                        {.env = {"TUTTI_TIMEOUT=1s"}}) == 0);
  }
}
