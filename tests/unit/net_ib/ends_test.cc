// How endpoints end: too long messages, destroyed ends, dead peers, links that stay down.
#include "stream.h"
#include <cerrno>

using namespace tutti::net_ib;
using namespace tutti::net_ib::test;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

Options seeded(uint64_t seed, size_t rails = 1) {
  Options o;
  o.rails = rails;
  o.seed = seed;
  o.settings = [seed](Settings &s) {
    s.qps_per_connection = 1 + static_cast<uint32_t>(seed % 2);
    s.max_inflight = 8;
  };
  return o;
}

// Destroys one end, checks that its calls are reported once and that nothing is written any more, and that the other end hears
// of it in time.
void leave(World &w, Stream &s, bool sender) {
  const uint64_t received = s.received(), sent = s.sent();
  s.check();
  s.abandon(sender); // from here on its buffers are the test's
  const Time since = w.now;
  CHECK(w.until([&] {
    s.check();
    s.post(); // what is left of it meets a peer that is gone
    return s.ended();
  }));
  if (s.pending(sender)) CHECK(w.now - since < seconds(5));
  CHECK(s.received() >= received);
  CHECK(s.sent() >= sent);
}

} // namespace

TEST_CASE("a message longer than its buffer ends both sides, after those before it, and writes nothing beyond") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    World w(seeded(seed));
    w.connect();
    std::vector<uint8_t> out = pattern(1000, 1), first(1000), in(1000 + 64, 0xa5);
    REQUIRE(w.recv(first.data(), 1000, 1) == TUTTI_OK);
    REQUIRE(w.recv(in.data(), 999, 2) == TUTTI_OK);
    REQUIRE(w.send(out.data(), 1000, 3) == TUTTI_OK);
    REQUIRE(w.send(out.data(), 1000, 4) == TUTTI_OK);
    REQUIRE(w.until([&] { return w.a->has(4); }));
    const Time since = w.now;
    REQUIRE(w.until([&] { return w.b->has(2); }));
    CHECK(w.now - since < milliseconds(500)); // it waits for nothing that cannot come
    CHECK(w.b->status(1) == TUTTI_OK);
    CHECK(first == out);
    CHECK(w.a->status(3) == TUTTI_OK);
    CHECK(w.b->status(2) == TUTTI_ERR_TRUNCATED);
    CHECK(w.a->status(4) == TUTTI_ERR_TRUNCATED);
    CHECK(w.core.error.find("1000 bytes") != std::string::npos);
    CHECK(std::all_of(in.begin(), in.end(), [](uint8_t b) { return b == 0xa5; }));
    CHECK_THROWS_AS(w.send(out.data(), 1, 5), tutti::plugin::Error);
    CHECK_THROWS_AS(w.recv(in.data(), 1, 5), tutti::plugin::Error);
  }
}

TEST_CASE("a receiver that fails tells the sender what has arrived, and no more") {
  constexpr uint64_t n = 6;
  uint64_t unsent = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    World w(seeded(seed));
    w.connect();
    std::vector<std::vector<uint8_t>> out, in(n, std::vector<uint8_t>(50000));
    for (uint64_t i = 0; i < n; ++i) {
      out.push_back(pattern(50000, i + 1));
      REQUIRE(w.recv(in[i].data(), 50000, i) == TUTTI_OK);
      REQUIRE(w.send(out[i].data(), 50000, i) == TUTTI_OK);
    }
    for (uint64_t i = 0; i < seed; ++i) w.turn();
    w.rx->fail(TUTTI_ERR_INTERNAL, "the test wants it");
    REQUIRE(w.until([&] { return w.a->has(n - 1) && w.b->has(n - 1); }));
    for (uint64_t i = 0; i < n; ++i) {
      if (w.b->status(i) == TUTTI_OK) CHECK(in[i] == out[i]);
      if (w.a->status(i) == TUTTI_OK) CHECK(in[i] == out[i]);
      unsent += w.a->status(i) != TUTTI_OK;
    }
  }
  CHECK(unsent > 0); // else nothing was shown
}

TEST_CASE("an end that is destroyed at any moment touches nothing afterwards, and the other end is told") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    World w(seeded(seed, 1 + seed % 2));
    w.connect();
    w.fabric.steps_inside = seed % 3;
    Stream s(w, {1000000, 9000}, seed);
    for (uint64_t i = 0; i < seed % 97; ++i) {
      s.post();
      s.check();
      w.turn();
    }
    leave(w, s, seed % 4 < 2);
  }
}

TEST_CASE("a process that dies at any moment is found, also by an end that only waits") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    World w(seeded(seed, 1 + seed % 2));
    w.connect();
    w.fabric.steps_inside = seed % 3;
    Stream s(w, {1000000, 9000}, seed);
    for (uint64_t i = 0; i < seed % 53; ++i) {
      s.post();
      s.check();
      w.turn();
    }
    const bool sender = seed % 4 < 2;
    w.fabric.kill((sender ? w.a : w.b)->home);
    s.dead(sender);
    const Time since = w.now;
    CHECK(w.until([&] {
      s.check();
      s.post();
      return s.ended();
    }));
    CHECK(s.ending() == TUTTI_ERR_REMOTE);
    CHECK(w.now - since < seconds(5));
  }
}

TEST_CASE("an end that has failed leaves no queue pair that could touch its buffers when it is destroyed") {
  World w;
  w.connect();
  for (int i = 0; i < 100; ++i) w.turn();
  w.rx->fail(TUTTI_ERR_INTERNAL, "the test wants it");
  w.rx.reset();
  CHECK(w.fabric.queue_pairs(w.b->device(0)).size() == 1); // that of the farewell
}

TEST_CASE("a context whose completions cannot be polled any more is destroyed all the same") {
  World w;
  w.connect();
  w.tx.reset(); // its farewell is under way
  Machine &home = w.a->home;
  home.faults.push_back({"poll_cq", 1, EIO});
  w.a.reset();
  CHECK(home.faults.empty());
  CHECK(w.fabric.queue_pairs(home.devices[0]).empty());
}

TEST_CASE("a quiet endpoint is destroyed without a word of completions") {
  World w;
  w.connect();
  w.tx.reset();
  w.rx.reset();
  for (int i = 0; i < 100; ++i) w.turn();
  CHECK(w.a->done.empty());
  CHECK(w.b->done.empty());
}

TEST_CASE("a port that is down for too long is an error that names it, and one that returns in time is none") {
  for (const bool returns : {true, false}) {
    World w;
    w.connect();
    std::vector<uint8_t> out = pattern(100, 1), in(100);
    for (int i = 0; i < 200; ++i) w.turn();
    w.fabric.set_link(w.a->device(0), 0, false);
    for (int i = 0; i < 200; ++i) w.turn();
    REQUIRE(w.send(out.data(), 100, 1) == TUTTI_OK);
    REQUIRE(w.recv(in.data(), 100, 2) == TUTTI_OK);
    if (returns) {
      w.fabric.set_link(w.a->device(0), 0, true);
      REQUIRE(w.until([&] { return w.a->has(1) && w.b->has(2); }));
      CHECK(w.a->status(1) == TUTTI_OK);
      CHECK(in == out);
    } else {
      REQUIRE(w.until([&] { return w.a->has(1); }));
      CHECK(w.a->status(1) == TUTTI_ERR_TIMEOUT);
      CHECK_THROWS_WITH(w.tx->ready(), doctest::Contains("a0:1"));
      CHECK_THROWS_WITH(w.tx->ready(), doctest::Contains("down"));
    }
  }
}

TEST_CASE("endpoints beside one that ends go on") {
  World w;
  std::unique_ptr<Endpoint> tx, rx;
  w.connect(tx, rx);
  w.connect();
  rx.reset();
  std::vector<uint8_t> out = pattern(50000, 1), in(50000);
  REQUIRE(w.recv(in.data(), in.size(), 1) == TUTTI_OK);
  REQUIRE(w.send(out.data(), out.size(), 2) == TUTTI_OK);
  CHECK(w.until([&] { return w.a->has(2) && w.b->has(1); }));
  CHECK(in == out);
}

// Two endpoints of a context fail before either is collected.
TEST_CASE("a call that failed is told with its own endpoint's reason, whatever has failed since") {
  World w(seeded(1));
  std::unique_ptr<Endpoint> tx, rx;
  w.connect(tx, rx);
  w.connect();
  std::vector<uint8_t> out = pattern(2000, 1), in(2000);
  const tutti_net_buf part[] = {w.b->buf(in.data(), 10), w.b->buf(in.data() + 1000, 20)};
  const tutti_net_buf long_part[] = {w.a->buf(out.data(), 700), w.a->buf(out.data(), 900)};
  REQUIRE(rx->recv(&part[0], 1, nullptr, 1) == TUTTI_OK);
  REQUIRE(w.rx->recv(&part[1], 1, nullptr, 2) == TUTTI_OK);
  REQUIRE(tx->send(&long_part[0], 1, 3) == TUTTI_OK);
  REQUIRE(w.tx->send(&long_part[1], 1, 4) == TUTTI_OK);
  std::map<uint64_t, std::string> why;
  const auto collect = [&](Context &ctx) {
    tutti_net_completion done[16];
    const int32_t n = ctx.progress(done, 16);
    for (int32_t i = 0; i < n; i++)
      if (done[i].status < 0) why[done[i].cookie] = w.core.last;
  };
  for (int turn = 0; turn < 20'000 && why.size() < 4; turn++) {
    w.now += milliseconds(1);
    w.fabric.step();
    if (turn % 50 == 0) collect(*w.b->ctx); // seldom, so that both have failed by then
    if (turn % 50 == 0) collect(*w.a->ctx);
  }
  REQUIRE(why.size() == 4);
  CHECK_MESSAGE(why[3].find("700 bytes") != std::string::npos, why[3]);
  CHECK_MESSAGE(why[4].find("900 bytes") != std::string::npos, why[4]);
}
