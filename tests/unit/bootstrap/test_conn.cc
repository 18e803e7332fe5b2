// The handshake of a control connection where one of the two processes has no time.
#include "bootstrap/conn.h"
#include "bootstrap/hub.h"
#include "help.h"
#include <poll.h>

using namespace help;
using namespace tutti::boot;

namespace {

// The accepted end of a connection, as a hub would have it that knows whom the hello looks for.
class Accepted {
public:
  explicit Accepted(std::chrono::milliseconds patience) {
    const std::string limit = fmt::format("{}ms", patience.count());
    REQUIRE(Service::get().hub().contact(*config({{"TUTTI_SOCKET_HANDSHAKE_TIMEOUT", limit}})).ok());
    Endpoint at;
    const UniqueFd listener = tcp_listener(&at);
    REQUIRE(listener);
    remote = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(remote.get(), reinterpret_cast<const sockaddr *>(&at.storage), at.length()) == 0);
    on_service([&] {
      sockaddr_storage from{};
      conn_ = Conn::accepted(Service::get(), TrackedFd::accept(listener.get(), &from), false, "the test");
      conn_->on_hello = [this](const Hello &) { conn_->admit(key); };
      conn_->on_open = [this] { opened = true; };
      conn_->on_close = [this](const Status &) { lost = true; };
    });
    hello.from = 1;
    random_bytes(hello.nonce);
    say(encode(hello));
    Bytes answer(kChallengeBytes);
    REQUIRE(recv(remote.get(), answer.data(), answer.size(), MSG_WAITALL) == static_cast<ssize_t>(answer.size()));
    const auto c = decode_challenge(answer);
    REQUIRE(c);
    proof = encode_proof(client_mac(key, hello, *c));
  }
  ~Accepted() {
    on_service([&] {
      conn_->close();
      conn_ = nullptr;
    });
    REQUIRE(Service::get().hub().contact(*config()).ok());
  }
  void say(const Bytes &data) {
    CHECK(send(remote.get(), data.data(), data.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(data.size()));
  }

  UniqueFd remote;
  Hello hello;
  Secret key{};
  Bytes proof;
  std::atomic<bool> opened{false}, lost{false};

private:
  Conn::Ptr conn_;
};

bool comes(const std::atomic<bool> &what) {
  const Deadline limit = soon();
  while (!what && !limit.expired()) std::this_thread::sleep_for(1ms);
  return what;
}

} // namespace

TEST_CASE("a proof is believed that came in time, when nobody had time to look at it") {
  Accepted a(100ms);
  on_service([&] {
    a.say(a.proof);
    std::this_thread::sleep_for(300ms); // the thread that should look is busy until the time is over
  });
  CHECK(comes(a.opened));
  CHECK(!a.lost);
}

TEST_CASE("who began to wait first may prove itself later than its own patience lasts") {
  Accepted a(1s);
  std::this_thread::sleep_for(1100ms);
  CHECK(!a.lost);
  a.say(a.proof);
  CHECK(comes(a.opened));
}

TEST_CASE("who never proves itself is given up") {
  Accepted a(100ms);
  CHECK(comes(a.lost));
  CHECK(!a.opened);
}
