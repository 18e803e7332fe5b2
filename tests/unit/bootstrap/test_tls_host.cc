// tutti.host.tls/1: what plugins get.
#include "bootstrap/tls.h"
#include "help.h"

using namespace help;
using namespace tutti::boot;

namespace {

std::string g_reason;
const tutti_host *tls_host() {
  static const tutti_host_diag_v1 diag{sizeof diag, 0, nullptr, nullptr,
                                       [](const tutti_host *, tutti_status, const char *text) noexcept { g_reason = text; }};
  static const tutti_host host = [] {
    tutti_host h{};
    h.get_iface = [](const tutti_host *, const char *id) noexcept -> const void * {
      return std::string_view(id) == TUTTI_HOST_DIAG ? &diag : nullptr;
    };
    return h;
  }();
  return &host;
}

tutti_tls_config tls_config(tutti_tls_role role, int fd, std::string_view secret, std::string_view context = {}) {
  tutti_tls_config c{};
  c.struct_size = sizeof c;
  c.role = role;
  c.fd = fd;
  c.secret = secret.data();
  c.secret_bytes = static_cast<uint32_t>(secret.size());
  c.context = context.data();
  c.context_bytes = static_cast<uint32_t>(context.size());
  return c;
}

struct Plain { // what both ends of the service have come to
  tutti_status client, server;
};

tutti_status put(tutti_tls *to, const void *data, uint64_t bytes, uint64_t *n) {
  const tutti_tls_part parts[] = {
      {data, bytes / 3}, {nullptr, 0}, {static_cast<const char *>(data) + bytes / 3, bytes - bytes / 3}};
  return host_tls_service()->write(to, parts, 3, n);
}

// By memory; and then `word` from the client to the server.
Plain by_memory(const tutti_tls_config &one, const tutti_tls_config &other, std::string_view word, std::string *heard) {
  const tutti_host_tls_v1 &t = *host_tls_service();
  tutti_tls *client = nullptr, *server = nullptr;
  REQUIRE(t.create(tls_host(), &one, &client) == TUTTI_OK);
  REQUIRE(t.create(tls_host(), &other, &server) == TUTTI_OK);
  const auto carry = [&](tutti_tls *from, tutti_tls *to) {
    char part[77]; // in pieces
    for (uint64_t n = 1; n > 0;) {
      REQUIRE(t.take(from, part, sizeof part, &n) == TUTTI_OK);
      REQUIRE(t.feed(to, part, n) == TUTTI_OK);
    }
  };
  Plain p{TUTTI_AGAIN, TUTTI_AGAIN};
  uint64_t n = 0;
  CHECK(put(client, "x", 1, &n) == TUTTI_ERR_INVALID);
  for (int i = 0; i < 6; i++) {
    if (p.client == TUTTI_AGAIN) p.client = t.handshake(client);
    carry(client, server);
    if (p.server == TUTTI_AGAIN) p.server = t.handshake(server);
    carry(server, client);
  }
  if (p.client == TUTTI_OK && p.server == TUTTI_OK) {
    char got[100];
    for (uint64_t at = 0; at < word.size(); at += n) REQUIRE(put(client, word.data() + at, word.size() - at, &n) == TUTTI_OK);
    carry(client, server);
    heard->clear();
    while (t.read(server, got, sizeof got, &n) == TUTTI_OK) heard->append(got, n);
    CHECK(t.read(server, got, sizeof got, &n) == TUTTI_AGAIN);
    CHECK(t.wants(server) == TUTTI_TLS_READ);
    CHECK(t.feed(server, "rubbish, rubbish, rubbish", 25) == TUTTI_OK);
    CHECK(t.read(server, got, sizeof got, &n) == TUTTI_ERR_DENIED);
  }
  t.destroy(client);
  t.destroy(server);
  return p;
}

constexpr std::string_view kShared = "sixteen bytes and more";

} // namespace

TEST_CASE("plugins get sessions that stand where secret and context are alike, and else do not") {
  std::string heard;
  const auto client = tls_config(TUTTI_TLS_CLIENT, -1, kShared, "nonces");
  Plain p = by_memory(client, tls_config(TUTTI_TLS_SERVER, -1, kShared, "nonces"), "a word", &heard);
  CHECK(p.client == TUTTI_OK);
  CHECK(p.server == TUTTI_OK);
  CHECK(heard == "a word");
  for (const auto &server : {tls_config(TUTTI_TLS_SERVER, -1, kShared, "others"), tls_config(TUTTI_TLS_SERVER, -1, kShared),
                             tls_config(TUTTI_TLS_SERVER, -1, "sixteen other bytes or more", "nonces")}) {
    p = by_memory(client, server, "a word", &heard);
    CHECK(p.client == TUTTI_ERR_DENIED);
    CHECK(p.server == TUTTI_ERR_DENIED);
    CHECK(g_reason.find("the encrypted connection failed: TLS: ") == 0);
  }
}

TEST_CASE("what a plugin may not ask of a session is refused with the value") {
  const tutti_host_tls_v1 &t = *host_tls_service();
  tutti_tls *none = nullptr;
  for (const auto &[config, why] :
       {std::pair(tls_config(2, -1, kShared), "role 2"),
        std::pair(tls_config(TUTTI_TLS_CLIENT, -1, "short"), "secret of 5 bytes"),
        std::pair(tls_config(TUTTI_TLS_CLIENT, -1, kShared, std::string(65537, 'c')), "context of 65537")}) {
    CHECK(t.create(tls_host(), &config, &none) == TUTTI_ERR_INVALID);
    CHECK(g_reason.find(why) != std::string::npos);
    CHECK(none == nullptr);
  }
  tutti_tls *tls = nullptr;
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  const UniqueFd a(fds[0]);
  UniqueFd b(fds[1]);
  const auto config = tls_config(TUTTI_TLS_CLIENT, a.get(), kShared);
  REQUIRE(t.create(tls_host(), &config, &tls) == TUTTI_OK);
  CHECK(t.feed(tls, "x", 1) == TUTTI_ERR_INVALID);
  CHECK(t.handshake(tls) == TUTTI_AGAIN);
  CHECK(t.in_kernel(tls) == 0);
  b.reset();
  CHECK(t.handshake(tls) == TUTTI_ERR_REMOTE);
  t.destroy(tls);
}

TEST_CASE("bytes that the kernel did not take are expected again") {
  const tutti_host_tls_v1 &t = *host_tls_service();
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  UniqueFd a(fds[0]), b(fds[1]);
  const int room = 64 << 10;
  setsockopt(a.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  const auto one = tls_config(TUTTI_TLS_CLIENT, a.get(), kShared), other = tls_config(TUTTI_TLS_SERVER, b.get(), kShared);
  tutti_tls *client = nullptr, *server = nullptr;
  REQUIRE(t.create(tls_host(), &one, &client) == TUTTI_OK);
  REQUIRE(t.create(tls_host(), &other, &server) == TUTTI_OK);
  for (int i = 0; i < 4; i++) t.handshake(client), t.handshake(server);
  std::string data(1 << 20, '\0'), heard;
  for (size_t i = 0; i < data.size(); i++) data[i] = static_cast<char>(i * 31 + i / 8191);
  uint64_t at = 0, n = 0;
  while (put(client, data.data() + at, data.size() - at, &n) == TUTTI_OK) at += n;
  CHECK(t.wants(client) == TUTTI_TLS_WRITE);
  CHECK(put(client, data.data() + at, 1, &n) == TUTTI_ERR_INVALID); // fewer than are sealed
  CHECK(g_reason.find("1 bytes where ") == 0);
  // What the peer can read is what write() has told, and not a byte more: a sender that starts anew elsewhere relies on it.
  std::string part(50'000, '\0');
  while (t.read(server, part.data(), part.size(), &n) == TUTTI_OK) heard.append(part, 0, n);
  CHECK(heard == data.substr(0, at));
  while (heard.size() < data.size()) {
    if (at < data.size() && put(client, data.data() + at, data.size() - at, &n) == TUTTI_OK) at += n;
    while (t.read(server, part.data(), part.size(), &n) == TUTTI_OK) heard.append(part, 0, n);
  }
  CHECK(heard == data);
  t.destroy(client);
  t.destroy(server);
}
