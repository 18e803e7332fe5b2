/* tests/perf/mpi_bench.c: an MPI library in the loop of bench_loop.h. mpi_bench MEET-FILE SIZES RUNS TARGET-MS */
#include "bench_loop.h"
#include <mpi.h>

static int all_reduce(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  bench b;
  int rc = argc != 5 || bench_open(&b, argv[1], rank) || bench_run(&b, all_reduce, NULL, argv[2], atoi(argv[3]), atof(argv[4]));
  MPI_Finalize();
  return rc;
}
