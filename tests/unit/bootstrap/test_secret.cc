// Secrets leave nothing behind.
#include "../../support/temp_folder.h"
#include "bootstrap/crypto.h"
#include "bootstrap/launch.h"
#include "help.h"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>

using namespace help;
using namespace tutti::boot;

namespace {

// Of the mapping that holds this address, as /proc/self/smaps tells them.
std::string flags_of(const void *at) {
  std::ifstream in("/proc/self/smaps");
  const auto where = reinterpret_cast<uintptr_t>(at);
  bool inside = false;
  for (std::string l; std::getline(in, l);) {
    unsigned long from = 0, to = 0;
    if (std::sscanf(l.c_str(), "%lx-%lx ", &from, &to) == 2) inside = from <= where && where < to;
    if (inside && l.starts_with("VmFlags:")) return l + " ";
  }
  return "";
}

} // namespace

TEST_CASE("a secret is wiped when it ends, and its copies are their own") {
  const std::byte *at = nullptr;
  {
    Secret a;
    random_bytes(a);
    at = a.data();
    Secret b = a;
    CHECK(b == a);
    CHECK(b.data() != a.data());
    b[0] ^= std::byte(1);
    CHECK(!(b == a));
    b = a;
    CHECK(b == a);
  }
  CHECK(std::all_of(at, at + Secret::kBytes, [](std::byte v) { return v == std::byte(0); })); // the page stays
}

TEST_CASE("core dumps hold no secrets") {
  const auto id = Bootstrap::create_id(*config());
  REQUIRE(id.ok());
  const UniqueId parsed = decode(id.value()).value();
  const Identity comm = comm_identity(std::span(&parsed, 1)), root = root_identity(parsed);
  const std::string none = flags_of(&comm);
  if (none.empty()) return; // a kernel without flags there
  CHECK(none.find(" dd ") == std::string::npos);
  for (const std::byte *at : {parsed.secret.data(), comm.key.data(), root.key.data()})
    CHECK_MESSAGE(flags_of(at).find(" dd ") != std::string::npos, flags_of(at));
}

TEST_CASE("the file of a unique id can be read by nobody else, whatever the umask is") {
  const mode_t before = umask(0);
  for (const mode_t mask : {mode_t(0), mode_t(0277)}) {
    umask(mask);
    const support::TempFolder scratch;
    const std::string path = scratch.file("id");
    setenv("TUTTI_RANK", "0", 1), setenv("TUTTI_NRANKS", "2", 1);
    const auto launch = Bootstrap::launch_from_env(*config({{"TUTTI_COMM_ID", "file:" + path}}), soon());
    unsetenv("TUTTI_RANK"), unsetenv("TUTTI_NRANKS");
    REQUIRE_MESSAGE(launch.ok(), line(launch));
    struct stat st {};
    REQUIRE(stat(path.c_str(), &st) == 0);
    CHECK((st.st_mode & 07777) == 0600);
    release_id(launch.value().id);
  }
  umask(before);
}
