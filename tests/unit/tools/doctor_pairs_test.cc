// Who tests whom, what the two ends of a test say, and what is made of the results.
#include "doctor_tree.h"
#include "tools/doctor/listener.h"
#include "tools/doctor/pairs.h"
#include "tools/doctor/remote.h"
#include <nlohmann/json.hpp>
#include <set>

using namespace tutti;
using namespace tutti::doctor;

TEST_CASE("in a tournament everybody meets everybody once, and nobody is in two tests at once") {
  for (int n = 2; n <= 17; n++) {
    std::set<std::pair<int, int>> met;
    for (int r = 0; r < rounds(n); r++)
      for (int i = 0; i < n; i++) {
        const int other = opponent(n, r, i);
        if (other < 0) continue;
        REQUIRE(other != i);
        REQUIRE(opponent(n, r, other) == i);
        if (i < other) CHECK(met.emplace(i, other).second);
      }
    CHECK(met.size() == static_cast<size_t>(n * (n - 1) / 2));
  }
  CHECK(rounds(1) == 0);
}

namespace {

std::shared_ptr<const Config> loopback_config(const std::string &ports = "0") {
  auto c = Config::from(
      "", "", {{"TUTTI_SOCKET_IFNAME", "=lo"}, {"TUTTI_SOCKET_FAMILY", "AF_INET"}, {"TUTTI_SOCKET_PORT_RANGE", ports}});
  REQUIRE(c.ok());
  return *c;
}

Place place(const std::string &interface, const std::string &address, int64_t mtu = 1500) {
  Place p;
  p.interface = interface;
  p.address = address;
  p.prefix = 24;
  p.port = 4711;
  p.mtu = mtu;
  p.speed_mbps = 10'000;
  return p;
}

PairsReport three_hosts() {
  PairsReport r;
  for (int h = 0; h < 3; h++) {
    HostReport host;
    host.name = std::string(1, static_cast<char>('a' + h));
    host.present = true;
    host.facts = {{"kernel", "6.1", Level::note, "why", ""}};
    host.places = {place("eth0", "10.0.0." + std::to_string(h + 1))};
    r.hosts.push_back(host);
    r.ranks.push_back({h});
  }
  for (int a = 0; a < 3; a++)
    for (int b = 0; b < 3; b++) {
      if (a == b) continue;
      PairResult p;
      p.from = a;
      p.to = b;
      Attempt t;
      t.reach = Reach::ok;
      p.attempts.push_back(std::move(t));
      if (a < b) {
        p.measured = Measured{20, 1.0, 1.0, 0.001, 0.01, 1500, 0, ""};
        p.used = 0;
      }
      r.pairs.push_back(std::move(p));
    }
  r.rounds = r.done = 3;
  return r;
}

PairResult &pair(PairsReport &r, int a, int b) {
  return *std::find_if(r.pairs.begin(), r.pairs.end(), [&](const PairResult &p) { return p.from == a && p.to == b; });
}

void block(PairsReport &r, int a, int b, Reach reach, int err) {
  pair(r, a, b).attempts[0].reach = reach;
  pair(r, a, b).attempts[0].err = err;
}

} // namespace

TEST_CASE("three hosts that are alike and reach each other give nothing but what is ok") {
  const Findings f = judge(three_hosts());
  for (const Finding &one : f.all()) {
    INFO(one.id, ": ", one.seen);
    CHECK(one.level == Level::ok);
  }
}

TEST_CASE("one direction that is dropped is told as such, a host that nobody reaches once") {
  PairsReport r = three_hosts();
  block(r, 0, 1, Reach::timed_out, ETIMEDOUT);
  Findings f = judge(r);
  CHECK(f.count(Level::error) == 1);
  CHECK(f.find("pairs.timed_out")->seen ==
        "a to b: no answer (eth0 10.0.0.1 -> 10.0.0.2 port 4711: Connection timed out); the other direction works");
  block(r, 0, 1, Reach::refused, ECONNREFUSED);
  block(r, 2, 1, Reach::refused, ECONNREFUSED);
  f = judge(r);
  CHECK(f.count(Level::error) == 1);
  CHECK(f.find("pairs.refused")->seen.find("nobody reaches b: refused") == 0);
  r = three_hosts();
  block(r, 1, 0, Reach::no_route, EHOSTUNREACH);
  block(r, 1, 2, Reach::no_route, EHOSTUNREACH);
  CHECK(judge(r).find("pairs.no_route")->seen.find("b reaches nobody") == 0);
}

TEST_CASE("facts that differ name who has what, what most have first") {
  PairsReport r = three_hosts();
  r.hosts[1].facts[0].value = "5.15";
  r.hosts[1].facts.push_back({"setting coll.algo", "\"ring\"", Level::error, "why", "fix"});
  r.hosts[0].facts.push_back({"setting coll.algo", "\"\"", Level::error, "why", "fix"});
  const Findings f = judge(r);
  CHECK(f.find("differs.kernel")->seen == "kernel differs: 6.1 on a, c, 5.15 on b");
  CHECK(f.find("differs.kernel")->level == Level::note);
  CHECK(f.find("differs.setting_coll.algo")->level == Level::error);
}

TEST_CASE("a slow host is one finding, a slow pair another, a slow direction a third") {
  PairsReport r = three_hosts();
  pair(r, 0, 2).measured->in_gbs = 0.1;
  pair(r, 1, 2).measured->out_gbs = 0.2;
  Findings f = judge(r);
  CHECK(f.count(Level::warning) == 1);
  CHECK(f.find("pairs.slow_host")->seen.find("all pairs of c are slow: 0.100 GB/s of 1.000") == 0);
  pair(r, 1, 2).measured->out_gbs = 1;
  f = judge(r);
  CHECK(f.find("pairs.slow_host") == nullptr);
  CHECK(f.find("pairs.slow")->seen.find("a and c: 0.100 GB/s of 1.000") == 0);
  r = three_hosts();
  for (PairResult &p : r.pairs)
    if (p.measured) p.measured->out_gbs = 4;
  CHECK(judge(r).find("pairs.one_way") != nullptr);
  r = three_hosts();
  pair(r, 0, 1).measured->latency_us = 500;
  CHECK(judge(r).find("pairs.slow")->seen.find("500 us instead of 20") != std::string::npos);
}

TEST_CASE("packets that do not fit, large messages that stall, and clocks that differ") {
  PairsReport r = three_hosts();
  pair(r, 0, 1).measured->datagram_mtu = 1280;
  pair(r, 0, 1).measured->datagram_lost = 1400;
  CHECK(judge(r).find("pairs.mtu")->level == Level::warning);
  pair(r, 0, 1).measured->problem = "large messages: nothing moved in time";
  pair(r, 0, 1).measured->out_gbs = -1;
  CHECK(judge(r).find("pairs.large_messages")->fix.find("mtu 1280") != std::string::npos);
  pair(r, 1, 2).measured->clock_ms = -90'000;
  CHECK(judge(r).find("clock.offset")->level == Level::warning);
}

TEST_CASE("hosts that share an address, take no part, or cannot listen are named") {
  PairsReport r = three_hosts();
  r.hosts[2].places[0].address = "10.0.0.1";
  CHECK(judge(r).find("pairs.same_address")->level == Level::error);
  r.hosts[1].present = false;
  CHECK(judge(r).find("pairs.absent")->seen == "b: it takes no part");
  r.done = 1;
  CHECK(judge(r).find("pairs.not_all") != nullptr);
}

TEST_CASE("findings that several hosts have alike are said once, with the hosts") {
  PairsReport r = three_hosts();
  for (HostReport &h : r.hosts) h.findings.add(Level::warning, "tcp.somaxconn", "net.core.somaxconn: 16", "why", "fix");
  const Findings f = judge(r);
  CHECK(f.count(Level::warning) == 1);
  CHECK(f.find("tcp.somaxconn")->hosts == std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE("what a host says survives the way, and what is no report is a host that takes no part") {
  const doctor_test::MadeUp files("good.tree");
  Host host;
  host.files = files.tree();
  Findings f;
  f.add(Level::error, "a.b", "seen", "why", "fix");
  const HostReport r = report_from(report_text("n1", host, {place("eth0", "10.0.0.1")}, "", f));
  CHECK(r.present);
  CHECK(r.name == "n1");
  REQUIRE(r.places.size() == 1);
  CHECK(r.places[0].address == "10.0.0.1");
  CHECK(r.findings.count(Level::error) == 1);
  CHECK_FALSE(r.facts.empty());
  for (const char *bad :
       {"", "[]", "{}", "{\"name\": 3}", "{\"name\":\"a\",\"problem\":\"\",\"facts\":[1],\"places\":[],\"findings\":[]}"})
    CHECK_FALSE(report_from(bad).present);
  auto said = nlohmann::json::parse(
      R"({"interface":"e","address":"10.0.0.1","prefix":32,"port":1,"datagrams":1,"mtu":1,"speed":1,"made":false})");
  CHECK(place_from(said));
  said["prefix"] = 33;
  CHECK_FALSE(place_from(said));
  said["prefix"] = 1;
  said["address"] = "no";
  CHECK_FALSE(place_from(said));
}

TEST_CASE("a listener answers who knows the key, measures, and turns others away") {
  boot::Secret key{}, other{};
  boot::random_bytes(key);
  auto listener = Listener::open(*loopback_config(), key, 1);
  REQUIRE(listener.ok());
  const auto places = (*listener)->places();
  REQUIRE(places.size() == 1);
  auto attempts = try_all(places, places, key, 0, 1, std::chrono::seconds(5));
  REQUIRE(attempts.size() == 1);
  REQUIRE(attempts[0].reach == Reach::ok);
  const Measured m =
      measure(attempts[0], places[0], places[0], key, std::chrono::milliseconds(10), Deadline::in(std::chrono::seconds(20)));
  CHECK(m.problem.empty());
  CHECK(m.latency_us > 0);
  CHECK(m.out_gbs > 0);
  CHECK(m.in_gbs > 0);
  CHECK(m.datagram_mtu > 1500); // of loopback
  CHECK(std::abs(m.clock_ms) < 1000);
  CHECK(try_all(places, places, other, 0, 1, std::chrono::seconds(2))[0].reach == Reach::stranger); // another key
  CHECK(try_all(places, places, key, 0, 2, std::chrono::seconds(2))[0].reach == Reach::stranger);   // another rank
  listener->reset();
  CHECK(try_all(places, places, key, 0, 1, std::chrono::seconds(2))[0].reach == Reach::refused);
}

TEST_CASE("a listener keeps to the range of ports, and says when it is full") {
  boot::Secret key{};
  auto first = Listener::open(*loopback_config("47231-47231"), key, 0);
  REQUIRE(first.ok());
  CHECK((*first)->places()[0].port == 47231);
  const auto second = Listener::open(*loopback_config("47231-47231"), key, 1);
  REQUIRE_FALSE(second.ok());
  CHECK(second.status().error().message.find("47231") != std::string::npos);
}

TEST_CASE("datagrams prove that their sender has the key") {
  boot::Secret key{}, other{};
  boot::random_bytes(key);
  std::array<std::byte, 16> nonce{};
  auto d = make_datagram(key, nonce, 1000);
  CHECK(d.size() == 1000);
  CHECK(datagram_proved(key, d));
  CHECK_FALSE(datagram_proved(other, d));
  d[20] ^= std::byte{1};
  CHECK_FALSE(datagram_proved(key, d));
  CHECK_FALSE(datagram_proved(key, std::span(d).first(30)));
}

TEST_CASE("hosts come from lists with ranges and from files, in their order") {
  const doctor_test::MadeUp files("");
  files.write("/hosts", "# ours\nn1 slots=4\n\nn[3-4] # more\n");
  const auto hosts = hosts_of("m[01-02],x", files.tree().path("/hosts"));
  REQUIRE(hosts.ok());
  CHECK(*hosts == std::vector<std::string>{"m01", "m02", "x", "n1", "n3", "n4"});
  files.write("/bad", "n1\nn[3-\n");
  const auto bad = hosts_of("", files.tree().path("/bad"));
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.status().error().message.find("/bad:2: ") != std::string::npos);
}

TEST_CASE("host names and programs that a shell would take for something else are refused") {
  Findings own;
  for (const char *name : {"-oProxyCommand=x", "a;b", "a b", "$(x)", ""}) {
    RemoteOptions o;
    o.hosts = {name, "b"};
    o.program = "tutti";
    const auto r = ask_hosts(o, &own);
    REQUIRE_FALSE(r.ok());
    CHECK(r.status().code() == Code::invalid_argument);
  }
}
