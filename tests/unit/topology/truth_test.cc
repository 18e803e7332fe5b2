// Against what a real search chose on real hosts, and against bounds that nothing can exceed. The files come beside the
// project.
#include "topology/channels.h"
#include "topology/machine_file.h"
#include "verifier.h"
#include <algorithm>
#include <doctest/doctest.h>
#include <filesystem>

using namespace tutti;
namespace fs = std::filesystem;

namespace {

const fs::path kData = fs::path(TUTTI_SOURCE_DIR) / "../shared/data/topology", kTruth = kData.string() + "_truth";

std::vector<fs::path> files(const fs::path &folder, std::string_view end) {
  std::vector<fs::path> found;
  std::error_code ec;
  for (const auto &e : fs::directory_iterator(folder, ec))
    if (e.path().string().ends_with(end)) found.push_back(e.path());
  std::sort(found.begin(), found.end());
  if (found.empty()) fmt::print("skipped: {} is not there\n", folder.filename().string());
  return found;
}

// The name that the verifier has for a node: PCI devices by their way down from the CPU.
std::string name_of(const Machine &m, int node) {
  const MachineNode &n = m.node(node);
  if (n.kind == NodeKind::gpu) return verify::Host::gpu_name(n.number);
  if (n.kind == NodeKind::cpu) return "cpu" + n.id;
  int same = 0;
  for (int i = 0; i < node; i++) same += m.node(i).parent == n.parent && m.node(i).id == n.id;
  return name_of(m, n.parent) + "/" + n.id + (same ? "#" + std::to_string(same) : "");
}

struct Ours {
  std::vector<verify::Ring> rings;
  std::vector<verify::Ways> ways;
};
Ours ours_of(const Machine &m, const Channels &c) {
  const Routes routes(m, c.places);
  Ours o;
  for (const Laid &laid : c.rings.channels) {
    verify::Ring ring;
    verify::Ways ways;
    for (int place : laid.order) ring.push_back(m.node(c.places[static_cast<size_t>(place)]).number);
    for (const Hop &h : laid.hops) {
      const Route &r = routes.between(h.from, h.to)[static_cast<size_t>(h.route)];
      ways.push_back({name_of(m, m.link(r.links.front()).from)});
      for (int l : r.links) ways.back().push_back(name_of(m, m.link(l).to));
    }
    o.rings.push_back(std::move(ring));
    o.ways.push_back(std::move(ways));
  }
  return o;
}

Machine load(const fs::path &path) {
  auto file = MachineFile::read(path);
  REQUIRE_MESSAGE(file.ok(), path.string());
  auto machine = file->machine();
  REQUIRE_MESSAGE(machine.ok(), machine.status().error().message);
  return std::move(machine).value();
}

} // namespace

TEST_CASE("our rings keep to the links and carry no less than those of a search that is in use") {
  const auto answers = files(kTruth, ".graph.xml");
  fmt::print("{:26} {:>4}  {:>13} {:>8}  {:>13} {:>8} {:>7}\n", "file", "GPUs", "theirs", "counted", "ours", "sum", "ratio");
  for (const fs::path &path : answers) {
    const std::string name = path.filename().string().substr(0, path.filename().string().find(".graph.xml"));
    CAPTURE(name);
    const fs::path input = fs::exists(kTruth / (name + ".xml")) ? kTruth / (name + ".xml") : kData / (name + ".xml");
    const auto theirs = verify::read_answer(path, "0");
    const auto host = verify::Host::read(input);
    REQUIRE(theirs);
    REQUIRE(host);
    const Machine m = load(input);
    const Channels c = search_channels(m);
    const Ours ours = ours_of(m, c);
    CHECK(host->fault(ours.rings, ours.ways) == "");
    const double our_each = host->each(ours.ways), their_each = host->best_each(theirs->rings);
    const double our_sum = our_each * static_cast<double>(ours.rings.size()),
                 their_sum = their_each * static_cast<double>(theirs->rings.size());
    CHECK(c.rings.gbps <= our_each * (1 + 1e-9)); // what we promise can be had
    CHECK(c.rings.total() <= c.rings.bound * (1 + 1e-6));
    CHECK(c.rings.bound <= c.optimum * (1 + 1e-6));
    CHECK(our_sum >= their_sum * (1 - 1e-9));
    fmt::print("{:26} {:4}  {:>2} x {:8.4g} {:8.4g}  {:>2} x {:8.4g} {:8.4g} {:7.2f}\n", name.substr(name.find("__") + 2),
               host->gpus().size(), theirs->rings.size(), theirs->each, their_sum, ours.rings.size(), our_each, our_sum,
               our_sum / their_sum);
  }
}

TEST_CASE("every file of a real host loads, and its rings are measured against what no schedule exceeds") {
  fmt::print("{:26} {:>6}  {:>8} {:>11} {:>8} {:>6}\n", "file", "places", "optimum", "rings at most", "rings", "ratio");
  for (const fs::path &path : files(kData, ".xml")) {
    CAPTURE(path.string());
    const Machine m = load(path);
    const Channels c = search_channels(m);
    REQUIRE(c.places.size() >= 2);
    CHECK(c.optimum > 0);
    CHECK(c.rings.total() > 0);
    CHECK(c.rings.total() <= c.optimum * (1 + 1e-6));
    CHECK(c.chains.total() <= c.optimum * (1 + 1e-6));
    const std::string name = path.stem().string();
    fmt::print("{:26} {:6}  {:8.4g} {:13.4g} {:8.4g} {:6.2f}\n", name.substr(name.find("__") + 2), c.places.size(), c.optimum,
               c.rings.bound, c.rings.total(), c.rings.total() / c.optimum);
  }
}
