// main() of all tests; compiled once, because it takes longer than most tests do.
#define DOCTEST_CONFIG_IMPLEMENT // itself, not through the next line: the header may be precompiled, and that line is read once
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
