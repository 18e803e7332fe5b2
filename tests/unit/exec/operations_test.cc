#include "base/types.h"
#include "world.h"
#include <doctest/doctest.h>
#include <numeric>

using namespace tutti;
using namespace tutti::test;

namespace {

// Small integers, so that sums are exact in every type and order.
float value(int rank, uint64_t i) {
  return static_cast<float>((i * 7 + static_cast<uint64_t>(rank) * 13) % 32);
}

struct Case {
  std::string algo;
  tutti_coll coll;
  int n;
  uint64_t count; // per block
  uint32_t slot, depth;
  bool in_place = false;
  uint32_t channels = 1, flags = 0;
  uint32_t offset = 0; // of the buffers from their alignment, bytes
  int root = -1;
};

// Wrong elements of one rank after running the case `times` times.
uint64_t run_case(const Case &c, int rank, Engine &engine, int times = 3) {
  const auto n = static_cast<uint32_t>(c.n);
  uint32_t flags = c.flags;
  const auto plan = plan_of(c.algo, PlanRequest::simple(c.coll, rank, c.n, c.root, c.channels, flags));
  Selection sel;
  sel.proto = simple_proto();
  sel.slot_bytes = c.slot;
  sel.depth = c.depth;
  const auto bound = engine.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
  if (!bound.ok()) {
    MESSAGE(bound.status().error().line());
    return 1000000;
  }
  const uint64_t in_count = c.count * coll_in_blocks(c.coll, n), out_count = c.count * coll_out_blocks(c.coll, n);
  std::vector<unsigned char> in_store(in_count * 4 + 64), out_store(out_count * 4 + 64);
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
    OpArgs a = args_of(*plan, source, out, c.count, TUTTI_DT_FLOAT32, 0, static_cast<uint64_t>(k) + 1);
    a.in_place = c.in_place;
    Status s;
    if (k % 2 == 0) {
      s = engine.run(*bound, a);
    } else {
      const auto seq = engine.enqueue(*bound, a);
      s = seq.ok() ? engine.wait(*seq) : seq.status();
    }
    if (!s.ok()) {
      MESSAGE(s.error().line());
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
      wrong += get(out, i) != want;
    }
  }
  return wrong;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  for (const char *algo : {"direct", "ring"})
    for (const int n : {2, 3, 5})
      for (const tutti_coll coll : {TUTTI_COLL_ALL_REDUCE, TUTTI_COLL_ALL_GATHER, TUTTI_COLL_REDUCE_SCATTER}) {
        out.push_back({algo, coll, n, 1, 4096, 4});
        out.push_back({algo, coll, n, 14, 64, 2});
        out.push_back({algo, coll, n, 1001, 256, 4, false, 1, many, 4});
        out.push_back({algo, coll, n, 5003, 1024, 8, coll != TUTTI_COLL_REDUCE_SCATTER, 2, many});
        out.push_back({algo, coll, n, 20000, 4096, 4, false, 3, many, 1});
      }
  for (const int n : {2, 4})
    for (const int root : {0, 1}) {
      out.push_back({"direct", TUTTI_COLL_ALL_TO_ALL, n, 777, 512, 4, false, 1, many});
      out.push_back({"direct", TUTTI_COLL_BROADCAST, n, 5000, 512, 4, false, 1, many, 0, root});
      out.push_back({"direct", TUTTI_COLL_REDUCE, n, 5000, 512, 4, false, 1, many, 0, root});
      out.push_back({"ring", TUTTI_COLL_BROADCAST, n, 5000, 512, 4, false, 2, many, 0, root});
      out.push_back({"ring", TUTTI_COLL_REDUCE, n, 5000, 512, 4, false, 2, many, 0, root});
    }
  return out;
}

} // namespace

TEST_CASE("collectives between threads give the same as arithmetic, at odd sizes, slices, channels and alignments") {
  for (const Case &c : cases()) {
    CAPTURE(c.algo);
    CAPTURE(c.coll);
    CAPTURE(c.n);
    CAPTURE(c.count);
    Threads world(c.n);
    std::vector<uint64_t> wrong(static_cast<size_t>(c.n));
    world.run([&](int r) { wrong[static_cast<size_t>(r)] = run_case(c, r, world.engine(r)); });
    for (const uint64_t w : wrong) REQUIRE(w == 0);
  }
}

TEST_CASE("collectives between processes give the same as arithmetic") {
  for (const int n : {2, 3})
    CHECK(forked(n, [n](int rank, Engine &engine) {
      for (const Case &c : cases())
        if (c.n == n && run_case(c, rank, engine) != 0) {
          std::fprintf(stderr, "%s coll %u count %lu\n", c.algo.c_str(), c.coll, static_cast<unsigned long>(c.count));
          return 1;
        }
      return 0;
    }));
}

TEST_CASE("collectives over a network give the same as arithmetic, small and large, staged and from user memory") {
  const auto net = registry().named<tutti_net_v1>(TUTTI_NET, "socket");
  REQUIRE(net.ok());
  const auto config = config_with({{"TUTTI_SHM_DISABLE", "1"}, {"TUTTI_TIMEOUT", "20s"}});
  const uint32_t many = TUTTI_REQ_MANY_SLICES;
  const std::vector<Case> list{
      {"direct", TUTTI_COLL_ALL_REDUCE, 3, 1, 4096, 4},
      {"direct", TUTTI_COLL_ALL_REDUCE, 3, 100001, 32768, 4, false, 1, many, 4},
      {"ring", TUTTI_COLL_ALL_REDUCE, 3, 60000, 16384, 4, true, 2, many},
      {"ring", TUTTI_COLL_ALL_GATHER, 3, 60000, 16384, 2, false, 1, many},
      {"ring", TUTTI_COLL_REDUCE_SCATTER, 3, 60000, 16384, 8, false, 1, many},
      {"direct", TUTTI_COLL_ALL_TO_ALL, 3, 60000, 16384, 4, false, 1, many},
      {"ring", TUTTI_COLL_BROADCAST, 3, 60000, 16384, 4, false, 2, many, 0, 1},
  };
  CHECK(forked(
      3,
      [&](int rank, Engine &engine) {
        for (const Case &c : list)
          if (run_case(c, rank, engine) != 0) {
            std::fprintf(stderr, "net: %s coll %u count %lu\n", c.algo.c_str(), c.coll, static_cast<unsigned long>(c.count));
            return 1;
          }
        return engine.link_class(rank ? 0 : 1) == LinkClass::net ? 0 : 2;
      },
      config, {}, *net));
}
