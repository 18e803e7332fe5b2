// What operators meet: a log that nobody reads, limits of the system, paths that are somebody else's, files with mistakes in
// them.
#include "admin.h"
#include "members.h"
#include "raw.h"
#include "work.h"
#include <atomic>
#include <csignal>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace collnet;
using namespace tutti::aggd;

namespace {

// A group of two that comes to be and leaves.
bool serves(const Daemon &daemon, const Folder &folder) {
  const Token token = any_token();
  Raw a(daemon), b(daemon);
  const Key key = key_of(folder);
  return a.join(join_of(token, 0, 2), key) && b.join(join_of(token, 1, 2), key) && a.started() && b.started();
}

std::string refusal(const Daemon &daemon, const Folder &folder) {
  Raw a(daemon);
  std::vector<uint8_t> body;
  if (!a.join(join_of(any_token(), 0, 2), key_of(folder))) return "no join";
  const auto h = a.frame(&body);
  return h && h->kind == Kind::error ? read_fault(body).value_or(Fault{}).text : "";
}

void end(Daemon &daemon) {
  daemon.signal(SIGTERM);
  REQUIRE(daemon.wait(milliseconds(10'000)) == 0);
}

} // namespace

TEST_CASE("a daemon whose log nobody reads serves on, answers, and ends when it is told to") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  end(daemon);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  (void)::fcntl(ends[1], F_SETPIPE_SZ, 4096);
  daemon.restart([&] { ::dup2(ends[1], 2); });
  ::close(ends[1]);
  for (int i = 0; i < 80; i++) { // two lines of the log each, until the log says only one a second
    REQUIRE(serves(daemon, folder));
    (void)refusal(daemon, folder);
  }
  CHECK_FALSE(daemon.status().is_null());
  SUBCASE("and a reader who goes does not end it") {
    ::close(std::exchange(ends[0], -1));
    CHECK(serves(daemon, folder));
  }
  end(daemon);
  if (ends[0] >= 0) ::close(ends[0]);
}

TEST_CASE("limits of the system are refusals that name them, and end no daemon") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  end(daemon);
  const auto limit = [](int what, rlim_t most) {
    return [=] {
      for (int fd = 3; fd < 256; fd++) ::close(fd); // what the test was started with counts, too
      const rlimit both{most, most};
      ::setrlimit(what, &both);
    };
  };
  daemon.restart(limit(RLIMIT_FSIZE, 0)); // not even a line of its log
  std::string why = refusal(daemon, folder);
  INFO(why);
  CHECK(why.find("cannot make a ring of 65536 bytes: File too large") != std::string::npos);
  CHECK_FALSE(daemon.status().is_null());
  end(daemon);
  daemon.restart(limit(RLIMIT_NOFILE, 9));
  Raw another(daemon);
  why = refusal(daemon, folder);
  INFO(why);
  CHECK(why.find("cannot make a ring of 65536 bytes: Too many open files") != std::string::npos);
  end(daemon);
}

TEST_CASE("a second daemon with the same file, or only the same admin, ends, and the first one's socket stays") {
  Folder folder;
  Daemon first(folder, "aggd");
  end(first);
  first.restart(); // its file names its port now
  CHECK(first.command({}).find("Address already in use; is another daemon running there?") != std::string::npos);
  CHECK_FALSE(first.status().is_null());
  const std::string socket = folder.file("aggd.sock");
  std::ofstream(folder.file("other.toml")) << "[aggd]\nlisten = [\"127.0.0.1:0\"]\nkey_file = \"" << folder.key()
                                           << "\"\nadmin = \"" << socket << "\"\n";
  CHECK(Daemon::output_of("--config " + folder.file("other.toml")).find("a running daemon answers there") != std::string::npos);
  CHECK_FALSE(first.status().is_null());
  first.signal(SIGKILL); // and leaves its socket behind, for the next one
  first.wait(milliseconds(5000));
  CHECK(std::filesystem::exists(socket));
  first.restart();
  CHECK_FALSE(first.status().is_null());
  end(first);
  CHECK_FALSE(std::filesystem::exists(socket));
}

TEST_CASE("a file that admin names by mistake stays as it is, and --check says so") {
  Folder folder;
  const std::string precious = folder.file("precious");
  std::ofstream(precious) << "years of work";
  AdminSocket admin;
  CHECK_FALSE(AdminSocket::check(precious).ok());
  const auto made = admin.listen(precious);
  REQUIRE_FALSE(made.ok());
  CHECK(made.status().error().line().find("is there and is no socket; it stays as it is") != std::string::npos);
  CHECK(std::filesystem::file_size(precious) == 13);
  CHECK(AdminSocket::check(folder.file("new.sock")).ok());
  const auto nowhere = AdminSocket::check(folder.file("no/such/folder.sock"));
  REQUIRE_FALSE(nowhere.ok());
  CHECK(nowhere.error().line().find("No such file or directory") != std::string::npos);
}

TEST_CASE("a socket that was put in place of one's own is not removed") {
  Folder folder;
  const std::string path = folder.file("admin.sock");
  {
    AdminSocket mine;
    REQUIRE(mine.listen(path).ok());
    std::filesystem::remove(path);
    std::ofstream(path) << "another's";
  }
  CHECK(std::filesystem::exists(path));
}

TEST_CASE("status gives up on a daemon that is stopped, even when its backlog is full") {
  Folder folder;
  Daemon daemon(folder, "aggd");
  daemon.signal(SIGSTOP);
  std::vector<std::thread> others;
  for (int i = 0; i < 22; i++) others.emplace_back([&] { (void)ask_status(folder.file("aggd.sock"), milliseconds(1500)); });
  std::this_thread::sleep_for(milliseconds(300));
  const auto asked = ask_status(folder.file("aggd.sock"), milliseconds(500));
  REQUIRE_FALSE(asked.ok());
  CHECK(asked.status().error().line().find("it is stopped, or overloaded") != std::string::npos);
  for (std::thread &t : others) t.join();
  daemon.signal(SIGCONT);
}

TEST_CASE("a refused member that floods the daemon is cut off in time, and others are served meanwhile") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[limits]\nmembers = 2\n[timeouts]\nlinger = \"200ms\"\n");
  Raw flood(daemon);
  REQUIRE(flood.join(join_of(any_token(), 0, 3), key_of(folder)));
  std::vector<std::thread> writers; // as many as the daemon never finds its buffer empty
  std::atomic<bool> stop = false;
  std::atomic<int> cut = 0;
  for (int i = 0; i < 3; i++)
    writers.emplace_back([&] {
      const std::vector<char> junk(1 << 20);
      while (!stop && ::send(flood.fd(), junk.data(), junk.size(), MSG_NOSIGNAL) > 0) {
      }
      cut += !stop;
    });
  for (const auto until = collnet::Clock::now() + std::chrono::seconds(20); cut < 3 && collnet::Clock::now() < until;) {
    CHECK(serves(daemon, folder));
    std::this_thread::sleep_for(milliseconds(20));
  }
  CHECK(cut == 3);
  stop = true;
  ::shutdown(flood.fd(), SHUT_RDWR);
  for (std::thread &t : writers) t.join();
}

TEST_CASE("a member that goes on sending when its group has ended is cut off, too") {
  Folder folder;
  Daemon daemon(folder, "aggd", "[timeouts]\nlinger = \"200ms\"\n");
  const Token token = any_token();
  Raw a(daemon), flood(daemon);
  REQUIRE((a.join(join_of(token, 0, 2), key_of(folder)) && flood.join(join_of(token, 1, 2), key_of(folder))));
  REQUIRE((a.started() && flood.started()));
  a.close();
  std::vector<std::thread> writers;
  std::atomic<int> cut = 0;
  for (int i = 0; i < 3; i++)
    writers.emplace_back([&] {
      const std::vector<char> junk(1 << 20);
      while (::send(flood.fd(), junk.data(), junk.size(), MSG_NOSIGNAL) > 0) {
      }
      cut++;
    });
  for (const auto until = collnet::Clock::now() + std::chrono::seconds(20); cut < 3 && collnet::Clock::now() < until;)
    std::this_thread::sleep_for(milliseconds(20));
  CHECK(cut == 3);
  ::shutdown(flood.fd(), SHUT_RDWR);
  for (std::thread &t : writers) t.join();
}
