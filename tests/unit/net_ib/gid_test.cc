// Which GID a port uses.
#include "host.h"
#include "machine.h"
#include <doctest/doctest.h>

using namespace tutti::net_ib;

namespace {

struct Choice {
  bool ok = false;
  Port port;
  std::string why;
};

Choice choose(Machine &m, TestHost::Options options = {}) {
  Choice out;
  out.port.device = "d";
  out.port.ethernet = m.device("d").ports[0].attr.link_layer == IBV_LINK_LAYER_ETHERNET;
  ibv_context *context = m.open("d");
  out.ok = choose_gid(settings_with(std::move(options)), m, context, out.port, out.why);
  m.close(context);
  return out;
}

bool says(const Choice &c, const char *part) {
  return c.why.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a global IPv4 address with RoCE v2 is chosen, wherever it stands") {
  Machine m;
  TestPort &p = m.roce("d", "10.0.0.1").ports[0];
  Machine::set_gid(p, 5, "fd00::1", IBV_GID_TYPE_ROCE_V2);
  Machine::set_gid(p, 7, "10.0.0.2", IBV_GID_TYPE_ROCE_V2);
  const Choice c = choose(m);
  CHECK(c.ok);
  CHECK(c.port.gid_index == 2);
  CHECK(c.port.gid_text == "::ffff:10.0.0.1");
  CHECK(c.port.roce_version == 2);
  CHECK(c.port.global_routing());
  CHECK(c.why.empty());
}

TEST_CASE("family, version and network narrow the choice") {
  Machine m;
  TestPort &p = m.roce("d", "10.0.0.1").ports[0];
  Machine::set_gid(p, 5, "fd00::1", IBV_GID_TYPE_ROCE_V2);
  Machine::set_gid(p, 9, "192.168.1.9", IBV_GID_TYPE_ROCE_V2);
  CHECK(choose(m, {{"family", "AF_INET6"}}).port.gid_index == 5);
  CHECK(choose(m, {{"roce_version", "1"}}).port.gid_index == 1);
  CHECK(choose(m, {{"addr_range", "192.168.0.0/16"}}).port.gid_index == 9);
  CHECK(choose(m, {{"addr_range", "fd00::/8"}}).port.gid_index == 5);
  const Choice none = choose(m, {{"addr_range", "172.16.0.0/12"}, {"roce_version", "2"}});
  CHECK_FALSE(none.ok);
  CHECK(says(none, "of RoCE v2 in 172.16.0.0/12"));
  CHECK(says(none, "9: ::ffff:192.168.1.9 (RoCE v2)")); // what there is instead
}

TEST_CASE("an index that is asked for is taken, whatever it is, and refused when it is empty") {
  Machine m;
  m.roce("d", "10.0.0.1");
  CHECK(choose(m, {{"gid_index", "0"}}).port.gid_text == "fe80::1");
  CHECK(choose(m, {{"gid_index", "1"}}).port.roce_version == 1);
  const Choice empty = choose(m, {{"gid_index", "3"}});
  CHECK_FALSE(empty.ok);
  CHECK(says(empty, "no GID at index 3"));
  CHECK(says(empty, "2: ::ffff:10.0.0.1"));
  CHECK_FALSE(choose(m, {{"gid_index", "200"}}).ok);
}

TEST_CASE("a link-local address serves only when there is nothing else, and it is said") {
  Machine m;
  TestPort &p = m.roce("d", "").ports[0];
  const Choice alone = choose(m);
  CHECK(alone.ok);
  CHECK(alone.port.gid_index == 0);
  CHECK(says(alone, "link-local fe80::1"));
  CHECK_FALSE(choose(m, {{"family", "AF_INET"}}).ok);
  Machine::set_gid(p, 4, "169.254.3.3", IBV_GID_TYPE_ROCE_V2);
  CHECK(says(choose(m), "link-local")); // of IPv4, no better
  Machine::set_gid(p, 6, "fd00::1", IBV_GID_TYPE_ROCE_V1);
  const Choice global = choose(m);
  CHECK(global.port.gid_index == 6);
  CHECK(says(global, "no GID of RoCE v2"));
}

TEST_CASE("an empty table names the cause") {
  Machine m;
  TestPort &p = m.roce("d", "").ports[0];
  p.gids.clear();
  const Choice c = choose(m);
  CHECK_FALSE(c.ok);
  CHECK(says(c, "its GID table is empty"));
}

TEST_CASE("after an address came back at another index a new look finds it") {
  Machine m;
  TestPort &p = m.roce("d", "10.0.0.1").ports[0];
  CHECK(choose(m).port.gid_index == 2);
  p.gids.erase(1);
  p.gids.erase(2);
  Machine::set_gid(p, 4, "10.0.0.1", IBV_GID_TYPE_ROCE_V2);
  CHECK(choose(m).port.gid_index == 4);
}

TEST_CASE("InfiniBand needs no GID within its subnet, and one across subnets") {
  Machine m;
  m.infiniband("d", 7);
  const Choice c = choose(m);
  CHECK(c.ok);
  CHECK(c.port.gid_index == -1);
  CHECK_FALSE(c.port.global_routing());
  ibv_gid peer = c.port.gid;
  CHECK_FALSE(c.port.needs_grh(peer));
  peer.global.subnet_prefix ^= 1;
  CHECK(c.port.needs_grh(peer));
  CHECK(c.port.sgid_index() == 0);
  CHECK(choose(m, {{"gid_index", "0"}}).port.global_routing()); // asked for
}
