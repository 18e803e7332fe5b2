#include "world.h"
#include <doctest/doctest.h>
#include <numeric>

using namespace tutti;
using namespace tutti::test;

namespace {

// One small all_reduce; true when the sum is right.
bool reduce_once(Engine &e, const Bound *bound, const Plan &plan, int n, uint64_t count, uint64_t number) {
  std::vector<int32_t> in(count), out(count, -1);
  std::iota(in.begin(), in.end(), static_cast<int32_t>(number));
  if (!e.run(bound, args_of(plan, in.data(), out.data(), count, TUTTI_DT_INT32, 0, number)).ok()) return false;
  for (uint64_t i = 0; i < count; i++)
    if (out[i] != n * in[i]) return false;
  return true;
}

struct Ready {
  std::shared_ptr<const Plan> plan;
  const Bound *bound;
};
Ready ready(Engine &e, const char *algo, int rank, int n, uint32_t slot) {
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = slot;
  sel.depth = 4;
  auto plan = plan_of(algo, PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, n));
  const auto bound = e.bind(plan, sel, TUTTI_DT_INT32, TUTTI_RED_SUM);
  return {plan, bound.ok() ? *bound : nullptr};
}

} // namespace

TEST_CASE("64 ranks as threads finish every operation on few cores") {
  constexpr int n = 64;
  Threads world(n);
  std::atomic<int> good{0};
  world.run([&](int r) {
    const Ready x = ready(world.engine(r), "ring", r, n, 512);
    bool ok = x.bound;
    for (uint64_t k = 1; ok && k <= 5; k++) ok = reduce_once(world.engine(r), x.bound, *x.plan, n, 1000 * k, k);
    good += ok;
  });
  CHECK(good == n);
}

TEST_CASE("32 ranks as processes finish every operation on few cores, and hold no descriptors") {
  CHECK(forked(32, [](int rank, Engine &e) {
    const Ready x = ready(e, "ring", rank, 32, 1024);
    if (!x.bound) return 1;
    for (uint64_t k = 1; k <= 5; k++)
      if (!reduce_once(e, x.bound, *x.plan, 32, 1000, k)) return 2;
    return e.usage().fds == 0 ? 0 : 3;
  }));
}

TEST_CASE("communicators used in different orders by different threads do not deadlock") {
  constexpr int n = 2, comms = 6;
  Threads world(n, nullptr, comms);
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int r = 0; r < n; r++) {
    threads.emplace_back([&, r] { // enqueue on all, in an order of this rank's own, then wait for all
      std::vector<Ready> x;
      std::vector<std::vector<int32_t>> in(comms, std::vector<int32_t>(500, 3)), out(comms, std::vector<int32_t>(500));
      for (int c = 0; c < comms; c++) x.push_back(ready(world.engine(r, c), "direct", r, n, 256));
      bool ok = true;
      for (uint64_t k = 1; k <= 50; k++) {
        std::vector<uint64_t> seq(comms);
        for (int i = 0; i < comms; i++) {
          const int c = r ? comms - 1 - i : i;
          const auto cu = static_cast<size_t>(c);
          const auto s = world.engine(r, c).enqueue(
              x[cu].bound, args_of(*x[cu].plan, in[cu].data(), out[cu].data(), 500, TUTTI_DT_INT32, 0, k));
          ok &= s.ok();
          if (s.ok()) seq[cu] = *s;
        }
        for (int i = 0; i < comms; i++) ok &= world.engine(r, i).wait(seq[static_cast<size_t>(i)]).ok();
        for (const auto &o : out) ok &= o[499] == 6;
      }
      good += ok;
    });
  }
  for (auto &t : threads) t.join();
  CHECK(good == n);
}

TEST_CASE("operations that nobody waits for complete, in order and after what they depend on") {
  Threads world(2, nullptr, 2);
  std::atomic<int> good{0};
  world.run([&](int r) {
    const Ready a = ready(world.engine(r, 0), "direct", r, 2, 256), b = ready(world.engine(r, 1), "direct", r, 2, 256);
    std::vector<int32_t> in(100, 1), mid(100), out(100);
    const auto first = world.engine(r, 0).enqueue(a.bound, args_of(*a.plan, in.data(), mid.data(), 100, TUTTI_DT_INT32, 0, 1));
    const Engine::Dependency after{&world.engine(r, 0), *first};
    const auto second =
        world.engine(r, 1).enqueue(b.bound, args_of(*b.plan, mid.data(), out.data(), 100, TUTTI_DT_INT32, 0, 1), {&after, 1});
    const auto until = Deadline::in(std::chrono::seconds(20));
    while (world.engine(r, 1).completed() < *second && !until.expired()) std::this_thread::yield();
    good += out[99] == 4;
  });
  CHECK(good == 2);
}
