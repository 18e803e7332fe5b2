#include "net_bench.h"
#include "net_cases.h"
#include <cstring>

namespace tutti::conformance {
namespace {

void truncation(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  std::vector<unsigned char> out(1000, 1), in(500 + 64, 0xa5);
  bench.recv(p.rx, {bench.b().buf(in.data(), 500)}, 1);
  bench.send(p.tx, {bench.a().buf(out.data(), 1000)}, 2);
  bench.expect(bench.b(), 1, TUTTI_ERR_TRUNCATED, 0);
  for (size_t i = 500; i < in.size(); i++) require(in[i] == 0xa5, "a message longer than its buffer was written beyond it");
  bench.destroy(p.rx);
  bench.destroy(p.tx);
  bench.transfer(bench.pair(), 64, 64, 1);
}

// Cookies [first, first + n): reported once each, with a status that `fits`.
void require_each_once(Side &side, uint64_t first, uint64_t n, bool ok_too) {
  for (int i = 0; i < 100; i++) side.poll();
  for (uint64_t c = first; c < first + n; c++) {
    const Done &d = side.done(c);
    require(d.times == 1, "cookie {:#x} was reported {} times after its endpoint was destroyed, expected once", c, d.times);
    const bool fits = d.last.status == TUTTI_ERR_CANCELLED || (ok_too && d.last.status == TUTTI_OK);
    require(fits, "cookie {:#x} of a destroyed endpoint completed with {}", c, status_name(d.last.status));
  }
}

void cancelled_receives(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  constexpr uint64_t n = 8;
  std::vector<std::vector<unsigned char>> in(n, std::vector<unsigned char>(4096, 0xa5));
  for (uint64_t i = 0; i < n; i++) bench.recv(p.rx, {bench.b().buf(in[i].data(), in[i].size())}, 100 + i);
  bench.destroy(p.rx);
  require_each_once(bench.b(), 100, n, false);
  std::vector<unsigned char> out(4096, 1);
  (void)bench.try_send(p.tx, {bench.a().buf(out.data(), out.size())}, 7);
  bench.idle(std::chrono::milliseconds(50));
  for (const auto &buffer : in)
    for (unsigned char byte : buffer) require(byte == 0xa5, "a buffer was written after its endpoint had been destroyed");
}

void cancelled_sends(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  std::vector<unsigned char> out(256 * 1024, 3);
  uint64_t posted = 0;
  for (; posted < 8; posted++) {
    const tutti_status s = bench.try_send(p.tx, {bench.a().buf(out.data(), out.size())}, 200 + posted);
    if (s == TUTTI_AGAIN) break;
    require(s == TUTTI_OK, "send without a posted receive returned {}", status_name(s));
  }
  require(posted > 0, "not a single send was taken");
  bench.destroy(p.tx);
  require_each_once(bench.a(), 200, posted, true);
}

void before_next_progress(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  unsigned char in[64];
  bench.recv(p.rx, {bench.b().buf(in, sizeof(in))}, 5);
  bench.destroy(p.rx);
  bench.b().poll();
  require(bench.b().done(5).times == 1, "what was outstanding is not reported by the next progress()");
}

void destroy_idle(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  bench.transfer(p, 100, 100, 1);
  bench.destroy(p.tx);
  bench.destroy(p.rx);
  bench.idle(std::chrono::milliseconds(20));
  require(bench.a().reported() + bench.b().reported() == 2, "destroying quiet endpoints reported completions");
}

void peer_gone_receiving(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  unsigned char in[64];
  bench.recv(p.rx, {bench.b().buf(in, sizeof(in))}, 5);
  bench.destroy(p.tx);
  bench.until([&] { return bench.b().done(5).times > 0; }, "the receive to fail after the sender's endpoint was destroyed");
  const int32_t status = bench.b().done(5).last.status;
  require(status == TUTTI_ERR_REMOTE, "the receive completed with {} though its sender is gone, expected REMOTE",
          status_name(status));
  require(bench.b().done(5).times == 1, "the failed receive was reported {} times", bench.b().done(5).times);
}

void peer_gone_sending(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  bench.destroy(p.rx);
  std::vector<unsigned char> out(64 * 1024, 1);
  tutti_status failure = TUTTI_OK;
  const auto look_at = [&](uint64_t cookie) {
    if (failure == TUTTI_OK) failure = std::min<tutti_status>(bench.a().done(cookie).last.status, TUTTI_OK);
  };
  const tutti_net_buf buf = bench.a().buf(out.data(), out.size());
  const Deadline deadline = Deadline::in(kWait);
  for (uint64_t cookie = 1; failure == TUTTI_OK; cookie++) {
    require(!deadline.expired(), "sending to an endpoint that was destroyed {} s ago neither fails nor says so", kWait.count());
    const tutti_status s = bench.try_send(p.tx, {buf}, cookie);
    bench.idle(std::chrono::milliseconds(10));
    failure = std::min<tutti_status>(s, TUTTI_OK);
    look_at(cookie);
    if (s == TUTTI_AGAIN) // queue full: one of those before must fail
      for (uint64_t c = 1; c < cookie; c++) look_at(c);
  }
  require(failure == TUTTI_ERR_REMOTE, "sending to an endpoint that is gone fails with {}, expected REMOTE",
          status_name(failure));
}

void others_unharmed(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair victim = bench.pair(), healthy = bench.pair();
  unsigned char in[64];
  bench.recv(victim.rx, {bench.b().buf(in, sizeof(in))}, 5);
  bench.destroy(victim.tx);
  for (uint64_t i = 0; i < 20; i++) {
    std::vector<unsigned char> out(1000, static_cast<unsigned char>(i)), got(1000);
    bench.recv(healthy.rx, {bench.b().buf(got.data(), got.size())}, 1000 + i);
    bench.send(healthy.tx, {bench.a().buf(out.data(), out.size())}, 1000 + i);
    bench.expect(bench.b(), 1000 + i, TUTTI_OK, 1000);
    require(got == out, "an endpoint beside a broken one delivered wrong bytes");
  }
}

} // namespace

std::vector<Case> net_failure_cases() {
  return {
      {"N-41", "a message longer than its buffer is TRUNCATED and nothing beyond the buffer is written", truncation},
      {"N-42", "destroying an endpoint cancels each posted receive once and leaves its buffer alone", cancelled_receives},
      {"N-43", "destroying an endpoint reports each posted send once", cancelled_sends},
      {"N-44", "what a destroyed endpoint had outstanding is reported by the next progress", before_next_progress},
      {"N-45", "destroying quiet endpoints reports nothing", destroy_idle},
      {"N-46", "a posted receive fails with REMOTE within 5 s of the sender's ep_destroy", peer_gone_receiving},
      {"N-47", "sending fails with REMOTE within 5 s of the receiver's ep_destroy", peer_gone_sending},
      {"N-48", "a broken endpoint does not disturb others of its context", others_unharmed},
  };
}

} // namespace tutti::conformance
