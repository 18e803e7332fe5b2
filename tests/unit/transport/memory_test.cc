// Blocks and what they count.
#include "transport/memory.h"
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace tutti;

TEST_CASE("a budget refuses what would pass its cap and names all three numbers") {
  MemoryBudget b(1000);
  CHECK(b.take(600, "one").ok());
  const Status s = b.take(500, "another");
  REQUIRE(!s.ok());
  CHECK(s.error().message.find("another needs 500 bytes, but 600 of the cap of 1000 bytes (memory.cap)") == 0);
  b.give(600);
  CHECK(b.take(1000, "all").ok());
  CHECK(b.used() == 1000);
}

TEST_CASE("two mappings of a shared block see each other's bytes, also when huge pages were asked for") {
  for (const bool huge : {false, true}) {
    constexpr uint64_t bytes = (2 << 20) + 4096;
    UniqueFd fd;
    auto mine = Block::create_shared(bytes, huge, &fd);
    REQUIRE(mine.ok());
    auto theirs = Block::map_shared(fd.get(), bytes);
    REQUIRE(theirs.ok());
    CHECK(mine->data() != theirs->data());
    CHECK(mine->data()[bytes - 1] == 0);
    mine->data()[bytes - 1] = 7;
    CHECK(theirs->data()[bytes - 1] == 7);
    CHECK(mine->bytes() >= bytes);
  }
}

TEST_CASE("a block that is smaller than announced is refused before it is touched") {
  UniqueFd fd;
  REQUIRE(Block::create_shared(4096, false, &fd).ok());
  const auto more = Block::map_shared(fd.get(), 8192);
  REQUIRE(!more.ok());
  CHECK(more.status().error().message.find("4096 bytes, 8192 were announced") != std::string::npos);
}

TEST_CASE("a block of this process lives as long as somebody holds it") {
  auto a = Block::create_local(100);
  REQUIRE(a.ok());
  const uint64_t id = a->id();
  {
    auto b = Block::open_local(id);
    REQUIRE(b.ok());
    a->reset();
    b->data()[99] = 1; // still there
    CHECK(Block::open_local(id).ok());
  }
  CHECK(!Block::open_local(id).ok());
}

TEST_CASE("shared memory without a descriptor left is an error with a hint") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    UniqueFd fd;
    const auto b = Block::create_shared(4096, false, &fd);
    ::_exit(!b.ok() && b.status().error().hint == "raise ulimit -n" ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}
