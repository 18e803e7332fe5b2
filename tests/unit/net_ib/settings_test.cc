// The options of net-ib.
#include "host.h"
#include "tutti/plugin/cxx/netif.hpp"
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <set>
#include <sstream>

using namespace tutti::net_ib;
using Opt = TestHost::Options;

TEST_CASE("every option has a type, a range that holds its default, and a name of its own") {
  std::set<std::string> keys, aliases;
  for (const tutti_option *o = option_table.data(); o->key; ++o) {
    CAPTURE(o->key);
    CHECK(keys.insert(o->key).second);
    CHECK(o->min <= o->max);
    CHECK(std::string(o->help).back() != '.');
    if (o->type == TUTTI_OPT_INT) {
      const long value = std::stol(o->default_value);
      CHECK(value >= o->min);
      CHECK(value <= o->max);
    }
    if (!o->env_aliases) continue;
    CHECK(aliases.insert(o->env_aliases).second);
    CHECK(std::string(o->env_aliases).rfind("NCCL_", 0) == 0); // other names of tutti's own the core does not know
  }
  CHECK(keys.size() + 1 == option_table.size());
  for (const char *name : {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TIMEOUT", "NCCL_IB_TC", "NCCL_IB_SL"}) {
    CAPTURE(name);
    CHECK(std::any_of(aliases.begin(), aliases.end(), [&](const std::string &a) { return a.find(name) != a.npos; }));
  }
}

TEST_CASE("defaults are those of the field") {
  const Settings s = settings_with({});
  CHECK(s.disabled_by.empty());
  CHECK(s.merge);
  CHECK(s.failover);
  CHECK(s.gid_index == -1);
  CHECK(s.timeout == 20);
  CHECK(s.retry_count == 7);
  CHECK(s.rnr_retry == 7);
  CHECK(s.min_rnr_timer == 12);
  CHECK(s.qps_per_connection == 1);
  CHECK(s.mtu == 0);
  CHECK(s.relaxed_ordering);
  CHECK(s.return_async_events);
  CHECK(s.connect_timeout == std::chrono::seconds(60));
  CHECK(s.link_down_timeout == std::chrono::seconds(30));
}

TEST_CASE("values arrive in the units of verbs") {
  const Settings s = settings_with({{"disable", "true"},
                                    {"family", "AF_INET6"},
                                    {"roce_version", "1"},
                                    {"addr_range", "fd00::/8"},
                                    {"service_level", "-1"},
                                    {"traffic_class", "106"},
                                    {"pkey", "0x8001"},
                                    {"mtu", "2048"},
                                    {"rails", "guid"},
                                    {"relaxed_ordering", "0"},
                                    {"split_min", "4KiB"},
                                    {"link_down_timeout", "500ms"}});
  CHECK(s.disabled_by == "test.toml:7");
  CHECK(s.family == AF_INET6);
  CHECK(s.roce_version == 1);
  CHECK(s.service_level == 0);
  CHECK(s.traffic_class == 106);
  CHECK(s.pkey == 0x8001);
  CHECK(s.mtu == 2048);
  CHECK(s.rails == Rails::guid);
  CHECK_FALSE(s.relaxed_ordering);
  CHECK(s.split_min == 4096);
  CHECK(s.link_down_timeout == std::chrono::milliseconds(500));
}

TEST_CASE("wrong texts are refused with value, origin and what is allowed") {
  const auto has = [](const std::string &text, std::initializer_list<const char *> parts) {
    CAPTURE(text);
    for (const char *p : parts) CHECK(text.find(p) != std::string::npos);
  };
  has(TestHost(Opt{{"hca", "mlx5_0:x"}}).settings_error(), {"mlx5_0:x", "test.toml:7", "1 to 254"});
  has(TestHost(Opt{{"hca", "mlx5_0,^mlx5_1"}}).settings_error(), {"^mlx5_1", "stands once"});
  has(TestHost(Opt{{"hca", "^"}}).settings_error(), {"no entry"});
  has(TestHost(Opt{{"hca", "a:1:2:3:4"}}).settings_error(), {"more than four"});
  has(TestHost(Opt{{"hca", ":1"}}).settings_error(), {"no name"});
  has(TestHost(Opt{{"merge_ports", "a,b;c:0"}}).settings_error(), {"merge_ports", "c:0", "test.toml:7"});
  has(TestHost(Opt{{"addr_range", "10.0.0.0/33"}}).settings_error(), {"10.0.0.0/33", "test.toml:7", "10.0.0.0/8"});
  has(TestHost(Opt{{"addr_range", "10.0.0.0/8"}, {"family", "AF_INET6"}}).settings_error(),
      {"AF_INET6", "no address of family"});
  CHECK(TestHost(Opt{{"hca", "=mlx5_0:1:3:0, mlx5_1"}}).settings_error().empty());
}

namespace {

// As docs/rdma.md shows the options.
std::string options_table() {
  std::string out = "| key | default | values | meaning | other names |\n| --- | --- | --- | --- | --- |\n";
  for (const tutti_option *o = option_table.data(); o->key; ++o) {
    std::string values = o->choices ? o->choices : "";
    for (size_t at = 0; (at = values.find('|', at)) != values.npos;) values.replace(at, 1, ", ");
    if (o->type == TUTTI_OPT_BOOL) values = "true, false";
    if (o->type == TUTTI_OPT_INT) values = std::to_string(o->min) + " to " + std::to_string(o->max);
    std::string names = o->env_aliases ? o->env_aliases : "";
    for (size_t at = 0; (at = names.find(',', at)) != names.npos; at += 4) names.replace(at, 1, "`, `");
    const std::string quoted_default = *o->default_value ? std::string("`") + o->default_value + "`" : "";
    out += std::string("| `") + o->key + "` | " + quoted_default + " | " + values + " | " + o->help + " | " +
           (names.empty() ? "" : "`" + names + "`") + " |\n";
  }
  return out;
}

} // namespace

TEST_CASE("docs/rdma.md shows the option table") {
  const std::string path = TUTTI_SOURCE_DIR "/docs/rdma.md", open = "<!-- options -->\n", close = "<!-- /options -->";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string page = text.str();
  const size_t from = page.find(open) + open.size(), to = page.find(close);
  REQUIRE(page.find(open) != page.npos);
  REQUIRE(to != page.npos);
  if (std::getenv("TUTTI_TEST_UPDATE_DOCS")) {
    page.replace(from, to - from, options_table());
    std::ofstream(path) << page;
  } else {
    CHECK_MESSAGE(page.substr(from, to - from) == options_table(),
                  "run TUTTI_TEST_UPDATE_DOCS=1 test_net_ib and commit docs/rdma.md");
  }
}
