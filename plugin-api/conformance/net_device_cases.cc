#include "net_bench.h"
#include "net_cases.h"
#include "tutti/plugin/net_counters.h"
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <poll.h>
#include <set>
#include <sys/epoll.h>
#include <unistd.h>

namespace tutti::conformance {
namespace {

const tutti_net_v1 &net_of(const void *table) {
  return *static_cast<const tutti_net_v1 *>(table);
}

uint32_t count_of(const Plugin &plugin, const tutti_net_v1 &net) {
  uint32_t count = UINT32_MAX;
  const tutti_status s = net.device_count(plugin.state, &count);
  require(s == TUTTI_OK, "device_count returned {}", status_name(s));
  require(count < 10000, "device_count says {} devices", count);
  return count;
}

void same_count(const Plugin &plugin, const void *table) {
  const uint32_t first = count_of(plugin, net_of(table)), second = count_of(plugin, net_of(table));
  require(first == second, "device_count said {}, then {}", first, second);
}

// "0000:17:00.0"; the domain may be longer.
bool is_pci_address(const std::string &text) {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  int end = 0;
  return std::sscanf(text.c_str(), "%x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) == 4 &&
         static_cast<size_t>(end) == text.size();
}

void sane_devices(const Plugin &plugin, const void *table) {
  std::set<std::string> names;
  const uint32_t count = count_of(plugin, net_of(table));
  for (uint32_t i = 0; i < count; i++) {
    tutti_net_dev d;
    std::memset(&d, 0x5a, sizeof(d));
    d.struct_size = sizeof(d);
    const tutti_status s = net_of(table).device_info(plugin.state, i, &d);
    require(s == TUTTI_OK, "device_info({}) returned {}", i, status_name(s));
    require(std::memchr(d.name, 0, sizeof(d.name)) && d.name[0], "device {} has no NUL-terminated name", i);
    require(names.insert(d.name).second, "two devices are named \"{}\"", d.name);
    require(std::memchr(d.pci, 0, sizeof(d.pci)) != nullptr, "device {}: pci is not NUL-terminated", d.name);
    const std::string pci = std::string(d.pci).substr(std::string(d.pci).rfind('/') + 1);
    require(pci.empty() || is_pci_address(pci), "device {}: pci is \"{}\", which does not end in an address like 0000:17:00.0",
            d.name, d.pci);
    require((d.mem_kinds & TUTTI_MEM_HOST) != 0, "device {} serves no host memory: mem_kinds is {:#x}", d.name, d.mem_kinds);
    require(d.max_message_bytes >= 65536, "device {}: max_message_bytes is {}", d.name, d.max_message_bytes);
    require(d.max_inflight >= 8, "device {}: max_inflight is {}, at least 8 is promised", d.name, d.max_inflight);
    require(d.max_batch >= 2, "device {}: max_batch is {}, at least 2 is promised", d.name, d.max_batch);
    require(d.numa_node >= -1 && d.rail >= -1, "device {}: numa_node {}, rail {}; unknown is -1", d.name, d.numa_node, d.rail);
    require(d.reserved0 == 0, "device {}: reserved0 is {}", d.name, d.reserved0);
    const bool flush = net_of(table).flush != nullptr;
    require(flush || !(d.flags & TUTTI_NET_NEEDS_FLUSH), "device {} says NEEDS_FLUSH and flush is NULL", d.name);
  }
}

void short_info(const Plugin &plugin, const void *table) {
  if (count_of(plugin, net_of(table)) == 0) skip("there is no usable device on this machine");
  alignas(tutti_net_dev) unsigned char bytes[sizeof(tutti_net_dev)];
  for (const uint32_t size : {8u, 72u, 136u, 160u}) {
    std::memset(bytes, 0xa5, sizeof(bytes));
    auto *d = reinterpret_cast<tutti_net_dev *>(bytes);
    d->struct_size = size;
    const tutti_status s = net_of(table).device_info(plugin.state, 0, d);
    require(s == TUTTI_OK, "device_info with struct_size {} returned {}", size, status_name(s));
    require(d->struct_size == size, "device_info changed struct_size from {} to {}", size, d->struct_size);
    for (size_t i = size; i < sizeof(bytes); i++)
      require(bytes[i] == 0xa5, "device_info wrote byte {} of a struct of {}", i, size);
  }
}

void wrong_index(const Plugin &plugin, const void *table) {
  const uint32_t count = count_of(plugin, net_of(table));
  for (const uint32_t dev : {count, count + 1, UINT32_MAX}) {
    tutti_net_dev d{};
    d.struct_size = sizeof(d);
    const tutti_status s = net_of(table).device_info(plugin.state, dev, &d);
    require(s < 0, "device_info({}) of {} devices returned {}", dev, count, status_name(s));
    tutti_net_ctx_config config{};
    config.struct_size = sizeof(config);
    auto *untouched = reinterpret_cast<tutti_net_ctx *>(0x10);
    tutti_net_ctx *ctx = untouched;
    const tutti_status c = net_of(table).ctx_create(plugin.state, dev, &config, &ctx);
    require(c < 0, "ctx_create on device {} of {} returned {}", dev, count, status_name(c));
    require(ctx == untouched, "ctx_create failed and wrote its out-parameter");
  }
}

void many_contexts(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  bench.side(2).reset(); // what is made once stays
  const size_t fds = open_descriptors(), threads = live_threads();
  for (int i = 0; i < 50; i++) bench.side(2).reset();
  require(open_descriptors() <= fds, "50 contexts came and went, and {} descriptors stayed", open_descriptors() - fds);
  require(live_threads() <= threads, "50 contexts came and went, and {} threads stayed", live_threads() - threads);
}

void short_config(const Plugin &plugin, const void *table) {
  if (count_of(plugin, net_of(table)) == 0) skip("there is no usable device on this machine");
  struct Newer {
    tutti_net_ctx_config known;
    unsigned char more[64];
  } newer;
  std::memset(&newer, 0xff, sizeof(newer));
  for (const uint32_t size : {8u, 16u, static_cast<uint32_t>(sizeof(newer))}) {
    newer.known.struct_size = size;
    newer.known.traffic_class = -1;
    newer.known.flags = ~uint32_t{TUTTI_NET_ENCRYPT};
    tutti_net_ctx *ctx = nullptr;
    const tutti_status s = net_of(table).ctx_create(plugin.state, 0, &newer.known, &ctx);
    require(s == TUTTI_OK && ctx, "ctx_create with a config of {} bytes returned {}", size, status_name(s));
    net_of(table).ctx_destroy(ctx);
  }
}

void traffic_classes(const Plugin &plugin, const void *table) {
  if (count_of(plugin, net_of(table)) == 0) skip("there is no usable device on this machine");
  for (const int32_t traffic_class : {-1, 0, 104, 255}) {
    tutti_net_ctx_config config{};
    config.struct_size = sizeof(config);
    config.traffic_class = traffic_class;
    config.nranks = 2;
    tutti_net_ctx *ctx = nullptr;
    const tutti_status s = net_of(table).ctx_create(plugin.state, 0, &config, &ctx);
    require(s == TUTTI_OK && ctx, "ctx_create with traffic class {} returned {}", traffic_class, status_name(s));
    net_of(table).ctx_destroy(ctx);
  }
}

// That they are encrypted nobody here can see; that they come is a start.
void encrypted(const Plugin &plugin, const void *table) {
  if (NetBench plain(plugin, table); !(plain.dev().flags & TUTTI_NET_ENCRYPTS)) skip("the device has no ENCRYPTS");
  NetBench bench(plugin, table, TUTTI_NET_ENCRYPT);
  const Pair p = bench.pair();
  for (const uint64_t bytes : {0ull, 1ull, 8ull, 16'384ull, 65'536ull, 1ull << 20, 5ull << 20})
    if (bytes <= bench.dev().max_message_bytes)
      for (uint64_t i = 0; i < 3; i++) bench.transfer(p, bytes, bytes, bytes + i, i);
}

void registrations(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  std::vector<unsigned char> memory(1 << 16);
  const auto rounds = [&](int n) {
    for (int i = 0; i < n; i++) {
      tutti_region region{};
      region.struct_size = sizeof(region);
      region.kind = TUTTI_MEM_HOST;
      region.addr = memory.data() + i;
      region.bytes = memory.size() - static_cast<size_t>(i);
      region.device = region.dmabuf_fd = -1;
      tutti_net_mr *mr = nullptr;
      const tutti_status s = timed("mr_register", [&] { return bench.net().mr_register(bench.a().ctx(), &region, &mr); });
      require(s == TUTTI_OK, "mr_register of {} bytes returned {}", region.bytes, status_name(s));
      bench.net().mr_release(mr);
    }
  };
  rounds(1);
  const size_t fds = open_descriptors();
  rounds(200);
  require(open_descriptors() <= fds, "registrations left {} descriptors", open_descriptors() - fds);
}

void quiet_progress(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  bench.idle(std::chrono::milliseconds(50));
  bench.a().poll(0);
  require(bench.net().progress(bench.a().ctx(), nullptr, 0) == 0, "progress without room and array did not return 0");
  require(bench.a().reported() + bench.b().reported() == 0, "progress reported completions though nothing was posted");
}

bool readable(int fd, int ms) {
  struct pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, ms) > 0;
}

void event_descriptor(const Plugin &plugin, const void *table) {
  NetBench bench(plugin, table);
  if (!bench.net().event_fd) skip("the net offers no event_fd");
  const Pair p = bench.pair();
  int32_t fd = -1;
  require(bench.net().event_fd(bench.b().ctx(), &fd) == TUTTI_OK, "event_fd failed");
  require(::fcntl(fd, F_GETFD) >= 0, "event_fd gave {}, which is no open descriptor", fd);
  int32_t again = -1;
  require(bench.net().event_fd(bench.b().ctx(), &again) == TUTTI_OK && again == fd, "event_fd gave {}, then {}", fd, again);
  const int all = ::epoll_create1(EPOLL_CLOEXEC); // as the core watches several devices
  epoll_event event{};
  event.events = EPOLLIN;
  require(::epoll_ctl(all, EPOLL_CTL_ADD, fd, &event) == 0, "event_fd gave {}, which epoll cannot watch", fd);
  ::close(all);
  unsigned char in[8] = {}, out[8] = {1};
  bench.recv(p.rx, {bench.b().buf(in, 8)}, 1);
  bench.until([&] { return bench.net().arm(bench.b().ctx()) == TUTTI_OK; }, "arm() to succeed on a quiet context");
  bench.send(p.tx, {bench.a().buf(out, 8)}, 2);
  // From here on only the sender is driven; the receiver sleeps on its descriptor.
  const Deadline deadline = Deadline::in(kWait);
  bool woken = false;
  while (!woken && !deadline.expired()) {
    bench.a().poll();
    if (bench.b().done(1).times) break; // send() above had to drive both sides
    woken = readable(fd, 10);
  }
  require(woken || bench.b().done(1).times, "a message came and the armed descriptor did not become readable within {} s",
          kWait.count());
  bench.expect(bench.b(), 1, TUTTI_OK, 8);
}

void counters(const Plugin &plugin, const void *table) {
  const auto *t = static_cast<const tutti_net_counters_v1 *>(plugin.iface(TUTTI_NET_COUNTERS));
  if (!t) skip("the plugin offers no tutti.net.counters/1");
  constexpr uint32_t kRoom = 512;
  const uint32_t devices = count_of(plugin, net_of(table));
  for (uint32_t dev = 0; dev < devices; dev++) {
    std::map<std::string, uint64_t> before;
    for (int round = 0; round < 2; round++) {
      uint32_t none = 0;
      require(t->read(plugin.state, dev, nullptr, &none) == TUTTI_OK, "counters of device {} cannot be counted", dev);
      tutti_net_counter list[kRoom + 1];
      std::memset(list, 0xa5, sizeof(list));
      uint32_t count = kRoom;
      const tutti_status s = timed("read", [&] { return t->read(plugin.state, dev, list, &count); });
      require(s == TUTTI_OK, "reading the counters of device {} returned {}", dev, status_name(s));
      std::set<std::string> names;
      for (uint32_t i = 0; i < std::min(count, kRoom); i++) {
        require(list[i].name && *list[i].name, "counter {} of device {} has no name", i, dev);
        require(names.insert(list[i].name).second, "two counters of device {} are named \"{}\"", dev, list[i].name);
        require(!list[i].hint || *list[i].hint, "counter \"{}\" has an empty hint: NULL is none", list[i].name);
        require(list[i].reserved0 == 0, "counter \"{}\": reserved0 is {}", list[i].name, list[i].reserved0);
        uint64_t &was = before[list[i].name];
        require(round == 0 || list[i].value >= was, "counter \"{}\" fell from {} to {}", list[i].name, was, list[i].value);
        was = list[i].value;
      }
      const auto *beyond = reinterpret_cast<const unsigned char *>(list + std::min(count, kRoom));
      require(*beyond == 0xa5, "read wrote more counters than it says there are");
    }
    if (before.size() < 2) continue;
    tutti_net_counter two[2];
    std::memset(two, 0xa5, sizeof(two));
    uint32_t room = 1;
    require(t->read(plugin.state, dev, two, &room) == TUTTI_OK && room >= before.size(),
            "read with room for one counter says there are {}, there were {}", room, before.size());
    require(reinterpret_cast<const unsigned char *>(two + 1)[0] == 0xa5, "read wrote two counters into room for one");
  }
  uint32_t count = 0;
  const tutti_status s = t->read(plugin.state, devices, nullptr, &count);
  require(s < 0, "counters of device {} of {} returned {}", devices, devices, status_name(s));
}

} // namespace

std::vector<Case> net_device_cases() {
  return {
      {"N-01", "device_count answers, and the same twice", same_count},
      {"N-02", "every device has a unique name and keeps the promised minima", sane_devices},
      {"N-03", "device_info writes no further than struct_size", short_info},
      {"N-04", "an index out of range is an error and writes nothing", wrong_index},
      {"N-05", "contexts come and go without leaving descriptors or threads", many_contexts},
      {"N-06", "ctx_create takes configurations of older and newer versions", short_config},
      {"N-68", "a context may have any traffic class", traffic_classes},
      {"N-71", "a device that encrypts carries messages of all sizes in a context that asks for it", encrypted},
      {"N-07", "host memory can be registered and released any number of times", registrations},
      {"N-08", "progress of a quiet context reports nothing", quiet_progress},
      {"N-54", "counters have unique names, keep to the room and never fall", counters},
      {"N-09", "an armed event_fd wakes the receiver", event_descriptor},
  };
}

} // namespace tutti::conformance
