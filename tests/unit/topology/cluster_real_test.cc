// Clusters of the hosts that real files describe, against the verifier's own sums. The files come beside the project.
#include "cluster_check.h"
#include "topology/machine_file.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>
#include <fmt/format.h>

using namespace tutti;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> all_files() {
  std::vector<fs::path> found;
  std::error_code ec;
  for (const auto &e : fs::directory_iterator(fs::path(TUTTI_SOURCE_DIR) / "../shared/data/topology", ec))
    if (e.path().extension() == ".xml") found.push_back(e.path());
  std::sort(found.begin(), found.end());
  if (found.empty()) fmt::print("skipped: no files of real hosts\n");
  return found;
}

// `hosts` alike, rank r on host r % hosts.
struct Job {
  ClusterInput input;
  std::vector<int> gpu_of_rank; // empty: ranks are not on GPUs
};
Job make_job(const Machine &machine, int hosts) {
  Job job;
  job.input.machines.push_back(machine);
  job.input.hosts.resize(static_cast<size_t>(hosts));
  const std::vector<int> places = machine.places();
  const bool gpus = machine.node(places.front()).kind == NodeKind::gpu;
  for (int place : places)
    for (int h = 0; h < hosts; h++) {
      job.input.ranks.push_back({.host = h, .seat = {}});
      if (!gpus) continue;
      job.input.ranks.back().seat = {Seat::Kind::gpu, machine.node(place).number};
      job.gpu_of_rank.push_back(machine.node(place).number);
    }
  return job;
}

} // namespace

TEST_CASE("channels over hosts like each real one are sound, and carry what they say as the verifier counts it") {
  fmt::print("| file | hosts | channels | rings | trees | NICs |\n| --- | --- | --- | --- | --- | --- |\n");
  for (const fs::path &path : all_files()) {
    CAPTURE(path.string());
    auto file = MachineFile::read(path);
    REQUIRE(file.ok());
    const auto machine = file->machine();
    REQUIRE(machine.ok());
    const auto host = verify::Host::read(path);
    for (const auto &[hosts, cross] : {std::pair(1, 2), std::pair(2, 0), std::pair(3, 1), std::pair(4, 2)}) {
      const int n_hosts = hosts, cross_nic = cross;
      CAPTURE(n_hosts);
      CAPTURE(cross_nic);
      const Job job = make_job(*machine, hosts);
      const auto cluster = make_cluster(job.input, {.cross_nic = cross, .pxn = false});
      REQUIRE(cluster.ok());
      CHECK(verify::cluster_fault(*cluster) == "");
      CHECK((cross != 0 || !cluster->crossed));
      const auto n = static_cast<double>(cluster->channels.size());
      if (hosts == 4 && cross == 2)
        fmt::print("| {} | 4 | {} | {:.4g} | {:.4g} | {}{} |\n", path.stem().string(), n, n * cluster->ring_gbps,
                   n * cluster->tree_gbps, cluster->hosts[0].ports.size(), cluster->crossed ? ", crossed" : "");
      if (job.gpu_of_rank.empty() || host->ports().empty() || hosts == 1) continue; // of one host: truth_test.cc
      for (size_t h = 0; h < std::min<size_t>(2, cluster->hosts.size()); h++) {     // the others are laid as these
        CHECK(verify::ring_each(*cluster, h, *host, job.gpu_of_rank) >= cluster->ring_gbps * (1 - 1e-6));
        CHECK(verify::tree_each(*cluster, h, *host, job.gpu_of_rank) >= cluster->tree_gbps * (1 - 1e-6));
      }
    }
  }
}
