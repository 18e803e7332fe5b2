// tests/perf/tutti_bench.cc: this library in the loop of bench_loop.h. tutti_bench MEET-FILE RANK SIZES RUNS TARGET-MS
#include "bench_loop.h"
#include "tutti/tutti.h"

static int all_reduce(void *ctx, const float *in, float *out, size_t count) {
  const auto comm = static_cast<tuttiComm_t>(ctx);
  return tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess ||
         tuttiCommSynchronize(comm) != tuttiSuccess;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  bench b;
  const int rank = atoi(argv[2]);
  if (bench_open(&b, argv[1], rank)) return 2;
  tuttiUniqueId id;
  if (rank == 0) {
    if (tuttiGetUniqueId(&id) != tuttiSuccess) return fprintf(stderr, "%s\n", tuttiGetLastError(nullptr)), 1;
    memcpy(b.meet->note, &id, sizeof id);
  }
  bench_barrier(&b);
  memcpy(&id, b.meet->note, sizeof id);
  tuttiComm_t comm = nullptr;
  if (tuttiCommInitRank(&comm, BENCH_RANKS, id, rank) != tuttiSuccess)
    return fprintf(stderr, "%s\n", tuttiGetLastError(nullptr)), 1;
  const int rc = bench_run(&b, all_reduce, comm, argv[3], atoi(argv[4]), atof(argv[5]));
  if (rc) fprintf(stderr, "%s\n", tuttiGetLastError(comm));
  tuttiCommDestroy(comm);
  return rc;
}
