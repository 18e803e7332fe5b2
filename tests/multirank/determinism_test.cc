// coll.deterministic. Elements with operands of all magnitudes, so that every other order of additions shows, are reduced in
// messages of many lengths from many places of a buffer: whatever is promised, the bits of an element must be those that it had
// before.
#include "operations.h"
#include "text.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unistd.h>

using namespace support;
namespace fs = std::filesystem;

namespace {

constexpr size_t kElements = 60000;
constexpr tuttiDataType_t kTypes[] = {tuttiFloat32, tuttiFloat16, tuttiBfloat16};

size_t bytes_of(tuttiDataType_t type) {
  return type == tuttiFloat32 ? 4 : 2;
}

// What rank r gives to element e: either sign, 24 or fewer bits that differ, exponents of a range that every type has.
uint32_t operand(tuttiDataType_t type, int r, size_t e) {
  uint64_t x = (e + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(r + 1) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  x ^= x >> 29;
  const auto sign = static_cast<uint32_t>(x & 1), step = static_cast<uint32_t>(x >> 1) % 8,
             bits = static_cast<uint32_t>(x >> 32);
  switch (type) {
  case tuttiFloat16:
    return sign << 15 | (11 + step) << 10 | (bits & 0x3ff);
  case tuttiBfloat16:
    return sign << 15 | (123 + step) << 7 | (bits & 0x7f);
  default:
    return sign << 31 | (123 + step) << 23 | (bits & 0x7fffff);
  }
}

struct Piece {
  size_t first, count;
};
constexpr Piece kPieces[] = {{0, 1},     {1, 3},       {0, 2},        {5, 31},      {0, 64},       {3, 700},
                             {0, 2049},  {11, 5003},   {0, 20000},    {40, 19999},  {17, 59983},   {0, kElements},
                             {59999, 1}, {30000, 777}, {29990, 4096}, {123, 12345}, {58000, 2000}, {0, 8192}};

// The bits that elements had, by collective and type, for the same elements later on.
class Known {
public:
  // Notes what is new; the number of elements that have changed.
  size_t differ(const std::string &what, size_t first, const std::vector<uint32_t> &bits) {
    auto &known = bits_[what];
    known.resize(kElements, kNone);
    size_t changed = 0;
    for (size_t i = 0; i < bits.size(); i++) {
      uint64_t &k = known[first + i];
      changed += k != kNone && k != bits[i];
      k = bits[i];
    }
    return changed;
  }
  std::string text() const {
    std::ostringstream out;
    for (const auto &[what, bits] : bits_) {
      out << what << '\n';
      for (const uint64_t b : bits) out << b << '\n';
    }
    return out.str();
  }

private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  std::map<std::string, std::vector<uint64_t>> bits_;
};

struct Job {
  const char *name;
  tuttiRedOp_t op;
  bool in_place;
  int root;
};

// One call over `piece`; the bits of what this rank has got. reduce_scatter: its block.
std::vector<uint32_t> reduced(Rank &r, const Job &job, tuttiDataType_t type, const Piece &piece, size_t *first) {
  const size_t b = bytes_of(type), n = static_cast<size_t>(r.n), me = static_cast<size_t>(r.rank);
  const bool scatter = std::string(job.name) == "reduce_scatter", all = std::string(job.name) == "all_reduce";
  const size_t count = scatter ? piece.count / n : piece.count, sent = scatter ? count * n : count;
  // The place in memory moves with the piece, as when a piece of a larger buffer is reduced.
  std::vector<char> in((piece.first + sent) * b + 64), apart((piece.first + sent) * b + 64);
  char *const send = in.data() + piece.first * b;
  char *const recv = (job.in_place ? send + (scatter ? me * count * b : 0) : apart.data() + piece.first * b);
  for (size_t i = 0; i < sent; i++) {
    const uint32_t v = operand(type, r.rank, piece.first + i);
    std::memcpy(send + i * b, &v, b);
  }
  if (all)
    EXPECT_OK(r, tuttiAllReduce(send, recv, count, type, job.op, r.comm, nullptr));
  else if (scatter)
    EXPECT_OK(r, tuttiReduceScatter(send, recv, count, type, job.op, r.comm, nullptr));
  else
    EXPECT_OK(r, tuttiReduce(send, recv, count, type, job.op, job.root, r.comm, nullptr));
  EXPECT_OK(r, tuttiCommSynchronize(r.comm));
  *first = piece.first + (scatter ? me * count : 0);
  std::vector<uint32_t> bits(all || scatter || job.root == r.rank ? count : 0);
  for (size_t i = 0; i < bits.size(); i++) std::memcpy(&bits[i], recv + i * b, b);
  return bits;
}

// All pieces by all jobs. Ranks may not differ for the same element either, so every rank's results are compared with those
// that it has had in any role. Returns how many results changed.
size_t run_jobs(Rank &r, Known &known) {
  std::vector<Job> jobs;
  for (const tuttiRedOp_t op : {tuttiSum, tuttiAvg}) {
    jobs.push_back({"all_reduce", op, false, -1});
    jobs.push_back({"all_reduce", op, true, -1});
    jobs.push_back({"reduce_scatter", op, false, -1});
    for (int root = 0; root < r.n; root++) jobs.push_back({"reduce", op, false, root});
  }
  jobs.push_back({"reduce_scatter", tuttiSum, true, -1});
  size_t changed = 0;
  for (const tuttiDataType_t type : kTypes)
    for (const Job &job : jobs)
      for (const Piece &piece : kPieces) {
        size_t first = 0;
        const auto bits = reduced(r, job, type, piece, &first);
        changed +=
            known.differ(std::string(job.name) + (job.op == tuttiAvg ? " avg " : " sum ") + std::to_string(type), first, bits);
      }
  return changed;
}

// A process of run_processes comes through the test case again, up to its call: it finds no results and leaves no folder.
bool in_child() {
  return std::getenv("TEST_CALL") != nullptr;
}

class TempDir {
public:
  TempDir() {
    if (!in_child()) fs::create_directory(path);
  }
  ~TempDir() {
    if (!in_child()) fs::remove_all(path);
  }
  TempDir(const TempDir &) = delete;
  TempDir &operator=(const TempDir &) = delete;
  const fs::path path = fs::temp_directory_path() / ("tutti-bits-" + std::to_string(getpid()));
};

// What ranks found, one text after the other; run with `env` on n processes, on hosts of `per_host` ranks (0 = one host).
std::string bits_of(int n, std::vector<std::string> env, int per_host = 0) {
  const TempDir dir;
  env.push_back("BITS=" + dir.path.string());
  CHECK(
      run_processes(n, {.env = env, .limit = std::chrono::seconds(120), .init = false}, [&](Rank &r, const tuttiUniqueId &id) {
        if (per_host) setenv("TUTTI_HOSTID", std::to_string(r.rank / per_host).c_str(), 1);
        if (!EXPECT_OK(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank))) return;
        Known known;
        const size_t changed = run_jobs(r, known);
        const bool moves = std::getenv("MOVES") != nullptr;
        EXPECT(r, moves || changed == 0);
        std::ofstream(std::string(std::getenv("BITS")) + "/" + std::to_string(r.rank)) << changed << '\n' << known.text();
      }) == 0);
  std::string out;
  for (int r = 0; r < n; r++) {
    std::ifstream file(dir.path / std::to_string(r));
    out += std::string(std::istreambuf_iterator<char>(file), {});
  }
  return out;
}

nlohmann::json explain(Rank &r, const char *coll, size_t count) {
  std::vector<char> text(1 << 16);
  if (!EXPECT_OK(r, tuttiCommExplain(r.comm, coll, count, tuttiFloat32, text.data(), text.size()))) return {};
  return nlohmann::json::parse(text.data());
}

// The same communicator again, with what the test wants.
void with_config(Rank &r, const tuttiConfig_t &config, const Body &body) {
  Rank mine{r.rank, r.n};
  if (!EXPECT_OK(r, tuttiCommSplit(r.comm, 0, r.rank, &mine.comm, &config))) return;
  body(mine);
  EXPECT_OK(mine, tuttiCommDestroy(mine.comm));
  r.failures += mine.failures;
}

} // namespace

TEST_CASE("the comparison sees an order of additions that moves with the message") {
  // A ring begins elsewhere for each chunk.
  const std::string bits = bits_of(3, {"TUTTI_ALGO=ring", "MOVES=1"});
  CHECK((in_child() || std::atol(bits.c_str()) > 1000));
}
TEST_CASE("size: an element has the same bits in every message, on threads, under every protocol and number of channels") {
  struct Setup {
    int n;
    const char *proto, *algo;
  };
  for (const Setup &setup : {Setup{3, "simple", nullptr}, Setup{3, "ll", "direct"}, Setup{4, "ll128", "rhd;reduce:direct"},
                             Setup{4, "ll8", nullptr}, Setup{3, "pull", nullptr}}) {
    const auto body = [&](Rank &r) {
      Known known;
      for (const int channels : {1, 3}) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.deterministic = "size";
        config.proto = setup.proto;
        config.algo = setup.algo;
        config.minCTAs = channels;
        with_config(r, config, [&](Rank &mine) { EXPECT(mine, run_jobs(mine, known) == 0); });
      }
    };
    CHECK_MESSAGE(run_threads(setup.n, body, std::chrono::seconds(120)) == 0, setup.proto << " on " << setup.n);
  }
}
TEST_CASE("size: processes have the same bits whatever slots, channels, protocols, links and hosts are") {
  for (const int n : {3, 4}) {
    const std::string size = "TUTTI_DETERMINISTIC=size";
    const std::string first = bits_of(n, {size});
    CHECK((in_child() || first.size() > kElements));
    const std::vector<std::vector<std::string>> others = {{"TUTTI_SLOT_BYTES=1024"},
                                                          {"TUTTI_SLOT_BYTES=65536", "TUTTI_MIN_CHANNELS=4"},
                                                          {"TUTTI_PROTO=ll128", "TUTTI_DEPTH=4"},
                                                          {"TUTTI_PROTO=pull", "TUTTI_SHM_PULL=mapped"},
                                                          {"TUTTI_SHM_DISABLE=1"}};
    for (auto env : others) {
      const std::string what = env[0];
      env.push_back(size);
      CHECK_MESSAGE((bits_of(n, env) == first), what << " on " << n);
    }
    CHECK_MESSAGE((bits_of(n, {size}, 2) == first), "two hosts");
  }
}
TEST_CASE("run: two runs give the same bits, and cores do not choose") {
  const std::vector<std::string> env = {"TUTTI_DETERMINISTIC=run", "MOVES=1"};
  const std::string once = bits_of(3, env);
  CHECK((in_child() || once.size() > kElements));
  CHECK((bits_of(3, env) == once));
  CHECK(run_processes(3,
                      [](Rank &r) {
                        const std::string why = explain(r, "all_reduce", 1000)["why"];
                        says(r, why, {"deterministic = \"run\" (TUTTI_DETERMINISTIC)", "without a look at cores"});
                      },
                      {.env = env}) == 0);
}
TEST_CASE("size: an algorithm that cannot keep the order is refused by name, and passed over with its reason otherwise") {
  CHECK(run_processes(3, {.env = {"TUTTI_ALGO=ring", "TUTTI_DETERMINISTIC=size"}, .init = false},
                      [](Rank &r, const tuttiUniqueId &id) {
                        EXPECT(r, tuttiCommInitRank(&r.comm, r.n, id, r.rank) == tuttiInvalidUsage);
                        says(r, tuttiGetLastError(nullptr),
                             {"no way to run all_reduce",
                              "ring: deterministic = \"size\" (TUTTI_DETERMINISTIC): it combines in another order from chunk",
                              "direct: excluded by \"ring\" (TUTTI_ALGO)"});
                      }) == 0);
  CHECK(
      run_processes(4,
                    [](Rank &r) {
                      const auto e = explain(r, "all_reduce", 1000);
                      EXPECT(r, e["deterministic"] == "size");
                      says(r, e["why"].get<std::string>(), {"every size combines in the order of "});
                      const std::string all = e.dump();
                      says(r, all, {"\"refused\"", "it combines in another order from chunk to chunk", "which all sizes have"});
                      const std::string reduce = explain(r, "reduce", 1000).dump();
                      says(r, reduce, {"its order of combining depends on the root"});
                      EXPECT(r, explain(r, "broadcast", 1000).dump().find("in another order") == std::string::npos);
                    },
                    {.env = {"TUTTI_DETERMINISTIC=size"}}) == 0);
}
TEST_CASE("a value of deterministic that there is not is refused with those that there are") {
  CHECK(run_threads(2, [](Rank &r) {
          tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
          config.deterministic = "always";
          tuttiComm_t none = nullptr;
          EXPECT(r, tuttiCommSplit(r.comm, 0, r.rank, &none, &config) == tuttiInvalidArgument);
          says(r, tuttiGetLastError(r.comm), {"deterministic", "always", "off, run, size"});
        }) == 0);
}
