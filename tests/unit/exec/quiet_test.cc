// What is left untouched once an error was returned: buffers, devices.
#include "fake_net.h"
#include "world.h"
#include <algorithm>
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Ready {
  std::shared_ptr<const Plan> plan;
  const Bound *bound;
};
Ready ready(Engine &e, const char *algo, tutti_coll coll, int rank, int n, uint32_t slot, uint32_t flags = 0, int root = -1) {
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = slot;
  sel.depth = 4;
  auto plan = plan_of(algo, PlanRequest::simple(coll, rank, n, root, 1, flags));
  const auto bound = e.bind(plan, sel, TUTTI_DT_INT32, TUTTI_RED_SUM);
  return {plan, bound.ok() ? *bound : nullptr};
}

Error stopped() {
  Error e;
  e.message = "stopped by the test";
  return e;
}

// At what another thread writes at this moment.
#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize("thread"), noinline))
#endif
int32_t
look(const int32_t &at) {
  return __atomic_load_n(&at, __ATOMIC_RELAXED);
}

} // namespace

TEST_CASE("no thread writes a buffer once one of two waiters has its error") {
  constexpr uint64_t count = 8 << 20;
  for (const char *algo : {"ring", "direct"}) { // one lane, several
    Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
    std::vector<int32_t> in[2], out[2];
    std::vector<uint64_t> seq(2);
    for (int r = 0; r < 2; r++) {
      const auto ru = static_cast<size_t>(r);
      in[r].assign(count, 1), out[r].assign(count, 0);
      const Ready x = ready(world.engine(r), algo, TUTTI_COLL_ALL_REDUCE, r, 2, 1 << 20, TUTTI_REQ_MANY_SLICES);
      REQUIRE(x.bound);
      const auto s =
          world.engine(r).enqueue(x.bound, args_of(*x.plan, in[r].data(), out[r].data(), count, TUTTI_DT_INT32, 0, 1));
      REQUIRE(s.ok());
      seq[ru] = *s;
    }
    std::atomic<bool> filled{false};
    const auto wait = [&] { // who returns first frees its buffer, so to say
      const Status s = world.engine(0).wait(seq[0]);
      if (!s.ok() && !filled.exchange(true)) std::fill(out[0].begin(), out[0].end(), -7);
    };
    std::thread waiters[2] = {std::thread(wait), std::thread(wait)}, peer([&] { (void)world.engine(1).wait(seq[1]); });
    const auto begun = Deadline::in(std::chrono::seconds(10)); // until something has arrived
    while (look(out[0][0]) != 2 && !begun.expired()) std::this_thread::yield();
    world.engine(0).fail(stopped());
    for (auto &w : waiters) w.join();
    world.engine(1).fail(stopped());
    peer.join();
    REQUIRE(filled);
    CHECK(std::all_of(out[0].begin(), out[0].end(), [](int32_t v) { return v == -7; }));
    CHECK(world.engine(0).quiesce());
  }
}

TEST_CASE("a device has nothing of an operation whose error was returned") {
  const uint64_t before = fake_net_endpoints();
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}), 1, fake_net(), true);
  std::vector<int32_t> in(5000, 1), out(5000);
  Status second;
  world.run([&](int r) {
    const Ready x = ready(world.engine(r), "direct", TUTTI_COLL_ALL_REDUCE, r, 2, 32768);
    std::vector<int32_t> mine(5000);
    CHECK(world.engine(r).run(x.bound, args_of(*x.plan, in.data(), mine.data(), 5000, TUTTI_DT_INT32, 0, 1)).ok());
    if (r == 1) return;
    const auto seq = world.engine(0).enqueue(x.bound, args_of(*x.plan, in.data(), out.data(), 5000, TUTTI_DT_INT32, 0, 2));
    REQUIRE(seq.ok());
    const uint64_t both = fake_net_endpoints() - before;
    world.engine(0).fail(stopped());
    second = world.engine(0).wait(*seq);
    CHECK(fake_net_endpoints() - before == both / 2);
  });
  CHECK(!second.ok());
  CHECK(fake_net_violations() == 0);
}
