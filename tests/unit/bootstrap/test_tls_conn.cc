// Control connections in TLS, with somebody between their ends.
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "help.h"
#include <poll.h>

using namespace help;
using namespace tutti::boot;

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
