// Options, devices, memory kinds.
#include "pair.h"
#include <net/if.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <unistd.h>

TEST_CASE("devices have names, speeds and sane limits") {
  FakeHost host;
  REQUIRE(host.status() == TUTTI_OK);
  uint32_t n = 0;
  REQUIRE(host.net().device_count(host.plugin(), &n) == TUTTI_OK);
  REQUIRE(n >= 1);
  std::set<std::string> names;
  for (uint32_t i = 0; i < n; ++i) {
    tutti_net_dev d{};
    d.struct_size = sizeof d;
    REQUIRE(host.net().device_info(host.plugin(), i, &d) == TUTTI_OK);
    CHECK(std::strlen(d.name) > 0);
    CHECK(names.insert(d.name).second);
    CHECK(if_nametoindex(d.name) != 0); // an interface, whatever addresses it has
    CHECK(d.speed_mbps > 0);
    CHECK(d.mem_kinds == TUTTI_MEM_HOST);
    CHECK(d.max_inflight >= 8);
    CHECK(d.max_batch >= 2);
  }
}

TEST_CASE("a rule that matches nothing gives no device and the reason") {
  FakeHost host(Opt{{"interface", "=nosuch0"}});
  uint32_t n = 9;
  REQUIRE(host.net().device_count(host.plugin(), &n) == TUTTI_OK);
  CHECK(n == 0);
  CHECK(host.last_error().find("nosuch0") != std::string::npos);
}

TEST_CASE("wrong option values are refused with their origin") {
  CHECK(FakeHost(Opt{{"congestion", "nosuch"}}).status() == TUTTI_ERR_INVALID);
  CHECK(FakeHost(Opt{{"port_range", "9-3"}}).status() == TUTTI_ERR_INVALID);
  CHECK(FakeHost(Opt{{"port_range", "x"}}).status() == TUTTI_ERR_INVALID);
  CHECK(FakeHost(Opt{{"port_range", "0"}}).status() == TUTTI_OK); // any, as the core writes it
  FakeHost host(Opt{{"sockets", "40"}, {"threads", "2"}});
  CHECK(host.status() == TUTTI_ERR_INVALID);
  CHECK(host.last_error().find("more than 64") != std::string::npos);
}

TEST_CASE("every option is read under the type and range that the table states") {
  FakeHost host;
  int options = 0;
  for (const tutti_option *o = host.desc().options; o->key; ++o, ++options) {
    CHECK(o->help != nullptr);
    CHECK(o->min <= o->max);
  }
  CHECK(options == 20);
}

TEST_CASE("listeners stay inside the port range and say when it is used up") {
  // Below the ports that the system hands out, and not where another run of this test is.
  const int first = 10000 + getpid() % 5000 * 4;
  const std::string range = std::to_string(first) + "-" + std::to_string(first + 3);
  FakeHost host(Opt{{"interface", "lo"}, {"family", "AF_INET"}, {"port_range", range}});
  Ctx c(host);
  std::vector<tutti_net_listener *> made;
  tutti_status s = TUTTI_OK;
  for (int i = 0; i < 6 && s == TUTTI_OK; ++i) {
    uint8_t addr[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0;
    tutti_net_listener *l = nullptr;
    s = host.net().listen(c.c, addr, &len, &l);
    if (s == TUTTI_OK) made.push_back(l);
  }
  CHECK(made.size() == 3); // one port is for connections of the context that come back
  CHECK(s < 0);
  CHECK(host.last_error().find(range) != std::string::npos);
  for (auto *l : made) host.net().listener_destroy(l);
}

TEST_CASE("host memory registers, other memory is refused") {
  FakeHost host(Opt{{"interface", "lo"}});
  Ctx c(host);
  char buf[64];
  tutti_region r = {sizeof r, TUTTI_MEM_HOST, buf, sizeof buf, -1, -1, 0};
  tutti_net_mr *mr = nullptr;
  REQUIRE(host.net().mr_register(c.c, &r, &mr) == TUTTI_OK);
  host.net().mr_release(mr);
  r.kind = TUTTI_MEM_CUDA;
  CHECK(host.net().mr_register(c.c, &r, &mr) == TUTTI_ERR_UNSUPPORTED);
}

TEST_CASE("the traffic class of the communicator is that of its sockets") {
  for (const char *family : {"AF_INET", "AF_INET6"}) {
    FakeHost host(Opt{{"interface", "lo"}, {"family", family}});
    constexpr int tclass = 0x48;
    Ctx a(host, 0, tclass), b(host, 0, tclass);
    uint8_t addr[TUTTI_NET_ADDR_BYTES];
    uint32_t len = 0;
    tutti_net_listener *l = nullptr;
    tutti_net_ep *tx = nullptr, *rx = nullptr;
    REQUIRE(host.net().listen(b.c, addr, &len, &l) == TUTTI_OK);
    REQUIRE(connect_to(host.net(), a.c, addr, len, &tx) == TUTTI_OK);
    REQUIRE(within(patience, [&] {
      a.drive(), b.drive();
      if (!rx && host.net().accept(l, nullptr, 0, &rx) != TUTTI_OK) rx = nullptr;
      return rx && host.net().ep_ready(tx) == TUTTI_OK;
    }));
    int marked = 0;
    for (int fd = 3; fd < 1000; ++fd) {
      int value = 0;
      socklen_t size = sizeof value;
      const bool v6 = std::string(family) == "AF_INET6";
      if (getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, &value, &size) == 0 && value == tclass)
        marked++;
    }
    CHECK(marked == 2);
    host.net().ep_destroy(tx);
    host.net().ep_destroy(rx);
    host.net().listener_destroy(l);
  }
}
