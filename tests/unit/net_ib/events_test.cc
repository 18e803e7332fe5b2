// What devices report by themselves.
#include "events.h"
#include "host.h"
#include "machine.h"
#include <doctest/doctest.h>

using namespace tutti::net_ib;

namespace {

struct Opened {
  Machine m;
  TestHost core;
  ibv_context *context;
  Settings settings;
  std::unique_ptr<DeviceEvents> events;

  explicit Opened(TestHost::Options options = {}, bool watches = true, ibv_port_state first = IBV_PORT_ACTIVE)
      : core(std::move(options), watches), settings(read_settings(core.host())) {
    m.infiniband("mlx5_0", 7, 2).ports[0].attr.state = first;
    context = m.open("mlx5_0");
    events = std::make_unique<DeviceEvents>(core.host(), m, context, "mlx5_0", uint8_t{2}, settings);
  }
  ~Opened() {
    events.reset();
    CHECK(core.watched() == 0);
    m.close(context);
  }
  void happens(ibv_event_type type, int port = 1, ibv_qp *qp = nullptr) {
    m.happens(context, type, port, qp);
    core.serve();
  }
  bool logged(const char *part) const { return core.log().find(part) != std::string::npos; }
};

} // namespace

TEST_CASE("a port that goes down and comes back is seen, the other one is left alone") {
  Opened o;
  CHECK(o.events->watched());
  const PortState &one = o.events->port(1), &two = o.events->port(2);
  CHECK(one.active());
  CHECK(one.changes() == 0);
  o.happens(IBV_EVENT_PORT_ERR);
  CHECK_FALSE(one.active());
  CHECK(one.changes() == 1);
  CHECK(two.active());
  CHECK(o.logged("mlx5_0:1 went down"));
  o.happens(IBV_EVENT_PORT_ERR); // again
  CHECK_FALSE(one.active());
  CHECK(one.changes() == 1);
  o.happens(IBV_EVENT_PORT_ACTIVE);
  CHECK(one.active());
  CHECK(one.changes() == 2);
  CHECK(o.logged("mlx5_0:1 is active again"));
  CHECK(o.m.acknowledged == 3);
}

TEST_CASE("a port that is down from the start is known to be") {
  Opened o({}, true, IBV_PORT_DOWN);
  CHECK_FALSE(o.events->port(1).active());
  CHECK(o.events->port(2).active());
  CHECK_FALSE(o.logged("went down")); // whoever chose the port has said it
}

TEST_CASE("changes of GIDs, LIDs and keys are counted") {
  Opened o;
  const PortState &port = o.events->port(2);
  o.happens(IBV_EVENT_GID_CHANGE, 2);
  CHECK(port.changes() == 1);
  o.happens(IBV_EVENT_LID_CHANGE, 2);
  o.happens(IBV_EVENT_PKEY_CHANGE, 2);
  CHECK(port.changes() == 3);
  CHECK(port.active());
  CHECK(o.events->port(1).changes() == 0);
  o.happens(IBV_EVENT_GID_CHANGE, 9); // a port that the device does not have
  o.happens(IBV_EVENT_GID_CHANGE, 0);
  CHECK(port.changes() == 3);
}

TEST_CASE("broken queue pairs are handed out once, by number") {
  Opened o;
  CHECK(o.events->take_broken().empty());
  ibv_qp qp{};
  qp.qp_num = 77;
  o.happens(IBV_EVENT_QP_FATAL, 0, &qp);
  o.happens(IBV_EVENT_COMM_EST, 0, &qp); // nothing is wrong
  CHECK(o.events->any_broken());
  const auto broken = o.events->take_broken();
  REQUIRE(broken.size() == 1);
  CHECK(broken[0].qp_num == 77);
  CHECK(broken[0].reason.find("queue pair 77") != std::string::npos);
  CHECK_FALSE(o.events->any_broken());
  CHECK_FALSE(o.events->dead());
}

TEST_CASE("a fatal event of the device ends it, and takes its ports down") {
  Opened o;
  o.happens(IBV_EVENT_DEVICE_FATAL);
  CHECK(o.events->dead());
  CHECK(o.events->reason().find("mlx5_0: the device reported a fatal error") == 0);
  CHECK_FALSE(o.events->port(1).active());
  CHECK_FALSE(o.events->port(2).active());
}

TEST_CASE("with return_async_events off, fatal events are only logged") {
  Opened o(TestHost::Options{{"return_async_events", "false"}});
  ibv_qp qp{};
  qp.qp_num = 5;
  o.happens(IBV_EVENT_QP_ACCESS_ERR, 0, &qp);
  o.happens(IBV_EVENT_DEVICE_FATAL);
  CHECK_FALSE(o.events->any_broken());
  CHECK_FALSE(o.events->dead());
  CHECK(o.logged("queue pair 5"));
  CHECK(o.logged("fatal error"));
}

TEST_CASE("a device that was removed is dead, and is not watched for ever") {
  Opened o;
  o.m.breaks(EIO);
  o.happens(IBV_EVENT_PORT_ERR);
  CHECK(o.events->dead());
  CHECK(o.events->reason().find("removed") != std::string::npos);
  CHECK(o.core.watched() == 1);
  o.events->poll();
  CHECK(o.core.watched() == 0);
}

TEST_CASE("a device that was removed is not watched for ever either where that is only logged") {
  Opened o(TestHost::Options{{"return_async_events", "false"}});
  o.events->poll();
  CHECK(o.core.watched() == 1);
  o.m.breaks(EIO);
  o.happens(IBV_EVENT_PORT_ERR);
  CHECK_FALSE(o.events->dead());
  CHECK(o.logged("removed"));
  o.events->poll();
  CHECK(o.core.watched() == 0);
  o.events->poll(); // there is nothing more to read
}

TEST_CASE("without the watch service poll() reads the events") {
  Opened o({}, false);
  CHECK_FALSE(o.events->watched());
  o.happens(IBV_EVENT_PORT_ERR);
  CHECK(o.events->port(1).active()); // nobody has read it
  o.events->poll();
  CHECK_FALSE(o.events->port(1).active());
}
