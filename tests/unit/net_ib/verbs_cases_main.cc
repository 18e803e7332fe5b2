// The cases on real devices: net_ib_verbs_cases [DEVICE DEVICE], two that reach each other, or the same one twice; without
// names the first two of the host, or its only one.
#include "verbs_cases.h"
#include <cstdio>

using namespace tutti::net_ib;

int main(int argc, char **argv) {
  std::vector<std::string> devices = argc == 3 ? std::vector<std::string>(argv + 1, argv + 3) : real_verbs().devices();
  if (argc != 3 && argc != 1) return std::fprintf(stderr, "usage: %s [DEVICE DEVICE]\n", argv[0]), 2;
  if (devices.empty()) return std::fprintf(stderr, "this host has no RDMA device\n"), 2;
  devices.push_back(devices.back());
  int failed = 0;
  for (const test::VerbsCase &c : test::verbs_cases()) {
    try {
      c.run({real_verbs(), real_verbs(), devices[0], devices[1]});
      std::printf("ok    %s\n", c.title);
    } catch (const std::exception &e) {
      std::printf("FAIL  %s: %s\n", c.title, e.what());
      ++failed;
    }
    std::fflush(stdout);
  }
  return failed != 0;
}
