// Tuners swapped by settings alone: the same binary, other files.
#include "ranks.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace {

nlohmann::json explain(Rank &r, tuttiComm_t comm, const char *coll = "all_reduce", size_t count = 1000) {
  std::vector<char> text(1 << 17);
  if (!EXPECT_OK(r, tuttiCommExplain(comm, coll, count, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data());
}
nlohmann::json chosen(const nlohmann::json &e) {
  for (const auto &way : e["ways"])
    if (way["algo"] == e["algo"] && way["proto"] == e["proto"]) return way;
  return {};
}
bool adds_up(Rank &r, tuttiComm_t comm) {
  std::vector<float> in(1000, 1), out(1000);
  return EXPECT_OK(r, tuttiAllReduce(in.data(), out.data(), in.size(), tuttiFloat32, tuttiSum, comm, nullptr)) &&
         EXPECT_OK(r, tuttiCommSynchronize(comm)) && EXPECT(r, out[999] == static_cast<float>(r.n));
}

// A file that a variable names. Ranks run the test case again: they find the variable set, and write nothing.
struct File {
  std::string env, path;
  bool own = false;
  File(const std::string &variable, const std::string &text) {
    static int number = 0;
    if (const char *set = std::getenv(variable.c_str())) {
      path = set;
    } else {
      path = (fs::temp_directory_path() / name(number++)).string();
      std::ofstream(path) << text;
      own = true;
    }
    env = variable + "=" + path;
  }
  ~File() {
    if (own) fs::remove(path);
  }
  static std::string name(int n) { return "tutti-tuners-" + std::to_string(getpid()) + "-" + std::to_string(n) + ".toml"; }
};

const std::string kPath = "TUTTI_PLUGIN_PATH=" TUNER_DIR;

} // namespace

TEST_CASE("three tuners are loaded at once in one process, and each serves the communicators that name it") {
  CHECK(run_processes(4, {.env = {kPath}}, [](Rank &r, const tuttiUniqueId &) {
          EXPECT(r, explain(r, r.comm)["algo"] == "direct"); // the table, by default
          tuttiComm_t trees = nullptr, names = nullptr;
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.tuner = "tree-first";
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, 0, &trees, &config));
          config.tuner = "by-name";
          EXPECT_OK(r, tuttiCommSplit(r.comm, 0, 0, &names, &config));
          const auto tree = explain(r, trees), ring = explain(r, names);
          EXPECT(r, tree["algo"] == "tree" && chosen(tree)["note"] == "trees first");
          EXPECT(r, tree["why"].get<std::string>().find("tuner \"tree-first\"") == 0);
          EXPECT(r, ring["algo"] == "ring" && chosen(ring)["cost_us"] == 10.0);
          EXPECT(r, explain(r, r.comm)["algo"] == "direct");
          for (tuttiComm_t c : {trees, r.comm, names, trees}) adds_up(r, c);
          EXPECT_OK(r, tuttiCommDestroy(trees));
          EXPECT_OK(r, tuttiCommDestroy(names));
        }) == 0);
}
TEST_CASE("a tuner and its options are chosen in a file of settings, without touching the program") {
  const auto algo_with = [](const std::string &settings, const char *want) {
    const File file("TUTTI_CONFIG", settings);
    return run_processes(3, {.env = {kPath, file.env}}, [want](Rank &r, const tuttiUniqueId &) {
      EXPECT(r, explain(r, r.comm)["algo"] == want);
      adds_up(r, r.comm);
    });
  };
  CHECK(algo_with("[plugins]\ntuner = \"tree-first\"\n", "tree") == 0);
  CHECK(algo_with("[plugins]\ntuner = \"by-name\"\n", "ring") == 0);
  CHECK(algo_with("[plugins]\ntuner = \"by-name\"\n[plugin.tuner-by-name]\ncheap = \"hier\"\n", "hier") == 0);
}
TEST_CASE("a file of settings gives each communicator the tuner of its name, while the program stays as it is") {
  const File file("TUTTI_CONFIG", "[communicator.gradients]\nplugins.tuner = \"tree-first\"\n"
                                  "[communicator.experts]\nplugins.tuner = \"by-name\"\n");
  CHECK(run_processes(4, {.env = {kPath, file.env}}, [](Rank &r, const tuttiUniqueId &) {
          tuttiComm_t comms[2] = {};
          const char *const names[] = {"gradients", "experts"}, *const algos[] = {"tree", "ring"};
          for (int i = 0; i < 2; i++) {
            tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
            config.commName = names[i];
            EXPECT_OK(r, tuttiCommSplit(r.comm, 0, 0, &comms[i], &config));
          }
          for (int i = 0; i < 2; i++) {
            EXPECT(r, explain(r, comms[i])["algo"] == algos[i]);
            adds_up(r, comms[i]);
          }
          EXPECT(r, explain(r, r.comm)["algo"] == "direct");
          for (tuttiComm_t c : comms) EXPECT_OK(r, tuttiCommDestroy(c));
        }) == 0);
}
TEST_CASE("a table in a file decides, is named with its line, and yields to what it does not know") {
  const File table("TUTTI_PLUGIN_TUNER_FILE",
                   "[[rule]]\ncoll = \"all_reduce\"\nmax_bytes = \"64K\"\nsizes = [4096]\nways = [\n"
                   "  { algo = \"tree\", proto = \"ll\", channels = 2, slot = \"4K\", depth = 16, time_us = 3.5 },\n"
                   "  { algo = \"ring\", proto = \"simple\", time_us = 7.0 },\n]\n");
  CHECK(run_processes(3, {.env = {table.env}}, [&](Rank &r, const tuttiUniqueId &) {
          const auto e = explain(r, r.comm);
          EXPECT(r, e["algo"] == "tree" && e["proto"] == "ll" && e["channels"] == 2 && e["slot_bytes"] == 4096 &&
                        e["depth"] == 16);
          const auto way = chosen(e);
          EXPECT(r, way["note"] == table.path + ":1" && way["measured_us"] == 3.5);
          adds_up(r, r.comm);
          const auto longer = explain(r, r.comm, "all_reduce", 1 << 20);
          EXPECT(r, !chosen(longer).contains("note") && !chosen(longer).contains("measured_us"));
        }) == 0);
}
