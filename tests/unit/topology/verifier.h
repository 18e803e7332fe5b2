// tests/unit/topology/verifier.h: reads a topology file by itself, knows nothing of core/topology, and sums what rings put on
// links.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace verify {

// A ring: numbers of GPUs (dev) in order; the last one sends to the first.
using Ring = std::vector<int>;
// The links of each hop of a ring, by the names of the nodes passed, both ends included.
using Ways = std::vector<std::vector<std::string>>;

class Host {
public:
  static std::optional<Host> read(const std::string &path);
  const std::set<int> &gpus() const { return gpus_; }
  static std::string gpu_name(int dev) { return "gpu" + std::to_string(dev); }

  // A hop's way: an NVLink where there is one; else over one more GPU where allowed and possible; else up the PCI tree and down
  // again.
  enum class Detour { gpu, pci };
  std::vector<std::string> way(int from, int to, Detour detour) const;

  // Empty when all is well: each GPU once per ring, each hop's way from one GPU to the next over links that exist.
  std::string fault(const std::vector<Ring> &rings, const std::vector<Ways> &ways) const;
  // The most that each ring can carry at the same time, GB/s: of all directed links the least capacity / load.
  double each(const std::vector<Ways> &ways) const;
  // The same, each hop taking the detour that is better for all of them.
  double best_each(const std::vector<Ring> &rings) const;

private:
  std::vector<std::string> up(std::string node) const; // to its CPU
  void link(const std::string &a, const std::string &b, double gbps) { links_[{a, b}] += gbps; }
  friend class HostReader;
  std::set<int> gpus_;
  std::set<std::string> intel_cpus_;
  std::map<std::string, std::string> parent_;
  std::map<std::pair<std::string, std::string>, double> links_; // directed
};

// Rings of graph `id` of a graph file, and what it says of them.
struct Answer {
  std::vector<Ring> rings;
  double each = 0;
};
std::optional<Answer> read_answer(const std::string &path, const std::string &id);

} // namespace verify
