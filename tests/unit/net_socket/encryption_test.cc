// Contexts that are to encrypt: what arrives, what can be seen on the way, and who is kept out.
#include "../../support/wiretap.h"
#include "cut.h"
#include <cstring>
#include <sys/socket.h>

namespace {

constexpr const char *kWord = "a payload that nobody on the way may read, of a length that is found in one packet";

Opt options(Opt more = {}) {
  more.insert({{"interface", "lo"}, {"family", "AF_INET"}});
  return more;
}

// The word over and over.
std::vector<uint8_t> words(size_t n) {
  std::vector<uint8_t> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = static_cast<uint8_t>(kWord[i % std::strlen(kWord)]);
  return v;
}

// 0: all arrived as they were sent.
int messages(Pair &p, const std::function<std::vector<uint8_t>(size_t)> &fill) {
  uint64_t cookie = 1;
  for (const size_t bytes : {0, 1, 8, 100, 4096, 16384, 16385, 70000, 1 << 20, 6 << 20}) {
    const std::vector<uint8_t> out = fill(bytes);
    std::vector<uint8_t> in(bytes + 1);
    uint64_t got = 0;
    if (p.recv(in.data(), in.size(), cookie + 1, &got) != TUTTI_OK || p.send(out.data(), bytes, cookie) != TUTTI_OK) return 1;
    if (!p.drive_until([&] { return p.a.has(cookie) && p.b.has(cookie + 1); })) return 2;
    if (p.b.status(cookie + 1) != TUTTI_OK || got != bytes || !std::equal(out.begin(), out.end(), in.begin())) return 3;
    cookie += 2;
  }
  return 0;
}

const std::vector<Opt> shapes = {{},
                                 {{"sndbuf", "4096"}, {"rcvbuf", "4096"}},
                                 {{"sockets", "3"}, {"min_task", "4KiB"}},
                                 {{"sockets", "2"}, {"threads", "2"}}};

} // namespace

TEST_CASE("encrypted messages of all sizes arrive as they were sent, on one socket and on several") {
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    CAPTURE(shape);
    Opt o = shapes[shape];
    o["encrypt"] = "";
    Pair p(options(o));
    CHECK(messages(p, [](size_t n) { return pattern(n, static_cast<unsigned>(n)); }) == 0);
  }
}

TEST_CASE("payloads can be read on the way, but not where contexts encrypt") {
  for (size_t shape = 0; shape < shapes.size(); ++shape)
    for (const bool encrypt : {false, true}) {
      CAPTURE(shape);
      CAPTURE(encrypt);
      cut::check_apart([&] {
        Opt o = shapes[shape];
        if (encrypt) o["encrypt"] = "";
        support::Wiretap tap(kWord);
        if (!tap.works()) return 77;
        {
          Pair p(options(o));
          if (const int why = messages(p, words)) return why;
        }
        tap.stop();
        if (tap.missed() || tap.packets() < 50) return 10;
        return (tap.found() > 0) == !encrypt ? 0 : 11;
      });
    }
}

TEST_CASE("many messages under way at once arrive in order through an encrypted connection with little room") {
  Pair p(options({{"encrypt", ""}, {"sndbuf", "4096"}, {"rcvbuf", "4096"}}));
  std::vector<std::vector<uint8_t>> out, in;
  for (unsigned i = 0; i < 60; ++i) {
    out.push_back(pattern(i * i * 37 % 90000, i));
    in.emplace_back(out.back().size());
  }
  for (unsigned i = 0; i < 60; ++i) REQUIRE(p.send(out[i].data(), out[i].size(), 2 * i) == TUTTI_OK);
  for (unsigned i = 0; i < 60; ++i) REQUIRE(p.recv(in[i].data(), in[i].size(), 2 * i + 1) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.has(118) && p.b.has(119); }));
  CHECK(in == out);
}

TEST_CASE("of two ends of which one encrypts and the other does not neither is ready") {
  FakeHost plain(options({{"reconnect_timeout", "0s"}})), sealed(options({{"encrypt", ""}, {"reconnect_timeout", "0s"}}));
  for (const bool sender : {true, false}) {
    CAPTURE(sender);
    Ctx a(sender ? sealed : plain), b(sender ? plain : sealed);
    uint8_t addr[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0;
    tutti_net_listener *l = nullptr;
    tutti_net_ep *tx = nullptr, *rx = nullptr;
    REQUIRE(b.net.listen(b.c, addr, &len, &l) == TUTTI_OK);
    REQUIRE(connect_to(a.net, a.c, addr, len, &tx) == TUTTI_OK);
    const uint64_t word = 5;
    uint64_t got = 0;
    bool posted = false;
    const bool both = within(std::chrono::milliseconds(700), [&] {
      a.drive(), b.drive();
      if (!rx && b.net.accept(l, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
      if (!posted && rx && a.net.ep_ready(tx) == TUTTI_OK) {
        const tutti_net_buf from = {const_cast<uint64_t *>(&word), sizeof word, nullptr, 0},
                            to = {&got, sizeof got, nullptr, 0};
        posted = a.net.send(tx, &from, 1, 1) == TUTTI_OK && b.net.recv(rx, &to, 1, nullptr, 2) == TUTTI_OK;
      }
      return b.has(2) && b.status(2) == TUTTI_OK;
    });
    CHECK_FALSE(both);
    CHECK(got == 0);
    a.net.ep_destroy(tx);
    if (rx) b.net.ep_destroy(rx);
    b.net.listener_destroy(l);
  }
}
