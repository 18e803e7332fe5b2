// What `tutti tune` writes is what the tuner reads.
#include "base/file.h"
#include "table.h" // the tuner's
#include "tools/tune.h"
#include "tools/tune_ways.h"
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace tutti::tools::tune;
namespace fs = std::filesystem;

namespace {

const Way kRing{"ring", "ll128", 1, 65536, 8, false}, kTree{"tree", "simple", 2, 4096, 16, true},
    kPull{"direct", "pull", 1, 1 << 20, 4, false};

tutti_tune_query query_of(uint64_t bytes) {
  tutti_tune_query q{};
  q.struct_size = sizeof q;
  q.coll = TUTTI_COLL_ALL_REDUCE;
  q.bytes = bytes;
  q.nranks = q.max_ppn = 4;
  q.nnodes = 1;
  q.min_cores = 2;
  q.transport = TUTTI_LINK_CLASS_SHM;
  return q;
}
const Layout kLayout{4, 1, 4, 2, "shm"};
const About kAbout{"0.1.0", "a \"fast\" machine\n", "one", "2026-01-02", "tutti tune", false};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tutti-tune-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
};

} // namespace

TEST_CASE("neighbouring sizes with the same best way share a rule, and each size keeps its times") {
  const auto rules = merge_points({{"all_reduce", 4096, {{kRing, 4}, {kTree, 5}, {kPull, 6}}},
                                   {"all_reduce", 64, {{kRing, 2}, {kTree, 3}}},
                                   {"all_reduce", 1 << 20, {{kPull, 40}, {kRing, 50}}},
                                   {"all_reduce", 512, {}},
                                   {"broadcast", 64, {{kRing, 1}}}});
  REQUIRE(rules.size() == 3);
  CHECK(rules[0].sizes == std::vector<uint64_t>{64, 4096});
  REQUIRE(rules[0].ways.size() == 2); // pull was measured at one of the sizes only
  CHECK((rules[0].ways[0].way == kRing && rules[0].ways[0].us == std::vector<double>{2, 4}));
  CHECK((rules[0].min_bytes == 0 && rules[0].max_bytes == 65536)); // the geometric mean of 4 K and 1 M
  CHECK((rules[1].min_bytes == 65537 && rules[1].max_bytes == UINT64_MAX));
  CHECK((rules[2].op == "broadcast" && rules[2].max_bytes == UINT64_MAX));
}
TEST_CASE("the tuner reads the table that was written, with ways, slots and times") {
  const auto text =
      table_text(kAbout, kLayout,
                 merge_points({{"all_reduce", 64, {{kRing, 2}, {kTree, 3.5}}}, {"all_reduce", 4096, {{kPull, 1234567}}}}));
  const tuner::Table t = tuner::parse_table(text, "tuned.toml");
  CHECK(t.warnings.empty());
  REQUIRE(t.rules.size() == 2);
  CHECK((t.rules[0].fits(query_of(1)) && t.rules[0].fits(query_of(512)) && !t.rules[0].fits(query_of(1024))));
  CHECK((t.rules[1].fits(query_of(1024)) && t.rules[1].fits(query_of(uint64_t(1) << 40))));
  auto other = query_of(64);
  other.nranks = 8;
  CHECK(!t.rules[0].fits(other));
  const tuner::Way &tree = t.rules[0].ways[1];
  CHECK((tree.algo == "tree" && tree.proto == "simple" && tree.geometry.channels == 2u && tree.geometry.slot_bytes == 4096u));
  CHECK((tree.geometry.depth == 16u && tree.geometry.nontemporal == true));
  CHECK(tuner::time_of(t.rules[0], tree, 64)->us == 3.5);
  CHECK(t.rules[1].ways[0].geometry.shared_only == true);
  CHECK(tuner::time_of(t.rules[1], t.rules[1].ways[0], 4096)->us == 1234567);
}
TEST_CASE("a table is written as a whole, and only over what this tool has written") {
  const Folder dir;
  const std::string mine = (dir.path / "t.toml").string(), foreign = (dir.path / "f.toml").string();
  CHECK(may_write(mine, false).ok());
  REQUIRE(tutti::replace_file(mine, table_text(kAbout, kLayout, {})).ok());
  CHECK(may_write(mine, false).ok());
  CHECK(std::distance(fs::directory_iterator(dir.path), fs::directory_iterator()) == 1);
  std::ofstream(foreign) << "[[rule]]\n";
  REQUIRE(!may_write(foreign, false).ok());
  CHECK(may_write(foreign, false).error().line().find("was not written by tutti tune") != std::string::npos);
  CHECK(may_write(foreign, true).ok());
  CHECK(!may_write(dir.path.string(), true).ok());
  CHECK(!may_write((dir.path / "no" / "t.toml").string(), false).ok());
  if (fs::exists("/dev/full")) CHECK(!tutti::replace_file("/dev/full/t.toml", "x").ok());
}
TEST_CASE("other forms of a way have slots for its size, and no form twice") {
  const Way way{"ring", "simple", 1, 32768, 8, false};
  for (uint64_t bytes : {uint64_t(8), uint64_t(65536), uint64_t(16) << 20}) {
    const auto forms = variants(way, bytes, 64);
    for (size_t i = 0; i < forms.size(); i++) {
      CHECK((forms[i].kin(way) && forms[i] != way));
      CHECK((forms[i].slot_bytes >= 1024 && forms[i].depth >= 2 && (forms[i].depth & (forms[i].depth - 1)) == 0));
      for (size_t k = 0; k < i; k++) CHECK(forms[i] != forms[k]);
    }
  }
  CHECK(variants(way, 8, 64).size() == 1);
  CHECK(variants(way, 16 << 20, 64).size() == 5);
  CHECK(variants(way, 16 << 20, 1).size() == 4);
}
TEST_CASE("what ranks are told of ways is what they hear") {
  const std::vector<Way> ways = {kRing, kTree, kPull};
  const auto heard = decode_ways(encode_ways(ways));
  REQUIRE(heard.ok());
  CHECK(*heard == ways);
  CHECK(!decode_ways("2\nring ll").ok());
}
