// Channels of whole jobs by the topology: the orders that were searched run and are right, files are honoured or refused on all
// ranks, and what must not depend on machines does not.
#include "operations.h"
#include "text.h"
#include <cmath>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sched.h>
#include <sstream>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace {

const std::string kTwoNodes = std::string("TUTTI_TOPO_FILE=") + TUTTI_SOURCE_DIR + "/tests/data/topology/two_nodes.xml";

// A rank runs the test case again up to its own part: files are made and looked at by the test alone.
bool in_rank() {
  return std::getenv("TEST_RANK") != nullptr;
}
// The same in the test and in its ranks.
std::string temp_file(const char *name) {
  const bool child = in_rank();
  return (fs::temp_directory_path() / ("tutti-topology-" + std::to_string(child ? getppid() : getpid()) + name)).string();
}

std::string text_of_file(const std::string &path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

// Whether cores 0 and 1, those of two_nodes.xml, are there to be bound to.
bool two_cores() {
  cpu_set_t set;
  const bool there = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_ISSET(0, &set) && CPU_ISSET(1, &set);
  if (!there) MESSAGE("skipped: cores 0 and 1 cannot be bound to");
  return there;
}

bool one_numa_node() {
  const std::string online = text_of_file("/sys/devices/system/node/online"); // "0", "0-1,3"
  const bool one = online.find_first_of("-,") == std::string::npos;
  if (!one) MESSAGE("three ranks skipped: this machine has several NUMA nodes");
  return one;
}

// Even ranks sit on NUMA node 0, odd ones on node 1.
void join(Rank &r, const tuttiUniqueId &id) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(r.rank % 2), &set);
  EXPECT(r, sched_setaffinity(0, sizeof set, &set) == 0);
  EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank));
}

nlohmann::json topology(Rank &r) {
  std::vector<char> text(1 << 16);
  if (!r.comm || !EXPECT_OK(r, tuttiCommExplain(r.comm, "all_reduce", 1, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data())["topology"];
}

using Order = std::vector<int>;

} // namespace

TEST_CASE("a job runs the rings that were searched over two NUMA nodes, says so, and every operation is right") {
  if (!two_cores()) return;
  const std::string log = temp_file(".log");
  for (const char *settings : {"TUTTI_ALGO=ring", "TUTTI_ALGO=tree,direct", "TUTTI_MIN_CHANNELS=3"})
    CHECK(run_processes(4, {.env = {kTwoNodes, settings, "TUTTI_DEBUG=info", "TUTTI_DEBUG_FILE=" + log + ".%p"}, .init = false},
                        [&](Rank &r, const tuttiUniqueId &id) {
                          join(r, id);
                          const auto t = topology(r);
                          EXPECT(r, t["rings"][0] == Order({0, 2, 1, 3}));
                          EXPECT(r, t["reordering"] == "ring order: 0 1 2 3 -> 0 2 1 3");
                          EXPECT(r, t["standard_order"] == false);
                          EXPECT(r, t["why"].size() >= 2);
                          run_all(r, {3, 30'001}, false);
                          const std::string mine = log + "." + std::to_string(getpid());
                          if (r.rank == 0)
                            says(r, text_of_file(mine),
                                 {"ring order: 0 1 2 3 -> 0 2 1 3", "channels: 4 ranks on 1 hosts", "channel 0: ring 0 2 1 3",
                                  "this host was described in"});
                          fs::remove(mine);
                        }) == 0);
}

TEST_CASE("one host with one NUMA node, and two ranks of a host, search nothing and say why") {
  CHECK(run_processes(2, [](Rank &r) {
          const auto t = topology(r);
          EXPECT(r, t["channels"] == 1);
          EXPECT(r, t["why"] == std::vector<std::string>{"two ranks of one host have one order"});
          EXPECT(r, !t.contains("rings"));
        }) == 0);
  if (!one_numa_node()) return;
  CHECK(run_processes(3, [](Rank &r) {
          const auto t = topology(r);
          EXPECT(r, t["channels"] == 1);
          EXPECT(r, t["why"] ==
                        std::vector<std::string>{"all ranks are on one host with one NUMA node, equally near to each other"});
          EXPECT(r, !t.contains("rings"));
        }) == 0);
}

TEST_CASE("a topology file that is wrong is an error on all ranks that names its setting, file and line") {
  const std::string bad = temp_file(".xml");
  if (!in_rank()) std::ofstream(bad) << "<system version=\"1\">\n  <cpu numaid=\"x\" />\n</system>\n";
  CHECK(run_processes(3, {.env = {"NCCL_TOPO_FILE=" + bad}, .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
          EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(nullptr), {"NCCL_TOPO_FILE", (bad + ":2").c_str(), "numaid=\"x\""});
        }) == 0);
  CHECK(run_processes(2, {.env = {"TUTTI_TOPO_FILE=/nowhere/to/be/found.xml"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
                        says(r, tuttiGetLastError(nullptr), {"/nowhere/to/be/found.xml"});
                      }) == 0);
  if (!in_rank()) fs::remove(bad);
}

TEST_CASE("hosts of different kinds are described each by its lowest rank, and a wrong file of one is every rank's error") {
  const auto far_away = [](Rank &r, const char *file) { // ranks 2 and 3 are on a host of their own
    if (r.rank < 2) return;
    setenv("TUTTI_HOSTID", "another", 1);
    setenv("TUTTI_TOPO_FILE", file, 1);
  };
  CHECK(run_processes(4, {.init = false}, [&](Rank &r, const tuttiUniqueId &id) {
          far_away(r, kTwoNodes.c_str() + kTwoNodes.find('=') + 1);
          if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
          const auto t = topology(r);
          EXPECT(r, t["hosts"] == 2);
          EXPECT(r, t["channels"].get<size_t>() == t["rings"].size());
          says(r, t["why"][0], {"4 ranks on 2 hosts of 2 kinds"});
          run_all(r, {1000, 30'001}, false);
        }) == 0);
  CHECK(run_processes(4, {.init = false}, [&](Rank &r, const tuttiUniqueId &id) {
          far_away(r, "/nowhere/host.xml");
          EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(nullptr), {"TUTTI_TOPO_FILE", "/nowhere/host.xml"});
        }) == 0);
}

TEST_CASE("a job writes the host's description and its channels, and takes channels from a file") {
  if (!two_cores()) return;
  const std::string host = temp_file("-host.xml"), graph = temp_file("-graph.xml"), given = temp_file("-given.xml");
  CHECK(run_processes(4, {.env = {kTwoNodes, "TUTTI_TOPO_DUMP_FILE=" + host, "NCCL_GRAPH_DUMP_FILE=" + graph}, .init = false},
                      join) == 0);
  if (!in_rank()) CHECK(text_of_file(host).find("numaid=\"1\" affinity=\"00000002\"") != std::string::npos);
  std::string text = text_of_file(graph);
  if (!in_rank())
    CHECK(std::regex_search(text, std::regex("pattern=\"4\"[^>]*>\\s*<channel>\\s*<gpu dev=\"0\" />\\s*<gpu dev=\"1\" />")));
  // The other way around.
  text =
      std::regex_replace(text, std::regex("<gpu dev=\"0\" />(\\s*)<gpu dev=\"1\" />"), "<gpu dev=\"1\" />$1<gpu dev=\"0\" />");
  if (!in_rank()) std::ofstream(given) << text;
  CHECK(run_processes(4, {.env = {kTwoNodes, "TUTTI_GRAPH_FILE=" + given, "TUTTI_ALGO=ring,direct"}, .init = false},
                      [&](Rank &r, const tuttiUniqueId &id) {
                        join(r, id);
                        const auto t = topology(r);
                        EXPECT(r, t["rings"][0] == Order({1, 3, 0, 2}));
                        says(r, t["why"].back(), {given.c_str()});
                        run_all(r, {1000}, false);
                      }) == 0);
  if (!in_rank())
    std::ofstream(given) << "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" typeintra=\"SYS\" speedintra=\"1\">\n"
                         << "<channel><gpu dev=\"0\" /><gpu dev=\"5\" /></channel></graph></graphs>\n";
  CHECK(
      run_processes(4, {.env = {kTwoNodes, "TUTTI_GRAPH_FILE=" + given}, .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
        EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
        says(r, tuttiGetLastError(nullptr), {given.c_str(), "channel 0", "visits 0 5", "0 1"});
      }) == 0);
  for (const std::string &file : {host, graph, given})
    if (!in_rank()) fs::remove(file);
}

TEST_CASE("what is deterministic keeps the standard order of ranks and the bits of sums, whatever the machines are") {
  if (!two_cores()) return;
  for (const char *mode : {"run", "size"}) {
    std::vector<std::string> sums;
    for (const bool described : {false, true}) {
      const std::string out = temp_file("-sums");
      std::vector<std::string> env{std::string("TUTTI_DETERMINISTIC=") + mode};
      if (mode == std::string("run")) env.emplace_back("TUTTI_ALGO=ring,direct"); // size has no use for rings
      if (described) env.push_back(kTwoNodes);
      CHECK(run_processes(4, {.env = env, .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
              join(r, id);
              const auto t = topology(r);
              if (t.contains("rings")) EXPECT(r, t["standard_order"] == true);
              std::vector<float> x(100'000);
              for (size_t i = 0; i < x.size(); i++) // of all magnitudes: another order shows
                x[i] = std::ldexp(1.0f + static_cast<float>((i * 7 + static_cast<size_t>(r.rank) * 13) % 97) / 97,
                                  (r.rank * 5 + static_cast<int>(i)) % 23);
              for (const size_t count : {size_t{7}, size_t{4000}, x.size()})
                EXPECT_OK(r, tuttiAllReduce(x.data(), x.data(), count, tuttiFloat32, tuttiSum, r.comm, nullptr));
              EXPECT_OK(r, tuttiCommSynchronize(r.comm));
              if (r.rank == 0)
                std::ofstream(out).write(reinterpret_cast<const char *>(x.data()), static_cast<std::streamsize>(x.size() * 4));
            }) == 0);
      if (in_rank()) continue;
      sums.push_back(text_of_file(out));
      fs::remove(out);
    }
    if (in_rank()) continue;
    CHECK(sums[0].size() == 400'000);
    CHECK(sums[0] == sums[1]);
  }
}
