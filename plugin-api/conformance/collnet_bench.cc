#include "collnet_bench.h"
#include "base/types.h"
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

namespace tutti::conformance {
namespace {

constexpr uint64_t kGuard = 64;
constexpr uint8_t kGuardByte = 0xa5;

} // namespace

Memory::Memory(uint64_t bytes, uint64_t align) : bytes_(bytes), room_(bytes + 2 * kGuard + 4 * align, kGuardByte) {
  auto at = reinterpret_cast<uintptr_t>(room_.data()) + kGuard;
  at = (at + 2 * align - 1) / (2 * align) * (2 * align) + align;
  data_ = room_.data() + (at - reinterpret_cast<uintptr_t>(room_.data()));
}
bool Memory::guarded() const {
  const auto is_guard = [](uint8_t b) { return b == kGuardByte; };
  return std::all_of(room_.data(), static_cast<const uint8_t *>(data_), is_guard) &&
         std::all_of(static_cast<const uint8_t *>(data_) + bytes_, room_.data() + room_.size(), is_guard);
}
void Memory::fill(std::span<const unsigned char> from) {
  std::copy_n(from.begin(), std::min<size_t>(from.size(), bytes_), data_);
}

// ---- a member's context ---------------------------------------------------------------------------------------------------
CollnetSide::CollnetSide(const Plugin &plugin, const tutti_collnet_v1 &net, int rank, int n, bool short_structs, uint32_t flags)
    : net_(net), flags_(flags) {
  tutti_collnet_ctx_config c{};
  c.struct_size = short_structs ? offsetof(tutti_collnet_ctx_config, comm_id) : sizeof c;
  c.traffic_class = -1;
  c.comm_id = 0x7e57;
  c.rank = rank;
  c.nranks = n;
  const tutti_status s = net.ctx_create(plugin.state, 0, &c, &ctx_);
  require(s == TUTTI_OK && ctx_, "ctx_create returned {}", status_name(s));
}
CollnetSide::~CollnetSide() {
  for (tutti_collnet_mr *mr : mrs_) net_.mr_release(mr);
  if (ctx_) net_.ctx_destroy(ctx_);
}

void CollnetSide::poll() {
  constexpr uint32_t cap = 8;
  tutti_collnet_completion out[cap];
  std::memset(out, 0xa5, sizeof out);
  const int32_t n = net_.progress(ctx_, out, cap);
  require(n >= 0 && n <= static_cast<int32_t>(cap), "progress with room for {} returned {}", cap, n);
  for (int32_t i = 0; i < n; i++) {
    const uint64_t seat = out[i].cookie >> 32;
    require(seat < seats.size() && seats[seat], "progress reports cookie {:#x}, which nobody has posted", out[i].cookie);
    seats[seat]->complete(out[i]);
  }
}

tutti_collnet_buf CollnetSide::buf(void *addr, uint64_t bytes) {
  tutti_collnet_mr *mr = nullptr;
  if ((flags_ & TUTTI_COLLNET_NEEDS_MR) && addr && bytes > 0) {
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

// ---- a member's side of a group -------------------------------------------------------------------------------------------
Seat::~Seat() {
  destroy();
  if (listener_) side_.net().listener_destroy(listener_);
  std::replace(side_.seats.begin(), side_.seats.end(), this, static_cast<Seat *>(nullptr));
}

void Seat::listen(unsigned char *addr) {
  uint32_t size = TUTTI_COLLNET_ADDR_BYTES;
  unsigned char room[TUTTI_COLLNET_ADDR_BYTES + 16];
  std::memset(room, 0xa5, sizeof room);
  const tutti_status s = side_.net().listen(side_.ctx(), room, &size, &listener_);
  require(s == TUTTI_OK && listener_, "listen returned {}", status_name(s));
  require(size >= 1 && size <= TUTTI_COLLNET_ADDR_BYTES, "listen gave an address of {} bytes", size);
  for (size_t i = TUTTI_COLLNET_ADDR_BYTES; i < sizeof room; i++) require(room[i] == 0xa5, "listen wrote beyond its room");
  std::memcpy(addr, room, size);
}

void Seat::create(const unsigned char *addrs, int n, const tutti_collnet_config &config) {
  const tutti_status s = side_.net().group_create(listener_, addrs, TUTTI_COLLNET_ADDR_BYTES, n, member_, &config, &group_);
  require(s == TUTTI_OK && group_, "group_create returned {}", status_name(s));
}

tutti_status Seat::ready() {
  tutti_collnet_caps out{};
  out.struct_size = sizeof out;
  const tutti_status s = side_.net().group_ready(group_, &out);
  if (s == TUTTI_OK) caps = out;
  return s;
}

tutti_status Seat::post(const tutti_collnet_op &op) {
  const auto number = static_cast<uint64_t>(std::find(side_.seats.begin(), side_.seats.end(), this) - side_.seats.begin());
  const tutti_status s = side_.net().post(group_, &op, number << 32 | posted_);
  if (s == TUTTI_OK) posted_++;
  return s;
}

void Seat::complete(const tutti_collnet_completion &c) {
  const uint64_t k = c.cookie & UINT32_MAX;
  require(k == statuses_.size() && k < posted_, "post {} of {} is reported where post {} is the next", k, posted_,
          statuses_.size());
  require(c.reserved0 == 0, "reserved0 of a completion is {}", c.reserved0);
  statuses_.push_back(c.status);
}

void Seat::destroy() {
  if (!group_) return;
  const auto before = Clock::now();
  side_.net().group_destroy(group_);
  require(Clock::now() - before < kCollnetCall, "group_destroy took too long");
  group_ = nullptr;
}

tutti_collnet_why Seat::why() const {
  tutti_collnet_why w{};
  w.struct_size = sizeof w;
  require(side_.net().group_why(group_, &w) == TUTTI_OK, "group_why fails");
  require(std::memchr(w.text, 0, sizeof w.text) != nullptr, "the text of group_why is not NUL-terminated");
  return w;
}

// ---- all of it ------------------------------------------------------------------------------------------------------------
CollnetBench::CollnetBench(const Plugin &p, const void *table, int n, bool short_structs)
    : plugin(p), net(*static_cast<const tutti_collnet_v1 *>(table)), short_structs_(short_structs) {
  uint32_t devices = 0;
  const tutti_status s = net.device_count(p.state, &devices);
  require(s == TUTTI_OK, "device_count returned {}", status_name(s));
  if (devices == 0) skip("there is no usable device: the plugin's options name none");
  dev.struct_size = sizeof dev;
  require(net.device_info(p.state, 0, &dev) == TUTTI_OK, "device_info fails");
  for (int r = 0; r < n; r++) sides.push_back(std::make_unique<CollnetSide>(p, net, r, n, short_structs, dev.flags));
  config.struct_size = short_structs ? offsetof(tutti_collnet_config, progress_ms) : sizeof config;
  config.job_id = 0x7e57;
  config.outstanding = 8;
  config.deadline_ms = 10'000;
  config.progress_ms = 5000;
}

CollnetBench &CollnetBench::up() {
  teams.push_back(std::make_unique<Team>());
  Team &t = *teams.back();
  for (size_t m = 0; m < sides.size(); m++) t.push_back(std::make_unique<Seat>(*sides[m], static_cast<int>(m)));
  std::vector<unsigned char> addrs(t.size() * TUTTI_COLLNET_ADDR_BYTES);
  for (size_t m = 0; m < t.size(); m++) t[m]->listen(addrs.data() + m * TUTTI_COLLNET_ADDR_BYTES);
  for (auto &seat : t) seat->create(addrs.data(), static_cast<int>(t.size()), config);
  until(
      [&] {
        size_t ready = 0;
        for (auto &seat : t) {
          const tutti_status s = seat->ready();
          require(s == TUTTI_OK || s == TUTTI_AGAIN, "group_ready returned {}: {}", status_name(s), seat->why().text);
          ready += s == TUTTI_OK;
        }
        return ready == t.size();
      },
      "the group to become ready");
  return *this;
}

Work CollnetBench::any() {
  Work w;
  if (has(w.dtype, w.op)) return w;
  for (w.dtype = 0; w.dtype < TUTTI_DT_COUNT; w.dtype++)
    for (w.op = 0; w.op < TUTTI_RED_COUNT; w.op++)
      if (has(w.dtype, w.op)) return w;
  broken("dtype_ops of a ready group has no type that this version knows");
}

uint64_t CollnetBench::fit(uint64_t bytes) {
  const uint64_t piece = std::max<uint64_t>(caps().alignment, 8);
  return std::max(piece, std::min(bytes, caps().max_bytes) / piece * piece);
}

tutti_collnet_op CollnetBench::op(Seat &seat, int member, const Work &w, Memory *send, Memory *recv, uint64_t bytes) {
  tutti_collnet_op o{};
  o.struct_size = short_structs_ ? offsetof(tutti_collnet_op, tag) : sizeof o;
  o.coll = w.coll, o.dtype = w.dtype, o.op = w.op, o.root = w.root, o.flags = w.flags, o.tag = w.tag;
  o.bytes = bytes;
  const bool root = w.root == member;
  const bool gives = w.coll != TUTTI_COLL_BARRIER && (w.coll != TUTTI_COLL_BROADCAST || root);
  const bool gets =
      w.coll == TUTTI_COLL_ALL_REDUCE || (w.coll == TUTTI_COLL_REDUCE && root) || (w.coll == TUTTI_COLL_BROADCAST && !root);
  if (gives && send) o.send = seat.side().buf(send->data(), bytes);
  if (gets && recv) o.recv = gives && recv == send ? o.send : seat.side().buf(recv->data(), bytes);
  return o;
}

void CollnetBench::post(Team &t, const Work &w, Memories &send, Memories &recv, uint64_t bytes, size_t first) {
  for (size_t i = 0; i < t.size(); i++) {
    const size_t m = (first + i) % t.size();
    Memory *from = send.empty() ? nullptr : &send[m], *to = recv.empty() ? from : &recv[m];
    const tutti_status s = t[m]->post(op(*t[m], static_cast<int>(m), w, from, to, bytes));
    require(s == TUTTI_OK, "{}: post of an idle group returned {}", work_text(w, bytes), status_name(s));
    poll();
  }
}

void CollnetBench::all_done(Team &t, tutti_status expected) {
  until([&] { return std::all_of(t.begin(), t.end(), [](const auto &s) { return s->completed() == s->posted(); }); },
        "what all members have posted to complete");
  for (auto &seat : t)
    for (size_t k = 0; k < seat->completed(); k++)
      require(seat->status(k) == expected, "post {} completed with {}: {}", k, status_name(seat->status(k)), seat->why().text);
}

void CollnetBench::run(Team &t, const Work &w, uint64_t bytes, Random &random, bool in_place) {
  Gathered g = gathered(w.dtype, w.op, t.size(), bytes, random);
  if (w.coll == TUTTI_COLL_BROADCAST) { // of any bits
    random.fill(g.in[static_cast<size_t>(w.root)].data(), bytes);
    g.want = g.in[static_cast<size_t>(w.root)];
  }
  Memories send, recv;
  for (size_t m = 0; m < t.size(); m++) {
    send.push_back(memory(bytes));
    send.back().fill(g.in[m]);
    if (!in_place) recv.push_back(memory(bytes));
  }
  post(t, w, send, recv, bytes);
  all_done(t);
  Memories &out = in_place ? send : recv;
  for (size_t m = 0; m < t.size(); m++) {
    const bool root = w.root == static_cast<int>(m);
    const bool gets = w.root < 0 || (w.coll == TUTTI_COLL_REDUCE) == root;
    require(send[m].guarded() && out[m].guarded(), "{}: member {}: something was written beside a buffer", work_text(w, bytes),
            m);
    if (!in_place)
      require(std::memcmp(send[m].data(), g.in[m].data(), bytes) == 0, "{}: member {}: what it sent has changed",
              work_text(w, bytes), m);
    if (!gets) continue;
    const auto [is, should] = std::mismatch(out[m].data(), out[m].data() + bytes, g.want.begin());
    require(is == out[m].data() + bytes, "{}: member {}: byte {} is {:#x}, expected {:#x}", work_text(w, bytes), m,
            is - out[m].data(), *is, *should);
  }
}

std::string work_text(const Work &w, uint64_t bytes) {
  return fmt::format("{} of {} bytes of {}{}{}", coll_name(w.coll), bytes, dtype_name(w.dtype),
                     w.coll == TUTTI_COLL_BROADCAST || w.coll == TUTTI_COLL_BARRIER ? ""
                                                                                    : fmt::format(", {}", redop_name(w.op)),
                     w.root >= 0 ? fmt::format(", root {}", w.root) : "");
}

} // namespace tutti::conformance
