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
