// tutti/plugin/cxx/simd/vec-inl.h: element types as vectors, and the four reductions: the one table of types and operations,
// for the core's kernels and for protocols that fuse reductions into loops of their own. Needs Google Highway; compiled once
// per target.
//
// Results, the same bits on every target:
//   integers   wrap (products too).
//   narrow     floats of 16 and 8 bits are combined in float32 and rounded to nearest even once per call.
//   8 bit      float8 saturates, as CUDA's conversions do: what is beyond the largest finite value, the infinities of e5m2
//              among it, becomes that value. A NaN becomes the canonical one, so its bits are the same everywhere.
//   max, min   of floats give the canonical quiet NaN when an operand is NaN, and order -0 below +0: the bits do not depend
//              on the order of operands.
//   sum, prod  follow IEEE 754 for the two operands in the given order; which NaN comes out of two is the CPU's choice.
#if defined(TUTTI_PLUGIN_CXX_SIMD_VEC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_PLUGIN_CXX_SIMD_VEC_INL_H
#undef TUTTI_PLUGIN_CXX_SIMD_VEC_INL_H
#else
#define TUTTI_PLUGIN_CXX_SIMD_VEC_INL_H
#endif

#include "hwy/highway.h"
#include "tutti/plugin/base.h"
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace tutti::plugin::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef TUTTI_BYTE_MASKS
#undef TUTTI_NATIVE_F16
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define TUTTI_BYTE_MASKS 1
#else
#define TUTTI_BYTE_MASKS 0
#endif
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_TARGET == HWY_NEON
#define TUTTI_NATIVE_F16 1
#else
#define TUTTI_NATIVE_F16 0
#endif

// Copies n <= cap <= 64 bytes with two overlapping moves of the largest size that fits.
template <size_t cap> HWY_INLINE void copy_few(uint8_t *dst, const uint8_t *src, size_t n) {
  const auto pair = [=](auto word) HWY_ATTR {
    decltype(word) head, tail;
    memcpy(&head, src, sizeof word);
    memcpy(&tail, src + n - sizeof word, sizeof word);
    memcpy(dst, &head, sizeof word);
    memcpy(dst + n - sizeof word, &tail, sizeof word);
  };
  struct Words2 {
    uint64_t w[2];
  };
  struct Words4 {
    uint64_t w[4];
  };
  if constexpr (cap >= 32)
    if (n >= 32) return pair(Words4{});
  if constexpr (cap >= 16)
    if (n >= 16) return pair(Words2{});
  if constexpr (cap >= 8)
    if (n >= 8) return pair(uint64_t{0});
  if (n >= 4) return pair(uint32_t{0});
  if (n >= 2) return pair(uint16_t{0});
  if (n == 1) *dst = *src;
}

// Bytes in and out of vectors of any lane type: no pointer is assumed to be aligned.
template <class D> constexpr size_t vector_bytes() {
  return hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
}
#if HWY_TARGET == HWY_SCALAR // one lane: no vector of bytes has its size
template <class D> HWY_INLINE hn::Vec<D> load_n(D d, const uint8_t *p, size_t n) {
  hn::TFromD<D> value{};
  if (n) memcpy(&value, p, sizeof value);
  return hn::Set(d, value);
}
template <class D> HWY_INLINE void store_n(D, hn::Vec<D> v, uint8_t *p, size_t n) {
  const auto value = hn::GetLane(v);
  if (n) memcpy(p, &value, sizeof value);
}
template <class D> HWY_INLINE hn::Vec<D> load(D d, const uint8_t *p) {
  return load_n(d, p, 1);
}
template <class D> HWY_INLINE void store(D d, hn::Vec<D> v, uint8_t *p) {
  store_n(d, v, p, 1);
}
template <class D> HWY_INLINE void stream(D d, hn::Vec<D> v, uint8_t *p) {
  store_n(d, v, p, 1);
}
#else
template <class D> using ByteTag = hn::Repartition<uint8_t, D>;
template <class D> HWY_INLINE hn::Vec<D> load(D d, const uint8_t *p) {
  return hn::BitCast(d, hn::LoadU(ByteTag<D>(), p));
}
template <class D> HWY_INLINE void store(D, hn::Vec<D> v, uint8_t *p) {
  hn::StoreU(hn::BitCast(ByteTag<D>(), v), ByteTag<D>(), p);
}
template <class D> HWY_INLINE void stream(D, hn::Vec<D> v, uint8_t *p) {
  hn::Stream(hn::BitCast(ByteTag<D>(), v), ByteTag<D>(), p);
}
// The first n bytes, n <= vector_bytes; the rest is 0 or stays untouched.
template <class D> HWY_INLINE hn::Vec<D> load_n(D d, const uint8_t *p, size_t n) {
  const ByteTag<D> d8;
#if TUTTI_BYTE_MASKS
  return hn::BitCast(d, hn::MaskedLoad(hn::FirstN(d8, n), d8, p));
#else
  HWY_ALIGN uint8_t tmp[vector_bytes<D>()] = {};
  copy_few<vector_bytes<D>()>(tmp, p, n);
  return hn::BitCast(d, hn::Load(d8, tmp));
#endif
}
template <class D> HWY_INLINE void store_n(D, hn::Vec<D> v, uint8_t *p, size_t n) {
  const ByteTag<D> d8;
#if TUTTI_BYTE_MASKS
  hn::BlendedStore(hn::BitCast(d8, v), hn::FirstN(d8, n), d8, p);
#else
  HWY_ALIGN uint8_t tmp[vector_bytes<D>()];
  hn::Store(hn::BitCast(d8, v), d8, tmp);
  copy_few<vector_bytes<D>()>(p, tmp, n);
#endif
}
#endif

// Slots are fetched for writing this far ahead: what costs is taking the lines back from the peer's cache.
constexpr size_t prefetch_bytes = 2048;
constexpr size_t cache_line = 64;

HWY_INLINE void prefetch_write(const uint8_t *p) {
#if HWY_ARCH_X86 // the builtin means prefetcht0 on a baseline target, which fetches the line to share it; older CPUs skip this
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1, 3);
#endif
}

// An element type: S is how it lies in memory, C how it is computed; widen() and narrow() lead from one to the other.
// tells_order: of two NaN, sums and products give one that depends on the order of operands.
template <class T> struct Plain {
  static constexpr bool tells_order = hwy::IsFloat<T>();
  using Elem = T;
  using S = hn::ScalableTag<T>;
  using C = S;
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) { return v; }
  static HWY_INLINE hn::Vec<S> narrow(hn::Vec<C> v) { return v; }
};

struct Bfloat16 {
  static constexpr bool tells_order = true;
  using Elem = uint16_t;
  using C = hn::ScalableTag<float>;
  using S = hn::Rebind<uint16_t, C>;
  using U = hn::RebindToUnsigned<C>;
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) { return hn::BitCast(C(), hn::ShiftLeft<16>(hn::PromoteTo(U(), v))); }
  static HWY_INLINE hn::Vec<S> narrow(hn::Vec<C> v) {
    const U u;
    const auto bits = hn::BitCast(u, v);
    const auto high = hn::ShiftRight<16>(bits);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::Set(u, 0x7fff), hn::And(high, hn::Set(u, 1)))));
    const auto nan = hn::RebindMask(u, hn::IsNaN(v));
    const auto out = hn::IfThenElse(nan, hn::Or(high, hn::Set(u, 0x40)), rounded);
    return hn::DemoteTo(S(), hn::BitCast(hn::RebindToSigned<U>(), out));
  }
};

struct Float16 {
  static constexpr bool tells_order = true;
  using Elem = uint16_t;
  using C = hn::ScalableTag<float>;
  using S = hn::Rebind<uint16_t, C>;
#if TUTTI_NATIVE_F16
  using H = hn::Rebind<hwy::float16_t, C>;
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) {
    return hn::PromoteTo(C(), hn::BitCast(H(), v));
  }
  static HWY_INLINE hn::Vec<S> narrow(hn::Vec<C> v) {
    return hn::BitCast(S(), hn::DemoteTo(H(), v));
  }
#else
  using U = hn::RebindToUnsigned<C>;
  // Exponent and fraction moved into place, then rescaled by 2^112, which also normalises subnormals exactly.
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) {
    const U u;
    const C f;
    const auto bits = hn::PromoteTo(u, v);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(u, 0x8000)));
    const auto rest = hn::ShiftLeft<13>(hn::And(bits, hn::Set(u, 0x7fff)));
    const auto scaled = hn::BitCast(u, hn::Mul(hn::BitCast(f, rest), hn::Set(f, 0x1p112f)));
    const auto special = hn::Gt(rest, hn::Set(u, (0x7c00u << 13) - 1));
    const auto top = hn::Or(hn::Set(u, 0x7f800000u), rest);
    const auto quiet = hn::IfThenElse(hn::Gt(rest, hn::Set(u, 0x7c00u << 13)), hn::Or(top, hn::Set(u, 0x400000u)), top);
    return hn::BitCast(f, hn::Or(sign, hn::IfThenElse(special, quiet, scaled)));
  }
  static HWY_INLINE hn::Vec<S> narrow(hn::Vec<C> v) {
    const U u;
    const C f;
    const auto bits = hn::BitCast(u, v);
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 0x8000));
    const auto mag = hn::And(bits, hn::Set(u, 0x7fffffffu));
    const auto odd = hn::And(hn::ShiftRight<13>(mag), hn::Set(u, 1));
    // Rebias by -112 and add just below one half unit plus the odd bit: ties go to even.
    const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(mag, hn::Set(u, 0xc8000fffu)), odd));
    // Below 2^-14 the addition of 1/2 rounds to multiples of 2^-24, the subnormal unit.
    const auto half = hn::Set(f, 0.5f);
    const auto tiny = hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(f, mag), half)), hn::BitCast(u, half));
    auto out = hn::IfThenElse(hn::Gt(hn::Set(u, 0x38800000u), mag), tiny, normal);
    out = hn::IfThenElse(hn::Gt(mag, hn::Set(u, 0x477fffffu)), hn::Set(u, 0x7c00), out);
    const auto payload = hn::Or(hn::Set(u, 0x7e00), hn::And(hn::ShiftRight<13>(mag), hn::Set(u, 0x3ff)));
    out = hn::IfThenElse(hn::Gt(mag, hn::Set(u, 0x7f800000u)), payload, out);
    return hn::DemoteTo(S(), hn::BitCast(hn::RebindToSigned<U>(), hn::Or(out, sign)));
  }
#endif
};

// The 8-bit floats of the OCP: kMan bits of fraction, exponents biased by kBias, kLargest the largest finite number. What lies
// above is NaN, but for the infinity of e5m2 (fraction 0 under the highest exponent).
template <int kMan, uint32_t kBias, uint32_t kLargest, uint32_t kNan> struct Float8 {
  static constexpr bool tells_order = false;
  using Elem = uint8_t;
  using C = hn::ScalableTag<float>;
  using S = hn::Rebind<uint8_t, C>;
  using U = hn::RebindToUnsigned<C>;
  static constexpr int shift = 23 - kMan;
  static constexpr uint32_t rebias = (127 - kBias) << 23, smallest_normal = rebias + (1u << 23);

#if TUTTI_NATIVE_F16
  // e5m2 is the upper byte of a half. e4m3 has the fields of one whose exponent is less by 8: the sign, extended, fills what is
  // above them, and is cut down to its place; NaN comes out as 480.
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) {
    const C f;
    const hn::Rebind<hwy::float16_t, C> h;
    const hn::Rebind<int16_t, C> w;
    if constexpr (kMan == 2) {
      return hn::PromoteTo(f, hn::BitCast(h, hn::ShiftLeft<8>(hn::PromoteTo(hn::Rebind<uint16_t, C>(), v))));
    } else {
      const auto wide = hn::ShiftLeft<7>(hn::PromoteTo(w, hn::BitCast(hn::Rebind<int8_t, C>(), v)));
      const auto half = hn::And(wide, hn::Set(w, static_cast<int16_t>(0xbf80)));
      const auto value = hn::Mul(hn::PromoteTo(f, hn::BitCast(h, half)), hn::Set(f, 256.0f));
      return hn::IfThenElse(hn::Gt(hn::Abs(value), hn::Set(f, 448.0f)), hn::NaN(f), value);
    }
  }
#else
  // Exponent and fraction moved into place. Without an exponent the fraction counts multiples of the smallest subnormal: read
  // behind the smallest normal's hidden bit, which is then taken off. No float here is subnormal, for those are slow.
  static HWY_INLINE hn::Vec<C> widen(hn::Vec<S> v) {
    const U u;
    const C f;
    const auto bits = hn::PromoteTo(u, v);
    const auto mag = hn::And(bits, hn::Set(u, 0x7f));
    const auto normal = hn::Add(hn::ShiftLeft<shift>(mag), hn::Set(u, rebias));
    const auto hidden = hn::BitCast(f, hn::Add(normal, hn::Set(u, 1u << 23)));
    const auto tiny = hn::BitCast(u, hn::Sub(hidden, hn::BitCast(f, hn::Set(u, smallest_normal))));
    auto out = hn::IfThenElse(hn::Gt(hn::Set(u, 1u << kMan), mag), tiny, normal);
    out = hn::IfThenElse(hn::Gt(mag, hn::Set(u, kLargest)), hn::Or(normal, hn::Set(u, 0x7f800000u)), out);
    return hn::BitCast(f, hn::Or(out, hn::ShiftLeft<24>(hn::Xor(bits, mag))));
  }
#endif

  static HWY_INLINE hn::Vec<S> narrow(hn::Vec<C> v) {
    const U u;
    const C f;
    const auto bits = hn::BitCast(u, v);
    const auto all = hn::And(bits, hn::Set(u, 0x7fffffffu));
    const auto mag = hn::Min(all, hn::Set(u, (kLargest << shift) + rebias));
    // Added to a power of two whose unit is that of the result, mag is rounded to it, ties to even. What is left of the sum is
    // the fraction with its hidden bit, which counts as one in the exponent; below the smallest normal there is neither.
    const auto exponent = hn::Max(hn::And(mag, hn::Set(u, 0x7f800000u)), hn::Set(u, smallest_normal));
    const auto unit = hn::Add(exponent, hn::Set(u, static_cast<uint32_t>(shift) << 23));
    const auto fraction = hn::Sub(hn::BitCast(u, hn::Add(hn::BitCast(f, mag), hn::BitCast(f, unit))), unit);
    auto out = hn::Add(hn::ShiftRight<shift>(hn::Sub(exponent, hn::Set(u, smallest_normal))), fraction);
    out = hn::Or(out, hn::And(hn::ShiftRight<24>(bits), hn::Set(u, 0x80)));
    out = hn::IfThenElse(hn::Gt(all, hn::Set(u, 0x7f800000u)), hn::Set(u, kNan), out);
    return hn::DemoteTo(S(), hn::BitCast(hn::RebindToSigned<U>(), out));
  }
};
using Float8E4m3 = Float8<3, 7, 0x7e, 0x7f>;
using Float8E5m2 = Float8<2, 15, 0x7b, 0x7e>;

// ---- reductions ----------------------------------------------------------------------------------------------------
struct Sum {
  template <class D> static HWY_INLINE hn::Vec<D> apply(D, hn::Vec<D> a, hn::Vec<D> b) { return hn::Add(a, b); }
};

struct Prod {
  template <class D> static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, static_cast<hn::TFromD<D>>(hn::GetLane(a) * hn::GetLane(b)));
#else
    if constexpr (sizeof(hn::TFromD<D>) == 1) { // no target multiplies bytes: even and odd ones as 16-bit lanes
      const hn::Repartition<uint16_t, D> w;
      const auto aw = hn::BitCast(w, a), bw = hn::BitCast(w, b);
      const auto even = hn::And(hn::Mul(aw, bw), hn::Set(w, 0xff));
      const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(aw), hn::ShiftRight<8>(bw)));
      return hn::BitCast(d, hn::Or(even, odd));
    } else {
      return hn::Mul(a, b);
    }
#endif
  }
};

// Max and Min in one: `larger` picks the side.
template <bool larger> struct Extreme {
  template <class D> static HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto pick = larger ? hn::Max(a, b) : hn::Min(a, b);
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
      // Equal operands differ at most in the sign of zero: AND keeps +0, OR keeps -0.
      const auto same = larger ? hn::And(a, b) : hn::Or(a, b);
      const auto nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
      const auto quiet = canonical_nan(d);
      return hn::IfThenElse(nan, quiet, hn::IfThenElse(hn::Eq(a, b), same, pick));
    } else {
      return pick;
    }
  }
  template <class D> static HWY_INLINE hn::Vec<D> canonical_nan(D d) {
    const hn::RebindToUnsigned<D> u;
    if constexpr (sizeof(hn::TFromD<D>) == 4)
      return hn::BitCast(d, hn::Set(u, 0x7fc00000u));
    else
      return hn::BitCast(d, hn::Set(u, uint64_t{0x7ff8} << 48));
  }
};
using Max = Extreme<true>;
using Min = Extreme<false>;

// Vectors of a (+) b, straight from memory; part() of the first n bytes.
template <class T, class Op> struct Pair {
  using S = typename T::S;
  static constexpr size_t width = vector_bytes<S>();
  static HWY_INLINE hn::Vec<S> at(const uint8_t *a, const uint8_t *b) {
    return T::narrow(Op::apply(typename T::C(), T::widen(load(S(), a)), T::widen(load(S(), b))));
  }
  static HWY_INLINE hn::Vec<S> part(const uint8_t *a, const uint8_t *b, size_t n) {
    return T::narrow(Op::apply(typename T::C(), T::widen(load_n(S(), a, n)), T::widen(load_n(S(), b, n))));
  }
};

// fn(element type of dtype), or a null Result for an unknown one. signs: whether the reduction tells signed from unsigned;
// otherwise they share the code of the unsigned type.
template <bool signs, class Result, class Fn> Result with_element(tutti_dtype dtype, Fn fn) {
  switch (dtype) {
  case TUTTI_DT_INT8:
    return fn(Plain<std::conditional_t<signs, int8_t, uint8_t>>());
  case TUTTI_DT_UINT8:
    return fn(Plain<uint8_t>());
  case TUTTI_DT_INT32:
    return fn(Plain<std::conditional_t<signs, int32_t, uint32_t>>());
  case TUTTI_DT_UINT32:
    return fn(Plain<uint32_t>());
  case TUTTI_DT_INT64:
    return fn(Plain<std::conditional_t<signs, int64_t, uint64_t>>());
  case TUTTI_DT_UINT64:
    return fn(Plain<uint64_t>());
  case TUTTI_DT_FLOAT16:
    return fn(Float16());
  case TUTTI_DT_FLOAT32:
    return fn(Plain<float>());
  case TUTTI_DT_FLOAT64:
    return fn(Plain<double>());
  case TUTTI_DT_BFLOAT16:
    return fn(Bfloat16());
  case TUTTI_DT_FLOAT8E4M3:
    return fn(Float8E4m3());
  case TUTTI_DT_FLOAT8E5M2:
    return fn(Float8E5m2());
  default:
    return nullptr;
  }
}

} // namespace tutti::plugin::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
