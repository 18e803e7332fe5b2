#include "../../support/temp_folder.h"
#include "base/crc32c.h"
#include "base/fd.h"
#include "base/file.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/time.h"
#include "base/types.h"
#include <cerrno>
#include <csignal>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace tutti;

TEST_CASE("an error's line has its parts in a fixed order") {
  Status s = fail(Code::remote, "rank {} left", 5).peer(5).hint("look at its log").endpoint("10.0.0.1:9").phase("connect");
  s.error().rank = 3;
  CHECK(s.error().line() == "rank 3: rank 5 left (10.0.0.1:9); look at its log");
  CHECK(fail(Code::remote, "10.0.0.1:9 left").endpoint("10.0.0.1:9").error().line() == "10.0.0.1:9 left"); // said once
  CHECK(s.error().peer == 5);
  CHECK(s.error().phase == "connect");
  CHECK(s.code() == Code::remote);
}

TEST_CASE("the CRC is that of RFC 3720, in one piece or in several, with the processor's instruction or without") {
  for (const auto crc : {crc32c, crc32c_portable}) {
    CHECK(crc(0, "123456789", 9) == 0xe3069283);
    std::vector<uint8_t> data(32, 0);
    CHECK(crc(0, data.data(), data.size()) == 0x8a9136aa);
    for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<uint8_t>(i);
    CHECK(crc(0, data.data(), data.size()) == 0x46dd794e);
    for (size_t cut = 0; cut <= data.size(); cut++)
      CHECK(crc(crc(0, data.data(), cut), data.data() + cut, data.size() - cut) == 0x46dd794e);
    CHECK(crc(0, nullptr, 0) == 0);
  }
}

TEST_CASE("an errno is kept and spelled out") {
  const Status s = fail_errno(ENOENT, "open x");
  CHECK(s.error().sys_errno == ENOENT);
  CHECK(s.error().message == "open x: No such file or directory");
}

TEST_CASE("every line of an error that the system gave says what the system said, once") {
  const Status built = fail(Code::system, "cannot listen at {}", "10.0.0.1:9").sys(EADDRNOTAVAIL).hint("is it this host's?");
  CHECK(built.error().line() == "cannot listen at 10.0.0.1:9: Cannot assign requested address; is it this host's?");
  CHECK(built.error().message == "cannot listen at 10.0.0.1:9: Cannot assign requested address");
  CHECK(fail_errno(ENOENT, "open x").error().line() == "open x: No such file or directory");
  const Status own = fail(Code::remote, "nobody answers").because(ETIMEDOUT);
  CHECK(own.error().line() == "nobody answers");
  CHECK(own.error().sys_errno == ETIMEDOUT);
}

TEST_CASE("copying a status copies its error, success stays success") {
  Status a = fail(Code::timeout, "late"), b = a;
  a.error().message = "changed";
  CHECK(b.error().message == "late");
  b = Status();
  CHECK(b.ok());
  CHECK(Status(b).ok());
}

TEST_CASE("the TRY macros hand the first error up and values through") {
  auto half = [](int n) -> Result<int> {
    if (n % 2) return fail(Code::invalid_argument, "{} is odd", n);
    return n / 2;
  };
  auto quarter = [&](int n) -> Result<int> {
    TUTTI_ASSIGN(h, half(n));
    TUTTI_ASSIGN(q, half(h));
    return q;
  };
  CHECK(*quarter(8) == 2);
  CHECK(quarter(6).status().error().message == "3 is odd");
}

TEST_CASE("a deadline that has passed says so and has no time left") {
  const Deadline past = Deadline::in(Nanos(-1)), far = Deadline::in(std::chrono::hours(1));
  CHECK(past.expired());
  CHECK(past.left().count() == 0);
  CHECK(past.left_ms() == 0);
  CHECK_FALSE(far.expired());
  CHECK(far.left_ms() > 3'500'000);
  CHECK(far.span() == std::chrono::hours(1));
}

TEST_CASE("milliseconds left are rounded up, so that poll never spins at the end") {
  CHECK(Deadline::in(std::chrono::seconds(10)).left_ms() >= 9000);
  CHECK(Deadline::in(std::chrono::microseconds(900'500)).left_ms() <= 901);
}

TEST_CASE("an owned descriptor is closed once and moves") {
  UniqueFd a(::open("/dev/null", O_RDONLY));
  const int raw = a.get();
  UniqueFd b(std::move(a));
  CHECK_FALSE(bool(a)); // NOLINT(bugprone-use-after-move): that it is empty now is what is tested
  CHECK(b.get() == raw);
  b.reset();
  CHECK(fcntl(raw, F_GETFD) == -1);
}

TEST_CASE("every type has a size and a name that leads back to it") {
  for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; t++) {
    CHECK(dtype_bytes(t) > 0);
    CHECK(dtype_from(dtype_name(t)) == t);
  }
  CHECK(dtype_bytes(TUTTI_DT_COUNT) == 0);
  CHECK(dtype_name(99) == "unknown");
  CHECK(dtype_from("float16") == TUTTI_DT_FLOAT16);
  CHECK(dtype_from("f8e4m3") == TUTTI_DT_FLOAT8E4M3);
  CHECK(dtype_from("float8e5m2") == TUTTI_DT_FLOAT8E5M2);
  CHECK_FALSE(dtype_from("quad"));
}

TEST_CASE("collectives are found by the names of all dialects") {
  for (tutti_coll c = 0; c < TUTTI_COLL_COUNT; c++) CHECK(coll_from(coll_name(c)) == c);
  CHECK(coll_from("AllReduce") == TUTTI_COLL_ALL_REDUCE);
  CHECK(coll_from("all-to-all") == TUTTI_COLL_ALL_TO_ALL);
  CHECK_FALSE(coll_from("all"));
}

TEST_CASE("blocks of a collective follow the table of the plugin header") {
  CHECK(coll_in_blocks(TUTTI_COLL_REDUCE_SCATTER, 5) == 5);
  CHECK(coll_out_blocks(TUTTI_COLL_REDUCE_SCATTER, 5) == 1);
  CHECK(coll_in_blocks(TUTTI_COLL_GATHER, 5) == 1);
  CHECK(coll_out_blocks(TUTTI_COLL_GATHER, 5) == 5);
  CHECK(coll_reduces(TUTTI_COLL_REDUCE));
  CHECK_FALSE(coll_reduces(TUTTI_COLL_ALL_GATHER));
  CHECK(coll_has_root(TUTTI_COLL_SCATTER));
  CHECK_FALSE(coll_has_root(TUTTI_COLL_BARRIER));
}

TEST_CASE("a file is replaced whole, or stays what it was, and nothing is left beside it") {
  namespace fs = std::filesystem;
  const support::TempFolder made;
  const fs::path &folder = made.path();
  const std::string path = folder / "x.json";
  const auto text = [&] {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  REQUIRE(replace_file(path, "one").ok());
  REQUIRE(replace_file(path, std::string(100'000, 'x')).ok());
  CHECK(text().size() == 100'000);
  CHECK_FALSE(replace_file(folder / "none" / "x", "y").ok());
  CHECK(replace_file(folder, "y").error().message.find("cannot write " + folder.string()) == 0);
  rlimit before{}, tight{}; // as a full disk: a write that ends in the middle
  ::getrlimit(RLIMIT_FSIZE, &before);
  tight = {10, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const Status full = replace_file(path, std::string(1000, 'y'));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(full.error().sys_errno == EFBIG);
  CHECK(text() == std::string(100'000, 'x'));
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1);
  CHECK(replace_file("/dev/full", "z").error().sys_errno == ENOSPC); // no regular file: written as it is
  CHECK(replace_file("/dev/null", "z").ok());
}

TEST_CASE("a reader that leaves a pipe is an error of who writes to it, and no signal that ends the process") {
  const auto handler = std::signal(SIGPIPE, SIG_DFL);
  const support::TempFolder folder;
  const std::string path = folder.file("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::thread leaving([&] { // once there is something in it
    char byte;
    while (::read(reader.get(), &byte, 1) != 1) std::this_thread::yield();
    reader.reset();
  });
  const Status s = replace_file(path, std::string(4 << 20, 'x')); // more than a pipe holds
  leaving.join();
  CHECK(s.error().sys_errno == EPIPE);
  sigset_t pending, blocked;
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  CHECK(sigismember(&pending, SIGPIPE) == 0);
  CHECK(sigismember(&blocked, SIGPIPE) == 0);
  std::signal(SIGPIPE, handler);
}

TEST_CASE("a forked child finds a turn free that another thread of its parent has") {
  ChildFreeMutex turn;
  hold_over_fork(*new std::mutex); // both kinds, together
  turn.lock();
  std::thread other([&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20); // ends a child that hangs
      turn.lock();
      turn.unlock();
      ::_exit(7);
    }
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 7));
    CHECK_FALSE(turn.try_lock()); // the parent's is as it was
  });
  other.join();
  turn.unlock();
}

TEST_CASE("the hash is FNV-1a") {
  CHECK(fnv1a("") == 0xcbf29ce484222325);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8c);
  CHECK(fnv1a("foobar") == 0x85944171f73967e8);
  const std::byte bytes[] = {std::byte{'a'}};
  CHECK(fnv1a(std::span(bytes)) == fnv1a("a"));
}
