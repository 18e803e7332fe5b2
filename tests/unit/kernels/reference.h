// Scalar reference for the kernels: one element at a time, 16-bit floats through exact double arithmetic, 8-bit floats by
// search.
#pragma once
#include "base/types.h"
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace ref {

using Buf = std::vector<uint8_t>;

// Any narrow float format: `bits` of fraction, exponents from `emin`, largest finite value below `limit`.
struct Format {
  int bits, emin;
  double limit;      // smallest magnitude that rounds to infinity
  uint16_t infinity; // its encoding
};
inline constexpr Format half{10, -14, 65520.0, 0x7c00};
inline const Format bf16{7, -126, std::ldexp(2.0 - std::ldexp(1.0, -8), 127), 0x7f80};

inline float widen(const Format &f, uint16_t v) {
  const int frac = v & ((1 << f.bits) - 1), exp = (v & 0x7fff) >> f.bits, top = f.infinity >> f.bits;
  const double sign = v & 0x8000 ? -1.0 : 1.0;
  if (exp == top) return frac ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(sign * INFINITY);
  const double mant = exp ? (1 << f.bits) + frac : frac;
  return static_cast<float>(sign * std::ldexp(mant, f.emin - f.bits + (exp ? exp - 1 : 0)));
}

inline uint16_t narrow(const Format &f, float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  const double mag = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return static_cast<uint16_t>(sign | f.infinity | 1 << (f.bits - 1));
  if (mag >= f.limit) return sign | f.infinity;
  if (mag == 0) return sign;
  const int e = std::max(std::ilogb(mag), f.emin);
  const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(mag, f.bits - e)));        // ties to even
  return static_cast<uint16_t>(sign | ((static_cast<uint32_t>(e - f.emin) << f.bits) + units)); // a carry raises the exponent
}

// 8-bit floats: every pattern's value, by the formula of the OCP; the nearest of them by search, ties to the even pattern.
struct Float8 {
  int bits, bias;
  uint8_t largest, nan;
  double value(uint8_t v) const {
    const int mag = v & 0x7f, exp = mag >> bits, frac = mag & ((1 << bits) - 1);
    double x = exp ? std::ldexp((1 << bits) + frac, exp - bias - bits) : std::ldexp(frac, 1 - bias - bits);
    if (mag > largest) x = bits == 2 && frac == 0 ? INFINITY : std::numeric_limits<double>::quiet_NaN();
    return v & 0x80 ? -x : x;
  }
  uint8_t nearest(double x) const {
    if (std::isnan(x)) return nan;
    const double mag = std::fabs(x);
    uint8_t best = largest; // what is above it saturates
    for (int v = largest - 1; v >= 0 && mag < value(largest); --v) {
      const double here = mag - value(static_cast<uint8_t>(v)), there = value(best) - mag;
      if (here < there || (here == there && v % 2 == 0)) best = static_cast<uint8_t>(v);
      if (here >= 0) break;
    }
    return std::signbit(x) ? best | 0x80 : best;
  }
};
inline constexpr Float8 e4m3{3, 7, 0x7e, 0x7f}, e5m2{2, 15, 0x7b, 0x7e};
inline const Float8 *float8_of(tutti_dtype t) {
  return t == TUTTI_DT_FLOAT8E4M3 ? &e4m3 : t == TUTTI_DT_FLOAT8E5M2 ? &e5m2 : nullptr;
}

template <class T> T extreme(T a, T b, bool larger) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 0 && b == 0) return (std::signbit(a) == std::signbit(b)) == true ? a : (larger ? T(0) : -T(0));
  }
  return larger ? (a > b ? a : b) : (a < b ? a : b);
}

template <class T> T combine(tutti_redop op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const auto ua = static_cast<uint64_t>(static_cast<U>(a)), ub = static_cast<uint64_t>(static_cast<U>(b));
    if (op == TUTTI_RED_SUM) return static_cast<T>(ua + ub);
    if (op == TUTTI_RED_PROD) return static_cast<T>(ua * ub);
  } else {
    if (op == TUTTI_RED_SUM) return a + b;
    if (op == TUTTI_RED_PROD) return a * b;
  }
  return extreme(a, b, op == TUTTI_RED_MAX);
}

// out[i] = fold of all operands' element i, left to right.
template <class T> void fold(tutti_redop op, uint8_t *out, const std::vector<const uint8_t *> &operands, size_t i) {
  T acc, next;
  memcpy(&acc, operands[0] + i * sizeof(T), sizeof(T));
  for (size_t r = 1; r < operands.size(); ++r) {
    memcpy(&next, operands[r] + i * sizeof(T), sizeof(T));
    acc = combine(op, acc, next);
  }
  memcpy(out + i * sizeof(T), &acc, sizeof(T));
}
inline void fold16(const Format &f, tutti_redop op, uint8_t *out, const std::vector<const uint8_t *> &operands, size_t i) {
  float acc = 0;
  for (size_t r = 0; r < operands.size(); ++r) {
    uint16_t v;
    memcpy(&v, operands[r] + i * 2, 2);
    acc = r ? combine(op, acc, widen(f, v)) : widen(f, v);
  }
  const uint16_t v = narrow(f, acc);
  memcpy(out + i * 2, &v, 2);
}

inline void fold8(const Float8 &f, tutti_redop op, uint8_t *out, const std::vector<const uint8_t *> &operands, size_t i) {
  auto acc = static_cast<float>(f.value(operands[0][i]));
  for (size_t r = 1; r < operands.size(); ++r) acc = combine(op, acc, static_cast<float>(f.value(operands[r][i])));
  out[i] = f.nearest(acc);
}

inline Buf reduce(tutti_dtype dtype, tutti_redop op, const std::vector<const uint8_t *> &operands, size_t elements) {
  Buf out(elements * tutti::dtype_bytes(dtype));
  for (size_t i = 0; i < elements; ++i) switch (dtype) {
    case TUTTI_DT_INT8:
      fold<int8_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_UINT8:
      fold<uint8_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_INT32:
      fold<int32_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_UINT32:
      fold<uint32_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_INT64:
      fold<int64_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_UINT64:
      fold<uint64_t>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_FLOAT32:
      fold<float>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_FLOAT64:
      fold<double>(op, out.data(), operands, i);
      break;
    case TUTTI_DT_FLOAT16:
      fold16(half, op, out.data(), operands, i);
      break;
    case TUTTI_DT_BFLOAT16:
      fold16(bf16, op, out.data(), operands, i);
      break;
    case TUTTI_DT_FLOAT8E4M3:
    case TUTTI_DT_FLOAT8E5M2:
      fold8(*float8_of(dtype), op, out.data(), operands, i);
      break;
    }
  return out;
}

inline bool is_float(tutti_dtype t) {
  return t >= TUTTI_DT_FLOAT16;
}

inline bool is_nan(tutti_dtype t, const uint8_t *p) {
  uint16_t h;
  float f;
  double d;
  if (const Float8 *byte = float8_of(t)) return std::isnan(byte->value(*p));
  switch (t) {
  case TUTTI_DT_FLOAT16:
    return memcpy(&h, p, 2), (h & 0x7fff) > half.infinity;
  case TUTTI_DT_BFLOAT16:
    return memcpy(&h, p, 2), (h & 0x7fff) > bf16.infinity;
  case TUTTI_DT_FLOAT32:
    return memcpy(&f, p, 4), std::isnan(f);
  case TUTTI_DT_FLOAT64:
    return memcpy(&d, p, 8), std::isnan(d);
  default:
    return false;
  }
}

// Random bits; of float elements every fourth is a special value: zeros, infinities, NaNs, subnormals, extremes.
inline Buf data(tutti_dtype dtype, size_t elements, unsigned seed) {
  const size_t size = tutti::dtype_bytes(dtype);
  std::mt19937_64 rng(seed);
  Buf out(elements * size);
  for (auto &b : out) b = static_cast<uint8_t>(rng());
  if (!is_float(dtype) || float8_of(dtype)) return out; // of 8 bits every pattern comes up
  const int mant = dtype == TUTTI_DT_FLOAT16 ? 10 : dtype == TUTTI_DT_BFLOAT16 ? 7 : dtype == TUTTI_DT_FLOAT32 ? 23 : 52;
  const uint64_t inf = ((uint64_t{1} << (size * 8 - 1)) - 1) >> mant << mant;
  const uint64_t one = inf / 2 >> mant << mant;
  const uint64_t special[] = {
      0,      inf, inf | uint64_t{1} << (mant - 1), inf | 1, 1, (uint64_t{1} << mant) - 1, inf - 1, one, uint64_t{1} << mant,
      one + 1};
  for (size_t i = 0; i < elements; ++i) {
    uint64_t v;
    if (rng() % 4 == 0)
      v = special[rng() % 10] | (rng() % 2) << (size * 8 - 1);
    else if (rng() % 2)
      v = (one + rng() % (uint64_t{6} << mant)) | (rng() % 2) << (size * 8 - 1); // ordinary magnitudes
    else
      continue;
    memcpy(out.data() + i * size, &v, size);
  }
  return out;
}

// First element that differs, or -1. Sums and products may give any NaN.
inline long differs(tutti_dtype dtype, tutti_redop op, const uint8_t *got, const uint8_t *want, size_t bytes) {
  const size_t size = tutti::dtype_bytes(dtype);
  for (size_t i = 0; i < bytes; i += size) {
    if (memcmp(got + i, want + i, size) == 0) continue;
    if (op <= TUTTI_RED_PROD && is_nan(dtype, got + i) && is_nan(dtype, want + i)) continue;
    return static_cast<long>(i / size);
  }
  return -1;
}

} // namespace ref
