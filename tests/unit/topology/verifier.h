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
// Names of GPUs and ports in the order in which bytes pass them; each hop by so many bytes per byte.
struct Walk {
  std::vector<std::string> stops;
  double bytes = 1;
};

class Host {
public:
  static std::optional<Host> read(const std::string &path);
  const std::set<int> &gpus() const { return gpus_; }
  const std::set<int> &ports() const { return ports_; } // dev
  static std::string port_name(int dev) { return "net" + std::to_string(dev); }
  static std::string gpu_name(int dev) { return "gpu" + std::to_string(dev); }

  // A hop's way: an NVLink where there is one; else over that GPU (kWidest: the one with the widest links) where possible; else
  // up the PCI tree and down again.
  static constexpr int kWidest = -2, kPci = -1;
  std::vector<std::string> way(const std::string &from, const std::string &to, int over) const;

  // Empty when all is well: each GPU once per ring, each hop's way from one GPU to the next over links that exist.
  std::string fault(const std::vector<Ring> &rings, const std::vector<Ways> &ways) const;
  // The most that each ring can carry at the same time, GB/s: of all directed links the least capacity / load.
  double each(const std::vector<Ways> &ways) const;
  // The same, each hop taking the detour that is better for all of them.
  double best_each(const std::vector<Ring> &rings) const;
  double best_each(const std::vector<Walk> &walks, double enough = 1e300) const; // stops when there is enough

private:
  std::vector<std::string> up(std::string node) const; // to its CPU
  void link(const std::string &a, const std::string &b, double gbps) { links_[{a, b}] += gbps; }
  friend class HostReader;
  struct Hop {
    std::string from, to;
    std::vector<std::string> way;
    double bytes;
  };
  double each(const std::vector<Hop> &hops, double *strain = nullptr) const; // strain: the full links weigh most
  std::set<int> gpus_, ports_;
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
