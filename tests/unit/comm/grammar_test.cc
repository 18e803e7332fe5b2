#include "comm/select/grammar.h"
#include <doctest/doctest.h>

using namespace tutti;

static const std::vector<std::string> kKnown{"ring", "direct", "tree"};
static NameFilter parsed(std::string_view text) {
  auto f = NameFilter::parse(text, "TUTTI_ALGO", "algorithm", kKnown);
  REQUIRE(f.ok());
  return *f;
}
static std::string refused(std::string_view text) {
  auto f = NameFilter::parse(text, "TUTTI_ALGO", "algorithm", kKnown);
  REQUIRE(!f.ok());
  return f.status().error().message;
}

TEST_CASE("an empty filter allows everything and forces nothing") {
  const NameFilter f = parsed("");
  CHECK(f.allows(TUTTI_COLL_ALL_REDUCE, "ring"));
  CHECK(!f.forced(TUTTI_COLL_ALL_REDUCE));
}
TEST_CASE("a list allows its names only, in any case") {
  const NameFilter f = parsed("Ring,tree");
  CHECK(f.allows(TUTTI_COLL_BROADCAST, "ring"));
  CHECK(f.allows(TUTTI_COLL_BROADCAST, "TREE"));
  CHECK(!f.allows(TUTTI_COLL_BROADCAST, "direct"));
  CHECK(f.forced(TUTTI_COLL_BROADCAST));
}
TEST_CASE("a caret excludes and leaves the rest") {
  const NameFilter f = parsed("^ring,tree");
  CHECK(!f.allows(TUTTI_COLL_REDUCE, "ring"));
  CHECK(f.allows(TUTTI_COLL_REDUCE, "direct"));
  CHECK(!f.forced(TUTTI_COLL_REDUCE));
}
TEST_CASE("a part that names a collective beats a general one, wherever it stands") {
  for (const char *text : {"allreduce:direct;ring", "ring;all_reduce:direct"}) {
    const NameFilter f = parsed(text);
    CHECK(f.allows(TUTTI_COLL_ALL_REDUCE, "direct"));
    CHECK(!f.allows(TUTTI_COLL_ALL_REDUCE, "ring"));
    CHECK(f.allows(TUTTI_COLL_ALL_GATHER, "ring"));
    CHECK(!f.allows(TUTTI_COLL_ALL_GATHER, "direct"));
    CHECK(f.named(TUTTI_COLL_ALL_REDUCE));
    CHECK(!f.named(TUTTI_COLL_ALL_GATHER));
  }
}
TEST_CASE("an unknown name is refused with its origin and the names there are") {
  const std::string e = refused("ring,rnig");
  CHECK(e.find("TUTTI_ALGO") != std::string::npos);
  CHECK(e.find("\"rnig\"") != std::string::npos);
  CHECK(e.find("ring, direct, tree") != std::string::npos);
}
TEST_CASE("an unknown collective and an empty list are refused") {
  CHECK(refused("allredcue:ring").find("allredcue") != std::string::npos);
  CHECK(refused("allreduce:").find("lists no algorithm") != std::string::npos);
  CHECK(refused("^").find("lists no algorithm") != std::string::npos);
}

TEST_CASE("NCCL's names are taken in any case, and those for what is not here are errors that say what it is") {
  const std::vector<std::string> known{"ring", "tree", "pat"};
  const auto parse = [&](std::string_view text) { return NameFilter::parse(text, "NCCL_ALGO", "algorithm", known); };
  const auto both = parse("AllReduce:Tree,RING;broadcast:^PAT");
  REQUIRE(both.ok());
  CHECK(both->allows(TUTTI_COLL_ALL_REDUCE, "tree"));
  CHECK(!both->allows(TUTTI_COLL_ALL_REDUCE, "pat"));
  CHECK(!both->allows(TUTTI_COLL_BROADCAST, "pat"));
  for (const char *text : {"Ring,NVLS", "NVLSTree", "allreduce:CollnetDirect", "COLLNETCHAIN"}) {
    const auto f = parse(text);
    REQUIRE(!f.ok());
    const std::string e = f.status().error().message;
    CHECK(e.find("in NCCL is reduction in") != std::string::npos);
    CHECK(e.find("loaded are ring, tree, pat") != std::string::npos);
  }
  const std::vector<std::string> with_collnet{"ring", "collnet_direct"};
  const auto mapped = NameFilter::parse("CollnetDirect", "NCCL_ALGO", "algorithm", with_collnet);
  REQUIRE(mapped.ok());
  CHECK(mapped->allows(TUTTI_COLL_ALL_REDUCE, "collnet_direct"));
}
TEST_CASE("excluding what NCCL has and is not here excludes nothing else") {
  const NameFilter f = parsed("^NVLS,NVLSTree");
  CHECK(f.allows(TUTTI_COLL_ALL_REDUCE, "ring"));
  CHECK(!f.forced(TUTTI_COLL_ALL_REDUCE));
  CHECK(!f.speaks_of(TUTTI_COLL_ALL_REDUCE));
  const NameFilter some = parsed("^NVLS,ring");
  CHECK(!some.allows(TUTTI_COLL_ALL_REDUCE, "ring"));
  CHECK(some.allows(TUTTI_COLL_ALL_REDUCE, "tree"));
  CHECK(refused("^nlvs").find("unknown algorithm \"nlvs\"; loaded are") != std::string::npos);
}
