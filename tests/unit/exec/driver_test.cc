// The progress thread: what it costs, whom it serves, what it leaves alone.
#include "cases.h"
#include <csignal>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Ready {
  std::shared_ptr<const Plan> plan;
  const Bound *bound;
  std::vector<int32_t> in = std::vector<int32_t>(100, 1), out = std::vector<int32_t>(100);
};
Ready ready(Engine &e, int rank) {
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = 256;
  sel.depth = 4;
  auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, 2));
  const auto bound = e.bind(plan, sel, TUTTI_DT_INT32, TUTTI_RED_SUM);
  return {plan, bound.ok() ? *bound : nullptr};
}
uint64_t enqueue(Engine &e, Ready &x) {
  const auto seq = e.enqueue(x.bound, args_of(*x.plan, x.in.data(), x.out.data(), 100, TUTTI_DT_INT32, 0, e.enqueued() + 1));
  return seq.ok() ? *seq : ~0ull;
}
bool completes_alone(const Engine &e, uint64_t seq) {
  const auto until = Deadline::in(std::chrono::seconds(10));
  while (e.completed() < seq && !until.expired()) std::this_thread::yield();
  return e.completed() >= seq;
}

// body in a forked child; its result, -1 when it did not end by itself.
int in_child(const std::function<int()> &body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(40);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Nanos cpu_time() {
  timespec t{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + Nanos(t.tv_nsec);
}

// What the thread of this name has computed; 0 when there is none.
Nanos cpu_time_of(const std::string &name) {
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(task.path() / "comm"), schedstat(task.path() / "schedstat");
    std::string its_name;
    int64_t ns = 0;
    if (std::getline(comm, its_name) && its_name == name && schedstat >> ns) return Nanos(ns);
  }
  return {};
}

// The mask of blocked signals of the thread of this name; 0 when there is none.
uint64_t blocked_signals(const std::string &name) {
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "status");
    std::string line, its_name;
    uint64_t blocked = 0;
    while (std::getline(file, line)) {
      if (line.starts_with("Name:\t")) its_name = line.substr(6);
      if (line.starts_with("SigBlk:\t")) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    if (its_name == name) return blocked;
  }
  return 0;
}

} // namespace

TEST_CASE("an operation that waits for its peer without a waiter leaves the processor alone") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
  REQUIRE(enqueue(world.engine(0), a) == 1);
  const Nanos before = cpu_time();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable never;
  never.wait_for(lock, std::chrono::milliseconds(300)); // what is measured
  CHECK(cpu_time() - before < std::chrono::milliseconds(100));
  REQUIRE(enqueue(world.engine(1), b) == 1); // and goes on when the peer calls
  CHECK(completes_alone(world.engine(0), 1));
  CHECK(completes_alone(world.engine(1), 1));
}

TEST_CASE("the progress thread rests while others wait for their operations, and serves the next that nobody waits for") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 2);
  for (const bool one_is_blocked : {false, true}) {
    Ready blocked = ready(world.engine(0, 1), 0), late = ready(world.engine(1, 1), 1);
    if (one_is_blocked) REQUIRE(enqueue(world.engine(0, 1), blocked) == 1); // its peer calls later
    const Nanos before = cpu_time_of("tutti-progress");
    const auto begin = Clock::now(), until = begin + std::chrono::milliseconds(300); // what is measured
    std::atomic<int> stop_at{-1};                                                    // both make the same calls
    world.run([&](int r) {
      Ready x = ready(world.engine(r), r);
      for (int i = 0; stop_at.load() < 0 || i < stop_at.load(); i++) {
        if (r == 0 && Clock::now() >= until && stop_at.load() < 0) stop_at = i + 1;
        const uint64_t seq = enqueue(world.engine(r), x);
        if (!world.engine(r).wait(seq).ok()) return;
      }
    });
    CHECK((cpu_time_of("tutti-progress") - before) * 4 < Clock::now() - begin);
    Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
    const uint64_t first = enqueue(world.engine(0), a), second = enqueue(world.engine(1), b);
    CHECK(completes_alone(world.engine(0), first));
    CHECK(completes_alone(world.engine(1), second));
    if (one_is_blocked) {
      REQUIRE(enqueue(world.engine(1, 1), late) == 1);
      CHECK(completes_alone(world.engine(0, 1), 1));
      CHECK(completes_alone(world.engine(1, 1), 1));
    }
  }
}

TEST_CASE("the progress thread takes no signal of the application") {
  Threads world(2);
  Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
  enqueue(world.engine(0), a);
  enqueue(world.engine(1), b);
  REQUIRE(completes_alone(world.engine(1), 1));
  const auto bit = [](int signal) { return uint64_t{1} << (signal - 1); };
  const uint64_t blocked = blocked_signals("tutti-progress");
  CHECK((blocked & bit(SIGUSR1)) != 0);
  CHECK((blocked & bit(SIGTERM)) != 0);
  CHECK((blocked & bit(SIGSEGV)) == 0);
}

#ifndef __SANITIZE_THREAD__ // which lets no child of a process with threads start one
TEST_CASE("the child of a fork has a progress thread of its own, which leaves the parent's engines alone") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
  REQUIRE(enqueue(world.engine(0), a) == 1); // the parent's thread runs
  CHECK(in_child([&] {
          Threads own(2);
          Ready x = ready(own.engine(0), 0), y = ready(own.engine(1), 1);
          const uint64_t first = enqueue(own.engine(0), x), second = enqueue(own.engine(1), y);
          if (!completes_alone(own.engine(0), first) || !completes_alone(own.engine(1), second)) return 1;
          return world.engine(0).completed() == 0 ? 0 : 2;
        }) == 0);
  REQUIRE(enqueue(world.engine(1), b) == 1);
  CHECK(completes_alone(world.engine(0), 1));
  CHECK(completes_alone(world.engine(1), 1));
}
#endif

TEST_CASE("without a thread to be had, whoever waits drives all operations") {
  const int result = in_child([] {
    Threads world(2);
    Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
    if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 77;
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 77;
    try {
      std::thread([] {}).join();
      return 77; // this system does not count
    } catch (const std::system_error &) {
    }
    const uint64_t first = enqueue(world.engine(0), a), second = enqueue(world.engine(1), b);
    return world.engine(0).wait(first).ok() && world.engine(1).wait(second).ok() && a.out[99] == 2 ? 0 : 1;
  });
  if (result == 77)
    MESSAGE("the system gives threads without a limit");
  else
    CHECK(result == 0);
}

TEST_CASE("communicators that come while the last one goes find a progress thread") {
  std::atomic<int> good{0};
  constexpr int rounds = 100;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; t++)
    threads.emplace_back([&] {
      for (int i = 0; i < rounds; i++) {
        Threads world(2);
        Ready a = ready(world.engine(0), 0), b = ready(world.engine(1), 1);
        enqueue(world.engine(0), a);
        enqueue(world.engine(1), b);
        good += completes_alone(world.engine(0), 1) && completes_alone(world.engine(1), 1);
      }
    });
  for (auto &t : threads) t.join();
  CHECK(good == 2 * rounds);
}
