// tutti/core/exec/kernels/scale.cc: multiplication by one factor (pre-multiplied sum) and division (average).
#include "tutti/plugin/cxx/simd/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/kernels/scale.cc"
#include "hwy/foreach_target.h"
//
#include "exec/kernels/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

struct Quotient {
  template <class D> static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) { return hn::Div(a, b); }
};

// dst = src Op operand, the operand the same for all elements.
template <class T, class Op>
HWY_INLINE void map(uint8_t *dst, const uint8_t *src, hn::Vec<typename T::C> operand, size_t bytes) {
  using S = typename T::S;
  const typename T::C c;
  constexpr size_t w = vector_bytes<S>();
  size_t i = 0;
  for (; i + w <= bytes; i += w) store(S(), T::narrow(Op::apply(c, T::widen(load(S(), src + i)), operand)), dst + i);
  if (i < bytes) store_n(S(), T::narrow(Op::apply(c, T::widen(load_n(S(), src + i, bytes - i)), operand)), dst + i, bytes - i);
}

template <class T> void scale(void *dst, const void *src, const void *factor, uint64_t bytes) noexcept {
  typename T::Elem one;
  memcpy(&one, factor, sizeof one);
  map<T, Prod>(static_cast<uint8_t *>(dst), static_cast<const uint8_t *>(src), T::widen(hn::Set(typename T::S(), one)), bytes);
}

// Element by element: for divisors that the element type cannot hold. The compiler vectorises what it can.
template <class E, class Wide> void divide_each(void *dst, const void *src, Wide divisor, uint64_t bytes) noexcept {
  auto *to = static_cast<uint8_t *>(dst);
  const auto *from = static_cast<const uint8_t *>(src);
  for (uint64_t i = 0; i < bytes; i += sizeof(E)) {
    E value;
    memcpy(&value, from + i, sizeof value);
    value = static_cast<E>(static_cast<Wide>(value) / divisor);
    memcpy(to + i, &value, sizeof value);
  }
}

// Divisors above 2^24 are rounded to float32 first for the types of 16 and 8 bits.
template <class T> void divide_float(void *dst, const void *src, uint64_t divisor, uint64_t bytes) noexcept {
  using E = hn::TFromD<typename T::C>;
  constexpr uint64_t exact = uint64_t{1} << (sizeof(E) == 4 ? 24 : 53);
  if constexpr (sizeof(typename T::Elem) == sizeof(E))
    if (divisor > exact) return divide_each<E, long double>(dst, src, static_cast<long double>(divisor), bytes);
  map<T, Quotient>(static_cast<uint8_t *>(dst), static_cast<const uint8_t *>(src),
                   hn::Set(typename T::C(), static_cast<E>(divisor)), bytes);
}

// Up to 32 bits a float64 quotient is far enough from the next integer to truncate right.
template <class E> void divide_int(void *dst, const void *src, uint64_t divisor, uint64_t bytes) noexcept {
  if constexpr (sizeof(E) <= 4) {
    divide_each<E, double>(dst, src, static_cast<double>(divisor), bytes);
  } else if constexpr (std::is_signed_v<E>) {
    // Only the smallest value has a quotient other than 0 under a divisor beyond the type: 2^63 itself.
    if (divisor > uint64_t{INT64_MAX})
      divide_each<E, __int128>(dst, src, static_cast<__int128>(divisor), bytes);
    else
      divide_each<E, int64_t>(dst, src, static_cast<int64_t>(divisor), bytes);
  } else {
    divide_each<E, uint64_t>(dst, src, divisor, bytes);
  }
}

tutti_scale_fn scale_of(tutti_dtype dtype) {
  switch (dtype) {
  case TUTTI_DT_INT8:
  case TUTTI_DT_UINT8:
    return &scale<Plain<uint8_t>>;
  case TUTTI_DT_INT32:
  case TUTTI_DT_UINT32:
    return &scale<Plain<uint32_t>>;
  case TUTTI_DT_INT64:
  case TUTTI_DT_UINT64:
    return &scale<Plain<uint64_t>>;
  case TUTTI_DT_FLOAT16:
    return &scale<Float16>;
  case TUTTI_DT_FLOAT32:
    return &scale<Plain<float>>;
  case TUTTI_DT_FLOAT64:
    return &scale<Plain<double>>;
  case TUTTI_DT_BFLOAT16:
    return &scale<Bfloat16>;
  case TUTTI_DT_FLOAT8E4M3:
    return &scale<Float8E4m3>;
  case TUTTI_DT_FLOAT8E5M2:
    return &scale<Float8E5m2>;
  default:
    return nullptr;
  }
}

tutti_divide_fn divide_of(tutti_dtype dtype) {
  switch (dtype) {
  case TUTTI_DT_INT8:
    return &divide_int<int8_t>;
  case TUTTI_DT_UINT8:
    return &divide_int<uint8_t>;
  case TUTTI_DT_INT32:
    return &divide_int<int32_t>;
  case TUTTI_DT_UINT32:
    return &divide_int<uint32_t>;
  case TUTTI_DT_INT64:
    return &divide_int<int64_t>;
  case TUTTI_DT_UINT64:
    return &divide_int<uint64_t>;
  case TUTTI_DT_FLOAT16:
    return &divide_float<Float16>;
  case TUTTI_DT_FLOAT32:
    return &divide_float<Plain<float>>;
  case TUTTI_DT_FLOAT64:
    return &divide_float<Plain<double>>;
  case TUTTI_DT_BFLOAT16:
    return &divide_float<Bfloat16>;
  case TUTTI_DT_FLOAT8E4M3:
    return &divide_float<Float8E4m3>;
  case TUTTI_DT_FLOAT8E5M2:
    return &divide_float<Float8E5m2>;
  default:
    return nullptr;
  }
}

} // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(scale_of);
HWY_EXPORT(divide_of);
tutti_scale_fn kernels::scale(tutti_dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(scale_of)(dtype);
}
tutti_divide_fn kernels::divide(tutti_dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(divide_of)(dtype);
}
} // namespace tutti
#endif
