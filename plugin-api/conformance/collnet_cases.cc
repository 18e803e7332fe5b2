// Cases of tutti.collnet/1: groups of this process, each member with a context of its own. A plugin whose device_count() is 0
// (a daemon that no option names, say) has the first ones only.
#include "base/time.h"
#include "base/types.h"
#include "net_bench.h"
#include "suite.h"
#include <cstring>
#include <map>
#include <memory>
#include <vector>

namespace tutti::conformance {
namespace {

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

// A member: context, listener, group, and what progress() reported.
class CollnetMember {
public:
  CollnetMember(const Plugin &plugin, const tutti_collnet_v1 &net, int rank, int n) : net_(net), rank_(rank) {
    tutti_collnet_ctx_config c{};
    c.struct_size = sizeof c;
    c.traffic_class = -1;
    c.comm_id = 0x7e57;
    c.rank = rank;
    c.nranks = n;
    const tutti_status s = net.ctx_create(plugin.state, 0, &c, &ctx_);
    require(s == TUTTI_OK && ctx_, "ctx_create returned {}", status_name(s));
  }
  ~CollnetMember() {
    destroy();
    for (tutti_collnet_mr *mr : mrs_) net_.mr_release(mr);
    if (listener_) net_.listener_destroy(listener_);
    if (ctx_) net_.ctx_destroy(ctx_);
  }
  CollnetMember(const CollnetMember &) = delete;

  void listen(unsigned char *addr) {
    uint32_t size = TUTTI_COLLNET_ADDR_BYTES;
    unsigned char room[TUTTI_COLLNET_ADDR_BYTES + 16];
    std::memset(room, 0xa5, sizeof room);
    const tutti_status s = net_.listen(ctx_, room, &size, &listener_);
    require(s == TUTTI_OK && listener_, "listen returned {}", status_name(s));
    require(size >= 1 && size <= TUTTI_COLLNET_ADDR_BYTES, "listen gave an address of {} bytes", size);
    for (size_t i = TUTTI_COLLNET_ADDR_BYTES; i < sizeof room; i++) require(room[i] == 0xa5, "listen wrote beyond its room");
    std::memcpy(addr, room, size);
  }
  void create(const unsigned char *addrs, int n, const tutti_collnet_config &config) {
    const tutti_status s = net_.group_create(listener_, addrs, TUTTI_COLLNET_ADDR_BYTES, n, rank_, &config, &group_);
    require(s == TUTTI_OK && group_, "group_create returned {}", status_name(s));
  }
  tutti_status ready() {
    caps = {};
    caps.struct_size = sizeof caps;
    return net_.group_ready(group_, &caps);
  }
  tutti_status post(const tutti_collnet_op &op, uint64_t cookie) {
    const tutti_status s = net_.post(group_, &op, cookie);
    if (s == TUTTI_OK) order_.push_back(cookie);
    return s;
  }
  void poll(uint32_t cap = 8) {
    tutti_collnet_completion out[9];
    std::memset(out, 0xa5, sizeof out);
    const int32_t n = net_.progress(ctx_, out, cap);
    require(n >= 0 && n <= static_cast<int32_t>(cap), "progress with room for {} returned {}", cap, n);
    for (int32_t i = 0; i < n; i++) {
      require(next_ < order_.size() && order_[next_] == out[i].cookie,
              "cookie {:#x} was reported out of the order of the posts", out[i].cookie);
      require(out[i].reserved0 == 0, "reserved0 of a completion is {}", out[i].reserved0);
      next_++;
      done_[out[i].cookie] = out[i].status;
    }
  }
  bool done(uint64_t cookie) const { return done_.count(cookie) != 0; }
  tutti_status status(uint64_t cookie) { return done_[cookie]; }
  size_t outstanding() const { return order_.size() - next_; }
  void destroy() {
    if (group_) net_.group_destroy(group_);
    group_ = nullptr;
  }
  tutti_collnet_buf buf(void *addr, uint64_t bytes, uint32_t flags) {
    tutti_collnet_mr *mr = nullptr;
    if ((flags & TUTTI_COLLNET_NEEDS_MR) && bytes > 0) {
      tutti_region r{};
      r.struct_size = sizeof r;
      r.kind = TUTTI_MEM_HOST;
      r.addr = addr;
      r.bytes = bytes;
      r.device = r.dmabuf_fd = -1;
      const tutti_status s = net_.mr_register(ctx_, &r, &mr);
      require(s == TUTTI_OK && mr, "mr_register returned {}", status_name(s));
      mrs_.push_back(mr);
    }
    return {addr, mr};
  }
  tutti_collnet_why why() const {
    tutti_collnet_why w{};
    w.struct_size = sizeof w;
    require(net_.group_why(group_, &w) == TUTTI_OK, "group_why fails");
    require(std::memchr(w.text, 0, sizeof w.text) != nullptr, "the text of group_why is not NUL-terminated");
    return w;
  }
  tutti_collnet_group *group() const { return group_; }
  tutti_collnet_ctx *ctx() const { return ctx_; }
  tutti_collnet_caps caps{};

private:
  const tutti_collnet_v1 &net_;
  const int rank_;
  tutti_collnet_ctx *ctx_ = nullptr;
  tutti_collnet_listener *listener_ = nullptr;
  tutti_collnet_group *group_ = nullptr;
  std::vector<tutti_collnet_mr *> mrs_;
  std::map<uint64_t, tutti_status> done_;
  std::vector<uint64_t> order_;
  size_t next_ = 0;
};

// A ready group.
class Bench {
public:
  Bench(const Plugin &plugin, const void *table, int n = 3, uint32_t outstanding = 8) : net(collnet_of(table)) {
    if (devices(plugin, net) == 0) skip("there is no usable device: the plugin's options name none");
    dev.struct_size = sizeof dev;
    require(net.device_info(plugin.state, 0, &dev) == TUTTI_OK, "device_info fails");
    for (int r = 0; r < n; r++) members.push_back(std::make_unique<CollnetMember>(plugin, net, r, n));
    config.struct_size = sizeof config;
    config.job_id = 0x7e57;
    config.outstanding = outstanding;
    config.deadline_ms = 10'000;
    config.progress_ms = 5000;
    addrs.resize(members.size() * TUTTI_COLLNET_ADDR_BYTES);
    for (size_t r = 0; r < members.size(); r++) members[r]->listen(addrs.data() + r * TUTTI_COLLNET_ADDR_BYTES);
  }
  Bench &up() {
    for (auto &m : members) m->create(addrs.data(), static_cast<int>(members.size()), config);
    until(
        [&] {
          size_t ready = 0;
          for (auto &m : members) {
            const tutti_status s = m->ready();
            require(s == TUTTI_OK || s == TUTTI_AGAIN, "group_ready returned {}: {}", status_name(s), m->why().text);
            ready += s == TUTTI_OK;
          }
          return ready == members.size();
        },
        "the group to become ready");
    return *this;
  }
  template <class Fn> void until(Fn holds, const char *what, std::chrono::seconds limit = std::chrono::seconds(10)) {
    for (const Deadline deadline = Deadline::in(limit); !holds();) {
      require(!deadline.expired(), "waited {} s for {}", limit.count(), what);
      for (auto &m : members)
        if (m->ctx()) m->poll();
    }
  }
  tutti_collnet_op op(CollnetMember &m, void *send, void *recv, uint64_t bytes, tutti_dtype type = TUTTI_DT_INT32,
                      tutti_redop red = TUTTI_RED_SUM) const {
    tutti_collnet_op o{};
    o.struct_size = sizeof o;
    o.coll = TUTTI_COLL_ALL_REDUCE;
    o.dtype = type;
    o.op = red;
    o.root = -1;
    o.bytes = bytes;
    o.send = m.buf(send, bytes, dev.flags);
    o.recv = recv == send ? o.send : m.buf(recv, bytes, dev.flags);
    return o;
  }
  void all_done(uint64_t cookie, tutti_status expected = TUTTI_OK) {
    until(
        [&] {
          for (auto &m : members)
            if (!m->done(cookie)) return false;
          return true;
        },
        "a post of all members to complete");
    for (auto &m : members)
      require(m->status(cookie) == expected, "a post completed with {}: {}", status_name(m->status(cookie)), m->why().text);
  }
  const tutti_collnet_v1 &net;
  tutti_collnet_dev dev{};
  tutti_collnet_config config{};
  std::vector<unsigned char> addrs;
  std::vector<std::unique_ptr<CollnetMember>> members;
};

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
    require(d.mem_kinds != 0 && d.numa_node >= -1 && d.rail >= -1, "device {}: mem_kinds {}, numa_node {}, rail {}", d.name,
            d.mem_kinds, d.numa_node, d.rail);
  }
  tutti_collnet_dev d{};
  d.struct_size = sizeof d;
  require(net.device_info(plugin.state, n, &d) < 0, "device_info of a device that there is not succeeds");
}

void sane_caps(const Plugin &plugin, const void *table) {
  Bench b(plugin, table);
  b.up();
  const tutti_collnet_caps &first = b.members[0]->caps;
  require(first.colls & 1u << TUTTI_COLL_ALL_REDUCE, "a group reduces nothing");
  require(first.dtype_ops != 0 && first.max_bytes > 0 && first.max_outstanding > 0 && first.alignment > 0 &&
              first.max_members >= 3 && first.mem_kinds != 0,
          "caps of a ready group are empty");
  for (auto &m : b.members) {
    const bool same = m->caps.order_id == first.order_id && m->caps.max_outstanding == first.max_outstanding &&
                      m->caps.max_bytes == first.max_bytes && m->caps.dtype_ops == first.dtype_ops &&
                      m->caps.colls == first.colls;
    require(same, "two members have different caps");
    require(m->why().reason == TUTTI_COLLNET_FINE, "a group that works has a reason to fail");
  }
  require(first.repeat == TUTTI_COLLNET_REPEAT_NONE || first.order_id != 0, "results repeat, but order_id is 0");
  alignas(tutti_collnet_caps) unsigned char bytes[sizeof(tutti_collnet_caps)];
  std::memset(bytes, 0xa5, sizeof bytes);
  auto *part = reinterpret_cast<tutti_collnet_caps *>(bytes);
  part->struct_size = 24;
  require(b.net.group_ready(b.members[0]->group(), part) == TUTTI_OK && part->struct_size == 24,
          "group_ready with short caps fails");
  for (size_t i = 24; i < sizeof bytes; i++) require(bytes[i] == 0xa5, "group_ready wrote beyond caps of 24 bytes");
}

void reduces(const Plugin &plugin, const void *table) {
  Bench b(plugin, table);
  b.up();
  uint64_t cookie = 1;
  const uint64_t align = std::max<uint64_t>(b.members[0]->caps.alignment, 4);
  for (const uint64_t bytes : {align, uint64_t{4096}, uint64_t{100 * 1024}, uint64_t{3 << 20}}) {
    if (bytes > b.members[0]->caps.max_bytes || !(b.members[0]->caps.dtype_ops >> (TUTTI_DT_INT32 * 4 + TUTTI_RED_SUM) & 1))
      continue;
    std::vector<std::vector<int32_t>> in, out;
    for (int32_t r = 0; r < 3; r++) {
      in.emplace_back(bytes / 4);
      out.emplace_back(bytes / 4, -1);
      for (size_t i = 0; i < in.back().size(); i++) in.back()[i] = static_cast<int32_t>(i) * (r + 1);
    }
    for (size_t r = 0; r < 3; r++) {
      const tutti_status s = b.members[r]->post(b.op(*b.members[r], in[r].data(), out[r].data(), bytes), cookie);
      require(s == TUTTI_OK, "post of an idle group returned {}", status_name(s));
    }
    b.all_done(cookie++);
    for (const auto &o : out)
      for (size_t i = 0; i < o.size(); i++)
        require(o[i] == static_cast<int32_t>(i) * 6, "element {} of {} is {}, expected {}", i, o.size(), o[i], i * 6);
  }
}

void fills_up(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  b.up();
  const uint32_t granted = b.members[0]->caps.max_outstanding;
  std::vector<std::vector<int32_t>> in(granted + 1, std::vector<int32_t>(64, 3)), out = in;
  CollnetMember &first = *b.members[0], &second = *b.members[1];
  uint64_t taken = 0;
  for (; taken <= granted; taken++) {
    const tutti_status s = first.post(b.op(first, in[taken].data(), in[taken].data(), 256), taken);
    if (s == TUTTI_AGAIN) break;
    require(s == TUTTI_OK, "post returned {}", status_name(s));
  }
  require(taken >= 1 && taken <= granted, "{} posts were taken, granted are {}", taken, granted);
  for (uint64_t i = 0; i < taken; i++) {
    const tutti_collnet_op op = b.op(second, out[i].data(), out[i].data(), 256);
    b.until([&] { return second.post(op, i) == TUTTI_OK; }, "room for a post");
  }
  b.all_done(taken - 1);
  for (uint64_t i = 0; i < taken; i++) require(in[i][5] == 6 && out[i][5] == 6, "post {} of {} gave {}", i, taken, in[i][5]);
}

void refuses(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  b.up();
  std::vector<int32_t> data(64, 1);
  tutti_collnet_op op = b.op(*b.members[0], data.data(), data.data(), 256);
  op.dtype = 77;
  require(b.members[0]->post(op, 1) < 0, "a post of an element type that nobody has is taken");
  op = b.op(*b.members[0], data.data(), data.data(), 256);
  op.coll = TUTTI_COLL_ALL_TO_ALL;
  require(b.members[0]->post(op, 1) < 0, "a post of a collective that is not in caps is taken");
  for (auto &m : b.members)
    require(m->post(b.op(*m, data.data(), data.data(), 0), 2) == TUTTI_OK, "an empty post after a refused one is not taken");
  b.all_done(2);
}

void leaves(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  b.up();
  std::vector<int32_t> in(1 << 18, 1);
  require(b.members[0]->post(b.op(*b.members[0], in.data(), in.data(), in.size() * 4), 5) == TUTTI_OK, "post fails");
  const auto before = Clock::now();
  b.members[0]->destroy();
  require(Clock::now() - before < kCallLimit, "group_destroy took too long");
  b.members[0]->poll();
  require(b.members[0]->done(5), "what a destroyed group had outstanding is not reported by the next progress");
  require(b.members[0]->status(5) == TUTTI_ERR_CANCELLED, "it was reported with {}", status_name(b.members[0]->status(5)));
  CollnetMember &other = *b.members[1];
  std::vector<int32_t> mine(1 << 18, 1);
  const tutti_status s = other.post(b.op(other, mine.data(), mine.data(), mine.size() * 4), 6);
  if (s == TUTTI_OK) {
    b.until([&] { return other.done(6); }, "the post of the member that stayed to fail");
    require(other.status(6) < 0, "it succeeded though a member is gone");
  }
  require(s != TUTTI_AGAIN, "an idle group takes no post");
  require(other.why().reason != TUTTI_COLLNET_FINE && other.why().text[0], "the group failed and does not say why");
}

void goes_at_once(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  b.members[0]->create(b.addrs.data(), 2, b.config);
  for (int i = 0; i < 10; i++) {
    const tutti_status s = b.members[0]->ready();
    require(s == TUTTI_AGAIN, "a group without its second member: group_ready returned {}", status_name(s));
    b.members[0]->poll();
  }
  const auto before = Clock::now();
  b.members[0]->destroy();
  require(Clock::now() - before < kCallLimit, "group_destroy of a group that is not ready took too long");
}

void keeps_deadline(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  b.config.deadline_ms = 300;
  b.members[0]->create(b.addrs.data(), 2, b.config);
  tutti_status s = TUTTI_AGAIN;
  b.until([&] { return (s = b.members[0]->ready()) != TUTTI_AGAIN; }, "a group without its second member to give up");
  require(s < 0, "a group without its second member became ready");
  require(b.members[0]->why().reason == TUTTI_COLLNET_TIMEOUT, "its reason is {}, expected TIMEOUT",
          b.members[0]->why().reason);
}

void sleeps(const Plugin &plugin, const void *table) {
  Bench b(plugin, table, 2);
  if (!b.net.event_fd) skip("event_fd is not offered");
  b.up();
  int32_t fd = -1, again = -1;
  require(b.net.event_fd(b.members[0]->ctx(), &fd) == TUTTI_OK && fd >= 0, "event_fd fails");
  require(b.net.event_fd(b.members[0]->ctx(), &again) == TUTTI_OK && again == fd, "event_fd gives two descriptors");
  b.until([&] { return b.net.arm(b.members[0]->ctx()) == TUTTI_OK; }, "an idle context to be armed");
}

} // namespace

std::span<const Case> collnet_cases() {
  static const Case all[] = {
      {"G-01", "devices are described completely, and the same in every call", sane_devices},
      {"G-02", "a ready group has caps, the same on all members, written no further than asked", sane_caps},
      {"G-03", "what all members send comes back reduced, at every size", reduces},
      {"G-04", "posts beyond the grant are told AGAIN; those taken complete once, in order", fills_up},
      {"G-05", "a post that is not in the caps is refused, and the group works on", refuses},
      {"G-06", "a member that leaves in the middle has its posts cancelled; the others fail with a reason", leaves},
      {"G-07", "a group that is not ready can be destroyed at once", goes_at_once},
      {"G-08", "a group whose members do not come fails by its deadline with TIMEOUT", keeps_deadline},
      {"G-09", "an idle context can be armed, on a descriptor that stays the same", sleeps},
  };
  return all;
}

} // namespace tutti::conformance
