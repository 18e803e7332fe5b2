// Endpoints of both directions between two contexts, which come to share one socket.
#include "pair.h"
#include <algorithm>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace {

// Endpoints there and back.
struct Both : Pair {
  tutti_net_ep *back_tx = nullptr, *back_rx = nullptr; // b sends, a receives
  explicit Both(Opt options = {{"interface", "lo"}, {"family", "AF_INET"}}) : Pair(std::move(options)) {
    connect(b, a, back_tx, back_rx);
  }
  ~Both() {
    if (back_tx) host.net().ep_destroy(back_tx);
    if (back_rx) host.net().ep_destroy(back_rx);
  }
  // Both sockets of a side, without the arrow that tells the directions apart.
  std::string ends(tutti_net_ep *ep) const {
    char text[256] = "";
    REQUIRE(host.net().ep_describe(ep, text, sizeof text) == TUTTI_OK);
    std::string s = text;
    for (char &c : s)
      if (c == '<' || c == '>') c = '-';
    std::replace(s.begin(), s.end(), '-', ' ');
    return s;
  }
  bool shared() const { return ends(tx) == ends(back_rx) && ends(rx) == ends(back_tx); }
  // One message each way, at the same time.
  void exchange(size_t bytes, uint64_t cookie) {
    const auto there = pattern(bytes, static_cast<unsigned>(cookie)), back = pattern(bytes, static_cast<unsigned>(cookie) + 1);
    std::vector<uint8_t> at_b(bytes), at_a(bytes);
    const tutti_net_buf in = {at_a.data(), bytes, nullptr, 0}, out = {const_cast<uint8_t *>(back.data()), bytes, nullptr, 0};
    REQUIRE(recv(at_b.data(), bytes, 4 * cookie) == TUTTI_OK);
    REQUIRE(host.net().recv(back_rx, &in, 1, nullptr, 4 * cookie + 1) == TUTTI_OK);
    REQUIRE(send(there.data(), bytes, 4 * cookie + 2) == TUTTI_OK);
    REQUIRE(host.net().send(back_tx, &out, 1, 4 * cookie + 3) == TUTTI_OK);
    REQUIRE(drive_until(
        [&] { return b.has(4 * cookie) && a.has(4 * cookie + 1) && a.has(4 * cookie + 2) && b.has(4 * cookie + 3); }));
    CHECK(at_b == there);
    CHECK(at_a == back);
  }
  void exchange_until_shared() {
    for (uint64_t i = 1000; !shared() && i < 3000; ++i) exchange(8, i);
    REQUIRE(shared());
  }
};

} // namespace

TEST_CASE("endpoints of both directions come to share one socket, and every message arrives") {
  Both p;
  uint64_t cookie = 0;
  for (const size_t bytes : {0, 8, 1000, 5000, 70000, 3 << 20}) p.exchange(bytes, ++cookie);
  p.exchange_until_shared();
  for (const size_t bytes : {0, 8, 1000, 5000, 70000, 3 << 20}) p.exchange(bytes, ++cookie);
}

TEST_CASE("tiny buffers and stripes do not stand in the way of a shared socket") {
  Both p(Opt{{"interface", "lo"}, {"sndbuf", "4096"}, {"rcvbuf", "4096"}, {"inline_bytes", "0"}, {"sockets", "2"}});
  p.exchange_until_shared();
  uint64_t cookie = 0;
  for (const size_t bytes : {0, 8, 1000, 5000, 70000, 1 << 20}) p.exchange(bytes, ++cookie);
}

TEST_CASE("messages before and after the change of sockets keep their order") {
  constexpr uint64_t count = 500, large = 100; // the sender does not go over with a large one
  std::vector<std::vector<uint8_t>> values;
  for (uint64_t i = 0; i < count; ++i) values.push_back(pattern(i < large ? 20000 : 8, static_cast<unsigned>(i)));
  bool moved = false; // it is chance which of the two contexts goes over
  for (int turn = 0; turn < 40 && !moved; ++turn) {
    Both p;
    std::vector<std::vector<uint8_t>> in;
    for (const auto &v : values) in.emplace_back(v.size(), uint8_t{0});
    uint64_t next = 0, posted = 0;
    // Now and then the queue is empty, which is when the sender may go over.
    REQUIRE(p.drive_until([&] {
      if (next < count && p.b.done.size() == next) {
        if (next == large) CHECK_FALSE(p.shared());
        const tutti_net_buf out = {values[next].data(), values[next].size(), nullptr, 0};
        if (p.host.net().send(p.back_tx, &out, 1, next) == TUTTI_OK) ++next;
      }
      for (; posted < std::min(next + 4, count); ++posted) {
        const tutti_net_buf buf = {in[posted].data(), in[posted].size(), nullptr, 0};
        REQUIRE(p.host.net().recv(p.back_rx, &buf, 1, nullptr, posted) == TUTTI_OK);
      }
      return p.a.done.size() == count;
    }));
    CHECK(in == values);
    moved = p.shared();
  }
  CHECK(moved);
}

TEST_CASE("one direction of a shared socket ends alone") {
  Both p;
  p.exchange_until_shared();
  p.host.net().ep_destroy(p.tx);
  p.tx = nullptr;
  uint64_t value = 7, got = 0;
  const tutti_net_buf out = {&value, 8, nullptr, 0}, in = {&got, 8, nullptr, 0};
  REQUIRE(p.recv(&got, 8, 1) == TUTTI_OK); // of what has ended
  REQUIRE(p.drive_until([&] { return p.b.has(1); }));
  CHECK(p.b.status(1) == TUTTI_ERR_REMOTE);
  CHECK(p.host.last_error().find("closed the connection") != std::string::npos);
  REQUIRE(p.host.net().recv(p.back_rx, &in, 1, nullptr, 2) == TUTTI_OK);
  REQUIRE(p.host.net().send(p.back_tx, &out, 1, 3) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.has(2) && p.b.has(3); }));
  CHECK(p.a.status(2) == TUTTI_OK);
  CHECK(got == 7);
}

TEST_CASE("a receiver leaves a shared socket without harm to the other direction, and the peer learns it from the last") {
  Both p;
  p.exchange_until_shared();
  p.host.net().ep_destroy(p.rx);
  p.rx = nullptr;
  uint64_t value = 7, got = 0;
  const tutti_net_buf out = {&value, 8, nullptr, 0}, in = {&got, 8, nullptr, 0};
  REQUIRE(p.host.net().recv(p.back_rx, &in, 1, nullptr, 1) == TUTTI_OK);
  REQUIRE(p.host.net().send(p.back_tx, &out, 1, 2) == TUTTI_OK);
  REQUIRE(p.drive_until([&] { return p.a.has(1) && p.b.has(2); }));
  CHECK(p.a.status(1) == TUTTI_OK);
  CHECK(got == 7);
  p.host.net().ep_destroy(p.back_tx);
  p.back_tx = nullptr;
  uint64_t cookie = 10;
  tutti_status failure = TUTTI_OK;
  REQUIRE(within(std::chrono::seconds(5), [&] {
    if (failure == TUTTI_OK) failure = std::min<tutti_status>(p.send(&value, 8, cookie++), TUTTI_OK);
    p.a.drive(), p.b.drive();
    for (const auto &[c, list] : p.a.done)
      if (c >= 10 && list[0].status != TUTTI_OK) failure = list[0].status;
    return failure != TUTTI_OK;
  }));
  CHECK(failure == TUTTI_ERR_REMOTE);
}

TEST_CASE("a sender that goes over after the peer has left its own endpoint there still arrives") {
  Both p;
  // Whichever side goes over, the other one's sender has left by then.
  const tutti_net_v1 &net = p.host.net();
  net.ep_destroy(p.tx);
  p.tx = nullptr;
  for (uint64_t i = 0; i < 200; ++i) {
    uint64_t got = 0;
    const tutti_net_buf out = {&i, 8, nullptr, 0}, in = {&got, 8, nullptr, 0};
    REQUIRE(net.recv(p.back_rx, &in, 1, nullptr, 2 * i) == TUTTI_OK);
    REQUIRE(net.send(p.back_tx, &out, 1, 2 * i + 1) == TUTTI_OK);
    REQUIRE(p.drive_until([&] { return p.a.has(2 * i) && p.b.has(2 * i + 1); }));
    REQUIRE(p.a.status(2 * i) == TUTTI_OK);
    CHECK(got == i);
  }
}

TEST_CASE("no connection inside a host is left with a congestion control that paces") {
  Both p;
  p.exchange_until_shared();
  int connections = 0;
  for (int fd = 3; fd < 1000; ++fd) {
    char name[32] = "";
    socklen_t size = sizeof name - 1;
    sockaddr_storage peer;
    socklen_t len = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &len) != 0) continue;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) continue;
    ++connections;
    CHECK(std::string(name).rfind("bbr", 0) != 0);
  }
  CHECK(connections == 2); // the two ends of the one that is left
}
