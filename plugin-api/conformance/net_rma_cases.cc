#include "net_bench.h"
#include "net_cases.h"
#include "tutti/plugin/net_rma.h"
#include <cstring>

namespace tutti::conformance {
namespace {

// Memory of one side that the other may read, with its key.
struct Readable {
  const NetBench &bench;
  std::vector<unsigned char> memory;
  tutti_net_mr *mr = nullptr;
  unsigned char key[TUTTI_NET_KEY_BYTES + 16];
  uint32_t key_bytes = TUTTI_NET_KEY_BYTES;

  Readable(const NetBench &b, const tutti_net_rma_v1 &rma, Side &owner, size_t bytes, uint64_t seed) : bench(b), memory(bytes) {
    Random(seed).fill(memory.data(), bytes);
    tutti_region region{};
    region.struct_size = sizeof(region);
    region.kind = TUTTI_MEM_HOST;
    region.addr = memory.data();
    region.bytes = bytes;
    region.device = region.dmabuf_fd = -1;
    const tutti_status made = b.net().mr_register(owner.ctx(), &region, &mr);
    require(made == TUTTI_OK && mr, "mr_register of {} bytes returned {}", bytes, status_name(made));
    std::memset(key, 0xa5, sizeof(key));
    const tutti_status s = timed("mr_key", [&] { return rma.mr_key(mr, key, &key_bytes); });
    require(s == TUTTI_OK, "mr_key of host memory returned {}", status_name(s));
    require(key_bytes <= TUTTI_NET_KEY_BYTES, "mr_key gave {} bytes, at most {} are possible", key_bytes,
            static_cast<int>(TUTTI_NET_KEY_BYTES));
    for (size_t i = key_bytes; i < sizeof(key); i++)
      require(key[i] == 0xa5, "mr_key wrote beyond its key of {} bytes", key_bytes);
  }
  ~Readable() { release(); }
  void release() {
    if (mr) bench.net().mr_release(mr);
    mr = nullptr;
  }
  uint64_t at(size_t offset) const { return reinterpret_cast<uintptr_t>(memory.data()) + offset; }
};

struct RmaBench : NetBench {
  const tutti_net_rma_v1 &rma;
  static const tutti_net_rma_v1 &table_of(const Plugin &plugin) {
    const void *t = plugin.iface(TUTTI_NET_RMA);
    if (!t) skip("the plugin offers no tutti.net.rma/1");
    return *static_cast<const tutti_net_rma_v1 *>(t);
  }
  RmaBench(const Plugin &plugin, const void *table) : NetBench(plugin, table), rma(table_of(plugin)) {}

  tutti_status try_get(tutti_net_ep *ep, tutti_net_buf to, uint64_t remote, const Readable &from, uint64_t cookie) {
    unsigned char key[TUTTI_NET_KEY_BYTES]; // borrowed: it is gone when the call returns
    std::memcpy(key, from.key, from.key_bytes);
    const tutti_status s = timed("get", [&] { return rma.get(ep, &to, remote, key, from.key_bytes, cookie); });
    std::memset(key, 0x5a, sizeof(key));
    return s;
  }
  void get(tutti_net_ep *ep, const tutti_net_buf &to, uint64_t remote, const Readable &from, uint64_t cookie) {
    tutti_status s = TUTTI_AGAIN;
    until([&] { return (s = try_get(ep, to, remote, from, cookie)) != TUTTI_AGAIN; }, "room for a get");
    require(s == TUTTI_OK, "get returned {}", status_name(s));
  }
  // Refused at once, or completed so.
  void refused(tutti_net_ep *ep, const tutti_net_buf &to, uint64_t remote, const Readable &from, const char *what) {
    const auto fits = [](int32_t s) { return s == TUTTI_ERR_INVALID || s == TUTTI_ERR_REMOTE; };
    const tutti_status s = try_get(ep, to, remote, from, 0xbad);
    require(s == TUTTI_OK || fits(s), "{} returned {}", what, status_name(s));
    if (s != TUTTI_OK) return;
    until([&] { return b().done(0xbad).times > 0; }, std::string("the end of ") + what);
    const int32_t status = b().done(0xbad).last.status;
    require(fits(status), "{} completed with {}, expected INVALID or REMOTE", what, status_name(status));
  }
};

void reads(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  constexpr size_t kBytes = (1 << 20) + 64;
  const Readable of_a(bench, bench.rma, bench.a(), kBytes, 1), of_b(bench, bench.rma, bench.b(), kBytes, 2);
  const uint64_t most = std::min<uint64_t>(bench.dev().max_message_bytes, 1 << 20);
  uint64_t cookie = 1;
  for (const uint64_t bytes : {uint64_t(1), uint64_t(8), uint64_t(4096), uint64_t(65536), most})
    for (const size_t offset : {size_t(0), size_t(3), size_t(64)}) {
      std::vector<unsigned char> in(bytes + 2, 0xa5);
      const auto check = [&](tutti_net_ep *ep, Side &reader, const Readable &from) {
        std::fill(in.begin(), in.end(), static_cast<unsigned char>(0xa5));
        bench.get(ep, reader.buf(in.data() + 1, bytes), from.at(offset), from, cookie);
        bench.expect(reader, cookie++, TUTTI_OK, bytes);
        require(std::memcmp(in.data() + 1, from.memory.data() + offset, bytes) == 0, "{} bytes at offset {} were read wrong",
                bytes, offset);
        require(in.front() == 0xa5 && in.back() == 0xa5, "a get of {} bytes wrote beyond its buffer", bytes);
      };
      check(p.rx, bench.b(), of_a);
      check(p.tx, bench.a(), of_b); // whichever side connected
    }
}

void reads_what_was_written(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  Readable from(bench, bench.rma, bench.a(), 4096, 1);
  for (uint64_t i = 0; i < 100; i++) {
    std::memset(from.memory.data(), static_cast<int>(i), from.memory.size());
    uint64_t in = 0, out = i;
    std::vector<unsigned char> got(from.memory.size());
    bench.recv(p.rx, {bench.b().buf(&in, 8)}, 2 * i);
    bench.send(p.tx, {bench.a().buf(&out, 8)}, 2 * i);
    bench.expect(bench.b(), 2 * i, TUTTI_OK, 8);
    bench.get(p.rx, bench.b().buf(got.data(), got.size()), from.at(0), from, 2 * i + 1);
    bench.expect(bench.b(), 2 * i + 1, TUTTI_OK, got.size());
    require(got == from.memory, "a get after message {} read what had been there before it", i);
    bench.expect(bench.a(), 2 * i, TUTTI_OK, 8);
  }
}

void void_key(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  Readable from(bench, bench.rma, bench.a(), 8192, 1);
  std::vector<unsigned char> in(64);
  bench.get(p.rx, bench.b().buf(in.data(), in.size()), from.at(0), from, 1);
  bench.expect(bench.b(), 1, TUTTI_OK, in.size());
  from.release();
  bench.refused(p.rx, bench.b().buf(in.data(), in.size()), from.at(0), from, "a get with the key of a released registration");
  bench.transfer(bench.pair(), 64, 64, 1); // others go on
}

void out_of_bounds(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Readable from(bench, bench.rma, bench.a(), 8192, 1);
  std::vector<unsigned char> in(4096);
  const std::pair<int64_t, uint64_t> outside[] = {{8192, 8}, {8192 - 4, 8}, {-8, 8}, {6000, 4096}};
  for (const auto &[offset, bytes] : outside) {
    const Pair p = bench.pair(); // it may be unusable then
    bench.b().forget();
    const uint64_t remote = from.at(0) + static_cast<uint64_t>(offset);
    bench.refused(p.rx, bench.b().buf(in.data(), bytes), remote, from, "a get outside of its region");
    bench.destroy(p.rx);
    bench.destroy(p.tx);
  }
}

void empty_get(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  const Readable from(bench, bench.rma, bench.a(), 4096, 1);
  unsigned char in[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<unsigned char> before(in, in + sizeof(in));
  tutti_net_buf to = bench.b().buf(in, sizeof(in));
  to.bytes = 0;
  for (const size_t offset : {size_t(0), size_t(4096)}) { // the end of a region is inside for nothing
    bench.get(p.rx, to, from.at(offset), from, 1 + offset);
    bench.expect(bench.b(), 1 + offset, TUTTI_OK, 0);
  }
  require(std::equal(before.begin(), before.end(), in), "a get of 0 bytes wrote something");
}

void bounded_gets(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  const Readable from(bench, bench.rma, bench.a(), 4096, 1);
  const uint64_t promised = bench.dev().max_inflight, most = promised + 4096;
  if (promised > 1 << 16) skip("max_inflight is too deep to be filled");
  std::vector<uint64_t> in(most + 1);
  const tutti_net_buf all = bench.b().buf(in.data(), in.size() * 8);
  uint64_t taken = 0;
  for (tutti_status s = TUTTI_OK; s == TUTTI_OK && taken <= most; taken += s == TUTTI_OK) {
    s = bench.try_get(p.rx, {&in[taken], 8, all.mr, 0}, from.at(0), from, taken);
    require(s == TUTTI_OK || s == TUTTI_AGAIN, "get {} returned {}", taken, status_name(s));
    if (s == TUTTI_AGAIN) break;
  }
  require(taken >= promised, "only {} gets were taken before AGAIN, max_inflight promises {}", taken, promised);
  require(taken <= most, "{} gets were taken without a call of progress: at most max_inflight and 4096 more may be", taken);
  for (uint64_t i = 0; i < taken; i++) bench.expect(bench.b(), i, TUTTI_OK, 8);
}

void many_gets(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  const Readable from(bench, bench.rma, bench.a(), 1 << 16, 3);
  const uint64_t n = std::min<uint64_t>(bench.dev().max_inflight, 256) * 4;
  std::vector<uint64_t> in(n);
  const tutti_net_buf all = bench.b().buf(in.data(), n * 8);
  const auto place = [](uint64_t i) { return (i * 40) % ((1 << 16) - 8); };
  for (uint64_t i = 0; i < n; i++)
    bench.get(p.rx, {static_cast<uint64_t *>(all.addr) + i, 8, all.mr, 0}, from.at(place(i)), from, i);
  for (uint64_t i = 0; i < n; i++) bench.expect(bench.b(), i, TUTTI_OK, 8);
  for (uint64_t i = 0; i < n; i++)
    require(std::memcmp(&in[i], from.memory.data() + place(i), 8) == 0, "get {} of {} read the wrong place", i, n);
  bench.idle(std::chrono::milliseconds(10));
  for (uint64_t i = 0; i < n; i++)
    require(bench.b().done(i).times == 1, "get {} was reported {} times", i, bench.b().done(i).times);
}

void cancelled_gets(const Plugin &plugin, const void *table) {
  RmaBench bench(plugin, table);
  const Pair p = bench.pair();
  const Readable from(bench, bench.rma, bench.a(), 1 << 16, 3);
  std::vector<std::vector<unsigned char>> in(8, std::vector<unsigned char>(1 << 16, 0xa5));
  for (uint64_t i = 0; i < in.size(); i++) bench.get(p.rx, bench.b().buf(in[i].data(), in[i].size()), from.at(0), from, i);
  bench.destroy(p.rx);
  const auto after = in;
  for (int i = 0; i < 100; i++) bench.b().poll();
  for (uint64_t i = 0; i < in.size(); i++) {
    const Done &d = bench.b().done(i);
    require(d.times == 1, "a get was reported {} times after its endpoint was destroyed, expected once", d.times);
    require(d.last.status == TUTTI_OK || d.last.status == TUTTI_ERR_CANCELLED,
            "a get of a destroyed endpoint completed with {}", status_name(d.last.status));
  }
  bench.idle(std::chrono::milliseconds(20));
  require(in == after, "a get wrote into its buffer after its endpoint had been destroyed");
}

} // namespace

std::vector<Case> net_rma_cases() {
  return {
      {"N-55", "rma: a get reads the peer's registered memory, whichever side connected", reads},
      {"N-56", "rma: a get after a message reads what was written before it was sent", reads_what_was_written},
      {"N-57", "rma: a get with the key of a released registration is INVALID or REMOTE, and others go on", void_key},
      {"N-58", "rma: a get outside of its region is INVALID or REMOTE", out_of_bounds},
      {"N-59", "rma: any number of gets is taken or put off, and reported once", many_gets},
      {"N-69", "rma: a get of 0 bytes completes and reads nothing", empty_get},
      {"N-70", "rma: max_inflight gets are taken, and a full queue says AGAIN", bounded_gets},
      {"N-60", "rma: destroying an endpoint ends its gets", cancelled_gets},
  };
}

} // namespace tutti::conformance
