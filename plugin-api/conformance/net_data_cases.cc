#include "net_bench.h"
#include "net_cases.h"
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

namespace tutti::conformance {
namespace {

void one_message(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  bench.transfer(bench.pair(), 8, 8, 1);
}

void empty_message(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  bench.transfer(p, 0, 0, 1);
  bench.transfer(p, 0, 100, 2);
  bench.transfer(p, 8, 8, 3);
}

void all_sizes(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  uint64_t seed = 1;
  for (uint64_t size = 1; size <= (4u << 20) && size <= bench.dev().max_message_bytes; size *= 2)
    for (const uint64_t s : {size - 1, size, size + 1})
      if (s <= bench.dev().max_message_bytes) bench.transfer(p, s, s, seed++);
}

void longer_buffer(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  for (const uint64_t size : {1u, 100u, 4096u, 70000u})
    if (size + 5000 <= bench.dev().max_message_bytes) bench.transfer(p, size, size + 5000, size);
}

void unaligned(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  for (size_t misalign = 1; misalign < 16; misalign += 2) bench.transfer(p, 10007, 10007, misalign, misalign);
}

// `count` messages of 8 bytes with `window` in flight; `receive_first` says which side posts first.
void numbered(NetBench &bench, const Pair &p, uint64_t count, uint64_t window, bool receive_first) {
  std::vector<uint64_t> out(count), in(count, ~0ull);
  for (uint64_t i = 0; i < count; i++) out[i] = i * 3 + 1;
  for (uint64_t base = 0; base < count; base += window) {
    const uint64_t end = std::min(count, base + window);
    const auto receive = [&] {
      for (uint64_t i = base; i < end; i++) bench.recv(p.rx, {bench.b().buf(&in[i], 8)}, i);
    };
    const auto send = [&] {
      for (uint64_t i = base; i < end; i++) bench.send(p.tx, {bench.a().buf(&out[i], 8)}, i);
    };
    if (receive_first) receive();
    send();
    if (!receive_first) receive();
    for (uint64_t i = base; i < end; i++) bench.expect(bench.b(), i, TUTTI_OK, 8), bench.expect(bench.a(), i, TUTTI_OK, 8);
  }
  require(in == out, "the k-th message did not land in the k-th buffer");
}

void in_order(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  numbered(bench, bench.pair(), 1000, 8, true);
}
void send_first(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  numbered(bench, bench.pair(), 64, 4, false);
}
void many_in_flight(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const uint64_t window = std::min<uint64_t>(bench.dev().max_inflight, 256);
  numbered(bench, bench.pair(), window * 4, window, true);
}

// Calls after which a queue must be full (net.h): what the device says and 4096 more.
uint64_t queue_limit(const NetBench &bench) {
  constexpr uint32_t kCeiling = 1 << 16; // what a case can fill in its time
  const uint32_t promised = bench.dev().max_inflight;
  if (promised > kCeiling)
    skip(fmt::format("max_inflight is {}: too deep to be filled, up to {} is tested", promised, kCeiling));
  return promised + 4096ull;
}

void back_pressure(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  const uint64_t limit = queue_limit(bench);
  std::vector<unsigned char> out(32 * 1024, 9), in(32 * 1024);
  const tutti_net_buf out_buf = bench.a().buf(out.data(), out.size()), in_buf = bench.b().buf(in.data(), in.size());
  uint64_t posted = 0;
  bool full = false;
  for (uint64_t i = 0; i <= limit && !full; i++) {
    const tutti_status s = bench.try_send(p.tx, {out_buf}, i);
    require(s == TUTTI_OK || s == TUTTI_AGAIN, "send into a full queue returned {}, expected AGAIN", status_name(s));
    full = s == TUTTI_AGAIN;
    posted += !full;
    if (i % 8 == 0) bench.a().poll();
  }
  require(full, "{} sends of 32 KiB were taken with no receive posted: at most max_inflight and 4096 more may be", posted);
  require(posted >= bench.dev().max_inflight, "only {} sends were taken before AGAIN, max_inflight promises {}", posted,
          bench.dev().max_inflight);
  for (uint64_t i = 0; i < posted; i++) {
    bench.recv(p.rx, {in_buf}, i);
    bench.expect(bench.b(), i, TUTTI_OK, in.size());
  }
  for (uint64_t i = 0; i < posted; i++) bench.expect(bench.a(), i, TUTTI_OK, out.size());
  bench.idle(std::chrono::milliseconds(20));
  require(bench.a().done(posted).times == 0, "a send that returned AGAIN was reported as completed");
}

void receive_pressure(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  const uint64_t limit = queue_limit(bench);
  std::vector<uint64_t> in(limit + 1), out(limit + 1);
  const tutti_net_buf all_in = bench.b().buf(in.data(), in.size() * 8), all_out = bench.a().buf(out.data(), out.size() * 8);
  const auto word = [](const tutti_net_buf &all, uint64_t i) {
    return tutti_net_buf{static_cast<uint64_t *>(all.addr) + i, 8, all.mr, 0};
  };
  uint64_t posted = 0;
  for (; posted <= limit; posted++) {
    const tutti_status s = bench.try_recv(p.rx, {word(all_in, posted)}, posted);
    if (s == TUTTI_AGAIN) break;
    require(s == TUTTI_OK, "recv returned {}", status_name(s));
  }
  require(posted >= bench.dev().max_inflight, "only {} receives were taken before AGAIN, max_inflight promises {}", posted,
          bench.dev().max_inflight);
  require(posted <= limit, "{} receives were taken: at most max_inflight and 4096 more may be", posted);
  for (uint64_t i = 0; i < posted; i++) out[i] = i + 5, bench.send(p.tx, {word(all_out, i)}, i);
  for (uint64_t i = 0; i < posted; i++) bench.expect(bench.b(), i, TUTTI_OK, 8);
  for (uint64_t i = 0; i < posted; i++) require(in[i] == i + 5, "message {} of {} landed in the wrong buffer", i, posted);
}

// One call with n buffers on each side, of sizes base, base + 1, ...; received[] must name each.
void batch(NetBench &bench, const Pair &p, uint32_t send_n, uint32_t recv_n, uint32_t total, uint64_t base) {
  std::vector<std::vector<unsigned char>> out(total), in(total);
  std::vector<uint64_t> received(total, ~0ull);
  Random random(base);
  for (uint32_t i = 0; i < total; i++) {
    out[i].resize(base + i);
    random.fill(out[i].data(), out[i].size());
    in[i].resize(base + total);
  }
  const auto calls = [&](uint32_t n, auto &&post) {
    for (uint32_t i = 0; i < total; i += n) post(i, std::min(total, i + n));
  };
  calls(recv_n, [&](uint32_t lo, uint32_t hi) {
    std::vector<tutti_net_buf> bufs;
    for (uint32_t i = lo; i < hi; i++) bufs.push_back(bench.b().buf(in[i].data(), in[i].size()));
    bench.recv(p.rx, bufs, lo, &received[lo]);
  });
  calls(send_n, [&](uint32_t lo, uint32_t hi) {
    std::vector<tutti_net_buf> bufs;
    for (uint32_t i = lo; i < hi; i++) bufs.push_back(bench.a().buf(out[i].data(), out[i].size()));
    bench.send(p.tx, bufs, lo);
  });
  const auto check = [&](Side &side, uint32_t n) {
    calls(n, [&](uint32_t lo, uint32_t hi) {
      uint64_t bytes = 0;
      for (uint32_t i = lo; i < hi; i++) bytes += out[i].size();
      bench.expect(side, lo, TUTTI_OK, bytes);
    });
  };
  check(bench.a(), send_n);
  check(bench.b(), recv_n);
  for (uint32_t i = 0; i < total; i++) {
    require(received[i] == out[i].size(), "received[{}] is {}, the message had {} bytes", i, received[i], out[i].size());
    require(std::equal(out[i].begin(), out[i].end(), in[i].begin()), "message {} of a batch arrived changed", i);
  }
  bench.a().forget();
  bench.b().forget();
}

uint32_t batch_limit(const NetBench &bench) {
  return std::min({bench.dev().max_batch, bench.dev().max_inflight, 32u});
}

void send_batches(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const uint32_t n = batch_limit(bench);
  batch(bench, bench.pair(), n, 1, std::min(n, 8u), 100);
}
void recv_batches(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const uint32_t n = batch_limit(bench);
  batch(bench, bench.pair(), 1, n, std::min(n, 8u), 100);
}
void mixed_batches(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  const uint32_t n = batch_limit(bench);
  batch(bench, p, n, std::max(1u, n / 2), n, 0);
  batch(bench, p, std::max(1u, n / 2), n, n, 20000);
  batch(bench, p, 2, 2, 8, 70000);
}

void cookies(const Plugin &plugin, const void *table) {
  std::array<uint64_t, 4> in{}, out{1, 1, 1, 1}; // of who reports too early they are still written at the end
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  size_t i = 0;
  for (const uint64_t cookie : {uint64_t(0), ~uint64_t(0), uint64_t(1) << 63, uint64_t(0x123456789abcdef0)}) {
    bench.recv(p.rx, {bench.b().buf(&in[i], 8)}, cookie);
    bench.send(p.tx, {bench.a().buf(&out[i++], 8)}, cookie);
    bench.expect(bench.b(), cookie, TUTTI_OK, 8);
    bench.expect(bench.a(), cookie, TUTTI_OK, 8);
  }
  bench.idle(std::chrono::milliseconds(20));
  require(bench.a().reported() == 4 && bench.b().reported() == 4, "4 sends and 4 receives gave {} and {} completions",
          bench.a().reported(), bench.b().reported());
}

void equal_cookies(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  uint64_t in[4], out[4] = {1, 2, 3, 4};
  for (uint64_t &word : in) bench.recv(p.rx, {bench.b().buf(&word, 8)}, 42);
  for (uint64_t &word : out) bench.send(p.tx, {bench.a().buf(&word, 8)}, 42);
  bench.until([&] { return bench.b().done(42).times >= 4; }, "four completions with one cookie");
  bench.idle(std::chrono::milliseconds(20));
  require(bench.b().done(42).times == 4, "four receives with one cookie gave {} completions", bench.b().done(42).times);
}

void small_cap(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  uint64_t in[8], out[8] = {};
  for (uint64_t i = 0; i < 8; i++) bench.recv(p.rx, {bench.b().buf(&in[i], 8)}, i);
  for (uint64_t i = 0; i < 8; i++) bench.send(p.tx, {bench.a().buf(&out[i], 8)}, i);
  const Deadline deadline = Deadline::in(kWait);
  while (bench.b().reported() < 8) {
    require(!deadline.expired(), "with room for one completion only {} of 8 came in {} s", bench.b().reported(), kWait.count());
    bench.a().poll(1);
    bench.b().poll(1);
    std::this_thread::yield();
  }
}

void both_directions(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair there = bench.pair(bench.a(), bench.b());
  const bool duplex = bench.dev().flags & TUTTI_NET_DUPLEX;
  const Pair back = duplex ? Pair{there.rx, there.tx} : bench.pair(bench.b(), bench.a());
  const size_t n = std::min<uint64_t>(1 << 20, bench.dev().max_message_bytes);
  std::vector<unsigned char> out_a(n), out_b(n), in_a(n), in_b(n);
  Random(1).fill(out_a.data(), n);
  Random(2).fill(out_b.data(), n);
  for (uint64_t i = 0; i < 10; i++) {
    bench.recv(there.rx, {bench.b().buf(in_b.data(), n)}, 10 + i);
    bench.recv(back.rx, {bench.a().buf(in_a.data(), n)}, 30 + i);
    bench.send(there.tx, {bench.a().buf(out_a.data(), n)}, 50 + i);
    bench.send(back.tx, {bench.b().buf(out_b.data(), n)}, 70 + i);
    bench.expect(bench.b(), 10 + i, TUTTI_OK, n);
    bench.expect(bench.a(), 30 + i, TUTTI_OK, n);
    bench.expect(bench.a(), 50 + i, TUTTI_OK, n);
    bench.expect(bench.b(), 70 + i, TUTTI_OK, n);
    require(in_b == out_a && in_a == out_b, "messages in opposite directions arrived changed");
  }
}

// Each context in a thread of its own: the only sharing that a net must stand.
void two_threads(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  constexpr uint64_t count = 500;
  std::vector<uint64_t> out(count), in(count);
  const auto loop = [&](const char *what, Side &side, auto &&post) {
    const Deadline deadline = Deadline::in(kWait * 2);
    for (uint64_t i = 0; side.reported() < count;) {
      require(!deadline.expired(), "{}: {} of {} completions in {} s", what, side.reported(), count, (kWait * 2).count());
      if (i < count) {
        const tutti_status s = post(i);
        require(s == TUTTI_OK || s == TUTTI_AGAIN, "{}: post {} returned {}", what, i, status_name(s));
        i += s == TUTTI_OK;
      }
      side.poll();
      std::this_thread::yield();
    }
  };
  std::thread receiver(
      [&] { loop("receiver", bench.b(), [&](uint64_t i) { return bench.try_recv(p.rx, {bench.b().buf(&in[i], 8)}, i); }); });
  loop("sender", bench.a(), [&](uint64_t i) {
    out[i] = i * 7;
    return bench.try_send(p.tx, {bench.a().buf(&out[i], 8)}, i);
  });
  receiver.join();
  require(in == out, "messages between two threads arrived changed");
}

void soak(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  Random random(2024);
  for (int round = 0; round < 60; round++) {
    const uint32_t limit = batch_limit(bench);
    const uint64_t base = random.below(3) == 0 ? random.below(200000) : random.below(300);
    batch(bench, p, 1 + static_cast<uint32_t>(random.below(limit)), 1 + static_cast<uint32_t>(random.below(limit)),
          1 + static_cast<uint32_t>(random.below(8)), std::min(base, bench.dev().max_message_bytes - 64));
  }
}

void stream(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  const uint64_t size = std::min<uint64_t>(1 << 20, bench.dev().max_message_bytes);
  std::vector<unsigned char> out(size), in(size);
  Random(5).fill(out.data(), size);
  for (uint64_t i = 0; i < 64; i++) {
    bench.recv(p.rx, {bench.b().buf(in.data(), size)}, i);
    bench.send(p.tx, {bench.a().buf(out.data(), size)}, i);
    bench.expect(bench.b(), i, TUTTI_OK, size);
    bench.expect(bench.a(), i, TUTTI_OK, size);
  }
  require(in == out, "the last of 64 messages of {} bytes arrived changed", size);
}

} // namespace

std::vector<Case> net_data_cases() {
  return {
      {"N-24", "a message arrives, and both sides are told once", one_message},
      {"N-25", "an empty message still is a message", empty_message},
      {"N-26", "sizes around every power of two up to 4 MiB arrive unchanged", all_sizes},
      {"N-27", "a buffer may be longer than its message", longer_buffer},
      {"N-28", "buffers need no alignment", unaligned},
      {"N-29", "the k-th message lands in the k-th buffer", in_order},
      {"N-30", "a send may be posted before its receive", send_first},
      {"N-31", "max_inflight calls may be outstanding", many_in_flight},
      {"N-32", "a send queue takes max_inflight calls, and a full one says AGAIN and posts nothing", back_pressure},
      {"N-33", "a receive queue takes max_inflight calls, and a full one says AGAIN and posts nothing", receive_pressure},
      {"N-34", "one call sends max_batch messages with one completion", send_batches},
      {"N-35", "one call receives max_batch messages with one completion and all sizes", recv_batches},
      {"N-36", "batches of the two sides need not be alike", mixed_batches},
      {"N-37", "any 64-bit cookie comes back, once per call", cookies},
      {"N-38", "equal cookies are reported as often as they were posted", equal_cookies},
      {"N-39", "progress works with room for one completion", small_cap},
      {"N-40", "both directions move at once", both_directions},
      {"N-49", "two contexts may be driven by two threads", two_threads},
      {"N-50", "random sizes and batches arrive unchanged", soak, std::chrono::seconds(40)},
      {"N-51", "64 MiB stream through in bounded time", stream, std::chrono::seconds(40)},
  };
}

std::span<const Case> net_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    for (auto part :
         {net_device_cases, net_connection_cases, net_data_cases, net_meanwhile_cases, net_failure_cases, net_rma_cases})
      for (const Case &c : part()) list.push_back(c);
    return list;
  }();
  return all;
}

} // namespace tutti::conformance
