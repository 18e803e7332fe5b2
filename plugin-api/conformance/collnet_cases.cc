// Cases of tutti.collnet/1: devices and groups. A plugin whose device_count() is 0 (a daemon that no option names, say) has the
// first case only.
#include "collnet_cases.h"
#include "base/types.h"
#include "collnet_bench.h"
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace tutti::conformance {
namespace {

constexpr std::chrono::seconds kGrant{2}; // for room that is there

const tutti_collnet_v1 &collnet_of(const void *table) {
  return *static_cast<const tutti_collnet_v1 *>(table);
}

uint32_t devices(const Plugin &plugin, const tutti_collnet_v1 &net) {
  uint32_t count = UINT32_MAX;
  const tutti_status s = net.device_count(plugin.state, &count);
  require(s == TUTTI_OK, "device_count returned {}", status_name(s));
  require(count < 10000, "device_count says {} devices", count);
  return count;
}

void sane_devices(const Plugin &plugin, const void *table) {
  const tutti_collnet_v1 &net = collnet_of(table);
  const uint32_t n = devices(plugin, net);
  require(n == devices(plugin, net), "device_count says different numbers");
  for (uint32_t i = 0; i < n; i++) {
    tutti_collnet_dev d;
    std::memset(&d, 0x5a, sizeof d);
    d.struct_size = sizeof d;
    require(net.device_info(plugin.state, i, &d) == TUTTI_OK, "device_info({}) fails", i);
    require(std::memchr(d.name, 0, sizeof d.name) && d.name[0], "device {} has no NUL-terminated name", i);
    require(std::memchr(d.pci, 0, sizeof d.pci) != nullptr, "device {}: pci is not NUL-terminated", d.name);
    require((d.mem_kinds & TUTTI_MEM_HOST) && d.numa_node >= -1 && d.rail >= -1,
            "device {}: mem_kinds {}, numa_node {}, rail {}", d.name, d.mem_kinds, d.numa_node, d.rail);
    alignas(tutti_collnet_dev) unsigned char bytes[sizeof(tutti_collnet_dev)];
    std::memset(bytes, 0xa5, sizeof bytes);
    auto *part = reinterpret_cast<tutti_collnet_dev *>(bytes);
    part->struct_size = offsetof(tutti_collnet_dev, pci);
    require(net.device_info(plugin.state, i, part) == TUTTI_OK, "device_info with a short struct fails");
    for (size_t b = offsetof(tutti_collnet_dev, pci); b < sizeof bytes; b++)
      require(bytes[b] == 0xa5, "device_info wrote beyond the {} bytes that it was given", offsetof(tutti_collnet_dev, pci));
  }
  tutti_collnet_dev d{};
  d.struct_size = sizeof d;
  require(net.device_info(plugin.state, n, &d) < 0, "device_info of a device that there is not succeeds");
}

// All that members have in common, and in every call.
std::string differing(const tutti_collnet_caps &a, const tutti_collnet_caps &b) {
  std::string out;
  const auto differs = [&](const char *name, auto x, auto y) {
    if (x != y) out += fmt::format("{}{} {} and {}", out.empty() ? "" : ", ", name, x, y);
  };
  differs("colls", a.colls, b.colls);
  differs("dtype_ops", a.dtype_ops, b.dtype_ops);
  differs("max_bytes", a.max_bytes, b.max_bytes);
  differs("window_bytes", a.window_bytes, b.window_bytes);
  differs("max_outstanding", a.max_outstanding, b.max_outstanding);
  differs("alignment", a.alignment, b.alignment);
  differs("max_members", a.max_members, b.max_members);
  differs("mem_kinds", a.mem_kinds, b.mem_kinds);
  differs("accumulate", a.accumulate, b.accumulate);
  differs("repeat", a.repeat, b.repeat);
  differs("flags", a.flags, b.flags);
  differs("tree_depth", a.tree_depth, b.tree_depth);
  differs("aggregators", a.aggregators, b.aggregators);
  differs("latency_ns", a.latency_ns, b.latency_ns);
  differs("bandwidth_mbps", a.bandwidth_mbps, b.bandwidth_mbps);
  differs("order_id", a.order_id, b.order_id);
  return out;
}

void sane_caps(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  const tutti_collnet_caps &c = b.caps();
  require(c.colls & 1u << TUTTI_COLL_ALL_REDUCE, "a group reduces nothing");
  require(c.dtype_ops != 0 && c.max_bytes > 0 && c.max_outstanding > 0 && (c.mem_kinds & TUTTI_MEM_HOST) && c.progress_ms > 0,
          "caps of a ready group are empty: dtype_ops {}, max_bytes {}, max_outstanding {}, mem_kinds {}, progress_ms {}",
          c.dtype_ops, c.max_bytes, c.max_outstanding, c.mem_kinds, c.progress_ms);
  require(std::has_single_bit(c.alignment), "alignment {} is no power of two", c.alignment);
  require(c.max_bytes >= b.piece() && c.max_bytes % b.piece() == 0, "max_bytes {} is no whole number of aligned elements of 8",
          c.max_bytes);
  require(c.max_members == 0 || c.max_members >= b.size(), "max_members is {}, and there are {}", c.max_members, b.size());
  require(c.reserved0 == 0, "reserved0 of caps is {}", c.reserved0);
  require(c.repeat == TUTTI_COLLNET_REPEAT_NONE || c.order_id != 0, "results repeat, but order_id is 0");
  for (auto &seat : b.team()) {
    const std::string other = differing(c, seat->caps);
    require(other.empty(), "two members have different caps: {}", other);
    const tutti_collnet_caps before = seat->caps;
    require(seat->ready() == TUTTI_OK, "group_ready of a ready group does not say so again");
    const std::string now = differing(before, seat->caps);
    require(now.empty() && before.progress_ms == seat->caps.progress_ms, "caps of a ready group have changed: {}", now);
    require(seat->why().reason == TUTTI_COLLNET_FINE, "a group that works has a reason to fail");
  }
  alignas(tutti_collnet_caps) unsigned char bytes[sizeof(tutti_collnet_caps)];
  std::memset(bytes, 0xa5, sizeof bytes);
  auto *part = reinterpret_cast<tutti_collnet_caps *>(bytes);
  part->struct_size = 24;
  require(b.net.group_ready(b.team()[0]->group(), part) == TUTTI_OK && part->struct_size == 24,
          "group_ready with short caps fails");
  for (size_t i = 24; i < sizeof bytes; i++) require(bytes[i] == 0xa5, "group_ready wrote beyond caps of 24 bytes");
}

void fills_up(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  b.up();
  const uint32_t granted = b.caps().max_outstanding;
  const uint64_t bytes = b.piece();
  const Work w = b.any();
  Random random(4);
  const Gathered g = gathered(w.dtype, w.op, 2, bytes, random);
  Memories send[2], recv[2];
  for (size_t m = 0; m < 2; m++)
    for (uint32_t i = 0; i <= granted; i++) {
      send[m].push_back(b.memory(bytes));
      send[m].back().fill(g.in[m]);
      recv[m].push_back(b.memory(bytes));
    }
  Seat &first = *b.team()[0], &second = *b.team()[1];
  // What was granted is taken though the other member is away, if need be after progress.
  const uint64_t fits = b.caps().window_bytes ? std::max<uint64_t>(1, b.caps().window_bytes / bytes) : granted;
  const uint64_t least = std::min<uint64_t>(granted, fits);
  size_t taken = 0;
  for (; taken <= granted; taken++) {
    const tutti_collnet_op op = b.op(first, 0, w, &send[0][taken], &recv[0][taken], bytes);
    tutti_status s = first.post(op);
    if (taken < least && s == TUTTI_AGAIN)
      b.until([&] { return (s = first.post(op)) != TUTTI_AGAIN; }, "room that was granted", kGrant);
    if (s == TUTTI_AGAIN) break;
    require(s == TUTTI_OK, "post {} returned {}", taken, status_name(s));
  }
  require(taken >= least && taken <= granted, "{} posts were taken, granted are {}", taken, granted);
  for (size_t i = 0; i < taken; i++) {
    const tutti_collnet_op op = b.op(second, 1, w, &send[1][i], &recv[1][i], bytes);
    b.until([&] { return second.post(op) == TUTTI_OK; }, "room for a post");
  }
  b.all_done(b.team());
  for (auto &r : recv)
    for (size_t i = 0; i < taken; i++)
      require(std::memcmp(r[i].data(), g.want.data(), bytes) == 0, "post {} of {} has a wrong result", i, taken);
}

// Posts that fill the window, and one that may be larger than it.
void fills_window(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  b.up();
  constexpr uint64_t most = 64 << 20; // what this process has memory for
  const uint64_t window = std::min(b.caps().window_bytes ? b.caps().window_bytes : most, most);
  const uint64_t posts = std::clamp<uint64_t>(b.caps().max_outstanding, 1, 4), bytes = b.fit(window / posts);
  const Work w = b.any();
  Memories send[2], recv[2];
  for (size_t m = 0; m < 2; m++)
    for (uint64_t i = 0; i < posts; i++) send[m].push_back(b.memory(bytes)), recv[m].push_back(b.memory(bytes));
  for (uint64_t i = 0; i < posts && (i + 1) * bytes <= window; i++) {
    const tutti_collnet_op op = b.op(*b.team()[0], 0, w, &send[0][i], &recv[0][i], bytes);
    b.until([&] { return b.team()[0]->post(op) == TUTTI_OK; },
            fmt::format("{} bytes of a window of {} to be taken", (i + 1) * bytes, window), kGrant);
  }
  for (uint64_t i = 0; i < b.team()[0]->posted(); i++) {
    const tutti_collnet_op op = b.op(*b.team()[1], 1, w, &send[1][i], &recv[1][i], bytes);
    b.until([&] { return b.team()[1]->post(op) == TUTTI_OK; }, "room for a post");
  }
  b.all_done(b.team());
  Random random(20);
  b.run(b.team(), w, b.fit(std::min(most, 4 * window)), random); // one that an idle group takes, however long
}

void goes_at_once(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  Seat first(*b.sides[0], 0), second(*b.sides[1], 1);
  std::vector<unsigned char> addrs(2 * TUTTI_COLLNET_ADDR_BYTES);
  first.listen(addrs.data());
  second.listen(addrs.data() + TUTTI_COLLNET_ADDR_BYTES);
  first.create(addrs.data(), 2, b.config);
  for (int i = 0; i < 10; i++) {
    const tutti_status s = first.ready();
    require(s == TUTTI_AGAIN, "a group without its second member: group_ready returned {}", status_name(s));
    b.poll();
  }
  first.destroy();
}

void keeps_deadline(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  b.config.deadline_ms = 300;
  Seat first(*b.sides[0], 0), second(*b.sides[1], 1);
  std::vector<unsigned char> addrs(2 * TUTTI_COLLNET_ADDR_BYTES);
  first.listen(addrs.data());
  second.listen(addrs.data() + TUTTI_COLLNET_ADDR_BYTES);
  first.create(addrs.data(), 2, b.config);
  tutti_status s = TUTTI_AGAIN;
  b.until([&] { return (s = first.ready()) != TUTTI_AGAIN; }, "a group without its second member to give up");
  require(s < 0, "a group without its second member became ready");
  require(first.why().reason == TUTTI_COLLNET_TIMEOUT, "its reason is {}, expected TIMEOUT", first.why().reason);
  require(first.why().text[0] != 0, "it failed and does not say why");
}

void sleeps(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  if (!b.net.event_fd) skip("event_fd is not offered");
  b.up();
  int32_t fd = -1, again = -1;
  require(b.net.event_fd(b.sides[0]->ctx(), &fd) == TUTTI_OK && fd >= 0, "event_fd fails");
  require(b.net.event_fd(b.sides[0]->ctx(), &again) == TUTTI_OK && again == fd, "event_fd gives two descriptors");
  b.until([&] { return b.net.arm(b.sides[0]->ctx()) == TUTTI_OK; }, "an idle context to be armed");
}

void describes(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2);
  b.up();
  for (const uint32_t cap : {256u, 8u, 1u}) {
    char text[256 + 8];
    std::memset(text, 'x', sizeof text);
    require(b.net.group_describe(b.team()[0]->group(), text, cap) == TUTTI_OK, "group_describe fails");
    require(std::memchr(text, 0, cap) != nullptr, "group_describe with room for {} bytes ends without NUL", cap);
    for (size_t i = cap; i < sizeof text; i++) require(text[i] == 'x', "group_describe wrote beyond {} bytes", cap);
    require(cap < 8 || text[0], "group_describe says nothing");
  }
}

// An older core: fields that it does not know are 0.
void takes_short_structs(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table, 2, true);
  b.config.progress_ms = 1; // not to be read
  b.up();
  Random random(23);
  Work w = b.any();
  b.run(b.team(), w, b.fit(4096), random);
  std::vector<unsigned char> data(b.piece());
  Memories send, recv;
  for (size_t m = 0; m < 2; m++) send.push_back(b.memory(b.piece())), recv.push_back(b.memory(b.piece()));
  for (size_t m = 0; m < 2; m++) { // what lies behind the struct differs, and nobody compares it
    w.tag = m;
    const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), w, &send[m], &recv[m], b.piece()));
    require(s == TUTTI_OK, "post of a short op returned {}", status_name(s));
  }
  b.all_done(b.team());
}

} // namespace

std::vector<Case> collnet_group_cases() {
  return {
      {"G-01", "devices are described completely, no further than asked, and the same in every call", sane_devices},
      {"G-02", "a ready group has caps, the same on all members and in every call, written no further than asked", sane_caps},
      {"G-04", "what was granted is taken without the other members, more is told AGAIN; all completes once, in order",
       fills_up},
      {"G-07", "a group that is not ready can be destroyed at once", goes_at_once},
      {"G-08", "a group whose members do not come fails by its deadline with TIMEOUT", keeps_deadline},
      {"G-09", "an idle context can be armed, on a descriptor that stays the same", sleeps},
      {"G-20", "the window that was granted can be filled; an idle group takes a post of any size", fills_window},
      {"G-23", "structs of an older core are read no further than they are long", takes_short_structs},
      {"G-24", "groups are described, in as much room as there is", describes},
  };
}

std::span<const Case> collnet_cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> v;
    for (auto part : {collnet_group_cases, collnet_data_cases, collnet_failure_cases})
      for (const Case &c : part()) v.push_back(c);
    std::sort(v.begin(), v.end(), [](const Case &a, const Case &b) { return std::strcmp(a.id, b.id) < 0; });
    return v;
  }();
  return all;
}

} // namespace tutti::conformance
