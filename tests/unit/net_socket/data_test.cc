// Messages over loopback: sizes, order, batches, bounds, striping, sleeping, the ends of connections.
#include "pair.h"
#include <poll.h>

namespace {

// Sends messages of these sizes in order and checks every byte, with as many posted as the endpoint takes.
void transfer(Pair &p, const std::vector<size_t> &sizes) {
  std::vector<std::vector<uint8_t>> out, in;
  for (size_t i = 0; i < sizes.size(); ++i) {
    out.push_back(pattern(sizes[i], static_cast<unsigned>(i)));
    in.emplace_back(sizes[i] + i % 3, uint8_t{0});
  }
  std::vector<uint64_t> got(sizes.size(), ~uint64_t{0});
  size_t sent = 0, posted = 0;
  const bool all = p.drive_until([&] {
    while (sent < sizes.size() && p.send(out[sent].data(), sizes[sent], sent) == TUTTI_OK) ++sent;
    while (posted < sizes.size() && p.recv(in[posted].data(), in[posted].size(), posted, &got[posted]) == TUTTI_OK) ++posted;
    return p.a.done.size() == sizes.size() && p.b.done.size() == sizes.size();
  });
  REQUIRE(all);
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(got[i] == sizes[i]);
    CHECK(p.b.done[i].size() == 1);
    CHECK(p.b.status(i) == TUTTI_OK);
    CHECK(p.a.status(i) == TUTTI_OK);
    CHECK(p.b.done[i][0].bytes == sizes[i]);
    CHECK(p.a.done[i][0].bytes == sizes[i]);
    CHECK(std::equal(out[i].begin(), out[i].begin() + static_cast<std::ptrdiff_t>(sizes[i]), in[i].begin()));
  }
  p.a.done.clear();
  p.b.done.clear();
}

const std::vector<size_t> mixed = {0, 1,       7, 8, 64, 4096,   16383, 16384,   16385, 65536,
                                   3, 1 << 20, 0, 0, 5,  300000, 100,   9 << 20, 2};

} // namespace

TEST_CASE("messages of all sizes arrive whole and in order") {
  Pair p;
  transfer(p, mixed);
  transfer(p, std::vector<size_t>(500, 13));
}

TEST_CASE("tiny socket buffers and hence short writes and reads change nothing") {
  Pair p(Opt{{"interface", "lo"}, {"sndbuf", "4096"}, {"rcvbuf", "4096"}, {"inline_bytes", "0"}});
  transfer(p, {0, 1, 100000, 3, 70000, 8, 1 << 20, 1});
}

TEST_CASE("large messages are striped over data sockets by the calling thread") {
  Pair p(Opt{{"interface", "lo"}, {"sockets", "3"}, {"min_task", "4KiB"}});
  transfer(p, mixed);
  transfer(p, {5 << 20, 4096, 4095, 4097, 1, 12289});
}

TEST_CASE("large messages are striped over data sockets by helper threads") {
  Pair p(Opt{{"interface", "lo"}, {"sockets", "2"}, {"threads", "2"}, {"min_task", "16KiB"}});
  for (int i = 0; i < 3; ++i) transfer(p, mixed);
}

TEST_CASE("both address families serve") {
  Pair p(Opt{{"interface", "lo"}, {"family", "AF_INET6"}});
  transfer(p, {1, 70000});
  char text[128];
  REQUIRE(p.host.net().ep_describe(p.tx, text, sizeof text) == TUTTI_OK);
  CHECK(std::string(text).find("[::1]:") == 0);
  CHECK(std::string(text).find("(lo)") != std::string::npos);
}

TEST_CASE("a call of several messages has one completion with the sum of their bytes") {
  Pair p;
  auto x = pattern(10, 1), y = pattern(200000, 2);
  std::vector<uint8_t> u(10), v(200000), w(4);
  const tutti_net_buf out[3] = {{x.data(), 10, nullptr, 0}, {y.data(), 200000, nullptr, 0}, {x.data(), 0, nullptr, 0}};
  const tutti_net_buf in[3] = {{u.data(), 10, nullptr, 0}, {v.data(), 200000, nullptr, 0}, {w.data(), 4, nullptr, 0}};
  uint64_t got[3] = {9, 9, 9};
  REQUIRE(p.host.net().recv(p.rx, in, 3, got, 70) == TUTTI_OK);
  REQUIRE(p.host.net().send(p.tx, out, 3, 71) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.has(71) && p.b.has(70); }));
  CHECK(p.b.done[70].size() == 1);
  CHECK(p.b.done[70][0].bytes == 200010);
  CHECK(p.a.done[71][0].bytes == 200010);
  CHECK(got[0] == 10);
  CHECK(got[1] == 200000);
  CHECK(got[2] == 0);
  CHECK(x == u);
  CHECK(y == v);
}

TEST_CASE("a full queue answers again, posts nothing, and serves later") {
  Pair p;
  uint64_t word = 0;
  uint32_t posted = 0;
  while (p.recv(&word, 8, 1000 + posted) == TUTTI_OK) ++posted;
  CHECK(posted >= 8);
  CHECK(p.recv(&word, 8, 5) == TUTTI_AGAIN);
  const uint64_t value = 42;
  for (uint32_t i = 0; i < posted; ++i) {
    p.drive_until([&] { return p.send(&value, 8, i) == TUTTI_OK; });
  }
  REQUIRE(p.drive_until([&] { return p.b.done.size() == posted; }));
  CHECK_FALSE(p.b.has(5));
  CHECK(word == 42);
}

TEST_CASE("sends without a receive fill bounded buffers and then wait without blocking") {
  Pair p(Opt{{"interface", "lo"}, {"sndbuf", "16384"}, {"rcvbuf", "16384"}});
  auto data = pattern(1 << 20, 3);
  uint32_t posted = 0;
  for (int i = 0; i < 1000; ++i) {
    if (p.send(data.data(), data.size(), posted) == TUTTI_OK) ++posted;
    p.a.drive();
  }
  CHECK(posted < 200);
  std::vector<uint8_t> in(data.size());
  uint32_t received = 0;
  REQUIRE(p.drive_until([&] {
    if (received == posted) return true;
    if (p.recv(in.data(), in.size(), received) == TUTTI_OK) ++received;
    return false;
  }));
  REQUIRE(p.drive_until([&] { return p.b.done.size() == posted && p.a.done.size() == posted; }));
  CHECK(in == data);
}

TEST_CASE("a message longer than its buffer is reported as truncated and names the peer") {
  Pair p;
  uint8_t small[4];
  const uint64_t value = 1;
  REQUIRE(p.recv(small, 4, 1) == TUTTI_OK);
  REQUIRE(p.send(&value, 8, 2) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.b.has(1); }));
  CHECK(p.b.status(1) == TUTTI_ERR_TRUNCATED);
  CHECK(p.host.last_error().find("127.0.0.1:") != std::string::npos);
  CHECK(p.recv(small, 4, 3) < 0);
}

TEST_CASE("destroying an endpoint cancels what is outstanding once") {
  Pair p;
  uint8_t buf[100];
  REQUIRE(p.recv(buf, 100, 1) == TUTTI_OK);
  REQUIRE(p.recv(buf, 100, 2) == TUTTI_OK);
  p.host.net().ep_destroy(p.rx);
  p.rx = nullptr;
  p.b.drive();
  p.b.drive();
  CHECK(p.b.done[1].size() == 1);
  CHECK(p.b.status(1) == TUTTI_ERR_CANCELLED);
  CHECK(p.b.status(2) == TUTTI_ERR_CANCELLED);
  auto data = pattern(1 << 20, 1); // the sender learns it by an error that names the peer
  REQUIRE(p.drive_until([&] {
    p.send(data.data(), data.size(), 7);
    return !p.a.done.empty() && p.a.done.rbegin()->second[0].status != TUTTI_OK;
  }));
  CHECK(p.a.done.rbegin()->second[0].status == TUTTI_ERR_REMOTE);
  CHECK(p.host.last_error().find("peer 127.0.0.1:") != std::string::npos);
}

TEST_CASE("what was sent before the sender closed still arrives, then the end is an error") {
  Pair p;
  auto data = pattern(50000, 1);
  std::vector<uint8_t> in(50000);
  REQUIRE(p.send(data.data(), data.size(), 1) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.has(1); }));
  p.host.net().ep_destroy(p.tx);
  p.tx = nullptr;
  REQUIRE(p.recv(in.data(), in.size(), 2) == TUTTI_OK);
  REQUIRE(p.recv(in.data(), in.size(), 3) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.b.has(2) && p.b.has(3); }));
  CHECK(p.b.status(2) == TUTTI_OK);
  CHECK(in == data);
  CHECK(p.b.status(3) == TUTTI_ERR_REMOTE);
  CHECK(p.host.last_error().find("closed the connection") != std::string::npos);
}

TEST_CASE("an end in the middle of a message says how much came") {
  Pair p(Opt{{"interface", "lo"}, {"sndbuf", "8192"}, {"rcvbuf", "8192"}});
  auto data = pattern(8 << 20, 1);
  std::vector<uint8_t> in(8 << 20);
  REQUIRE(p.recv(in.data(), in.size(), 1) == TUTTI_OK);
  REQUIRE(p.send(data.data(), data.size(), 2) == TUTTI_OK);
  for (int i = 0; i < 5; ++i) p.a.drive(), p.b.drive();
  REQUIRE_FALSE(p.a.has(2));
  p.host.net().ep_destroy(p.tx);
  p.tx = nullptr;
  REQUIRE(p.drive_until([&] { return p.b.has(1); }));
  CHECK(p.b.status(1) == TUTTI_ERR_REMOTE);
  CHECK(p.host.last_error().find("in the middle of a message") != std::string::npos);
  CHECK(p.host.last_error().find("of 8388608 bytes") != std::string::npos);
}

TEST_CASE("destroying a striped endpoint in the middle of a message touches its buffers no more") {
  for (const char *threads : {"0", "2"}) {
    Pair p(Opt{{"interface", "lo"}, {"sockets", "2"}, {"threads", threads}, {"min_task", "4KiB"}, {"sndbuf", "8192"}});
    auto data = pattern(4 << 20, 1);
    std::vector<uint8_t> in(4 << 20);
    REQUIRE(p.recv(in.data(), in.size(), 1) == TUTTI_OK);
    REQUIRE(p.send(data.data(), data.size(), 2) == TUTTI_OK);
    for (int i = 0; i < 5; ++i) p.a.drive(), p.b.drive();
    p.host.net().ep_destroy(p.rx);
    p.rx = nullptr;
    std::fill(in.begin(), in.end(), uint8_t{0x77});
    for (int i = 0; i < 100; ++i) p.a.drive(), p.b.drive();
    CHECK(std::count(in.begin(), in.end(), 0x77) == static_cast<long>(in.size()));
    CHECK(p.b.status(1) == TUTTI_ERR_CANCELLED);
  }
}

TEST_CASE("an armed descriptor wakes the receiver when data arrives, and only then") {
  for (const char *threads : {"0", "1"}) {
    Pair p(Opt{{"interface", "lo"}, {"sockets", "2"}, {"threads", threads}, {"min_task", "4KiB"}});
    const tutti_net_v1 &net = p.host.net();
    int32_t fd = -1;
    REQUIRE(net.event_fd(p.b.c, &fd) == TUTTI_OK);
    auto data = pattern(100000, 1);
    std::vector<uint8_t> in(data.size());
    for (uint64_t round = 1; round <= 5; ++round) {
      REQUIRE(p.recv(in.data(), in.size(), round) == TUTTI_OK);
      pollfd w{fd, POLLIN, 0};
      // A late acknowledgement of the round before may wake once more.
      REQUIRE(within(patience, [&] { return p.b.drive(), net.arm(p.b.c) == TUTTI_OK && poll(&w, 1, 0) == 0; }));
      REQUIRE(p.send(data.data(), data.size(), round) == TUTTI_OK);
      REQUIRE(within(patience, [&] { return p.a.drive(), p.a.has(round) || poll(&w, 1, 0) == 1; }));
      REQUIRE(within(patience, [&] {
        p.a.drive();
        if (net.arm(p.b.c) == TUTTI_OK) poll(&w, 1, 1000);
        p.b.drive();
        return p.b.has(round);
      }));
    }
    CHECK(in == data);
  }
}

TEST_CASE("many endpoints of one context run side by side") {
  Pair p;
  constexpr int n = 40;
  std::vector<tutti_net_ep *> tx(n), rx(n);
  for (int i = 0; i < n; ++i) p.connect(tx[i], rx[i]);
  std::vector<std::vector<uint8_t>> in(n), out(n);
  for (uint64_t i = 0; i < n; ++i) {
    out[i] = pattern(1000 * i, static_cast<unsigned>(i));
    in[i].resize(1000 * i);
    const tutti_net_buf r = {in[i].data(), in[i].size(), nullptr, 0}, s = {out[i].data(), out[i].size(), nullptr, 0};
    REQUIRE(p.host.net().recv(rx[i], &r, 1, nullptr, i) == TUTTI_OK);
    REQUIRE(p.host.net().send(tx[i], &s, 1, i) == TUTTI_OK);
  }
  REQUIRE(p.drive_until([&] { return p.a.done.size() == n && p.b.done.size() == n; }));
  CHECK(in == out);
  for (int i = 0; i < n; ++i) p.host.net().ep_destroy(tx[i]), p.host.net().ep_destroy(rx[i]);
}

TEST_CASE("progress gives no more completions than asked for") {
  Pair p;
  uint64_t v = 1, in[20];
  for (uint64_t i = 0; i < 20; ++i) {
    REQUIRE(p.recv(&in[i], 8, i) == TUTTI_OK);
    REQUIRE(p.send(&v, 8, i) == TUTTI_OK);
  }
  REQUIRE(within(patience, [&] {
    CHECK(p.a.drive(3) <= 3);
    CHECK(p.b.drive(1) <= 1);
    return p.a.done.size() == 20 && p.b.done.size() == 20;
  }));
}
