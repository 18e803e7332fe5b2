#include "ranks.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace support {
namespace {

constexpr const char *kCall = "TEST_CALL", *kRank = "TEST_RANK", *kRanks = "TEST_RANKS";
constexpr int kPassed = 42; // exit status of a child whose body has run and passed: 0 is that of one that never came to it
constexpr int kUp = 100, kDown = 101; // a child's ends of the pipes that carry the id

std::string test_name() {
  return doctest::getContextOptions()->currentTest->m_name;
}

// doctest's filter takes ',' as a separator; '?' matches it.
std::string filter_of(std::string name) {
  std::replace(name.begin(), name.end(), ',', '?');
  return "--test-case=" + name;
}

bool read_all(int fd, void *to, size_t n) {
  auto *p = static_cast<char *>(to);
  while (n > 0) {
    const ssize_t got = read(fd, p, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    p += got, n -= static_cast<size_t>(got);
  }
  return true;
}

[[noreturn]] void run_child(const ProcessOptions &options, const ProcessBody &body) {
  Rank r;
  r.rank = std::atoi(std::getenv(kRank));
  r.n = std::atoi(std::getenv(kRanks));
  {
    Watchdog dog(test_name() + ", rank " + std::to_string(r.rank), options.limit);
    tuttiUniqueId id{};
    if (r.rank == 0) {
      if (!EXPECT_OK(r, tuttiGetUniqueId(&id))) std::_Exit(1);
      EXPECT(r, write(kUp, &id, sizeof id) == sizeof id);
    } else if (!read_all(kDown, &id, sizeof id))
      std::_Exit(3); // rank 0 failed and says why
    close(kUp), close(kDown);
    const bool up = !options.init || EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank));
    if (up) body(r, id);
    if (r.comm) EXPECT_OK(r, tuttiCommDestroy(r.comm));
  }
  std::fflush(nullptr);
  std::_Exit(r.failures ? 1 : kPassed);
}

// This process's environment with those of `lists` in the place of what they name; borrowed from both.
std::vector<char *> environment(std::initializer_list<const std::vector<std::string> *> lists) {
  std::vector<char *> out;
  const auto same_name = [](const char *a, const std::string &b) { return std::strncmp(a, b.c_str(), b.find('=') + 1) == 0; };
  for (char **e = environ; *e; e++) {
    const bool replaced = std::any_of(lists.begin(), lists.end(), [&](const auto *list) {
      return std::any_of(list->begin(), list->end(), [&](const std::string &entry) { return same_name(*e, entry); });
    });
    if (!replaced) out.push_back(*e);
  }
  for (const auto *list : lists)
    for (const std::string &entry : *list) out.push_back(const_cast<char *>(entry.c_str()));
  out.push_back(nullptr);
  return out;
}

struct Child {
  pid_t pid = -1;
  int up = -1, down = -1;
};

Child spawn(int rank, int n, int call, const ProcessOptions &options) {
  Child c;
  int up[2], down[2];
  if (pipe2(up, O_CLOEXEC)) return c;
  if (pipe2(down, O_CLOEXEC)) {
    close(up[0]), close(up[1]);
    return c;
  }
  const std::string filter = filter_of(test_name());
  const std::vector<std::string> own = {kCall + ("=" + std::to_string(call)), kRank + ("=" + std::to_string(rank)),
                                        kRanks + ("=" + std::to_string(n))};
  const std::vector<char *> env = environment({&own, &options.env}); // the child of a process with threads must not allocate
  c.pid = fork();
  if (c.pid == 0) {
    dup2(up[1], kUp), dup2(down[0], kDown); // dup2 clears close-on-exec
    const char *const args[] = {"test-rank", filter.c_str(), nullptr};
    execve("/proc/self/exe", const_cast<char **>(args), env.data());
    std::_Exit(127);
  }
  close(up[1]), close(down[0]);
  if (c.pid < 0)
    close(up[0]), close(down[1]);
  else
    c.up = up[0], c.down = down[1];
  return c;
}

int reap(const Child &c, int rank, const ProcessOptions &options) {
  if (c.pid < 0) {
    std::fprintf(stderr, "rank %d: could not be started\n", rank);
    return 1;
  }
  int status = 0;
  while (waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kPassed) return 0;
  const bool expected = std::find(options.may_die.begin(), options.may_die.end(), rank) != options.may_die.end();
  if (expected && WIFSIGNALED(status)) return 0;
  if (WIFSIGNALED(status))
    std::fprintf(stderr, "rank %d: ended by signal %d\n", rank, WTERMSIG(status));
  else
    std::fprintf(stderr, "rank %d: exit status %d%s\n", rank, WEXITSTATUS(status),
                 WEXITSTATUS(status) == 0 ? ", before its body had ended" : "");
  return 1;
}

} // namespace

bool Rank::expect(bool ok, const char *text, const char *file, int line) {
  if (ok) return true;
  failures++;
  if (failures <= 10) std::fprintf(stderr, "rank %d of %d: %s:%d: expected %s\n", rank, n, file, line, text);
  return false;
}

bool Rank::expect_ok(tuttiResult_t r, const char *text, const char *file, int line) {
  if (r == tuttiSuccess) return true;
  const std::string thread_error = tuttiGetLastError(nullptr);
  const std::string full_text = std::string(text) + " to succeed, got " + tuttiGetErrorString(r) + ": " + thread_error;
  return expect(false, full_text.c_str(), file, line);
}

int run_threads(int n, const Body &body, std::chrono::seconds limit) {
  Watchdog dog(test_name() + ", " + std::to_string(n) + " threads", limit);
  std::vector<tuttiComm_t> comms(static_cast<size_t>(n));
  Rank boss{-1, n};
  if (!EXPECT_OK(boss, tuttiCommInitAll(comms.data(), n, nullptr))) return 1;
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < n; i++)
    threads.emplace_back([&, i] {
      Rank r{i, n, comms[static_cast<size_t>(i)]};
      body(r);
      if (r.comm) EXPECT_OK(r, tuttiCommDestroy(r.comm));
      failures += r.failures;
    });
  for (auto &t : threads) t.join();
  return failures;
}

int run_processes(int n, const ProcessOptions &options, const ProcessBody &body) {
  std::signal(SIGPIPE, SIG_IGN); // a child may be gone before it gets the id
  static std::string current;
  static int call = 0;
  if (const std::string name = test_name(); name != current) current = name, call = 0;
  const int mine = call++;
  if (const char *wanted = std::getenv(kCall)) {
    if (std::atoi(wanted) == mine) run_child(options, body);
    return 0; // an earlier call of the test case
  }
  Watchdog dog(test_name() + ", " + std::to_string(n) + " processes", options.limit + std::chrono::seconds(5));
  std::vector<Child> children;
  for (int r = 0; r < n; r++) children.push_back(spawn(r, n, mine, options));
  tuttiUniqueId id{};
  if (children[0].pid > 0 && read_all(children[0].up, &id, sizeof id))
    for (int r = 1; r < n; r++) {
      if (children[static_cast<size_t>(r)].pid < 0) continue;
      const ssize_t sent = write(children[static_cast<size_t>(r)].down, &id, sizeof id);
      (void)sent; // a child that is gone shows in its status
    }
  int failures = 0;
  for (const Child &c : children)
    if (c.pid > 0) close(c.up), close(c.down);
  for (int r = 0; r < n; r++) failures += reap(children[static_cast<size_t>(r)], r, options);
  return failures;
}

} // namespace support
