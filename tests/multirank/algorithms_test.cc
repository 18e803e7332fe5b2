// Every algorithm with every collective that it serves, short and in many slices: over threads, shared memory, sockets, and
// hosts with shared memory inside and sockets between. What an algorithm does not serve runs by another one, and must be right
// too.
#include "operations.h"
#include "text.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <nlohmann/json.hpp>

using namespace support;
namespace fs = std::filesystem;

namespace {

// Those that were built: a plugin's file is called as its algorithm. Those that need a collnet are in collnet_test.cc.
const std::vector<std::string> &algorithms() {
  static const std::vector<std::string> names = [] {
    const std::string prefix = "libtutti-algo-";
    std::vector<std::string> found;
    for (const auto &file :
         fs::directory_iterator(fs::canonical("/proc/self/exe").parent_path().parent_path() / "lib/tutti/plugins"))
      if (const std::string stem = file.path().stem().string(); stem.rfind(prefix, 0) == 0 && stem.find("collnet") == stem.npos)
        found.push_back(stem.substr(prefix.size()));
    std::sort(found.begin(), found.end());
    return found;
  }();
  return names;
}

// Less than a line for each rank, an odd number of lines, and with slots of 1 KiB many slices.
void all_short(Rank &r) {
  run_all(r, {1, 15, 250, 2049}, full());
}
void all_sliced(Rank &r) {
  run_all(r, {250, 5003}, full());
}

// Each collective runs by the algorithm, or says that it does not serve it; one at least does.
void explained(Rank &r, const std::string &algorithm) {
  bool any = false;
  std::vector<char> text(1 << 16);
  for (const char *coll :
       {"all_reduce", "reduce_scatter", "all_gather", "alltoall", "broadcast", "reduce", "gather", "scatter"}) {
    if (!EXPECT_OK(r, tuttiCommExplain(r.comm, coll, 100, tuttiFloat32, text.data(), text.size()))) return;
    const auto e = nlohmann::json::parse(text.data());
    const bool used = e["algo"] == algorithm;
    const std::string why = e["why"];
    const std::string what = std::string(coll) + " by " + algorithm + ", but by " + e["algo"].get<std::string>() + ": " + why;
    r.expect(used || has(why, "lists no algorithm for it"), what.c_str(), __FILE__, __LINE__);
    any |= used;
  }
  r.expect(any, algorithm.c_str(), __FILE__, __LINE__);
}

std::vector<std::string> env(const std::string &algorithm, std::vector<std::string> more = {}) {
  more.push_back("TUTTI_ALGO=" + algorithm);
  return more;
}

// Ranks 0 .. n - 1 on hosts: host[r] is rank r's.
int run_on_hosts(const std::vector<int> &host, const std::vector<std::string> &environment, const Body &body) {
  return run_processes(static_cast<int>(host.size()), {.env = environment, .init = false},
                       [&](Rank &r, const tuttiUniqueId &id) {
                         setenv("TUTTI_HOSTID", std::to_string(host[static_cast<size_t>(r.rank)]).c_str(), 1);
                         if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) body(r);
                       });
}

} // namespace

TEST_CASE("every algorithm is right on threads") {
  REQUIRE(!algorithms().empty());
  for (const std::string &algorithm : algorithms())
    for (const int n : {2, 3, 5, 8})
      CHECK_MESSAGE(run_threads(n,
                                [&](Rank &r) {
                                  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                                  config.algo = algorithm.c_str();
                                  Rank mine{r.rank, r.n};
                                  if (!EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &mine.comm, &config))) return;
                                  explained(mine, algorithm);
                                  all_short(mine);
                                  EXPECT_OK(mine, tuttiCommDestroy(mine.comm));
                                  r.failures += mine.failures;
                                }) == 0,
                    algorithm << " on " << n);
}
TEST_CASE("every algorithm is right over shared memory") {
  for (const std::string &algorithm : algorithms())
    CHECK_MESSAGE(run_processes(4, all_short, {.env = env(algorithm)}) == 0, algorithm);
}
TEST_CASE("every algorithm is right in many slices") {
  for (const std::string &algorithm : algorithms())
    for (const int n : {3, 4})
      CHECK_MESSAGE(run_processes(n, all_sliced, {.env = env(algorithm, {"TUTTI_SLOT_BYTES=1024"})}) == 0,
                    algorithm << " on " << n);
}
TEST_CASE("every algorithm is right over sockets") {
  for (const std::string &algorithm : algorithms())
    CHECK_MESSAGE(run_processes(3, all_short, {.env = env(algorithm, {"TUTTI_SHM_DISABLE=1"})}) == 0, algorithm);
}
TEST_CASE("every algorithm is right on two hosts with equally many ranks") {
  for (const std::string &algorithm : algorithms())
    CHECK_MESSAGE(run_on_hosts({0, 0, 1, 1}, env(algorithm), all_short) == 0, algorithm);
}
TEST_CASE("every algorithm is right on hosts with different numbers of ranks, in many slices") {
  for (const std::string &algorithm : algorithms())
    CHECK_MESSAGE(run_on_hosts({0, 1, 1, 0, 2}, env(algorithm, {"TUTTI_SLOT_BYTES=1024"}), all_sliced) == 0, algorithm);
}
