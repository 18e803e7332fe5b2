// One rank of a job that goes wrong as it is told. Prints lines of JSON; the last one says what the rank got, when, and the
// error's text.
//
//   TUTTI_RANK=1 TUTTI_NRANKS=3 TUTTI_COMM_ID=file:/tmp/x/id fault_rank --who 1 --what die --when operation --shm 0
//
// The victims (--who) do --what at --when; all others run the job to its end, or to its error.
#include "calls.h"
#include "strike.h"
#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  int rank = -1, nranks = 0;
  std::vector<int> who;
  std::string what = "none", when = "operation", then = "none", hold, plant = "none";
  double wake_s = 0, timeout_s = 5, init_timeout_s = 10;
  int shm = 1, warm = 3, rounds = 1 << 30, step = 0, plant_at = 0;
  bool until_told = false, tell = false;
  size_t count = 1 << 16;
  int memory_mib = -1;
  bool victim() const { return std::find(who.begin(), who.end(), rank) != who.end(); }
  bool strikes() const { return what == "die" || what == "exit" || what == "abort" || what == "throw" || what == "stop"; }
  bool strikes_at(const char *phase) const { return victim() && strikes() && when == phase; }
};

struct Report {
  std::string phase = "bootstrap";
  tuttiResult_t result = tuttiSuccess;
  std::string error;
  int peer = -1, rounds = 0;
  double seconds = 0;     // since the call that failed began
  double verdict_at = -1; // wall clock, to compare ranks of a host
  std::string shrunk;
  double shrink_seconds = 0;
  bool right = true; // no wrong value so far
};

double wall() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void write_line(const nlohmann::ordered_json &line) {
  const std::string whole = line.dump() + "\n"; // one write: ranks may share the file
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
  out["rounds"] = r.rounds;
  if (r.verdict_at >= 0) out["verdict_at"] = r.verdict_at;
  out["right"] = r.right;
  if (o.then == "shrink") out["shrink"] = r.shrunk, out["shrink_seconds"] = r.shrink_seconds;
  write_line(out);
}

void say_fault(const Options &o) {
  nlohmann::ordered_json out;
  out["rank"] = o.rank;
  out["fault"] = o.what;
  out["when"] = o.when;
  out["fault_at"] = wall();
  write_line(out);
}

faults::Fault fault_of(const Options &o) {
  return {o.what, o.wake_s, [&o] { say_fault(o); }};
}

// Before a phase: whoever looks on is told, or awaited, and the victim is armed.
void enter(const Options &o, Report &r, const char *phase) {
  r.phase = phase;
  if (o.tell) write_line({{"rank", o.rank}, {"at", phase}});
  char answer;
  if (o.hold == phase && ::read(STDIN_FILENO, &answer, 1) < 0) std::_Exit(3);
  if (o.strikes_at(phase) && r.phase != "operation") faults::strike_at_call(fault_of(o), o.step);
}
void leave(const Options &o, const char *phase) {
  if (o.strikes_at(phase)) faults::strike_at_last();
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

// All ranks stop after the same round: what rank 0 was told on its standard input is the maximum of what all were.
bool told_to_stop(const Options &o, tuttiComm_t comm, Report &r) {
  if (!o.until_told) return false;
  pollfd in{STDIN_FILENO, POLLIN, 0};
  int stop = o.rank == 0 && poll(&in, 1, 0) > 0;
  const auto began = Clock::now();
  check(tuttiAllReduce(&stop, &stop, 1, tuttiInt32, tuttiMax, comm, nullptr), comm, r, began);
  check(tuttiCommSynchronize(comm), comm, r, began);
  return stop != 0;
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

void operations(const Options &o, faults::Calls &calls, tuttiComm_t comm, Report &r) {
  for (int i = 0; i < o.warm + o.rounds; i++) {
    if (i == o.warm) enter(o, r, "operation");
    const bool now = o.victim() && i >= o.warm && o.when == "operation";
    if (i == o.warm && o.strikes_at("operation")) {
      calls.clear();
      faults::strike_at_word(fault_of(o), calls.word(o.step), faults::Calls::kUnwritten);
    }
    const auto began = Clock::now();
    if (now && o.what == "late") std::this_thread::sleep_for(std::chrono::duration<double>(o.wake_s));
    const bool wrong = o.what != "none" && o.what != "late" && !o.strikes() && i >= o.warm;
    if (now && wrong && i == o.warm) say_fault(o);
    const tuttiResult_t e = wrong ? calls.misunderstand(o.what, now) : calls.sum(i);
    r.right &= calls.right();
    check(e, comm, r, began);
    r.rounds++;
    if (i == 0) leave(o, "connect"); // links are made by the first operation
    if (told_to_stop(o, comm, r)) return;
  }
}

void run_job(const Options &o, Report &r) {
  tuttiComm_t comm = nullptr;
  try {
    auto began = Clock::now();
    enter(o, r, "bootstrap");
    check(tuttiCommInitFromEnv(&comm, nullptr), comm, r, began);
    leave(o, "bootstrap");
    faults::Calls calls(o.rank, o.nranks, o.count);
    began = Clock::now();
    check(calls.use(comm, o.what == "communicator"), comm, r, began);
    if (o.plant == "wrong" && o.plant_at == o.rank) calls.spoil();
    enter(o, r, "connect");
    operations(o, calls, comm, r);
    began = Clock::now();
    enter(o, r, "finalize");
    check(calls.done(), comm, r, began);
    check(tuttiCommFinalize(comm), comm, r, began);
    leave(o, "finalize");
    check(tuttiCommDestroy(std::exchange(comm, nullptr)), nullptr, r, began);
    r.phase = "done";
  } catch (const Failed &) {
    if (comm && o.then == "shrink") go_on(comm, r);
    if (comm) tuttiCommAbort(comm);
  } catch (const std::bad_alloc &) {
    r.result = tuttiSystemError;
    r.error = "the application has no memory left";
    if (comm) tuttiCommAbort(comm);
  }
}

// What whoever judges this job must find out.
void planted(const Options &o) {
  if (o.plant_at != o.rank) return;
  if (o.plant == "crash") raise(SIGSEGV);
  if (o.plant == "hang")
    for (;;) pause();
  if (o.plant == "late") std::this_thread::sleep_for(std::chrono::duration<double>(o.wake_s));
  if (o.plant == "child" && fork() == 0)
    for (;;) pause();
}

// Of address space beyond what the process has now, whatever its libraries take.
void limit_memory(int mib) {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + (static_cast<uint64_t>(mib) << 20);
  setrlimit(RLIMIT_AS, &limit);
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  CLI::App app{"one rank of a job that goes wrong as it is told; its last line of JSON says what became of it"};
  app.add_option("--who", o.who, "ranks that go wrong")->delimiter(',');
  app.add_option("--what", o.what, "what they do")
      ->check(CLI::IsMember({"none", "die", "exit", "abort", "throw", "stop", "late", "count", "type", "op", "root", "order",
                             "collective", "communicator", "argument"}));
  app.add_option("--when", o.when, "when they do it")->check(CLI::IsMember({"bootstrap", "connect", "operation", "finalize"}));
  app.add_option(
         "--step", o.step,
         "where in that phase: at the n-th system call on a socket (0: before all), in an operation when n 64ths of the "
         "result are there")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--then", o.then, "what the others do after their error: none, or shrink without a list")
      ->check(CLI::IsMember({"none", "shrink"}));
  app.add_option("--wake", o.wake_s, "seconds after which what was stopped, or is late, goes on (0 = never)");
  app.add_option("--shm", o.shm, "0: a network between the processes of the host");
  app.add_option("--timeout", o.timeout_s, "seconds: core.timeout, core.connect_timeout and core.finalize_timeout");
  app.add_option("--init-timeout", o.init_timeout_s, "seconds: core.init_timeout");
  app.add_option("--warm", o.warm, "operations before the fault");
  app.add_option("--rounds", o.rounds, "operations after those (default: until an error)");
  app.add_flag("--until-told", o.until_told, "until rank 0 finds something on its standard input");
  app.add_flag("--tell", o.tell, "a line before each phase");
  app.add_option("--hold", o.hold, "wait for a byte on the standard input before this phase");
  app.add_option("--count", o.count, "elements of an operation");
  app.add_option("--memory", o.memory_mib, "MiB that those who go wrong may take from now on (default: all)");
  app.add_option("--plant", o.plant, "a mistake of this program, for tests of what judges it")
      ->check(CLI::IsMember({"none", "crash", "hang", "late", "child", "wrong"}));
  app.add_option("--plant-at", o.plant_at, "the rank that makes it");
  CLI11_PARSE(app, argc, argv);
  const char *rank = std::getenv("TUTTI_RANK"), *nranks = std::getenv("TUTTI_NRANKS");
  o.rank = rank ? std::atoi(rank) : -1;
  o.nranks = nranks ? std::atoi(nranks) : 0;
  if (o.victim() && o.memory_mib >= 0) limit_memory(o.memory_mib);
  if (o.when == "finalize" && o.rounds == 1 << 30) o.rounds = 1;
  const auto ms = [](double s) { return std::to_string(static_cast<long>(s * 1000)) + "ms"; };
  for (const char *name : {"TUTTI_TIMEOUT", "TUTTI_CONNECT_TIMEOUT", "TUTTI_FINALIZE_TIMEOUT"})
    setenv(name, ms(o.timeout_s).c_str(), 0);
  setenv("TUTTI_INIT_TIMEOUT", ms(o.init_timeout_s).c_str(), 0);
  if (!o.shm) setenv("TUTTI_SHM_DISABLE", "1", 0);
  Report r;
  run_job(o, r);
  planted(o);
  print(o, r);
  return 0;
}
