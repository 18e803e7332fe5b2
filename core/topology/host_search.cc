#include "topology/host_search.h"
#include "topology/optimum.h"
#include <algorithm>
#include <numeric>
#include <tuple>

namespace tutti {
namespace {

std::vector<Port> ports_of(const Machine &m, const std::vector<int> &places, const ClusterRules &rules, size_t hosts,
                           std::vector<std::string> *notes) {
  if (hosts == 1) return {};
  return find_ports(m, places, {.merge = rules.merge, .merge_card = rules.merge_port}, notes);
}

Routes::Ports nodes_of(const std::vector<Port> &ports) {
  Routes::Ports nodes;
  for (const Port &p : ports) nodes.push_back(p.nodes);
  return nodes;
}

// Where the ranks of a host are in one memory, or no link between them is known.
Packing one_after_the_other(size_t places, int channels) {
  Packing p;
  Laid laid;
  laid.order.resize(places);
  std::iota(laid.order.begin(), laid.order.end(), 0);
  p.channels.assign(static_cast<size_t>(channels), laid);
  return p;
}

} // namespace

HostSearch::HostSearch(const Machine &machine, std::vector<int> places, const ClusterRules &rules, size_t hosts)
    : machine_(machine), places_(std::move(places)), rules_(rules), hosts_(hosts),
      ports_(ports_of(machine, places_, rules, hosts, &notes_)), deal_(ports_.size()),
      routes_(machine, places_, nodes_of(ports_), {rules.p2p_level, rules.gdr_level, rules.pxn}) {
  std::iota(deal_.begin(), deal_.end(), 0);
  std::stable_sort(deal_.begin(), deal_.end(), [this](int a, int b) {
    const Port &p = ports_[static_cast<size_t>(a)], &q = ports_[static_cast<size_t>(b)];
    return std::tuple(p.distance, -p.gbps) < std::tuple(q.distance, -q.gbps);
  });
  if (hosts > 1 && ports_.empty()) notes_.push_back("no NIC is known: what the network can carry is not counted");
}

void HostSearch::deal_as(const HostSearch &other) {
  std::vector<int> deal;
  for (int theirs : other.deal_)
    for (size_t mine = 0; mine < ports_.size(); mine++)
      if (ports_[mine].rail == other.ports_[static_cast<size_t>(theirs)].rail) deal.push_back(static_cast<int>(mine));
  if (deal.size() == ports_.size() && other.ports_.size() == ports_.size()) deal_ = std::move(deal);
}

// Distance counts by kind, then by bandwidth; of equally close ones the order stays.
std::vector<int> HostSearch::neighbours() const {
  const size_t n = places_.size();
  const Paths paths(machine_, {.nvlink = true, .pxn = false});
  std::vector<double> cost(n * n);
  for (size_t a = 0; a < n; a++)
    for (size_t b = 0; b < n; b++) {
      if (a == b) continue;
      const Path &p = paths.between(places_[a], places_[b]), &q = paths.between(places_[b], places_[a]);
      const double step = static_cast<double>(a > b ? a - b : b - a);
      cost[a * n + b] = static_cast<double>(std::max(p.kind, q.kind)) + 1e-6 * step;
      if (const double gbps = std::min(p.gbps, q.gbps); gbps > 0) cost[a * n + b] += 0.1 / (1 + gbps);
    }
  std::vector<int> order = Hamilton(Shape::chain, n).cheapest(cost);
  if (!order.empty() && order.front() > order.back()) std::reverse(order.begin(), order.end());
  return order;
}

// Ranks on processors share memory: one channel for each port is enough. On GPUs two are better from three hosts on: then the
// two trees even out on every port.
HostSearch::Size HostSearch::size() const {
  Size s{rules_.min_channels, std::max(rules_.min_channels, rules_.max_channels)};
  const auto ports = static_cast<int>(ports_.size());
  if (machine_.node(places_.front()).kind != NodeKind::cpu) {
    if (hosts_ > 2) s.least = std::clamp(2 * ports, s.least, s.most);
    return s;
  }
  s.most = std::clamp(ports, s.least, s.most);
  s.least = s.most; // fewer would leave ports without any
  return s;
}

Packing HostSearch::rings(bool crossed, Size size, int64_t steps) const {
  PackRules rules{.min_channels = size.least, .max_channels = size.most, .steps = steps};
  if (ports_.empty()) {
    if (crossed) return {};
    if (places_.size() >= 2) rules.bound = std::min(allgather_optimum(machine_, places_), crossing_bound(machine_, places_));
    Packing p = pack(Pattern::ring, machine_, routes_, rules);
    return p.channels.empty() ? one_after_the_other(places_.size(), size.least) : p;
  }
  rules.bound = 0; // each channel passes one port each way
  for (const Port &p : ports_) rules.bound += p.gbps;
  if (crossed) return size.most >= 2 ? best_crossed(rules) : Packing{};
  for (int port : deal_) rules.ends.emplace_back(port, port);
  return pack(Pattern::through, machine_, routes_, rules);
}

// Pairs of ports: neighbours in the deal, or far ones; whichever carries more.
Packing HostSearch::best_crossed(PackRules rules) const {
  Packing best;
  rules.steps /= 2;
  const size_t n = deal_.size(), half = (n + 1) / 2;
  for (const bool far : {true, false}) {
    std::vector<int> turn;
    for (size_t i = 0; i < n; i++) turn.push_back(deal_[far ? i / 2 + i % 2 * half : i]);
    rules.ends.clear();
    for (size_t i = 0; i < (n % 2 ? n : n / 2); i++) rules.ends.emplace_back(turn[2 * i % n], turn[(2 * i + 1) % n]);
    Packing p = pack(Pattern::twice, machine_, routes_, rules);
    if (p.total() > best.total() * (1 + 1e-9)) best = std::move(p);
  }
  return best;
}

Packing HostSearch::trees(int channels, double attach, int64_t steps) const {
  PackRules rules{.min_channels = channels, .max_channels = channels, .steps = steps};
  rules.attach = attach;
  for (int port : deal_) rules.ends.emplace_back(port, port);
  Packing p = pack(ports_.empty() ? Pattern::chain : Pattern::rooted, machine_, routes_, rules);
  return p.channels.empty() ? one_after_the_other(places_.size(), channels) : p;
}

void HostSearch::weigh(const std::vector<int> &passes, Packing *trees) const {
  if (ports_.empty() || trees->gbps <= 0) return;
  for (size_t c = 0; c < trees->channels.size(); c++)
    for (Hop &h : trees->channels[c].hops)
      if (h.from == routes_.outside() || h.to == routes_.outside()) h.bytes = passes[c];
  const std::vector<double> loads = loads_of(machine_, routes_, *trees);
  double most = 0;
  for (size_t l = 0; l < loads.size(); l++) most = std::max(most, loads[l] / machine_.links()[l].gbps);
  trees->gbps = 1 / most;
}

std::string HostSearch::limit(const Packing &packing) const {
  if (packing.gbps <= 0) return "nothing that is known: memory that all ranks of the host share";
  const std::vector<double> loads = loads_of(machine_, routes_, packing);
  size_t worst = 0;
  for (size_t l = 0; l < loads.size(); l++)
    if (loads[l] / machine_.links()[l].gbps > loads[worst] / machine_.links()[worst].gbps * (1 + 1e-9)) worst = l;
  const MachineLink &l = machine_.links()[worst];
  const MachineNode &a = machine_.node(l.from), &b = machine_.node(l.to);
  std::string what;
  if (a.kind == NodeKind::net || b.kind == NodeKind::net)
    what = fmt::format("port {}", a.kind == NodeKind::net ? a.id : b.id);
  else if (l.kind == LinkKind::sys)
    what = fmt::format("the link between NUMA nodes {} and {}", a.number, b.number);
  else
    what = fmt::format("{} link from {} to {}", l.kind == LinkKind::nvl ? "NVLink" : kind_name(l.kind), a.label(), b.label());
  return fmt::format("{}: {:.4g} GB/s, passed {:.4g} times", what, l.gbps, loads[worst]);
}

} // namespace tutti
