// A protocol that carries its signal in every 64-byte line: 56 bytes of payload, then the word.
#include "cases.h"
#include <doctest/doctest.h>

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr uint64_t kLine = 64, kPayload = 56;
std::atomic<uint64_t> calls[4]; // encode, decode, reduce, reduce and pass on

const uint8_t *line_of(const void *slot, uint64_t done) {
  return static_cast<const uint8_t *>(slot) + done / kPayload * kLine;
}
bool here(const void *slot, uint64_t done, uint64_t word) {
  return __atomic_load_n(reinterpret_cast<const uint64_t *>(line_of(slot, done) + kPayload), __ATOMIC_ACQUIRE) == word;
}
void put(void *slot, uint64_t done, const void *payload, uint64_t n, uint64_t word) {
  auto *line = const_cast<uint8_t *>(line_of(slot, done));
  std::memcpy(line, payload, n);
  __atomic_store_n(reinterpret_cast<uint64_t *>(line + kPayload), word, __ATOMIC_RELEASE);
}
void add(float *to, const void *a, const void *b, uint64_t n) {
  for (uint64_t i = 0; i < n / sizeof(float); i++) {
    float x, y;
    std::memcpy(&x, static_cast<const uint8_t *>(a) + 4 * i, 4);
    std::memcpy(&y, static_cast<const uint8_t *>(b) + 4 * i, 4);
    to[i] = x + y;
  }
}
void encode(void *slot, const void *src, uint64_t bytes, uint64_t word) noexcept {
  calls[0]++;
  for (uint64_t done = 0; done < bytes; done += kPayload)
    put(slot, done, static_cast<const uint8_t *>(src) + done, std::min(kPayload, bytes - done), word);
}
int32_t decode(const void *slot, void *dst, uint64_t bytes, uint64_t word, uint64_t *done) noexcept {
  calls[1]++;
  for (; *done < bytes; *done += std::min(kPayload, bytes - *done)) {
    if (!here(slot, *done, word)) return 0;
    std::memcpy(static_cast<uint8_t *>(dst) + *done, line_of(slot, *done), std::min(kPayload, bytes - *done));
  }
  return 1;
}
int32_t pass_on(const void *slot, const void *src, void *dst, void *next, uint64_t bytes, uint64_t word, uint64_t next_word,
                uint64_t *done) noexcept {
  for (uint64_t n = 0; *done < bytes; *done += n) {
    n = std::min(kPayload, bytes - *done);
    if (!here(slot, *done, word)) return 0;
    float sum[kPayload / sizeof(float)];
    add(sum, static_cast<const uint8_t *>(src) + *done, line_of(slot, *done), n);
    if (dst) std::memcpy(static_cast<uint8_t *>(dst) + *done, sum, n);
    if (next) put(next, *done, sum, n, next_word);
  }
  return 1;
}
int32_t reduce(const void *slot, const void *src, void *dst, uint64_t bytes, uint64_t word, uint64_t *done) noexcept {
  calls[2]++;
  return pass_on(slot, src, dst, nullptr, bytes, word, 0, done);
}
int32_t reduce2(const void *slot, const void *src, void *dst, void *next, uint64_t bytes, uint64_t word, uint64_t next_word,
                uint64_t *done) noexcept {
  calls[3]++;
  return pass_on(slot, src, dst, next, bytes, word, next_word, done);
}

template <bool Composed>
tutti_kernel kernel(void *, tutti_form form, tutti_dtype dtype, tutti_redop op, uint32_t flags) noexcept {
  const bool known = (flags & ~uint32_t{TUTTI_KERNEL_RECEIVED_FIRST}) == 0; // the tests add small integers: any order will do
  const bool sum = dtype == TUTTI_DT_FLOAT32 && op == TUTTI_RED_SUM && known && !Composed;
  switch (form) {
  case TUTTI_FORM_ENCODE:
    return reinterpret_cast<tutti_kernel>(encode);
  case TUTTI_FORM_DECODE:
    return reinterpret_cast<tutti_kernel>(decode);
  case TUTTI_FORM_DECODE_REDUCE:
    return sum ? reinterpret_cast<tutti_kernel>(reduce) : nullptr;
  case TUTTI_FORM_DECODE_REDUCE_ENCODE:
    return sum ? reinterpret_cast<tutti_kernel>(reduce2) : nullptr;
  default:
    return nullptr;
  }
}
// With all forms, and with the two that must be there: then the core composes the rest.
constexpr tutti_proto_v1 kFull{sizeof(tutti_proto_v1), TUTTI_SIGNAL_IN_DATA, "line", kLine, kPayload, kLine, kPayload,
                               kernel<false>};
constexpr tutti_proto_v1 kSmall{
    sizeof(tutti_proto_v1), TUTTI_SIGNAL_IN_DATA, "line", kLine, kPayload, kLine, kPayload, kernel<true>};

std::vector<Case> cases(const tutti_proto_v1 &proto, int n) {
  std::vector<Case> out;
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  for (const char *algo : {"direct", "ring"})
    for (const tutti_coll coll :
         {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER, TUTTI_COLL_BROADCAST, TUTTI_COLL_REDUCE})
      for (const uint64_t count : {uint64_t{1}, uint64_t{14}, uint64_t{15}, uint64_t{3001}}) {
        const bool rooted = coll == TUTTI_COLL_BROADCAST || coll == TUTTI_COLL_REDUCE;
        Case c{algo, coll, n, count, 448, 4, false, count > 100 ? 2u : 1u, count > 100 ? many : 0u, 4, rooted ? 1 : -1};
        c.proto = {nullptr, &proto};
        out.push_back(c);
        c.average = coll == TUTTI_COLL_ALL_REDUCE;
        if (c.average) out.push_back(c);
      }
  return out;
}

} // namespace

TEST_CASE("a protocol with its signal in the data gives the same as arithmetic, by its own kernels and by composed ones") {
  for (const tutti_proto_v1 *proto : {&kFull, &kSmall})
    for (const int n : {2, 3}) {
      for (const Case &c : cases(*proto, n)) REQUIRE(right_on_threads(c));
      CHECK(forked(n, [&](int rank, Engine &e) {
        for (const Case &c : cases(*proto, n))
          if (run_case(c, rank, e) != 0) return 1;
        return 0;
      }));
    }
  for (const auto &c : calls) CHECK(c > 0);
}

TEST_CASE("ranks that disagree under a protocol with its signal in the data are told both calls") {
  Threads world(2, config_with({{"TUTTI_TIMEOUT", "20s"}}));
  Status status[2];
  world.run([&](int r) {
    const auto plan = plan_of("direct", PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, r, 2));
    Selection sel;
    sel.proto = {nullptr, &kFull};
    sel.slot_bytes = 448;
    sel.depth = 4;
    const auto bound = world.engine(r).bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    std::vector<float> in(64), out(64);
    status[r] = world.engine(r).run(*bound, args_of(*plan, in.data(), out.data(), r ? 32 : 64, TUTTI_DT_FLOAT32, 0, 1));
  });
  for (const Status &s : status) {
    REQUIRE(!s.ok());
    CHECK(s.error().message == "rank 0 calls all_reduce #1 (64 float sum), rank 1 calls all_reduce #1 (32 float sum)");
  }
}
