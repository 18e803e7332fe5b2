// What else goes on while messages move: other threads, other endpoints, forks, memory that is read by several.
#include "manners.h"
#include "net_bench.h"
#include "net_cases.h"
#include <atomic>
#include <cstring>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace tutti::conformance {
namespace {

void other_kind(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  if (bench.dev().mem_kinds & TUTTI_MEM_CUDA) skip("the device serves device memory");
  tutti_region region{};
  region.struct_size = sizeof(region);
  region.kind = TUTTI_MEM_CUDA;
  region.addr = reinterpret_cast<void *>(uintptr_t{1} << 40);
  region.bytes = 1 << 16;
  region.device = 0;
  region.dmabuf_fd = -1;
  auto *untouched = reinterpret_cast<tutti_net_mr *>(0x10);
  tutti_net_mr *mr = untouched;
  const tutti_status s = timed("mr_register", [&] { return bench.net().mr_register(bench.a().ctx(), &region, &mr); });
  require(s == TUTTI_ERR_UNSUPPORTED, "mr_register of memory that mem_kinds does not name returned {}", status_name(s));
  require(mr == untouched, "mr_register failed and wrote its out-parameter");
}

void empty_without_memory(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  for (uint64_t i = 0; i < 3; i++) {
    bench.recv(p.rx, {tutti_net_buf{}}, i);
    bench.send(p.tx, {tutti_net_buf{}}, i);
    bench.expect(bench.b(), i, TUTTI_OK, 0);
    bench.expect(bench.a(), i, TUTTI_OK, 0);
  }
  bench.transfer(p, 100, 100, 1);
}

void shared_memory_of_sends(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const std::vector<Pair> pairs = {bench.pair(), bench.pair(), bench.pair()};
  const size_t n = std::min<uint64_t>(1 << 20, bench.dev().max_message_bytes);
  std::vector<unsigned char> out(n);
  Random(3).fill(out.data(), n);
  const tutti_net_buf from = bench.a().buf(out.data(), n);
  std::vector<std::vector<unsigned char>> in(2 * pairs.size(), std::vector<unsigned char>(n));
  for (size_t i = 0; i < in.size(); i++) bench.recv(pairs[i / 2].rx, {bench.b().buf(in[i].data(), n)}, i);
  for (size_t i = 0; i < in.size(); i++) bench.send(pairs[i / 2].tx, {from}, i);
  for (size_t i = 0; i < in.size(); i++) {
    bench.expect(bench.b(), i, TUTTI_OK, n);
    bench.expect(bench.a(), i, TUTTI_OK, n);
    require(in[i] == out, "message {} of {} that were sent from one place arrived changed", i, in.size());
  }
}

void connect_while_busy(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair busy = bench.pair();
  const size_t n = std::min<uint64_t>(1 << 20, bench.dev().max_message_bytes);
  std::vector<unsigned char> out(n), in(n);
  for (uint64_t i = 0; i < 8; i++) {
    Random(i).fill(out.data(), n);
    bench.recv(busy.rx, {bench.b().buf(in.data(), n)}, 100 + i);
    bench.send(busy.tx, {bench.a().buf(out.data(), n)}, 100 + i);
    const Pair fresh = bench.pair(); // while the message is on its way
    bench.expect(bench.a(), 100 + i, TUTTI_OK, n);
    bench.expect(bench.b(), 100 + i, TUTTI_OK, n);
    require(in == out, "a message on its way while another endpoint was connected arrived changed");
    bench.transfer(fresh, 1000, 1000, i);
  }
}

// [setup] functions in a thread of their own.
void setup_while_busy(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::thread other([&] {
    while (!stop.load()) {
      uint32_t count = 0;
      const tutti_status s = bench.net().device_count(plugin.state, &count);
      require(s == TUTTI_OK && count > 0, "device_count beside a running transfer returned {} and {} devices", status_name(s),
              count);
      tutti_net_dev dev{};
      dev.struct_size = sizeof(dev);
      const tutti_status info = bench.net().device_info(plugin.state, 0, &dev);
      require(info == TUTTI_OK, "device_info beside a running transfer returned {}", status_name(info));
      bench.side(2).reset();
      rounds++;
    }
  });
  for (uint64_t i = 0; i < 20 || rounds.load() < 3; i++) bench.transfer(p, 10000, 10000, i);
  stop.store(true);
  other.join();
}

// What a user's system() or a Python program's subprocess does.
void forked(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  bench.transfer(p, 1000, 1000, 1);
  std::vector<unsigned char> in(1 << 16), out(1 << 16, 7);
  bench.recv(p.rx, {bench.b().buf(in.data(), in.size())}, 5);
  const pid_t child = own_fork();
  require(child >= 0, "fork failed");
  if (child == 0) ::_exit(0);
  bench.send(p.tx, {bench.a().buf(out.data(), out.size())}, 5);
  bench.expect(bench.b(), 5, TUTTI_OK, in.size());
  bench.expect(bench.a(), 5, TUTTI_OK, out.size());
  require(in == out, "what was posted before a fork was received into other memory than the parent's");
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "the child of a fork was lost");
  bench.transfer(p, 1000, 1000, 2);
}

void child_of_its_own(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  const Pair p = bench.pair();
  const pid_t child = own_fork();
  require(child >= 0, "fork failed");
  if (child == 0) { // a finding of the child comes to the same place as one of the parent
    {
      NetBench own(plugin, table);
      own.transfer(own.pair(), 5000, 5000, 1);
    }
    ::_exit(0);
  }
  for (uint64_t i = 0; i < 10; i++) bench.transfer(p, 1000, 1000, i);
  int status = 0;
  require(::waitpid(child, &status, 0) == child, "the child of a fork was lost");
  require(WIFEXITED(status), "the child of a fork died of signal {} while it used the net", WTERMSIG(status));
  bench.transfer(p, 1000, 1000, 99);
}

} // namespace

std::vector<Case> net_meanwhile_cases() {
  return {
      {"N-61", "memory of a kind that the device does not serve is UNSUPPORTED", other_kind},
      {"N-62", "an empty message needs neither an address nor a registration", empty_without_memory},
      {"N-63", "many sends may read the same memory at once", shared_memory_of_sends},
      {"N-64", "endpoints are connected while others of the context carry messages", connect_while_busy},
      {"N-65", "devices are listed and opened while another thread moves messages", setup_while_busy},
      {"N-66", "what was posted before a fork goes on in the parent", forked},
      {"N-67", "the child of a fork opens the device anew and leaves the parent's endpoints alone", child_of_its_own},
  };
}

} // namespace tutti::conformance
