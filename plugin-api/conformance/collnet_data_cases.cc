// Cases of tutti.collnet/1: what comes back. Types, reductions, collectives and sizes are those that the group's caps have.
#include "base/types.h"
#include "collnet_bench.h"
#include "collnet_cases.h"
#include <algorithm>
#include <cstring>
#include <set>

namespace tutti::conformance {
namespace {

// (type, reduction) pairs of the caps that this version knows.
std::vector<Work> reductions(CollnetBench &b) {
  std::vector<Work> out;
  for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; t++)
    for (tutti_redop o = 0; o < TUTTI_RED_COUNT; o++)
      if (b.has(t, o)) out.push_back({TUTTI_COLL_ALL_REDUCE, t, o});
  return out;
}

void reduces(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  Random random(3);
  std::set<uint64_t> sizes;
  for (const uint64_t bytes :
       {uint64_t{1}, uint64_t{1000}, uint64_t{4096}, uint64_t{100'000}, uint64_t{3 << 20}, uint64_t{8 << 20}})
    sizes.insert(b.fit(bytes));
  for (const uint64_t bytes : sizes) {
    b.run(b.team(), b.any(), bytes, random);
    if (b.in_place()) b.run(b.team(), b.any(), bytes, random, true);
  }
}

void reduces_every_type(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  Random random(10);
  for (const Work &w : reductions(b)) {
    const uint64_t element = std::max<uint64_t>(dtype_bytes(w.dtype), b.caps().alignment);
    b.run(b.team(), w, std::min(3 * element, b.caps().max_bytes / element * element), random);
    b.run(b.team(), w, std::min(1001 * element, b.caps().max_bytes / element * element), random);
  }
}

void every_root(const Plugin &plugin, const void *table, tutti_coll coll) {
  CollnetBench b(plugin, table);
  b.up();
  if (!b.has(coll)) skip(fmt::format("the group has no {}", coll_name(coll)));
  Random random(11);
  for (Work w : reductions(b)) {
    if (coll == TUTTI_COLL_BROADCAST && w.op != TUTTI_RED_SUM) continue;
    w.coll = coll;
    for (w.root = 0; w.root < static_cast<int>(b.size()); w.root++) b.run(b.team(), w, b.fit(520), random);
    w.root = 1;
    b.run(b.team(), w, b.fit(300'000), random);
  }
}
void reduces_to_root(const Plugin &plugin, const void *table) {
  every_root(plugin, table, TUTTI_COLL_REDUCE);
}
void broadcasts(const Plugin &plugin, const void *table) {
  every_root(plugin, table, TUTTI_COLL_BROADCAST);
}

void waits_for_all(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  if (!b.has(TUTTI_COLL_BARRIER)) skip("the group has no barrier");
  for (size_t last = 0; last < b.size(); last++) {
    Work w{TUTTI_COLL_BARRIER, 0, 0};
    const auto enter = [&](size_t m) {
      const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), w, nullptr, nullptr, 0));
      require(s == TUTTI_OK, "post of a barrier returned {}", status_name(s));
    };
    for (size_t m = 0; m < b.size(); m++)
      if (m != last) enter(m);
    for (const Deadline a_while = Deadline::in(std::chrono::milliseconds(30)); !a_while.expired();) {
      b.poll();
      for (auto &seat : b.team())
        require(seat->completed() == last, "a barrier completes though member {} has not posted it", last);
    }
    enter(last);
    b.all_done(b.team());
  }
}

// Sums that have a whole average in all types, and of integers some that have not: they go toward zero.
void averages(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  if (!(b.caps().flags & TUTTI_COLLNET_AVERAGES)) skip("the group has no averages");
  for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; t++) {
    if (!b.has(t, TUTTI_RED_SUM)) continue;
    const bool is_signed = t == TUTTI_DT_INT8 || t == TUTTI_DT_INT32 || t == TUTTI_DT_INT64 || t >= TUTTI_DT_FLOAT16;
    const uint64_t element = dtype_bytes(t), bytes = b.fit(512);
    Memories send, recv;
    for (size_t m = 0; m < 3; m++) send.push_back(b.memory(bytes)), recv.push_back(b.memory(bytes));
    std::vector<unsigned char> want(bytes);
    for (uint64_t i = 0; i < bytes / element; i++) {
      const int sign = is_signed && i % 2 ? -1 : 1, base = 1 + static_cast<int>(i / 2 % 2);
      const int rest = t < TUTTI_DT_FLOAT16 ? static_cast<int>(i / 4 % 3) : 0; // of 3 in what is divided
      const int values[] = {base, base - 1, base + 1 + rest};
      for (size_t m = 0; m < 3; m++) put_number(t, sign * values[m], send[m].data() + i * element);
      put_number(t, sign * base, want.data() + i * element);
    }
    Work w{TUTTI_COLL_ALL_REDUCE, t, TUTTI_RED_SUM, -1, TUTTI_COLLNET_AVERAGE};
    b.post(b.team(), w, send, recv, bytes);
    b.all_done(b.team());
    for (Memory &r : recv)
      for (uint64_t i = 0; i < bytes; i++)
        require(r.data()[i] == want[i], "average of {}: byte {} is {:#x}, expected {:#x}", dtype_name(t), i, r.data()[i],
                want[i]);
  }
}

// All kinds in a row, as many as may be, before any has completed.
void mixes(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  struct One {
    Work w;
    uint64_t bytes;
  };
  std::vector<One> all;
  Random random(15);
  const std::vector<Work> works = reductions(b);
  for (int i = 0; i < 40; i++) {
    One o{works[random.below(works.size())], 0};
    const tutti_coll colls[] = {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_REDUCE, TUTTI_COLL_BROADCAST, TUTTI_COLL_BARRIER};
    o.w.coll = colls[random.below(4)];
    if (!b.has(o.w.coll)) o.w.coll = TUTTI_COLL_ALL_REDUCE;
    if (o.w.coll == TUTTI_COLL_BROADCAST && b.has(o.w.dtype, TUTTI_RED_SUM)) o.w.op = TUTTI_RED_SUM;
    if (o.w.coll == TUTTI_COLL_BROADCAST && o.w.op != TUTTI_RED_SUM) o.w.coll = TUTTI_COLL_ALL_REDUCE;
    if (o.w.coll == TUTTI_COLL_REDUCE || o.w.coll == TUTTI_COLL_BROADCAST) o.w.root = static_cast<int>(random.below(b.size()));
    if (o.w.coll == TUTTI_COLL_BARRIER) o.w.dtype = o.w.op = 0;
    o.bytes = o.w.coll == TUTTI_COLL_BARRIER || i % 7 == 3 ? 0 : b.fit(1 + random.below(70'000));
    all.push_back(o);
  }
  std::vector<Gathered> data;
  std::vector<Memories> send(b.size()), recv(b.size());
  for (const One &o : all) {
    data.push_back(gathered(o.w.dtype, o.w.op, b.size(), o.bytes, random));
    for (size_t m = 0; m < b.size(); m++) {
      send[m].push_back(b.memory(o.bytes));
      send[m].back().fill(data.back().in[m]);
      recv[m].push_back(b.memory(o.bytes));
    }
  }
  std::vector<size_t> next(b.size());
  b.until(
      [&] {
        for (size_t m = 0; m < b.size(); m++)
          while (next[m] < all.size()) {
            const size_t k = next[m];
            Memory *from = all[k].bytes ? &send[m][k] : nullptr, *to = all[k].bytes ? &recv[m][k] : nullptr;
            const tutti_status s = b.team()[m]->post(b.op(*b.team()[m], static_cast<int>(m), all[k].w, from, to, all[k].bytes));
            require(s == TUTTI_OK || s == TUTTI_AGAIN, "post {}, {}, returned {}", k, work_text(all[k].w, all[k].bytes),
                    status_name(s));
            if (s != TUTTI_OK) break;
            next[m]++;
          }
        return std::all_of(next.begin(), next.end(), [&](size_t n) { return n == all.size(); });
      },
      "room for 40 posts");
  b.all_done(b.team());
  for (size_t k = 0; k < all.size(); k++)
    for (size_t m = 0; m < b.size(); m++) {
      const Work &w = all[k].w;
      const bool root = w.root == static_cast<int>(m);
      if (w.coll == TUTTI_COLL_BARRIER || (w.root >= 0 && (w.coll == TUTTI_COLL_REDUCE) != root)) continue;
      const auto &want = w.coll == TUTTI_COLL_BROADCAST ? data[k].in[static_cast<size_t>(w.root)] : data[k].want;
      require(std::equal(want.begin(), want.begin() + static_cast<long>(all[k].bytes),
                         static_cast<const unsigned char *>(recv[m][k].data())),
              "post {}, {}, has a wrong result at member {}", k, work_text(w, all[k].bytes), m);
    }
}

// A float type that is summed, of values whose sum depends on the order of adding.
Work summed_float(CollnetBench &b) {
  for (const tutti_dtype t : {TUTTI_DT_FLOAT32, TUTTI_DT_FLOAT64})
    if (b.has(t, TUTTI_RED_SUM)) return {TUTTI_COLL_ALL_REDUCE, t, TUTTI_RED_SUM};
  skip("the group sums neither float nor double");
}
void fill_rough(Memory &out, tutti_dtype t, Random &random) {
  for (uint64_t i = 0; i < out.size(); i += dtype_bytes(t)) {
    const double v = (static_cast<double>(random.below(2'000'001)) - 1e6) * (random.below(2) ? 1e-7 : 3.3);
    if (t == TUTTI_DT_FLOAT64) {
      std::memcpy(out.data() + i, &v, sizeof v);
    } else {
      const auto f = static_cast<float>(v);
      std::memcpy(out.data() + i, &f, sizeof f);
    }
  }
}

void repeats(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up().up();
  const tutti_collnet_caps &c = b.caps();
  if (c.repeat == TUTTI_COLLNET_REPEAT_NONE) skip("the group's results need not repeat");
  const Work w = summed_float(b);
  const uint64_t bytes = b.fit(200'000);
  Random random(16);
  Memories send;
  for (size_t m = 0; m < b.size(); m++) {
    send.push_back(b.memory(bytes));
    fill_rough(send.back(), w.dtype, random);
  }
  const auto sum = [&](size_t team, size_t first) {
    Memories recv;
    for (size_t m = 0; m < b.size(); m++) recv.push_back(b.memory(bytes));
    b.post(b.team(team), w, send, recv, bytes, first);
    b.all_done(b.team(team));
    return std::vector<unsigned char>(recv[0].data(), recv[0].data() + bytes);
  };
  const auto once = sum(0, 0);
  require(sum(0, 1) == once, "other bits where another member posts first");
  if (b.team(1)[0]->caps.order_id == c.order_id) require(sum(1, 2) == once, "other bits in a group with the same order_id");
  if (c.repeat < TUTTI_COLLNET_REPEAT_SIZE) return;
  std::vector<unsigned char> pieces;
  for (uint64_t at = 0, n = 0; at < bytes; at += n) { // cut, and at other places in its post
    n = std::min(bytes - at, b.piece() * (1 + random.below(900)));
    Memories from, to;
    for (size_t m = 0; m < b.size(); m++) {
      from.push_back(b.memory(n));
      from.back().fill({send[m].data() + at, n});
      to.push_back(b.memory(n));
    }
    b.post(b.team(), w, from, to, n);
    b.all_done(b.team());
    pieces.insert(pieces.end(), to[1].data(), to[1].data() + n);
  }
  require(pieces == once, "an element's bits depend on how the data is cut");
}

// 1 + e + e, where e is half of what 1 can be told from: rounded at every addition it stays 1, or not, by the order.
void accumulates(const Plugin &plugin, const void *table) {
  CollnetBench b(plugin, table);
  b.up();
  const tutti_collnet_caps &c = b.caps();
  const bool once =
      c.accumulate == TUTTI_COLLNET_ACC_FLOAT32 || (c.accumulate == TUTTI_COLLNET_ACC_FLOAT32_HOPS && c.tree_depth <= 1);
  if (!once) skip("the group rounds more than once");
  struct Bits {
    tutti_dtype dtype;
    uint16_t one, half, sum;
  };
  const Bits all[] = {{TUTTI_DT_FLOAT16, 0x3c00, 0x1000, 0x3c01},
                      {TUTTI_DT_BFLOAT16, 0x3f80, 0x3b80, 0x3f81},
                      {TUTTI_DT_FLOAT8E4M3, 0x38, 0x18, 0x39},
                      {TUTTI_DT_FLOAT8E5M2, 0x3c, 0x30, 0x3d}};
  bool any = false;
  for (const Bits &x : all) {
    if (!b.has(x.dtype, TUTTI_RED_SUM)) continue;
    any = true;
    const uint32_t element = dtype_bytes(x.dtype);
    const uint64_t bytes = b.fit(96);
    Memories send, recv;
    for (size_t m = 0; m < 3; m++) {
      send.push_back(b.memory(bytes)), recv.push_back(b.memory(bytes));
      for (uint64_t i = 0; i < bytes / element; i++)
        std::memcpy(send[m].data() + i * element, i % 3 == m ? &x.one : &x.half, element);
    }
    b.post(b.team(), {TUTTI_COLL_ALL_REDUCE, x.dtype, TUTTI_RED_SUM}, send, recv, bytes);
    b.all_done(b.team());
    for (uint64_t i = 0; i < bytes / element; i++)
      require(std::memcmp(recv[0].data() + i * element, &x.sum, element) == 0,
              "element {} of a sum of {} was rounded before the end, which accumulate says it is not", i, dtype_name(x.dtype));
  }
  if (!any) skip("the group sums no narrow floats");
}

} // namespace

std::vector<Case> collnet_data_cases() {
  return {
      {"G-03", "what all members send comes back reduced, at every size, in place as well where caps say so", reduces},
      {"G-10", "every type and reduction of the caps gives what it should, from addresses aligned as the caps say and no more",
       reduces_every_type},
      {"G-11", "a reduction to a root comes to it alone, whichever it is", reduces_to_root},
      {"G-12", "a broadcast brings every bit of its root's, in every type that is summed", broadcasts},
      {"G-13", "nobody leaves a barrier before all have come", waits_for_all},
      {"G-14", "averages are divided by the number of members, integers toward zero", averages},
      {"G-15", "posts of all kinds and sizes in a row are right, empty ones among them", mixes},
      {"G-16", "bits repeat as far as the caps say", repeats},
      {"G-17", "narrow floats are rounded as rarely as the caps say", accumulates},
  };
}

} // namespace tutti::conformance
