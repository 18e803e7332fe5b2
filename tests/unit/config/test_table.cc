#include "config/hints.h"
#include "config/impl.h"
#include "config/markdown.h"
#include "config/names.h"
#include "helper.h"
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

using namespace tutti;

TEST_CASE("every name in the table is used once, and every option is complete") {
  std::set<std::string> names;
  for (const auto &o : core_options()) {
    CAPTURE(o.key);
    CHECK(names.insert(o.key).second);
    CHECK(names.insert(o.env_name()).second);
    for (const auto &a : o.aliases) // one number for two limits
      CHECK((names.insert(a).second || (a == "NCCL_NCHANNELS" && o.key == "coll.max_channels")));
    CHECK(o.key.find('.') != std::string::npos);
    CHECK(o.env_name().starts_with("TUTTI_"));
    CHECK_FALSE(o.help.empty());
    CHECK_FALSE(o.help.ends_with('.'));
    CHECK_FALSE(o.help.find('|') != std::string::npos);
    CHECK(o.min <= o.max);
  }
}

TEST_CASE("aliases are names that the field knows") {
  for (const auto &o : core_options())
    for (const auto &a : o.aliases) {
      CAPTURE(a);
      CHECK(config::is_known_nccl_name(a));
    }
  CHECK(config::is_known_nccl_name("NCCL_IB_HCA"));
  CHECK(config::is_known_nccl_name("NCCL_ALGO"));
  CHECK(config::is_known_nccl_name("NCCL_WORK_FIFO_BYTES"));
  CHECK_FALSE(config::is_known_nccl_name("NCCL_ALGOS"));
  CHECK_FALSE(config::is_known_nccl_name("NCCL_"));
  CHECK_FALSE(config::is_known_nccl_name("ALGO"));
}

TEST_CASE("a derived configuration changes what it names and nothing else") {
  const auto c = good("");
  const Config::Override o[] = {{"coll.algo", "ring", "--algo"}, {"plugin.net-socket.sockets", "2", "--set"}};
  const auto d = *c->with(o);
  CHECK(d->text("coll.algo") == "ring");
  CHECK(d->setting("coll.algo").origin == "--algo");
  CHECK(c->text("coll.algo").empty());
  CHECK(has(d->check_plugin_tables({}).error().line(), "--set: [plugin.net-socket]"));
}

TEST_CASE("bad overrides name their origin") {
  auto error = [](const char *key, const char *text) {
    const Config::Override o[] = {{key, text, "tuttiConfig_t.timeoutMs"}};
    return good("")->with(o).status().error().line();
  };
  CHECK(has(error("core.timeout", "x"), "tuttiConfig_t.timeoutMs: core.timeout = \"x\" is not a duration"));
  CHECK(has(error("core.timeot", "1s"), "no option \"core.timeot\"; did you mean \"core.timeout\"?"));
  CHECK(has(error("plugin.x", "1"), "write plugin.NAME.KEY"));
}

TEST_CASE("the environment wins over tuttiConfig_t and loses to a command line") {
  const auto c = good("[coll]\nproto = \"ll\"\n", {{"NCCL_ALGO", "tree"}});
  const Config::Override api[] = {{"coll.algo", "ring", "tuttiConfig_t.algo"}, {"coll.proto", "simple", "tuttiConfig_t.proto"}};
  const auto d = *c->with(api);
  CHECK(d->text("coll.algo") == "tree");
  CHECK(d->text("coll.proto") == "simple");
  const Config::Override tool[] = {{"coll.algo", "ring", "--algo"}};
  CHECK((*c->with(tool))->text("coll.algo") == "ring");
}

TEST_CASE("ranks agree when they mean the same, however written") {
  const auto a = good("[coll]\nbuffer = \"4MiB\"\nalgo = \"Ring\"\n"),
             b = good("", {{"NCCL_BUFFSIZE", "4194304"}, {"NCCL_ALGO", "ring"}});
  CHECK(a->agreement_hash() == b->agreement_hash());
  CHECK(a->agreement_text() == b->agreement_text());
  CHECK(has(a->agreement_text(), "coll.buffer=4194304\n"));
  CHECK(good("[coll]\ndepth = 8\n")->agreement_hash() != a->agreement_hash());
}

TEST_CASE("ranks may differ in logs, timeouts and interfaces") {
  const auto a = good("[log]\nlevel = \"info\"\n[core]\ntimeout = \"3s\"\n[socket]\nifname = \"eth1\"\n");
  CHECK(a->agreement_hash() == good("")->agreement_hash());
}

TEST_CASE("a number of channels is the least and the most") {
  const auto c = good("", {{"NCCL_NCHANNELS", "16"}});
  CHECK(c->number("coll.min_channels") == 16);
  CHECK(c->number("coll.max_channels") == 16);
  CHECK(good("", {{"NCCL_NCHANNELS", "16"}, {"NCCL_MIN_NCHANNELS", "4"}})->number("coll.min_channels") == 4);
  CHECK(has(wrong("", {{"NCCL_NCHANNELS", "16"}, {"NCCL_MAX_CTAS", "8"}}),
            "coll.min_channels = 16 (NCCL_NCHANNELS) is more than"));
}

TEST_CASE("bandwidths that job scripts know are options") {
  const auto c = good("", {{"NCCL_P2P_BANDWIDTH", "400"}, {"NCCL_NET_BANDWIDTH", "25"}});
  CHECK(c->number("tuner.p2p_bandwidth") == 400);
  CHECK(c->number("tuner.net_bandwidth") == 25);
}

TEST_CASE("names of the field that something else does the work of are answered in one line that says what") {
  std::set<std::string_view> names;
  for (const config::Hint &hint : config::hints()) {
    CAPTURE(hint.name);
    CHECK(names.insert(hint.name).second);
    CHECK(config::is_known_nccl_name(hint.name));
    CHECK_FALSE(hint.why.empty());
    for (const auto &key : config::split(hint.instead, ',')) {
      CAPTURE(key);
      CHECK(config::option_index(key) < core_options().size());
    }
    const auto c = good("", {{std::string(hint.name), "1"}}); // no option takes it
    REQUIRE(c->foreign_names().size() == 1);
    CHECK(c->foreign_names()[0].known);
    const std::string line = config::answer_to(hint.name);
    CHECK(line.starts_with(std::string(hint.name) + " is not followed: " + std::string(hint.why)));
    CHECK(line.find('\n') == std::string::npos);
  }
  CHECK(config::answer_to("NCCL_NTHREADS") ==
        "NCCL_NTHREADS is not followed: whoever waits does the work, there are no threads per channel; see exec.spin "
        "(TUTTI_SPIN), exec.progress_thread (TUTTI_PROGRESS_THREAD)");
  CHECK(config::answer_to("NCCL_WORK_FIFO_BYTES") == "NCCL_WORK_FIFO_BYTES is set and has no meaning here");
  std::ifstream in(TUTTI_SOURCE_DIR "/docs/coming-from-nccl.md");
  std::stringstream text;
  text << in.rdbuf();
  CHECK_MESSAGE(has(text.str(), config::hints_markdown()), "docs/coming-from-nccl.md lacks:\n", config::hints_markdown());
}

TEST_CASE("options of one TOML table stand together, so that its page has each table once") {
  std::set<std::string> before;
  std::string last;
  for (const auto &o : core_options()) {
    const std::string table = o.key.substr(0, o.key.find('.'));
    CAPTURE(o.key);
    if (table != last) CHECK(before.insert(table).second);
    last = table;
  }
}

TEST_CASE("docs/configuration.md is what the table says") {
  const std::string path = TUTTI_SOURCE_DIR "/docs/configuration.md";
  if (const char *update = std::getenv("TUTTI_TEST_UPDATE_DOCS"); update && *update == '1')
    std::ofstream(path) << configuration_markdown();
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  CHECK_MESSAGE(text.str() == configuration_markdown(), "run ./dev docs and commit docs/configuration.md");
}
