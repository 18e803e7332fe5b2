// TLS sessions in memory and over a socket, and control connections in them.
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/tls.h"
#include "help.h"
#include <algorithm>
#include <poll.h>

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

bool holds(const Bytes &data, const Bytes &what) {
  return std::search(data.begin(), data.end(), what.begin(), what.end()) != data.end();
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

// ---- control connections

namespace {

// Both ends of a control connection in this process, with what this test puts between them.
class Connection {
public:
  // change: what stands between the ends may do with what either says first, and then does no more.
  using Change = std::function<void(bool to_server, Bytes &first)>;
  Connection(bool encrypted, Change change = {}) : change_(std::move(change)) {
    REQUIRE(use_security(*config({{"TUTTI_SECURITY", encrypted ? "encrypted" : "authenticated"}})).ok());
    listener_ = tcp_listener(&at_);
    inner_ = tcp_listener(&inner_at_);
    between_ = std::thread([this] { stand_between(); });
    Hello hello;
    hello.from = 1;
    random_bytes(hello.nonce);
    on_service([&] {
      dialled_ = Conn::dial(Service::get(), Target{{}, at_, {}}, hello, key);
      dialled_->on_verified = [this] { dialled_->prove(); };
      dialled_->on_close = [this](const Status &why) { close("dialled", why); };
    });
    const UniqueFd waits(dup(inner_.get()));
    pollfd p{waits.get(), POLLIN, 0};
    REQUIRE(poll(&p, 1, 10'000) == 1);
    on_service([&] {
      sockaddr_storage from{};
      accepted_ = Conn::accepted(Service::get(), TrackedFd::accept(inner_.get(), &from), false, "the test");
      accepted_->on_hello = [this](const Hello &) { accepted_->admit(key); };
      accepted_->on_open = [this] { opened = true; };
      accepted_->on_frame = [this](Frame f) {
        const std::lock_guard lock(m_);
        heard_ += text(f.payload);
      };
      accepted_->on_close = [this](const Status &why) { close("accepted", why); };
    });
  }
  bool dialled() { // and believes itself connected, or has been closed
    bool yes = false;
    on_service([&] { yes = dialled_->open() || dialled_->closed(); });
    return yes;
  }
  ~Connection() {
    on_service([&] {
      dialled_->close();
      accepted_->close();
      dialled_ = accepted_ = nullptr;
    });
    stop_ = true;
    between_.join();
    REQUIRE(use_security(*config()).ok());
  }
  void send(const std::string &word) {
    on_service([&] { dialled_->send(FrameType::message, 1, bytes(word)); });
  }
  void finish() {
    on_service([&] { dialled_->finish(); });
  }
  bool encrypted() {
    bool both = false;
    on_service([&] { both = dialled_->encrypted() && accepted_->encrypted(); });
    return both;
  }
  std::string heard() {
    const std::lock_guard lock(m_);
    return heard_;
  }
  std::string ends() {
    const std::lock_guard lock(m_);
    return ends_;
  }
  Bytes seen() { // on the way
    const std::lock_guard lock(m_);
    return seen_;
  }
  std::atomic<bool> opened{false};
  Secret key{};

private:
  void close(const char *which, const Status &why) {
    const std::lock_guard lock(m_);
    ends_ += fmt::format("{}: {}\n", which, why.error().message);
  }
  void stand_between() {
    const UniqueFd outer(accept(listener_.get(), nullptr, nullptr)), inner(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(inner.get(), reinterpret_cast<const sockaddr *>(&inner_at_.storage), inner_at_.length()) != 0) return;
    bool changed[2] = {};
    Bytes part(100'000);
    for (bool open = true; open && !stop_;) {
      pollfd p[2] = {{outer.get(), POLLIN, 0}, {inner.get(), POLLIN, 0}};
      if (poll(p, 2, 20) <= 0) continue;
      for (int i = 0; i < 2; i++) {
        if (!(p[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
        const ssize_t n = recv(p[i].fd, part.data(), part.size(), 0);
        if (n <= 0) {
          shutdown(p[1 - i].fd, SHUT_WR);
          open = false;
          continue;
        }
        Bytes what(part.begin(), part.begin() + n);
        if (change_ && !std::exchange(changed[i], true)) change_(i == 0, what);
        ::send(p[1 - i].fd, what.data(), what.size(), MSG_NOSIGNAL);
        const std::lock_guard lock(m_);
        seen_.insert(seen_.end(), what.begin(), what.end());
      }
    }
  }

  Change change_;
  Endpoint at_, inner_at_;
  UniqueFd listener_, inner_;
  Conn::Ptr dialled_, accepted_;
  std::mutex m_; // guards the next three
  std::string heard_, ends_;
  Bytes seen_;
  std::atomic<bool> stop_{false};
  std::thread between_;
};

template <class F> bool comes(F what) {
  const Deadline limit = soon();
  while (!what() && !limit.expired()) std::this_thread::sleep_for(1ms);
  return what();
}

constexpr const char *kWord = "a word for one pair of ears";
constexpr size_t kSecurityAt = 6; // of a hello: after magic and version

} // namespace

TEST_CASE("a control connection is encrypted where that is wanted, and else it is not") {
  for (const bool encrypted : {true, false}) {
    CAPTURE(encrypted);
    Connection c(encrypted);
    std::string sent;
    REQUIRE(comes([&] { return c.dialled(); }));
    for (int i = 0; i < 50; i++) c.send(kWord), sent += kWord; // the first ones before the session stands
    CHECK(comes([&] { return c.heard() == sent; }));
    const std::string big(3 << 20, 'x');
    c.send(big);
    CHECK(comes([&] { return c.heard() == sent + big; }));
    CHECK(c.encrypted() == encrypted);
    CHECK(holds(c.seen(), bytes(kWord)) != encrypted);
  }
}

TEST_CASE("what was sent before an encrypted connection is left arrives") {
  Connection c(true);
  REQUIRE(comes([&] { return c.opened.load(); }));
  c.send(kWord);
  c.finish();
  CHECK(comes([&] { return !c.ends().empty(); }));
  CHECK(c.heard() == kWord);
}

TEST_CASE("who stands between two ends cannot talk them out of encryption") {
  for (const bool to_server : {true, false}) {
    CAPTURE(to_server);
    Connection c(true, [&](bool towards_server, Bytes &first) {
      if (towards_server != to_server) return;
      first[to_server ? kSecurityAt : kSecurityAt + 1] = std::byte(0); // a challenge has a refusal before its version
    });
    REQUIRE(comes([&] { return c.dialled(); }));
    c.send(kWord);
    CHECK(comes([&] { return c.ends().find("does not know") != std::string::npos; }));
    CHECK_FALSE(c.opened);
    CHECK(c.heard() == "");
    CHECK_FALSE(holds(c.seen(), bytes(kWord)));
  }
}

TEST_CASE("ends of which one wants encryption and the other cannot do it both say so") {
  // As one that was built without OpenSSL: it says that it cannot, and proves that it has said so.
  REQUIRE(use_security(*config({{"TUTTI_SECURITY", "encrypted"}})).ok());
  Endpoint at;
  const UniqueFd listener = tcp_listener(&at);
  const Secret key{};
  Conn::Ptr conn;
  std::promise<std::string> end;
  Hello hello;
  hello.from = 1;
  random_bytes(hello.nonce);
  on_service([&] {
    conn = Conn::dial(Service::get(), Target{{}, at, {}}, hello, key);
    conn->on_close = [&](const Status &why) { end.set_value(line(why)); };
  });
  const UniqueFd fd(accept(listener.get(), nullptr, nullptr));
  Bytes in(kHelloBytes);
  REQUIRE(recv(fd.get(), in.data(), in.size(), MSG_WAITALL) == static_cast<ssize_t>(in.size()));
  const auto said = decode_hello(in);
  REQUIRE(said);
  CHECK(said->security == (kCanEncrypt | kWantsEncryption));
  Challenge c;
  c.mac = server_mac(key, *said, c);
  const Bytes out = encode(c);
  REQUIRE(send(fd.get(), out.data(), out.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(out.size()));
  auto why = end.get_future();
  REQUIRE(why.wait_for(10s) == std::future_status::ready);
  const std::string text = why.get();
  CAPTURE(text);
  CHECK(text.find("core.security is \"encrypted\" here and \"authenticated\" there, and the library there was built without") !=
        std::string::npos);
  Bytes proof(kProofBytes);
  REQUIRE(recv(fd.get(), proof.data(), proof.size(), MSG_WAITALL) == static_cast<ssize_t>(proof.size()));
  CHECK(same(*decode_proof(proof), client_mac(key, *said, c))); // so that the other end knows who wants something else
  on_service([&] { conn = nullptr; });
  REQUIRE(use_security(*config()).ok());
}

TEST_CASE("who proves itself and then speaks plainly where it has promised not to is cut off") {
  REQUIRE(use_security(*config({{"TUTTI_SECURITY", "encrypted"}})).ok());
  Endpoint at;
  const UniqueFd listener = tcp_listener(&at), remote(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(remote.get(), reinterpret_cast<const sockaddr *>(&at.storage), at.length()) == 0);
  const Secret key{};
  Conn::Ptr conn;
  std::atomic<bool> opened{false};
  std::promise<std::string> end;
  on_service([&] {
    sockaddr_storage from{};
    conn = Conn::accepted(Service::get(), TrackedFd::accept(listener.get(), &from), false, "the test");
    conn->on_hello = [&](const Hello &) { conn->admit(key); };
    conn->on_open = [&] { opened = true; };
    conn->on_close = [&](const Status &why) { end.set_value(line(why)); };
  });
  Hello hello;
  hello.from = 1;
  hello.security = kCanEncrypt;
  const auto say = [&](const Bytes &what) {
    CHECK(send(remote.get(), what.data(), what.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(what.size()));
  };
  say(encode(hello));
  Bytes answer(kChallengeBytes);
  REQUIRE(recv(remote.get(), answer.data(), answer.size(), MSG_WAITALL) == static_cast<ssize_t>(answer.size()));
  say(encode_proof(client_mac(key, hello, *decode_challenge(answer))));
  Bytes frame(kFrameHeader);
  encode(FrameHeader{0, FrameType::message, false, 1}, frame.data());
  say(frame);
  auto why = end.get_future();
  REQUIRE(why.wait_for(10s) == std::future_status::ready);
  CHECK(why.get().find("cannot be encrypted: TLS: ") != std::string::npos);
  CHECK_FALSE(opened);
  on_service([&] { conn = nullptr; });
  REQUIRE(use_security(*config()).ok());
}

// ---- tutti.host.tls/1

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
