#include "topology/topology.h"
#include <doctest/doctest.h>

using namespace tutti;

static TopologyInput on(uint64_t host, uint64_t cpus) {
  const uint64_t words[] = {cpus};
  return {host, CpuSet::from_words(words)};
}

TEST_CASE("ranks are grouped by host, hosts are numbered by their lowest rank") {
  const TopologyInput in[] = {on(70, 3), on(5, 3), on(70, 3), on(5, 3), on(9, 1)};
  const Topology t = make_topology(in);
  CHECK(t.node_count == 3);
  CHECK(t.node_of_rank == std::vector<int32_t>{0, 1, 0, 1, 2});
  CHECK(t.ring_order == std::vector<int32_t>{0, 2, 1, 3, 4});
  CHECK(t.max_ppn() == 2);
  CHECK(t.min_cores() == 1);
  CHECK(!t.oversubscribed());
}
TEST_CASE("ranks that share their cores are counted once") {
  const TopologyInput shared[] = {on(1, 3), on(1, 3), on(1, 3)}, own[] = {on(1, 1), on(1, 2), on(1, 4)};
  CHECK(make_topology(shared).oversubscribed());
  CHECK(!make_topology(own).oversubscribed());
  CHECK(make_topology(own).cores_on_node == std::vector<uint32_t>{3});
}
TEST_CASE("this process may run somewhere") {
  CHECK(CpuSet::of_this_process().count() >= 1);
}
