/* Links, runs, and finds the header and the library of one version. */
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
  int version = 0;
  if (tuttiGetVersion(&version) != tuttiSuccess || version != TUTTI_VERSION_CODE) {
    fprintf(stderr, "header %d, library %d\n", TUTTI_VERSION_CODE, version);
    return 1;
  }
  printf("tutti %d: %s\n", version, tuttiGetErrorString(tuttiSuccess));
  return 0;
}
