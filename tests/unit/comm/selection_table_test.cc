// The table of ways: its lists, its text on the way to other ranks, and what a call configuration makes of it.
#include "base/types.h"
#include "two_algorithms.h"
#include <algorithm>

using namespace tutti;
using namespace two;

namespace {

constexpr uint32_t kAllReduce = TUTTI_COLL_ALL_REDUCE, kShort = 6, kLong = 20;

std::string name_of(const Choice &c) {
  return c.algo ? std::string(c.algo.table->name) + "/" + c.proto.table->name : "none";
}

CallConfig call(const Registry &registry, const char *algo, const char *proto = nullptr,
                int preferred = TUTTI_CONFIG_UNDEF_INT) {
  tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
  c.algo = algo;
  c.proto = proto;
  c.preferred = preferred;
  auto read = read_call_config(&c, nullptr, registry);
  REQUIRE(read.ok());
  return **read;
}

SelectionTable table_of(const Selector &s) {
  auto t = s.table();
  REQUIRE(t.ok());
  return *t;
}

std::string way_as_asked(const Selector &s, const SelectionTable &t, uint32_t bucket, const CallConfig &c) {
  const auto asked = s.as_asked(t, kAllReduce, bucket, c);
  return asked.ok() ? name_of(asked->choice) + (asked->instead.empty() ? "" : " instead") : asked.status().error().message;
}

} // namespace

TEST_CASE("lists hold every way that can run, best first, and what is against the others") {
  select_with({}, [](const Selector &s) {
    const SelectionTable t = table_of(s);
    CHECK(name_of(t.at(kAllReduce, kShort)) == "forth/plain");
    CHECK(name_of(t.at(kAllReduce, kLong)) == "back/plain");
    const WayList &ways = t.ways(kAllReduce, kShort);
    REQUIRE(ways.ways.size() == 6);
    CHECK(ways.ruled_out.empty());
    CHECK(name_of(t.choices[ways.ways[0].choice]) == "forth/plain");
    CHECK(name_of(t.choices[ways.ways[3].choice]) == "back/plain");
    CHECK(t.ways(TUTTI_COLL_BROADCAST, kShort).ways.empty());
    CHECK(t.ways(TUTTI_COLL_BROADCAST, kShort).ruled_out.size() == 6);
    CHECK(!t.at(TUTTI_COLL_BROADCAST, kShort).refusal.empty());
    CHECK(t.lists.size() <= kRows + 2); // equal ones are shared
  });
}
TEST_CASE("ways that options exclude come after the others and say which option it was") {
  select_with({{"TUTTI_ALGO", "forth"}, {"TUTTI_PROTO", "^plain"}}, [](const Selector &s) {
    const SelectionTable t = table_of(s);
    const auto &ways = t.ways(kAllReduce, kLong).ways;
    REQUIRE(ways.size() == 6);
    CHECK(name_of(t.at(kAllReduce, kLong)) == "forth/lines");
    CHECK((!ways[0].by_algo && !ways[0].by_proto));
    const auto misses = [](const auto &w) { return (w.by_algo ? 1 : 0) + (w.by_proto ? 1 : 0); };
    CHECK(std::is_sorted(ways.begin(), ways.end(), [&](const auto &a, const auto &b) { return misses(a) < misses(b); }));
    CHECK(name_of(t.choices[ways[5].choice]) == "back/plain");
  });
}
TEST_CASE("what options exclude does not change what the tuner is asked about the others") {
  select_with({{"TUTTI_ALGO", "forth"}}, [](const Selector &s) {
    const auto ways = s.rate(kAllReduce, 64);
    CHECK(asked.size() == 2); // for those that may run, and for all
    REQUIRE(ways.size() == 6);
    CHECK(ways[2].reason.empty());
    CHECK(ways[3].by_algo);
    CHECK(ways[3].reason == "excluded by \"forth\" (TUTTI_ALGO)");
  });
}

TEST_CASE("a table survives the way to other ranks") {
  select_with({{"TUTTI_PROTO", "^plain"}}, [](const Selector &s, const Registry &registry) {
    const SelectionTable t = table_of(s);
    const auto back = SelectionTable::decode(t.encode(), registry);
    REQUIRE(back.ok());
    CHECK(back->index == t.index);
    CHECK(back->list == t.list);
    CHECK(back->lists == t.lists);
    REQUIRE(back->choices.size() == t.choices.size());
    for (size_t i = 0; i < t.choices.size(); i++) CHECK(same(back->choices[i], t.choices[i]));
  });
}
TEST_CASE("a table that is cut short or damaged is refused, and nothing else happens") {
  select_with({}, [](const Selector &s, const Registry &registry) {
    const Bytes whole = table_of(s).encode();
    for (size_t n = 0; n < whole.size(); n += std::max<size_t>(1, whole.size() / 300)) {
      const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
      CHECK(!SelectionTable::decode(part, registry).ok());
      Bytes damaged = whole;
      damaged[n] = std::byte{'9'};
      (void)SelectionTable::decode(damaged, registry); // some changes are other valid tables
    }
    CHECK(SelectionTable::refusal_in(SelectionTable::encode_refusal("no way")) == "no way");
    CHECK(!SelectionTable::refusal_in(whole));
  });
}

TEST_CASE("a call takes the first way that does what it asks for, and what it leaves open is for the options") {
  select_with({{"TUTTI_PROTO", "lines"}}, [](const Selector &s, const Registry &registry) {
    const SelectionTable t = table_of(s);
    CHECK(way_as_asked(s, t, kShort, call(registry, "back")) == "back/lines");
    CHECK(way_as_asked(s, t, kShort, call(registry, nullptr, "plain")) == "forth/plain");
    CHECK(way_as_asked(s, t, kLong, call(registry, "^back", "^plain,lines")) == "forth/lent");
    CHECK(way_as_asked(s, t, kLong, call(registry, "broadcast:forth")) == "back/lines");
    CHECK(way_as_asked(s, t, kLong, call(registry, "all_reduce:forth;back")) == "forth/lines");
  });
}
TEST_CASE("what a call cannot have is an error that names the wish and what is against it, or the way nearest to it") {
  const auto check = [](const Selector &s, const Registry &registry) {
    const SelectionTable t = table_of(s);
    CHECK(way_as_asked(s, t, kShort, call(registry, "back", "lent")) ==
          "tuttiCallConfig_t.algo \"back\", tuttiCallConfig_t.proto \"lent\": no way to run all_reduce of up to 64 bytes: "
          "back: memory cannot be read");
    CHECK(way_as_asked(s, t, kShort, call(registry, "back", "lent", 1)) == "back/plain instead");
    CHECK(way_as_asked(s, t, kShort, call(registry, "^back,forth")).ends_with("all_reduce of up to 64 bytes: it allows none"));
  };
  select_with({}, check, "asked", "memory cannot be read");
  select_with(
      {{"TUTTI_COLL_CHOICE", "preferred"}},
      [](const Selector &s, const Registry &registry) {
        const SelectionTable t = table_of(s);
        CHECK(way_as_asked(s, t, kShort, call(registry, "back", "lent")) == "back/plain instead");
        CHECK(way_as_asked(s, t, kShort, call(registry, "back", "lent", 0)).starts_with("tuttiCallConfig_t.algo"));
      },
      "asked", "memory cannot be read");
}
TEST_CASE("ranks that have the same table and call come to the same slots") {
  select_with({{"TUTTI_MEMORY_CAP", "1MiB"}, {"TUTTI_BUFFSIZE", "128K"}}, [](const Selector &s, const Registry &registry) {
    const SelectionTable t = table_of(s);
    const auto there = SelectionTable::decode(t.encode(), registry);
    REQUIRE(there.ok());
    CallConfig c = call(registry, "forth");
    c.slot_bytes = 1 << 20, c.depth = 100, c.min_channels = c.max_channels = 4;
    const auto here = s.as_asked(t, kAllReduce, kLong, c), elsewhere = s.as_asked(*there, kAllReduce, kLong, c);
    REQUIRE((here.ok() && elsewhere.ok()));
    CHECK(same(here->choice, elsewhere->choice));
    CHECK(here->choice.channels == 4);
    CHECK(uint64_t(here->choice.slot_bytes) * here->choice.depth <= 128 << 10);
    c = call(registry, nullptr);
    c.depth = 2;
    CHECK(s.as_asked(t, kAllReduce, kLong, c)->choice.depth == 2);
    CHECK(s.as_asked(t, kAllReduce, kLong, c)->choice.slot_bytes == t.at(kAllReduce, kLong).slot_bytes);
  });
}

TEST_CASE("a class decides for its sizes alone, and says in which line") {
  const char *const toml = "[coll]\n[[coll.class]]\nops = \"all_reduce\"\nmin_bytes = \"64K\"\nalgo = \"forth\"\ndepth = 32\n";
  select_with(
      {},
      [](const Selector &s) {
        const SelectionTable t = table_of(s);
        CHECK(name_of(t.at(kAllReduce, 15)) == "back/plain");
        CHECK(name_of(t.at(kAllReduce, 16)) == "forth/plain");
        CHECK(t.at(kAllReduce, 16).depth == 32);
        CHECK(t.at(kAllReduce, 15).depth == 8);
        const auto who = s.decided(kAllReduce, 1 << 16, s.rate(kAllReduce, 1 << 16));
        CHECK(who.by == "file");
        CHECK(who.detail == "\"all_reduce:forth\" (test.toml:5)");
        CHECK(s.decided(kAllReduce, 64, s.rate(kAllReduce, 64)).by == "tuner");
      },
      "asked", "", toml);
}
TEST_CASE("a class that asks by name for what cannot be had is an error, or preferred another way") {
  const auto toml = [](const char *choice) {
    return std::string("[[coll.class]]\nops = \"all_reduce\"\nmax_bytes = \"64K\"\nproto = \"lent\"\n") + choice;
  };
  select_with(
      {},
      [](const Selector &s) {
        const auto t = s.table();
        REQUIRE(!t.ok());
        CHECK(t.status().error().message == "\"all_reduce:lent\" (test.toml:4): memory cannot be read");
      },
      "asked", "memory cannot be read", toml("").c_str());
  select_with(
      {}, [](const Selector &s) { CHECK(name_of(table_of(s).at(kAllReduce, kShort)) == "forth/plain"); }, "asked",
      "memory cannot be read", toml("choice = \"preferred\"\n").c_str());
}
TEST_CASE("determinism may be asked for some collectives alone") {
  const char *const toml = "[[coll.class]]\nops = \"all_reduce\"\ndeterministic = \"size\"\n";
  select_with(
      {},
      [](const Selector &s) {
        for (const uint64_t bytes : {8u, 1024u, 1u << 20}) CHECK(name_of(s.choose(kAllReduce, bytes)).starts_with("back/"));
        CHECK(s.promised_order(kAllReduce).has_value());
        CHECK(!s.promised_order(TUTTI_COLL_REDUCE).has_value());
      },
      "asked", "", toml);
}
TEST_CASE("equal contents of call configurations have one number, which a tag does not change") {
  select_with({}, [](const Selector &, const Registry &registry) {
    tuttiCallConfig_t c = TUTTI_CALL_CONFIG_INITIALIZER;
    c.tag = "only a tag";
    CHECK((*read_call_config(&c, nullptr, registry))->id == 0);
    c.algo = "forth";
    const uint32_t id = (*read_call_config(&c, nullptr, registry))->id;
    c.tag = "another one";
    CHECK((*read_call_config(&c, nullptr, registry))->id == id);
    c.depth = 4;
    CHECK((*read_call_config(&c, nullptr, registry))->id != id);
  });
}

TEST_CASE("more ways than the table's places can name are an error, not other ways") {
  SelectionTable t;
  t.choices.resize(65535);
  CHECK(t.fits().ok());
  t.choices.resize(65536);
  REQUIRE_FALSE(t.fits().ok());
  CHECK(t.fits().error().message == "the tuner makes 65536 or more distinct ways, the selection table holds 65535");
  t.choices.resize(1);
  t.lists.resize(65536);
  CHECK_FALSE(t.fits().ok());
}

TEST_CASE("what rank 0 reckons with goes with the table") {
  select_with({}, [](const Selector &s, const Registry &registry) {
    SelectionTable t = table_of(s);
    t.costs = "1 2 3", t.device = CostModel::Device{12500, 1.25}.encode();
    const auto there = SelectionTable::decode(t.encode(), registry);
    REQUIRE(there.ok());
    CHECK(there->costs == t.costs);
    CHECK(there->device == t.device);
  });
}
