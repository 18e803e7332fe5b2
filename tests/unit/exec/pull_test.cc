// The protocol "pull": what is lent, how it is read, and what happens when the lender's memory, process or permission is gone.
#include "cases.h"
#include "exec/bound.h"
#include "forbid.h"
#include "transport/regions.h"
#include "transport/transport.h"
#include <csignal>
#include <cstdio>
#include <doctest/doctest.h>
#include <sys/mman.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint32_t kMany = TUTTI_REQ_MANY_SLICES;

Iface<tutti_proto_v1> pull() {
  return *registry().named<tutti_proto_v1>(TUTTI_PROTO, "pull");
}
Selection pull_selection(uint32_t slot, uint32_t depth = 4) {
  Selection sel;
  sel.proto = pull();
  sel.slot_bytes = slot;
  sel.depth = depth;
  return sel;
}
Case by_pull(Case c) {
  c.proto = pull();
  return c;
}
uint64_t lent(const Bound &b) { // messages up to the last one that was lent, of all links
  uint64_t n = 0;
  for (const Ring *r : b.lending) n += r->cold->described;
  return n;
}

// Floats in private memory, or in memory of tuttiMemAlloc.
class Memory {
public:
  Memory(uint64_t count, bool shared) : count_(count), shared_(shared) {
    void *p = shared ? *regions::allocate(bytes())
                     : ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    at = static_cast<float *>(p);
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;
  ~Memory() { free(); }
  void free() {
    if (!at) return;
    if (shared_)
      (void)regions::release(at);
    else
      ::munmap(at, bytes());
    at = nullptr;
  }
  void fill(int rank) const {
    for (uint64_t i = 0; i < count_; i++) at[i] = static_cast<float>(i % 128 + static_cast<uint64_t>(rank));
  }
  bool sum_of(int ranks) const {
    for (uint64_t i = 0; i < count_; i++)
      if (at[i] != static_cast<float>(ranks) * static_cast<float>(i % 128) + static_cast<float>(ranks * (ranks - 1) / 2))
        return false;
    return true;
  }
  float *at;

private:
  uint64_t bytes() const { return (count_ * sizeof(float) + 4095) / 4096 * 4096; }
  uint64_t count_;
  bool shared_;
};

struct AllReduce { // direct, ready to run
  std::shared_ptr<const Plan> plan;
  const Bound *bound = nullptr;
  uint64_t count;
  AllReduce(Engine &e, int rank, int n, uint64_t floats, uint32_t slot, uint32_t flags = 0)
      : plan(plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, n, -1, 1, floats * 4 > slot ? kMany : 0u))),
        count(floats) {
    Selection sel = pull_selection(slot);
    sel.flags = flags;
    const auto b = e.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    if (b.ok()) bound = *b;
  }
  OpArgs args(const void *in, void *out, uint64_t number) const {
    return args_of(*plan, in, out, count, TUTTI_DT_FLOAT32, 0, number);
  }
};

int mappings_of_peers_memory() {
  std::FILE *f = std::fopen("/proc/self/maps", "re");
  int n = 0;
  char line[1024];
  while (f && std::fgets(line, sizeof line, f)) n += std::string_view(line).find("tutti-memory") != std::string_view::npos;
  if (f) std::fclose(f);
  return n;
}

} // namespace

TEST_CASE("every collective is right by pull between processes, in one piece and in many, in place and not") {
  std::vector<Case> list;
  for (const char *algo : {"direct", "ring"})
    for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_BROADCAST,
                                  TUTTI_COLL_REDUCE, TUTTI_COLL_ALL_TO_ALL})
      for (const bool in_place : {false, true}) {
        const bool rooted = coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_REDUCE;
        if (in_place && coll != TUTTI_COLL_ALL_REDUCE && coll != TUTTI_COLL_ALL_GATHER) continue;
        if (coll == TUTTI_COLL_ALL_TO_ALL && *algo == 'r') continue;
        const uint32_t flags = kMany | kNonTemporal | (in_place ? uint32_t(TUTTI_REQ_IN_PLACE) : 0u);
        Case c{algo, coll, 3, 150'000, 512 << 10, 2, in_place, 1, flags, 0, rooted ? 1 : -1};
        list.push_back(by_pull(c));
        c.count = 5003, c.slot = 4096, c.offset = 3;
        list.push_back(by_pull(c));
      }
  CHECK(forked(
      3,
      [&](int rank, Engine &e) {
        if (!e.unreadable().empty()) return 1;
        for (size_t i = 0; i < list.size(); i++)
          if (run_case(list[i], rank, e, 2) != 0) return static_cast<int>(10 + i);
        return 0;
      },
      nullptr, {}, {}, support::let_siblings_read));
}

TEST_CASE("what stays at its home is lent, and what does not is staged in the slot") {
  constexpr uint64_t count = 3000;
  Threads world(2);
  std::atomic<int> good{0};
  world.run([&](int r) {
    const AllReduce op(world.engine(r), r, 2, count, 1024);
    if (!op.bound) return;
    Memory in(count, false), out(count, false);
    in.fill(r);
    out.fill(r);
    if (!world.engine(r).run(op.bound, op.args(in.at, out.at, 1)).ok() || !out.sum_of(2)) return;
    const uint64_t apart = lent(*op.bound);
    out.fill(r);
    if (!world.engine(r).run(op.bound, op.args(out.at, out.at, 2)).ok() || !out.sum_of(2)) return;
    // 12000 bytes of slices of 1024: 6 of the operand, 6 of the result. In place the result overwrites the operand.
    const uint64_t in_place = lent(*op.bound) - apart;
    good += apart == 12 && in_place == 6 ? 1 : 0;
    CHECK(apart == 12);
    CHECK(in_place == 6);
  });
  CHECK(good == 2);
}

TEST_CASE("where reading another process is forbidden, everything is staged, and the engine says why") {
  CHECK(forked(
      2,
      [](int rank, Engine &e) {
        if (e.unreadable().find("process_vm_readv") == std::string::npos || e.unreadable().find("rank") == std::string::npos)
          return 1;
        const AllReduce op(e, rank, 2, 3000, 1024);
        Memory in(3000, false), out(3000, false);
        in.fill(rank);
        if (!op.bound || !e.run(op.bound, op.args(in.at, out.at, 1)).ok() || !out.sum_of(2)) return 2;
        return lent(*op.bound) == 0 ? 0 : 3;
      },
      nullptr, {}, {}, support::forbid_reading_processes));
}

TEST_CASE("memory of tuttiMemAlloc is lent and read by pointer where nothing else can be read, and given up when it is freed") {
  const auto config = config_with({{"TUTTI_SHM_PULL", "mapped"}, {"TUTTI_TIMEOUT", "20s"}});
  CHECK(forked(
      2,
      [](int rank, Engine &e) {
        constexpr uint64_t count = 100'000;
        const AllReduce op(e, rank, 2, count, 64 << 10);
        if (!op.bound) return 1;
        for (uint64_t turn = 0; turn < 3; turn++) { // new memory each time
          Memory in(count, true), out(count, true);
          in.fill(rank);
          if (turn == 1 && !e.offer(in.at, count * sizeof(float)).ok()) return 2;
          const uint64_t before = lent(*op.bound);
          if (!e.run(op.bound, op.args(in.at, out.at, turn + 1)).ok() || !out.sum_of(2)) return 3;
          if (lent(*op.bound) == before) return 4;
          if (mappings_of_peers_memory() < 3) return 5; // own two and at least one of the peer's, who waits with freeing them
          if (!e.run(op.bound, op.args(in.at, out.at, turn + 1)).ok() || !out.sum_of(2)) return 9;
          in.free();
          out.free();
        }
        for (const auto until = Deadline::in(std::chrono::seconds(20)); mappings_of_peers_memory() > 0;)
          if (until.expired()) return 6;
        Memory in(count, false), out(count, false);
        in.fill(rank);
        const uint64_t before = lent(*op.bound);
        if (!e.run(op.bound, op.args(in.at, out.at, 4)).ok() || !out.sum_of(2)) return 7;
        return lent(*op.bound) == before ? 0 : 8;
      },
      config, {}, {}, support::forbid_reading_processes));
}

TEST_CASE("a way for shared memory only stages private memory, though it could be read") {
  CHECK(forked(2, [](int rank, Engine &e) {
    constexpr uint64_t count = 100'000;
    for (const uint32_t flags : {uint32_t(TUTTI_CAND_SHARED_ONLY), TUTTI_CAND_SHARED_ONLY | uint32_t(TUTTI_CAND_NONTEMPORAL)}) {
      const AllReduce op(e, rank, 2, count, 16 << 10, flags);
      if (!op.bound) return 1;
      for (const bool shared : {false, true, false}) {
        Memory in(count, shared), out(count, shared);
        in.fill(rank);
        const uint64_t before = lent(*op.bound);
        for (uint64_t k = 0; k < 2; k++) // nobody frees before both have looked
          if (!e.run(op.bound, op.args(in.at, out.at, e.enqueued() + 1)).ok() || !out.sum_of(2)) return 2;
        if ((lent(*op.bound) != before) != shared) return 3;
      }
    }
    return 0;
  }));
}

TEST_CASE("a lender that frees its buffer too early, or dies, is named by who reads it") {
  for (const bool dies : {false, true}) {
    void *page = ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *gone = new (page) std::atomic<int>(0);
    const bool good = forked(
        2,
        [&](int rank, Engine &e) {
          const AllReduce op(e, rank, 2, 1000, 4096);
          Memory in(1000, false), out(1000, false);
          in.fill(rank);
          if (!op.bound) return 1;
          const auto until = Deadline::in(std::chrono::seconds(20));
          if (rank == 1) {
            if (!e.enqueue(op.bound, op.args(in.at, out.at, 1)).ok()) return 2;
            while (lent(*op.bound) == 0 && !until.expired()) (void)e.progress();
            in.free();
            *gone = 1;
            if (dies) ::kill(::getpid(), SIGKILL);
            while (!e.failed() && !until.expired()) std::this_thread::yield(); // rank 0 says so
            return e.failed() ? 0 : 3;
          }
          while (*gone == 0 && !until.expired()) std::this_thread::yield();
          const Status s = e.run(op.bound, op.args(in.at, out.at, 1));
          if (s.ok()) return 4;
          const std::string text = s.error().line();
          std::fprintf(stderr, "%s\n", text.c_str());
          if (s.error().peer != 1) return 5;
          // A death may be noticed before the read.
          return dies || text.find("cannot read what rank 1 sends") != std::string::npos ? 0 : 6;
        },
        config_with({{"TUTTI_PROGRESS_THREAD", "0"}, {"TUTTI_TIMEOUT", "20s"}}), dies ? std::set<int>{1} : std::set<int>{}, {},
        support::let_siblings_read);
    CHECK(good);
    ::munmap(page, sizeof(std::atomic<int>));
  }
}

TEST_CASE("a rank that has read a broadcast is not blamed while its root waits for another one") {
  constexpr uint64_t count = 4096;
  Threads world(3, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Status status[3];
  world.run([&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_BROADCAST, r, 3, 0));
    const auto bound = world.engine(r).bind(plan, pull_selection(count * sizeof(float)), TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    if (!bound.ok()) return void(status[r] = bound.status());
    std::vector<float> in(count, 1), out(count);
    // Rank 1 calls when the root has asked rank 2 more than once what it knows of the call.
    for (const auto late = Deadline::in(std::chrono::milliseconds(r == 1 ? 700 : 0)); !late.expired();)
      std::this_thread::yield();
    status[r] = world.engine(r).run(*bound, args_of(*plan, in.data(), out.data(), count, TUTTI_DT_FLOAT32, 0, 1));
    if (r == 0) CHECK(lent(**bound) > 0);
  });
  for (const Status &s : status) {
    if (!s.ok()) MESSAGE(s.error().line());
    CHECK(s.ok());
  }
}

TEST_CASE("after an error a lender's memory is not read any more, so it may be unmapped") {
  Threads world(2, config_with({{"TUTTI_PROGRESS_THREAD", "0"}}));
  const AllReduce lender(world.engine(1), 1, 2, 1000, 4096), reader(world.engine(0), 0, 2, 1000, 4096);
  REQUIRE(lender.bound);
  REQUIRE(reader.bound);
  Memory in(1000, false), out(1000, false), mine(1000, false), result(1000, false);
  mine.fill(0);
  REQUIRE(world.engine(1).enqueue(lender.bound, lender.args(in.at, out.at, 1)).ok());
  const auto until = Deadline::in(std::chrono::seconds(20));
  while (lent(*lender.bound) == 0 && !until.expired()) (void)world.engine(1).progress();
  REQUIRE(lent(*lender.bound) != 0);
  Error e;
  e.code = Code::remote;
  e.message = "a reason";
  world.engine(1).fail(e);
  CHECK(world.engine(1).wait(1).error().message == "a reason");
  in.free();
  out.free();
  REQUIRE(world.engine(0).enqueue(reader.bound, reader.args(mine.at, result.at, 1)).ok());
  for (int i = 0; i < 1000; i++) (void)world.engine(0).progress(); // the message is there, its memory is not
  CHECK(world.engine(0).completed() == 0);
  CHECK_FALSE(world.engine(0).failed());
  world.engine(0).fail(e); // as the news of the failure would
  CHECK_FALSE(world.engine(0).wait(1).ok());
}
