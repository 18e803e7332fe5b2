// Reductions against the scalar reference: types, operations, lengths, alignments, special values.
#include "reference.h"
#include "room.h"
#include "targets.h"

namespace {

constexpr size_t elements = 700;

std::vector<size_t> lengths() {
  std::vector<size_t> out = {511, 512, elements};
#ifdef TUTTI_SANITIZED
  constexpr size_t each =
      66; // unoptimised kernels are slow, and those past one vector differ in nothing but the number of turns
#else
  constexpr size_t each = 300;
#endif
  for (size_t n = 0; n <= each; ++n) out.push_back(n);
  return out;
}

struct Case {
  tutti_dtype dtype;
  tutti_redop op;
  uint32_t flags;
};

template <class Body> void for_each_case(Body body) {
  for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; ++t)
    for (tutti_redop op = 0; op < TUTTI_RED_COUNT; ++op)
      for (uint32_t flags : {0u, uint32_t{TUTTI_KERNEL_NONTEMPORAL}}) {
        INFO(tutti::dtype_name(t) << " " << tutti::redop_name(op) << " flags " << flags);
        body(Case{t, op, flags});
      }
}

} // namespace

TEST_CASE("every type and operation matches the reference at every length and alignment") {
  for_each_target([] {
    const auto *svc = tutti::host_reduce_service();
    for_each_case([&](Case c) {
      const size_t size = tutti::dtype_bytes(c.dtype);
      const auto a = ref::data(c.dtype, elements, 1), b = ref::data(c.dtype, elements, 2);
      const auto want = ref::reduce(c.dtype, c.op, {a.data(), b.data()}, elements);
      const auto fn = svc->reduce(c.dtype, c.op, c.flags);
      const auto fn2 = svc->reduce2(c.dtype, c.op, c.flags);
      REQUIRE(bool(fn));
      REQUIRE(bool(fn2));
      size_t turn = 0, bad = 0;
      for (size_t n : lengths()) {
        ++turn;
        const size_t bytes = n * size;
        Room ra(turn % 7, a, bytes), rb(turn * 3 % 11, b, bytes), out(turn * 5 % 64, bytes), fwd(turn % 13, bytes);
        fn(out.data(), ra.data(), rb.data(), bytes);
        bad += ref::differs(c.dtype, c.op, out.data(), want.data(), bytes) >= 0 || !out.intact();
        Room out2(turn * 7 % 64, bytes);
        fn2(out2.data(), fwd.data(), ra.data(), rb.data(), bytes);
        bad += ref::differs(c.dtype, c.op, out2.data(), want.data(), bytes) >= 0 || !out2.intact();
        bad += (bytes && memcmp(out2.data(), fwd.data(), bytes) != 0) || !fwd.intact();
        fn(ra.data(), ra.data(), rb.data(), bytes); // in place on the left, then on the right
        bad += ref::differs(c.dtype, c.op, ra.data(), want.data(), bytes) >= 0 || !ra.intact();
        Room la(0, a, bytes);
        fn(rb.data(), la.data(), rb.data(), bytes);
        bad += ref::differs(c.dtype, c.op, rb.data(), want.data(), bytes) >= 0 || !rb.intact();
      }
      CHECK(bad == 0);
    });
  });
}

TEST_CASE("reductions of several operands keep their order and round once") {
  for_each_target([] {
    const auto *svc = tutti::host_reduce_service();
    for_each_case([&](Case c) {
      const size_t size = tutti::dtype_bytes(c.dtype);
      const auto fn = svc->reduce_n(c.dtype, c.op, c.flags);
      REQUIRE(bool(fn));
      size_t bad = 0;
      for (uint32_t n : {2u, 3u, 8u}) {
        std::vector<ref::Buf> in;
        for (uint32_t r = 0; r < n; ++r) in.push_back(ref::data(c.dtype, elements, 10 + r));
        std::vector<const uint8_t *> refs;
        for (auto &v : in) refs.push_back(v.data());
        const auto want = ref::reduce(c.dtype, c.op, refs, elements);
        for (size_t count : {0, 1, 2, 3, 5, 16, 17, 31, 63, 64, 65, 100, 127, 700}) {
          const size_t bytes = count * size;
          Room out(count * 3 % 64, bytes);
          std::vector<const void *> ops(refs.begin(), refs.end());
          fn(out.data(), ops.data(), n, bytes);
          bad += ref::differs(c.dtype, c.op, out.data(), want.data(), bytes) >= 0 || !out.intact();
        }
      }
      CHECK(bad == 0);
    });
  });
}

TEST_CASE("maximum and minimum give the same bits whatever the order of operands") {
  for_each_target([] {
    const auto *svc = tutti::host_reduce_service();
    for (tutti_dtype t = TUTTI_DT_FLOAT16; t < TUTTI_DT_COUNT; ++t)
      for (tutti_redop op : {TUTTI_RED_MAX, TUTTI_RED_MIN}) {
        const auto a = ref::data(t, elements, 5), b = ref::data(t, elements, 6);
        ref::Buf x(a.size()), y(a.size());
        svc->reduce(t, op, 0)(x.data(), a.data(), b.data(), a.size());
        svc->reduce(t, op, 0)(y.data(), b.data(), a.data(), a.size());
        CHECK(x == y);
      }
  });
}

TEST_CASE("all pairs of interesting half values sum exactly as the reference") {
  for_each_target([] {
    const auto *svc = tutti::host_reduce_service();
    for (tutti_dtype t : {TUTTI_DT_FLOAT16, TUTTI_DT_BFLOAT16}) {
      ref::Buf a(65536 * 2), b(65536 * 2), out(65536 * 2);
      for (uint32_t k : {0u, 1u, 0x3c00u, 0x7bffu, 0x8001u, 0x3f80u, 0xc000u}) {
        for (uint32_t i = 0; i < 65536; ++i) {
          const uint16_t v = static_cast<uint16_t>(i), w = static_cast<uint16_t>(k);
          memcpy(&a[i * 2], &v, 2);
          memcpy(&b[i * 2], &w, 2);
        }
        const auto want = ref::reduce(t, TUTTI_RED_SUM, {a.data(), b.data()}, 65536);
        svc->reduce(t, TUTTI_RED_SUM, 0)(out.data(), a.data(), b.data(), out.size());
        CHECK(ref::differs(t, TUTTI_RED_SUM, out.data(), want.data(), out.size()) == -1);
      }
    }
  });
}

// All pairs in double, where sums and products of two are exact, then rounded once.
TEST_CASE("all pairs of 8-bit floats are combined exactly and rounded once, NaN and what is too large included") {
  constexpr size_t pairs = 65536;
  ref::Buf a(pairs), b(pairs);
  for (size_t i = 0; i < pairs; ++i) a[i] = static_cast<uint8_t>(i >> 8), b[i] = static_cast<uint8_t>(i);
  for (const tutti_dtype t : {TUTTI_DT_FLOAT8E4M3, TUTTI_DT_FLOAT8E5M2})
    for (tutti_redop op = 0; op < TUTTI_RED_COUNT; ++op) {
      const ref::Float8 &f = *ref::float8_of(t);
      ref::Buf want(pairs);
      for (size_t i = 0; i < pairs; ++i) want[i] = f.nearest(ref::combine(op, f.value(a[i]), f.value(b[i])));
      for_each_target([&] {
        INFO(tutti::dtype_name(t) << " " << tutti::redop_name(op));
        const auto *svc = tutti::host_reduce_service();
        ref::Buf out(pairs), fwd(pairs);
        svc->reduce(t, op, 0)(out.data(), a.data(), b.data(), pairs);
        CHECK(out == want);
        svc->reduce2(t, op, 0)(out.data(), fwd.data(), a.data(), b.data(), pairs);
        CHECK(out == want);
        CHECK(fwd == want);
        const void *operands[] = {a.data(), b.data()};
        svc->reduce_n(t, op, 0)(out.data(), operands, 2, pairs);
        CHECK(out == want);
      });
    }
}

TEST_CASE("8-bit floats saturate as CUDA's conversions do") {
  const auto sum = [](tutti_dtype t, uint8_t x, uint8_t y) {
    uint8_t out = 0;
    tutti::host_reduce_service()->reduce(t, TUTTI_RED_SUM, 0)(&out, &x, &y, 1);
    return out;
  };
  CHECK(sum(TUTTI_DT_FLOAT8E4M3, 0x7e, 0x7e) == 0x7e); // 448 + 448
  CHECK(sum(TUTTI_DT_FLOAT8E4M3, 0xfe, 0xfe) == 0xfe);
  CHECK(sum(TUTTI_DT_FLOAT8E4M3, 0xff, 0x38) == 0x7f); // NaN
  CHECK(sum(TUTTI_DT_FLOAT8E5M2, 0x7b, 0x7b) == 0x7b); // 57344 + 57344
  CHECK(sum(TUTTI_DT_FLOAT8E5M2, 0x7c, 0x3c) == 0x7b); // infinity + 1
  CHECK(sum(TUTTI_DT_FLOAT8E5M2, 0x7c, 0xfc) == 0x7e); // infinity - infinity
}

TEST_CASE("large buffers are reduced to the last element, past the caches too") {
  const auto *svc = tutti::host_reduce_service();
  const size_t n = (8u << 20) + 13;
  std::vector<float> a(n), b(n), out(n), fwd(n);
  for (size_t i = 0; i < n; ++i) a[i] = static_cast<float>(i % 1000), b[i] = static_cast<float>(i % 777);
  for (uint32_t flags : {0u, uint32_t{TUTTI_KERNEL_NONTEMPORAL}}) {
    std::fill(out.begin(), out.end(), -1.f);
    svc->reduce2(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, flags)(out.data() + 1, fwd.data() + 1, a.data() + 1, b.data() + 1,
                                                         (n - 1) * 4);
    size_t bad = 0;
    for (size_t i = 1; i < n; ++i) bad += out[i] != a[i] + b[i] || fwd[i] != out[i];
    CHECK(bad == 0);
    CHECK(out[0] == -1.f);
  }
}

TEST_CASE("unknown types, operations and flags have no kernel") {
  const auto *svc = tutti::host_reduce_service();
  CHECK_FALSE(bool(svc->reduce(TUTTI_DT_COUNT, TUTTI_RED_SUM, 0)));
  CHECK_FALSE(bool(svc->reduce(TUTTI_DT_FLOAT32, TUTTI_RED_COUNT, 0)));
  CHECK_FALSE(bool(svc->reduce2(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, 1u << 9)));
  CHECK_FALSE(bool(svc->reduce_n(99, TUTTI_RED_SUM, 0)));
  CHECK_FALSE(bool(svc->copy(2)));
  CHECK_FALSE(bool(svc->scale(TUTTI_DT_COUNT)));
  CHECK_FALSE(bool(svc->divide(TUTTI_DT_COUNT)));
}
