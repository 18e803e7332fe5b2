/* The smallest job: every rank gives its number plus one, every rank gets the sum.
 *   tutti run -n 4 -- hello_all_reduce_c        or        mpirun -np 4 hello_all_reduce_c */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  tuttiComm_t comm = NULL;
  int rank = 0, nranks = 0;
  if (tuttiCommInitFromEnv(&comm, NULL) != tuttiSuccess) { /* the launcher says who we are */
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &nranks);

  float value = (float)rank + 1;
  tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comm, NULL); /* enqueued ... */
  if (tuttiCommSynchronize(comm) != tuttiSuccess) {                      /* ... and done */
    fprintf(stderr, "%s\n", tuttiGetLastError(comm));
    return 1;
  }
  printf("rank %d of %d: %g\n", rank, nranks, value);
  return tuttiCommDestroy(comm) != tuttiSuccess;
}
