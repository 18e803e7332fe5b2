// Strangers at every listener: they are refused, and the job goes on.
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "help.h"
#include "log/log.h"
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/un.h>

using namespace help;
using namespace tutti::boot;

namespace {

UniqueFd to_tcp(const tuttiUniqueId &id) {
  const auto parsed = decode(id);
  for (const Endpoint &e : parsed.value().endpoints) {
    UniqueFd fd(socket(e.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&e.storage), e.length()) == 0) return fd;
  }
  return {};
}

UniqueFd to_unix(const tuttiUniqueId &id) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  const std::string name = unix_listener_name(decode(id).value().process);
  std::copy(name.begin(), name.end(), un.sun_path + 1);
  if (connect(fd.get(), reinterpret_cast<sockaddr *>(&un),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) != 0)
    return {};
  return fd;
}

// Whether the other end closes within the limit, whatever it says before.
bool closes(const UniqueFd &fd, std::chrono::milliseconds limit = 8s) {
  const Deadline d = Deadline::in(limit);
  char buf[256];
  while (!d.expired()) {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, d.left_ms()) > 0 && read(fd.get(), buf, sizeof buf) <= 0) return true;
  }
  return false;
}

void say(const UniqueFd &fd, const Bytes &data) {
  CHECK(send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(data.size()));
}

Bytes hear(const UniqueFd &fd, size_t size) {
  Bytes data(size);
  const ssize_t n = recv(fd.get(), data.data(), size, MSG_WAITALL);
  data.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return data;
}

// A connection that knows the job's key and says nothing further.
UniqueFd proven(const tuttiUniqueId &id) {
  const Identity root = root_identity(decode(id).value());
  UniqueFd fd = to_tcp(id);
  REQUIRE(fd);
  Hello h;
  h.comm = root.comm;
  h.from = 1;
  random_bytes(h.nonce);
  say(fd, encode(h));
  const auto c = decode_challenge(hear(fd, kChallengeBytes));
  REQUIRE(c);
  REQUIRE(c->refusal == Refusal::none);
  say(fd, encode_proof(client_mac(root.key, h, *c)));
  return fd;
}

} // namespace

TEST_CASE("who proves itself and never checks in is closed after a while, and with the root at once") {
  const auto c = config({{"TUTTI_SOCKET_HANDSHAKE_TIMEOUT", "5s"}});
  const auto lasting = create_job_id(*c), brief = create_job_id(*c);
  REQUIRE(lasting.ok());
  REQUIRE(brief.ok());
  const UniqueFd silent = proven(lasting.value()), other = proven(brief.value());
  release_id(brief.value());
  CHECK(closes(other, 3s)); // sooner than for its silence
  CHECK(closes(silent));
  release_id(lasting.value());
}

TEST_CASE("ranks of another job are refused, and the log says so in exactly one line") {
  const auto id = create_job_id(*config());
  REQUIRE(id.ok());
  char path[] = "/tmp/tutti-log-XXXXXX";
  const UniqueFd file(mkstemp(path));
  REQUIRE(file);
  log::Settings settings;
  settings.file = path;
  log::configure(settings);
  for (int i = 0; i < 3; i++) {
    const UniqueFd fd = to_tcp(id.value());
    Hello h;
    h.comm = random_u64();
    h.from = 7;
    say(fd, encode(h));
    const auto c = decode_challenge(hear(fd, kChallengeBytes));
    REQUIRE(c);
    CHECK(c->refusal == Refusal::unknown);
  }
  log::configure({});
  int lines = 0;
  std::ifstream in(path);
  for (std::string text; std::getline(in, text);)
    lines += text.find("refused a connection of rank 7 from ") != std::string::npos;
  CHECK(lines == 1);
  unlink(path);
  release_id(id.value());
}

TEST_CASE("garbage, scans, half-open connections and wrong keys are refused while a job joins and works") {
  auto c = config({{"TUTTI_SOCKET_HANDSHAKE_TIMEOUT", "3s"}});
  auto id = Bootstrap::create_id(*c);
  REQUIRE(id.ok());
  std::vector<UniqueFd> strangers;
  for (auto open : {&to_tcp, &to_unix}) {
    for (int i = 0; i < 5; i++) open(id.value()); // a scan
    UniqueFd garbage = open(id.value());
    REQUIRE(garbage);
    const std::string noise(200, 'G');
    CHECK(send(garbage.get(), noise.data(), noise.size(), MSG_NOSIGNAL) == 200);
    CHECK(closes(garbage));
    UniqueFd wrong = open(id.value()); // the right greeting, no key
    Hello h;
    h.comm = decode(id.value()).value().base;
    h.from = 0;
    const Bytes hello = encode(h), proof = encode_proof(Mac{});
    CHECK(send(wrong.get(), hello.data(), hello.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(hello.size()));
    CHECK(send(wrong.get(), proof.data(), proof.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(proof.size()));
    CHECK(closes(wrong));
    strangers.push_back(open(id.value())); // half open
    for (int i = 0; i < 30; i++) strangers.push_back(open(id.value()));
  }
  std::vector<std::unique_ptr<Bootstrap>> w(4);
  each(4, [&](int r) {
    auto b = Bootstrap::join(id.value(), 4, r, c, soon());
    CHECK(line(b) == "");
    if (b.ok()) w[static_cast<size_t>(r)] = std::move(b).value();
  });
  each(4, [&](int r) { CHECK(line(w[static_cast<size_t>(r)]->barrier(soon(), "t")) == ""); });
  CHECK(closes(strangers.front())); // after the time for a handshake
  close(w);
}

TEST_CASE("the service watches a descriptor until it is told not to") {
  int p[2];
  REQUIRE(pipe(p) == 0);
  UniqueFd in(p[0]), out(p[1]);
  static std::atomic<int> calls;
  calls = 0;
  const auto *table = host_watch_service();
  static std::string reason;
  static const tutti_host_diag_v1 diag{sizeof diag, 0, nullptr, nullptr,
                                       [](const tutti_host *, tutti_status, const char *text) noexcept { reason = text; }};
  tutti_host host{};
  host.get_iface = [](const tutti_host *, const char *id) noexcept -> const void * {
    return std::string_view(id) == TUTTI_HOST_DIAG ? &diag : nullptr;
  };
  const auto fn = [](void *arg, uint32_t ready) {
    char byte;
    if ((ready & TUTTI_WATCH_READ) && read(*static_cast<int *>(arg), &byte, 1) == 1) calls++;
  };
  REQUIRE(table->add(&host, in.get(), TUTTI_WATCH_READ, fn, &p[0]) == TUTTI_OK);
  CHECK(table->add(&host, in.get(), TUTTI_WATCH_READ, fn, &p[0]) == TUTTI_ERR_INVALID);
  CHECK(reason.find("is watched already") != std::string::npos);
  REQUIRE(write(out.get(), "x", 1) == 1);
  const Deadline d = soon();
  while (calls == 0 && !d.expired()) std::this_thread::yield();
  CHECK(calls == 1);
  table->remove(&host, in.get());
  REQUIRE(write(out.get(), "x", 1) == 1);
  CHECK(table->add(&host, in.get(), 0, fn, &p[0]) == TUTTI_ERR_INVALID);
  const UniqueFd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  CHECK(table->add(&host, file.get(), TUTTI_WATCH_READ, fn, &p[0]) == TUTTI_ERR_SYSTEM);
  CHECK(calls == 1);
}
