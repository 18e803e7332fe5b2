// Two processes, all_reduce of float by the engine alone: no communicator above it. Medians of the slower rank, in
// microseconds.
//   engine_bench [bytes ...]
#include "../unit/exec/world.h"
#include <algorithm>
#include <cstdio>
#include <sys/mman.h>

using namespace tutti;
using namespace tutti::test;

namespace {

struct Choice {
  const char *algo;
  uint32_t slot, depth, flags, request;
};

// As exec-prototype measured: depth times slot about 1 MiB for the middle, larger slots above.
Choice choose(uint64_t bytes) {
  if (bytes <= 8192) return {"direct", static_cast<uint32_t>(std::max<uint64_t>(64, bytes)), 64, 0, 0};
  if (bytes <= 65536) return {"direct", 32768, 32, 0, TUTTI_REQ_MANY_SLICES};
  if (bytes <= 4u << 20) return {"direct", 131072, 4, 0, TUTTI_REQ_MANY_SLICES};
  return {"direct", bytes > (32u << 20) ? 262144u : 65536u, bytes > (32u << 20) ? 4u : 8u, TUTTI_CAND_NONTEMPORAL,
          TUTTI_REQ_MANY_SLICES};
}

struct Shared {
  alignas(128) std::atomic<uint64_t> arrived;
  alignas(128) double us[2];
};

void meet(Shared *s, uint64_t &round) {
  s->arrived.fetch_add(1);
  round += 2;
  while (s->arrived.load() < round) {
  }
}

int bench(int rank, Engine &e, Shared *s, const std::vector<uint64_t> &sizes) {
  uint64_t round = 0, number = 0;
  for (const uint64_t bytes : sizes) {
    const Choice c = choose(bytes);
    const auto plan = plan_of(c.algo, PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, 2, -1, 1, c.request));
    Selection sel{simple_proto(), c.slot, c.depth, c.flags};
    const auto bound = e.bind(plan, sel, TUTTI_DT_FLOAT32, TUTTI_RED_SUM);
    if (!bound.ok()) return 1;
    const uint64_t count = bytes / 4;
    auto *in = static_cast<float *>(std::aligned_alloc(4096, bytes + 4096)),
         *out = static_cast<float *>(std::aligned_alloc(4096, bytes + 4096));
    std::fill(in, in + count, 1.0f);
    std::fill(out, out + count, 0.0f);
    OpArgs a = args_of(*plan, in, out, count, TUTTI_DT_FLOAT32, 0, 1);
    const auto reps = static_cast<int>(std::clamp<uint64_t>(30'000'000 / (bytes + 300), 3, 20000));
    std::vector<double> all, queued;
    for (int block = 0; block < 13; block++) {
      const bool by_queue = block % 2;
      meet(s, round);
      const auto t0 = Clock::now();
      for (int i = 0; i < reps; i++) {
        a.call.number = ++number;
        if (!by_queue) {
          if (!e.run(*bound, a).ok()) return 2;
        } else {
          const auto seq = e.enqueue(*bound, a);
          if (!seq.ok() || !e.wait(*seq).ok()) return 3;
        }
      }
      s->us[rank] = std::chrono::duration<double, std::micro>(Clock::now() - t0).count() / reps;
      meet(s, round);
      (by_queue ? queued : all).push_back(std::max(s->us[0], s->us[1]));
    }
    if (out[count - 1] != 2.0f) return 4;
    std::sort(all.begin(), all.end());
    std::sort(queued.begin(), queued.end());
    if (rank == 0)
      std::printf("%11lu B  run %10.4f us (best %.4f)  enqueue+wait %10.4f us  %s %u x %u\n", static_cast<unsigned long>(bytes),
                  all[all.size() / 2], all[0], queued[queued.size() / 2], c.algo, c.depth, c.slot);
    std::fflush(stdout);
    std::free(in);
    std::free(out);
  }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<uint64_t> sizes{8, 64, 1024, 8192, 65536, 1u << 20, 16u << 20, 128u << 20};
  if (argc > 1) sizes.clear();
  for (int i = 1; i < argc; i++) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  auto *shared = static_cast<Shared *>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const bool good = forked(2, [&](int rank, Engine &e) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(rank, &one);
    ::sched_setaffinity(0, sizeof one, &one);
    return bench(rank, e, shared, sizes);
  });
  return good ? 0 : 1;
}
