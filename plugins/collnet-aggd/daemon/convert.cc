// tutti/plugins/collnet-aggd/daemon/convert.cc: floats of 8 and 16 bits to float32 and back, as the core's kernels do it.
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert.cc"
#include "hwy/foreach_target.h"
//
#include "tutti/plugin/cxx/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::aggd::HWY_NAMESPACE {
using namespace plugin::HWY_NAMESPACE;

template <class T> void widen_all(float *out, const uint8_t *in, uint64_t elements) {
  using S = typename T::S;
  using C = typename T::C;
  constexpr size_t lanes = hn::MaxLanes(C());
  for (uint64_t i = 0; i < elements; i += lanes) {
    const size_t n = HWY_MIN(lanes, elements - i);
    const auto v = T::widen(load_n(S(), in + i * sizeof(typename T::Elem), n * sizeof(typename T::Elem)));
    store_n(C(), v, reinterpret_cast<uint8_t *>(out + i), n * sizeof(float));
  }
}
template <class T> void narrow_all(uint8_t *out, const float *in, uint64_t elements) {
  using S = typename T::S;
  using C = typename T::C;
  constexpr size_t lanes = hn::MaxLanes(C());
  for (uint64_t i = 0; i < elements; i += lanes) {
    const size_t n = HWY_MIN(lanes, elements - i);
    const auto v = T::narrow(load_n(C(), reinterpret_cast<const uint8_t *>(in + i), n * sizeof(float)));
    store_n(S(), v, out + i * sizeof(typename T::Elem), n * sizeof(typename T::Elem));
  }
}

template <class Fn> void with_narrow(tutti_dtype dtype, Fn fn) {
  switch (dtype) {
  case TUTTI_DT_FLOAT16:
    return fn(Float16());
  case TUTTI_DT_BFLOAT16:
    return fn(Bfloat16());
  case TUTTI_DT_FLOAT8E4M3:
    return fn(Float8E4m3());
  case TUTTI_DT_FLOAT8E5M2:
    return fn(Float8E5m2());
  default:
    return;
  }
}
void widen_here(tutti_dtype dtype, float *out, const uint8_t *in, uint64_t elements) {
  with_narrow(dtype, [=](auto t) { widen_all<decltype(t)>(out, in, elements); });
}
void narrow_here(tutti_dtype dtype, uint8_t *out, const float *in, uint64_t elements) {
  with_narrow(dtype, [=](auto t) { narrow_all<decltype(t)>(out, in, elements); });
}
} // namespace tutti::aggd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "fold.h"

namespace tutti::aggd {
HWY_EXPORT(widen_here);
HWY_EXPORT(narrow_here);
void widen(tutti_dtype dtype, float *out, const void *in, uint64_t elements) {
  HWY_DYNAMIC_DISPATCH(widen_here)(dtype, out, static_cast<const uint8_t *>(in), elements);
}
void narrow(tutti_dtype dtype, void *out, const float *in, uint64_t elements) {
  HWY_DYNAMIC_DISPATCH(narrow_here)(dtype, static_cast<uint8_t *>(out), in, elements);
}
} // namespace tutti::aggd
#endif
