/* Links, runs, finds the header and the library of one version, and the plugins that were installed with them. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  int version = 0;
  if (tuttiGetVersion(&version) != tuttiSuccess || version != TUTTI_VERSION_CODE) {
    fprintf(stderr, "header %d, library %d\n", TUTTI_VERSION_CODE, version);
    return 1;
  }
  tuttiComm_t comm[2];
  float value[2] = {1, 2};
  int failed = tuttiCommInitAll(comm, 2, NULL) != tuttiSuccess;
  if (!failed) {
    tuttiGroupStart();
    for (int r = 0; r < 2; r++) tuttiAllReduce(&value[r], &value[r], 1, tuttiFloat32, tuttiSum, comm[r], NULL);
    failed = tuttiGroupEnd() != tuttiSuccess;
    for (int r = 0; r < 2 && !failed; r++) failed = tuttiCommSynchronize(comm[r]) != tuttiSuccess || value[r] != 3;
  }
  if (failed) {
    fprintf(stderr, "values %g %g: %s\n", (double)value[0], (double)value[1], tuttiGetLastError(NULL));
    return 1;
  }
  tuttiGroupStart();
  for (int r = 0; r < 2; r++) tuttiCommDestroy(comm[r]);
  failed = tuttiGroupEnd() != tuttiSuccess;
  printf("tutti %d: %s\n", version, tuttiGetErrorString(tuttiSuccess));
  return failed;
}
