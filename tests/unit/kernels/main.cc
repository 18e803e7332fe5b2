// Only doctest's main(); the test cases are in the other files.
#include <doctest/doctest.h>
