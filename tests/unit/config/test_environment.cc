#include "config/names.h"
#include "helper.h"

using namespace tutti;

TEST_CASE("the environment wins over files, and our name over the field's") {
  const std::string_view toml = "[core]\ntimeout = \"1s\"\n[log]\nlevel = \"error\"\n";
  CHECK(good(toml, {{"TUTTI_TIMEOUT", "2s"}})->duration("core.timeout") == std::chrono::seconds(2));
  const auto c = good(toml, {{"TUTTI_DEBUG", "info"}, {"NCCL_DEBUG", "TRACE"}});
  CHECK(c->text("log.level") == "info");
  CHECK(c->setting("log.level").origin == "TUTTI_DEBUG");
  CHECK(good(toml, {{"NCCL_DEBUG", "TRACE"}})->setting("log.level").origin == "NCCL_DEBUG");
}

TEST_CASE("the first alias that is set wins") {
  const auto c = good("", {{"NCCL_MIN_CTAS", "4"}, {"NCCL_MIN_NCHANNELS", "2"}});
  CHECK(c->number("coll.min_channels") == 4);
  CHECK(c->foreign_names().empty());
}

TEST_CASE("an empty variable counts as not set") {
  const auto c = good("[net]\nname = \"ib\"\n", {{"TUTTI_NET", ""}, {"NCCL_NET", "Socket"}});
  CHECK(c->text("net.name") == "Socket");
  CHECK(good("[net]\nname = \"ib\"\n", {{"NCCL_NET", ""}})->text("net.name") == "ib");
}

TEST_CASE("an unknown TUTTI name is an error with the nearest one") {
  CHECK(wrong("", {{"TUTTI_TIMEOT", "1s"}}) == "TUTTI_TIMEOT: no such variable; did you mean \"TUTTI_TIMEOUT\"?");
  CHECK(has(wrong("", {{"TUTTI_QQQQQQQQQQQQ", "1"}}), "no such variable; `tutti info config` lists all"));
}

TEST_CASE("launch variables, test variables and other people's names are no options and no errors") {
  Env env{{"TUTTI_TEST_SEED", "1"}, {"PATH", "/bin"}, {"TUTTIFRUTTI", "1"}};
  for (const auto &name : config::launch_variables()) env[name] = "0";
  good("", env);
}

TEST_CASE("bad values name the variable, the value and what is allowed") {
  CHECK(wrong("", {{"TUTTI_TIMEOUT", "soon"}}).starts_with("TUTTI_TIMEOUT=\"soon\" is not a duration; write"));
  CHECK(has(wrong("", {{"NCCL_MAX_CTAS", "500"}}), "NCCL_MAX_CTAS=\"500\" is out of range; allowed: 1 to 64"));
  CHECK(has(wrong("", {{"NCCL_DEBUG", "LOUD"}}), "NCCL_DEBUG=\"LOUD\" is not allowed; allowed: trace, debug, info"));
  CHECK(has(wrong("", {{"NCCL_SHM_DISABLE", "maybe"}}), "is not a switch"));
  CHECK(has(wrong("", {{"TUTTI_SOCKET_PORT_RANGE", "9"}}), "is no port range"));
}

TEST_CASE("debug levels are those that job scripts use") {
  auto level = [](const char *v) { return good("", {{"NCCL_DEBUG", v}})->text("log.level"); };
  CHECK(level("VERSION") == "warn");
  CHECK(level("WARN") == "warn");
  CHECK(level("Info") == "info");
  CHECK(level("ABORT") == "debug");
  CHECK(level("trace") == "trace");
  CHECK(level("NONE") == "off");
}

TEST_CASE("values keep the grammar of the field") {
  const auto c = good("", {{"NCCL_SOCKET_IFNAME", "^docker,lo"},
                           {"NCCL_ALGO", "allreduce:ring;broadcast:^tree"},
                           {"NCCL_SOCKET_FAMILY", "af_inet6"},
                           {"NCCL_SOCKET_RETRY_SLEEP_MSEC", "250"},
                           {"NCCL_BUFFSIZE", "8388608"},
                           {"TUTTI_NET_PLUGIN", "ofi, socket"},
                           {"NCCL_DEBUG_SUBSYS", "^coll,p2p"},
                           {"NCCL_DEBUG_TIMESTAMP_FORMAT", "[%F_%T]"},
                           {"NCCL_COMM_BLOCKING", "0"}});
  CHECK(c->text("socket.ifname") == "^docker,lo");
  CHECK(c->text("coll.algo") == "allreduce:ring;broadcast:^tree");
  CHECK(c->text("socket.family") == "AF_INET6");
  CHECK(c->number("socket.family") == 2);
  CHECK(c->duration("socket.retry_sleep") == std::chrono::milliseconds(250));
  CHECK(c->number("coll.buffer") == 8 << 20);
  CHECK(c->list("plugins.net") == std::vector<std::string>{"ofi", "socket"});
  CHECK(static_cast<uint32_t>(c->number("log.subsys")) == ~((1u << 3) | (1u << 4)));
  CHECK(c->text("log.timestamp_format") == "[%F %T]");
  CHECK_FALSE(c->flag("core.blocking"));
}

TEST_CASE("plugins of another ABI that job scripts name are not asked for, and reported as known") {
  const auto c = good("", {{"NCCL_NET_PLUGIN", "ofi"}, {"NCCL_TUNER_PLUGIN", "/opt/tuner.so"}});
  CHECK(c->is_default("plugins.net"));
  CHECK(c->is_default("plugins.tuner"));
  const auto unused = c->foreign_names();
  REQUIRE(unused.size() == 2);
  for (const auto &u : unused) CHECK(u.known);
}

TEST_CASE("the name of a secret that nothing reads is no variable") {
  CHECK(has(wrong("", {{"TUTTI_JOB_KEY", "0123"}}), "TUTTI_JOB_KEY: no such variable"));
}

TEST_CASE("a bare number needs no unit only under a name that says the unit") {
  CHECK(has(wrong("", {{"TUTTI_SOCKET_RETRY_SLEEP", "250"}}), "has no unit"));
}

TEST_CASE("search paths are separated by colons") {
  CHECK(good("", {{"TUTTI_PLUGIN_PATH", "/a:/b,c::"}})->list("plugins.path") == std::vector<std::string>{"/a", "/b,c"});
}

TEST_CASE("NCCL names that nobody reads are sorted into known and unknown") {
  const auto c =
      good("", {{"NCCL_P2P_DISABLE", "NVL"}, {"NCCL_VERSION", "2.30"}, {"NCCL_DEBUG", "WARN"}, {"NCCL_IB_HCA", "mlx5"}});
  std::string all;
  for (const auto &f : c->foreign_names()) all += f.name + (f.known ? "+" : "-") + " ";
  CHECK(all == "NCCL_IB_HCA+ NCCL_P2P_DISABLE+ NCCL_VERSION- ");
}

TEST_CASE("hostile values are errors or plain texts, never more") {
  const std::string junk(1 << 20, '\x7f');
  CHECK(wrong("", {{"TUTTI_TIMEOUT", junk}}).size() < 500);
  CHECK(wrong("", {{"TUTTI_" + junk, "1"}}).size() < 500);
  CHECK(good("", {{"NCCL_ALGO", junk}})->text("coll.algo").size() == junk.size());
}
