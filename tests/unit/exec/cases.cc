#include "cases.h"
#include "base/types.h"
#include <bit>
#include <cstdio>

namespace tutti::test {
namespace {

// Small integers, so that sums are exact in every type and order.
float value(int rank, uint64_t i) {
  return static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13) % 32);
}

// A buffer as tuttiCommRegister has it, until the end of the case.
class Kept {
public:
  Kept(Engine &engine, const std::vector<unsigned char> &buffer, bool kept)
      : engine_(engine), number_(reinterpret_cast<uintptr_t>(buffer.data())), kept_(kept) {
    if (kept_) engine_.keep(number_, buffer.data(), buffer.size());
  }
  Kept(const Kept &) = delete;
  Kept &operator=(const Kept &) = delete;
  ~Kept() {
    if (kept_) (void)engine_.forget(number_);
  }

private:
  Engine &engine_;
  uint64_t number_;
  bool kept_;
};

} // namespace

uint64_t run_case(const Case &c, int rank, Engine &engine, int times) {
  const auto n = static_cast<uint32_t>(c.n);
  const auto plan = plan_of(c.algo, PlanRequest::simple(c.coll, rank, c.n, c.root, c.channels, c.flags & kRequestFlags));
  Selection sel;
  sel.proto = c.proto ? c.proto : simple_proto();
  sel.slot_bytes = c.slot;
  sel.depth = std::max(c.depth, std::bit_ceil(plan->min_depth));
  sel.flags = c.flags & kNonTemporal ? uint32_t(TUTTI_CAND_NONTEMPORAL) : 0u;
  const auto bound = engine.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  if (!bound.ok()) {
    std::fprintf(stderr, "%s\n", bound.status().error().line().c_str());
    return 1000000;
  }
  const uint64_t in_count = c.count * coll_in_blocks(c.coll, n), out_count = c.count * coll_out_blocks(c.coll, n);
  std::vector<unsigned char> in_store(in_count * 4 + 64), out_store(out_count * 4 + 64);
  const Kept in_kept(engine, in_store, c.registered), out_kept(engine, out_store, c.registered);
  auto *in = reinterpret_cast<float *>(in_store.data() + c.offset),
       *out = reinterpret_cast<float *>(out_store.data() + c.offset);
  const auto put = [](float *p, uint64_t i, float v) { std::memcpy(reinterpret_cast<char *>(p) + 4 * i, &v, 4); };
  const auto get = [](const float *p, uint64_t i) {
    float v;
    std::memcpy(&v, reinterpret_cast<const char *>(p) + 4 * i, 4);
    return v;
  };
  uint64_t wrong = 0;
  for (int k = 0; k < times; k++) {
    const void *source = in;
    if (c.in_place) source = out;
    if (c.in_place && c.coll == TUTTI_COLL_ALL_GATHER) source = out + c.count * static_cast<uint64_t>(rank);
    for (uint64_t i = 0; i < out_count; i++) put(out, i, -1);
    for (uint64_t i = 0; i < in_count; i++)
      put(static_cast<float *>(const_cast<void *>(source)), i, value(rank, i + static_cast<uint64_t>(k)));
    OpArgs a = args_of(*plan, source, out, c.count, TUTTI_DT_FLOAT32, 0, engine.enqueued() + 1); // never twice: ranks compare
    a.in_place = c.in_place;
    const auto factor = static_cast<float>(c.factor);
    if (c.factor) a.preop_factor = &factor;
    if (c.average) a.postop_divisor = n;
    a.call.op = c.average ? 4 : c.factor ? 5 : 0; // as the API numbers them
    Status s;
    if (k % 2 == 0) {
      s = engine.run(*bound, a);
    } else {
      const auto seq = engine.enqueue(*bound, a);
      s = seq.ok() ? engine.wait(*seq) : seq.status();
    }
    if (!s.ok()) {
      std::fprintf(stderr, "%s\n", s.error().line().c_str());
      return 2000000;
    }
    for (uint64_t i = 0; i < out_count; i++) {
      const uint64_t block = i / std::max<uint64_t>(1, c.count), at = i % std::max<uint64_t>(1, c.count),
                     shift = static_cast<uint64_t>(k);
      float want = 0;
      switch (c.coll) {
      case TUTTI_COLL_ALL_REDUCE:
        for (int r = 0; r < c.n; r++) want += value(r, at + shift);
        break;
      case TUTTI_COLL_REDUCE_SCATTER:
        for (int r = 0; r < c.n; r++) want += value(r, at + c.count * static_cast<uint64_t>(rank) + shift);
        break;
      case TUTTI_COLL_ALL_GATHER:
        want = value(static_cast<int>(block), at + shift);
        break;
      case TUTTI_COLL_GATHER:
        want = rank == c.root ? value(static_cast<int>(block), at + shift) : get(out, i);
        break;
      case TUTTI_COLL_SCATTER:
        want = value(c.root, at + c.count * static_cast<uint64_t>(rank) + shift);
        break;
      case TUTTI_COLL_ALL_TO_ALL:
        want = value(static_cast<int>(block), at + c.count * static_cast<uint64_t>(rank) + shift);
        break;
      case TUTTI_COLL_BROADCAST:
        want = value(c.root, at + shift);
        break;
      case TUTTI_COLL_REDUCE:
        for (int r = 0; r < c.n; r++) want += value(r, at + shift);
        if (rank != c.root) want = get(out, i);
        break;
      default:
        want = get(out, i);
      }
      if (c.factor && coll_reduces(c.coll) && (c.coll != TUTTI_COLL_REDUCE || rank == c.root)) want *= factor;
      if (c.average && (c.coll != TUTTI_COLL_REDUCE || rank == c.root)) want /= static_cast<float>(n);
      wrong += get(out, i) != want;
    }
  }
  return wrong;
}

bool right_on_threads(const Case &c, bool mixed) {
  Threads world(c.n, nullptr, 1, {}, false, mixed);
  std::atomic<uint64_t> wrong{0};
  world.run([&](int r) { wrong += run_case(c, r, world.engine(r)); });
  if (wrong)
    std::fprintf(stderr, "%s coll %u, %d ranks, count %lu\n", c.algo.c_str(), c.coll, c.n, static_cast<unsigned long>(c.count));
  return wrong == 0;
}

} // namespace tutti::test
