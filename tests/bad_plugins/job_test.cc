// Jobs whose net is bad: every rank gets an error that names the plugin and what it did, in time, and nothing else happens.
#include "bad_files.h"
#include <array>
#include <cstdio>
#include <doctest/doctest.h>
#include <sys/wait.h>

namespace {

struct Run {
  int status = -1;
  std::string said;
};
Run job_with(const std::string &net) {
  const std::string command =
      "TUTTI_SHM_DISABLE=1 TUTTI_NET=unix TUTTI_CONNECT_TIMEOUT=5s TUTTI_PLUGIN_PATH=" + bad::folder(net) +
      " timeout 60 " TUTTI_COMMAND " perf all_reduce --ranks 2 -b 8 -e 8 -n 1 -w 0 2>&1";
  Run r;
  FILE *pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> piece;
  while (const size_t n = std::fread(piece.data(), 1, piece.size(), pipe)) r.said.append(piece.data(), n);
  const int status = ::pclose(pipe);
  r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return r;
}

} // namespace

TEST_CASE("a job runs over the net that the bad ones are made of") {
  const Run r = job_with("net_good");
  INFO(r.said);
  CHECK(r.status == 0);
}

TEST_CASE("a net that throws, or answers nonsense, is an error that names it, and no rank dies of it") {
  const std::pair<const char *, const char *> expected[] = {
      {"net_throw_device", "device_count() threw an exception: no devices today"},
      {"net_throw_connect", "connect() threw an exception: no route today"},
      {"net_throw_progress", "progress() threw an exception: no progress today"},
      {"net_garbage", "send() answered 77, which is no answer of the plugin contract"}};
  for (const auto &[net, text] : expected) {
    const Run r = job_with(net);
    const std::string which = net; // clang 14: INFO cannot capture a binding
    INFO(which, ": ", r.status, "\n", r.said);
    CHECK(r.status != 0);
    CHECK(r.status != 124); // in time
    CHECK(r.said.find(text) != std::string::npos);
    CHECK(r.said.find("net-unix") != std::string::npos);
    CHECK(r.said.find("was killed by") == std::string::npos);
  }
}

TEST_CASE("a net whose connections are never ready is an error at the deadline, which names net and peer") {
  const Run r = job_with("net_never_ready");
  INFO(r.said);
  CHECK(r.status != 0);
  CHECK(r.status != 124);
  CHECK(r.said.find("no connection with rank") != std::string::npos);
  CHECK(r.said.find("net unix") != std::string::npos);
}
