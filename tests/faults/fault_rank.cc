// One rank of a job that goes wrong as it is told. Prints one line of JSON: what the rank got, when, and the error's text.
//
//   TUTTI_RANK=1 TUTTI_NRANKS=3 TUTTI_COMM_ID=file:/tmp/x/id fault_rank --who 1 --what die --when operation --shm 0
//
// The victim (--who) does --what at --when; all others run the job to its end, or to its error.
#include "tutti/tutti.h"
#include <atomic>
#include <chrono>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int rank = -1, nranks = 0;
  std::vector<int> who;
  std::string what = "none", when = "operation", then = "none", comm_name;
  double after_ms = 20, wake_s = 0, timeout_s = 5, init_timeout_s = 10;
  int shm = 1, warm = 3, rounds = 1 << 30;
  size_t count = 1 << 16;
  bool victim() const {
    for (int w : who)
      if (w == rank) return true;
    return false;
  }
};

struct Report {
  std::string phase = "bootstrap";
  tuttiResult_t result = tuttiSuccess;
  std::string error;
  int peer = -1;
  double seconds = 0;                    // since the call that failed began
  double fault_at = -1, verdict_at = -1; // wall clock, to compare ranks of a host
  std::string shrunk;
  double shrink_seconds = 0;
  bool right = true; // no wrong value so far
};

double wall() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void write_line(const std::string &line) {
  const std::string whole = line + "\n"; // one write: ranks may share the file
  if (::write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::_Exit(3);
}

void print(const Options &o, const Report &r) {
  nlohmann::ordered_json out;
  out["rank"] = o.rank;
  out["victim"] = o.victim();
  out["phase"] = r.phase;
  out["result"] = static_cast<int>(r.result);
  out["result_text"] = tuttiGetErrorString(r.result);
  out["peer"] = r.peer;
  out["error"] = r.error;
  out["seconds"] = r.seconds;
  if (r.fault_at >= 0) out["fault_at"] = r.fault_at;
  if (r.verdict_at >= 0) out["verdict_at"] = r.verdict_at;
  out["right"] = r.right;
  if (o.then == "shrink") out["shrink"] = r.shrunk, out["shrink_seconds"] = r.shrink_seconds;
  write_line(out.dump());
}

// What a victim does once, and, unless it goes on, never comes back from.
void go_wrong(const Options &o, Report &r) {
  r.fault_at = wall();
  nlohmann::ordered_json out;
  out["rank"] = o.rank;
  out["fault"] = o.what;
  out["when"] = o.when;
  out["fault_at"] = r.fault_at;
  write_line(out.dump());
  if (o.what == "die") raise(SIGKILL);
  if (o.what == "exit") std::exit(0);
  if (o.what == "abort") std::abort();
  if (o.what == "throw") throw std::runtime_error("as told");
  if (o.what == "stop") {
    if (o.wake_s > 0)
      if (const pid_t self = getpid(); fork() == 0) {
        std::this_thread::sleep_for(std::chrono::duration<double>(o.wake_s));
        kill(self, SIGCONT);
        std::_Exit(0);
      }
    raise(SIGSTOP);
  }
}

bool at(const Options &o, const char *when) {
  return o.victim() && o.when == when;
}
bool kills(const Options &o) {
  return o.what == "die" || o.what == "exit" || o.what == "abort" || o.what == "throw" || o.what == "stop";
}

class Failed {};

void check(tuttiResult_t result, tuttiComm_t comm, Report &r, Clock::time_point began) {
  if (result == tuttiSuccess) return;
  r.result = result;
  r.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  r.verdict_at = wall();
  tuttiErrorInfo info{};
  info.size = sizeof info;
  if (tuttiCommGetLastError(comm, &info) == tuttiSuccess) r.peer = info.peer;
  r.error = info.message;
  if (r.error.empty()) r.error = tuttiGetLastError(nullptr);
  throw Failed();
}

// One operation; `wrong`: as a rank that has misunderstood something calls it.
tuttiResult_t operation(const Options &o, tuttiComm_t comm, std::vector<int64_t> &x, bool wrong, bool *right) {
  const int n = o.nranks;
  for (size_t i = 0; i < x.size(); i++) x[i] = (int64_t(1) << o.rank) + (int64_t(i) << 40);
  const std::string what = wrong ? o.what : "";
  tuttiResult_t e;
  const size_t count = o.count;
  if (what == "count")
    e = tuttiAllReduce(x.data(), x.data(), count / 2, tuttiInt64, tuttiSum, comm, nullptr);
  else if (what == "type")
    e = tuttiAllReduce(x.data(), x.data(), count, tuttiFloat64, tuttiSum, comm, nullptr);
  else if (what == "op")
    e = tuttiAllReduce(x.data(), x.data(), count, tuttiInt64, tuttiMax, comm, nullptr);
  else if (what == "collective" || what == "order")
    e = tuttiBroadcast(x.data(), x.data(), count, tuttiInt64, 0, comm, nullptr);
  else if (what == "argument")
    e = tuttiAllReduce(x.data(), x.data(), count, static_cast<tuttiDataType_t>(99), tuttiSum, comm, nullptr);
  else
    e = tuttiAllReduce(x.data(), x.data(), count, tuttiInt64, tuttiSum, comm, nullptr);
  if (e == tuttiSuccess) e = tuttiCommSynchronize(comm);
  if (e != tuttiSuccess || wrong) return e;
  for (size_t i = 0; i < x.size(); i++) *right &= x[i] == ((int64_t(1) << n) - 1) + n * (int64_t(i) << 40);
  return e;
}

// The ranks disagree on the root of what they call.
tuttiResult_t rooted(const Options &o, tuttiComm_t comm, std::vector<int64_t> &x) {
  const int root = o.victim() ? 1 % o.nranks : 0;
  const tuttiResult_t e = tuttiBroadcast(x.data(), x.data(), o.count, tuttiInt64, root, comm, nullptr);
  return e == tuttiSuccess ? tuttiCommSynchronize(comm) : e;
}

void go_on(tuttiComm_t comm, Report &r) {
  const auto began = Clock::now();
  tuttiComm_t next = nullptr;
  const tuttiResult_t e = tuttiCommShrink(comm, nullptr, 0, &next, nullptr, TUTTI_SHRINK_DEFAULT);
  r.shrink_seconds = std::chrono::duration<double>(Clock::now() - began).count();
  if (e != tuttiSuccess) {
    r.shrunk = tuttiGetLastError(nullptr);
    return;
  }
  int n = 0, x = 1;
  tuttiCommCount(next, &n);
  tuttiResult_t sum = tuttiAllReduce(&x, &x, 1, tuttiInt32, tuttiSum, next, nullptr);
  if (sum == tuttiSuccess) sum = tuttiCommSynchronize(next);
  r.shrunk = sum == tuttiSuccess && x == n ? "ok, " + std::to_string(n) + " ranks" : tuttiGetLastError(next);
  r.right &= sum != tuttiSuccess || x == n;
  tuttiCommDestroy(next);
}

void run_job(const Options &o, Report &r) {
  tuttiComm_t comm = nullptr;
  try {
    auto began = Clock::now();
    if (at(o, "bootstrap")) {
      if (kills(o) && o.after_ms > 0) { // in the middle of it
        std::thread([&o, &r] {
          std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(o.after_ms));
          go_wrong(o, r);
        }).detach();
      } else if (kills(o))
        go_wrong(o, r);
    }
    check(tuttiCommInitFromEnv(&comm, nullptr), comm, r, began);
    r.phase = "connect"; // links are made by the first operation
    std::vector<int64_t> x(o.count);
    if (at(o, "connect") && kills(o)) go_wrong(o, r);
    for (int i = 0; i < o.warm + o.rounds; i++) {
      const bool now = o.victim() && ((o.when == "connect" && i == 0) || (o.when == "operation" && i >= o.warm));
      began = Clock::now();
      if (now && kills(o)) { // while it runs, from a thread of its own, so that the owner is in the middle of it
        static std::thread *once = nullptr;
        if (!once)
          once = new std::thread([&o, &r] {
            std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(o.after_ms));
            go_wrong(o, r);
          });
      }
      if (now && o.what == "late") std::this_thread::sleep_for(std::chrono::duration<double>(o.wake_s));
      if (o.what == "root" && i >= o.warm)
        check(rooted(o, comm, x), comm, r, began);
      else
        check(operation(o, comm, x, now && !kills(o) && o.what != "late", &r.right), comm, r, began);
      if (i >= o.warm) r.phase = "operation";
      if (i + 1 == o.warm) r.phase = "operation";
    }
    r.phase = "finalize";
    began = Clock::now();
    if (at(o, "finalize")) go_wrong(o, r);
    check(tuttiCommFinalize(comm), comm, r, began);
    check(tuttiCommDestroy(std::exchange(comm, nullptr)), nullptr, r, began);
    r.phase = "done";
  } catch (const Failed &) {
    if (comm && o.then == "shrink") go_on(comm, r);
    if (comm) tuttiCommAbort(comm);
  }
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  CLI::App app{"one rank of a job that goes wrong as it is told; one line of JSON says what became of it"};
  app.add_option("--who", o.who, "ranks that go wrong")->delimiter(',');
  app.add_option("--what", o.what, "what they do")
      ->check(CLI::IsMember({"none", "die", "exit", "abort", "throw", "stop", "late", "count", "type", "op", "root", "order",
                             "collective", "argument"}));
  app.add_option("--when", o.when, "when they do it")->check(CLI::IsMember({"bootstrap", "connect", "operation", "finalize"}));
  app.add_option("--then", o.then, "what the others do after their error: none, or shrink without a list")
      ->check(CLI::IsMember({"none", "shrink"}));
  app.add_option("--after", o.after_ms, "milliseconds from the beginning of the phase to the fault");
  app.add_option("--wake", o.wake_s, "seconds after which what was stopped, or is late, goes on (0 = never)");
  app.add_option("--shm", o.shm, "0: a network between the processes of the host");
  app.add_option("--timeout", o.timeout_s, "seconds: core.timeout and core.finalize_timeout");
  app.add_option("--init-timeout", o.init_timeout_s, "seconds: core.init_timeout");
  app.add_option("--warm", o.warm, "operations before the fault");
  app.add_option("--rounds", o.rounds, "operations after those (default: until an error)");
  app.add_option("--count", o.count, "elements of an operation");
  CLI11_PARSE(app, argc, argv);
  const char *rank = std::getenv("TUTTI_RANK"), *nranks = std::getenv("TUTTI_NRANKS");
  o.rank = rank ? std::atoi(rank) : -1;
  o.nranks = nranks ? std::atoi(nranks) : 0;
  if (o.when == "finalize" && o.rounds == 1 << 30) o.rounds = 1;
  const auto ms = [](double s) { return std::to_string(static_cast<long>(s * 1000)) + "ms"; };
  setenv("TUTTI_TIMEOUT", ms(o.timeout_s).c_str(), 0);
  setenv("TUTTI_FINALIZE_TIMEOUT", ms(o.timeout_s).c_str(), 0);
  setenv("TUTTI_INIT_TIMEOUT", ms(o.init_timeout_s).c_str(), 0);
  if (!o.shm) setenv("TUTTI_SHM_DISABLE", "1", 0);
  Report r;
  run_job(o, r);
  print(o, r);
  return 0;
}
