// Operation classes and tables for communicators by name: grammar, precedence, errors.
#include "helper.h"

using namespace tutti;

namespace {

constexpr tutti_coll kAllReduce = TUTTI_COLL_ALL_REDUCE, kBroadcast = TUTTI_COLL_BROADCAST;

int64_t number(const Config &c, const char *key, tutti_coll coll, uint64_t bytes) {
  return c.setting_for(key, coll, bytes).number;
}

const char *const kTwo = R"([coll]
depth = 8

[[coll.class]]
ops = "all_reduce,ReduceScatter"
max_bytes = "64K"
algo = "direct"
depth = 16

[[coll.class]]
ops = ["all_reduce"]
min_bytes = "32KiB"
max_bytes = "1M"
depth = 32
)";

} // namespace

TEST_CASE("a class sets options of its collectives and size classes, the later one where two fit") {
  const auto c = good(kTwo);
  CHECK(number(*c, "coll.depth", kAllReduce, 1 << 10) == 16);
  CHECK(number(*c, "coll.depth", kAllReduce, 1 << 16) == 32);
  CHECK(number(*c, "coll.depth", kAllReduce, 1 << 20) == 32);
  CHECK(number(*c, "coll.depth", kAllReduce, 1 << 21) == 8);
  CHECK(number(*c, "coll.depth", kBroadcast, 1 << 10) == 8);
  CHECK(number(*c, "coll.depth", TUTTI_COLL_REDUCE_SCATTER, 1) == 16);
  const Setting &algo = c->setting_for("coll.algo", kAllReduce, 1 << 16); // the later class says nothing of it
  CHECK(algo.text == "all_reduce:direct;reduce_scatter:direct");
  CHECK(algo.origin == "t.toml:7");
  CHECK(c->setting_for("coll.algo", kAllReduce, 1 << 17).text.empty());
}
TEST_CASE("classes read the same in files and in the environment, where those of the environment are stronger") {
  const auto file = good(kTwo), env = good("[coll]\ndepth = 8\n", {{"TUTTI_COLL_CLASS", file->text("coll.class")}});
  CHECK(file->text("coll.class") == "ops=all_reduce,reduce_scatter max_bytes=64KiB algo=direct depth=16; "
                                    "ops=all_reduce min_bytes=32KiB max_bytes=1MiB depth=32");
  CHECK(env->text("coll.class") == file->text("coll.class"));
  CHECK(env->agreement_hash() == file->agreement_hash());
  const auto both = good(kTwo, {{"TUTTI_COLL_CLASS", "depth=64"}});
  CHECK(number(*both, "coll.depth", kAllReduce, 1 << 16) == 64);
  CHECK(number(*both, "coll.depth", kBroadcast, 1 << 30) == 64);
  CHECK(both->setting_for("coll.depth", kBroadcast, 8).origin == "TUTTI_COLL_CLASS");
  CHECK(both->setting_for("coll.algo", kAllReduce, 8).origin == "t.toml:7");
  CHECK(good("[coll]\nclass = \"ops=reduce depth=4\"\n")->setting_for("coll.depth", TUTTI_COLL_REDUCE, 8).number == 4);
}
TEST_CASE("a class is stronger than an option of the environment, but for a list there that names the collective") {
  const Env env{{"TUTTI_ALGO", "ring;reduce_scatter:tree"}, {"TUTTI_DEPTH", "2"}};
  const auto c = good(kTwo, env);
  CHECK(number(*c, "coll.depth", kAllReduce, 8) == 16);
  CHECK(c->setting_for("coll.algo", kAllReduce, 8).origin == "t.toml:7");
  CHECK(c->setting_for("coll.algo", TUTTI_COLL_REDUCE_SCATTER, 8).origin == "TUTTI_ALGO");
  CHECK(c->setting_for("coll.algo", kBroadcast, 8).origin == "TUTTI_ALGO");
  const auto in_file = good(std::string("[coll]\nalgo = \"all_reduce:tree\"\n[[coll.class]]\nalgo = \"ring\"\n"));
  CHECK(in_file->setting_for("coll.algo", kAllReduce, 8).text == "ring");
}
TEST_CASE("every option of the table but the classes themselves, and what sets a communicator up, can be set for a class") {
  for (const Option &o : core_options()) {
    if (!o.key.starts_with("coll.") || o.key == "coll.class" || o.key.starts_with("coll.collnet")) continue;
    CHECK_MESSAGE(o.per_class, o.key);
    const std::string key = o.key.substr(5), value = o.choices.empty() ? o.type == TUTTI_OPT_STRING ? "x" : "4"
                                                                       : o.choices.substr(o.choices.rfind('|') + 1);
    const auto c = good("", {{"TUTTI_COLL_CLASS", "ops=all_reduce " + key + "=" + value}});
    CHECK_MESSAGE(c->setting_for(o.key, kAllReduce, 8).origin == "TUTTI_COLL_CLASS", o.key);
    CHECK_MESSAGE(c->setting_for(o.key, kBroadcast, 8).origin == "default", o.key);
  }
}
TEST_CASE("mistakes in classes name the line, the value and what is allowed") {
  const auto in = [](std::string_view body) { return wrong(std::string("[coll]\n[[coll.class]]\n") + std::string(body)); };
  CHECK(in("dpeth = 4\n")
            .starts_with("t.toml:3: [[coll.class]] unknown key \"dpeth\"; did you mean \"depth\"? valid keys: ops,"));
  CHECK(in("depth = 5000\n").starts_with("t.toml:3: coll.class.depth = \"5000\" is out of range; allowed: 0 to 1024"));
  CHECK(has(in("ops = \"all_reduce,alreduce\"\ndepth = 4\n"), "t.toml:3: coll.class.ops = \"all_reduce,alreduce\" names no "
                                                              "collective with \"alreduce\"; did you mean \"all_reduce\"?"));
  CHECK(has(in("ops = \"sendrecv\"\ndepth = 4\n"), "p2p.slot_bytes"));
  CHECK(has(in("ops = \"\"\ndepth = 4\n"), "lists no collective; leave it out"));
  CHECK(has(in("max_bytes = \"65K\"\ndepth = 4\n"), "t.toml:3: coll.class.max_bytes = \"65K\" is no power of two, by which "
                                                    "sizes are classed; write 64KiB or 128KiB"));
  CHECK(has(in("max_bytes = \"64x\"\ndepth = 4\n"), "unknown unit"));
  CHECK(has(in("min_bytes = \"2M\"\nmax_bytes = \"1M\"\ndepth = 4\n"), "t.toml:2: min_bytes 2097152 is more than max_bytes"));
  CHECK(has(in("ops = \"reduce\"\n"), "t.toml:2: a class that sets nothing; settable are ops, min_bytes"));
  CHECK(has(in("algo = \"reduce:ring\"\n"), "t.toml:3: coll.class.algo = \"reduce:ring\" names collectives; those of a class"));
  CHECK(has(in("min_channels = 8\nmax_channels = 4\n"), "min_channels 8 is more than max_channels 4"));
  CHECK(has(in("max_bytes = \"1M\"\ndeterministic = \"size\"\n"), "t.toml:4: deterministic is a promise for all sizes"));
  CHECK(has(in("class = \"depth=4\"\n"), "unknown key \"class\""));
  CHECK(has(wrong("[[core.thing]]\nx = 1\n"), "t.toml:1: [[core.thing]]: only [[coll.class]] is a list of tables"));
  const auto env = [](std::string_view text) { return wrong("", {{"TUTTI_COLL_CLASS", std::string(text)}}); };
  CHECK(has(env("all_reduce depth=4"), "TUTTI_COLL_CLASS: \"all_reduce\" is not KEY=VALUE; a class reads ops=all_reduce"));
  CHECK(has(env("depth=4 depth=8"), "TUTTI_COLL_CLASS: \"depth\" stands twice"));
  CHECK(has(env("depth=4; ops=nope depth=8"), "TUTTI_COLL_CLASS: ops=\"nope\" names no collective"));
}

namespace {

const char *const kNamed = R"([coll]
depth = 8

[communicator.eval]
coll.depth = 16
plugins.tuner = "other"

[communicator.eval.core]
timeout = "7s"

[[communicator.eval.coll.class]]
ops = "broadcast"
slot_bytes = "8K"

[communicator.train]
coll.depth = 32
)";

} // namespace

TEST_CASE("a communicator's table holds for it by name, between files and the environment") {
  const auto process = good(kNamed);
  CHECK(process->number("coll.depth") == 8);
  const auto eval = process->for_communicator("eval"), other = process->for_communicator("nobody");
  CHECK(eval->number("coll.depth") == 16);
  CHECK(eval->setting("coll.depth").origin == "t.toml:5");
  CHECK(eval->text("plugins.tuner") == "other");
  CHECK(eval->duration("core.timeout") == std::chrono::seconds(7));
  CHECK(number(*eval, "coll.slot_bytes", kBroadcast, 8) == 8 << 10);
  CHECK(number(*process, "coll.slot_bytes", kBroadcast, 8) == 0);
  CHECK(process->for_communicator("train")->number("coll.depth") == 32);
  CHECK(other->number("coll.depth") == 8);
  CHECK(eval->agreement_hash() != process->agreement_hash());
  CHECK(good(kNamed, {{"TUTTI_DEPTH", "64"}})->for_communicator("eval")->number("coll.depth") == 64);
}
TEST_CASE("what a program sets for a communicator wins over its table") {
  const std::vector<Config::Override> set{{"coll.depth", "128", "tuttiConfig_t.depth"}};
  const auto c = good(kNamed)->for_communicator("eval")->with(set);
  REQUIRE(c.ok());
  CHECK((*c)->number("coll.depth") == 128);
  CHECK((*c)->text("plugins.tuner") == "other");
  CHECK((*c)->for_communicator("train")->number("coll.depth") == 128); // what a split inherits
}
TEST_CASE("all tables of communicators are checked when files are read, and listed") {
  CHECK(wrong("[communicator.eval]\ncoll.dpeth = 4\n")
            .starts_with("t.toml:2: [communicator.eval] [coll] unknown key \"dpeth\"; did you mean \"depth\"?"));
  CHECK(wrong("[communicator.eval.col]\ndepth = 4\n")
            .starts_with("t.toml:1: [communicator.eval] unknown table \"col\"; did you mean \"coll\"?"));
  CHECK(has(wrong("[communicator.eval]\ndepth = 4\n"), "t.toml:2: [communicator.eval] \"depth\" stands without its table"));
  CHECK(has(wrong("[communicator]\ndepth = 4\n"), "t.toml:2: \"depth\" in [communicator] is not the table of a communicator"));
  CHECK(has(wrong("[communicator.eval]\ncore.comm_id = \"x\"\n"),
            "t.toml:2: [communicator.eval] core.comm_id holds for the whole process; put it under [core]"));
  CHECK(has(wrong("[communicator.eval]\ncoll.depth = 5000\n"), "t.toml:2: coll.depth = \"5000\" is out of range"));
  CHECK(has(wrong("[communicator.eval.plugin.tuner]\nfile = \"x\"\n"),
            "t.toml:1: [communicator.eval] plugin: options of a plugin hold for the whole process"));
  CHECK(has(wrong("[comunicator.eval]\nx = 4\n"), "[comunicator.eval] is a table"));
  std::string all;
  for (const auto &s : good(kNamed)->communicator_settings())
    all += s.name + "." + s.key + "=" + s.setting.text + "@" + s.setting.origin + " ";
  CHECK(all == "eval.coll.depth=16@t.toml:5 eval.core.timeout=7s@t.toml:9 eval.plugins.tuner=other@t.toml:6 "
               "eval.coll.class=ops=broadcast slot_bytes=8KiB@t.toml:11 train.coll.depth=32@t.toml:16 ");
}
TEST_CASE("values are known to come from where they come from") {
  const auto c = good("[coll]\ndepth = 4\n", {{"TUTTI_ALGO", "ring"}, {"NCCL_PROTO", "LL"}});
  CHECK(source_of(c->setting("coll.depth")) == "file");
  CHECK(source_of(c->setting("coll.algo")) == "environment");
  CHECK(source_of(c->setting("coll.proto")) == "environment");
  CHECK(source_of(c->setting("coll.buffer")) == "default");
  const std::vector<Config::Override> set{{"coll.buffer", "1M", "tuttiConfig_t.buffer"}, {"coll.choice", "preferred", "--set"}};
  const auto more = c->with(set);
  REQUIRE(more.ok());
  CHECK(source_of((*more)->setting("coll.buffer")) == "api");
  CHECK(source_of((*more)->setting("coll.choice")) == "tool");
}
