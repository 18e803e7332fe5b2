// Rings and sockets between two threads.
#include "base/fd.h"
#include "base/thread.h"
#include "comm/select/measure.h"
#include "exec/kernels.h"
#include "transport/memory.h"
#include "transport/ring.h"
#include <algorithm>
#include <atomic>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

namespace tutti {
namespace {

constexpr double kGiveUp = 10e3; // us: a run that takes so long has no partner, or no core for it

// Both ends of two rings, there and back. The geometry is that of protocol "simple".
struct Pair {
  Geometry geometry;
  Block there[2], back[2]; // as the first and as the second thread sees them; private memory has one view
  Ring ring_of(const Block &b) const {
    Ring r;
    r.base = b.data() + geometry.slots_offset();
    r.credit_line = reinterpret_cast<uint64_t *>(b.data() + kCreditOffset);
    r.depth = geometry.depth, r.mask = geometry.depth - 1, r.credit_mask = geometry.credit_mask();
    r.stride = static_cast<uint32_t>(geometry.stride());
    return r;
  }
  const Block &second(const Block (&views)[2]) const { return views[1].data() ? views[1] : views[0]; }
};

bool make_block(Block (&views)[2], uint64_t bytes, bool shared) {
  if (!shared) {
    auto block = Block::create_local(bytes);
    if (!block.ok()) return false;
    views[0] = std::move(*block);
    return true;
  }
  UniqueFd fd;
  auto first = Block::create_shared(bytes, false, &fd);
  if (!first.ok()) return false;
  auto second = Block::map_shared(fd.get(), bytes);
  if (!second.ok()) return false;
  views[0] = std::move(*first), views[1] = std::move(*second);
  return true;
}

// Waits for something that the other thread does; false when it seems gone.
template <class Fn> bool await(Fn ready, const Clock::time_point start) {
  for (uint32_t polls = 1; !ready(); polls++)
    if (polls % 4096 == 0 && us_since(start) > kGiveUp) return false;
  return true;
}

bool can_send(Ring &r) {
  if (r.seq - r.credit < r.depth) return true;
  r.credit = load_acquire(r.credit_line);
  return r.seq - r.credit < r.depth;
}
bool send(Ring &r, const void *from, uint64_t bytes, tutti_copy_fn copy, Clock::time_point start) {
  if (!await([&] { return can_send(r); }, start)) return false;
  uint8_t *slot = slot_at(r);
  copy(slot + payload_offset(bytes), from, bytes);
  ring_publish(r, slot, 1, bytes);
  return true;
}
bool receive(Ring &r, void *to, uint64_t bytes, tutti_copy_fn copy, Clock::time_point start) {
  uint8_t *slot = slot_at(r);
  if (!await([&] { return ring_ready(r, slot, 1) == 1; }, start)) return false;
  copy(to, slot + payload_offset(bytes), bytes);
  ring_consume(r, bytes);
  return true;
}

// fn(first or second) on two threads that begin together; us of the first, -1 when one of them gave up.
template <class First, class Second> double together(const CpuSet &cpus, First first, Second second) {
  std::atomic<int> here{0};
  std::atomic<bool> good{true};
  auto meet = [&here](Clock::time_point start) {
    here.fetch_add(1);
    return await([&] { return here.load() >= 2; }, start);
  };
  auto thread = start_thread([&, here_cpu = sched_getcpu()] {
    move_to(cpus, here_cpu);
    const auto start = Clock::now();
    if (!meet(start) || !second(start)) good = false;
  });
  if (!thread.ok()) return -1;
  const auto start = Clock::now();
  if (!meet(start)) good = false;
  const auto begin = Clock::now();
  if (good && !first(begin)) good = false;
  const double us = us_since(begin);
  thread->join();
  return good ? us : -1;
}

// One way of a message of 8 bytes, and the time between two of many.
struct Small {
  double way_us = -1, gap_us = -1;
};
Small small_messages(bool shared, const CpuSet &cpus, const Deadline &deadline) {
  constexpr int kPings = 500, kStream = 4000;
  const auto copy = host_reduce_service()->copy(0);
  Pair p;
  p.geometry = {.slot_bytes = 1024, .depth = 16};
  if (!make_block(p.there, p.geometry.bytes(), shared) || !make_block(p.back, p.geometry.bytes(), shared)) return {};
  Ring out = p.ring_of(p.there[0]), in = p.ring_of(p.back[0]), far_in = p.ring_of(p.second(p.there)),
       far_out = p.ring_of(p.second(p.back));
  uint64_t word = 1, far_word = 1;
  Small s;
  s.way_us = median_of(5, deadline, [&] {
    const double us = together(
        cpus,
        [&](auto t) {
          for (int i = 0; i < kPings; i++)
            if (!send(out, &word, 8, copy, t) || !receive(in, &word, 8, copy, t)) return false;
          return true;
        },
        [&](auto t) {
          for (int i = 0; i < kPings; i++)
            if (!receive(far_in, &far_word, 8, copy, t) || !send(far_out, &far_word, 8, copy, t)) return false;
          return true;
        });
    return us / (2 * kPings);
  });
  if (s.way_us < 0) return s; // the ends may be out of step
  s.gap_us = median_of(5, deadline, [&] {
    const double us = together(
        cpus,
        [&](auto t) {
          for (int i = 0; i < kStream; i++)
            if (!send(out, &word, 8, copy, t)) return false;
          return receive(in, &word, 8, copy, t);
        },
        [&](auto t) {
          for (int i = 0; i < kStream; i++)
            if (!receive(far_in, &far_word, 8, copy, t)) return false;
          return send(far_out, &far_word, 8, copy, t);
        });
    return us / kStream;
  });
  return s;
}

// ns per byte at either end of a stream through slots of 16 KiB that are `footprint` bytes together.
double stream_ns(bool shared, double footprint, const CpuSet &cpus, const Deadline &deadline) {
  constexpr uint32_t kSlot = 16 << 10;
  const auto copy = host_reduce_service()->copy(0);
  Pair p;
  p.geometry = {.slot_bytes = kSlot, .depth = std::bit_floor(static_cast<uint32_t>(footprint / kSlot))};
  const int messages = static_cast<int>(std::max(256u, p.geometry.depth * 2));
  if (!make_block(p.there, p.geometry.bytes(), shared)) return -1;
  Ring out = p.ring_of(p.there[0]), in = p.ring_of(p.second(p.there));
  std::vector<uint8_t> from(kSlot, 1), to(kSlot);
  return median_of(3, deadline, [&] {
    const double us = together(
        cpus,
        [&](auto t) {
          for (int i = 0; i < messages; i++)
            if (!send(out, from.data(), kSlot, copy, t)) return false;
          return await([&] { return load_acquire(out.credit_line) + out.depth / 4 > out.seq; }, t);
        },
        [&](auto t) {
          for (int i = 0; i < messages; i++)
            if (!receive(in, to.data(), kSlot, copy, t)) return false;
          return true;
        });
    return us < 0 ? us : us * 1e3 / (double(messages) * kSlot);
  });
}

void keep_link(CostConstants::Link *link, const Small &small, double byte_ns) {
  if (small.gap_us > 0) link->message_us = std::clamp(small.gap_us, 0.005, 10.0);
  // The way contains the work of both ends.
  if (small.way_us > 0) link->latency_us = std::max(0.01, small.way_us - 2 * std::min(link->message_us, small.way_us / 3));
  if (byte_ns > 0) link->byte_ns = byte_ns;
}

// ---- sockets

struct Connected {
  UniqueFd a, b;
};
bool connect_loopback(Connected *out) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto *const any = reinterpret_cast<sockaddr *>(&address);
  if (!listener || ::bind(listener.get(), any, sizeof address) || ::listen(listener.get(), 1) ||
      ::getsockname(listener.get(), any, &size))
    return false;
  out->a = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!out->a || ::connect(out->a.get(), any, sizeof address)) return false;
  out->b = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!out->b) return false;
  sockaddr_in who{}, self{};
  socklen_t who_size = sizeof who, self_size = sizeof self;
  if (::getpeername(out->b.get(), reinterpret_cast<sockaddr *>(&who), &who_size) ||
      ::getsockname(out->a.get(), reinterpret_cast<sockaddr *>(&self), &self_size) || who.sin_port != self.sin_port)
    return false; // somebody else was quicker
  const int on = 1;
  for (const int fd : {out->a.get(), out->b.get()}) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5); // what net plugins ask for; absent on some systems
  }
  return true;
}
bool send_all(int fd, const uint8_t *from, size_t bytes, Clock::time_point start) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::send(fd, from + at, bytes - at, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) at += static_cast<size_t>(n);
    if (n <= 0 && (errno != EAGAIN || us_since(start) > kGiveUp)) return false;
  }
  return true;
}
bool receive_all(int fd, uint8_t *to, size_t bytes, Clock::time_point start) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::recv(fd, to + at, bytes - at, MSG_DONTWAIT);
    if (n > 0) at += static_cast<size_t>(n);
    if (n == 0 || (n < 0 && (errno != EAGAIN || us_since(start) > kGiveUp))) return false;
  }
  return true;
}

} // namespace

void measure_rings(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline) {
  if (cpus.count() < 2) return;
  for (const bool shared : {false, true}) {
    auto &link = costs->link[index_of(shared ? LinkClass::shm : LinkClass::local)];
    keep_link(&link, small_messages(shared, cpus, deadline), stream_ns(shared, CostConstants::kFootprints[0], cpus, deadline));
  }
  const double near = costs->link[index_of(LinkClass::shm)].byte_ns;
  costs->slot_factor[0] = 1;
  for (size_t i = 1; i + 1 < CostConstants::kFootprints.size(); i++) {
    const double ns = stream_ns(true, CostConstants::kFootprints[i], cpus, deadline);
    if (ns > 0) costs->slot_factor[i] = std::clamp(ns / near, 0.3, 10.0);
  }
  costs->slot_factor.back() = costs->slot_factor[costs->slot_factor.size() - 2]; // more would take too long to fill
}

void measure_sockets(CostConstants *costs, const CpuSet &cpus, const Deadline &deadline) {
  constexpr int kPings = 100, kBulk = 16;
  constexpr size_t kBlock = 128 << 10;
  Connected c;
  if (cpus.count() < 2 || deadline.expired() || !connect_loopback(&c)) return;
  std::vector<uint8_t> near(kBlock, 1), far(kBlock);
  const auto stream = [&](int count, size_t bytes, bool ping) {
    return together(
        cpus,
        [&](auto t) {
          for (int i = 0; i < count; i++)
            if (!send_all(c.a.get(), near.data(), bytes, t) || (ping && !receive_all(c.a.get(), near.data(), bytes, t)))
              return false;
          return ping || receive_all(c.a.get(), near.data(), 1, t);
        },
        [&](auto t) {
          for (int i = 0; i < count; i++)
            if (!receive_all(c.b.get(), far.data(), bytes, t) || (ping && !send_all(c.b.get(), far.data(), bytes, t)))
              return false;
          return ping || send_all(c.b.get(), far.data(), 1, t);
        });
  };
  const double round = median_of(3, deadline, [&] { return stream(kPings, 8, true) / kPings; });
  if (round < 0) return; // what is left in the connection belongs to nobody
  const double bulk = median_of(3, deadline, [&] { return stream(kBulk, kBlock, false); });
  CostConstants::Link &net = costs->link[index_of(LinkClass::net)];
  // Of a message's way a third each is the sender's call, the receiver's, and what is between.
  net.message_us = round / 6, net.latency_us = round / 6;
  if (bulk <= 0) return;
  net.byte_ns = bulk * 1e3 / (double(kBulk) * kBlock);
  costs->net_gbs = 1 / net.byte_ns;
}

} // namespace tutti
