// tests/perf/model_report.cc: what the cost model predicts for every way, and what it takes.
// model_report RANKS OP SIZES ROUNDS TARGET-MS [SKIPPED]: OP as the perf tests name it, SIZES in bytes of the larger buffer,
// SKIPPED algorithms and protocols, all separated by commas. Forks the ranks itself. The tuner is off, so that the model alone
// proposes slots and rates ways; every way is a communicator of its own. Rounds visit all ways in turn, so that what the
// machine does in the meantime hits all alike; a way's time is the lower quartile. One line of JSON per way and size, and a
// last one that says how often the model picked well.
#include "bench_loop.h"
#include "tutti/tutti.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/wait.h>
#include <vector>

namespace {

constexpr size_t kExplanation = 1 << 20;
constexpr double kGood = 1.25; // of the best way's time

struct Operation {
  const char *name;
  bool rooted, divided; // `count` of the call is a rank's part
  tuttiResult_t (*issue)(const float *in, float *out, size_t count, int rank, size_t ranks, tuttiComm_t comm);
};
// clang-format off
const Operation kOperations[] = {
    {"all_reduce", false, false, [](const float *in, float *out, size_t n, int, size_t, tuttiComm_t c) { return tuttiAllReduce(in, out, n, tuttiFloat32, tuttiSum, c, nullptr); }},
    {"broadcast", true, false, [](const float *in, float *out, size_t n, int r, size_t, tuttiComm_t c) { return tuttiBroadcast(r == 0 ? in : nullptr, out, n, tuttiFloat32, 0, c, nullptr); }},
    {"reduce", true, false, [](const float *in, float *out, size_t n, int, size_t, tuttiComm_t c) { return tuttiReduce(in, out, n, tuttiFloat32, tuttiSum, 0, c, nullptr); }},
    {"all_gather", false, true, [](const float *in, float *out, size_t n, int, size_t k, tuttiComm_t c) { return tuttiAllGather(in, out, n / k, tuttiFloat32, c, nullptr); }},
    {"reduce_scatter", false, true, [](const float *in, float *out, size_t n, int, size_t k, tuttiComm_t c) { return tuttiReduceScatter(in, out, n / k, tuttiFloat32, tuttiSum, c, nullptr); }},
    {"alltoall", false, true, [](const float *in, float *out, size_t n, int, size_t k, tuttiComm_t c) { return tuttiAlltoAll(in, out, n / k, tuttiFloat32, c, nullptr); }},
};
// clang-format on

struct Way {
  std::string algo, proto;
  tuttiComm_t comm = nullptr;
  nlohmann::json predicted; // of the present size
  std::vector<double> times;
  double typical() {
    std::sort(times.begin(), times.end());
    return times[times.size() / 4];
  }
};

struct Run {
  bench b;
  const Operation *op;
  tuttiComm_t world;
  float *in, *out;
  size_t count;
};

bool failed(tuttiResult_t r, tuttiComm_t comm, const char *doing) {
  if (r == tuttiSuccess) return false;
  fprintf(stderr, "%s: %s\n", doing, tuttiGetLastError(comm));
  return true;
}

bool operate(Run &run, tuttiComm_t comm) {
  return run.op->issue(run.in, run.out, run.count, run.b.rank, static_cast<size_t>(run.b.ranks), comm) == tuttiSuccess &&
         tuttiCommSynchronize(comm) == tuttiSuccess;
}

// Writing the input is taken off by the caller. Operations with a root are timed one by one from a barrier on, or the root
// would run ahead, and without the writing.
double microseconds(Run &run, tuttiComm_t comm, int n) {
  double sum = 0;
  bench_barrier(&run.b);
  const double t0 = bench_now();
  for (int i = 0; i < n; i++) {
    bench_write(run.in, run.count, static_cast<float>(i));
    if (run.op->rooted) bench_barrier(&run.b);
    const double begin = run.op->rooted ? bench_now() : 0;
    if (comm && !operate(run, comm)) _exit(1);
    if (run.op->rooted) sum += bench_now() - begin;
  }
  return bench_max(&run.b, run.op->rooted ? sum : bench_now() - t0) / n;
}

nlohmann::json explain(const Run &run, tuttiComm_t comm, std::string *text) {
  text->resize(kExplanation);
  const size_t ranks = static_cast<size_t>(run.b.ranks);
  if (failed(tuttiCommExplain(comm, run.op->name, run.op->divided ? run.count / ranks : run.count, tuttiFloat32, text->data(),
                              text->size()),
             comm, "explain"))
    _exit(1);
  return nlohmann::json::parse(text->c_str());
}

bool listed(const std::string &list, const std::string &name) {
  return ("," + list + ",").find("," + name + ",") != std::string::npos;
}

std::vector<Way> open_ways(Run &run, const std::string &skipped) {
  std::string text;
  run.count = 4096;
  std::vector<Way> ways;
  const nlohmann::json all = explain(run, run.world, &text);
  for (const auto &w : all["ways"]) {
    if (w.contains("refused") || listed(skipped, w["algo"]) || listed(skipped, w["proto"])) continue;
    Way &way = ways.emplace_back();
    way.algo = w["algo"], way.proto = w["proto"];
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algo = way.algo.c_str(), config.proto = way.proto.c_str();
    if (failed(tuttiCommSplit(run.world, 0, run.b.rank, &way.comm, &config), run.world, "a communicator for one way")) _exit(1);
  }
  return ways;
}

void measure(Run &run, std::vector<Way> &ways, int rounds, double target_ms) {
  const double write = microseconds(run, nullptr, 3);
  std::vector<int> repeats;
  for (Way &w : ways) {
    w.times.clear();
    int n = 1;
    double us = microseconds(run, w.comm, n); // the first binds
    for (us = microseconds(run, w.comm, n); us * n < target_ms * 300 && n < 20000; us = microseconds(run, w.comm, n)) n *= 2;
    repeats.push_back(std::clamp(static_cast<int>(target_ms * 1e3 / (us + 1e-3)), 1, 20000));
  }
  for (int r = 0; r < rounds; r++)
    for (size_t i = 0; i < ways.size(); i++) {
      const double base = run.count * 4 < 1 << 16 ? microseconds(run, nullptr, repeats[i]) : write;
      ways[i].times.push_back(std::max(1e-3, microseconds(run, ways[i].comm, repeats[i]) - base));
    }
}

// Of ways, those that were measured at this size.
bool report(Run &run, std::vector<Way> &ways, size_t bytes) {
  std::string text;
  for (Way &w : ways) w.predicted = explain(run, w.comm, &text)["ways"][0];
  if (run.b.rank != 0) return true;
  const auto cost = [](const Way &w) { return w.predicted.value("cost_us", 0.0); };
  auto pick = std::min_element(ways.begin(), ways.end(), [&](const Way &a, const Way &b) { return cost(a) < cost(b); });
  auto best = std::min_element(ways.begin(), ways.end(), [](Way &a, Way &b) { return a.typical() < b.typical(); });
  for (Way &w : ways)
    printf("{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"algo\": \"%s\", \"proto\": \"%s\", \"slot\": %d, \"depth\": %d, "
           "\"predicted\": %.2f, \"measured\": %.2f, \"pick\": %s, \"best\": %s}\n",
           run.op->name, run.b.ranks, bytes, w.algo.c_str(), w.proto.c_str(), w.predicted.value("slot_bytes", 0),
           w.predicted.value("depth", 0), cost(w), w.typical(), &w == &*pick ? "true" : "false",
           &w == &*best ? "true" : "false");
  return pick->typical() <= best->typical() * kGood;
}

int rank_main(const char *meet, int rank, int ranks, char **argv) {
  Run run{};
  if (bench_open(&run.b, meet, rank, ranks)) return 2;
  for (const Operation &o : kOperations)
    if (strcmp(o.name, argv[2]) == 0) run.op = &o;
  if (!run.op) return fprintf(stderr, "no operation \"%s\"\n", argv[2]), 2;
  tuttiUniqueId id;
  if (rank == 0) {
    if (failed(tuttiGetUniqueId(&id), nullptr, "making an id")) return 1;
    memcpy(run.b.meet->note, &id, sizeof id);
  }
  bench_barrier(&run.b);
  memcpy(&id, run.b.meet->note, sizeof id);
  if (failed(tuttiCommInitRank(&run.world, ranks, id, rank), nullptr, "joining")) return 1;
  std::vector<Way> ways = open_ways(run, argv[6] ? argv[6] : "");
  int good = 0, points = 0;
  std::string list = argv[3];
  for (char *save = nullptr, *s = strtok_r(list.data(), ",", &save); s; s = strtok_r(nullptr, ",", &save)) {
    const size_t bytes = strtoull(s, nullptr, 10);
    run.count = bytes / 4;
    run.in = bench_take(&run.b, bytes + 4096), run.out = bench_take(&run.b, bytes + 4096);
    if (!run.in || !run.out) return 1;
    for (size_t i = 0; i < run.count; i++) run.in[i] = bench_input(rank, i), run.out[i] = 0;
    measure(run, ways, atoi(argv[4]), atof(argv[5]));
    good += report(run, ways, bytes);
    points++;
    bench_barrier(&run.b);
    free(run.in), free(run.out);
  }
  if (rank == 0) printf("{\"op\": \"%s\", \"ranks\": %d, \"points\": %d, \"good\": %d}\n", run.op->name, ranks, points, good);
  for (Way &w : ways) tuttiCommDestroy(w.comm);
  tuttiCommDestroy(run.world);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  const int ranks = argc == 6 || argc == 7 ? atoi(argv[1]) : 0;
  if (ranks < 2 || ranks > BENCH_MAX_RANKS)
    return fprintf(stderr, "usage: model_report RANKS OP SIZES ROUNDS TARGET-MS [SKIPPED], 2 to %d ranks\n", BENCH_MAX_RANKS),
           2;
  setenv("TUTTI_PLUGIN_DISABLE", "tuner", 0);
  unsetenv("TUTTI_ALGO"), unsetenv("TUTTI_PROTO"); // they would win over each communicator's own
  const int fd = memfd_create("meet", 0);
  if (fd < 0 || ftruncate(fd, BENCH_FILE_BYTES)) return 2;
  const std::string meet = "/proc/self/fd/" + std::to_string(fd);
  for (int r = 0; r < ranks; r++)
    if (fork() == 0) {
      const int rc = rank_main(meet.c_str(), r, ranks, argv);
      fflush(stdout);
      _exit(rc);
    }
  int worst = 0;
  for (int r = 0, status = 0; r < ranks; r++) {
    if (wait(&status) < 0) return 2;
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 2);
  }
  return worst;
}
