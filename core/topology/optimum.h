// tutti/core/topology/optimum.h: what no algorithm can exceed.
#pragma once
#include "topology/machine.h"
#include <vector>

namespace tutti {

// Bound of an allgather, as the bandwidth of rings counts: a set S of nodes that lacks a place must send out what its places
// hold, so that (places - 1) * (bandwidth out of S) / (places in S) is the most; the least over all sets S. Found with
// max-flow: for a rate x, places fed with x each reach every place with all of it, or the cut is a set with a lower bound,
// which is tried next. 0 for fewer than two places.
double allgather_optimum(const Machine &machine, const std::vector<int> &places);

// Bound of rings and of chains: each crosses every division of the places in two at least once per direction. The least of the
// flows between the first place and each other one.
double crossing_bound(const Machine &machine, const std::vector<int> &places);

} // namespace tutti
