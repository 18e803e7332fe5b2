#include "helper.h"

using namespace tutti;

namespace {

const tutti_option kOptions[] = {
    {"sockets", "1", "sockets per connection", "NCCL_NSOCKS_PERTHREAD,OTHER_NAME", nullptr, 1, 64, TUTTI_OPT_INT, 0},
    {"buffer", "0", "kernel buffer", nullptr, nullptr, 0, 0, TUTTI_OPT_BYTES, 0},
    {"mode", "fast", "how", nullptr, "fast|safe", 0, 0, TUTTI_OPT_STRING, 0},
    {"names", "", "list", nullptr, nullptr, 0, 0, TUTTI_OPT_STRING_LIST, 0},
    {nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0},
};
const std::vector<std::string> kKnown{"net-socket", "net"};

std::string settings_error(const Config &c) {
  const auto r = c.plugin_settings("net-socket", kOptions);
  return r.ok() ? "no error" : r.status().error().line();
}

} // namespace

TEST_CASE("a plugin's options have defaults, then its table, then the environment") {
  const auto c = good("[plugin.net-socket]\nsockets = 2\nmode = \"SAFE\"\n", {{"TUTTI_PLUGIN_NET_SOCKET_SOCKETS", "3"}});
  const auto s = *c->plugin_settings("net-socket", kOptions);
  CHECK(s.at("sockets").number == 3);
  CHECK(s.at("sockets").origin == "TUTTI_PLUGIN_NET_SOCKET_SOCKETS");
  CHECK(s.at("mode").text == "safe");
  CHECK(s.at("mode").origin == "t.toml:3");
  CHECK(s.at("buffer").origin == "default");
  CHECK(s.at("names").list.empty());
  CHECK(c->check_plugin_tables(kKnown).ok());
}

TEST_CASE("a plugin's aliases count, its own name first") {
  Env env{{"NCCL_NSOCKS_PERTHREAD", "8"}, {"OTHER_NAME", "9"}};
  const auto c = good("", env);
  CHECK(c->foreign_names().size() == 1);
  CHECK(c->plugin_settings("net-socket", kOptions)->at("sockets").number == 8);
  CHECK(c->foreign_names().empty());
  env["TUTTI_PLUGIN_NET_SOCKET_SOCKETS"] = "2";
  CHECK(good("", env)->plugin_settings("net-socket", kOptions)->at("sockets").number == 2);
}

TEST_CASE("what tutti perf reads is not foreign, and what only looks like it is") {
  Env env;
  for (const char *name : {"SPLIT", "SPLIT_MASK", "MIN_BW", "ALLTOALLV_SPREAD", "ALLTOALLV_MATRIX_FILE",
                           "ALLTOALLV_MATRIX_SCALE", "ALLTOALLV_PRINT_SUMMARY"})
    env[std::string("NCCL_TESTS_") + name] = "1";
  CHECK(good("", env)->foreign_names().empty());
  env["NCCL_TESTS_SPREAD"] = "1";
  const auto foreign = good("", env)->foreign_names();
  REQUIRE(foreign.size() == 1);
  CHECK(foreign[0].name == "NCCL_TESTS_SPREAD");
}

TEST_CASE("an unknown key of a plugin's table is refused with the nearest") {
  CHECK(settings_error(*good("[plugin.net-socket]\n\nsocket = 4\n")) ==
        "t.toml:3: [plugin.net-socket] unknown key \"socket\"; did you mean \"sockets\"? valid keys: sockets, buffer, mode, "
        "names");
}

TEST_CASE("a plugin's values are checked like ours") {
  CHECK(has(settings_error(*good("[plugin.net-socket]\nsockets = 65\n")), "out of range; allowed: 1 to 64"));
  CHECK(
      has(settings_error(*good("", {{"TUTTI_PLUGIN_NET_SOCKET_MODE", "sfe"}})), "did you mean \"safe\"? allowed: fast, safe"));
  CHECK(has(settings_error(*good("", {{"NCCL_NSOCKS_PERTHREAD", "x"}})), "NCCL_NSOCKS_PERTHREAD=\"x\" is not a whole number"));
  CHECK(has(settings_error(*good("[plugin.net-socket]\nbuffer = -5\n")), "is negative"));
}

TEST_CASE("a plugin without options refuses every key") {
  const auto c = good("[plugin.bare]\nx = 1\n");
  CHECK(has(c->plugin_settings("bare", nullptr).status().error().line(), "unknown key \"x\"; the plugin has no options"));
}

TEST_CASE("a bad default is the plugin's fault and says so") {
  const tutti_option options[] = {{"n", "x", "", nullptr, nullptr, 0, 0, TUTTI_OPT_INT, 0},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0}};
  CHECK(has(good("")->plugin_settings("p", options).status().error().line(),
            "plugin p: default of option n is not a whole number"));
}

TEST_CASE("a table of a plugin that is not loaded is an error, unless the plugin was disabled") {
  const auto c = good("[plugin.net-soket]\nsockets = 1\n");
  CHECK(c->check_plugin_tables(kKnown).error().line() ==
        "t.toml:1: [plugin.net-soket]: no plugin of that name is loaded; did you mean \"net-socket\"? loaded: net-socket, net");
  CHECK(good("[plugins]\ndisable = [\"net-ib\"]\n[plugin.net-ib]\nhca = \"x\"\n")->check_plugin_tables(kKnown).ok());
  CHECK(good("[plugin.empty]\n")->check_plugin_tables(kKnown).error().line().starts_with("t.toml:1:"));
}

TEST_CASE("a plugin variable that no plugin claims is an error with the nearest name") {
  const auto c = good("", {{"TUTTI_PLUGIN_NET_SOCKET_SOKETS", "2"}});
  (void)*c->plugin_settings("net-socket", kOptions);
  CHECK(has(c->check_plugin_tables(kKnown).error().line(),
            "TUTTI_PLUGIN_NET_SOCKET_SOKETS: [plugin.net-socket] unknown key \"sokets\"; did you mean \"sockets\"?"));
  const auto other = good("", {{"TUTTI_PLUGIN_PATHS", "/x"}});
  CHECK(has(other->check_plugin_tables(kKnown).error().line(), "did you mean \"TUTTI_PLUGIN_PATH\"?"));
  CHECK(good("", {{"TUTTI_PLUGIN_DISABLE", "net-ib"}, {"TUTTI_PLUGIN_NET_IB_HCA", "x"}})->check_plugin_tables(kKnown).ok());
}
