// Hosts that are alike are searched once; what was found is then laid over all hosts: rings visit them in turn, trees join
// their chains' first ranks.
#include "topology/cluster.h"
#include "topology/host_search.h"
#include "topology/host_trees.h"
#include "topology/seats.h"
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>

namespace tutti {
namespace {

// Steps of the packing: rings by the same port, crossed rings, trees; of all kinds of hosts together. 0.2 s of a core in all.
constexpr int64_t kRingSteps = 6'000'000, kCrossedSteps = 8'000'000, kTreeSteps = 2'000'000;
constexpr double kBetter = 1.05; // by which crossing rails must be better where it is not asked for

// One for each kind of host, with equally many channels.
struct Found {
  std::vector<Packing> of_kind;
  double gbps = 0; // of one channel, of the slowest; 0: not known
  size_t slowest = 0;
  size_t channels() const { return of_kind.empty() ? 0 : of_kind.front().channels.size(); }
  double total() const { return gbps * static_cast<double>(channels()); }
};

class Builder {
public:
  Builder(const ClusterInput &input, const ClusterRules &rules) : input_(input), rules_(rules) {}
  Result<Cluster> run();

private:
  void order_hosts();
  void find_kinds();
  Found search_rings(bool crossed) const;
  void choose_rings();
  void choose_trees();
  int tree_of(size_t channel) const;
  std::vector<std::vector<int>> passes() const;
  void lay_hosts();
  void lay_channel(size_t channel);
  void lay_tree(size_t channel, ClusterChannel *out) const;
  void explain();
  void explain_rings(const Found &same, const Found &crossed);
  std::vector<int> ranks_in_order(size_t host, const std::vector<int> &places) const;
  const HostSearch &kind(size_t host) const { return *kinds_[static_cast<size_t>(kind_of_[host])]; }

  const ClusterInput &input_;
  const ClusterRules &rules_;
  Cluster out_;
  std::vector<SeatedHost> hosts_;
  std::vector<std::unique_ptr<HostSearch>> kinds_;
  std::vector<int> kind_of_, position_; // of each host: its kind; its position in host_order
  size_t most_ports_ = 0;               // of a kind
  Found rings_, trees_;
};

// Hosts of a switch next to each other; else by their lowest rank.
void Builder::order_hosts() {
  std::map<std::string, int> first_of;
  const auto key = [&](int h) {
    const auto host = static_cast<size_t>(h);
    const std::string &where = input_.hosts[host].where;
    const int first = hosts_[host].first_rank;
    return std::pair(where.empty() ? first : first_of.at(where), first);
  };
  for (size_t h = 0; h < hosts_.size(); h++) {
    const auto [it, fresh] = first_of.try_emplace(input_.hosts[h].where, hosts_[h].first_rank);
    if (!fresh) it->second = std::min(it->second, hosts_[h].first_rank);
  }
  out_.host_order.resize(hosts_.size());
  std::iota(out_.host_order.begin(), out_.host_order.end(), 0);
  std::stable_sort(out_.host_order.begin(), out_.host_order.end(), [&](int a, int b) { return key(a) < key(b); });
  position_.resize(hosts_.size());
  for (size_t i = 0; i < hosts_.size(); i++) position_[static_cast<size_t>(out_.host_order[i])] = static_cast<int>(i);
}

void Builder::find_kinds() {
  std::map<std::pair<int, std::vector<int>>, int> known;
  for (const SeatedHost &h : hosts_) {
    const auto [it, fresh] = known.try_emplace({h.machine, h.places}, static_cast<int>(kinds_.size()));
    if (fresh)
      kinds_.push_back(
          std::make_unique<HostSearch>(input_.machines[static_cast<size_t>(h.machine)], h.places, rules_, hosts_.size()));
    kind_of_.push_back(it->second);
  }
  const auto most = std::max_element(kinds_.begin(), kinds_.end(),
                                     [](const auto &a, const auto &b) { return a->ports().size() < b->ports().size(); });
  for (auto &k : kinds_) k->deal_as(**most);
  most_ports_ = (*most)->ports().size();
}

// Every kind by itself; then the others with as many channels as the slowest has.
template <typename Search> Found search_kinds(size_t kinds, Search search) {
  Found f;
  for (size_t k = 0; k < kinds; k++) {
    f.of_kind.push_back(search(k, 0));
    const Packing &p = f.of_kind.back(), &s = f.of_kind[f.slowest];
    if (p.channels.empty()) return {};
    if (p.gbps > 0 && (s.gbps <= 0 || p.total() < s.total())) f.slowest = k;
  }
  const int n = static_cast<int>(f.of_kind[f.slowest].channels.size());
  f.gbps = f.of_kind[f.slowest].gbps;
  for (size_t k = 0; k < kinds; k++) {
    if (static_cast<int>(f.of_kind[k].channels.size()) != n) f.of_kind[k] = search(k, n);
    if (static_cast<int>(f.of_kind[k].channels.size()) != n) return {};
    if (const double gbps = f.of_kind[k].gbps; gbps > 0 && gbps < f.gbps) f.gbps = gbps, f.slowest = k;
  }
  return f;
}

Found Builder::search_rings(bool crossed) const {
  const int64_t steps = (crossed ? kCrossedSteps : kRingSteps) / static_cast<int64_t>(kinds_.size());
  return search_kinds(kinds_.size(), [&](size_t k, int n) {
    return kinds_[k]->rings(crossed, n > 0 ? HostSearch::Size{n, n} : kinds_[k]->size(), steps);
  });
}

void Builder::choose_rings() {
  Found same, crossed;
  const bool choice = std::any_of(kinds_.begin(), kinds_.end(), [](const auto &k) { return k->ports().size() > 1; });
  same = search_rings(false);
  const double bound = same.of_kind[same.slowest].bound;
  if (choice && rules_.cross_nic != 0 && bound > same.total() * 1.001) crossed = search_rings(true);
  const double needed = rules_.cross_nic == 1 ? 1 + 1e-9 : kBetter;
  out_.crossed = crossed.total() > same.total() * needed;
  explain_rings(same, crossed);
  rings_ = out_.crossed ? std::move(crossed) : std::move(same);
  out_.ring_gbps = rings_.gbps;
}

// Channels take trees and ports in turn, so that each port gets both trees.
int Builder::tree_of(size_t channel) const {
  const size_t shift = most_ports_ % 2 == 0 && most_ports_ > 0 ? channel / most_ports_ : 0;
  return static_cast<int>((channel + shift) % 2);
}

// How many neighbours each host has in the tree of each channel.
std::vector<std::vector<int>> Builder::passes() const {
  const int n = static_cast<int>(hosts_.size());
  const std::vector<int> degree[] = {degrees(host_tree(n, 0)), degrees(host_tree(n, 1))};
  std::vector<std::vector<int>> all(hosts_.size());
  for (size_t h = 0; h < hosts_.size(); h++)
    for (size_t c = 0; c < rings_.channels(); c++) all[h].push_back(degree[tree_of(c)][static_cast<size_t>(position_[h])]);
  return all;
}

// Searched as if every channel had as many neighbours as a host has on average; then counted for each host as it is.
void Builder::choose_trees() {
  const auto n = static_cast<int>(rings_.channels());
  const std::vector<std::vector<int>> each = passes();
  double attach = 0;
  for (const std::vector<int> &of_host : each)
    attach = std::max(attach, std::accumulate(of_host.begin(), of_host.end(), 0.0) / n);
  trees_ = search_kinds(kinds_.size(), [&](size_t k, int) {
    return kinds_[k]->trees(n, attach, kTreeSteps / static_cast<int64_t>(kinds_.size()));
  });
  std::set<std::pair<int, std::vector<int>>> seen;
  double least = 0;
  std::vector<Packing> worst = trees_.of_kind;
  for (size_t h = 0; h < hosts_.size(); h++) {
    if (!seen.emplace(kind_of_[h], each[h]).second) continue;
    const auto k = static_cast<size_t>(kind_of_[h]);
    Packing p = trees_.of_kind[k];
    kind(h).weigh(each[h], &p);
    if (p.gbps <= 0 || (least > 0 && p.gbps >= least)) continue;
    least = p.gbps;
    worst[k] = std::move(p);
    trees_.slowest = k;
  }
  trees_.of_kind = std::move(worst);
  trees_.gbps = out_.tree_gbps = least;
}

std::vector<int> Builder::ranks_in_order(size_t host, const std::vector<int> &places) const {
  std::vector<int> all;
  for (int p : places) {
    const std::vector<int> &there = hosts_[host].ranks[static_cast<size_t>(p)];
    all.insert(all.end(), there.begin(), there.end());
  }
  return all;
}

void Builder::lay_hosts() {
  std::vector<std::vector<int>> neighbours;
  for (const auto &k : kinds_) neighbours.push_back(k->neighbours());
  for (size_t h = 0; h < hosts_.size(); h++) {
    const std::string &name = input_.hosts[h].name;
    ClusterHost host{name.empty() ? fmt::format("host {}", h) : name, {}, {}};
    host.ranks = ranks_in_order(h, neighbours[static_cast<size_t>(kind_of_[h])]);
    const Machine &m = input_.machines[static_cast<size_t>(hosts_[h].machine)];
    for (const Port &p : kind(h).ports()) {
      host.ports.push_back(
          {{}, {}, p.name, p.rail, p.gbps, p.latency_us, hosts_[h].ranks[static_cast<size_t>(p.nearest)].front()});
      for (int node : p.nodes) {
        host.ports.back().devs.push_back(m.node(node).number);
        host.ports.back().dev_names.push_back(m.node(node).id);
      }
    }
    out_.hosts.push_back(std::move(host));
  }
  out_.new_rank.resize(input_.ranks.size());
  int next = 0;
  for (int h : out_.host_order)
    for (int r : out_.hosts[static_cast<size_t>(h)].ranks) out_.new_rank[static_cast<size_t>(r)] = next++;
}

void Builder::lay_channel(size_t channel) {
  ClusterChannel c;
  c.hosts.resize(hosts_.size());
  for (int h : out_.host_order) {
    const auto host = static_cast<size_t>(h);
    const bool turned = out_.crossed && position_[host] % 2 == 1; // so that both ends of a hop between hosts are on one rail
    const auto k = static_cast<size_t>(kind_of_[host]);
    const Laid &ring = rings_.of_kind[k].channels[turned ? channel ^ 1 : channel], &tree = trees_.of_kind[k].channels[channel];
    const std::vector<int> ranks = ranks_in_order(host, ring.order);
    c.ring.insert(c.ring.end(), ranks.begin(), ranks.end());
    ClusterChannel::Use &use = c.hosts[host];
    use = {ring.port_in, ring.port_out, tree.port_in, -1, -1};
    const std::vector<ClusterPort> &ports = out_.hosts[host].ports;
    if (use.port_tree >= 0) use.head = ports[static_cast<size_t>(use.port_tree)].head;
    if (use.port_in >= 0) use.rail = ports[static_cast<size_t>(use.port_in)].rail;
  }
  lay_tree(channel, &c);
  out_.channels.push_back(std::move(c));
}

void Builder::lay_tree(size_t channel, ClusterChannel *out) const {
  const std::vector<int> parents = host_tree(static_cast<int>(hosts_.size()), tree_of(channel));
  std::vector<std::vector<int>> chains; // by position
  for (int h : out_.host_order) {
    const auto host = static_cast<size_t>(h);
    chains.push_back(ranks_in_order(host, trees_.of_kind[static_cast<size_t>(kind_of_[host])].channels[channel].order));
  }
  out->parent.assign(input_.ranks.size(), -1);
  for (size_t i = 0; i < chains.size(); i++) {
    const std::vector<int> &chain = chains[i];
    if (parents[i] >= 0) out->parent[static_cast<size_t>(chain.front())] = chains[static_cast<size_t>(parents[i])].front();
    for (size_t k = 1; k < chain.size(); k++) out->parent[static_cast<size_t>(chain[k])] = chain[k - 1];
  }
}

void Builder::explain_rings(const Found &same, const Found &crossed) {
  if (crossed.channels() > 0)
    out_.why.push_back(fmt::format("cross_nic {}: {:.4g} GB/s by the same NIC, {:.4g} GB/s by different ones: {} taken",
                                   rules_.cross_nic, same.total(), crossed.total(),
                                   out_.crossed ? "different ones" : "the same"));
  if (out_.crossed && hosts_.size() % 2 == 1)
    out_.why.push_back("an odd number of hosts: between the last and the first, rings change to another rail");
}

void Builder::explain() {
  std::vector<std::string> lines{fmt::format("{} ranks on {} hosts", input_.ranks.size(), hosts_.size())};
  if (hosts_.size() > 1)
    lines.front() +=
        kinds_.size() == 1 ? ", all alike: searched once" : fmt::format(" of {} kinds, each searched once", kinds_.size());
  const HostSearch &slowest = *kinds_[rings_.slowest];
  const Packing &rings = rings_.of_kind[rings_.slowest];
  const size_t n = rings_.channels();
  const HostSearch::Size size = slowest.size();
  if (rings.gbps > 0)
    lines.push_back(fmt::format("rings: {} channels x {:.4g} GB/s = {:.4g} GB/s; no set of them reaches more than {:.4g}", n,
                                rings.gbps, rings.total(), std::max(rings.bound, rings.total())));
  lines.push_back(fmt::format("rings are limited by {}", slowest.limit(rings)));
  if (size.least == size.most)
    lines.push_back(
        fmt::format("{} channels: ranks on processors, so one for each NIC, within min_channels {} and max_channels {}", n,
                    rules_.min_channels, rules_.max_channels));
  else
    lines.push_back(fmt::format("{} channels: the fewest of {} to {} within 5 % of the best set found{}", n, size.least,
                                size.most, size.least > rules_.min_channels ? "; two for each NIC, for both trees" : ""));
  const Packing &trees = trees_.of_kind[trees_.slowest];
  if (trees.gbps > 0)
    lines.push_back(fmt::format("trees: {} x {:.4g} GB/s, limited by {}", n, trees.gbps, kinds_[trees_.slowest]->limit(trees)));
  for (const auto &k : kinds_)
    for (const std::string &note : k->notes())
      if (std::find(lines.begin(), lines.end(), note) == lines.end()) lines.push_back(note);
  out_.why.insert(out_.why.begin(), lines.begin(), lines.end());
}

Result<Cluster> Builder::run() {
  if (rules_.min_channels < 1 || rules_.max_channels < rules_.min_channels)
    return fail(Code::invalid_argument, "{} to {} channels", rules_.min_channels, rules_.max_channels);
  TUTTI_ASSIGN(hosts, seat_ranks(input_));
  hosts_ = std::move(hosts);
  order_hosts();
  find_kinds();
  choose_rings();
  choose_trees();
  lay_hosts();
  for (size_t c = 0; c < rings_.channels(); c++) lay_channel(c);
  explain();
  fill_children(&out_);
  return std::move(out_);
}

} // namespace

void fill_children(Cluster *cluster) {
  std::vector<size_t> host_of(cluster->new_rank.size());
  for (size_t h = 0; h < cluster->hosts.size(); h++)
    for (int32_t r : cluster->hosts[h].ranks) host_of[static_cast<size_t>(r)] = h;
  for (ClusterChannel &c : cluster->channels) {
    c.children.assign(c.parent.size(), {});
    for (const bool own_host : {false, true})
      for (size_t r = 0; r < c.parent.size(); r++)
        if (const int32_t up = c.parent[r]; up >= 0 && (host_of[r] == host_of[static_cast<size_t>(up)]) == own_host)
          c.children[static_cast<size_t>(up)].push_back(static_cast<int32_t>(r));
  }
}

Result<Cluster> make_cluster(const ClusterInput &input, const ClusterRules &rules) {
  return Builder(input, rules).run();
}

} // namespace tutti
