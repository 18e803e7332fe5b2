// The crafted data keeps its promise: whatever the order of reduction, the bits are those of expected(). The arithmetic here is
// the test's own and rounds to the type after every operation, as the library does.
#include "tools/data.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <map>
#include <random>
#include <vector>

namespace {
using namespace tutti;

// Narrow formats by table: every bit pattern's value, and the pattern of every finite value. A value that is not in the table
// would have been rounded, which must not happen.
struct Table {
  std::vector<double> value = std::vector<double>(65536);
  std::map<double, uint16_t> bits;
  // finite: no infinities, and the highest exponent is one like the others but for its last fraction.
  Table(int exp_bits, int man_bits, bool finite = false) {
    const int bias = (1 << (exp_bits - 1)) - 1;
    const uint32_t sign = 1u << (exp_bits + man_bits), nan = sign - 1;
    for (uint32_t b = 0; b < 2 * sign; b++) {
      const int e = static_cast<int>(b >> man_bits) & ((1 << exp_bits) - 1);
      const double m = b & ((1u << man_bits) - 1u), one = 1 << man_bits;
      double v = e == 0 ? std::ldexp(m / one, 1 - bias) : std::ldexp(1 + m / one, e - bias);
      if (finite ? (b & nan) == nan : e == (1 << exp_bits) - 1) v = std::nan("");
      if (b & sign) v = -v;
      value[b] = v;
      if (std::isfinite(v) && b != sign) bits[v] = static_cast<uint16_t>(b);
    }
  }
};
const Table &half() {
  static const Table t(5, 10);
  return t;
}
const Table &bfloat() {
  static const Table t(8, 7);
  return t;
}
const Table &e4m3() {
  static const Table t(4, 3, true);
  return t;
}
const Table &e5m2() {
  static const Table t(5, 2);
  return t;
}

struct Inexact {};
uint64_t combine_bits(const Table &t, uint64_t a, uint64_t b, int op) {
  const double x = t.value[a], y = t.value[b];
  const double v = op == tuttiMax ? std::max(x, y) : op == tuttiMin ? std::min(x, y) : op == tuttiProd ? x * y : x + y;
  const auto at = t.bits.find(v);
  if (at == t.bits.end()) throw Inexact{};
  return at->second;
}
template <class T> uint64_t combine_as(uint64_t a, uint64_t b, int op) {
  if constexpr (std::is_floating_point_v<T>) {
    using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    const T x = std::bit_cast<T>(static_cast<U>(a)), y = std::bit_cast<T>(static_cast<U>(b));
    const T v = op == tuttiMax ? std::max(x, y) : op == tuttiMin ? std::min(x, y) : op == tuttiProd ? x * y : x + y;
    return std::bit_cast<U>(v);
  } else {
    using U = std::make_unsigned_t<T>;
    const T x = static_cast<T>(a), y = static_cast<T>(b);
    if (op == tuttiMax) return static_cast<U>(std::max(x, y));
    if (op == tuttiMin) return static_cast<U>(std::min(x, y));
    return static_cast<U>(op == tuttiProd ? a * b : a + b);
  }
}
uint64_t combine(tuttiDataType_t type, uint64_t a, uint64_t b, int op) {
  switch (type) {
  case tuttiInt8:
    return combine_as<int8_t>(a, b, op);
  case tuttiUint8:
    return combine_as<uint8_t>(a, b, op);
  case tuttiInt32:
    return combine_as<int32_t>(a, b, op);
  case tuttiUint32:
    return combine_as<uint32_t>(a, b, op);
  case tuttiInt64:
    return combine_as<int64_t>(a, b, op);
  case tuttiUint64:
    return combine_as<uint64_t>(a, b, op);
  case tuttiFloat16:
    return combine_bits(half(), a, b, op);
  case tuttiBfloat16:
    return combine_bits(bfloat(), a, b, op);
  case tuttiFloat8e4m3:
    return combine_bits(e4m3(), a, b, op);
  case tuttiFloat8e5m2:
    return combine_bits(e5m2(), a, b, op);
  case tuttiFloat32:
    return combine_as<float>(a, b, op);
  default:
    return combine_as<double>(a, b, op);
  }
}
size_t bytes_of(tuttiDataType_t t) {
  static constexpr size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[t];
}
// Division by n of a sum's bits, for averages.
double as_number(tuttiDataType_t type, uint64_t bits) {
  switch (type) {
  case tuttiInt8:
    return static_cast<int8_t>(bits);
  case tuttiInt32:
    return static_cast<int32_t>(bits);
  case tuttiFloat16:
    return half().value[bits];
  case tuttiBfloat16:
    return bfloat().value[bits];
  case tuttiFloat8e4m3:
    return e4m3().value[bits];
  case tuttiFloat8e5m2:
    return e5m2().value[bits];
  case tuttiFloat32:
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  case tuttiFloat64:
    return std::bit_cast<double>(bits);
  default:
    return static_cast<double>(bits);
  }
}

std::vector<uint64_t> load(const std::vector<char> &raw, size_t bytes) {
  std::vector<uint64_t> out(raw.size() / bytes, 0);
  for (size_t i = 0; i < out.size(); i++) std::memcpy(&out[i], raw.data() + i * bytes, bytes);
  return out;
}
std::vector<uint64_t> rank_input(tuttiDataType_t type, int op, int n, int rank, size_t count, uint64_t first = 0) {
  std::vector<char> raw(count * bytes_of(type));
  data::input(raw.data(), count, type, op, n, rank, 42, first);
  return load(raw, bytes_of(type));
}
std::vector<uint64_t> wanted(tuttiDataType_t type, int op, int n, size_t count, uint64_t first = 0) {
  std::vector<char> raw(count * bytes_of(type));
  data::expected(raw.data(), count, type, op, n, 42, first);
  return load(raw, bytes_of(type));
}

// Reduces in a random order over a random tree.
uint64_t reduce_any_order(tuttiDataType_t type, int op, std::vector<uint64_t> parts, std::mt19937 &rng, int kind) {
  if (kind == 1) std::reverse(parts.begin(), parts.end());
  if (kind >= 2) std::shuffle(parts.begin(), parts.end(), rng);
  while (parts.size() > 1) {
    const size_t at = kind <= 2 ? 0 : rng() % (parts.size() - 1);
    parts[at] = combine(type, parts[at], parts[at + 1], op);
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at + 1));
  }
  return parts[0];
}

constexpr int kPremul = tuttiNumOps;
uint64_t premultiplied(tuttiDataType_t type, uint64_t bits, int rank) {
  return data::premul_scalar(rank) == 2 ? combine(type, bits, bits, tuttiSum) : bits; // x + x is 2x, exactly
}

const std::vector<int> kRanks{1, 2, 3, 4, 7, 8, 16, 33, 64, 129, 300};

} // namespace

TEST_CASE("every order of reduction gives the expected bits, for all types, operators and numbers of ranks") {
  std::mt19937 rng(1);
  for (int t = 0; t < tuttiNumTypes; t++)
    for (int op : {int(tuttiSum), int(tuttiProd), int(tuttiMax), int(tuttiMin), kPremul})
      for (int n : kRanks) {
        const auto type = static_cast<tuttiDataType_t>(t);
        const size_t count = n > 64 ? 12 : 40;
        CAPTURE(t);
        CAPTURE(op);
        CAPTURE(n);
        std::vector<std::vector<uint64_t>> in;
        for (int r = 0; r < n; r++) in.push_back(rank_input(type, op, n, r, count));
        const auto want = wanted(type, op, n, count);
        int wrong = 0;
        for (size_t i = 0; i < count; i++)
          for (int kind = 0; kind < 6; kind++) {
            std::vector<uint64_t> parts;
            for (int r = 0; r < n; r++)
              parts.push_back(op == kPremul ? premultiplied(type, in[size_t(r)][i], r) : in[size_t(r)][i]);
            try {
              wrong += reduce_any_order(type, op == kPremul ? int(tuttiSum) : op, parts, rng, kind) != want[i];
            } catch (const Inexact &) {
              wrong++;
            }
          }
        CHECK(wrong == 0);
      }
}

TEST_CASE("averages are exact sums divided once, and no partial sum of integers leaves its type") {
  std::mt19937 rng(2);
  for (auto type : {tuttiInt8, tuttiUint8, tuttiInt32, tuttiUint32, tuttiFloat16, tuttiBfloat16, tuttiFloat32, tuttiFloat64,
                    tuttiFloat8e4m3, tuttiFloat8e5m2})
    for (int n : kRanks) {
      CAPTURE(int(type));
      CAPTURE(n);
      std::vector<std::vector<uint64_t>> in;
      for (int r = 0; r < n; r++) in.push_back(rank_input(type, tuttiAvg, n, r, 24));
      const auto want = wanted(type, tuttiAvg, n, 24);
      for (size_t i = 0; i < 24; i++) {
        std::vector<uint64_t> parts;
        double exact = 0;
        for (int r = 0; r < n; r++) parts.push_back(in[size_t(r)][i]), exact += as_number(type, in[size_t(r)][i]);
        const uint64_t sum = reduce_any_order(type, tuttiSum, parts, rng, 3);
        CHECK(as_number(type, sum) == exact);
        const double mean = exact / n, got = as_number(type, want[i]);
        const bool integer = type < tuttiFloat16;
        const double precision = type == tuttiFloat16      ? 0x1p-11
                                 : type == tuttiBfloat16   ? 0x1p-8
                                 : type == tuttiFloat32    ? 0x1p-24
                                 : type == tuttiFloat8e4m3 ? 0x1p-4
                                 : type == tuttiFloat8e5m2 ? 0x1p-3
                                                           : 0;
        const double subnormal = type == tuttiFloat8e4m3 ? 0x1p-10 : type == tuttiFloat8e5m2 ? 0x1p-17 : 0; // half its unit
        if (integer)
          CHECK(got == std::trunc(mean));
        else
          CHECK(std::fabs(got - mean) <= std::max(std::fabs(mean) * precision, subnormal));
      }
    }
}

TEST_CASE("any part of the data can be made alone") {
  for (int t = 0; t < tuttiNumTypes; t++)
    for (int op : {-1, int(tuttiSum), int(tuttiProd), int(tuttiAvg)}) {
      const auto type = static_cast<tuttiDataType_t>(t);
      const auto whole = rank_input(type, op, 4, 2, 100), part = rank_input(type, op, 4, 2, 30, 50);
      CHECK(std::equal(part.begin(), part.end(), whole.begin() + 50));
      if (op < 0) continue;
      const auto all = wanted(type, op, 4, 100), some = wanted(type, op, 4, 30, 50);
      CHECK(std::equal(some.begin(), some.end(), all.begin() + 50));
    }
}

TEST_CASE("a lost, doubled or foreign contribution is seen within a few elements") {
  for (auto type :
       {tuttiInt8, tuttiInt32, tuttiFloat16, tuttiBfloat16, tuttiFloat32, tuttiFloat64, tuttiFloat8e4m3, tuttiFloat8e5m2})
    for (int op : {int(tuttiSum), kPremul}) {
      const int n = 4;
      const size_t count = 64;
      CAPTURE(int(type));
      CAPTURE(op);
      std::vector<char> want(count * bytes_of(type));
      data::expected(want.data(), count, type, op, n, 42, 0);
      for (int lost = 0; lost < n; lost++) {
        std::vector<char> got(count * bytes_of(type));
        for (size_t i = 0; i < count; i++) {
          uint64_t sum = 0;
          for (int r = 0; r < n; r++) {
            if (r == lost) continue;
            const uint64_t v = rank_input(type, op, n, r, 1, i)[0];
            sum = combine(type, sum, op == kPremul ? premultiplied(type, v, r) : v, tuttiSum);
          }
          std::memcpy(got.data() + i * bytes_of(type), &sum, bytes_of(type));
        }
        CHECK(data::mismatches(got.data(), want.data(), count, type, op, n) > count / 2);
      }
    }
}

TEST_CASE("mismatches counts elements, and forgives two units in the last place of floating averages only") {
  float want[4] = {1.0f, -2.5f, 0.0f, 1e10f}, got[4];
  std::memcpy(got, want, sizeof got);
  CHECK(data::mismatches(got, want, 4, tuttiFloat32, tuttiSum, 2) == 0);
  for (float &v : got) v = std::nextafter(std::nextafter(v, 1e30f), 1e30f);
  CHECK(data::mismatches(got, want, 4, tuttiFloat32, tuttiSum, 2) == 4);
  CHECK(data::mismatches(got, want, 4, tuttiFloat32, tuttiAvg, 2) == 0);
  got[2] = std::nextafter(got[2], 1e30f);
  got[1] = std::nanf("");
  CHECK(data::mismatches(got, want, 4, tuttiFloat32, tuttiAvg, 2) == 2);
}

TEST_CASE("unaligned buffers and empty ranges are fine") {
  std::vector<char> raw(81), aligned(80);
  data::input(raw.data() + 1, 10, tuttiFloat64, tuttiSum, 3, 1, 7, 0);
  data::input(aligned.data(), 10, tuttiFloat64, tuttiSum, 3, 1, 7, 0);
  CHECK(std::memcmp(raw.data() + 1, aligned.data(), 80) == 0);
  CHECK(data::mismatches(raw.data() + 1, aligned.data(), 0, tuttiFloat64, tuttiSum, 3) == 0);
}
