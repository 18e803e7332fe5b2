#include "tools/cli.h"
#include "tools/perf.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <numeric>
#include <unistd.h>

using namespace tutti;
using namespace tutti::tools;

namespace {

uint64_t size_of(const char *text) {
  const auto size = parse_size(text);
  REQUIRE_MESSAGE(size.ok(), text);
  return *size;
}

// What a user of `tutti perf` types.
struct Typed {
  perf::Args args;
  perf::Parsed parsed;
  explicit Typed(std::vector<std::string> words) {
    words.insert(words.begin(), "perf");
    std::vector<char *> argv;
    for (auto &w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    // The messages are the business of tests/tools.
    const int null = open("/dev/null", O_WRONLY), saved = dup(STDERR_FILENO);
    dup2(null, STDERR_FILENO);
    parsed = perf::parse_args(static_cast<int>(words.size()), argv.data(), &args);
    std::fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(null);
    close(saved);
  }
};

} // namespace

TEST_CASE("sizes take units of 1024 in any spelling") {
  CHECK(size_of("0") == 0);
  CHECK(size_of("8") == 8);
  CHECK(size_of("1K") == 1024);
  CHECK(size_of("3k") == 3072);
  CHECK(size_of("128M") == uint64_t{128} << 20);
  CHECK(size_of("2GiB") == uint64_t{2} << 30);
  CHECK(size_of("1TB") == uint64_t{1} << 40);
  CHECK(size_of("64B") == 64);
}

TEST_CASE("what is no size is refused") {
  for (const char *text :
       {"", "K", "-1", "1.5M", "4X", "1 K", "1KK", "1iB4", "18446744073709551616", "16777216T", "9223372036854775807K"})
    CHECK_MESSAGE(!parse_size(text).ok(), text);
}

TEST_CASE("the text of a size reads back as the size") {
  CHECK(size_text(8192) == "8K");
  CHECK(size_text(uint64_t{128} << 20) == "128M");
  CHECK(size_text(1025) == "1025");
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1024}, uint64_t{1536}, uint64_t{3} << 30})
    CHECK(size_of(size_text(bytes).c_str()) == bytes);
}

TEST_CASE("perf has the field's defaults") {
  const Typed t({"all_reduce"});
  REQUIRE(t.parsed.run);
  CHECK(t.args.min_bytes == 32u << 20);
  CHECK(t.args.max_bytes == 32u << 20);
  CHECK(t.args.iters == 20);
  CHECK(t.args.warmup == 1);
  CHECK(t.args.check == 1);
  CHECK(t.args.average == 1);
  CHECK(t.args.factor == 0);
  CHECK(t.args.types == std::vector<tuttiDataType_t>{tuttiFloat32});
  CHECK(t.args.ops == std::vector<int>{tuttiSum});
}

TEST_CASE("perf takes short and long flags, and the name of the program") {
  const Typed t(
      {"alltoall_perf", "-b", "1K", "--maxbytes", "16M", "-f", "4", "-d", "f8e5m2", "-o", "all", "-r", "all", "-t", "3"});
  REQUIRE(t.parsed.run);
  CHECK(t.args.op == "alltoall");
  CHECK(t.args.min_bytes == 1024);
  CHECK(t.args.max_bytes == 16u << 20);
  CHECK(t.args.factor == 4);
  CHECK(t.args.types == std::vector<tuttiDataType_t>{tuttiFloat8e5m2});
  CHECK(t.args.ops.size() == 6);
  CHECK(t.args.root == -1);
  CHECK(t.args.threads == 3);
}

TEST_CASE("bad flags of perf are bad usage, not a crash or a guess") {
  const std::vector<std::vector<std::string>> cases = {
      {"nosuch"},
      {"all_reduce", "-b", "4X"},
      {"all_reduce", "-b", "2M", "-e", "1M"},
      {"all_reduce", "-b", "0", "-e", "1M", "-f", "2"},
      {"all_reduce", "-b", "1", "-e", "2", "-i", "0"},
      {"all_reduce", "-f", "1"},
      {"all_reduce", "-n", "0"},
      {"all_reduce", "-d", "foo"},
      {"all_reduce", "-o", "foo"},
      {"all_reduce", "-g", "2"},
      {"all_reduce", "-G", "1"},
      {"all_reduce", "-D", "1"},
      {"all_reduce", "-R", "2"},
      {"all_reduce", "-z", "4"},
      {"all_reduce", "-C", "1", "-z", "1"},
      {"all_reduce", "-I", "1", "-K", "20"},
      {"all_reduce", "--ranks", "0"},
      {"all_reduce", "--frob"},
      {"all_reduce", "-J", "/nonexistent/out.json"},
      {},
  };
  for (const auto &words : cases) {
    const Typed t(words);
    CHECK_FALSE(t.parsed.run);
    CHECK(t.parsed.exit_code == kUsage);
  }
}

TEST_CASE("a rank of the built-in launch gets the same flags without --ranks") {
  for (const std::vector<std::string> &form :
       {std::vector<std::string>{"--ranks", "4"}, std::vector<std::string>{"--ranks=4"}}) {
    std::vector<std::string> words{"all_reduce", "-b", "8"};
    words.insert(words.end(), form.begin(), form.end());
    words.insert(words.end(), {"-e", "64"});
    const Typed t(words);
    REQUIRE(t.parsed.run);
    CHECK(t.args.ranks == 4);
    const auto rank = rank_words("perf", t.args.words, -1);
    CHECK(std::vector<std::string>(rank.begin() + 1, rank.end()) ==
          std::vector<std::string>{"perf", "all_reduce", "-b", "8", "-e", "64"});
  }
}

TEST_CASE("every operation cuts a size into buffers that fit together on all ranks") {
  constexpr int kRanks = 5, kRoot = 3;
  constexpr size_t kBytes = 4;
  for (const perf::Operation *op : perf::all_operations()) {
    if (!op->has_data) continue;
    CAPTURE(op->name);
    REQUIRE(perf::load_alltoallv_settings(kRanks).ok());
    std::vector<perf::Shape> shapes;
    for (int r = 0; r < kRanks; r++) shapes.push_back(op->shape(1001, kBytes, r, kRanks, kRoot));
    for (const perf::Shape &s : shapes) {
      CHECK(s.reported == shapes[0].reported);
      CHECK(s.reported <= 1001);
      CHECK(s.reported >= 800); // hypercube reports what a rank receives: 4 of 5 parts
      for (const perf::Piece &p : s.input) CHECK(p.at + p.n <= s.send);
      for (const perf::Piece &p : s.result) {
        CHECK(p.at + p.n <= s.recv);
        if (p.from >= 0) CHECK(p.first + p.n <= shapes[static_cast<size_t>(p.from)].send);
      }
    }
    for (int from = 0; from < kRanks && !shapes[0].send_counts.empty(); from++)
      for (int to = 0; to < kRanks; to++)
        CHECK(shapes[static_cast<size_t>(from)].send_counts[static_cast<size_t>(to)] ==
              shapes[static_cast<size_t>(to)].recv_counts[static_cast<size_t>(from)]);
  }
}

TEST_CASE("percentiles are values that were measured") {
  std::vector<double> values(100);
  std::iota(values.rbegin(), values.rend(), 1);
  const perf::Stats s = perf::stats_of(values);
  CHECK(s.min == 1);
  CHECK(s.p50 == 50);
  CHECK(s.p95 == 95);
  CHECK(s.p99 == 99);
  CHECK(s.max == 100);
  CHECK(perf::stats_of({7}).p99 == 7);
  CHECK(perf::stats_of({}).max == 0);
}
