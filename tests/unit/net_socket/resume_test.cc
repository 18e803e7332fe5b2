// Connections that get lost come back, without a byte lost or repeated. In network namespaces of their own.
#include "cut.h"
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <sys/socket.h>

namespace {

Opt options(Opt more = {}) {
  more.insert({{"interface", "lo"}, {"family", "AF_INET"}, {"reconnect_local", "true"}, {"silence", "1s"}});
  return more;
}

// Messages of both directions, checked byte by byte as they arrive, in order. Everything is a function of the seed.
class Traffic {
public:
  Traffic(Opt opt, unsigned seed) : p_(options(std::move(opt))), random_(seed) {
    there_ = {&p_.a, &p_.b, p_.tx, p_.rx, {}, {}, 0, 0};
    p_.connect(p_.b, p_.a, back_.tx, back_.rx);
    back_.from = &p_.b;
    back_.to = &p_.a;
  }
  ~Traffic() {
    p_.host.net().ep_destroy(back_.tx);
    p_.host.net().ep_destroy(back_.rx);
  }
  Pair &pair() { return p_; }
  tutti_net_ep *there() { return there_.tx; }
  tutti_net_ep *back() { return back_.tx; }

  // Sends that much both ways and receives nothing yet.
  bool post(int messages, size_t largest) {
    for (Way *w : {&there_, &back_}) w->goal += static_cast<uint64_t>(messages);
    for (int i = 0; i < messages && !wrong_; ++i)
      for (Way *w : {&there_, &back_}) send(*w, largest);
    return !wrong_;
  }

  // False when something went wrong, or did not come to its end in time.
  bool run(
      int messages, size_t largest, const std::function<void()> &meanwhile = [] {}) {
    for (Way *w : {&there_, &back_}) w->goal += static_cast<uint64_t>(messages);
    const bool all = within(std::chrono::seconds(40), [&] {
      meanwhile();
      const bool there = step(there_, largest), back = step(back_, largest);
      return (there && back) || wrong_;
    });
    if (!all || wrong_)
      std::fprintf(stderr, "%s after %d and %d messages; %s\n%s", wrong_ ? "wrong" : "too late", int(there_.received),
                   int(back_.received), p_.host.last_error().c_str(), p_.host.log().c_str());
    return all && !wrong_;
  }

private:
  struct Out {
    uint64_t number;
    std::vector<uint8_t> data;
  };
  struct Way {
    Ctx *from = nullptr, *to = nullptr;
    tutti_net_ep *tx = nullptr, *rx = nullptr;
    std::deque<Out> out, in;
    uint64_t sent = 0, received = 0, goal = 0;
  };
  size_t size_of(uint64_t number, const Way &w, size_t largest) const {
    std::minstd_rand r(static_cast<unsigned>(number * 2 + (&w == &back_)) + 77);
    r.discard(3);
    return r() % 4 == 0 ? r() % (largest + 1) : r() % std::min<size_t>(largest + 1, 300);
  }
  static uint64_t cookie(uint64_t number, bool back, bool in) { return number * 4 + back * 2u + in; }
  void fail() { wrong_ = true; }

  bool send(Way &w, size_t largest) {
    const bool back = &w == &back_;
    w.out.push_back({w.sent, pattern(size_of(w.sent, w, largest), static_cast<unsigned>(w.sent * 2 + back))});
    const tutti_net_buf b = {w.out.back().data.data(), w.out.back().data.size(), nullptr, 0};
    if (p_.host.net().send(w.tx, &b, 1, cookie(w.sent, back, false)) != TUTTI_OK) return fail(), false;
    ++w.sent;
    return true;
  }

  // True when the goal is reached.
  bool step(Way &w, size_t largest) {
    const bool back = &w == &back_;
    const tutti_net_v1 &net = p_.host.net();
    while (w.received + w.in.size() < w.goal && w.in.size() < 12) {
      const uint64_t number = w.received + w.in.size();
      w.in.push_back({number, std::vector<uint8_t>(size_of(number, w, largest) + number % 3, 0xee)});
      const tutti_net_buf b = {w.in.back().data.data(), w.in.back().data.size(), nullptr, 0};
      if (net.recv(w.rx, &b, 1, nullptr, cookie(number, back, true)) != TUTTI_OK) return fail(), false;
    }
    while (w.sent < w.goal && w.out.size() < 8 && random_() % 3)
      if (!send(w, largest)) return false;
    w.from->drive();
    for (; !w.out.empty() && w.from->has(cookie(w.out.front().number, back, false)); w.out.pop_front()) {
      if (w.from->status(cookie(w.out.front().number, back, false)) != TUTTI_OK) return fail(), false;
      std::fill(w.out.front().data.begin(), w.out.front().data.end(), uint8_t{0xdd}); // it is ours again
      spent_.push_back(std::move(w.out.front().data));
      if (spent_.size() > 64) spent_.pop_front();
    }
    for (; !w.in.empty() && w.to->has(cookie(w.in.front().number, back, true)); w.in.pop_front(), ++w.received) {
      const tutti_net_completion c = w.to->done.at(cookie(w.in.front().number, back, true)).at(0);
      const auto want = pattern(size_of(w.received, w, largest), static_cast<unsigned>(w.received * 2 + back));
      if (c.status != TUTTI_OK || c.bytes != want.size() || !std::equal(want.begin(), want.end(), w.in.front().data.begin()))
        return fail(), false;
    }
    return w.received == w.goal && w.out.empty();
  }

  Pair p_;
  Way there_, back_;
  std::deque<std::vector<uint8_t>> spent_;
  std::minstd_rand random_;
  bool wrong_ = false;
};

const std::vector<Opt> shapes = {
    {},
    {{"sndbuf", "4096"}, {"rcvbuf", "4096"}, {"inline_bytes", "0"}},
    {{"sockets", "3"}, {"min_task", "4KiB"}},
    {{"sockets", "2"}, {"threads", "2"}, {"min_task", "16KiB"}},
};

} // namespace

TEST_CASE("a reset after every byte of small messages, in each direction, loses and repeats nothing") {
  if (!cut::counts_bytes) return;
  for (const bool back : {false, true})
    cut::check_apart([back] {
      Traffic t({}, 1);
      for (int before : {0, 300}) { // on sockets of their own, and when both directions share one
        if (before && !t.run(before, 8)) return 1;
        for (long bytes = 0; bytes < 130; ++bytes) {
          cut::after(cut::socket_of(t.pair().host.net(), back ? t.back() : t.there()), bytes);
          if (!t.run(6, 40)) return 2;
        }
      }
      return t.pair().host.log().find("restored after") == std::string::npos ? 3 : 0;
    });
}

TEST_CASE("connections reset at any time, with packets lost before, lose and repeat nothing") {
  const bool full = std::getenv("TEST_FULL");
  const int wanted = full ? 20 : 10;
  for (unsigned seed = 1; seed <= (full ? 3u : 1u); ++seed) { // each takes seconds, most of them waiting
    CAPTURE(seed);
    std::vector<std::function<int()>> all;
    for (const Opt &shape : shapes)
      all.emplace_back([&shape, seed, wanted] {
        Traffic t(shape, seed);
        std::minstd_rand r(seed);
        int until_up = 0, cuts = 0, allowed = 0; // each round has a few, or none would ever come back
        if (!t.run(50, 100000)) return 1;
        const auto network = [&] {
          if (until_up > 0 && --until_up == 0) cut::set_loopback(true);
          if (until_up || r() % 20 || cuts == allowed) return;
          const std::vector<int> fds = cut::connections();
          if (fds.empty()) return;
          ++cuts;
          if (r() % 2) { // what is sent now does not arrive, and neither does the word of the reset
            cut::set_loopback(false);
            until_up = 100;
          }
          cut::reset(fds[r() % fds.size()]);
        };
        bool good = true;
        for (int i = 0; i < 60 && good && cuts < wanted; ++i) {
          allowed = cuts + 4;
          good = t.run(40, 200000, network);
        }
        return !good ? 2 : cuts < wanted ? 3 : 0;
      });
    cut::check_apart(all);
  }
}

// One sender has gone over to the other's socket, and neither receiver has read so far when that one is lost.
int lose_shared(int answers_lost, bool send_more) {
  Traffic t({}, 1);
  const tutti_net_v1 &net = t.pair().host.net();
  const auto restored = [&] { return t.pair().host.log().find("restored after") != std::string::npos; };
  const auto receive_nothing = [&](bool until_restored) {
    within(std::chrono::milliseconds(until_restored ? 5000 : 200), [&] {
      t.pair().a.drive(), t.pair().b.drive();
      return until_restored && restored();
    });
  };
  if (!t.post(40, 100)) return 1;
  receive_nothing(false);
  constexpr size_t last_answer = 40; // ResumeState in resume.h
  cut::swallow(last_answer, answers_lost);
  for (tutti_net_ep *ep : {t.there(), t.back()}) cut::reset(cut::socket_of(net, ep));
  if (send_more && !t.post(1, 100)) return 2;
  receive_nothing(true);
  if (!restored()) return 3;
  return t.run(0, 100) ? 0 : 4;
}

TEST_CASE("a shared socket that is reset while neither side reads is replaced at once") {
  cut::check_apart([] { return lose_shared(0, false); });
}

TEST_CASE("an attempt whose last answer was lost is made again, also after a change of sockets") {
  if (cut::counts_bytes) cut::check_apart([] { return lose_shared(2, true); }); // one for each direction
}

TEST_CASE("a connection that is made while the network is away is there soon after it is back") {
  cut::check_apart([] {
    // Then the kernel repeats itself after 1, 3 and 7 seconds.
    if (FILE *f = std::fopen("/proc/sys/net/ipv4/tcp_syn_linear_timeouts", "we")) std::fputs("0", f), std::fclose(f);
    FakeHost host(options());
    Ctx a(host), b(host);
    uint8_t addr[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0;
    tutti_net_listener *l = nullptr;
    tutti_net_ep *tx = nullptr, *rx = nullptr;
    if (host.net().listen(b.c, addr, &len, &l) != TUTTI_OK) return 1;
    cut::set_loopback(false);
    const auto begin = TestClock::now();
    if (connect_to(host.net(), a.c, addr, len, &tx) != TUTTI_OK) return 2;
    bool down = true;
    const bool up = within(patience, [&] {
      if (down && TestClock::now() > begin + std::chrono::milliseconds(1200)) cut::set_loopback(true), down = false;
      a.drive(), b.drive();
      if (!rx && host.net().accept(l, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
      return rx && host.net().ep_ready(tx) == TUTTI_OK;
    });
    const auto lasted = TestClock::now() - begin;
    host.net().listener_destroy(l);
    host.net().ep_destroy(tx);
    if (rx) host.net().ep_destroy(rx);
    return !up ? 3 : lasted < std::chrono::milliseconds(2700) ? 0 : 4;
  });
}

TEST_CASE("a network that says nothing for a while is dialled anew and loses nothing") {
  cut::check_apart([] {
    Traffic t({}, 5);
    if (!t.run(50, 5000)) return 1;
    cut::set_loopback(false);
    const auto up = TestClock::now() + std::chrono::milliseconds(2500);
    bool down = true;
    const bool good = t.run(200, 5000, [&] {
      if (down && TestClock::now() > up) cut::set_loopback(true), down = false;
    });
    return good ? 0 : 2;
  });
}

TEST_CASE("a peer that does not come back is an error in time that says who, where, since when and why") {
  cut::check_apart([] {
    Traffic t(Opt{{"reconnect_timeout", "2s"}}, 5);
    if (!t.run(50, 5000)) return 1;
    const int fd = cut::socket_of(t.pair().host.net(), t.there());
    cut::reset(fd);
    cut::set_loopback(false);
    const auto begin = TestClock::now();
    if (t.run(200, 5000)) return 2;
    const auto lasted = TestClock::now() - begin;
    if (lasted < std::chrono::seconds(1) || lasted > std::chrono::seconds(10)) return 3;
    const std::string why = t.pair().host.last_error();
    for (const char *part : {"peer 127.0.0.1:", "(lo)", " ago: ", "onnection"})
      if (why.find(part) == std::string::npos) return 4;
    return 0;
  });
}

TEST_CASE("of several peers only the one whose connection is lost waits") {
  cut::check_apart([] {
    Traffic lost({}, 1), well({}, 2);
    if (!lost.run(50, 5000) || !well.run(50, 5000)) return 1;
    cut::reset(cut::socket_of(lost.pair().host.net(), lost.there()));
    return well.run(200, 50000) && lost.run(200, 50000) ? 0 : 2;
  });
}

TEST_CASE("bytes that are gone although they were acknowledged are an error, never other bytes") {
  Pair p(options());
  std::vector<uint8_t> out = pattern(20000, 1), in(20000); // so long that they are not kept
  for (uint64_t i = 0; i < 2; ++i) REQUIRE(p.send(out.data(), out.size(), i) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.done.size() == 2; }));
  const int fd = cut::socket_of(p.host.net(), p.rx);
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  REQUIRE(connect(fd, &none, sizeof none) == 0); // throws away what waits, and resets
  REQUIRE(p.recv(in.data(), in.size(), 100) == TUTTI_OK);
  REQUIRE(p.send(out.data(), out.size(), 50) == TUTTI_OK);
  uint64_t more = 51;
  INFO(p.host.log());
  REQUIRE(p.drive_until([&] { return p.send(out.data(), out.size(), ++more) < 0; }));
  CHECK(p.host.last_error().find("failed before") != std::string::npos);
  CHECK(p.host.log().find("the peer lacks bytes that had been acknowledged for it") != std::string::npos);
  CHECK_FALSE(p.b.has(100));
}

TEST_CASE("a receiver that is gone is told at once when its sender comes back") {
  cut::check_apart([] {
    Pair p(options());
    const tutti_net_v1 &net = p.host.net();
    std::vector<uint8_t> out(100000);
    for (uint64_t i = 0; i < 5; ++i) p.send(out.data(), out.size(), i);
    net.ep_destroy(p.rx); // with bytes unread, so that the kernel sends a reset
    p.rx = nullptr;
    const auto begin = TestClock::now();
    if (!p.drive_until([&] { return p.a.done.size() == 5; })) return 1;
    return p.a.status(4) == TUTTI_ERR_REMOTE && TestClock::now() - begin < std::chrono::seconds(1) ? 0 : 2;
  });
}

TEST_CASE("a context that is gone is found by its refusals in a few seconds") {
  FakeHost host(options());
  Ctx a(host);
  auto b = std::make_unique<Ctx>(host);
  uint8_t addr[TUTTI_NET_ADDR_BYTES];
  uint32_t len = 0;
  tutti_net_listener *l = nullptr;
  tutti_net_ep *tx = nullptr, *rx = nullptr;
  REQUIRE(host.net().listen(b->c, addr, &len, &l) == TUTTI_OK);
  REQUIRE(connect_to(host.net(), a.c, addr, len, &tx) == TUTTI_OK);
  REQUIRE(within(patience, [&] {
    a.drive(), b->drive();
    if (!rx && host.net().accept(l, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
    return rx && host.net().ep_ready(tx) == TUTTI_OK;
  }));
  host.net().listener_destroy(l);
  std::vector<uint8_t> out(1000000);
  const tutti_net_buf buf = {out.data(), out.size(), nullptr, 0};
  REQUIRE(host.net().send(tx, &buf, 1, 1) == TUTTI_OK);
  host.net().ep_destroy(rx);
  b.reset();
  const auto begin = TestClock::now();
  REQUIRE(within(std::chrono::seconds(5), [&] { return a.drive(), a.has(1); }));
  CHECK(a.status(1) == TUTTI_ERR_REMOTE);
  CHECK(TestClock::now() - begin < std::chrono::seconds(4));
  CHECK(host.last_error().find("Connection refused: its process has ended or has closed it") != std::string::npos);
  host.net().ep_destroy(tx);
}

TEST_CASE("a sleeping context wakes to come back") {
  cut::check_apart([] {
    Pair p(options());
    const tutti_net_v1 &net = p.host.net();
    uint64_t value = 5, got = 0;
    cut::reset(cut::socket_of(net, p.tx));
    p.recv(&got, 8, 1);
    p.send(&value, 8, 1);
    // Each sleeps as the core does, until its descriptor tells.
    const bool done = within(std::chrono::seconds(10), [&] {
      for (Ctx *c : {&p.a, &p.b}) {
        c->drive();
        net.arm(c->c);
      }
      return p.b.has(1);
    });
    return done && got == 5 ? 0 : 1;
  });
}

// A record that has come in part is lost with its socket, whatever the kernel has acknowledged of it; and what was sealed and
// did not get out is sealed anew.
TEST_CASE("encrypted connections that are reset after every byte of small messages lose and repeat nothing") {
  if (!cut::counts_bytes) return;
  for (const bool back : {false, true})
    cut::check_apart([back] {
      Traffic t({{"encrypt", ""}}, 1);
      for (int before : {0, 300}) {
        if (before && !t.run(before, 8)) return 1;
        for (long bytes = 0; bytes < 130; bytes += 3) {
          cut::after(cut::socket_of(t.pair().host.net(), back ? t.back() : t.there()), bytes);
          if (!t.run(6, 40)) return 2;
        }
      }
      return t.pair().host.log().find("restored after") == std::string::npos ? 3 : 0;
    });
}

TEST_CASE("encrypted connections reset at any time, with packets lost before, lose and repeat nothing") {
  for (size_t shape = 0; shape < shapes.size(); ++shape) {
    CAPTURE(shape);
    cut::check_apart([&] {
      Opt options = shapes[shape];
      options["encrypt"] = "";
      Traffic t(options, 3);
      std::minstd_rand r(3);
      int until_up = 0, cuts = 0, allowed = 0;
      if (!t.run(50, 100000)) return 1;
      const auto network = [&] {
        if (until_up > 0 && --until_up == 0) cut::set_loopback(true);
        if (until_up || r() % 20 || cuts == allowed) return;
        const std::vector<int> all = cut::connections();
        if (all.empty()) return;
        ++cuts;
        if (r() % 2) {
          cut::set_loopback(false);
          until_up = 100;
        }
        cut::reset(all[r() % all.size()]);
      };
      bool good = true;
      for (int i = 0; i < 30 && good && cuts < 10; ++i) {
        allowed = cuts + 4;
        good = t.run(40, 200000, network);
      }
      return !good ? 2 : cuts < 10 ? 3 : 0;
    });
  }
}
