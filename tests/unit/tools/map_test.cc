// Communication maps: files of ranks read and put together, what they add up to, and drawings.
#include "tools/map_svg.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace tutti;
using namespace tutti::tools::commmap;

namespace {

Link end_of(int peer, bool sending, uint64_t bytes, uint32_t readers = 0) {
  Link l;
  l.peer = peer, l.sending = sending, l.readers = readers;
  l.transport = "shm", l.proto = "simple";
  l.counts = {1, bytes, bytes + 64, 0};
  return l;
}
RankPart part_of(const std::string &host, std::vector<Link> links) {
  RankPart p;
  p.host = host, p.state = "finalized", p.pid = 7, p.operations = 3;
  p.links = std::move(links);
  return p;
}
// n ranks, two hosts that take turns, each rank sends `bytes` to the next.
Comm ring_of(int n, uint64_t bytes, const std::string &id = "a1") {
  Comm c;
  c.id = id, c.nranks = n;
  for (int r = 0; r < n; r++)
    c.ranks[r] = part_of(r % 2 ? "odd" : "even", {end_of((r + 1) % n, true, bytes), end_of((r + n - 1) % n, false, bytes)});
  return c;
}
uint64_t bytes_of(const Pairs &pairs, int from, int to) {
  const auto at = pairs.cells().find({from, to});
  return at == pairs.cells().end() ? 0 : at->second.bytes;
}
std::string error_of(const std::string &text) {
  const auto map = parse(text, "f.json");
  return map.ok() ? "" : map.status().error().message;
}
size_t count_of(const std::string &text, const std::string &word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) n++;
  return n;
}
std::string drawn(const Map &map) {
  const auto svg = draw(map, "a <title> & more");
  REQUIRE(svg.ok());
  return *svg;
}

} // namespace

TEST_CASE("a map survives being written and read") {
  Comm c = ring_of(3, 1000);
  c.name = "dp \"0\"";
  c.ranks[1].state = "failed", c.ranks[1].error = "rank 2 left";
  c.ranks[0].links[0].counts.lent_bytes = 500;
  c.ranks[0].links.push_back(end_of(0, true, 8, 2));
  const Map map{c};
  const auto again = parse(to_json(map), "x");
  REQUIRE_MESSAGE(again.ok(), (again.ok() ? "" : again.status().error().message));
  REQUIRE(again->size() == 1);
  CHECK((*again)[0].ranks == c.ranks);
  CHECK((*again)[0].name == c.name);
  CHECK(to_json(*again) == to_json(map));
}

TEST_CASE("a file that is no map, is cut or has a wrong number is refused with its name and the place") {
  const std::string good = to_json({ring_of(2, 10)});
  REQUIRE(error_of(good).empty());
  CHECK(error_of("") == "f.json: is no JSON, or cut off");
  for (size_t n = 0; n + 2 < good.size(); n += 7) CHECK(error_of(good.substr(0, n)).find("f.json: ") == 0);
  CHECK(error_of("{}") == "f.json: file has no \"format\"");
  CHECK(error_of("[1]") == "f.json: file is no communication map");
  const auto changed = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return error_of(text.replace(text.find(from), from.size(), to));
  };
  CHECK(changed("\"version\": 1", "\"version\": 2") == "f.json: file has version 2, this tool reads 1");
  CHECK(changed("\"nranks\": 2", "\"nranks\": 0").find("communicator a1 has a \"nranks\" of 0; a number from 1 to") !=
        std::string::npos);
  CHECK(changed("\"rank\": 1", "\"rank\": 2").find("\"rank\" of 2; a number from 0 to 1") != std::string::npos);
  CHECK(changed("\"rank\": 1", "\"rank\": 0") == "f.json: communicator a1 has rank 0 twice");
  CHECK(changed("\"peer\": 1", "\"peer\": -1").find("communicator a1 rank 0 has a \"peer\" of -1") != std::string::npos);
  CHECK(changed("\"bytes\": 10", "\"bytes\": -10").find("\"bytes\" of -10") != std::string::npos);
  CHECK(changed("\"bytes\": 10", "\"bytes\": 1e3").find("\"bytes\" of 1000.0") != std::string::npos);
  CHECK(changed("\"send\"", "\"sent\"").find("a direction \"sent\"; send or recv") != std::string::npos);
  CHECK(changed("\"host\": \"even\"", "\"host\": 5").find("has a \"host\" that is no text") != std::string::npos);
}

TEST_CASE("files of ranks become one map, whatever their order, and two that contradict are refused") {
  const Comm all = ring_of(4, 100);
  const auto only = [&](std::vector<int> ranks) {
    Comm c = all;
    std::erase_if(c.ranks, [&](const auto &r) { return std::find(ranks.begin(), ranks.end(), r.first) == ranks.end(); });
    return Map{c};
  };
  Map forward, backward;
  for (int r = 0; r < 4; r++) {
    REQUIRE(merge(forward, only({r}), "f").ok());
    REQUIRE(merge(backward, only({3 - r}), "f").ok());
  }
  REQUIRE(merge(forward, {ring_of(2, 5, "00")}, "other").ok());
  REQUIRE(merge(backward, {ring_of(2, 5, "00")}, "other").ok());
  CHECK(to_json(forward) == to_json(backward));
  REQUIRE(forward.size() == 2);
  CHECK(forward[1].ranks == all.ranks);
  CHECK(merge(forward, only({2}), "same").ok()); // the same twice does no harm
  Map changed = only({2});
  changed[0].ranks[2].operations++;
  CHECK(merge(forward, changed, "g.json").error().message ==
        "g.json: rank 2 of communicator a1 was in another file already, with other counts");
  CHECK(merge(forward, {ring_of(5, 1)}, "g.json").error().message ==
        "g.json: communicator a1 has 5 ranks here and 4 elsewhere");
}

TEST_CASE("what moved between two ranks is what the receiver counted, or the sender where the receiver is missing") {
  Comm c = ring_of(4, 100);
  c.ranks[1].links[0].counts.bytes = 130; // 30 more than rank 2 has got
  c.ranks.erase(3);
  const Pairs pairs(c);
  CHECK(bytes_of(pairs, 0, 1) == 100);
  CHECK(bytes_of(pairs, 1, 2) == 100);
  CHECK(bytes_of(pairs, 2, 3) == 100); // told by rank 2
  CHECK(bytes_of(pairs, 3, 0) == 100); // told by rank 0
  CHECK(bytes_of(pairs, 1, 0) == 0);
  CHECK(pairs.unequal() == 1);
  CHECK(pairs.sent() == std::vector<uint64_t>{100, 100, 100, 100});
  CHECK(missing(c) == std::vector<int>{3});
  CHECK(by_host(c) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("what is written once for several readers counts for each of them and is told apart") {
  Comm c;
  c.id = "m", c.nranks = 3;
  c.ranks[0] = part_of("h", {end_of(0, true, 50, 2)});
  c.ranks[1] = part_of("h", {end_of(0, false, 50, 2)});
  c.ranks[2] = part_of("h", {end_of(0, false, 50, 2)});
  const Pairs pairs(c);
  CHECK(pairs.written_once() == 50);
  CHECK(pairs.sent() == std::vector<uint64_t>{100, 0, 0});
  CHECK(pairs.unequal() == 0);
  c.ranks.erase(2);
  CHECK(bytes_of(Pairs(c), 0, 2) == 50);
}

TEST_CASE("an imbalance is the largest over the mean, and names who") {
  CHECK(imbalance(std::vector<uint64_t>{4, 4, 4}).ratio == 1);
  const Imbalance one = imbalance(std::vector<uint64_t>{0, 12, 0, 4});
  CHECK(one.ratio == 3);
  CHECK(one.most == 1);
  CHECK(imbalance(std::vector<uint64_t>{0, 0}).ratio == 0);
  CHECK(imbalance(std::vector<uint64_t>{0, 0}).most == -1);
  const Imbalance ring = imbalance(Pairs(ring_of(8, 10)));
  CHECK(ring.ratio == 7); // 8 of 56 pairs
  CHECK(ring.most == 0);
  CHECK(ring.to == 1);
}

TEST_CASE("what moved in between is the difference of two states, and adds up") {
  RankPart before = part_of("h", {end_of(1, true, 10)}), after = before;
  after.operations = 5;
  after.links[0].counts += Counts{2, 20, 148, 0};
  after.links.push_back(end_of(1, false, 7));
  subtract(after, before);
  CHECK(after.operations == 2);
  REQUIRE(after.links.size() == 2);
  CHECK(after.links[0].counts == Counts{2, 20, 148, 0});
  RankPart sum = after, idle = before;
  add(sum, after);
  CHECK(sum.links[0].counts.bytes == 40);
  CHECK(sum.links[1].counts.bytes == 14);
  subtract(idle, before);
  CHECK(idle.links.empty());
}

TEST_CASE("a heat map has a square per pair, names, hosts and the imbalance, and is the same for the same map") {
  const std::string svg = drawn({ring_of(8, 1835008)});
  CHECK(svg == drawn({ring_of(8, 1835008)}));
  CHECK(svg.find("a &lt;title&gt; &amp; more") != std::string::npos);
  CHECK(count_of(svg, " bytes, 1 messages</title>") == 8);
  CHECK(svg.find("<title>7 to 0: 1835008 bytes, 1 messages</title>") != std::string::npos);
  for (const char *word : {">even<", ">odd<", "sent: 1.00, rank 0", "pairs: 7.00, 0 to 1", ">1.75M<", ">nothing<"})
    CHECK_MESSAGE(svg.find(word) != std::string::npos, word);
  CHECK(svg.find("no file") == std::string::npos);
  Comm lost = ring_of(8, 1835008);
  lost.ranks.erase(5);
  CHECK(drawn({lost}).find("no file of 1 rank<") != std::string::npos);
  const std::string two = drawn({ring_of(2, 5, "00"), ring_of(4, 100, "ff")});
  CHECK(two.find("communicator ff") < two.find("communicator 00")); // more bytes
}

TEST_CASE("heat maps of 2 to 128 ranks keep to a page, and there are limits") {
  for (const int n : {2, 3, 16, 17, 64, 65, 128}) {
    CAPTURE(n);
    const std::string svg = drawn({ring_of(n, 4096)});
    int width = 0, height = 0;
    REQUIRE(std::sscanf(svg.c_str() + svg.find("width="), "width=\"%d\" height=\"%d\"", &width, &height) == 2);
    CHECK(width <= 1500);
    CHECK(height <= 1500);
    CHECK(count_of(svg, "<title>") == static_cast<size_t>(n) + 1);
  }
  CHECK(draw({ring_of(kMostDrawn, 1)}, "").ok());
  CHECK(draw({ring_of(kMostDrawn + 1, 1)}, "").status().error().message.find("too many to draw (limit 512)") !=
        std::string::npos);
  CHECK_FALSE(draw({}, "").ok());
  CHECK(draw({ring_of(2, 0)}, "").status().error().message.find("nothing to draw") != std::string::npos);
}

TEST_CASE("the text has table, imbalance, what carried it and who is missing") {
  Comm c = ring_of(4, 2048);
  c.ranks.erase(2);
  c.ranks[1].state = "failed", c.ranks[1].error = "rank 2 left";
  const std::string text = as_text({c});
  for (const char *word : {"communicator a1: 4 ranks on 2 hosts", "no file of rank 2", "rank 1 failed: rank 2 left",
                           "sent 1.00 (rank 0: 2.00K)", "shm: simple", "  recv  2.00K"})
    CHECK_MESSAGE(text.find(word) != std::string::npos, word << "\n" << text);
  CHECK(as_text({ring_of(40, 1)}).find("the busiest pairs") != std::string::npos);
}

TEST_CASE("bytes are short and have three digits") {
  for (const auto &[bytes, text] : {std::pair(0.0, "0"),
                                    {1, "1"},
                                    {999, "999"},
                                    {1000, "0.98K"},
                                    {1024, "1.00K"},
                                    {10230, "9.99K"},
                                    {10240, "10.0K"},
                                    {1048575, "1.00M"},
                                    {1835008, "1.75M"},
                                    {1e18, "888P"}})
    CHECK(bytes_text(bytes) == text);
}
