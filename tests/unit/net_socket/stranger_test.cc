// Those who do not belong: garbage, silence, port scans, another job's secret. The real peer gets through.
#include "pair.h"
#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Open {
  FakeHost host;
  Ctx a, b;
  uint8_t addr[TUTTI_NET_ADDR_BYTES] = {};
  uint32_t len = 0;
  tutti_net_listener *listener = nullptr;
  tutti_net_ep *rx = nullptr;
  std::vector<int> strangers;

  explicit Open(FakeHost::Options extra = {})
      : host([&] {
          extra.insert({{"interface", "lo"}, {"family", "AF_INET"}});
          return extra;
        }()),
        a(host), b(host) {
    REQUIRE(host.net().listen(b.c, addr, &len, &listener) == TUTTI_OK);
  }
  ~Open() {
    for (int fd : strangers) close(fd);
    if (rx) host.net().ep_destroy(rx);
    if (listener) host.net().listener_destroy(listener);
  }
  uint16_t port() const {
    uint16_t p;
    memcpy(&p, addr + 10, 2); // Blob: magic, version, count, then places: family, port, ip
    return p;
  }
  int stranger() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to) == 0);
    strangers.push_back(fd);
    return fd;
  }
  bool closed(int fd) { // the listener hung up on it
    char c[256];
    return within(patience, [&] {
      poll();
      const ssize_t n = recv(fd, c, sizeof c, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno == ECONNRESET);
    });
  }
  void poll() {
    b.drive();
    if (!rx && host.net().accept(listener, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
  }
  void real_peer_connects() {
    tutti_net_ep *tx = nullptr;
    REQUIRE(connect_to(host.net(), a.c, addr, len, &tx) == TUTTI_OK);
    const bool up = within(patience, [&] {
      a.drive();
      poll();
      return rx && host.net().ep_ready(tx) == TUTTI_OK;
    });
    CHECK_MESSAGE(up, host.last_error());
    const uint64_t v = 77;
    uint64_t got = 0;
    const tutti_net_buf s = {const_cast<uint64_t *>(&v), 8, nullptr, 0}, r = {&got, 8, nullptr, 0};
    REQUIRE(host.net().recv(rx, &r, 1, nullptr, 1) == TUTTI_OK);
    REQUIRE(host.net().send(tx, &s, 1, 1) == TUTTI_OK);
    CHECK(within(patience, [&] { return a.drive(), b.drive(), b.has(1); }));
    CHECK(got == 77);
    host.net().ep_destroy(tx);
  }
};

} // namespace

TEST_CASE("garbage is refused and the real peer still connects") {
  Open o;
  const std::string junk(500, 'x');
  const int fd = o.stranger();
  REQUIRE(send(fd, junk.data(), junk.size(), MSG_NOSIGNAL) > 0);
  CHECK(o.closed(fd));
  o.real_peer_connects();
  CHECK(o.host.log().find("refused a connection from 127.0.0.1:") != std::string::npos);
  Open again;
  const int other = again.stranger();
  REQUIRE(send(other, junk.data(), junk.size(), MSG_NOSIGNAL) > 0);
  CHECK(again.closed(other));
  CHECK(FakeHost::warnings() == 1); // in the whole process
}

TEST_CASE("connections that say nothing are dropped in time and disturb nobody") {
  Open o(Opt{{"handshake_timeout", "50ms"}});
  std::vector<int> quiet;
  for (int i = 0; i < 8; ++i) quiet.push_back(o.stranger());
  o.real_peer_connects();
  Open again(Opt{{"handshake_timeout", "50ms"}});
  CHECK(again.closed(again.stranger()));
}

TEST_CASE("a port scan and more half-open connections than the listener keeps do no harm") {
  Open o;
  for (int i = 0; i < 30; ++i) close(o.stranger()), o.strangers.pop_back();
  for (int i = 0; i < 120; ++i) {
    o.stranger();
    o.poll();
  }
  o.real_peer_connects();
}

TEST_CASE("a peer with another secret is denied on both sides") {
  Open o;
  uint8_t wrong[TUTTI_NET_ADDR_BYTES];
  memcpy(wrong, o.addr, sizeof wrong);
  wrong[o.len - 1] ^= 1;
  tutti_net_ep *tx = nullptr;
  REQUIRE(connect_to(o.host.net(), o.a.c, wrong, o.len, &tx) == TUTTI_OK);
  tutti_status s = TUTTI_AGAIN;
  CHECK(within(patience, [&] {
    o.a.drive();
    o.poll();
    return (s = o.host.net().ep_ready(tx)) < 0;
  }));
  CHECK(s == TUTTI_ERR_DENIED);
  CHECK(o.host.last_error().find("not a rank of this job") != std::string::npos);
  o.host.net().ep_destroy(tx);
  CHECK(o.rx == nullptr);
  o.real_peer_connects();
}

TEST_CASE("the secret never crosses the wire") {
  Open o;
  // A man at the listener's port sees what a connector sends first.
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
  REQUIRE(listen(fd, 1) == 0);
  socklen_t size = sizeof at;
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr *>(&at), &size) == 0);
  uint8_t addr[TUTTI_NET_ADDR_BYTES];
  memcpy(addr, o.addr, sizeof addr);
  const uint16_t port = ntohs(at.sin_port);
  memcpy(addr + 10, &port, 2);
  tutti_net_ep *tx = nullptr;
  REQUIRE(connect_to(o.host.net(), o.a.c, addr, o.len, &tx) == TUTTI_OK);
  const int c = accept(fd, nullptr, nullptr);
  REQUIRE(c >= 0);
  std::vector<uint8_t> seen(4096);
  ssize_t n = 0;
  REQUIRE(within(patience, [&] {
    return o.a.drive(), o.host.net().ep_ready(tx), (n = recv(c, seen.data(), seen.size(), MSG_DONTWAIT)) > 0;
  }));
  seen.resize(static_cast<size_t>(n));
  CHECK(std::search(seen.begin(), seen.end(), o.addr + o.len - 32, o.addr + o.len - 24) == seen.end());
  // Its answer cannot be right: the connector refuses to go on.
  const std::string answer(64, 'z');
  REQUIRE(send(c, answer.data(), answer.size(), MSG_NOSIGNAL) == 64);
  tutti_status s = TUTTI_AGAIN;
  CHECK(within(patience, [&] { return (s = o.host.net().ep_ready(tx)) < 0; }));
  CHECK(s == TUTTI_ERR_DENIED);
  o.host.net().ep_destroy(tx);
  close(c);
  close(fd);
}

TEST_CASE("an address where nobody listens fails after the configured attempts and says so") {
  Open o(Opt{{"retry_count", "2"}, {"retry_sleep", "1ms"}});
  o.host.net().listener_destroy(o.listener);
  o.listener = nullptr;
  tutti_net_ep *tx = nullptr;
  REQUIRE(connect_to(o.host.net(), o.a.c, o.addr, o.len, &tx) == TUTTI_OK);
  tutti_status s = TUTTI_AGAIN;
  CHECK(within(patience, [&] { return (s = o.host.net().ep_ready(tx)) < 0; }));
  CHECK(s == TUTTI_ERR_REMOTE);
  CHECK(o.host.last_error().find("Connection refused after 3 attempts") != std::string::npos);
  o.host.net().ep_destroy(tx);
}

TEST_CASE("a connection that never becomes ready ends at its deadline") {
  Open o(Opt{{"connect_timeout", "30ms"}});
  tutti_net_ep *tx = nullptr;
  REQUIRE(connect_to(o.host.net(), o.a.c, o.addr, o.len, &tx) == TUTTI_OK);
  tutti_status s = TUTTI_AGAIN; // nobody drives the listener
  CHECK(within(patience, [&] { return (s = o.host.net().ep_ready(tx)) < 0; }));
  CHECK(s == TUTTI_ERR_TIMEOUT);
  o.host.net().ep_destroy(tx);
}

TEST_CASE("endpoints and listeners may be destroyed in any half-open state") {
  for (int turns = 0; turns < 40; ++turns) {
    Open o;
    tutti_net_ep *tx = nullptr;
    REQUIRE(connect_to(o.host.net(), o.a.c, o.addr, o.len, &tx) == TUTTI_OK);
    for (int i = 0; i < turns; ++i) {
      o.host.net().ep_ready(tx);
      o.poll();
    }
    o.host.net().ep_destroy(tx);
  }
}

TEST_CASE("a damaged address is an error, not a connection") {
  Open o;
  tutti_net_ep *tx = nullptr;
  CHECK(connect_to(o.host.net(), o.a.c, o.addr, o.len - 1, &tx) == TUTTI_ERR_INVALID);
  o.addr[0] ^= 1;
  CHECK(connect_to(o.host.net(), o.a.c, o.addr, o.len, &tx) == TUTTI_ERR_INVALID);
  CHECK(tx == nullptr);
}

TEST_CASE("addresses that lead nowhere, or to somebody else, do not keep the connector from the right one") {
  Open o, elsewhere;
  uint8_t addr[TUTTI_NET_ADDR_BYTES];
  memcpy(addr, o.addr, sizeof addr);
  constexpr size_t count_at = 6, places_at = 8, place = 20;
  const uint8_t nowhere[4] = {192, 0, 2, 77}; // TEST-NET: answers never, or that there is no route
  const uint16_t three = 3;
  memcpy(addr + places_at + 2 * place, o.addr + places_at, place);
  memcpy(addr + places_at + place, elsewhere.addr + places_at, place);
  memcpy(addr + places_at + 4, nowhere, sizeof nowhere);
  memcpy(addr + count_at, &three, sizeof three);
  memcpy(o.addr, addr, sizeof addr);
  tutti_net_ep *tx = nullptr;
  REQUIRE(connect_to(o.host.net(), o.a.c, addr, o.len, &tx) == TUTTI_OK);
  CHECK(within(patience, [&] {
    o.a.drive();
    elsewhere.poll();
    o.poll();
    return o.rx && o.host.net().ep_ready(tx) == TUTTI_OK;
  }));
  CHECK(elsewhere.rx == nullptr);
  o.host.net().ep_destroy(tx);
}

TEST_CASE("a fork of the program does not keep closed connections in the way") {
  struct Copy { // of all descriptors, until the end of the test
    pid_t pid = fork();
    Copy() {
      if (pid == 0) pause(), _exit(0);
    }
    ~Copy() {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  };
  Pair p;
  uint64_t got = 0;
  const uint64_t value = 5;
  tutti_net_ep *tx = nullptr, *rx = nullptr;
  p.connect(tx, rx);
  const Copy copy;
  p.host.net().ep_destroy(tx); // were it still watched, the other end's close would raise events for freed memory
  p.host.net().ep_destroy(rx);
  REQUIRE(p.recv(&got, 8, 1) == TUTTI_OK);
  REQUIRE(p.send(&value, 8, 1) == TUTTI_OK);
  CHECK(p.drive_until([&] { return p.host.net().arm(p.a.c), p.host.net().arm(p.b.c), p.b.has(1); }));
  CHECK(got == 5);
}
