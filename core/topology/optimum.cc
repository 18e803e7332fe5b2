#include "topology/optimum.h"
#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr double kNothing = 1e-9; // GB/s: below it a link is full

// Augments along shortest ways; graphs of a host are small.
class Flow {
public:
  explicit Flow(size_t nodes) : out_(nodes) {}
  void add(int from, int to, double capacity) {
    out_[static_cast<size_t>(from)].push_back(arcs_.size());
    arcs_.push_back({to, capacity});
    out_[static_cast<size_t>(to)].push_back(arcs_.size());
    arcs_.push_back({from, 0});
  }
  double run(int source, int sink) {
    double total = 0;
    while (reach(source), seen_[static_cast<size_t>(sink)]) {
      double least = std::numeric_limits<double>::infinity();
      for (int v = sink; v != source; v = tail(v)) least = std::min(least, arcs_[via_[static_cast<size_t>(v)]].left);
      for (int v = sink; v != source; v = tail(v)) {
        arcs_[via_[static_cast<size_t>(v)]].left -= least;
        arcs_[via_[static_cast<size_t>(v)] ^ 1].left += least;
      }
      total += least;
    }
    return total;
  }
  bool on_source_side(int node) const { return seen_[static_cast<size_t>(node)]; }

private:
  struct Arc {
    int to;
    double left;
  };
  int tail(int node) const { return arcs_[via_[static_cast<size_t>(node)] ^ 1].to; }
  void reach(int source) {
    seen_.assign(out_.size(), false);
    via_.assign(out_.size(), 0);
    std::vector<int> queue{source};
    seen_[static_cast<size_t>(source)] = true;
    for (size_t i = 0; i < queue.size(); i++)
      for (size_t a : out_[static_cast<size_t>(queue[i])]) {
        const Arc &arc = arcs_[a];
        if (arc.left <= kNothing || seen_[static_cast<size_t>(arc.to)]) continue;
        seen_[static_cast<size_t>(arc.to)] = true;
        via_[static_cast<size_t>(arc.to)] = a;
        queue.push_back(arc.to);
      }
  }
  std::vector<std::vector<size_t>> out_;
  std::vector<Arc> arcs_; // each followed by its reverse
  std::vector<bool> seen_;
  std::vector<size_t> via_;
};

} // namespace

double allgather_optimum(const Machine &machine, const std::vector<int> &places) {
  if (places.size() < 2) return 0;
  const int nodes = static_cast<int>(machine.nodes().size());
  const auto n = static_cast<double>(places.size());
  double rate = std::numeric_limits<double>::infinity();
  for (int p : places) { // to begin with: all others into this one
    double in = 0;
    for (const MachineLink &l : machine.links()) in += l.to == p ? l.gbps : 0;
    rate = std::min(rate, in / (n - 1));
  }
  for (bool lower = true; lower;) {
    lower = false;
    for (int sink : places) {
      Flow flow(static_cast<size_t>(nodes) + 1);
      for (const MachineLink &l : machine.links()) flow.add(l.from, l.to, l.gbps);
      for (int p : places) flow.add(nodes, p, rate);
      if (flow.run(nodes, sink) >= n * rate * (1 - 1e-9)) continue;
      double cut = 0, held = 0;
      for (const MachineLink &l : machine.links())
        if (flow.on_source_side(l.from) && !flow.on_source_side(l.to)) cut += l.gbps;
      for (int p : places) held += flow.on_source_side(p);
      if (held == 0 || cut / held >= rate * (1 - 1e-12)) continue;
      rate = cut / held;
      lower = true;
    }
  }
  return rate * (n - 1);
}

double crossing_bound(const Machine &machine, const std::vector<int> &places) {
  if (places.size() < 2) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < places.size(); i++)
    for (const bool out : {true, false}) {
      Flow flow(machine.nodes().size());
      for (const MachineLink &l : machine.links()) flow.add(l.from, l.to, l.gbps);
      least = std::min(least, out ? flow.run(places.front(), places[i]) : flow.run(places[i], places.front()));
    }
  return least;
}

} // namespace tutti
