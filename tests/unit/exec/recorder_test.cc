#include "exec/recorder.h"
#include "world.h"
#include <atomic>
#include <doctest/doctest.h>
#include <thread>

using namespace tutti;
using namespace tutti::test;

namespace {

OpArgs args_with(uint64_t number) {
  OpArgs a;
  a.call.coll = TUTTI_COLL_BROADCAST;
  a.call.dtype = TUTTI_DT_INT32;
  a.call.op = static_cast<uint32_t>(number % 5);
  a.call.root = static_cast<int32_t>(number % 1000);
  a.call.number = number;
  a.call.count = number * 7;
  return a;
}

bool whole(const Recorded &r) { // all of its words are of one call
  const uint64_t n = r.call.number;
  return r.seq == n && r.call.count == n * 7 && r.call.root == static_cast<int32_t>(n % 1000) && r.call.op == n % 5 &&
         (!r.tagged || std::to_string(n) == r.tag.text.data());
}

} // namespace

TEST_CASE("a record gives back what was enqueued, and its times in their order") {
  const ticks::Reader before;
  Recorder ring(256, 4);
  OpArgs a = args_with(12);
  ring.enqueue(12, a, nullptr, ticks::now());
  Recorded r;
  REQUIRE(ring.read(12, &r));
  CHECK(r.text() == "broadcast #12 (84 int32 root 12)");
  CHECK(r.bytes == 84 * 4);
  CHECK(r.enqueued != 0);
  CHECK(r.started == 0);
  CHECK(r.done == 0);
  ring.start(12, nullptr, ticks::now());
  ring.complete(12, ticks::now());
  REQUIRE(ring.read(12, &r));
  CHECK(r.enqueued <= r.started);
  CHECK(r.started <= (r.done | 1));
  CHECK_FALSE(r.failed);
  const ticks::Reader after;
  CHECK(after.wall_ns(r.enqueued) >= before.now_ns() - 1'000'000);
  CHECK(after.wall_ns(r.done) <= after.now_ns());
  CHECK_FALSE(ring.read(11, &r));
  CHECK_FALSE(ring.read(12 + 256, &r));
}

TEST_CASE("an operation that was not held up was enqueued when it began, and one that failed alone says so") {
  Recorder ring(256, 4);
  ring.enqueue(1, args_with(1), nullptr, 0);
  ring.start(1, nullptr, 0);
  Recorded r;
  REQUIRE(ring.read(1, &r));
  CHECK(r.started == 0);
  ring.began(1, ticks::now());
  ring.lose(1);
  REQUIRE(ring.read(1, &r));
  CHECK(r.started == r.enqueued);
  CHECK(r.failed);
  CHECK(r.done != 0);
}

TEST_CASE("the ring keeps as many operations as it was made for, the last ones") {
  Recorder ring(300, 4); // rounded up
  REQUIRE(ring.capacity() == 512);
  for (uint64_t seq = 1; seq <= 1300; seq++) ring.enqueue(seq, args_with(seq), nullptr, ticks::now());
  Recorded r;
  for (uint64_t seq = 1300 - 511; seq <= 1300; seq++) {
    REQUIRE(ring.read(seq, &r));
    CHECK(whole(r));
  }
  CHECK_FALSE(ring.read(1300 - 512, &r));
  CHECK(Recorder(1, 2).capacity() == 256);
}

TEST_CASE("sends and receives are recorded with their peers and sizes, the first eight of many") {
  Recorder ring(256, 16);
  std::vector<uint64_t> in(5), out(6);
  std::vector<int32_t> to(5), from(6);
  for (size_t i = 0; i < 6; i++) out[i] = 100 + i, from[i] = static_cast<int32_t>(i);
  for (size_t i = 0; i < 5; i++) in[i] = 10 + i, to[i] = static_cast<int32_t>(8 + i);
  OpArgs a;
  a.call.coll = TUTTI_COLL_SEND_RECV;
  a.call.number = 1;
  a.in_shape = {5, 0, in.data(), nullptr};
  a.out_shape = {6, 0, out.data(), nullptr};
  a.in_peers = to.data();
  a.out_peers = from.data();
  ring.enqueue(1, a, nullptr, ticks::now());
  Recorded r;
  REQUIRE(ring.read(1, &r));
  CHECK(r.transfers_in_all == 11);
  REQUIRE(r.transfers.size() == 8);
  CHECK(r.transfers[0].sending);
  CHECK(r.transfers[0].peer == 8);
  CHECK(r.transfers[0].bytes == 10);
  CHECK_FALSE(r.transfers[5].sending);
  CHECK(r.transfers[5].peer == 0);
  CHECK(r.transfers[5].bytes == 100);
  CHECK(r.bytes == 100 + 101 + 102 + 103 + 104 + 105);
}

TEST_CASE("who reads while operations are recorded as fast as can be never sees words of two of them") {
  Recorder ring(256, 4);
  std::atomic<uint64_t> newest{0};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    std::string tag;
    for (uint64_t seq = 1; !stop; seq++) {
      OpArgs a = args_with(seq);
      tag = std::to_string(seq);
      if (seq % 3 == 0) a.call.tag = tag.c_str();
      ring.enqueue(seq, a, nullptr, ticks::now());
      ring.start(seq, nullptr, ticks::now());
      ring.complete(seq, ticks::now());
      newest.store(seq, std::memory_order_release);
    }
  });
  uint64_t read = 0, torn = 0, late = 0;
  Recorded r;
  while (read < 200'000) {
    const uint64_t top = newest.load(std::memory_order_acquire);
    for (uint64_t back : {0u, 1u, 100u, 254u, 255u, 256u})
      if (top > back) {
        if (!ring.read(top - back, &r)) {
          late++;
          continue;
        }
        read++;
        torn += !whole(r);
      }
  }
  stop = true;
  writer.join();
  CAPTURE(late);
  CHECK(torn == 0);
}

TEST_CASE("calls without data and events are kept beside the operations, the last ones of each") {
  Recorder ring(256, 4);
  for (uint64_t n = 1; n <= 100; n++) ring.skip(args_with(n).call);
  Recorded r;
  CHECK_FALSE(ring.find_skipped(0, &r));
  CHECK_FALSE(ring.find_skipped(68, &r));
  REQUIRE(ring.find_skipped(69, &r));
  CHECK(r.call.count == 69 * 7);
  CHECK(ring.skipped().size() == 32);
  CHECK(ring.skipped().front().call.number == 69);
  for (int i = 0; i < 100; i++) ring.event("failed", std::to_string(i), static_cast<uint64_t>(i));
  const auto events = ring.events(ticks::Reader());
  REQUIRE(events.size() == 64);
  CHECK(events.front().text == "36");
  CHECK(events.back().text == "99");
  CHECK(events.back().enqueued == 99);
}

TEST_CASE("the state of an engine says what runs, whom it waits for and since when, and what has been moved") {
  Threads world(2);
  std::atomic<bool> seen{false};
  EngineState waiting, idle;
  world.run([&](int r) {
    Engine &e = world.engine(r);
    Selection sel;
    sel.proto = simple_proto();
    sel.slot_bytes = 8192;
    sel.depth = 4;
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, r, 2));
    auto bound = e.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    REQUIRE(bound.ok());
    std::vector<float> in(64, 1), out(64);
    const auto args = args_of(*plan, in.data(), out.data(), 64, TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 1);
    if (r == 1) {
      const Deadline limit = Deadline::in(std::chrono::seconds(20));
      idle = e.state();
      // At first it may wait for room, until this rank has joined the link.
      const auto receives = [&] {
        return waiting.doing == EngineState::Doing::waiting && !waiting.waits.empty() && waiting.waits[0].receiving;
      };
      while (!limit.expired() && !receives()) waiting = world.engine(0).state();
      seen = true;
    }
    CHECK(e.run(*bound, args).ok());
  });
  CHECK(idle.doing == EngineState::Doing::idle);
  CHECK(idle.enqueued == 0);
  REQUIRE(seen);
  REQUIRE(waiting.doing == EngineState::Doing::waiting);
  CHECK(waiting.enqueued == 1);
  CHECK(waiting.started == 1);
  CHECK(waiting.completed == 0);
  REQUIRE(waiting.oldest);
  CHECK(waiting.oldest->text == "all_reduce #1 (64 float sum)");
  CHECK(waiting.oldest->algo == "direct");
  CHECK(waiting.oldest->proto == "simple");
  CHECK(waiting.oldest->bytes == 256);
  CHECK(waiting.oldest->completed_ns == 0);
  REQUIRE(waiting.waits.size() == 1);
  CHECK(waiting.waits[0].peer == 1);
  CHECK(waiting.waits[0].receiving);
  CHECK(waiting.waits[0].since_ns >= waiting.oldest->started_ns);
  CHECK(waiting.waits[0].since_ns <= waiting.now_ns);
  const bool sent = std::any_of(waiting.progress.begin(), waiting.progress.end(),
                                [](const auto &p) { return p.peer == 1 && p.sending && p.messages == 1; });
  CHECK(sent);
  const EngineRecord end = world.engine(0).record();
  CHECK(end.state.doing == EngineState::Doing::idle);
  REQUIRE(end.operations.size() == 1);
  CHECK(end.operations[0].enqueued_ns <= end.operations[0].started_ns);
  CHECK(end.operations[0].started_ns <= end.operations[0].completed_ns);
}
