#include "log/log.h"
#include <algorithm>
#include <atomic>
#include <climits>
#include <csignal>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace tutti::log;
namespace fs = std::filesystem;

namespace {

// Logs into a file of its own for one test.
struct LogFile {
  fs::path dir = fs::temp_directory_path() / fmt::format("tutti-log-{}", getpid());
  fs::path path = dir / "out.log";
  LogFile() { fs::create_directories(dir); }
  ~LogFile() {
    configure({});
    fs::remove_all(dir);
  }
  void open(Level level, uint32_t subsys = ~0u, std::string timestamp = "") {
    Settings s{.level = level, .subsys = subsys, .file = path.string(), .timestamp = std::move(timestamp)};
    configure(s);
  }
  std::vector<std::string> lines() const {
    std::ifstream in(path);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
};

} // namespace

TEST_CASE("a line carries host, process, rank, level and text") {
  LogFile file;
  file.open(Level::info);
  {
    ScopedRank rank(3);
    info(Subsys::init, "ready after {} ms", 12);
    {
      ScopedRank inner(4);
      warn(Subsys::init, "x");
    }
  }
  error(Subsys::net, "gone");
  const auto lines = file.lines();
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].ends_with(fmt::format(":{} rank 3 info: ready after 12 ms", getpid())));
  CHECK(lines[1].ends_with(" rank 4 warn: x"));
  CHECK(lines[2].ends_with(fmt::format(":{} error: gone", getpid())));
}

namespace {

// Standard error is a pipe for one test; nobody reads it unless the test does.
class FullPipe {
public:
  FullPipe() : before_(::dup(STDERR_FILENO)) {
    REQUIRE(::pipe2(ends_, O_CLOEXEC) == 0);
    (void)::fcntl(ends_[1], F_SETPIPE_SZ, 4096);
    ::dup2(ends_[1], STDERR_FILENO);
    ::close(ends_[1]);
  }
  ~FullPipe() {
    configure({});
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    if (ends_[0] >= 0) ::close(ends_[0]);
  }
  std::string read() {
    char buffer[8192];
    const ssize_t n = ::read(ends_[0], buffer, sizeof buffer);
    return {buffer, static_cast<size_t>(std::max<ssize_t>(0, n))};
  }
  void close() { ::close(std::exchange(ends_[0], -1)); }

private:
  int ends_[2] = {-1, -1};
  const int before_;
};

void patient_for(std::chrono::milliseconds patience) {
  Settings s;
  s.level = Level::info;
  s.timestamp = "";
  s.patience = patience;
  configure(s);
}

} // namespace

TEST_CASE("a log that nobody reads holds nobody up, and tells of lines that are lost once somebody does") {
  FullPipe pipe;
  patient_for(std::chrono::milliseconds(0));
  ::alarm(60); // a write that waits ends the test
  for (int i = 0; i < 1000; i++) info(Subsys::init, "line {} of {}", i, std::string(100, 'x'));
  const std::string first = pipe.read();
  CHECK(first.find("line 0 of ") != first.npos);
  CHECK(first.find("line 999 of ") == first.npos);
  info(Subsys::init, "afterwards");
  const std::string later = pipe.read();
  CHECK(later.find("info: afterwards (") != later.npos);
  CHECK(later.find(" lines before it are lost: nobody read the log)\n") != later.npos);
  CHECK(::fcntl(STDERR_FILENO, F_GETFL) == O_WRONLY); // it is the application's too, and blocks for it as before
  ::alarm(0);
}

TEST_CASE("a line waits for a reader who is only slow") {
  FullPipe pipe;
  patient_for(std::chrono::minutes(1));
  std::thread writer([] {
    for (int i = 0; i < 300; i++) info(Subsys::init, "line {} of {}", i, std::string(100, 'x'));
  });
  std::string all;
  while (all.find("line 299 of ") == all.npos) all += pipe.read();
  writer.join();
  CHECK(std::count(all.begin(), all.end(), '\n') >= 299);
  CHECK(all.find("lost") == all.npos);
}

TEST_CASE("a reader who has gone ends no process") {
  FullPipe pipe;
  patient_for(std::chrono::milliseconds(0));
  pipe.close();
  info(Subsys::init, "nobody hears this");
  sigset_t pending;
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGPIPE) == 0);
}

TEST_CASE("a named pipe that nobody reads is said to be none, and is not waited for") {
  LogFile file;
  FullPipe pipe;
  REQUIRE(::mkfifo(file.path.c_str(), 0600) == 0);
  file.open(Level::info);
  const std::string said = pipe.read();
  CHECK(said.find("warn: cannot write the log to ") != said.npos);
  CHECK(said.find("; it goes to stderr") != said.npos);
}

TEST_CASE("a child forked while other threads log can log") {
  LogFile file;
  file.open(Level::info);
  std::atomic<bool> stop = false;
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; i++)
    writers.emplace_back([&] {
      while (!stop) info(Subsys::init, "busy");
    });
  for (int i = 0; i < 50; i++) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      alarm(20); // ends a child that hangs
      warn(Subsys::init, "from the child");
      _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    if (status != 0) break;
  }
  stop = true;
  for (auto &t : writers) t.join();
}

TEST_CASE("programs that this process starts do not get its log file") {
  LogFile file;
  file.open(Level::info);
  info(Subsys::init, "open");
  int found = 0;
  for (int fd = 0; fd < 1024; fd++) {
    char to[PATH_MAX] = "";
    const ssize_t n = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), to, sizeof to - 1);
    if (n < 0 || file.path != to) continue;
    found++;
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(found == 1);
}

TEST_CASE("levels filter, and subsystems filter only what is less than a warning") {
  LogFile file;
  file.open(Level::info, static_cast<uint32_t>(Subsys::net));
  CHECK(enabled(Level::info, Subsys::net));
  CHECK_FALSE(enabled(Level::info, Subsys::init));
  CHECK_FALSE(enabled(Level::debug, Subsys::net));
  CHECK(enabled(Level::warn, Subsys::init));
  file.open(Level::off);
  CHECK_FALSE(enabled(Level::error, Subsys::init));
}

TEST_CASE("text from outside cannot forge a second line") {
  LogFile file;
  file.open(Level::warn);
  warn(Subsys::net, "peer says {}", "hi\nhost:1 error: fake\x1b[2J");
  warn(Subsys::net, "{}", std::string(100'000, 'a'));
  const auto lines = file.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find('\x1b') == std::string::npos);
  CHECK(lines[1].size() < 9000);
}

TEST_CASE("a repeated condition is written once per key, from any number of threads") {
  LogFile file;
  file.open(Level::warn);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([] {
      for (int n = 0; n < 100; n++) write_once(Level::warn, Subsys::net, "scan", "refused");
    });
  for (auto &t : threads) t.join();
  write_once(Level::warn, Subsys::net, "scan 2", "refused again");
  CHECK(file.lines().size() == 2);
}

TEST_CASE("a flood of different keys ends with one line that says so") {
  LogFile file;
  file.open(Level::warn);
  for (int i = 0; i < 6000; i++) write_once(Level::warn, Subsys::net, fmt::format("flood {}", i), "refused");
  const auto lines = file.lines();
  CHECK(lines.size() <= 4097);
  REQUIRE(!lines.empty());
  CHECK(lines.back().find("further ones are not shown") != std::string::npos);
}

TEST_CASE("a pattern names host and process") {
  CHECK(expand_file("/x/%p.%%.log") == fmt::format("/x/{}.%.log", getpid()));
  CHECK(expand_file("%h").find('%') == std::string::npos);
  CHECK(expand_file("%q%") == "%q%");
  const std::pair<char, std::string> more[] = {{'r', "3"}, {'p', "mine"}};
  CHECK(expand_file("%r-%%r-%p-%", more) == "3-%r-mine-%");
}

TEST_CASE("a file that cannot be written leaves the log on stderr and throws nothing") {
  Settings s;
  s.file = "/proc/no/such/place.log";
  s.level = Level::off; // quiet: the notice itself is filtered
  CHECK_NOTHROW(configure(s));
  CHECK_NOTHROW(write(Level::trace, Subsys::init, ""));
  configure({});
}

TEST_CASE("time stamps follow strftime and can have digits of the second") {
  const auto t = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'123));
  CHECK(format_time("%3f", t) == "123");
  CHECK(format_time("%9f", t) == "123000000");
  CHECK(format_time("%%3f", t) == "%3f");
  CHECK(format_time("", t).empty());
  CHECK(format_time("%Y", t) == "2023");
}

TEST_CASE("subsystem names are found in any case") {
  CHECK(subsys_bit("net") == static_cast<uint32_t>(Subsys::net));
  CHECK(subsys_bit("ALL") == ~0u);
  CHECK(subsys_bit("NVLS").has_value());
  CHECK_FALSE(subsys_bit("NETS").has_value());
}
