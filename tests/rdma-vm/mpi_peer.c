/* The peer of the comparison: all-reduces by an MPI library, checked. mpi_peer COUNT BYTES */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  int rank, ranks, bad = argc != 3;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = bad ? 0 : atoi(argv[1]), n = bad ? 0 : atoi(argv[2]) / (int)sizeof(float);
  float *in = malloc(((size_t)n + 1) * sizeof(float)), *out = malloc(((size_t)n + 1) * sizeof(float));
  bad = bad || !in || !out;
  for (int i = 0; !bad && i < n; ++i) in[i] = (float)(i % 1000 + rank);
  for (int k = 0; !bad && k < count; ++k) {
    MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; ++i) bad = bad || out[i] != (float)(ranks * (i % 1000) + ranks * (ranks - 1) / 2);
  }
  printf("rank %d: %d operations %s\n", rank, count, bad ? "WRONG" : "right");
  free(in);
  free(out);
  MPI_Finalize();
  return bad;
}
