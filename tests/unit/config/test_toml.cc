#include "helper.h"

using namespace tutti;

TEST_CASE("values of every type are read with the line they came from") {
  const auto c = good("[core]\ntimeout = \"5s\"\nblocking = false\n[coll]\nmax_channels = 4\nbuffer = \"4MiB\"\n"
                      "[plugins]\nnet = [\"ib\", \"socket\"]\n[net]\nname = \"Socket\"\n");
  CHECK(c->duration("core.timeout") == std::chrono::seconds(5));
  CHECK_FALSE(c->flag("core.blocking"));
  CHECK(c->number("coll.max_channels") == 4);
  CHECK(c->number("coll.buffer") == 4 << 20);
  CHECK(c->list("plugins.net") == std::vector<std::string>{"ib", "socket"});
  CHECK(c->text("net.name") == "Socket");
  CHECK(c->setting("core.timeout").origin == "t.toml:2");
  CHECK(c->setting("coll.buffer").origin == "t.toml:6");
  CHECK(c->is_default("core.init_timeout"));
  CHECK_FALSE(c->is_default("core.timeout"));
}

TEST_CASE("an empty text and an empty file mean defaults") {
  CHECK(good("")->duration("core.timeout") == std::chrono::minutes(10));
  CHECK(good("# nothing\n")->number("memory.cap") == 256 << 20);
}

TEST_CASE("an unknown key names file, line, nearest and valid keys") {
  const std::string m = wrong("[core]\n\ntimout = \"5s\"\n");
  CHECK(m.starts_with("t.toml:3: [core] unknown key \"timout\"; did you mean \"timeout\"? valid keys: timeout, init_timeout,"));
}

TEST_CASE("a key of another table is pointed to") {
  CHECK(has(wrong("[core]\nhuge_pages = true\n"), "did you mean \"shm.huge_pages\"?"));
}

TEST_CASE("an unknown table names the nearest and all tables") {
  const std::string m = wrong("[cool]\nalgo = \"ring\"\n");
  CHECK(has(m, "t.toml:1: unknown table \"cool\"; did you mean \"co"));
  CHECK(has(m, "valid tables: core, log, plugins"));
}

TEST_CASE("bad values name key, value, line and what is allowed") {
  CHECK(wrong("[core]\ntimeout = \"30\"\n").starts_with("t.toml:2: core.timeout = \"30\" has no unit; allowed: ns, us, ms, s"));
  CHECK(wrong("[core]\ntimeout = 30\n").starts_with("t.toml:2: core.timeout = \"30\" has no unit"));
  CHECK(has(wrong("[coll]\nmax_channels = 65\n"), "coll.max_channels = \"65\" is out of range; allowed: 1 to 64"));
  CHECK(has(wrong("[memory]\ncap = \"1KiB\"\n"), "out of range; allowed: 1MiB to 1024GiB"));
  CHECK(has(wrong("[core]\nsecurity = \"requird\"\n"),
            "is not allowed; did you mean \"required\"? allowed: authenticated, required, encrypted"));
  CHECK(has(wrong("[shm]\ndisable = 2\n"), "is not a switch; allowed: true, false, 1, 0"));
  CHECK(has(wrong("[socket]\nport_range = \"70000-2\"\n"), "is no port range; allowed: 0 (any port), or LOW-HIGH"));
  CHECK(has(wrong("[coll]\nmin_channels = 8\nmax_channels = 4\n"),
            "coll.min_channels = 8 (t.toml:2) is more than coll.max_channels"));
}

TEST_CASE("values of the wrong shape are refused") {
  CHECK(has(wrong("timeout = 3\n"), "t.toml:1: \"timeout\" stands outside any table"));
  CHECK(has(wrong("[core]\ntimeout = [\"1s\"]\n"), "is a list; core.timeout takes one value"));
  CHECK(has(wrong("[plugins]\nnet = [1, 2]\n"), "is a list of something else than texts"));
  CHECK(has(wrong("[core]\ntimeout = 1.5\n"), "is a fraction, date or time"));
  CHECK(has(wrong("[core]\ntimeout = 1979-05-27\n"), "is a fraction, date or time"));
  CHECK(has(wrong("[core.timeout]\nx = 1\n"), "is a table"));
  CHECK(has(wrong("[plugin]\nx = 1\n"), "in [plugin] is not a table; write [plugin.NAME]"));
}

TEST_CASE("a text that is not TOML names the line and stays one line") {
  for (const char *toml :
       {"[core\n", "[core]\ntimeout = \n", "[core]\ntimeout = \"5s\"\ntimeout = \"6s\"\n", "[core]\nx = \"\x01\"\n", "\xff\xfe",
        "= 1", "[core]\na = \"\"\"never ended", "[core]\na = 99999999999999999999999\n", "h=2h\"0\xef\xbb\xbb", "a=2\u00e9"}) {
    const std::string m = wrong(toml);
    CAPTURE(m);
    CHECK(m.starts_with("t.toml:"));
    CHECK(has(m, "not valid TOML: "));
    CHECK_FALSE(has(m, "\n"));
  }
}

TEST_CASE("hostile texts are errors within bounds, not crashes") {
  CHECK(has(wrong("[plugins]\nnet = " + std::string(100'000, '[')), "t.toml:2"));
  CHECK(has(wrong("[core]\nx = " + std::string(5000, '{') + "\n"), "t.toml:2"));
  CHECK(wrong("[core]\n" + std::string(50'000, 'k') + " = 1\n").size() < 1000);
  CHECK(wrong("[" + std::string(50'000, 'k') + "]\n").size() < 1000);
  CHECK(has(wrong(std::string("[core]\ntimeout = \"5s\0\"\n", 22)), "t.toml:2"));
  std::string dotted = "[a";
  for (int i = 0; i < 20'000; i++) dotted += ".a";
  CHECK(has(wrong(dotted + "]\n"), "t.toml:1"));
}

TEST_CASE("subsystems are a set, a caret turns it round") {
  auto bits = [](std::string_view toml) { return static_cast<uint32_t>(good(toml)->number("log.subsys")); };
  CHECK(bits("[log]\nsubsys = [\"INIT\", \"NET\"]\n") == ((1u << 0) | (1u << 6)));
  CHECK(bits("[log]\nsubsys = \"^INIT,NET\"\n") == ~((1u << 0) | (1u << 6)));
  CHECK(bits("") == ~0u);
  CHECK(has(wrong("[log]\nsubsys = [\"NTE\"]\n"), "names no subsystem with \"NTE\"; did you mean \"NET\"? allowed: ALL, INIT"));
  CHECK(has(wrong("[log]\nsubsys = [\"INIT\", \"^NET\"]\n"), "mixes included and excluded"));
}
