// tutti/core/tools/doctor/local.h: latency and bandwidth between two ranks of a host, through memory that they share.
#pragma once
#include "bootstrap/bootstrap.h"

namespace tutti::doctor {

struct LocalPair {
  int a = 0, b = 0; // ranks of the job
  double latency_us = -1, gbs = -1;
  std::string problem;
};
// Collective among `group`, the ranks of one host in order; every pair once, nobody in two tests at once. Each rank returns the
// pairs that it led.
std::vector<LocalPair> measure_local(Bootstrap &bootstrap, const std::vector<int> &group, Deadline deadline);

// Round-robin: whom `index` of `count` meets in a round, -1 = nobody. There are rounds(count) of them.
int rounds(int count);
int opponent(int count, int round, int index);

} // namespace tutti::doctor
