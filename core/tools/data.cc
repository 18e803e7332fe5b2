// Method. A total is chosen per element and cut into the ranks' shares by telescoping: share(q) = a(q) - a(q + 1) [+ total on
// one rank], with a() hashed. The shares sum to the total whatever a() is, so the expected result costs O(1) per element, not
// O(n).
//   floating sums   shares are integers times one power of two; the sum of their magnitudes stays within the mantissa, so every
//                   partial result in every order is exact.
//   floating prods  one rank gives a full mantissa, the others signed powers of two whose exponents telescope within range.
//   integers        arithmetic modulo 2^width is associative; averages keep within range, so that no partial sum wraps.
//   min, max        finite, normal, non-zero numbers: no NaN, and no pair of zeros that differ only in sign.
#include "tools/data.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tutti::data {
namespace {

constexpr int kPremul = tuttiNumOps;

uint64_t mix(uint64_t x) { // a bijection of 64-bit words that flips half of the bits for each bit of input
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ull;
  x = (x ^ (x >> 29)) * 0xc2b2ae3d27d4eb4full;
  return x ^ (x >> 32);
}
uint64_t draw(uint64_t h, uint64_t salt) {
  return mix(h + (salt + 1) * 0x9e3779b97f4a7c15ull);
}
// A number in [0, n).
uint64_t below(uint64_t h, uint64_t n) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(h) * n) >> 64);
}

// Salts of draws that do not belong to a rank; ranks use 0 .. nranks.
constexpr uint64_t kTotal = 1ull << 40, kRoot = kTotal + 1, kScale = kTotal + 2, kShift = kTotal + 3, kSign = kTotal + 4,
                   kMantissa = kTotal + 5;

// How totals of magnitude up to budget / 2 are cut over n ranks with all magnitudes adding up to at most budget.
struct Cut {
  uint64_t parts, limit, top;
  int nranks;
  Cut(int n, uint64_t budget)
      : parts(std::min<uint64_t>(static_cast<uint64_t>(n), std::max<uint64_t>(1, budget / 2))), limit(budget / 2 / parts),
        top(budget / 2), nranks(n) {}
  // The rank's place among those that contribute, or parts when it contributes nothing.
  uint64_t place(uint64_t h, int rank) const {
    const auto n = static_cast<uint64_t>(nranks), r = static_cast<uint64_t>(rank);
    if (parts == n) return r;
    return std::min((r + below(draw(h, kShift), n)) % n, parts);
  }
  int64_t wave(uint64_t h, uint64_t q) const {
    const uint64_t a = below(draw(h, q), limit + 1), b = below(draw(h, q + 1 == parts ? 0 : q + 1), limit + 1);
    return static_cast<int64_t>(a) - static_cast<int64_t>(b);
  }
  bool is_root(uint64_t h, uint64_t q) const { return q == below(draw(h, kRoot), parts); }
  int64_t total(uint64_t h) const { return static_cast<int64_t>(below(draw(h, kTotal), top + 1)); }
  int64_t signed_total(uint64_t h) const { return draw(h, kSign) & 1 ? -total(h) : total(h); }
  int64_t share(uint64_t h, int rank) const {
    const uint64_t q = place(h, rank);
    return q == parts ? 0 : wave(h, q) + (is_root(h, q) ? signed_total(h) : 0);
  }
};

// ---- floating formats: everything is computed as double and packed, exactly but for averages ----
// kTop: the bits of the least magnitude that is no finite number.
template <class Bits, int kExp, int kMan, uint64_t kTop = ((uint64_t{1} << kExp) - 1) << kMan> struct Format {
  using Store = Bits;
  static constexpr int precision = kMan + 1, bias = (1 << (kExp - 1)) - 1, mantissa = kMan, exponent = kExp;
  static constexpr int width = sizeof(Bits) * 8;
  static Bits pack(double v) { // round to nearest, ties to even
    if constexpr (kMan == 52)
      return std::bit_cast<uint64_t>(v);
    else if constexpr (kMan == 23)
      return std::bit_cast<uint32_t>(static_cast<float>(v));
    else {
      const uint64_t d = std::bit_cast<uint64_t>(v);
      const Bits sign = static_cast<Bits>((d >> 63) << (width - 1));
      if (v == 0) return sign;
      int e = std::max(std::ilogb(v), 1 - bias);
      double scaled = std::nearbyint(std::ldexp(std::fabs(v), kMan - e));
      if (scaled >= static_cast<double>(2ull << kMan)) scaled /= 2, e++;
      const auto m = static_cast<uint64_t>(scaled);
      // A subnormal has no hidden bit: exponent field 0 and m < 2^kMan fall out of the same sum.
      return static_cast<Bits>(sign | std::min((static_cast<uint64_t>(e + bias - 1) << kMan) + m, kTop));
    }
  }
  static double unpack(Bits b) {
    if constexpr (kMan == 52)
      return std::bit_cast<double>(b);
    else if constexpr (kMan == 23)
      return static_cast<double>(std::bit_cast<float>(b));
    else {
      const int e = (b >> kMan) & ((1 << kExp) - 1);
      const int m = b & ((1 << kMan) - 1);
      const double v = e == 0 ? std::ldexp(m, 1 - bias - kMan) : std::ldexp(m + (1 << kMan), e - bias - kMan);
      return b >> (width - 1) ? -v : v;
    }
  }
};
using E4m3 = Format<uint8_t, 4, 3, 0x7f>;
using E5m2 = Format<uint8_t, 5, 2>;
using Half = Format<uint16_t, 5, 10>;
using Bfloat = Format<uint16_t, 8, 7>;
using Single = Format<uint32_t, 8, 23>;
using Double = Format<uint64_t, 11, 52>;

constexpr double kPow2[] = {0.125, 0.25, 0.5, 1, 2, 4, 8};
double scale(uint64_t h) {
  return kPow2[below(draw(h, kScale), 7)];
}

// Small integers for the pre-multiplied sum: all magnitudes, doubled, fit the mantissa.
int64_t premul_share(uint64_t h, int nranks, int rank, uint64_t budget) {
  const uint64_t limit = budget / 2 / static_cast<uint64_t>(nranks);
  if (limit > 0)
    return static_cast<int64_t>(below(draw(h, static_cast<uint64_t>(rank)), 2 * limit + 1)) - static_cast<int64_t>(limit);
  const auto n = static_cast<uint64_t>(nranks);
  if ((static_cast<uint64_t>(rank) + below(draw(h, kShift), n)) % n >= budget / 2) return 0;
  return draw(h, static_cast<uint64_t>(rank)) & 1 ? 1 : -1;
}

template <class F> struct Floating {
  using Store = typename F::Store;
  static constexpr uint64_t budget = 1ull << F::precision;
  // Sum of |exponents| of a product.
  static constexpr uint64_t exponents = F::exponent == 4 ? 6 : F::exponent == 5 ? 12 : F::exponent == 8 ? 100 : 800;

  static Store ordinary(uint64_t h, int rank) { // any finite normal number
    const uint64_t b = draw(h, static_cast<uint64_t>(rank));
    const uint64_t e = 1 + below(draw(b, kScale), (1ull << F::exponent) - 2);
    const uint64_t sign = b >> 63;
    return static_cast<Store>((sign << (F::width - 1)) | (e << F::mantissa) | (b & ((1ull << F::mantissa) - 1)));
  }
  static double mantissa(uint64_t h) { // in [1, 2), all bits used
    return 1.0 + std::ldexp(static_cast<double>(draw(h, kMantissa) & ((1ull << F::mantissa) - 1)), -F::mantissa);
  }
  static Store in(uint64_t h, int op, int nranks, int rank, const Cut &sums, const Cut &prods) {
    switch (op) {
    case tuttiSum:
    case tuttiAvg:
      return F::pack(static_cast<double>(sums.share(h, rank)) * scale(h));
    case kPremul:
      return F::pack(static_cast<double>(premul_share(h, nranks, rank, budget)) * scale(h));
    case tuttiProd: {
      const auto n = static_cast<uint64_t>(nranks), r = static_cast<uint64_t>(rank);
      const uint64_t q = prods.place(h, rank);
      const auto e = static_cast<int>(q == prods.parts ? 0 : prods.wave(h, q));
      const bool root = r == below(draw(h, kRoot), n);
      bool negative = (draw(h, r) ^ draw(h, r + 1 == n ? 0 : r + 1)) & 1;
      if (root) negative ^= draw(h, kSign) & 1;
      const double v = std::ldexp(root ? mantissa(h) : 1.0, e);
      return F::pack(negative ? -v : v);
    }
    default:
      return ordinary(h, rank);
    }
  }
  static Store out(uint64_t h, int op, int nranks, const Cut &sums) {
    switch (op) {
    case tuttiSum:
      return F::pack(static_cast<double>(sums.signed_total(h)) * scale(h));
    case tuttiAvg:
      return F::pack(static_cast<double>(sums.signed_total(h)) * scale(h) / nranks);
    case kPremul: {
      int64_t sum = 0;
      for (int r = 0; r < nranks; r++) sum += premul_share(h, nranks, r, budget) * (r % 2 ? 2 : 1);
      return F::pack(static_cast<double>(sum) * scale(h));
    }
    case tuttiProd:
      return F::pack(draw(h, kSign) & 1 ? -mantissa(h) : mantissa(h));
    default: {
      double best = F::unpack(ordinary(h, 0));
      for (int r = 1; r < nranks; r++) {
        const double v = F::unpack(ordinary(h, r));
        best = op == tuttiMax ? std::max(best, v) : std::min(best, v);
      }
      return F::pack(best);
    }
    }
  }
};

template <class T> struct Integral {
  using Store = T;
  using U = std::make_unsigned_t<T>;
  static constexpr uint64_t budget = std::min<uint64_t>(std::numeric_limits<T>::max(), 1ull << 62);

  // A share of an average: >= 0 on all ranks or <= 0 on all ranks, so that no partial sum leaves the range.
  static int64_t average_share(uint64_t h, int rank, const Cut &cut) {
    const uint64_t q = cut.place(h, rank);
    if (q == cut.parts) return 0;
    return static_cast<int64_t>(cut.limit) + cut.wave(h, q) + (cut.is_root(h, q) ? cut.total(h) : 0);
  }
  static bool negative(uint64_t h) { return std::is_signed_v<T> && (draw(h, kSign) & 1); }
  static U factor(uint64_t h, int rank) { return static_cast<U>(draw(h, static_cast<uint64_t>(rank)) | 1); }
  static T in(uint64_t h, int op, int nranks, int rank, const Cut &sums, const Cut &) {
    const auto n = static_cast<uint64_t>(nranks), r = static_cast<uint64_t>(rank);
    switch (op) {
    case tuttiSum: {
      const uint64_t wave = draw(h, r) - draw(h, r + 1 == n ? 0 : r + 1);
      return static_cast<T>(wave + (r == below(draw(h, kRoot), n) ? draw(h, kTotal) : 0));
    }
    case tuttiAvg:
      return static_cast<T>(negative(h) ? -average_share(h, rank, sums) : average_share(h, rank, sums));
    case tuttiProd:
      return static_cast<T>(factor(h, rank)); // odd: products never decay to zero
    default:
      return static_cast<T>(draw(h, r));
    }
  }
  static T out(uint64_t h, int op, int nranks, const Cut &sums) {
    switch (op) {
    case tuttiSum:
      return static_cast<T>(draw(h, kTotal));
    case tuttiAvg: {
      const int64_t sum = static_cast<int64_t>(sums.parts * sums.limit) + sums.total(h);
      return static_cast<T>((negative(h) ? -sum : sum) / nranks);
    }
    case tuttiProd: {
      uint64_t product = 1;
      for (int r = 0; r < nranks; r++) product *= factor(h, r);
      return static_cast<T>(product);
    }
    case kPremul: {
      uint64_t sum = 0;
      for (int r = 0; r < nranks; r++) sum += draw(h, static_cast<uint64_t>(r)) * (r % 2 ? 2u : 1u);
      return static_cast<T>(sum);
    }
    default: {
      auto best = static_cast<T>(draw(h, 0));
      for (int r = 1; r < nranks; r++) {
        const auto v = static_cast<T>(draw(h, static_cast<uint64_t>(r)));
        best = op == tuttiMax ? std::max(best, v) : std::min(best, v);
      }
      return best;
    }
    }
  }
};

template <class Fn> auto dispatch(tuttiDataType_t type, Fn &&fn) {
  switch (type) {
  case tuttiInt8:
    return fn(Integral<int8_t>{});
  case tuttiInt32:
    return fn(Integral<int32_t>{});
  case tuttiUint32:
    return fn(Integral<uint32_t>{});
  case tuttiInt64:
    return fn(Integral<int64_t>{});
  case tuttiUint64:
    return fn(Integral<uint64_t>{});
  case tuttiFloat16:
    return fn(Floating<Half>{});
  case tuttiFloat32:
    return fn(Floating<Single>{});
  case tuttiFloat64:
    return fn(Floating<Double>{});
  case tuttiBfloat16:
    return fn(Floating<Bfloat>{});
  case tuttiFloat8e4m3:
    return fn(Floating<E4m3>{});
  case tuttiFloat8e5m2:
    return fn(Floating<E5m2>{});
  default:
    return fn(Integral<uint8_t>{});
  }
}

template <class K> constexpr uint64_t product_exponents(K) {
  return 2;
}
template <class F> constexpr uint64_t product_exponents(Floating<F>) {
  return Floating<F>::exponents;
}

uint64_t element_hash(uint64_t seed, uint64_t index) {
  return mix(mix(seed) + index * 0x9e3779b97f4a7c15ull);
}

// An order of the bit patterns in which neighbours are one unit in the last place apart.
template <class Store> int64_t ladder(Store b) {
  constexpr int width = sizeof(Store) * 8;
  const auto magnitude = static_cast<int64_t>(b & static_cast<Store>(~(Store{1} << (width - 1))));
  return b >> (width - 1) ? -magnitude : magnitude;
}

template <class F> uint64_t far_apart(const char *got, const char *want, size_t n) {
  using Store = typename F::Store;
  uint64_t wrong = 0;
  for (size_t i = 0; i < n; i++) {
    Store g, w;
    std::memcpy(&g, got + i * sizeof g, sizeof g);
    std::memcpy(&w, want + i * sizeof w, sizeof w);
    if (g != w && !(std::abs(ladder(g) - ladder(w)) <= 2 && std::isfinite(F::unpack(g)))) wrong++;
  }
  return wrong;
}

template <size_t kBytes> uint64_t different(const char *got, const char *want, size_t n) {
  uint64_t wrong = 0;
  for (size_t i = 0; i < n; i++) wrong += std::memcmp(got + i * kBytes, want + i * kBytes, kBytes) != 0;
  return wrong;
}

size_t element_bytes(tuttiDataType_t type) {
  return dispatch(type, [](auto kind) { return sizeof(typename decltype(kind)::Store); });
}

} // namespace

void input(void *out, size_t n, tuttiDataType_t type, int op, int nranks, int rank, uint64_t seed, uint64_t first) {
  dispatch(type, [&](auto kind) {
    using K = decltype(kind);
    using Store = typename K::Store;
    const Cut sums(nranks, K::budget), prods(nranks, product_exponents(kind));
    char *at = static_cast<char *>(out);
    for (size_t i = 0; i < n; i++, at += sizeof(Store)) {
      const uint64_t h = element_hash(seed, first + i);
      const Store v =
          op < 0 ? static_cast<Store>(draw(h, static_cast<uint64_t>(rank))) : K::in(h, op, nranks, rank, sums, prods);
      std::memcpy(at, &v, sizeof v); // `out` need not be aligned
    }
    return 0;
  });
}

void expected(void *out, size_t n, tuttiDataType_t type, int op, int nranks, uint64_t seed, uint64_t first) {
  dispatch(type, [&](auto kind) {
    using K = decltype(kind);
    const Cut sums(nranks, K::budget);
    char *at = static_cast<char *>(out);
    for (size_t i = 0; i < n; i++) {
      const auto v = K::out(element_hash(seed, first + i), op, nranks, sums);
      std::memcpy(at, &v, sizeof v);
      at += sizeof v;
    }
    return 0;
  });
}

uint64_t mismatches(const void *got, const void *want, size_t n, tuttiDataType_t type, int op, int) {
  const char *g = static_cast<const char *>(got), *w = static_cast<const char *>(want);
  const size_t bytes = element_bytes(type);
  if (n == 0 || std::memcmp(g, w, n * bytes) == 0) return 0;
  if (op == tuttiAvg) {
    if (type == tuttiFloat16) return far_apart<Half>(g, w, n);
    if (type == tuttiBfloat16) return far_apart<Bfloat>(g, w, n);
    if (type == tuttiFloat32) return far_apart<Single>(g, w, n);
    if (type == tuttiFloat64) return far_apart<Double>(g, w, n);
  }
  switch (bytes) {
  case 1:
    return different<1>(g, w, n);
  case 2:
    return different<2>(g, w, n);
  case 4:
    return different<4>(g, w, n);
  default:
    return different<8>(g, w, n);
  }
}

double premul_scalar(int rank) {
  return rank % 2 ? 2 : 1;
}

} // namespace tutti::data
