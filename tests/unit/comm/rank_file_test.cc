#include "ras/rank_file.h"
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

using namespace tutti;

TEST_CASE("what tells communicators and ranks apart is added where the pattern lacks it") {
  constexpr const char *kId = "00000000000000ab";
  const auto path = [](const char *pattern) { return ras::rank_file(pattern, "map.json", 0xab, 7); };
  CHECK(path("/x/%c/%r.json") == fmt::format("/x/{}/7.json", kId));
  CHECK(path("/x/m.json") == fmt::format("/x/m.{}.7.json", kId));
  CHECK(path("m-%r.json") == fmt::format("m-7.{}.json", kId));
  CHECK(path("m-%c") == fmt::format("m-{}.7", kId));
  CHECK(path("a.b/m") == fmt::format("a.b/m.{}.7", kId));
  CHECK(path("a/.m") == fmt::format("a/.m.{}.7", kId));
  CHECK(path("maps/") == fmt::format("maps/map.{}.7.json", kId));
  CHECK(path("%%c%%r.x") == fmt::format("%c%r.{}.7.x", kId));
  CHECK(path("%c%r%p") == fmt::format("{}7{}", kId, getpid()));
}
