#include "transport/mr_cache.h"
#include <doctest/doctest.h>
#include <map>
#include <vector>

using namespace tutti;

namespace {

// A device that notes what is registered, and regions that the test says there are. Nothing here touches the memory.
struct Bench {
  std::map<void *, std::pair<uintptr_t, uint64_t>> live;
  std::vector<Region> regions;
  uintptr_t next = 0x1000;
  uint64_t room = ~0ull; // bytes that the device can register
  int made = 0, refused = 0;
  MrCache cache;

  explicit Bench(MrCache::Limits limits = {})
      : cache(
            limits, [this](void *at, uint64_t bytes) { return add(at, bytes); },
            [this](void *mr) { CHECK(live.erase(mr) == 1); },
            [this](const void *p) {
              for (const Region &r : regions)
                if (r.holds(p, 1)) return r;
              return Region{};
            }) {}
  void *add(void *at, uint64_t bytes) {
    uint64_t used = 0;
    for (const auto &[mr, place] : live) used += place.second;
    if (used + bytes > room) return ++refused, nullptr;
    auto *mr = reinterpret_cast<void *>(next += 0x10);
    live[mr] = {reinterpret_cast<uintptr_t>(at), bytes};
    made++;
    return mr;
  }
  void region(uint64_t id, uintptr_t at, uint64_t bytes) { regions.push_back({id, reinterpret_cast<uint8_t *>(at), bytes}); }
  MrCache::Entry *take(uintptr_t at, uint64_t bytes) {
    MrCache::Entry *e = cache.take(reinterpret_cast<void *>(at), bytes);
    if (!e) return nullptr;
    const auto &place = live.at(e->mr);
    CHECK(place.first <= at);
    CHECK(at + bytes <= place.first + place.second);
    return e;
  }
  bool use(uintptr_t at, uint64_t bytes) {
    MrCache::Entry *e = take(at, bytes);
    if (e) cache.give_back(e);
    return e != nullptr;
  }
  void allow(uint64_t number, uintptr_t at, uint64_t bytes) { cache.allow(number, reinterpret_cast<void *>(at), bytes); }
  bool drop(uintptr_t at, uint64_t bytes) { return cache.drop(reinterpret_cast<void *>(at), bytes); }
};

} // namespace

TEST_CASE("a region is registered once, whole, at its first use") {
  Bench b;
  b.region(1, 0x10000, 0x8000);
  CHECK(b.use(0x12000, 0x100));
  CHECK(b.use(0x10000, 0x8000));
  CHECK(b.use(0x17fff, 1));
  CHECK(b.made == 1);
  CHECK(b.live.begin()->second == std::pair<uintptr_t, uint64_t>(0x10000, 0x8000));
}

TEST_CASE("memory that is neither a region nor registered by the user gets no registration") {
  Bench b;
  b.region(1, 0x10000, 0x1000);
  CHECK(!b.use(0x9000, 8));
  CHECK(!b.use(0x10800, 0x1000)); // ends beyond the region
  CHECK(!b.use(0xffff, 2));       // begins before it
  CHECK(!b.use(0x10001, ~0ull));  // its end is no address
  CHECK(b.made == 0);
}

TEST_CASE("registrations that overlap are found by whatever they hold") {
  Bench b;
  b.allow(1, 0x10000, 0x10000);
  b.allow(2, 0x14000, 0x1000);
  b.allow(3, 0x1c000, 0x8000);
  CHECK(b.use(0x14000, 0x100)); // the first that holds it, in the order of their beginnings
  CHECK(b.use(0x1d000, 0x7000));
  CHECK(b.use(0x15000, 0x9000));
  CHECK(b.use(0x1f000, 0x1000));
  CHECK(b.made == 2);
  CHECK(b.cache.disallow(1));
  CHECK(b.use(0x14800, 0x100));
  CHECK(!b.use(0x15000, 0x100));
  CHECK(b.use(0x1d000, 0x7000));
}

TEST_CASE("the registration that was unused for longest makes room, and none that is in use") {
  Bench b({2, 0});
  for (uint64_t i = 1; i <= 4; i++) b.region(i, i * 0x10000, 0x1000);
  CHECK(b.use(0x10000, 1));
  CHECK(b.use(0x20000, 1));
  CHECK(b.use(0x10000, 1));
  CHECK(b.use(0x30000, 1)); // the second goes
  CHECK(b.use(0x10000, 1));
  CHECK(b.made == 3);
  MrCache::Entry *first = b.take(0x10000, 1), *third = b.take(0x30000, 1);
  REQUIRE(first);
  REQUIRE(third);
  CHECK(!b.use(0x40000, 1));
  CHECK(b.cache.entries() == 2);
  b.cache.give_back(third);
  CHECK(b.use(0x40000, 1));
  CHECK(b.cache.entries() == 2);
  CHECK(b.use(0x10000, 1));
  CHECK(b.made == 4);
  b.cache.give_back(first);
}

TEST_CASE("bytes are bounded, too, and a piece beyond the bound is never registered") {
  Bench b({100, 0x3000});
  b.region(1, 0x10000, 0x2000);
  b.region(2, 0x20000, 0x1000);
  b.region(3, 0x30000, 0x1000);
  b.region(4, 0x40000, 0x4000);
  CHECK(b.use(0x10000, 1));
  CHECK(b.use(0x20000, 1));
  CHECK(b.cache.bytes() == 0x3000);
  CHECK(!b.use(0x40000, 1));
  CHECK(b.cache.entries() == 2); // nothing was thrown away for it
  CHECK(b.use(0x30000, 1));
  CHECK(b.cache.bytes() == 0x2000);
}

TEST_CASE("without entries nothing is kept") {
  Bench b({0, 0});
  b.region(1, 0x10000, 0x1000);
  CHECK(!b.use(0x10000, 1));
}

TEST_CASE("a device that can pin no more gets room, and a piece that it refuses is not tried with every message") {
  Bench b;
  b.room = 0x2000;
  b.region(1, 0x10000, 0x1000);
  b.region(2, 0x20000, 0x2000);
  b.region(3, 0x30000, 0x4000);
  CHECK(b.use(0x10000, 1));
  CHECK(b.use(0x20000, 1)); // the first went
  CHECK(b.cache.entries() == 1);
  MrCache::Entry *second = b.take(0x20000, 1);
  const int before = b.refused;
  CHECK(!b.use(0x30000, 1));
  CHECK(!b.use(0x30000, 1));
  CHECK(b.refused == before + 1);
  b.cache.give_back(second);
  b.room = 0x8000;
  CHECK(b.drop(0x20000, 0x2000)); // there is room now, so it is tried again
  CHECK(b.use(0x30000, 1));
}

TEST_CASE("memory that goes is released at once, or when its last post has ended, and is never taken again") {
  Bench b;
  b.region(1, 0x10000, 0x1000);
  b.allow(7, 0x10000, 0x800);
  CHECK(b.use(0x10000, 1));
  MrCache::Entry *posted = b.take(0x10400, 0x100);
  REQUIRE(posted);
  b.regions.clear(); // freed
  CHECK(!b.drop(0x10000, 0x1000));
  CHECK(b.live.size() == 1);
  CHECK(!b.use(0x10400, 0x100));
  CHECK(!b.drop(0x10000, 0x1000)); // still posted
  b.cache.give_back(posted);
  CHECK(b.live.empty());
  CHECK(b.drop(0x10000, 0x1000));
  b.region(2, 0x10000, 0x2000); // the same address, mapped again
  CHECK(b.use(0x11000, 0x1000));
  CHECK(b.live.begin()->second == std::pair<uintptr_t, uint64_t>(0x10000, 0x2000));
}

TEST_CASE("what the user deregisters leaves the region below it registered") {
  Bench b;
  b.region(1, 0x10000, 0x4000);
  CHECK(b.use(0x10000, 1));
  b.allow(1, 0x11000, 0x1000);
  MrCache::Entry *posted = b.take(0x11000, 0x1000);
  CHECK(b.cache.disallow(1)); // the post uses the region's
  CHECK(b.live.size() == 1);
  b.cache.give_back(posted);
  CHECK(b.use(0x11000, 0x1000));
  CHECK(b.made == 1);
}
