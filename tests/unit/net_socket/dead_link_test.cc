// A link that goes dead without a word, in a network namespace of its own.
#include "cut.h"

namespace {

// 0 = found
int lose_link() {
  Pair p(Opt{{"interface", "lo"}, {"family", "AF_INET"}, {"keepalive", "1s"}, {"reconnect_timeout", "0s"}});
  uint64_t got = 0;
  const uint64_t value = 5;
  p.recv(&got, 8, 1);
  p.send(&value, 8, 1);
  if (!p.drive_until([&] { return p.b.has(1); }) || !cut::set_loopback(false)) return 2;
  std::vector<uint8_t> much(64 << 20); // more than the kernel buffers, so that the send stays posted
  p.send(much.data(), much.size(), 2);
  if (!p.drive_until([&] { return p.a.has(2); })) return 3;
  if (p.a.status(2) != TUTTI_ERR_REMOTE) return 4;
  return p.host.last_error().find("has answered nothing for") != std::string::npos ? 0 : 5;
}

} // namespace

TEST_CASE("a host that answers nothing any more fails the posted sends in seconds, not after the kernel's quarter of an hour") {
  cut::check_apart(lose_link);
}
