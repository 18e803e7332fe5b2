#include "fold.h"
#include "ring.h"
#include "wire.h"
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>

using namespace tutti::aggd;

namespace {
std::vector<float> rough(uint32_t seed, size_t n) {
  std::vector<float> out(n);
  for (float &f : out) {
    seed = seed * 1664525u + 1013904223u;
    f = std::ldexp(static_cast<float>(static_cast<int32_t>(seed)), static_cast<int>(seed % 40) - 40);
  }
  return out;
}
} // namespace

TEST_CASE("a vector folded in pieces of any size has the bits of one folded at once, in the order of operands") {
  const size_t n = 10'007;
  const std::vector<float> a = rough(1, n), b = rough(2, n), c = rough(3, n);
  std::vector<float> want(n), got(n);
  for (size_t i = 0; i < n; i++) want[i] = (a[i] + b[i]) + c[i];
  Folder folder;
  for (const size_t piece : {1u, 7u, 64u, 1000u, 10'007u}) {
    for (size_t at = 0; at < n; at += piece) {
      const auto p = [&](const std::vector<float> &v) {
        return Operand{reinterpret_cast<const uint8_t *>(v.data() + at), false};
      };
      const Operand operands[] = {p(a), p(b), p(c)};
      folder.fold(TUTTI_DT_FLOAT32, TUTTI_RED_SUM, operands, reinterpret_cast<uint8_t *>(got.data() + at), false,
                  std::min(piece, n - at));
    }
    CHECK(std::memcmp(got.data(), want.data(), n * 4) == 0);
  }
}

TEST_CASE("narrow floats folded by way of float32 partial results have the bits of a fold at once") {
  for (const tutti_dtype type : {TUTTI_DT_FLOAT16, TUTTI_DT_BFLOAT16, TUTTI_DT_FLOAT8E4M3, TUTTI_DT_FLOAT8E5M2}) {
    const size_t n = 9001, element = element_bytes(static_cast<uint8_t>(type));
    std::vector<std::vector<uint8_t>> in(3, std::vector<uint8_t>(n * element));
    for (size_t r = 0; r < 3; r++) {
      const std::vector<float> values = rough(static_cast<uint32_t>(r) + 9, n);
      std::vector<float> small(n);
      for (size_t i = 0; i < n; i++) small[i] = std::fmod(values[i], 16.0f);
      narrow(type, in[r].data(), small.data(), n);
    }
    Folder folder;
    std::vector<uint8_t> want(n * element), got(n * element), partial(n * 4);
    const Operand all[] = {{in[0].data(), false}, {in[1].data(), false}, {in[2].data(), false}};
    folder.fold(type, TUTTI_RED_SUM, all, want.data(), false, n);
    folder.fold(type, TUTTI_RED_SUM, std::span(all).first(2), partial.data(), true, n);
    const Operand two[] = {{partial.data(), true}, {in[2].data(), false}};
    folder.fold(type, TUTTI_RED_SUM, two, got.data(), false, n);
    CHECK(got == want);
  }
}

TEST_CASE("one operand is passed on as it is") {
  std::vector<uint8_t> in{1, 2, 3, 4, 5, 6, 7, 8}, out(8);
  Folder folder;
  const Operand one[] = {{in.data(), false}};
  folder.fold(TUTTI_DT_FLOAT64, TUTTI_RED_SUM, one, out.data(), false, 1);
  CHECK(out == in);
}

TEST_CASE("what wraps around the end of a ring is contiguous") {
  auto made = Ring::make(65536);
  REQUIRE(made.ok());
  Ring ring = std::move(*made);
  CHECK(ring.capacity() == 65536);
  ring.head = ring.tail = 65536 * 3 + 65530;
  std::memcpy(ring.at(ring.head), "0123456789", 10);
  ring.head += 10;
  CHECK(ring.used() == 10);
  CHECK(ring.room() == 65526);
  CHECK(std::memcmp(ring.at(ring.tail), "0123456789", 10) == 0);
  CHECK(*ring.at(65536 * 4) == '6');
}
