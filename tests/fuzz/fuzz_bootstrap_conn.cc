// One control connection, as a process sees it whose other end is a stranger: any bytes before the handshake is over, or any
// frames after it. The first byte says which end is tested, and how far the handshake goes as it should.
#include "bootstrap/conn.h"
#include "bootstrap/hub.h"
#include "cut.h"
#include <cstddef>
#include <future>
#include <sys/un.h>

using namespace tutti;
using namespace tutti::boot;

namespace {

const std::string kName = "tutti-fuzz-" + std::to_string(::getpid());

int make_listener() {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  kName.copy(un.sun_path + 1, kName.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kName.size());
  fuzz::expect(::bind(fd, reinterpret_cast<const sockaddr *>(&un), length) == 0 && ::listen(fd, 8) == 0);
  return fd;
}

void on_service(const std::function<void()> &fn) {
  std::promise<void> done;
  Service::get().post([&] {
    fn();
    done.set_value();
  });
  done.get_future().wait();
}
// What had come before the call has been looked at.
void settle() {
  for (int i = 0; i < 3; i++) on_service([] {});
}

void say(int fd, std::span<const std::byte> data) {
  (void)!::send(fd, data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}
Bytes hear(int fd, size_t most) {
  Bytes data(most);
  const ssize_t n = ::recv(fd, data.data(), data.size(), MSG_DONTWAIT);
  data.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return data;
}

struct Watched {
  Conn::Ptr conn;
  size_t frames = 0, bytes = 0;
  int closed = 0;
  void watch() {
    conn->on_frame = [this](const Frame &f) {
      frames++;
      bytes += f.payload.size();
    };
    conn->on_close = [this](const Status &why) {
      fuzz::expect(!why.ok());
      closed++;
    };
  }
};

void accepting(int listener, fuzz::Input in, bool honest_hello, bool honest_proof) {
  UniqueFd remote(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  kName.copy(un.sun_path + 1, kName.size());
  fuzz::expect(::connect(remote.get(), reinterpret_cast<const sockaddr *>(&un),
                         static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + kName.size())) == 0);
  Watched w;
  const Secret key{};
  on_service([&] {
    sockaddr_storage from{};
    w.conn = Conn::accepted(Service::get(), TrackedFd::accept(listener, &from), true, "a stranger");
    w.conn->most_frame(4096);
    w.conn->on_hello = [&](const Hello &h) { h.comm % 2 ? w.conn->refuse(Refusal::unknown) : w.conn->admit(key); };
    w.watch();
  });
  if (honest_hello) {
    Hello hello;
    hello.from = 1;
    say(remote.get(), encode(hello));
    settle();
    const auto c = decode_challenge(hear(remote.get(), kChallengeBytes));
    fuzz::expect(c.has_value());
    if (honest_proof) say(remote.get(), encode_proof(client_mac(key, hello, *c)));
  }
  const auto rest = in.rest();
  say(remote.get(), std::as_bytes(std::span(rest)));
  settle();
  const bool authentic = honest_hello && honest_proof;
  on_service([&] {
    fuzz::expect(authentic || w.frames == 0); // nobody gets that far without the key
    fuzz::expect(w.bytes <= rest.size());
    w.conn->close();
    w.conn = nullptr;
  });
  fuzz::expect(w.closed <= 1);
}

void dialling(int listener, fuzz::Input in, bool honest) {
  Watched w;
  const Secret key{};
  Hello hello;
  hello.from = 1;
  on_service([&] {
    w.conn = Conn::dial(Service::get(), Target{kName, {}, {}}, hello, key);
    w.conn->on_verified = [&] { w.conn->prove(); };
    w.watch();
  });
  settle();
  UniqueFd remote(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  fuzz::expect(static_cast<bool>(remote));
  if (honest) {
    (void)hear(remote.get(), kHelloBytes);
    Challenge c;
    c.mac = server_mac(key, hello, c);
    say(remote.get(), encode(c));
  }
  const auto rest = in.rest();
  say(remote.get(), std::as_bytes(std::span(rest)));
  settle();
  on_service([&] {
    fuzz::expect(honest || w.frames == 0);
    w.conn->close();
    w.conn = nullptr;
  });
  fuzz::expect(w.closed <= 1);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const int listener = make_listener();
  fuzz::Input in(data, size);
  switch (in.below(5)) {
  case 0:
    accepting(listener, in, false, false);
    break;
  case 1:
    accepting(listener, in, true, false);
    break;
  case 2:
    accepting(listener, in, true, true);
    break;
  case 3:
    dialling(listener, in, false);
    break;
  default:
    dialling(listener, in, true);
    break;
  }
  return 0;
}
