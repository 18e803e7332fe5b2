// Running jobs as `tutti ras` shows them: the tool is run beside ranks that work, wait, are stopped, die, or are many.
#include "folder.h"
#include "ranks.h"
#include "text.h"
#include <arpa/inet.h>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

void mark(const Folder &folder, const std::string &name) {
  std::ofstream(folder.path / name) << "x";
}
bool marked(const Folder &folder, const std::string &name) {
  return fs::exists(folder.path / name);
}

bool eventually(const std::function<bool()> &fn, std::chrono::seconds limit = std::chrono::seconds(30)) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    if (fn()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

// What the tool says of this process's job.
json look(const std::string &more = "") {
  const std::string command = std::string(TUTTI_BINARY_DIR "/bin/tutti ras --json --interval 0 ") +
                              (has(more, "--pid") ? "" : "--pid " + std::to_string(::getpid())) + " " + more + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE *)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::string text;
  char part[4096];
  for (size_t n; pipe && (n = std::fread(part, 1, sizeof part, pipe.get())) > 0;) text.append(part, n);
  return json::parse(text, nullptr, false);
}

json comms(const json &view) {
  return view.is_object() && view["jobs"].size() == 1 ? view["jobs"][0]["communicators"] : json::array();
}
json comm(const json &view, const std::string &name) {
  for (const json &c : comms(view))
    if (c["name"] == name) return c;
  return {};
}

// Until the largest communicator's verdict is that; what was said then.
json until(Rank &r, const std::string &state, const std::string &more = "--stall 0.5") {
  json last;
  const bool came = eventually([&] {
    last = look(more);
    for (const json &c : comms(last))
      if (c["nranks"] == r.n && c["verdict"]["state"] == state) {
        last = c;
        return true;
      }
    return false;
  });
  if (!r.expect(came, ("verdict " + state).c_str(), __FILE__, __LINE__)) std::fprintf(stderr, "%s\n", last.dump(1).c_str());
  return came ? last : json();
}

tuttiResult_t sum(tuttiComm_t comm, float mine = 1, float *total = nullptr) {
  float x = mine, y = 0;
  tuttiResult_t e = tuttiAllReduce(&x, &y, 1, tuttiFloat32, tuttiSum, comm, nullptr);
  if (e == tuttiSuccess) e = tuttiCommSynchronize(comm);
  if (total) *total = y;
  return e;
}

// Sums until some rank says that it is enough.
tuttiResult_t work(tuttiComm_t comm, const std::atomic<bool> &enough) {
  for (float stop = 0; stop == 0;)
    if (const tuttiResult_t e = sum(comm, enough ? 1 : 0, &stop); e != tuttiSuccess) return e;
  return tuttiSuccess;
}

void abandon(Rank &r) {
  tuttiCommAbort(r.comm);
  r.comm = nullptr;
}

std::string fetch(uint16_t port, const std::string &request) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string text;
  const timeval limit{10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
    char part[4096];
    for (ssize_t n; (n = ::recv(fd, part, sizeof part, 0)) > 0;) text.append(part, static_cast<size_t>(n));
  }
  ::close(fd);
  return text;
}

int idle_connection(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)!::connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to);
  return fd;
}

} // namespace

TEST_CASE("threads of one process: a rank that never calls is named while the others wait, and all is well once it does") {
  CHECK(run_threads(4, [](Rank &r) {
          static std::atomic<bool> seen{false};
          EXPECT_OK(r, sum(r.comm));
          if (r.rank == 1) {
            const json c = until(r, "STALLED");
            EXPECT(r, c.is_object() && c["verdict"]["kind"] == "absent");
            EXPECT(r, c.is_object() && c["verdict"]["ranks"] == json::array({1}));
            EXPECT(r, c.is_object() && has(c["verdict"]["text"], "rank 1 never called all_reduce #2"));
            seen = true;
          }
          EXPECT_OK(r, sum(r.comm));
          if (r.rank == 1) {
            EXPECT(r, until(r, "IDLE").is_object());
          }
          EXPECT(r, seen.load());
        }) == 0);
}

TEST_CASE("a rank that gets SIGSTOP shows as stalled within seconds, and the job runs on after SIGCONT") {
  CHECK(run_processes(3, [](Rank &r) {
          std::atomic<bool> enough{false};
          std::atomic<tuttiResult_t> result{tuttiInProgress};
          std::thread worker([&] { result = work(r.comm, enough); });
          if (r.rank == 0) {
            const json before = until(r, "RUNNING");
            const json view = look(), all = comms(view);
            pid_t pid = 0;
            for (const json &p : view["jobs"][0]["processes"])
              for (const json &rank : all[0]["ranks"])
                if (rank["rank"] == 2 && rank["process"] == p["process"]) pid = p["pid"];
            EXPECT(r, pid > 0);
            if (pid > 0) {
              ::kill(pid, SIGSTOP);
              const auto since = std::chrono::steady_clock::now();
              const json c = until(r, "STALLED", "");
              const auto took = std::chrono::steady_clock::now() - since;
              ::kill(pid, SIGCONT);
              EXPECT(r, took < std::chrono::seconds(15));
              EXPECT(r, c.is_object() && c["verdict"]["ranks"] == json::array({2}));
              EXPECT(r, c.is_object() && has(c["verdict"]["text"], "rank 2 (pid " + std::to_string(pid)));
              EXPECT(r, c.is_object() && has(c["verdict"]["text"], "is stopped"));
              EXPECT(r, c.is_object() && c["missing"] == json::array({2}));
              EXPECT(r, until(r, "RUNNING").is_object());
            }
            enough = true;
          }
          worker.join();
          EXPECT(r, result == tuttiSuccess);
        }) == 0);
}

TEST_CASE("a rank that was killed is shown as gone, and the communicator as failed, until it is destroyed") {
  const Folder folder;
  CHECK(run_processes(3,
                      [&](Rank &r) {
                        EXPECT_OK(r, sum(r.comm));
                        mark(folder, "through" + std::to_string(r.rank));
                        if (r.rank == 2) { // the others may still need it to end the first one
                          EXPECT(r, eventually([&] { return marked(folder, "through0") && marked(folder, "through1"); }));
                          ::raise(SIGKILL);
                          return;
                        }
                        EXPECT(r, sum(r.comm) != tuttiSuccess);
                        if (r.rank == 0) {
                          const json c = until(r, "FAILED");
                          EXPECT(r, c.is_object() && has(c["verdict"]["text"], "rank 2"));
                          EXPECT(r, c.is_object() && c["missing"] == json::array({2}));
                          EXPECT(r, c.is_object() && c["ranks"][2]["answered"] == false);
                          mark(folder, "seen");
                        }
                        EXPECT(r, eventually([&] { return marked(folder, "seen"); }));
                        abandon(r);
                        if (r.rank == 0) {
                          EXPECT(r, eventually([] { return comms(look()).empty(); }));
                        }
                      },
                      {.env = {folder.env()}, .may_die = {2}}) == 0);
}

TEST_CASE("children of splits and communicators of another id are shown with the job whose processes they share") {
  CHECK(run_processes(4, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.commName = r.rank % 2 ? "odd" : "even";
          tuttiComm_t child = nullptr;
          EXPECT_OK(r, tuttiCommSplit(r.comm, r.rank % 2, 0, &child, &config));
          tuttiUniqueId id{};
          if (r.rank == 0) {
            EXPECT_OK(r, tuttiGetUniqueId(&id));
          }
          EXPECT_OK(r, tuttiBcast(id.internal, sizeof id.internal, tuttiInt8, 0, r.comm, nullptr));
          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
          tuttiConfig_t named = TUTTI_CONFIG_INITIALIZER;
          named.commName = "other";
          tuttiComm_t other = nullptr;
          if (r.rank < 2) {
            EXPECT_OK(r, tuttiCommInitRankConfig(&other, 2, id, r.rank, &named));
          }
          EXPECT_OK(r, sum(child));
          EXPECT_OK(r, sum(r.comm)); // all are there
          if (r.rank == 3) {
            const json view = look();
            EXPECT(r, comms(view).size() == 4);
            EXPECT(r, comm(view, "odd")["nranks"] == 2);
            EXPECT(r, comm(view, "odd")["job"] == view["jobs"][0]["id"]);
            EXPECT(r, comm(view, "even")["missing"] == json::array()); // this process is no member of it
            EXPECT(r, comm(view, "other")["nranks"] == 2);
            EXPECT(r, comm(view, "even")["completed"]["least"] == 1);
            EXPECT(r, view["jobs"][0]["processes"].size() == 4);
            EXPECT(r, comms(look("--comm even")).size() == 1);
          }
          EXPECT_OK(r, sum(r.comm));
          if (other) {
            EXPECT_OK(r, tuttiCommDestroy(other));
          }
          EXPECT_OK(r, tuttiCommDestroy(child));
        }) == 0);
}

TEST_CASE("a rank that does not join is what a communicator in the making waits for") {
  const Folder folder;
  CHECK(
      run_processes(2, {.env = {folder.env(), "TUTTI_INIT_TIMEOUT=40s"}, .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
        if (r.rank == 0) {
          std::atomic<bool> joined{false};
          std::thread joining([&] {
            EXPECT_OK(r, tuttiCommInitRank(&r.comm, 2, id, 0));
            joined = true;
          });
          const json c = until(r, "SETUP");
          EXPECT(r, !joined);
          EXPECT(r, c.is_object() && has(c["verdict"]["text"], "rank 0: "));
          mark(folder, "seen");
          joining.join();
        } else {
          EXPECT(r, eventually([&] { return marked(folder, "seen"); }));
          EXPECT_OK(r, tuttiCommInitRank(&r.comm, 2, id, 1));
        }
        EXPECT_OK(r, tuttiCommDestroy(r.comm));
        r.comm = nullptr;
      }) == 0);
}

TEST_CASE("over sockets links have their way, and a process answers nobody where that is switched off") {
  CHECK(run_processes(2,
                      [](Rank &r) {
                        EXPECT_OK(r, sum(r.comm));
                        if (r.rank == 0) {
                          const json all = comms(look()), c = all.empty() ? json() : all[0];
                          EXPECT(r, c.is_object() && has(c["ranks"][0]["links"].dump(), "net socket"));
                          EXPECT(r, c.is_object() && c["ranks"][0]["calls"]["all_reduce"] == 1);
                        }
                        EXPECT_OK(r, sum(r.comm));
                      },
                      {.env = {"TUTTI_SHM_DISABLE=1"}}) == 0);
  CHECK(run_processes(2,
                      [](Rank &r) {
                        EXPECT_OK(r, sum(r.comm));
                        if (r.rank == 0) {
                          const json seen = look();
                          EXPECT(r, seen.is_object() && comms(seen).empty());
                        }
                        EXPECT_OK(r, sum(r.comm));
                      },
                      {.env = {"TUTTI_RAS_ENABLE=0"}}) == 0);
}

TEST_CASE("metrics are served while strangers hold connections open, and count what was done") {
  const Folder folder;
  CHECK(run_processes(2,
                      [&](Rank &r) {
                        for (int i = 0; i < 5; i++) EXPECT_OK(r, sum(r.comm));
                        std::ifstream log(folder.path / ("log." + std::to_string(::getpid())));
                        std::stringstream all;
                        all << log.rdbuf();
                        const std::string text = all.str(), lead = "http://127.0.0.1:";
                        const size_t at = text.find(lead);
                        EXPECT(r, at != std::string::npos);
                        if (at == std::string::npos) return;
                        const auto port = static_cast<uint16_t>(std::stoi(text.substr(at + lead.size())));
                        std::vector<int> idle;
                        for (int i = 0; i < 100; i++) idle.push_back(idle_connection(port));
                        EXPECT(r, has(fetch(port, std::string(20000, 'x')), "400 Bad Request"));
                        const std::string page = fetch(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
                        for (const int fd : idle) ::close(fd);
                        EXPECT(r, page.starts_with("HTTP/1.1 200 OK\r\n"));
                        EXPECT(r, has(page, "# TYPE tutti_operations_total counter\n"));
                        EXPECT(r, has(page, ",rank=\"" + std::to_string(r.rank) + "\",coll=\"all_reduce\"} 5\n"));
                        EXPECT(r, has(page, "tutti_communicators 1\n"));
                        EXPECT(r, has(page, "class=\"shm\",direction=\"send\"}"));
                        EXPECT(r, has(fetch(port, "PUT /metrics HTTP/1.1\r\n\r\n"), "405 Method Not Allowed"));
                        EXPECT_OK(r, sum(r.comm));
                      },
                      {.env = {folder.env(), "TUTTI_METRICS=127.0.0.1:0", "TUTTI_DEBUG=info",
                               "TUTTI_DEBUG_FILE=" + folder.path.string() + "/log.%p"}}) == 0);
}
