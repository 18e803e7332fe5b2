// Kernels of protocols whose lines carry their signal, against the scalar reference: as the plugins hand them out, on every
// SIMD target.
#include "config/config.h"
#include "plugin/registry.h"
#include "room.h"
#include "targets.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr size_t elements = 400;

std::vector<size_t> lengths() {
#ifdef TUTTI_SANITIZED
  return {1, 2, 7, 14, 15, 31, 64, 121}; // unoptimised kernels are slow
#else
  std::vector<size_t> out = {elements - 1, elements};
  for (size_t n = 1; n <= 130; ++n) out.push_back(n);
  return out;
#endif
}

const tutti::Registry &registry() {
  static const auto *r = [] {
    const std::string dir[] = {std::string(TUTTI_BINARY_DIR) + "/lib/tutti/plugins"};
    auto loaded = tutti::Registry::load(*tutti::Config::from("", "test", {}), dir);
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", loaded.status().error().line().c_str());
      std::abort();
    }
    return std::move(loaded).value().release();
  }();
  return *r;
}

struct Proto {
  tutti::Iface<tutti_proto_v1> iface;
  explicit Proto(const char *name) : iface(*registry().named<tutti_proto_v1>(TUTTI_PROTO, name)) {}
  const tutti_proto_v1 &table() const { return *iface.table; }
  template <class Fn>
  Fn kernel(tutti_form form, tutti_dtype t = TUTTI_DT_UINT8, tutti_redop op = TUTTI_RED_SUM, uint32_t flags = 0) const {
    return reinterpret_cast<Fn>(table().kernel(iface.plugin->state, form, t, op, flags));
  }
  tutti_line_encode_fn encode() const { return kernel<tutti_line_encode_fn>(TUTTI_FORM_ENCODE); }
  tutti_line_decode_fn decode() const { return kernel<tutti_line_decode_fn>(TUTTI_FORM_DECODE); }
};

template <class Body> void for_each_proto(Body body) {
  for (const char *name : {"ll", "ll8", "ll128"}) {
    INFO("protocol " << std::string(name));
    body(Proto(name));
  }
}

// A slot for `bytes`, filled with lines of an older message, and nothing after it that may be touched.
struct Slot {
  Room room;
  Slot(const tutti_proto_v1 &p, size_t bytes, uint64_t old_word = 0x0123'4567'0000'0001)
      : room(0, std::max<size_t>(1, (bytes + p.payload_bytes - 1) / p.payload_bytes) * p.line_bytes) {
    for (size_t at = 0; at < room.bytes; at += 8) memcpy(room.data() + at, &old_word, 8);
  }
  uint8_t *data() { return room.data(); }
};

constexpr uint64_t word = 0x89ab'cdef'0000'0005, next_word = 0x1357'9bdf'0000'0009;

} // namespace

TEST_CASE("lines carry messages of every length and alignment, and none is seen before it is there") {
  for_each_target([] {
    for_each_proto([](const Proto &p) {
      const auto src = ref::data(TUTTI_DT_UINT8, 4096, 1);
      size_t bad = 0, turn = 0;
      for (size_t n = 0; n <= 600; ++n) {
        ++turn;
        Slot slot(p.table(), n);
        Room in(turn % 64, src, n), out(turn * 7 % 64, n);
        uint64_t done = 0;
        bad += p.decode()(slot.data(), out.data(), n, word, &done) != 0 || done != 0;
        p.encode()(slot.data(), in.data(), n, word);
        bad += p.decode()(slot.data(), out.data(), n, word, &done) != 1 || done != n;
        bad += (n && memcmp(out.data(), src.data(), n) != 0) || !out.intact() || !slot.room.intact() || !in.intact();
        done = 0;
        bad += p.decode()(slot.data(), out.data(), n, next_word, &done) != 0;
      }
      CHECK(bad == 0);
    });
  });
}

TEST_CASE("a message encoded in parts that start with a line equals one encoded at once") {
  for_each_proto([](const Proto &p) {
    const size_t n = p.table().payload_bytes * 5 + 24;
    const auto src = ref::data(TUTTI_DT_UINT8, n, 2);
    Slot whole(p.table(), n), parts(p.table(), n);
    p.encode()(whole.data(), src.data(), n, word);
    for (size_t line : {2, 3, 0})
      p.encode()(parts.data() + line * p.table().line_bytes, src.data() + line * p.table().payload_bytes,
                 line == 3 ? n - 3 * p.table().payload_bytes : (line ? 1 : 2) * p.table().payload_bytes, word);
    CHECK(whole.room.store.size() == parts.room.store.size());
    CHECK(memcmp(whole.data(), parts.data(), whole.room.bytes) == 0);
  });
}

TEST_CASE("reductions from lines match the reference for every type and operation, length and alignment") {
  for_each_target([] {
    for_each_proto([](const Proto &p) {
      for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; ++t)
        for (tutti_redop op = 0; op < TUTTI_RED_COUNT; ++op) {
          INFO(tutti::dtype_name(t) << " " << tutti::redop_name(op));
          const auto a = ref::data(t, elements, 3), b = ref::data(t, elements, 4);
          const auto want = ref::reduce(t, op, {a.data(), b.data()}, elements);
          const auto reduce = p.kernel<tutti_line_reduce_fn>(TUTTI_FORM_DECODE_REDUCE, t, op);
          const auto reduce2 = p.kernel<tutti_line_reduce2_fn>(TUTTI_FORM_DECODE_REDUCE_ENCODE, t, op);
          REQUIRE(bool(reduce));
          REQUIRE(bool(reduce2));
          size_t bad = 0, turn = 0;
          const auto right = [&](Room &r) { return ref::differs(t, op, r.data(), want.data(), r.bytes) < 0 && r.intact(); };
          for (size_t n : lengths()) {
            ++turn;
            const size_t bytes = n * tutti::dtype_bytes(t);
            Slot slot(p.table(), bytes), next(p.table(), bytes);
            p.encode()(slot.data(), b.data(), bytes, word);
            Room src(turn * 3 % 64, a, bytes), dst(turn * 5 % 64, bytes), kept(turn * 7 % 64, bytes), seen(0, bytes);
            uint64_t done = 0;
            bad += reduce(slot.data(), src.data(), dst.data(), bytes, word, &done) != 1 || done != bytes || !right(dst);
            done = 0;
            bad +=
                reduce2(slot.data(), src.data(), kept.data(), next.data(), bytes, word, next_word, &done) != 1 || !right(kept);
            done = 0;
            bad += p.decode()(next.data(), seen.data(), bytes, next_word, &done) != 1 || !right(seen) || !next.room.intact();
            Slot only(p.table(), bytes); // passed on, kept nowhere
            done = 0;
            bad += reduce2(slot.data(), src.data(), nullptr, only.data(), bytes, word, next_word, &done) != 1;
            done = 0;
            bad += p.decode()(only.data(), seen.data(), bytes, next_word, &done) != 1 || !right(seen) || !only.room.intact();
            done = 0;
            bad += reduce(slot.data(), src.data(), src.data(), bytes, word, &done) != 1 || !right(src); // in place
          }
          CHECK(bad == 0);
        }
    });
  });
}

TEST_CASE("two ranks get the same bits, signed zeros too, when each puts its operand where it stands in rank order") {
  for_each_target([] {
    for_each_proto([](const Proto &p) {
      for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; ++t)
        for (tutti_redop op = 0; op < TUTTI_RED_COUNT; ++op) {
          INFO(tutti::dtype_name(t) << " " << tutti::redop_name(op));
          const auto a = ref::data(t, elements, 5), b = ref::data(t, elements, 6);
          const auto first = p.kernel<tutti_line_reduce_fn>(TUTTI_FORM_DECODE_REDUCE, t, op);
          const auto second = p.kernel<tutti_line_reduce_fn>(TUTTI_FORM_DECODE_REDUCE, t, op, TUTTI_KERNEL_RECEIVED_FIRST);
          REQUIRE(bool(second));
          Slot from_b(p.table(), b.size()), from_a(p.table(), a.size());
          p.encode()(from_b.data(), b.data(), b.size(), word);
          p.encode()(from_a.data(), a.data(), a.size(), word);
          ref::Buf x(a.size()), y(a.size());
          uint64_t done = 0;
          CHECK(first(from_b.data(), a.data(), x.data(), a.size(), word, &done) == 1);
          done = 0;
          CHECK(second(from_a.data(), b.data(), y.data(), b.size(), word, &done) == 1);
          CHECK(ref::differs(t, op, x.data(), y.data(), x.size()) < 0); // of two NaN the compiler and the CPU choose
        }
    });
  });
}

// What a reader sees while a writer stores: pieces as large as the protocol asks for, the word of a line after its payload
// where it asks for whole lines, in any order where it does not.
TEST_CASE("a reader resumes behind a slow writer, whole line by whole line") {
  for_each_proto([](const Proto &p) {
    const tutti_proto_v1 &t = p.table();
    const size_t n = t.payload_bytes * 40 + 8, piece = 8;
    const auto a = ref::data(TUTTI_DT_FLOAT32, n / 4, 7), b = ref::data(TUTTI_DT_FLOAT32, n / 4, 8);
    const auto want = ref::reduce(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, {a.data(), b.data()}, n / 4);
    const auto reduce2 = p.kernel<tutti_line_reduce2_fn>(TUTTI_FORM_DECODE_REDUCE_ENCODE, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    Slot sent(t, n), seen(t, n), next(t, n);
    p.encode()(sent.data(), b.data(), n, word);
    std::thread writer([&] {
      std::mt19937 rng(9);
      for (size_t line = 0; line < sent.room.bytes; line += t.line_bytes) {
        std::vector<size_t> order;
        for (size_t at = 0; at < t.line_bytes; at += piece)
          if (at != t.flag_offset) order.push_back(at);
        std::shuffle(order.begin(), order.end(), rng);
        const bool any_order = t.atomic_store_bytes == piece;
        order.insert(any_order ? order.begin() + static_cast<long>(order.size() / 2) : order.end(), t.flag_offset);
        for (size_t at : order) {
          uint64_t v;
          memcpy(&v, sent.data() + line + at, 8);
          __atomic_store_n(reinterpret_cast<uint64_t *>(seen.data() + line + at), v, __ATOMIC_RELEASE);
          if (rng() % 8 == 0) std::this_thread::yield();
        }
      }
    });
    Room out(3, n), passed(5, n);
    uint64_t done = 0, before = 0, passed_on = 0;
    size_t bad = 0;
    while (!reduce2(seen.data(), a.data(), out.data(), next.data(), n, word, next_word, &done)) {
      bad += done < before || done % t.payload_bytes != 0;
      bad += p.decode()(next.data(), passed.data(), n, next_word, &passed_on) != 0 || passed_on != done;
      before = done;
      std::this_thread::yield();
    }
    writer.join();
    bad += p.decode()(next.data(), passed.data(), n, next_word, &passed_on) != 1;
    CHECK(bad == 0);
    CHECK(ref::differs(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, out.data(), want.data(), n) < 0);
    CHECK(ref::differs(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, passed.data(), want.data(), n) < 0);
    CHECK(out.intact());
    CHECK(passed.intact());
  });
}

TEST_CASE("what no protocol of lines knows has no kernel") {
  for_each_proto([](const Proto &p) {
    CHECK_FALSE(bool(p.kernel<tutti_kernel>(TUTTI_FORM_REDUCE_N, TUTTI_DT_FLOAT32)));
    CHECK_FALSE(bool(p.kernel<tutti_kernel>(TUTTI_FORM_DECODE_REDUCE, TUTTI_DT_COUNT)));
    CHECK_FALSE(bool(p.kernel<tutti_kernel>(TUTTI_FORM_DECODE_REDUCE, TUTTI_DT_FLOAT32, TUTTI_RED_COUNT)));
    CHECK_FALSE(bool(p.kernel<tutti_kernel>(TUTTI_FORM_DECODE, TUTTI_DT_UINT8, TUTTI_RED_SUM, TUTTI_KERNEL_NONTEMPORAL)));
  });
}
