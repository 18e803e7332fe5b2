// A root whose ranks have the job's key and say anything: frames of any type from two of them, in any order.
//
// Input: pieces of a byte that names the connection (bit 0) and whether the piece ends it (bit 1), a frame type, a length and
// so many bytes of payload. The first piece of a connection whose byte has bit 2 set is a check-in as it should be.
#include "bootstrap/conn.h"
#include "bootstrap/crypto.h"
#include "bootstrap/hub.h"
#include "bootstrap/launch.h"
#include "cut.h"
#include "log/log.h"
#include <cstddef>
#include <future>
#include <sys/un.h>

using namespace tutti;
using namespace tutti::boot;

namespace {

void settle() {
  for (int i = 0; i < 3; i++) {
    std::promise<void> done;
    Service::get().post([&] { done.set_value(); });
    done.get_future().wait();
  }
}

class Rank {
public:
  Rank(const UniqueId &id, int rank) : rank_(rank), fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    const std::string name = unix_listener_name(id.process);
    name.copy(un.sun_path + 1, name.size());
    fuzz::expect(::connect(fd_.get(), reinterpret_cast<const sockaddr *>(&un),
                           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())) == 0);
    const Identity root = root_identity(id);
    Hello hello;
    hello.comm = root.comm;
    hello.from = rank;
    hello.to = kRootRank;
    hello.library = library_version();
    say(encode(hello));
    Bytes answer(kChallengeBytes);
    fuzz::expect(::recv(fd_.get(), answer.data(), answer.size(), MSG_WAITALL) == static_cast<ssize_t>(answer.size()));
    const auto c = decode_challenge(answer);
    fuzz::expect(c && (c->refusal == Refusal::none || c->refusal == Refusal::unknown));
    if (c->refusal != Refusal::none) return; // both ranks were in the ring: the root has ended
    say(encode_proof(client_mac(root.key, hello, *c)));
  }
  void frame(uint8_t type, std::string_view payload) {
    Bytes out(kFrameHeader);
    encode(FrameHeader{static_cast<uint32_t>(payload.size()), static_cast<FrameType>(type), false, 0}, out.data());
    const auto bytes = std::as_bytes(std::span(payload));
    out.insert(out.end(), bytes.begin(), bytes.end());
    say(out);
  }
  void check_in() {
    CheckIn c;
    c.nranks = 2;
    c.rank = rank_;
    c.library = library_version();
    c.left_ns = c.span_ns = 10'000'000'000;
    c.contact.hostname = "n" + std::to_string(rank_);
    c.contact.endpoints.resize(1);
    c.contact.endpoints[0].storage.ss_family = AF_INET;
    const Bytes b = encode(c);
    frame(static_cast<uint8_t>(FrameType::check_in), {reinterpret_cast<const char *>(b.data()), b.size()});
  }

private:
  void say(const Bytes &data) { (void)!::send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  int rank_;
  UniqueFd fd_;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const auto config = [] {
    log::configure({log::Level::off, 0, "/dev/null", ""}); // it tells of all that goes wrong
    return *Config::from("", "", {{"TUTTI_SOCKET_IFNAME", "lo"}});
  }();
  const auto raw = Bootstrap::create_id(*config);
  fuzz::expect(raw.ok());
  const auto id = decode(*raw);
  fuzz::expect(id.ok());
  fuzz::Input in(data, size);
  std::unique_ptr<Rank> ranks[2];
  for (int pieces = 0; pieces < 16 && !in.empty(); pieces++) {
    const uint8_t how = in.byte();
    auto &rank = ranks[how & 1];
    if (!rank) {
      rank = std::make_unique<Rank>(*id, how & 1);
      if (how & 4) rank->check_in();
    }
    const uint8_t type = in.byte();
    rank->frame(type, in.take(in.byte()));
    if (how & 2) {
      settle();
      rank.reset();
    }
  }
  settle();
  for (auto &rank : ranks) rank.reset();
  release_id(*raw);
  settle();
  return 0;
}
