// Paths that fail in the middle of everything, in orders drawn from a seed.
#include "stream.h"
#include <cerrno>
#include <cstdlib>

using namespace tutti::net_ib;
using namespace tutti::net_ib::test;

namespace {

// NET_IB_SEED=n runs that schedule only, NET_IB_SEEDS=n so many.
template <class Fn> void schedules(uint64_t n, Fn &&fn) {
  if (const char *one = std::getenv("NET_IB_SEED")) return fn(std::strtoull(one, nullptr, 0));
  if (const char *many = std::getenv("NET_IB_SEEDS")) n = std::strtoull(many, nullptr, 0);
  for (uint64_t seed = 1; seed <= n; ++seed) fn(seed);
}

Options two_rails(uint64_t seed) {
  Options o;
  o.rails = 2;
  o.seed = seed;
  o.settings = [seed](Settings &s) {
    s.qps_per_connection = 1 + static_cast<uint32_t>(seed % 2);
    s.split_data = seed % 3 != 0;
    s.max_inflight = 8 + static_cast<uint32_t>(seed % 9);
    s.inline_bytes = static_cast<uint32_t>(seed % 4 * 64);
  };
  return o;
}

// What goes wrong: on one rail only, so that the other one always works.
void disturb(World &w, size_t rail) {
  Fabric &f = w.fabric;
  Process &p = f.below(2) ? *w.a : *w.b;
  DoubleDevice &d = p.device(rail);
  switch (f.below(8)) {
  case 0:
    f.set_link(d, 0, !d.ports[0].up);
    break;
  case 1:
    d.ports[0].drops = !d.ports[0].drops;
    break;
  case 7:
  case 2: { // the device gives up on a queue pair
    const std::vector<uint32_t> list = f.queue_pairs(d);
    if (!list.empty()) f.break_qp(list[f.below(list.size())]);
    break;
  }
  case 3:
    d.send_fails_when_down = f.below(2);
    d.purges = f.below(2);
    d.flushes_late = f.below(2);
    break;
  case 4:
  case 5:
    d.ports[0].slow = !d.ports[0].slow;
    break;
  case 6:
    f.loss = f.below(2) ? 0 : static_cast<uint32_t>(f.below(20));
    break;
  }
}

uint64_t lines(const std::string &log, const std::string &what) {
  uint64_t n = 0;
  for (size_t at = 0; (at = log.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

void heal(World &w, size_t rail) {
  for (Process *p : {&*w.a, &*w.b}) {
    DoubleDevice &d = p->device(rail);
    if (!d.ports[0].up) w.fabric.set_link(d, 0, true);
    d.ports[0].drops = d.ports[0].slow = false;
  }
  w.fabric.loss = 0;
}

// What the schedules of a test went through, all together: it would prove nothing if they were all quiet.
struct Story {
  uint64_t late = 0, known = 0, failed = 0, back = 0, held = 0;
  void add(const World &w) {
    late += w.fabric.late_letters;
    known += w.fabric.duplicates;
    failed += lines(w.core.log, "failed with status") + lines(w.core.log, "failed at the peer");
    held += lines(w.core.log, "port is down");
    back += lines(w.core.log, "works again");
  }
  std::string text() const {
    return tutti::plugin::text(failed, " paths failed, ", held, " with their port, ", back, " came back; ", late,
                               " letters came late, ", known, " twice");
  }
};

} // namespace

TEST_CASE("a rail that fails and comes back in any order loses, repeats and misplaces nothing") {
  Story story;
  schedules(150, [&](uint64_t seed) {
    CAPTURE(seed);
    World w(two_rails(seed));
    w.connect();
    w.fabric.steps_inside = seed % 4;
    Stream s(w, {200, 12000}, seed);
    const bool over = w.until([&] {
      s.post();
      s.check();
      if (w.fabric.below(60) == 0) disturb(w, 0);
      if (w.fabric.below(200) == 0) heal(w, 0);
      w.now += std::chrono::milliseconds(w.fabric.below(4));
      return s.over();
    });
    REQUIRE_MESSAGE(over, s.text());
    REQUIRE_MESSAGE(!s.ended(), s.text());
    CHECK(w.fabric.overflows == 0);
    story.add(w);
  });
  MESSAGE(story.text());
  if (std::getenv("NET_IB_SEED")) return;
  CHECK(story.failed > 0); // else the schedules have shown nothing
  CHECK(story.held > 0);
  CHECK(story.back > 0);
  CHECK(story.late > 0);
}

TEST_CASE("a path that cannot be made anew is tried again after a pause, also where the peer has made it") {
  World w(two_rails(4));
  w.connect();
  for (int i = 0; i < 300; ++i) w.turn();
  Machine &home = w.b->home;
  for (int i = 0; i < 1000; ++i) home.faults.push_back({"create_qp", 1, EPERM});
  const int before = home.calls["create_qp"];
  w.fabric.break_qp(w.fabric.queue_pairs(w.a->device(0)).front());
  for (int i = 0; i < 4000; ++i) w.turn(); // seconds
  const int tried = home.calls["create_qp"] - before;
  CHECK(tried >= 1);
  CHECK(tried <= 2);
  home.faults.clear();
  CHECK(w.until([&] { return w.core.log.find("works again") != std::string::npos; }));
}
