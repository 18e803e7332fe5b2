// Connections that are made: of unlike ends, with calls that fail, with devices that have little.
#include "world.h"
#include <cerrno>
#include <cstddef>
#include <poll.h>

using namespace tutti::net_ib;
using namespace tutti::net_ib::test;
using tutti::plugin::Address;
using tutti::plugin::Error;
using tutti::plugin::fail;

namespace {

// Its status at the receiver.
tutti_status try_message(World &w, size_t bytes) {
  std::vector<uint8_t> out = pattern(bytes, 1), in(bytes);
  w.a->done.clear(), w.b->done.clear();
  REQUIRE(w.recv(in.data(), bytes, 1) == TUTTI_OK);
  REQUIRE(w.send(out.data(), bytes, 2) == TUTTI_OK);
  REQUIRE(w.until([&] { return w.b->has(1) && w.a->has(2); }));
  if (w.b->status(1) == TUTTI_OK) CHECK(in == out);
  return w.b->status(1);
}
void one_message(World &w, size_t bytes = 5000) {
  CHECK(try_message(w, bytes) == TUTTI_OK);
}

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) > 0;
}

} // namespace

TEST_CASE("any verbs call may fail once: an error with its reason, or no harm, and nothing stays behind") {
  const std::pair<const char *, int> faults[] = {
      {"create_qp", ENOMEM}, {"to_init", EINVAL},   {"to_rtr", ETIMEDOUT}, {"to_rtr", EINVAL},    {"to_rts", EINVAL},
      {"reg_mr", ENOMEM},    {"create_cq", ENOMEM}, {"resize_cq", ENOMEM}, {"post_recv", ENOMEM}, {"post_send", ENOMEM}};
  for (const auto &[call, err] : faults)
    for (int nth = 1; nth <= (std::string(call) == "reg_mr" ? 1 : 5); ++nth) // the window; messages are registered later
      for (const bool sender : {true, false}) {
        const std::string what = tutti::plugin::text(call, " ", nth, sender ? " of a" : " of b");
        CAPTURE(what);
        Options o;
        o.seed = static_cast<uint64_t>(nth);
        World w(o);
        (sender ? w.a : w.b)->home.faults.push_back({call, nth, err});
        Address addr, answer;
        std::string error;
        try {
          std::unique_ptr<Listener> listener = w.b->ctx->listen(addr);
          w.tx = w.a->ctx->connect(addr, answer);
          w.rx = listener->accept(answer);
          w.until([&] {
            const bool r = w.rx->ready(), t = w.tx->ready();
            return r && t;
          });
          if (try_message(w, 100) != TUTTI_OK) fail(TUTTI_ERR_REMOTE, w.core.error);
        } catch (const Error &e) {
          error = e.what();
          CHECK(error.find(sender ? "a0" : "b0") != std::string::npos);
        }
        if (err == ETIMEDOUT) CHECK(error.empty()); // a neighbour that was not known yet
        w.tx.reset();
        w.rx.reset();
        (sender ? w.a : w.b)->home.faults.clear();
        for (int i = 0; i < 50; ++i) w.turn();
        w.a->done.clear(), w.b->done.clear();
        w.connect();
        one_message(w);
      }
}

TEST_CASE("memory that cannot be pinned is an error that names the limit") {
  World w;
  w.a->home.faults.push_back({"reg_mr", 1, ENOMEM});
  std::vector<uint8_t> memory(4096);
  CHECK_THROWS_WITH_AS(w.a->buf(memory.data(), 4096), doctest::Contains("ulimit -l"), Error);
  w.a->buf(memory.data(), 4096);
}

TEST_CASE("ends with unlike numbers of rails, queue pairs and calls connect") {
  for (const size_t a_rails : {1u, 2u, 3u})
    for (const size_t b_rails : {1u, 2u, 3u}) {
      CAPTURE(a_rails);
      CAPTURE(b_rails);
      Options o;
      o.rails = 3;
      World w(o);
      Settings s = w.settings;
      s.qps_per_connection = static_cast<uint32_t>(a_rails);
      s.max_inflight = 8 + static_cast<uint32_t>(a_rails) * 8;
      w.rebuild(w.a, a_rails, s);
      s.qps_per_connection = 2;
      s.max_inflight = 11;
      w.rebuild(w.b, b_rails, s);
      // Rails of one name are joined by one network; here any port reaches any other.
      w.connect();
      for (const size_t bytes : {0u, 10u, 5000u, 100000u, 1u << 20}) one_message(w, bytes);
      w.tx.reset(), w.rx.reset();
    }
}

TEST_CASE("sixty-four queue pairs carry one message, and as many messages") {
  Options o;
  o.rails = 2;
  o.settings = [](Settings &s) { s.qps_per_connection = 64; };
  World w(o);
  w.connect();
  for (int i = 0; i < 5; ++i) one_message(w, (1 << 20) + 3);
  CHECK(w.fabric.overflows == 0);
}

TEST_CASE("completion queues hold the worst case of many endpoints, whether they can be resized or not") {
  for (const bool resizes : {true, false})
    for (const bool purges : {true, false}) {
      Options o;
      o.fabric = [&](Fabric &f) {
        for (Machine &m : f.hosts)
          for (DoubleDevice &d : m.devices) d.resizes = resizes, d.purges = purges, d.max_cqe = 700;
      };
      World w(o);
      std::vector<std::unique_ptr<Endpoint>> tx(12), rx(12);
      for (size_t round = 0; round < 3; ++round) {
        for (size_t i = 0; i < tx.size(); ++i) w.connect(tx[i], rx[i]);
        for (auto &ep : tx) // everything posted is flushed at once
          for (const uint32_t qpn : w.fabric.queue_pairs(w.a->device(0))) static_cast<void>(ep), w.fabric.break_qp(qpn);
        for (const uint32_t qpn : w.fabric.queue_pairs(w.b->device(0))) w.fabric.break_qp(qpn);
        w.fabric.run(100000); // while nobody looks
        CHECK(w.fabric.overflows == 0);
        for (auto &ep : tx) ep.reset();
        for (auto &ep : rx) ep.reset();
      }
      for (int i = 0; i < 100; ++i) w.turn();
    }
}

TEST_CASE("what is no address, or the answer to another listener, is refused") {
  World w;
  Address addr, answer, other, garbage;
  std::unique_ptr<Listener> first = w.b->ctx->listen(addr), second = w.b->ctx->listen(other);
  garbage.size = sizeof garbage.bytes;
  CHECK_THROWS_AS(w.a->ctx->connect(garbage, answer), Error);
  garbage = addr;
  garbage.bytes[100] ^= 1;
  CHECK_THROWS_AS(w.a->ctx->connect(garbage, answer), Error);
  w.tx = w.a->ctx->connect(addr, answer);
  CHECK_THROWS_AS(second->accept(answer), Error);
  w.rx = first->accept(answer);
  CHECK(w.rx);
  CHECK_THROWS_AS(first->accept(answer), Error);
}

TEST_CASE("an address with numbers that cannot be is refused, whoever made it") {
  World w;
  Address addr;
  const std::unique_ptr<Listener> listener = w.b->ctx->listen(addr);
  const Card good = addr.get<Card>();
  REQUIRE(genuine(good));
  const auto refused = [&](auto &&change) {
    Card card = good;
    change(card);
    seal(card);
    return !genuine(card);
  };
  CHECK(refused([](Card &c) { c.paths = c.active = 1, c.queues = 100; }));
  CHECK(refused([](Card &c) { c.ports = c.paths = 8, c.queues = 8; }));
  CHECK(refused([](Card &c) { c.queues = 0; }));
  CHECK(refused([](Card &c) { c.active = 0; }));
  CHECK(refused([](Card &c) { c.active = 2; }));
  CHECK(refused([](Card &c) { c.ports = 9; }));
  CHECK(refused([](Card &c) { c.path_port[0] = 1; }));
  CHECK(refused([](Card &c) { c.messages = 0; }));
  CHECK(refused([](Card &c) { c.messages = max_calls * max_batch + 1; }));
  CHECK(refused([](Card &c) { c.piece = 100; }));
  CHECK(refused([](Card &c) { c.port[0].mtu = 6; }));
}

TEST_CASE("addresses of chance are refused, or connect to nobody without harm") {
  World w;
  Address addr, answer;
  const std::unique_ptr<Listener> listener = w.b->ctx->listen(addr);
  const auto byte = [&] { return static_cast<uint8_t>(w.fabric.random()); };
  int taken = 0;
  for (int i = 0; i < 2000; ++i) {
    Card card = addr.get<Card>();
    auto *bytes = reinterpret_cast<uint8_t *>(&card);
    if (i % 2)
      for (size_t k = 0; k < sizeof card; ++k) bytes[k] = byte();
    else
      for (int k = 0; k < 3; ++k) bytes[w.fabric.below(k ? sizeof card : offsetof(Card, rkey))] = byte();
    seal(card);
    if (!genuine(card)) continue;
    Address odd;
    odd.set(card);
    try {
      std::unique_ptr<Endpoint> ep = w.a->ctx->connect(odd, answer);
      for (int k = 0; k < 3; ++k) w.turn();
      const bool ready = ep->ready();
      CHECK_FALSE(ready);
    } catch (const Error &) { // ports that do not fit this side's
    }
    ++taken;
  }
  CHECK(taken > 100);
  for (int i = 0; i < 3000; ++i) w.turn(); // until those farewells are over
}

TEST_CASE("a peer that never accepts is an error after connect_timeout that names both ports") {
  World w;
  Address addr, answer;
  std::unique_ptr<Listener> listener = w.b->ctx->listen(addr);
  w.tx = w.a->ctx->connect(addr, answer);
  std::string error;
  CHECK(w.until(
      [&] {
        try {
          if (w.tx->ready()) return true;
        } catch (const Error &e) {
          CHECK(e.code() == TUTTI_ERR_TIMEOUT);
          error = e.what();
        }
        return !error.empty();
      },
      40000));
  CHECK(error.find("a0:1") != std::string::npos);
  CHECK(error.find("::ffff:10.1.0.2") != std::string::npos);
}

TEST_CASE("a connect_timeout as long as can be is no deadline in the past") {
  Options o;
  o.settings = [](Settings &s) { s.connect_timeout = s.link_down_timeout = std::chrono::nanoseconds::max(); };
  World w(o);
  w.connect();
  one_message(w);
}

TEST_CASE("a spare port takes over when no other works, and gives way when one does again") {
  Options o;
  o.spares = 1;
  World w(o);
  w.connect();
  one_message(w);
  const uint64_t before = w.a->home.calls["create_qp"];
  w.fabric.set_link(w.b->device(0), 0, false);
  for (int i = 0; i < 10; ++i) one_message(w);
  w.fabric.set_link(w.b->device(0), 0, true);
  CHECK(w.until(
      [&] {
        one_message(w);
        return w.core.log.find("works again") != std::string::npos;
      },
      3000));
  CHECK(static_cast<uint64_t>(w.a->home.calls["create_qp"]) > before);
}

TEST_CASE("registered memory of the peer is read from either end, within its bounds") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Options o;
    o.rails = 1 + seed % 2;
    o.seed = seed;
    World w(o);
    w.connect();
    std::vector<uint8_t> there = pattern(300000, seed), here(300000), mine(300000);
    for (const bool from_sender : {true, false}) {
      Process &owner = from_sender ? *w.a : *w.b, &reader = from_sender ? *w.b : *w.a;
      Endpoint &ep = from_sender ? *w.rx : *w.tx;
      std::fill(here.begin(), here.end(), uint8_t{0});
      owner.buf(there.data(), there.size());
      tutti::plugin::NetKey key;
      owner.mrs.back()->key(key);
      const auto at = reinterpret_cast<uint64_t>(there.data());
      const tutti_net_buf all = reader.buf(here.data(), here.size());
      reader.done.clear();
      uint64_t cookie = 0;
      for (size_t done = 0; done < here.size();) {
        const size_t n = std::min<size_t>(here.size() - done, 1 + w.fabric.below(60000));
        const tutti_net_buf part{here.data() + done, n, all.mr, 0};
        if (ep.get(part, at + done, key, cookie) != TUTTI_OK) {
          w.turn();
          continue;
        }
        ++cookie;
        done += n;
        if (o.rails == 2 && seed % 3 == 0 && w.fabric.below(4) == 0) {
          const std::vector<uint32_t> list = w.fabric.queue_pairs(reader.device(0));
          if (!list.empty()) w.fabric.break_qp(list[w.fabric.below(list.size())]);
        }
      }
      CHECK(w.until([&] { return reader.done.size() == cookie; }));
      for (uint64_t c = 0; c < cookie; ++c) CHECK(reader.status(c) == TUTTI_OK);
      CHECK(here == there);
      REQUIRE(ep.get({here.data(), 10, all.mr, 0}, at + there.size() - 9, key, 5000) == TUTTI_OK);
      CHECK(w.until([&] { return reader.has(5000); }));
      CHECK(reader.status(5000) == TUTTI_ERR_INVALID);
    }
  }
}

TEST_CASE("a read of more pieces than a queue pair takes is refused, and one of as many is not") {
  Options o;
  o.fabric = [](Fabric &f) {
    for (Machine &m : f.hosts) m.devices[0].ports[0].largest = 4096;
  };
  World w(o);
  w.connect();
  constexpr size_t most = size_t{max_pieces} * 4096;
  std::vector<uint8_t> there = pattern(most + 1, 1), here(most + 1);
  w.a->buf(there.data(), there.size());
  tutti::plugin::NetKey key;
  w.a->mrs.back()->key(key);
  const tutti_net_buf all = w.b->buf(here.data(), here.size());
  const auto at = reinterpret_cast<uint64_t>(there.data());
  REQUIRE(w.rx->get({here.data(), most + 1, all.mr, 0}, at, key, 1) == TUTTI_OK);
  REQUIRE(w.rx->get({here.data(), most, all.mr, 0}, at, key, 2) == TUTTI_OK);
  REQUIRE(w.until([&] { return w.b->has(1) && w.b->has(2); }));
  CHECK(w.b->status(1) == TUTTI_ERR_INVALID);
  CHECK_MESSAGE(w.core.last.find("the largest has") != std::string::npos, w.core.last);
  CHECK(w.b->status(2) == TUTTI_OK);
  CHECK(std::equal(here.begin(), here.begin() + most, there.begin()));
}

TEST_CASE("one small message is one packet each way, and a megabyte has little beside itself") {
  World w;
  w.connect();
  for (int i = 0; i < 300; ++i) w.turn();
  const uint64_t before = w.fabric.letters;
  one_message(w, 100);
  CHECK(w.fabric.letters - before == 2); // the credit and the message
  const uint64_t letters = w.fabric.letters, bytes = w.fabric.wire_bytes;
  one_message(w, 1 << 20);
  CHECK(w.fabric.letters - letters == 2);
  CHECK(w.fabric.wire_bytes - bytes < (1 << 20) * 107 / 100); // packets of 1024 bytes here
}

TEST_CASE("of sixteen buffers that are posted again one by one the sender is told a dozen at a time") {
  World w;
  w.connect();
  for (int i = 0; i < 300; ++i) w.turn();
  constexpr uint64_t posted = 16, messages = 480;
  std::vector<uint8_t> out = pattern(100, 1), in(posted * 100);
  const tutti_net_buf from = w.a->buf(out.data(), out.size()), all = w.b->buf(in.data(), in.size());
  const uint64_t before = w.fabric.letters;
  const auto post = [&](uint64_t k) {
    const tutti_net_buf to{in.data() + k % posted * 100, 100, all.mr, k};
    return w.rx->recv(&to, 1, nullptr, k);
  };
  for (uint64_t k = 0; k < posted; ++k) REQUIRE(post(k) == TUTTI_OK);
  for (uint64_t k = 0; k < messages; ++k) {
    REQUIRE(w.tx->send(&from, 1, k) == TUTTI_OK);
    REQUIRE(w.until([&] { return w.a->has(k) && w.b->has(k); }));
    REQUIRE(post(k + posted) == TUTTI_OK);
  }
  // Beside those that end a lap of the ring of credits, and those of the first buffers, which do not wait for others.
  CHECK(w.fabric.letters - before <= messages + messages / 12 + 4 + 4);
}

TEST_CASE("a sleeper is woken by what arrives") {
  World w;
  w.connect();
  for (int i = 0; i < 100; ++i) w.turn();
  std::vector<uint8_t> out = pattern(100, 1), in(100);
  REQUIRE(w.recv(in.data(), 100, 1) == TUTTI_OK);
  w.fabric.run(1000);
  while (!w.b->ctx->arm()) w.b->progress();
  CHECK(!readable(w.b->ctx->event_fd()));
  REQUIRE(w.send(out.data(), 100, 2) == TUTTI_OK);
  for (int i = 0; i < 1000 && !w.a->has(2); ++i) {
    w.a->progress();
    w.fabric.run(10);
  }
  CHECK(readable(w.b->ctx->event_fd()));
  while (!w.b->has(1)) w.b->progress();
  CHECK(in == out);
}
