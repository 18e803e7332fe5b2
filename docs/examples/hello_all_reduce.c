/* The smallest job: every rank gives its number, every rank gets the sum.
 *   tutti run -n 4 -- hello_all_reduce_c        or        mpirun -np 4 hello_all_reduce_c */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

#define CHECK(call, comm)                                                                                                      \
  do {                                                                                                                         \
    if ((call) != tuttiSuccess) {                                                                                              \
      fprintf(stderr, "%s: %s\n", #call, tuttiGetLastError(comm));                                                             \
      exit(1);                                                                                                                 \
    }                                                                                                                          \
  } while (0)

int main(void) {
  tuttiComm_t comm = NULL;
  int rank = 0, nranks = 0;
  CHECK(tuttiCommInitFromEnv(&comm, NULL), comm);
  CHECK(tuttiCommUserRank(comm, &rank), comm);
  CHECK(tuttiCommCount(comm, &nranks), comm);

  float values[3] = {(float)rank, 1.0f, 0.5f};
  CHECK(tuttiAllReduce(values, values, 3, tuttiFloat32, tuttiSum, comm, NULL), comm);
  CHECK(tuttiCommSynchronize(comm), comm);

  printf("rank %d of %d: %g %g %g\n", rank, nranks, values[0], values[1], values[2]);
  CHECK(tuttiCommDestroy(comm), NULL);
  return 0;
}
