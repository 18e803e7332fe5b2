#include "double.h"
#include "verbs_cases.h"
#include <doctest/doctest.h>

using namespace tutti::net_ib::test;

TEST_CASE("the double behaves as net-ib takes for granted of verbs") {
  for (const VerbsCase &c : verbs_cases())
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(c.title);
      Fabric fabric(seed);
      fabric.steps_per_poll = 16;
      Machine &a = fabric.host("a", {"a0"}), &b = fabric.host("b", {"b0"});
      CHECK_NOTHROW(c.run({a.verbs, b.verbs, "a0", "b0"}));
    }
}
