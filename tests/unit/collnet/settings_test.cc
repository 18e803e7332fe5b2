#include "settings.h"
#include <doctest/doctest.h>
#include <fstream>
#include <iterator>

using namespace tutti::aggd;

namespace {
std::string error(const std::string &toml) {
  const auto s = parse_settings(toml, "aggd.toml", false);
  return s.ok() ? "" : s.status().error().line();
}
} // namespace

TEST_CASE("settings have defaults, and units in their values") {
  const auto s =
      parse_settings("[limits]\nmemory = \"1MiB\"\nwindow = \"100KiB\"\n[timeouts]\nprogress = \"2s\"\n", "aggd.toml", false);
  REQUIRE(s.ok());
  CHECK(s->memory == 1 << 20);
  CHECK(s->window == 65536); // powers of two are granted
  CHECK(s->progress.count() == 2000);
  CHECK(s->outstanding == 256);
}

TEST_CASE("what cannot be is said with file, line and what is allowed") {
  CHECK(error("[limits]\nmemry = 1\n").find("aggd.toml:2: [limits] has no key \"memry\"; did you mean \"limits.memory\"?") ==
        0);
  CHECK(error("[limits]\nmemory = \"1KiB\"\n").find("aggd.toml:2") != std::string::npos);
  CHECK(error("[aggd]\nlog_level = \"loud\"\n").find("debug, info, warn") != std::string::npos);
  CHECK(error("[other]\nx = 1\n").find("[aggd], [limits] and [timeouts]") != std::string::npos);
  const auto s = parse_settings("[aggd]\nlisten = [\"127.0.0.1:0\"]\n", "aggd.toml", true);
  REQUIRE_FALSE(s.ok());
  CHECK(s.status().error().line().find("key_file is missing") != std::string::npos);
}

TEST_CASE("what nobody can have meant is said before the daemon runs") {
  const auto resolved = [](const std::string &aggd) {
    const auto s = parse_settings("[aggd]\n" + aggd, "aggd.toml", true);
    return s.ok() ? "" : s.status().error().line();
  };
  CHECK(resolved("listen = 5\n").find("listen = \"5\" is no address") != std::string::npos);
  CHECK(resolved("listen = \"127.0.0.1:0\"\nmetrics = \"9797\"\n").find("metrics = \"9797\" is no address") !=
        std::string::npos);
  CHECK(resolved("listen = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1\"\n").find("has no port") != std::string::npos);
  CHECK(resolved("listen = \"127.0.0.1:4797\"\nparent = \"127.0.0.1\"\n").find("is this daemon itself") != std::string::npos);
  CHECK(resolved("listen = \"*\"\nparent = \"127.0.0.1:4797\"\n").find("is this daemon itself") != std::string::npos);
  CHECK(resolved("listen = \"*:4798\"\nparent = \"127.0.0.1:4797\"\n").find("key_file is missing") != std::string::npos);
  CHECK(error("[limits]\nmemory_per_job = \"1KiB\"\n").find("aggd.toml:2: memory_per_job = 1 KiB has no room for a group") ==
        0);
  const auto least = parse_settings("[limits]\nmemory = \"256KiB\"\n", "aggd.toml", false);
  REQUIRE(least.ok());
  CHECK(least->memory_per_job == 192 << 10); // a group of two
}

TEST_CASE("docs/collnet.md names every key of the daemon with its default") {
  std::ifstream in(TUTTI_SOURCE_DIR "/docs/collnet.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  for (const tutti::Option &o : daemon_options()) {
    const std::string key = o.key.substr(o.key.find('.') + 1);
    const std::string row =
        "| `" + key + "` | " + (o.default_value.empty() ? "" : "`" + o.default_value + "` ") + "| " + o.help + " |";
    INFO(row);
    CHECK(page.find(row) != std::string::npos);
  }
}
