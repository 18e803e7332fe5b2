/* tests/perf/mpi_bench.c: an MPI library in the loop of bench_loop.h. mpi_bench MEET-FILE OP SIZES RUNS TARGET-MS */
#include "bench_loop.h"
#include <mpi.h>

static int rank, ranks;

static int all_reduce(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static int broadcast(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Bcast(rank == 0 ? (void *)in : out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static int reduce(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Reduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static int all_gather(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Allgather(in, (int)count / ranks, MPI_FLOAT, out, (int)count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}
static int reduce_scatter(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Reduce_scatter_block(in, out, (int)count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static int alltoall(void *ctx, const float *in, float *out, size_t count) {
  (void)ctx;
  return MPI_Alltoall(in, (int)count / ranks, MPI_FLOAT, out, (int)count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const struct {
    const char *name;
    bench_op op;
  } ops[] = {{"all_reduce", all_reduce}, {"broadcast", broadcast},           {"reduce", reduce},
             {"all_gather", all_gather}, {"reduce_scatter", reduce_scatter}, {"alltoall", alltoall}};
  bench_op op = NULL;
  for (size_t i = 0; argc == 6 && i < sizeof ops / sizeof *ops; ++i)
    if (strcmp(argv[2], ops[i].name) == 0) op = ops[i].op;
  bench b;
  const int rc =
      !op || bench_open(&b, argv[1], rank, ranks) || bench_run(&b, argv[2], op, NULL, argv[3], atoi(argv[4]), atof(argv[5]));
  MPI_Finalize();
  return rc;
}
