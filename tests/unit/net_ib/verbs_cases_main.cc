// The cases on real devices: verbs_cases DEVICE DEVICE, two that reach each other, or the same one twice.
#include "verbs_cases.h"
#include <cstdio>

using namespace tutti::net_ib;

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s DEVICE DEVICE\n", argv[0]);
    return 2;
  }
  int failed = 0;
  for (const test::VerbsCase &c : test::verbs_cases()) {
    try {
      c.run({real_verbs(), real_verbs(), argv[1], argv[2]});
      std::printf("ok    %s\n", c.title);
    } catch (const std::exception &e) {
      std::printf("FAIL  %s: %s\n", c.title, e.what());
      ++failed;
    }
    std::fflush(stdout);
  }
  return failed != 0;
}
