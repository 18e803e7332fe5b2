#include "proto_operands.h"
#include "base/types.h"
#include <cstring>

namespace tutti::conformance {
namespace {

template <class T> T combine(T a, T b, tutti_redop op) {
  switch (op) {
  case TUTTI_RED_SUM:
    return static_cast<T>(a + b);
  case TUTTI_RED_PROD:
    return static_cast<T>(a * b);
  case TUTTI_RED_MAX:
    return a > b ? a : b;
  default:
    return a < b ? a : b;
  }
}
// Small whole numbers as 16-bit floats: exact, so every correct kernel gives the same bits.
uint16_t half_of(unsigned v) {
  if (v == 0) return 0;
  unsigned e = 0;
  while (v >> (e + 1)) e++;
  return static_cast<uint16_t>((e + 15) << 10 | ((v << (10 - e)) & 0x3ff));
}
uint16_t bfloat_of(unsigned v) {
  const float f = static_cast<float>(v);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

template <class T> void fill_typed(Operands *o, size_t n, tutti_redop op, Random *random) {
  for (size_t i = 0; i < n; i++) {
    T x, y;
    if constexpr (std::is_floating_point_v<T>) {
      x = static_cast<T>(static_cast<double>(static_cast<int64_t>(random->next())) / 1e12);
      y = static_cast<T>(static_cast<double>(static_cast<int64_t>(random->next())) / 1e12);
    } else {
      const uint64_t ra = random->next(), rb = random->next();
      std::memcpy(&x, &ra, sizeof(T));
      std::memcpy(&y, &rb, sizeof(T));
    }
    T want;
    if constexpr (std::is_floating_point_v<T>) {
      want = combine(x, y, op);
    } else if (op == TUTTI_RED_SUM || op == TUTTI_RED_PROD) { // wraps; unsigned, so that it is defined
      want = static_cast<T>(combine<uint64_t>(static_cast<uint64_t>(x), static_cast<uint64_t>(y), op));
    } else {
      want = combine(x, y, op);
    }
    std::memcpy(&o->a[i * sizeof(T)], &x, sizeof(T));
    std::memcpy(&o->b[i * sizeof(T)], &y, sizeof(T));
    std::memcpy(&o->want[i * sizeof(T)], &want, sizeof(T));
  }
}
void fill_16(Operands *o, size_t n, tutti_redop op, uint16_t (*encode)(unsigned), Random *random) {
  for (size_t i = 0; i < n; i++) {
    const auto x = static_cast<unsigned>(random->below(12)), y = static_cast<unsigned>(random->below(12));
    const uint16_t values[3] = {encode(x), encode(y), encode(combine(x, y, op))};
    std::memcpy(&o->a[i * 2], &values[0], 2);
    std::memcpy(&o->b[i * 2], &values[1], 2);
    std::memcpy(&o->want[i * 2], &values[2], 2);
  }
}
// Of powers of two, whose sums have no more bits than the types do.
unsigned char e5m2_of(unsigned v) {
  return static_cast<unsigned char>(half_of(v) >> 8);
}
unsigned char e4m3_of(unsigned v) { // the exponent's bias is less by 8 than that of a half
  return static_cast<unsigned char>(v ? (half_of(v) >> 7) - (8 << 3) : 0);
}
void fill_8(Operands *o, size_t n, tutti_redop op, unsigned char (*encode)(unsigned), Random *random) {
  for (size_t i = 0; i < n; i++) {
    const unsigned x = 1u << random->below(4) >> 1, y = 1u << random->below(4) >> 1;
    o->a[i] = encode(x);
    o->b[i] = encode(y);
    o->want[i] = encode(combine(x, y, op));
  }
}

} // namespace

void narrow_number(tutti_dtype t, unsigned value, unsigned char *at) {
  if (t == TUTTI_DT_FLOAT8E4M3 || t == TUTTI_DT_FLOAT8E5M2) {
    *at = t == TUTTI_DT_FLOAT8E4M3 ? e4m3_of(value) : e5m2_of(value);
  } else {
    const uint16_t bits = t == TUTTI_DT_FLOAT16 ? half_of(value) : bfloat_of(value);
    std::memcpy(at, &bits, sizeof bits);
  }
}

Operands operands(tutti_dtype t, tutti_redop op, size_t n, Random *random) {
  const size_t bytes = n * dtype_bytes(t);
  Operands o{std::vector<unsigned char>(bytes + 1), std::vector<unsigned char>(bytes + 1),
             std::vector<unsigned char>(bytes + 1)};
  switch (t) {
  case TUTTI_DT_INT8:
    fill_typed<int8_t>(&o, n, op, random);
    break;
  case TUTTI_DT_UINT8:
    fill_typed<uint8_t>(&o, n, op, random);
    break;
  case TUTTI_DT_INT32:
    fill_typed<int32_t>(&o, n, op, random);
    break;
  case TUTTI_DT_UINT32:
    fill_typed<uint32_t>(&o, n, op, random);
    break;
  case TUTTI_DT_INT64:
    fill_typed<int64_t>(&o, n, op, random);
    break;
  case TUTTI_DT_UINT64:
    fill_typed<uint64_t>(&o, n, op, random);
    break;
  case TUTTI_DT_FLOAT32:
    fill_typed<float>(&o, n, op, random);
    break;
  case TUTTI_DT_FLOAT64:
    fill_typed<double>(&o, n, op, random);
    break;
  case TUTTI_DT_FLOAT16:
    fill_16(&o, n, op, half_of, random);
    break;
  case TUTTI_DT_FLOAT8E4M3:
    fill_8(&o, n, op, e4m3_of, random);
    break;
  case TUTTI_DT_FLOAT8E5M2:
    fill_8(&o, n, op, e5m2_of, random);
    break;
  default:
    fill_16(&o, n, op, bfloat_of, random);
    break;
  }
  return o;
}

} // namespace tutti::conformance
