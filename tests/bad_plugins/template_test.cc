// The network of the template against strangers at its listener.
#include "bad_files.h"
#include "base/fd.h"
#include "base/time.h"
#include "plugin/registry.h"
#include <cstddef>
#include <cstring>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

using namespace tutti;

namespace {

// A socket connected to the listener with this address, which says nothing.
UniqueFd silent(const unsigned char *addr) {
  uint64_t number = 0;
  std::memcpy(&number, addr, sizeof number);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("tutti-net-unix-{}", number);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr *>(&name), size) != 0) fd.reset();
  return fd;
}

} // namespace

TEST_CASE("silent strangers, more than the template's listener has room for, do not keep the peer out") {
  auto config = Config::from("", "", {});
  REQUIRE(config.ok());
  const std::string folder = bad::folder("net_good");
  auto registry = Registry::load(*config, std::span(&folder, 1));
  REQUIRE(registry.ok());
  const auto net = (*registry)->named<tutti_net_v1>(TUTTI_NET, "unix");
  REQUIRE(net.ok());
  const tutti_net_v1 &t = *net->table;
  tutti_net_ctx_config how{};
  how.struct_size = sizeof how;
  how.traffic_class = -1;
  how.nranks = 2;
  tutti_net_ctx *ctx = nullptr;
  REQUIRE(t.ctx_create(net->plugin->state, 0, &how, &ctx) == TUTTI_OK);
  unsigned char addr[TUTTI_NET_ADDR_BYTES];
  uint32_t size = sizeof addr;
  tutti_net_listener *listener = nullptr;
  REQUIRE(t.listen(ctx, addr, &size, &listener) == TUTTI_OK);

  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 200; i++) {
    UniqueFd fd = silent(addr);
    if (!fd) break; // the queue is full, and the peer comes last
    strangers.push_back(std::move(fd));
  }
  CHECK(strangers.size() > 8);
  tutti_net_ep *tx = nullptr, *rx = nullptr;
  unsigned char answer[TUTTI_NET_ADDR_BYTES];
  uint32_t answered = sizeof answer;
  REQUIRE(t.connect(ctx, addr, size, answer, &answered, &tx) == TUTTI_OK);
  CHECK(answered == 0);
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  bool ready = false;
  while (!(ready && rx) && !deadline.expired()) {
    const tutti_status s = t.ep_ready(tx);
    REQUIRE(s >= 0);
    ready = s == TUTTI_OK;
    if (!rx) REQUIRE(t.accept(listener, nullptr, 0, &rx) >= 0);
  }
  CHECK(ready);
  CHECK(rx != nullptr);
  t.listener_destroy(listener);
  if (rx) t.ep_destroy(rx);
  t.ep_destroy(tx);
  t.ctx_destroy(ctx);
}
