// tests/perf/tutti_bench.cc: this library in the loop of bench_loop.h. tutti_bench MEET-FILE RANK RANKS OP SIZES RUNS TARGET-MS
// [library] library: buffers from tuttiMemAlloc
#include "bench_loop.h"
#include "tutti/tutti.h"

namespace {

struct Run {
  tuttiComm_t comm;
  int rank;
  size_t ranks;
};

template <class Issue> int blocking(void *ctx, Issue issue) {
  const Run &r = *static_cast<const Run *>(ctx);
  return issue(r) != tuttiSuccess || tuttiCommSynchronize(r.comm) != tuttiSuccess;
}
int all_reduce(void *ctx, const float *in, float *out, size_t n) {
  return blocking(ctx, [=](const Run &r) { return tuttiAllReduce(in, out, n, tuttiFloat32, tuttiSum, r.comm, nullptr); });
}
int broadcast(void *ctx, const float *in, float *out, size_t n) {
  return blocking(ctx, [=](const Run &r) {
    return tuttiBcast(r.rank == 0 ? const_cast<float *>(in) : out, n, tuttiFloat32, 0, r.comm, nullptr);
  });
}
int reduce(void *ctx, const float *in, float *out, size_t n) {
  return blocking(ctx, [=](const Run &r) { return tuttiReduce(in, out, n, tuttiFloat32, tuttiSum, 0, r.comm, nullptr); });
}
int all_gather(void *ctx, const float *in, float *out, size_t n) {
  return blocking(ctx, [=](const Run &r) { return tuttiAllGather(in, out, n / r.ranks, tuttiFloat32, r.comm, nullptr); });
}
int reduce_scatter(void *ctx, const float *in, float *out, size_t n) {
  return blocking(
      ctx, [=](const Run &r) { return tuttiReduceScatter(in, out, n / r.ranks, tuttiFloat32, tuttiSum, r.comm, nullptr); });
}
int alltoall(void *ctx, const float *in, float *out, size_t n) {
  return blocking(ctx, [=](const Run &r) { return tuttiAlltoAll(in, out, n / r.ranks, tuttiFloat32, r.comm, nullptr); });
}

void *take(bench *, size_t bytes) {
  void *p = nullptr;
  return tuttiMemAlloc(&p, bytes) == tuttiSuccess ? p : nullptr;
}
void give(bench *, void *p, size_t) {
  tuttiMemFree(p);
}

bench_op op_named(const char *name) {
  const struct {
    const char *name;
    bench_op op;
  } ops[] = {{"all_reduce", all_reduce}, {"broadcast", broadcast},           {"reduce", reduce},
             {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter}, {"alltoall", alltoall}};
  for (const auto &o : ops)
    if (strcmp(o.name, name) == 0) return o.op;
  return nullptr;
}

} // namespace

int main(int argc, char **argv) {
  const bool library = argc == 9 && strcmp(argv[8], "library") == 0;
  if ((argc != 8 && !library) || !op_named(argv[4])) return 2;
  bench b;
  const int rank = atoi(argv[2]), ranks = atoi(argv[3]);
  if (bench_open(&b, argv[1], rank, ranks)) return 2;
  if (library) b.take = take, b.give = give;
  tuttiUniqueId id;
  if (rank == 0) {
    if (tuttiGetUniqueId(&id) != tuttiSuccess) return fprintf(stderr, "%s\n", tuttiGetLastError(nullptr)), 1;
    memcpy(b.meet->note, &id, sizeof id);
  }
  bench_barrier(&b);
  memcpy(&id, b.meet->note, sizeof id);
  Run run{nullptr, rank, static_cast<size_t>(ranks)};
  if (tuttiCommInitRank(&run.comm, ranks, id, rank) != tuttiSuccess)
    return fprintf(stderr, "%s\n", tuttiGetLastError(nullptr)), 1;
  const int rc = bench_run(&b, argv[4], op_named(argv[4]), &run, argv[5], atoi(argv[6]), atof(argv[7]));
  if (rc) fprintf(stderr, "%s\n", tuttiGetLastError(run.comm));
  tuttiCommDestroy(run.comm);
  return rc;
}
