// Those who come to the place for lost connections and do not belong there.
#include "cut.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

// What two ends of a resumed connection say, as redial and reception write it (resume.h).
constexpr size_t hello_bytes = 112, answer_bytes = 72, proof_bytes = 32;
constexpr char magic[] = "tuttinr1";

struct Met {
  Pair p{Opt{{"interface", "lo"}, {"family", "AF_INET"}, {"reconnect_local", "true"}, {"handshake_timeout", "200ms"}}};
  std::vector<int> fds;
  ~Met() {
    for (int fd : fds) close(fd);
  }
  // The reception of b: the only listening socket that is left.
  uint16_t port() const {
    for (int fd = 3; fd < 1000; ++fd) {
      int listens = 0;
      socklen_t len = sizeof listens;
      sockaddr_in at{};
      socklen_t size = sizeof at;
      if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens &&
          getsockname(fd, reinterpret_cast<sockaddr *>(&at), &size) == 0)
        return at.sin_port;
    }
    return 0;
  }
  int come() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = port();
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to) == 0);
    fds.push_back(fd);
    return fd;
  }
  std::vector<uint8_t> hear(int fd, size_t bytes) {
    std::vector<uint8_t> all;
    within(std::chrono::seconds(5), [&] {
      p.a.drive(), p.b.drive();
      uint8_t part[256];
      const ssize_t n = recv(fd, part, std::min(sizeof part, bytes - all.size()), MSG_DONTWAIT);
      if (n > 0) all.insert(all.end(), part, part + n);
      return n == 0 || (n < 0 && errno != EAGAIN) || all.size() == bytes;
    });
    return all;
  }
  bool closed(int fd) {
    return within(patience, [&] {
      p.a.drive(), p.b.drive();
      char c[256];
      const ssize_t n = recv(fd, c, sizeof c, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno == ECONNRESET);
    });
  }
  bool still_works(uint64_t value) {
    uint64_t got = 0;
    return p.recv(&got, 8, value) == TUTTI_OK && p.send(&value, 8, value) == TUTTI_OK &&
           p.drive_until([&] { return p.b.has(value); }) && got == value;
  }
};

std::vector<uint8_t> hello(uint8_t connection) {
  std::vector<uint8_t> h(hello_bytes, connection);
  std::memcpy(h.data(), magic, 8);
  h[8] = 3, h[9] = h[10] = h[11] = 0;
  return h;
}

} // namespace

TEST_CASE("garbage, silence and floods at the place for lost connections harm nobody") {
  Met m;
  const int loud = m.come(), quiet = m.come();
  const std::string junk(500, 'x');
  REQUIRE(send(loud, junk.data(), junk.size(), MSG_NOSIGNAL) > 0);
  CHECK(m.closed(loud));
  for (int i = 0; i < 130; ++i) m.come(), m.p.host.net().arm(m.p.b.c), m.p.b.drive();
  CHECK(m.closed(quiet));
  CHECK(m.still_works(1));
}

TEST_CASE("a connection that is not there is not given, and nothing is said about others") {
  Met m;
  const int fd = m.come();
  const auto h = hello(9);
  REQUIRE(send(fd, h.data(), h.size(), MSG_NOSIGNAL) == ssize_t(h.size()));
  const auto answer = m.hear(fd, answer_bytes);
  REQUIRE(answer.size() == answer_bytes);
  CHECK(answer[0] == 1);
  CHECK(std::all_of(answer.end() - 32, answer.end(), [](uint8_t b) { return b == 0; })); // no proof of any secret
  CHECK(m.closed(fd));
  CHECK(m.still_works(1));
}

TEST_CASE("who knows a connection's name but not its secret cannot take it over, nor can who repeats what he has heard") {
  cut::check_apart([] {
    Met m;
    // A man in the middle: the sender dials him, and he passes on what both say until he has heard all of it.
    const uint16_t real = m.port();
    const tutti_net_v1 &net = m.p.host.net();
    if (!m.still_works(1)) return 1;
    const int ear = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(0x0800));
    if (ear < 0) return 77;
    cut::reset(cut::socket_of(net, m.p.tx));
    if (!m.still_works(2)) return 2;
    std::vector<uint8_t> heard_hello, heard_proof;
    uint8_t packet[65536];
    for (ssize_t n; (n = recv(ear, packet, sizeof packet, 0)) > 0;) {
      const size_t ip = (packet[0] & 15u) * 4u, tcp = ip + (packet[ip + 12] >> 4) * 4u;
      uint16_t to;
      std::memcpy(&to, packet + ip + 2, 2);
      if (to != real || size_t(n) <= tcp) continue;
      const std::vector<uint8_t> data(packet + tcp, packet + n);
      if (data.size() == hello_bytes && std::memcmp(data.data(), magic, 8) == 0) heard_hello = data;
      if (data.size() == proof_bytes) heard_proof = data;
    }
    close(ear);
    if (heard_hello.empty() || heard_proof.empty()) return 3;
    const int fd = m.come();
    if (send(fd, heard_hello.data(), heard_hello.size(), MSG_NOSIGNAL) != ssize_t(hello_bytes)) return 4;
    const auto answer = m.hear(fd, answer_bytes);
    if (answer.size() != answer_bytes || answer[0] != 0) return 5; // it is known; what he must prove is new
    if (send(fd, heard_proof.data(), heard_proof.size(), MSG_NOSIGNAL) != ssize_t(proof_bytes)) return 6;
    if (!m.closed(fd)) return 7;
    return m.still_works(3) ? 0 : 8;
  });
}
