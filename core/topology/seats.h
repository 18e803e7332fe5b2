// tutti/core/topology/seats.h: which place of its host each rank takes, and which hosts are alike.
#pragma once
#include "topology/cluster.h"

namespace tutti {

struct SeatedHost {
  int machine = 0;                          // index into the input's machines; equal machines have one index
  std::vector<int> places = {};             // nodes with ranks
  std::vector<std::vector<int>> ranks = {}; // of each place, ascending
  int first_rank = 0;                       // the lowest
};

Result<std::vector<SeatedHost>> seat_ranks(const ClusterInput &input);

} // namespace tutti
