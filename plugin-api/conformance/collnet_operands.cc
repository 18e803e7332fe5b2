// Operands and results of reductions by many members.
#include "base/types.h"
#include "collnet_bench.h"
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace tutti::conformance {
namespace {

bool is_float(tutti_dtype t) {
  return t >= TUTTI_DT_FLOAT16;
}

template <class T> void put(T value, unsigned char *at) {
  std::memcpy(at, &value, sizeof value);
}

// Small enough that no fold of three rounds in any type, with a sign, and without a zero among factors: it might be negative.
int small_number(tutti_redop op, Random &random) {
  const auto below = [&](uint64_t n) { return static_cast<int>(random.below(n)); };
  if (op == TUTTI_RED_SUM) return below(5) - 2;
  if (op == TUTTI_RED_PROD) return (below(2) ? 1 : -1) * (1 + below(2));
  return below(15) - 7;
}
int combine(int a, int b, tutti_redop op) {
  if (op == TUTTI_RED_SUM) return a + b;
  if (op == TUTTI_RED_PROD) return a * b;
  return op == TUTTI_RED_MAX ? std::max(a, b) : std::min(a, b);
}

// Integers wrap; so that it is defined, unsigned ones of 64 bits, of which the lower part is kept.
template <class T> void combine_into(unsigned char *into, const unsigned char *with, tutti_redop op) {
  T a, b;
  std::memcpy(&a, into, sizeof a);
  std::memcpy(&b, with, sizeof b);
  using Unsigned = std::make_unsigned_t<T>;
  const uint64_t x = static_cast<Unsigned>(a), y = static_cast<Unsigned>(b);
  const T out = op == TUTTI_RED_SUM    ? static_cast<T>(x + y)
                : op == TUTTI_RED_PROD ? static_cast<T>(x * y)
                : op == TUTTI_RED_MAX  ? std::max(a, b)
                                       : std::min(a, b);
  put(out, into);
}

using Combine = void (*)(unsigned char *, const unsigned char *, tutti_redop);
Combine combine_of(tutti_dtype t) {
  switch (t) {
  case TUTTI_DT_INT8:
    return combine_into<int8_t>;
  case TUTTI_DT_UINT8:
    return combine_into<uint8_t>;
  case TUTTI_DT_INT32:
    return combine_into<int32_t>;
  case TUTTI_DT_UINT32:
    return combine_into<uint32_t>;
  case TUTTI_DT_INT64:
    return combine_into<int64_t>;
  default:
    return combine_into<uint64_t>;
  }
}

} // namespace

void put_number(tutti_dtype t, int value, unsigned char *at) {
  if (t < TUTTI_DT_FLOAT16) {
    const auto wide = static_cast<int64_t>(value);
    std::memcpy(at, &wide, dtype_bytes(t)); // little endian
  } else if (t == TUTTI_DT_FLOAT32) {
    put(static_cast<float>(value), at);
  } else if (t == TUTTI_DT_FLOAT64) {
    put(static_cast<double>(value), at);
  } else {
    narrow_number(t, static_cast<unsigned>(std::abs(value)), at);
    if (value < 0) at[dtype_bytes(t) - 1] |= 0x80;
  }
}

Gathered gathered(tutti_dtype t, tutti_redop op, size_t members, uint64_t bytes, Random &random) {
  Gathered g{std::vector<std::vector<unsigned char>>(members, std::vector<unsigned char>(bytes)), {}};
  const uint32_t element = dtype_bytes(t);
  if (!is_float(t)) {
    for (auto &in : g.in) random.fill(in.data(), bytes);
    g.want = g.in[0];
    for (size_t m = 1; m < members; m++)
      for (uint64_t i = 0; i < bytes; i += element) combine_of(t)(g.want.data() + i, g.in[m].data() + i, op);
    return g;
  }
  g.want.resize(bytes);
  for (uint64_t i = 0; i < bytes; i += element) {
    int all = 0;
    for (size_t m = 0; m < members; m++) {
      const int v = small_number(op, random);
      put_number(t, v, g.in[m].data() + i);
      all = m == 0 ? v : combine(all, v, op);
    }
    put_number(t, all, g.want.data() + i);
  }
  return g;
}

} // namespace tutti::conformance
