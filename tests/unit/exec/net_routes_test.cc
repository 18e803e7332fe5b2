// Which devices of a network an engine opens, while devices come and go.
#include "fake_net.h"
#include "transport/link_message.h"
#include "transport/net_route.h"
#include "world.h"
#include <doctest/doctest.h>
#include <string>
#include <vector>

using namespace tutti;
using namespace tutti::test;

namespace {

std::vector<std::string> there;  // the devices now
std::vector<std::string> listed; // at the last device_count(): what numbers mean
std::vector<std::string> opened; // by ctx_create()
tutti_status (*make_context)(void *, uint32_t, const tutti_net_ctx_config *, tutti_net_ctx **) = nullptr;

tutti_status count(void *, uint32_t *out) noexcept {
  listed = there;
  return (*out = static_cast<uint32_t>(listed.size()), TUTTI_OK);
}
tutti_status info(void *plugin, uint32_t device, tutti_net_dev *out) noexcept {
  if (device >= listed.size()) return TUTTI_ERR_INVALID;
  if (const tutti_status s = fake_net().table->device_info(plugin, 0, out); s != TUTTI_OK) return s;
  std::fill(std::begin(out->name), std::end(out->name), '\0');
  listed[device].copy(out->name, sizeof out->name - 1);
  if (listed[device] == "lo") out->flags |= TUTTI_NET_LOOPBACK;
  return TUTTI_OK;
}
tutti_status open(void *plugin, uint32_t device, const tutti_net_ctx_config *config, tutti_net_ctx **out) noexcept {
  if (device >= listed.size()) return TUTTI_ERR_INVALID;
  opened.push_back(listed[device]);
  return make_context(plugin, 0, config, out);
}

// One rank, whose devices are `before` when its engine is made and `after` when it has got its routes.
Status open_with(const std::vector<std::string> &before, const std::vector<std::string> &after,
                 const std::vector<std::string> &routes) {
  static tutti_net_v1 table;
  table = *fake_net().table;
  make_context = table.ctx_create;
  table.device_count = count, table.device_info = info, table.ctx_create = open;
  there = before;
  opened.clear();
  ThreadBootstrap::World world;
  world.push_back(std::make_unique<ThreadBootstrap>(world, 0, 1));
  auto engine = Engine::create(*world[0], registry(), config_with({}), {fake_net().plugin, &table});
  REQUIRE(engine.ok());
  std::vector<NetRoutes::Channel> channels(routes.empty() ? 0 : 1);
  for (uint32_t i = 0; i < routes.size(); i++) channels[0].out.push_back(i);
  (*engine)->set_routes({routes, channels, {}, true});
  there = after;
  return (*engine)->set_peers(std::vector<Bytes>{(*engine)->local_info()});
}

} // namespace

TEST_CASE("channels go by the devices of their names, whatever numbers these have by then") {
  REQUIRE(open_with({"a", "b", "c"}, {"a", "b", "c"}, {"c", "b"}).ok());
  CHECK(opened == std::vector<std::string>{"c", "b"});
  REQUIRE(open_with({"a", "b", "c"}, {"b", "c"}, {"b", "c"}).ok());
  CHECK(opened == std::vector<std::string>{"b", "c"});
  REQUIRE(open_with({"b", "c"}, {"a", "b", "c"}, {"b"}).ok());
  CHECK(opened == std::vector<std::string>{"b"});
}

TEST_CASE("a device that channels go by and that is gone is an error which names it and those that are there") {
  const Status s = open_with({"a", "b", "c"}, {"a", "c"}, {"b"});
  REQUIRE(!s.ok());
  CHECK(s.error().message.find("device b, which channels go by, is not there any more; there is: a, c") != std::string::npos);
  CHECK(opened.empty());
}

TEST_CASE("without routes the first device is opened that reaches other hosts, else one that does not") {
  REQUIRE(open_with({"lo", "a"}, {"lo", "b", "a"}, {}).ok());
  CHECK(opened == std::vector<std::string>{"b"});
  REQUIRE(open_with({"lo"}, {"lo"}, {}).ok());
  CHECK(opened == std::vector<std::string>{"lo"});
  CHECK(open_with({"a"}, {}, {}).error().message.find("no device is left") != std::string::npos);
}

// Another thread may abort a communicator while this one binds a plan.
TEST_CASE("a plan that is bound after the end is refused with what ended the engine") {
  Threads world(2, config_with({}), 1, fake_net(), true);
  const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, 0, 2, 0));
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = 4096;
  sel.depth = 4;
  world.engine(0).fail(fail(Code::remote, "somebody aborted it").error());
  REQUIRE(world.engine(0).quiesce());
  const auto bound = world.engine(0).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  REQUIRE(!bound.ok());
  CHECK(bound.status().error().message.find("somebody aborted it") != std::string::npos);
  CHECK(fake_net_violations() == 0);
}

TEST_CASE("a peer may ask often for a link, but not for any number of links") {
  Threads world(2, config_with({}), 1);
  const auto ask = [&](uint32_t conn, uint32_t depth) {
    LinkMessage m{LinkMessage::request, conn, Geometry{4096, depth}, 0};
    Message message;
    message.from = 1;
    message.tag = kLinkTag;
    const auto bytes = std::as_bytes(std::span(&m, 1));
    message.data.assign(bytes.begin(), bytes.end());
    world.worlds[0][0]->deliver(std::move(message));
  };
  for (int i = 0; i < 10'000; i++) ask(7, 4);
  CHECK(!world.engine(0).failed());
  for (uint32_t i = 0; i < 4'200; i++) ask(i, 8);
  REQUIRE(world.engine(0).failed());
  CHECK(world.engine(0).error().error().message.find("rank 1 asks for more than 4096 links") != std::string::npos);
}
