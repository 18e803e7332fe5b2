// TLS sessions in memory and over a socket.
#include "bootstrap/crypto.h"
#include "bootstrap/tls.h"
#include "help.h"

using namespace help;
using namespace tutti::boot;
using Step = Tls::Step;

namespace {

Secret secret_of(int n) {
  Secret s{};
  s[0] = std::byte(n);
  return s;
}

std::unique_ptr<Tls> session(Tls::Role role, const Secret &secret, int fd = -1) {
  auto made = Tls::create(role, secret, fd);
  REQUIRE_MESSAGE(made.ok(), line(made));
  return std::move(made).value();
}

// Two ends whose bytes this test carries.
struct Pair {
  std::unique_ptr<Tls> client, server;
  Bytes on_the_way; // all of it
  explicit Pair(int client_secret = 1, int server_secret = 1)
      : client(session(Tls::Role::client, secret_of(client_secret))),
        server(session(Tls::Role::server, secret_of(server_secret))) {}
  void carry(Tls &from, Tls &to) {
    const Bytes b = from.take();
    on_the_way.insert(on_the_way.end(), b.begin(), b.end());
    to.feed(b);
  }
  // The last steps of both.
  std::pair<Step, Step> shake() {
    Step c = Step::again, s = Step::again;
    for (int i = 0; i < 6; i++) {
      if (c == Step::again) c = client->handshake();
      carry(*client, *server);
      if (s == Step::again) s = server->handshake();
      carry(*server, *client);
    }
    return {c, s};
  }
};

void write_all(Tls &to, std::span<const std::byte> data) {
  size_t taken = 0;
  for (; !data.empty(); data = data.subspan(taken)) REQUIRE(to.write(data, &taken) == Step::done);
}

Bytes read_all(Tls &from, Step *last) {
  Bytes out, part(5000);
  size_t got = 0;
  while ((*last = from.read(part, &got)) == Step::done)
    out.insert(out.end(), part.begin(), part.begin() + static_cast<long>(got));
  return out;
}

} // namespace

TEST_CASE("two ends with one secret hear each other, and nobody else does") {
  Pair p;
  CHECK(p.shake() == std::pair(Step::done, Step::done));
  CHECK(p.client->ready());
  const Bytes pattern = bytes("the word that nobody else may read");
  Bytes much;
  while (much.size() < (1 << 20)) much.insert(much.end(), pattern.begin(), pattern.end());
  Step last = Step::done;
  for (const auto &[from, to] : {std::pair(p.client.get(), p.server.get()), std::pair(p.server.get(), p.client.get())}) {
    write_all(*from, much);
    p.carry(*from, *to);
    CHECK(read_all(*to, &last) == much);
    CHECK(last == Step::again);
  }
  CHECK(p.on_the_way.size() > 2 * much.size());
  CHECK_FALSE(holds(p.on_the_way, pattern));
}

TEST_CASE("each session has keys of its own") {
  const Bytes word = bytes("the same word under the same secret");
  std::vector<Bytes> seen;
  for (int i = 0; i < 2; i++) {
    Pair p;
    REQUIRE(p.shake() == std::pair(Step::done, Step::done));
    write_all(*p.client, word);
    seen.push_back(p.client->take());
  }
  CHECK(seen[0].size() == seen[1].size());
  CHECK(seen[0] != seen[1]);
}

TEST_CASE("ends with different secrets come to no session") {
  Pair p(1, 2);
  const auto [client, server] = p.shake();
  CHECK(server == Step::failed);
  CHECK(client == Step::failed);
  CHECK(p.server->error().find("TLS: ") == 0);
  CHECK_FALSE(p.client->ready());
  CHECK_FALSE(p.server->ready());
}

TEST_CASE("what was changed, repeated or made up on the way is found") {
  for (int how = 0; how < 4; how++) {
    CAPTURE(how);
    Pair p;
    REQUIRE(p.shake() == std::pair(Step::done, Step::done));
    write_all(*p.client, bytes("to be kept"));
    Bytes sealed = p.client->take();
    Step last = Step::done;
    if (how == 0) sealed[sealed.size() / 2] ^= std::byte(1);
    if (how == 1) {
      p.server->feed(sealed);
      CHECK(text(read_all(*p.server, &last)) == "to be kept");
    }
    if (how == 2) sealed.assign(200, std::byte('G'));
    if (how == 3) sealed = bytes(std::string("\x15\x03\x03\x00\x02\x02\x28", 7)); // an alert, not sealed
    p.server->feed(sealed);
    CHECK(read_all(*p.server, &last).empty());
    CHECK(last == Step::failed);
  }
}

TEST_CASE("of a record that is cut off nothing is read, and the rest brings it") {
  Pair p;
  REQUIRE(p.shake() == std::pair(Step::done, Step::done));
  write_all(*p.client, bytes("all or nothing"));
  const Bytes sealed = p.client->take();
  const std::span<const std::byte> all(sealed);
  Step last = Step::done;
  p.server->feed(all.first(all.size() - 1));
  CHECK(read_all(*p.server, &last).empty());
  CHECK(last == Step::again);
  p.server->feed(all.last(1));
  CHECK(text(read_all(*p.server, &last)) == "all or nothing");
}

TEST_CASE("a stranger who sends anything at all gets no session") {
  for (const Bytes &what : {bytes(std::string(300, 'G')), bytes(std::string("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10)),
                            Bytes(64), bytes("GET / HTTP/1.1\r\n\r\n")}) {
    auto server = session(Tls::Role::server, secret_of(1));
    server->feed(what);
    CHECK(server->handshake() != Step::done);
    CHECK_FALSE(server->ready());
  }
}

TEST_CASE("a session over a descriptor waits for room and for bytes, and sees the end") {
  int fds[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  UniqueFd a(fds[0]), b(fds[1]);
  auto client = session(Tls::Role::client, secret_of(3), a.get()), server = session(Tls::Role::server, secret_of(3), b.get());
  CHECK(client->handshake() == Step::again);
  CHECK_FALSE(client->wants_write());
  for (int i = 0; i < 4 && !(client->ready() && server->ready()); i++) server->handshake(), client->handshake();
  REQUIRE(client->ready());
  REQUIRE(server->ready());
  Bytes much(8 << 20), in, part(100'000);
  for (size_t i = 0; i < much.size(); i++) much[i] = std::byte(i * 7 + i / 251);
  bool was_full = false;
  for (size_t at = 0, n = 0; in.size() < much.size();) {
    if (at < much.size()) {
      const Step s = client->write(std::span(much).subspan(at), &n);
      REQUIRE((s == Step::done || (s == Step::again && n == 0 && client->wants_write())));
      was_full |= s == Step::again;
      at += n;
      if (s == Step::done) continue;
    }
    const Step s = server->read(part, &n);
    REQUIRE((s == Step::done || s == Step::again));
    in.insert(in.end(), part.begin(), part.begin() + static_cast<long>(n));
  }
  CHECK(was_full);
  CHECK(in == much);
  a.reset();
  size_t n = 0;
  CHECK(server->read(part, &n) == Step::closed);
  Step s = Step::done; // the kernel may take one more
  for (int i = 0; i < 2 && s == Step::done; i++) s = server->write(part, &n);
  CHECK(s == Step::failed); // and no signal
  CHECK(server->system_error() == EPIPE);
}
