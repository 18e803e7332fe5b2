#include "tables.h"

using namespace tuner;

TEST_CASE("the built-in table answers every query with sane slots") {
  const Table t = parse_table(built_in_table(), kBuiltIn);
  CHECK(t.warnings.empty());
  for (tutti_coll c = 0; c < TUTTI_COLL_BARRIER; c++)
    for (uint64_t bytes = 1; bytes < uint64_t(1) << 47; bytes *= 2)
      for (int n : {2, 8, 9, 64, 5000})
        for (uint32_t link = 0; link < 3; link++) {
          const auto q = query_of(c, bytes, n, link);
          CHECK_MESSAGE(std::any_of(t.rules.begin(), t.rules.end(), [&](const Rule &r) { return r.fits(q); }), c);
        }
  for (const Rule &r : t.rules)
    for (const Way &w : r.ways) CHECK((w.geometry.slot_bytes && w.geometry.depth));
}
TEST_CASE("the built-in table has no private memory of other processes read: not all memory can be") {
  for (const Rule &r : parse_table(built_in_table(), kBuiltIn).rules)
    for (const Way &w : r.ways)
      if (w.proto == "pull" && (r.links & ~(1u << TUTTI_LINK_CLASS_LOCAL))) CHECK(w.geometry.shared_only == true);
}

TEST_CASE("a rule in TOML says when it holds, and its ways take from it what they leave open") {
  const Table t = table_of(kData / "rules.toml");
  REQUIRE(t.rules.size() == 2);
  CHECK(t.warnings.empty());
  const Rule &r = t.rules[0];
  CHECK(r.note == "rules.toml:5");
  CHECK(r.colls == (1u << TUTTI_COLL_ALL_REDUCE | 1u << TUTTI_COLL_BARRIER));
  CHECK(r.sizes == std::vector<uint64_t>{1024, 4096, 65536});
  REQUIRE(r.ways.size() == 3);
  CHECK((r.ways[0].algo == "ring" && r.ways[0].proto == "ll" && r.ways[0].geometry.channels == 2u));
  CHECK((r.ways[0].geometry.slot_bytes == 8192u && r.ways[0].geometry.depth == 8u && r.ways[0].geometry.nontemporal == true));
  CHECK((r.ways[1].geometry.slot_bytes == 16384u && r.ways[1].geometry.shared_only == true && !r.ways[1].geometry.channels));
  CHECK((r.ways[2].algo == "tree" && r.ways[2].proto.empty() && r.ways[2].time_us.empty()));
  CHECK(r.fits(query_of(TUTTI_COLL_BARRIER, 65536, 8, TUTTI_LINK_CLASS_SHM)));
  CHECK(!r.fits(query_of(TUTTI_COLL_REDUCE, 65536, 8, TUTTI_LINK_CLASS_SHM)));
  CHECK(!r.fits(query_of(TUTTI_COLL_BARRIER, 65537, 8, TUTTI_LINK_CLASS_SHM)));
  CHECK(!r.fits(query_of(TUTTI_COLL_BARRIER, 65536, 8, TUTTI_LINK_CLASS_NET)));
  CHECK(!r.fits(query_of(TUTTI_COLL_BARRIER, 65536, 2, TUTTI_LINK_CLASS_SHM)));
  CHECK(!r.fits(query_of(TUTTI_COLL_BARRIER, 65536, 8, TUTTI_LINK_CLASS_SHM, 2)));
  CHECK(!r.fits(query_of(TUTTI_COLL_BARRIER, 65536, 8, TUTTI_LINK_CLASS_SHM, 1, 1)));
  CHECK(t.rules[1].note == "rules.toml:22");
  CHECK(t.rules[1].fits(query_of(TUTTI_COLL_ALL_TO_ALL, 1, 64, TUTTI_LINK_CLASS_NET, 8)));
}

TEST_CASE("a bad table is refused with file, line, column, value, what is allowed and the nearest name") {
  const auto rule = [](std::string_view keys) {
    return refused("rule = [ { ways = [\"ring\"], " + std::string(keys) + " } ]");
  };
  CHECK(refused("[[rule]]\nways = [\"ring\"]\nslots = 4\n") ==
        "t.toml:3:1: unknown key \"slots\" in a rule; did you mean \"slot\"?; known: coll, min_bytes, max_bytes, ranks, hosts, "
        "ppn, cores, links, ways, sizes, channels, slot, depth, stores, shared");
  CHECK(holds(refused("[rules]\n"), "t.toml:1:2: unknown key \"rules\" in a table file; did you mean \"rule\"?"));
  CHECK(holds(refused("[rule]\n"), "t.toml:1:1: rule is no list of tables"));
  CHECK(holds(refused("rule = [1]"), "t.toml:1:9: a rule is a table"));
  CHECK(holds(refused("[[rule]]\ncoll = \"barrier\"\n"), "t.toml:1:1: the rule has no ways"));
  CHECK(holds(rule("coll = \"allreduce\""), "coll = \"allreduce\" is not valid; allowed: * for all, all_reduce"));
  CHECK(holds(rule("coll = \"allreduce\""), "did you mean \"all_reduce\"?"));
  CHECK(holds(rule("coll = []"), "coll = [...] is not valid"));
  CHECK(holds(rule("max_bytes = \"5X\""), "max_bytes = \"5X\" is not valid; allowed: a size from 0 up"));
  CHECK(holds(rule("min_bytes = 9, max_bytes = 8"), "max_bytes = 8 is not valid; allowed: a size from 9"));
  CHECK(holds(rule("ranks = \"8..2\""), "ranks = \"8..2\" is not valid; allowed: a number from 1 up, or a range"));
  for (const char *bad : {"0", "\"\"", "\"x..\"", "-1", "2.5", "\"2...4\""})
    CHECK(holds(rule(std::string("hosts = ") + bad), "hosts = "));
  CHECK(holds(rule("links = \"tcp\""), "allowed: * for all, local, shm, net"));
  CHECK(holds(rule("channels = 99"), "channels = 99 is not valid; allowed: a whole number from 1 to 64"));
  CHECK(holds(rule("depth = 3"), "power of two"));
  CHECK(holds(rule("slot = \"1G\""), "slot = \"1G\" is not valid; allowed: a size from 64 to 67108864"));
  CHECK(holds(rule("stores = \"hot\""), "allowed: cached, nt"));
  CHECK(holds(rule("shared = 1"), "allowed: true, false"));
  CHECK(holds(rule("sizes = [8, 8]"), "sizes that ascend"));
  CHECK(holds(refused("[[rule]]\nways = [{ algo = \"ring\", time_us = 3.0 }]"), "t.toml:2:36: time_us without sizes"));
  CHECK(holds(refused("[[rule]]\nsizes = [8]\nways = [{ algo = \"ring\", time_us = [3.0, 4] }]"),
              "2 values and sizes of this rule has 1"));
  CHECK(holds(refused("[[rule]]\nsizes = [8]\nways = [{ algo = \"ring\", time_us = -1 }]"), "microseconds, over 0"));
  CHECK(holds(refused("[[rule]]\nways = [\"/ll\"]"), "t.toml:2:9: a way names its algorithm"));
  CHECK(holds(refused("[[rule]]\nways = [\"ring/\"]"), "a way names its algorithm"));
  CHECK(holds(refused("[[rule]]\nways = [{ alg = \"ring\" }]"), "did you mean \"algo\"?"));
  CHECK(holds(refused("[[rule]]\nways = \"ring\""), "allowed: a list of 1 to 500 ways"));
  CHECK(holds(refused("[[rule]]\nways = [\"ring\"\n"), "not valid TOML"));
}
TEST_CASE("input that is no text is refused as such") {
  CHECK(holds(refused(std::string_view("[\x0f\0\0\0", 5)), "not valid TOML"));
  CHECK(holds(refused("rule = [{ ways = [\"\xff\"] }]"), "not valid TOML"));
  CHECK(holds(refused("# \u00e9\n[about]\nx = \"\u00e9 \\\" \u00e9\"\ny = '''\u00e9\n'''\n \u00e9 = 1\n"),
              "t.toml:6:2: not valid TOML: "));
  CHECK(holds(refused("h=2h\"0\xef\xbb\xbb"), "t.toml:1:4: not valid TOML: "));
  CHECK(holds(refused("h=2\u00e9"), "t.toml:1:4: not valid TOML: "));
  CHECK(refused("\ufeff# \u00e9\n[about]\nx = \"\u00e9 \\\" \u00e9\"\ny = '\u00e9'\n").empty());
}
TEST_CASE("a name that looks mistyped is a warning, for anybody may load an algorithm of that name") {
  const Table t = parse_table("[[rule]]\nways = [\"rign/simle\", \"my-own\"]\n", "t.toml");
  REQUIRE(t.warnings.size() == 2);
  CHECK(t.warnings[0] == "t.toml:2:9: algorithm \"rign\" does not come with the library; did you mean \"ring\"?");
  CHECK(holds(t.warnings[1], "protocol \"simle\""));
}
TEST_CASE("a table without rules says who decides then") {
  CHECK(parse_table("", "t.toml").warnings ==
        std::vector<std::string>{"t.toml: the table has no rule; the core's model decides"});
  CHECK(parse_table("# nothing\n", "t.toml").rules.empty());
}
