// What runs: forced algorithms, settings of one communicator, explanations, the log, and ranks that must agree.
#include "folder.h"
#include "operations.h"
#include "text.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace {

nlohmann::json explain(Rank &r, const char *coll, size_t count) {
  std::vector<char> text(1 << 18);
  if (!EXPECT_OK(r, tuttiCommExplain(r.comm, coll, count, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data());
}

// Set-up that must fail; what it said.
std::string refusal(Rank &r, const tuttiUniqueId &id, const tuttiConfig_t *config = nullptr) {
  EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, config) == tuttiInvalidUsage);
  EXPECT(r, r.comm == nullptr);
  return tuttiGetLastError(nullptr);
}

} // namespace

TEST_CASE("an algorithm that there is not is refused with the list") {
  CHECK(run_processes(2, {.env = {"TUTTI_ALGO=nope"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(nullptr), {"nope", "ring", "TUTTI_ALGO"});
        }) == 0);
}
TEST_CASE("an algorithm forced on a collective that it cannot do is refused at set-up with its reason") {
  CHECK(run_processes(2, {.env = {"TUTTI_ALGO=alltoall:ring"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          says(r, refusal(r, id), {"alltoall", "ring", "direct: excluded"});
        }) == 0);
}
TEST_CASE("an algorithm asked for by name whose own option is wrong is refused although another could serve") {
  CHECK(run_processes(2, {.env = {"TUTTI_ALGO=hier,direct", "TUTTI_PLUGIN_ALGO_HIER_INNER=dirct"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        says(r, refusal(r, id), {"TUTTI_ALGO", "hier", "dirct", "TUTTI_PLUGIN_ALGO_HIER_INNER"});
                      }) == 0);
}
TEST_CASE("an algorithm that nobody asked for and whose option is wrong leaves the others to serve") {
  CHECK(run_processes(2, [](Rank &r) { run_all(r, {100}, false); }, {.env = {"TUTTI_PLUGIN_ALGO_HIER_INNER=dirct"}}) == 0);
}
TEST_CASE("a list for no collective in particular holds where it can serve, and the rest says that it does not") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        run_all(r, {100}, false);
                        EXPECT(r, explain(r, "all_reduce", 100)["algo"] == "ring");
                        const auto other = explain(r, "alltoall", 100);
                        EXPECT(r, other["algo"] == "direct");
                        says(r, other["why"].get<std::string>(), {"\"ring\"", "TUTTI_ALGO", "lists no algorithm for it"});
                      },
                      {.env = {"TUTTI_ALGO=ring"}}) == 0);
}
TEST_CASE("an algorithm excluded everywhere is not used even where it is the only one: the call is refused") {
  CHECK(run_processes(2,
                      [](Rank &r) {
                        std::vector<float> x(64), y(64);
                        EXPECT(r, tuttiAlltoAll(x.data(), y.data(), 4, tuttiFloat32, r.comm, nullptr) == tuttiInvalidUsage);
                        says(r, tuttiGetLastError(r.comm),
                             {"alltoall", "ring", "direct: excluded by \"^direct,bruck,pairwise\" (TUTTI_ALGO)"});
                        EXPECT_OK(r, tuttiAllReduce(x.data(), y.data(), 4, tuttiFloat32, tuttiSum, r.comm, nullptr));
                        EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                      },
                      {.env = {"TUTTI_ALGO=^direct,bruck,pairwise"}}) == 0);
}

TEST_CASE("an explanation holds the choice, the other ways with cost or reason, and the links") {
  CHECK(run_processes(3, [](Rank &r) {
          run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 1000});
          const auto e = explain(r, "all_reduce", 1000);
          for (const char *key : {"coll", "count", "type", "bytes", "nranks", "rank", "algo", "proto", "channels", "slot_bytes",
                                  "depth", "why", "ways", "bound", "transports", "links"})
            r.expect(e.contains(key), key, __FILE__, __LINE__);
          EXPECT(r, e["bytes"] == 4000 && e["nranks"] == 3 && e["rank"] == r.rank);
          EXPECT(r, e["ways"].size() >= 2);
          size_t chosen = 0;
          for (const auto &way : e["ways"]) {
            EXPECT(r, way.contains("place") != way.contains("refused")); // the table knows no times, and nothing is excluded
            chosen += way.contains("chosen");
          }
          EXPECT(r, chosen == 1 && e["decided_by"] == "tuner");
          EXPECT(r, e["transports"] == nlohmann::json({{"shm", 2}}));
          EXPECT(r, e["links"].size() == 2);
          char small[8];
          EXPECT(r, tuttiCommExplain(r.comm, "all_reduce", 1, tuttiFloat32, small, sizeof small) == tuttiInvalidArgument);
          says(r, tuttiGetLastError(r.comm), {"cap 8"});
          EXPECT(r, tuttiCommExplain(r.comm, "nonsense", 1, tuttiFloat32, small, sizeof small) == tuttiInvalidArgument);
          says(r, tuttiGetLastError(r.comm), {"nonsense"});
        }) == 0);
}
TEST_CASE("settings of one communicator hold for it, are named in its errors, and yield to the environment") {
  CHECK(run_processes(2, {.env = {"TUTTI_MAX_CHANNELS=2"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.algo = "nope";
          EXPECT(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config) == tuttiInvalidUsage);
          says(r, tuttiGetLastError(nullptr), {"tuttiConfig_t.algo", "nope"});
        }) == 0);
  CHECK(run_processes(2, {.env = {"TUTTI_MIN_CHANNELS=2", "TUTTI_MAX_CHANNELS=2"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
                        config.algo = "direct";
                        config.minCTAs = config.maxCTAs = 1;
                        if (!EXPECT_OK(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config))) return;
                        const auto e = explain(r, "all_reduce", 1 << 20);
                        EXPECT(r, e["algo"] == "direct" && e["channels"] == 2);
                        tuttiComm_t child = nullptr; // inherits
                        EXPECT_OK(r, tuttiCommSplit(r.comm, 0, 0, &child, nullptr));
                        Rank mine{r.rank, r.n, child};
                        EXPECT(r, explain(mine, "all_reduce", 1 << 20)["algo"] == "direct");
                        EXPECT_OK(r, tuttiCommDestroy(child));
                      }) == 0);
  Rank boss{0, 1};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  config.blocking = 7;
  EXPECT(boss, tuttiCommInitRankConfig(&boss.comm, 1, id, 0, &config) == tuttiInvalidArgument);
  says(boss, tuttiGetLastError(nullptr), {"blocking 7"});
  config = TUTTI_CONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT(boss, tuttiCommInitRankConfig(&boss.comm, 1, id, 0, &config) == tuttiInvalidArgument);
  says(boss, tuttiGetLastError(nullptr), {"TUTTI_CONFIG_INITIALIZER"});
  CHECK(boss.failures == 0);
}

TEST_CASE("different settings are an error on every rank that names the rank, the setting and both values") {
  CHECK(run_processes(3, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 1) setenv("TUTTI_MAX_CHANNELS", "3", 1);
          says(r, refusal(r, id), {"rank 1", "max_channels", "\"3\"", "\"64\""});
        }) == 0);
  CHECK(run_processes(3, {.env = {"TUTTI_ALGO=ring"}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 2) setenv("TUTTI_ALGO", "direct", 1);
          says(r, refusal(r, id), {"rank 2", "coll.algo", "\"ring\"", "\"direct\""});
        }) == 0);
}
TEST_CASE("another build of a plugin on one rank is an error on every rank that names the rank and both builds") {
  CHECK(run_processes(2, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          const TempFolder dir;
          if (r.rank == 1) {
            const fs::path from = fs::path(TUTTI_BINARY_DIR) / "lib/tutti/plugins/libtutti-algo-ring.so";
            fs::copy_file(from, dir.path() / from.filename());
            std::ofstream(dir.path() / from.filename(), std::ios::app) << "x"; // the same code in a file that differs
            setenv("TUTTI_PLUGIN_PATH", dir.path().c_str(), 1);
          }
          says(r, refusal(r, id), {"rank 1", "algorithm \"ring\"", "build", "of rank 0 it is"});
        }) == 0);
}

TEST_CASE("the start-up log names version, files, settings with their origin, plugins, and what runs") {
  const std::string name = (fs::temp_directory_path() / "tutti-test-log.%p").string();
  const std::string file = "TUTTI_DEBUG_FILE=" + name;
  CHECK(run_processes(2, {.env = {"TUTTI_DEBUG=info", "TUTTI_SHM_DISABLE=1", file}, .init = false},
                      [&](Rank &r, const tuttiUniqueId &id) {
                        const std::string mine = std::regex_replace(name, std::regex("%p"), std::to_string(getpid()));
                        if (EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) {
                          std::ostringstream log;
                          log << std::ifstream(mine).rdbuf();
                          says(r, log.str(),
                               {"tutti 0.1.0, plugin ABI", "configuration files: none",
                                "shm.disable = \"1\" (TUTTI_SHM_DISABLE)", "plugin algo-ring", "tuner table (the default)",
                                "network socket (the fastest with a device"});
                          if (r.rank == 0) {
                            says(r, log.str(), {": all_reduce to ", ", 1 channel, slots ", "; next best ", ": barrier -> "});
                            EXPECT(r, log.str().find(" %") == std::string::npos);
                          }
                        }
                        fs::remove(mine);
                      }) == 0);
}

TEST_CASE("a class of sizes runs as a file says, and who decided is told") {
  const Folder dir;
  const std::string file = (dir.path / "class.toml").string();
  if (dir.own())
    std::ofstream(file) << "[[coll.class]]\nops = \"all_reduce\"\nmin_bytes = \"64K\"\nalgo = \"ring\"\nslot_bytes = \"4K\"\n";
  CHECK(run_processes(3,
                      [](Rank &r) {
                        const auto small = explain(r, "all_reduce", 1000), large = explain(r, "all_reduce", 1 << 16);
                        EXPECT(r, small["algo"] == "direct" && small["decided_by"] == "tuner");
                        EXPECT(r, large["algo"] == "ring" && large["slot_bytes"] == 4096 && large["decided_by"] == "file");
                        says(r, large["decided_how"].get<std::string>(), {"\"all_reduce:ring\"", "class.toml:4"});
                        EXPECT(r, explain(r, "all_gather", 1 << 16)["decided_by"] == "tuner");
                        run_all(r, {1000, 1 << 16}, false);
                      },
                      {.env = {"TUTTI_CONFIG=" + file, dir.env()}}) == 0);
}
TEST_CASE("classes that differ from rank to rank are an error that shows both") {
  CHECK(run_processes(2, {.init = false}, [](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 1) setenv("TUTTI_COLL_CLASS", "ops=reduce depth=8", 1);
          says(r, refusal(r, id), {"rank 1", "coll.class", "\"ops=reduce depth=8\"", "of rank 0 it is \"\""});
        }) == 0);
}
TEST_CASE("a communicator has what files say for its name, and a split of it, too") {
  const Folder dir;
  const std::string file = (dir.path / "names.toml").string();
  if (dir.own())
    std::ofstream(file) << "[communicator.eval]\ncoll.algo = \"ring\"\n[communicator.part]\ncoll.algo = \"tree\"\n";
  CHECK(run_processes(3, {.env = {"TUTTI_CONFIG=" + file, dir.env()}, .init = false}, [](Rank &r, const tuttiUniqueId &id) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.commName = "eval";
          if (!EXPECT_OK(r, tuttiCommInitRankConfig(&r.comm, r.n, id, r.rank, &config))) return;
          EXPECT(r, explain(r, "all_reduce", 100)["algo"] == "ring");
          says(r, explain(r, "all_reduce", 100)["decided_how"].get<std::string>(), {"names.toml:2"});
          run_case(r, {Coll::all_reduce, tuttiFloat32, tuttiSum, 1000});
          for (const char *name : {"", "part"}) {
            tuttiComm_t child = nullptr;
            config = TUTTI_CONFIG_INITIALIZER;
            if (*name) config.commName = name;
            EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &child, &config));
            Rank mine{r.rank, r.n, child};
            EXPECT(r, explain(mine, "all_reduce", 100)["algo"] == (*name ? "tree" : "ring"));
            EXPECT_OK(r, tuttiCommDestroy(child));
          }
        }) == 0);
}
TEST_CASE("a tuner that a file names for some communicator must be there") {
  const Folder dir;
  const std::string file = (dir.path / "tuner.toml").string();
  if (dir.own()) std::ofstream(file) << "[communicator.eval]\nplugins.tuner = \"nobody\"\n";
  CHECK(run_processes(2, {.env = {dir.env()}, .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
          if (r.rank == 0) return; // has its configuration already
          setenv("TUTTI_CONFIG", file.c_str(), 1);
          EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) != tuttiSuccess);
          says(r, tuttiGetLastError(nullptr), {"plugins.tuner", "tuner.toml:2", "nobody"});
        }) == 0);
}
TEST_CASE("what is preferred and cannot be had is one line, and another way runs") {
  const std::string name = (fs::temp_directory_path() / "tutti-test-preferred.%p").string();
  CHECK(run_processes(2, {.env = {"TUTTI_ALGO=alltoall:ring", "TUTTI_COLL_CHOICE=preferred", "TUTTI_DEBUG_FILE=" + name}},
                      [&](Rank &r, const tuttiUniqueId &) {
                        run_all(r, {100}, false);
                        tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
                        c.algo = "ring", c.preferred = 1, c.tag = "exchange";
                        EXPECT_OK(r, tuttiCallConfigBegin(&c));
                        for (const size_t count : {100ul, 10'000ul})
                          run_case(r, {Coll::alltoall, tuttiFloat32, tuttiSum, count});
                        EXPECT_OK(r, tuttiCallConfigEnd());
                        const std::string mine = std::regex_replace(name, std::regex("%p"), std::to_string(getpid()));
                        std::ostringstream log;
                        log << std::ifstream(mine).rdbuf();
                        fs::remove(mine);
                        const std::string text = log.str();
                        if (r.rank != 0) { // rank 0 speaks for all
                          EXPECT(r, text.empty());
                          return;
                        }
                        says(r, text,
                             {"no way to run alltoall:", "runs instead (coll.choice = \"preferred\")",
                              "tuttiCallConfig_t.algo \"ring\": no way to run alltoall of up to",
                              "runs instead (tuttiCallConfig_t.preferred) [exchange]"});
                        EXPECT(r, std::count(text.begin(), text.end(), '\n') == 3); // alltoall, alltoallv, and the call's
                      }) == 0);
}
TEST_CASE("where no table decides the model does, and all ranks say the same about it") {
  CHECK(run_processes(3,
                      [](Rank &r) {
                        for (const size_t count : {2, 4096, 1 << 20}) {
                          const nlohmann::json e = explain(r, "all_reduce", count);
                          double last = 0;
                          for (const auto &way : e["ways"]) {
                            if (way.contains("refused")) continue;
                            EXPECT(r, way.value("predicted_us", 0.0) > 0);
                            EXPECT(r, way["predicted_us"] == way["cost_us"]);
                            EXPECT(r, way["cost_us"].get<double>() >= last); // best first
                            last = way["cost_us"];
                          }
                          EXPECT(r, e["ways"][0]["algo"] == e["algo"]);
                          EXPECT(r, e["ways"][0]["slot_bytes"] == e["slot_bytes"]);
                          const std::string mine = e["ways"].dump();
                          std::vector<uint64_t> all(3);
                          const uint64_t hash = std::hash<std::string>()(mine);
                          EXPECT_OK(r, tuttiAllGather(&hash, all.data(), 1, tuttiUint64, r.comm, nullptr));
                          EXPECT_OK(r, tuttiCommSynchronize(r.comm));
                          EXPECT(r, all[0] == all[1]);
                          EXPECT(r, all[1] == all[2]);
                        }
                      },
                      {.env = {"TUTTI_PLUGIN_DISABLE=tuner"}}) == 0);
}
