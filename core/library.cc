// libtutti's own source: the version in the header is that of the build.
#include "tutti/tutti.h"

static_assert(TUTTI_MAJOR == TUTTI_BUILD_MAJOR && TUTTI_MINOR == TUTTI_BUILD_MINOR && TUTTI_PATCH == TUTTI_BUILD_PATCH,
              "project(VERSION) in CMakeLists.txt and tutti.h differ");
