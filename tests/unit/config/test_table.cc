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
    for (const auto &a : o.aliases) CHECK(names.insert(a).second);
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

TEST_CASE("docs/configuration.md is what the table says") {
  const std::string path = TUTTI_SOURCE_DIR "/docs/configuration.md";
  if (const char *update = std::getenv("TUTTI_TEST_UPDATE_DOCS"); update && *update == '1')
    std::ofstream(path) << configuration_markdown();
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  CHECK_MESSAGE(text.str() == configuration_markdown(), "run ./dev docs and commit docs/configuration.md");
}
