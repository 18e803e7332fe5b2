// A link that goes dead without a word, in a network namespace of its own.
#include "pair.h"
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

bool set_loopback(bool up) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq req{};
  std::strcpy(req.ifr_name, "lo");
  bool ok = ioctl(fd, SIOCGIFFLAGS, &req) == 0;
  req.ifr_flags = static_cast<short>(up ? req.ifr_flags | IFF_UP : req.ifr_flags & ~IFF_UP);
  ok = ok && ioctl(fd, SIOCSIFFLAGS, &req) == 0;
  close(fd);
  return ok;
}

// In a child: 0 = found, 77 = no namespaces here.
int lose_link() {
  if (unshare(CLONE_NEWNET) != 0 || !set_loopback(true)) return 77;
  Pair p(Opt{{"interface", "lo"}, {"family", "AF_INET"}, {"keepalive", "1s"}});
  uint64_t got = 0;
  const uint64_t value = 5;
  p.recv(&got, 8, 1);
  p.send(&value, 8, 1);
  if (!p.drive_until([&] { return p.b.has(1); }) || !set_loopback(false)) return 2;
  std::vector<uint8_t> much(64 << 20); // more than the kernel buffers, so that the send stays posted
  p.send(much.data(), much.size(), 2);
  if (!p.drive_until([&] { return p.a.has(2); })) return 3;
  if (p.a.status(2) != TUTTI_ERR_REMOTE) return 4;
  return p.host.last_error().find("has answered nothing for") != std::string::npos ? 0 : 5;
}

} // namespace

TEST_CASE("a host that answers nothing any more fails the posted sends in seconds, not after the kernel's quarter of an hour") {
  const pid_t child = fork();
  if (child == 0) _exit(lose_link());
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    MESSAGE("no network namespaces here");
  else
    CHECK(WEXITSTATUS(status) == 0);
}
