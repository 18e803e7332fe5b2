// Scaling and division against the scalar reference.
#include "reference.h"
#include "targets.h"

namespace {

constexpr size_t elements = 333;

template <class T> void check_division(tutti_dtype dtype, uint64_t divisor) {
  const auto a = ref::data(dtype, elements, 8);
  ref::Buf out(a.size() + 1);
  tutti::host_reduce_service()->divide(dtype)(out.data() + 1, a.data(), divisor, a.size());
  size_t bad = 0;
  for (size_t i = 0; i < elements; ++i) {
    T in, got, want;
    memcpy(&in, a.data() + i * sizeof(T), sizeof(T));
    memcpy(&got, out.data() + 1 + i * sizeof(T), sizeof(T));
    if constexpr (std::is_integral_v<T>)
      want = static_cast<T>(static_cast<__int128>(in) / static_cast<__int128>(divisor));
    else
      want = static_cast<T>(static_cast<long double>(in) / static_cast<long double>(divisor));
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): the bits are what is compared
    bad += memcmp(&got, &want, sizeof(T)) != 0 && !(got != got && want != want);
  }
  INFO(tutti::dtype_name(dtype) << " / " << divisor);
  CHECK(bad == 0);
}

void check_division16(const ref::Format &f, tutti_dtype dtype, uint64_t divisor) {
  const auto a = ref::data(dtype, elements, 9);
  ref::Buf out(a.size());
  tutti::host_reduce_service()->divide(dtype)(out.data(), a.data(), divisor, a.size());
  size_t bad = 0;
  for (size_t i = 0; i < elements; ++i) {
    uint16_t in, got;
    memcpy(&in, &a[i * 2], 2);
    memcpy(&got, &out[i * 2], 2);
    const uint16_t want = ref::narrow(f, ref::widen(f, in) / static_cast<float>(divisor));
    bad += got != want && !ref::is_nan(dtype, &out[i * 2]);
  }
  CHECK(bad == 0);
}

void check_division8(tutti_dtype dtype, uint64_t divisor) {
  const ref::Float8 &f = *ref::float8_of(dtype);
  ref::Buf in(256), out(256);
  for (size_t i = 0; i < 256; ++i) in[i] = static_cast<uint8_t>(i);
  tutti::host_reduce_service()->divide(dtype)(out.data(), in.data(), divisor, in.size());
  size_t bad = 0;
  for (size_t i = 0; i < 256; ++i) bad += out[i] != f.nearest(f.value(in[i]) / static_cast<double>(divisor));
  INFO(tutti::dtype_name(dtype) << " / " << divisor);
  CHECK(bad == 0);
}

} // namespace

TEST_CASE("scaling multiplies as the product reduction does, in place too") {
  for_each_target([] {
    for (tutti_dtype t = 0; t < TUTTI_DT_COUNT; ++t) {
      const size_t size = tutti::dtype_bytes(t);
      const auto a = ref::data(t, elements, 3);
      for (size_t pick : {0u, 5u, 77u}) {
        ref::Buf factor(a.size());
        for (size_t i = 0; i < elements; ++i) memcpy(&factor[i * size], &a[pick * size], size);
        const auto want = ref::reduce(t, TUTTI_RED_PROD, {a.data(), factor.data()}, elements);
        for (size_t n : {0u, 1u, 2u, 7u, 64u, 333u}) {
          auto got = a;
          tutti::host_reduce_service()->scale(t)(got.data(), got.data(), factor.data(), n * size);
          INFO(tutti::dtype_name(t) << " n " << n);
          CHECK(ref::differs(t, TUTTI_RED_PROD, got.data(), want.data(), n * size) == -1);
          CHECK(memcmp(got.data() + n * size, a.data() + n * size, a.size() - n * size) == 0);
        }
      }
    }
  });
}

TEST_CASE("division truncates integers and rounds floats once") {
  for_each_target([] {
    for (uint64_t d : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{7}, uint64_t{128}, uint64_t{1000}, uint64_t{16777217},
                       uint64_t{1} << 31, (uint64_t{1} << 53) + 1, uint64_t{1} << 62}) {
      check_division<int8_t>(TUTTI_DT_INT8, d);
      check_division<uint8_t>(TUTTI_DT_UINT8, d);
      check_division<int32_t>(TUTTI_DT_INT32, d);
      check_division<uint32_t>(TUTTI_DT_UINT32, d);
      check_division<int64_t>(TUTTI_DT_INT64, d);
      check_division<uint64_t>(TUTTI_DT_UINT64, d);
      check_division<float>(TUTTI_DT_FLOAT32, d);
      check_division<double>(TUTTI_DT_FLOAT64, d);
    }
    for (uint64_t d : {1u, 2u, 3u, 5u, 8u, 64u, 1000u}) {
      check_division16(ref::half, TUTTI_DT_FLOAT16, d);
      check_division16(ref::bf16, TUTTI_DT_BFLOAT16, d);
    }
    for (uint64_t d : {1u, 2u, 3u, 5u, 7u, 8u, 48u, 1000u, 65537u})
      for (const tutti_dtype t : {TUTTI_DT_FLOAT8E4M3, TUTTI_DT_FLOAT8E5M2}) check_division8(t, d);
  });
}

TEST_CASE("division by 2^63 and beyond leaves only the smallest integer non-zero") {
  const int64_t in[2] = {INT64_MIN, INT64_MAX};
  int64_t out[2];
  tutti::host_reduce_service()->divide(TUTTI_DT_INT64)(out, in, uint64_t{1} << 63, sizeof in);
  CHECK(out[0] == -1);
  CHECK(out[1] == 0);
}
