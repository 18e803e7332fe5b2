#include "comm/agreement.h"
#include "comm/select/select.h"
#include <doctest/doctest.h>

using namespace tutti;

static RankFacts facts(std::vector<std::pair<std::string, std::string>> agreed) {
  RankFacts f;
  f.agreed = std::move(agreed);
  return f;
}

TEST_CASE("facts survive the wire") {
  RankFacts f = facts({{"library version", "0.1.0"}, {"setting a", ""}});
  const uint64_t words[] = {5, 1};
  f.cpus = CpuSet::from_words(words);
  const auto back = RankFacts::decode(f.encode());
  REQUIRE(back.ok());
  CHECK(back->agreed == f.agreed);
  CHECK(back->cpus.count() == 3);
}
TEST_CASE("cut facts are refused") {
  const Bytes whole = facts({{"library version", "0.1.0"}}).encode();
  for (size_t n = 0; n < whole.size(); n++) {
    const auto r = RankFacts::decode(std::span(whole).first(n));
    if (r.ok()) CHECK(r->agreed.empty()); // cut between two facts
  }
}
TEST_CASE("a difference names the rank, the thing and both values") {
  const RankFacts first = facts({{"a", "1"}, {"b", "2"}});
  CHECK(compare_facts(first, 1, facts({{"a", "1"}, {"b", "2"}})).ok());
  const Status s = compare_facts(first, 2, facts({{"a", "1"}, {"b", "3"}}));
  REQUIRE(!s.ok());
  CHECK(s.error().peer == 2);
  CHECK(s.error().message == "ranks disagree: b of rank 2 is 3, of rank 0 it is 2");
}
TEST_CASE("a thing that only one rank has is a difference, on either side") {
  const RankFacts less = facts({{"a", "1"}}), more = facts({{"a", "1"}, {"algorithm \"x\"", "x 1"}});
  CHECK(compare_facts(less, 1, more).error().message.find("x 1, of rank 0 it is absent") != std::string::npos);
  CHECK(compare_facts(more, 1, less).error().message.find("is absent, of rank 0 it is x 1") != std::string::npos);
}
TEST_CASE("size classes are powers of two with their upper edge included") {
  CHECK(bucket_of(0) == 0);
  CHECK(bucket_of(1) == 0);
  CHECK(bucket_of(2) == 1);
  CHECK(bucket_of(1024) == 10);
  CHECK(bucket_of(1025) == 11);
  CHECK(bucket_of(UINT64_MAX) == kBuckets - 1);
}
