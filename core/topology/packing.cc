#include "topology/packing.h"
#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti {

namespace {

constexpr double kSame = 1e-9; // relative; sums of bandwidths closer than this are equal

using Loads = std::vector<double>; // of each link, for one byte on each channel

void add_route(const Route &r, double bytes, Loads *loads) {
  for (size_t i = 0; i < r.links.size(); i++) (*loads)[static_cast<size_t>(r.links[i])] += bytes * r.bytes_on(i);
}

void add_laid(const Routes &routes, const Laid &laid, double sign, Loads *loads) {
  for (const Hop &h : laid.hops) add_route(routes.between(h.from, h.to)[static_cast<size_t>(h.route)], sign * h.bytes, loads);
}

double congestion_of(const Machine &machine, const Loads &loads) {
  double most = 0;
  for (size_t l = 0; l < loads.size(); l++) most = std::max(most, loads[l] / machine.links()[l].gbps);
  return most;
}

std::vector<Hop> hops_of(bool ring, bool both_ways, const std::vector<int> &order) {
  std::vector<Hop> hops;
  for (size_t i = 0; i + !ring < order.size(); i++) {
    const int a = order[i], b = order[(i + 1) % order.size()];
    hops.push_back({a, b});
    if (both_ways) hops.push_back({b, a});
  }
  return hops;
}

bool both_ways(Pattern p) {
  return p == Pattern::chain || p == Pattern::twice || p == Pattern::rooted;
}

class Packer {
public:
  using Ends = std::pair<int, int>; // ports; -1: any

  Packer(Pattern pattern, const Machine &machine, const Routes &routes, const PackRules &rules)
      : pattern_(pattern), machine_(machine), routes_(routes), rules_(rules),
        hamilton_(pattern == Pattern::chain ? Shape::chain : Shape::ring, routes.size()), left_(rules.steps),
        bound_(rules.bound) {
    for (const MachineLink &l : machine.links()) capacity_.push_back(l.gbps);
    const size_t n = routes.size();
    std::vector<bool> used(capacity_.size());
    for (size_t a = 0; a < n; a++)
      for (size_t b = 0; b < n; b++)
        for (const Route &r : routes.between(static_cast<int>(a), static_cast<int>(b)))
          for (int l : r.links) used[static_cast<size_t>(l)] = true;
    for (size_t l = 0; l < used.size(); l++)
      if (used[l]) links_.push_back(l);
  }

  Packing run() {
    lower_bound(kBoundRounds);
    struct Size {
      int channels;
      double most; // sum that so many can reach
    };
    std::vector<Size> sizes;
    for (int n = rules_.min_channels; n <= rules_.max_channels; n++) sizes.push_back({n, n * level(bound_ / n)});
    std::stable_sort(sizes.begin(), sizes.end(),
                     [](const Size &a, const Size &b) { return std::llround(a.most * 1e6) > std::llround(b.most * 1e6); });
    for (int round = 0; round < kRounds; round++) {
      const int64_t budget = left_ / (kRounds - round);
      for (size_t i = 0; i < sizes.size() && (left_ > 0 || best_ == 0); i++) {
        if (sizes[i].most < rules_.enough * best_ || (round > 0 && sizes[i].most <= best_ * (1 + kSame))) break;
        sets_.emplace_back();
        improve_set(static_cast<size_t>(sizes[i].channels), sizes[i].most,
                    budget / (round == 0 ? static_cast<int64_t>(sizes.size()) : kSizesPerRound));
      }
    }
    std::stable_sort(sets_.begin(), sets_.end(), [](const Packing &x, const Packing &y) {
      return x.channels.size() != y.channels.size() ? x.channels.size() < y.channels.size() : x.gbps > y.gbps;
    });
    for (Packing &set : sets_) {
      if (set.total() < rules_.enough * best_) continue;
      set.bound = bound_;
      return std::move(set);
    }
    return {};
  }

private:
  static constexpr int kBoundRounds = 1500;

  // The highest bandwidth of a channel up to `most` at which some link is full to the last byte: no other can be that of a best
  // set.
  double level(double most) const {
    double best = 0;
    for (size_t l : links_) {
      const double need = capacity_[l] / most * (1 - kSame);
      for (int costly = 0; costly <= kMostCostly; costly++) { // hops through an Intel processor
        const double rest = std::max(0.0, std::ceil(need - kIntelExpansion * costly)), load = rest + kIntelExpansion * costly;
        best = std::max(best, capacity_[l] / std::max(1.0, load));
        if (rest == 0) break;
      }
    }
    return std::min(best, most);
  }

  void add(const Laid &laid, double sign, Loads *loads) const { add_laid(routes_, laid, sign, loads); }

  // The cheapest way from a to b, of those over `port` where it is not -1.
  std::pair<double, int> way(const Loads &price, int a, int b, int port) const {
    const auto &options = routes_.between(a, b);
    std::pair<double, int> best{std::numeric_limits<double>::infinity(), 0};
    for (size_t o = 0; o < options.size(); o++) {
      const Route &r = options[o];
      if (port >= 0 && r.port >= 0 && r.port != port) continue;
      double sum = 0;
      for (size_t i = 0; i < r.links.size(); i++) sum += price[static_cast<size_t>(r.links[i])] * r.bytes_on(i);
      if (sum < best.first) best = {sum, static_cast<int>(o)};
    }
    return best;
  }

  double cost_of_hop(const Loads &price, int a, int b, Ends ends) const {
    const int outside = routes_.outside();
    if (pattern_ == Pattern::rooted && b == outside) return 0; // where the chain ends
    const int port = a == outside ? ends.first : b == outside ? ends.second : -1;
    double cost = way(price, a, b, port).first;
    if (both_ways(pattern_)) cost += way(price, b, a, port).first;
    return pattern_ == Pattern::rooted && a == outside ? rules_.attach * cost : cost;
  }

  // The cheapest ring at these prices, and in *least what no ring goes below.
  Laid cheapest(const Loads &price, Ends ends, double *least = nullptr) {
    const int n = static_cast<int>(routes_.size());
    std::vector<double> costs;
    for (int a = 0; a < n; a++)
      for (int b = 0; b < n; b++) costs.push_back(a == b ? 0 : cost_of_hop(price, a, b, ends));
    left_ -= hamilton_.steps();
    Laid laid{hamilton_.cheapest(costs), {}, ends.first, ends.second};
    if (least) *least = hamilton_.lower_bound(laid.order, costs);
    choose_ways(price, ends, &laid);
    return laid;
  }

  void choose_ways(const Loads &price, Ends ends, Laid *laid) const {
    const int outside = routes_.outside();
    if (outside >= 0) // first
      std::rotate(laid->order.begin(), std::find(laid->order.begin(), laid->order.end(), outside), laid->order.end());
    const bool ring = pattern_ != Pattern::chain && pattern_ != Pattern::rooted;
    laid->hops = hops_of(ring, both_ways(pattern_), laid->order);
    for (size_t i = 0; i < laid->hops.size(); i++) {
      Hop &h = laid->hops[i];
      const bool crosses = outside >= 0 && (h.from == outside || h.to == outside);
      const bool first = i < 1u + both_ways(pattern_);
      h.route = way(price, h.from, h.to, !crosses ? -1 : first ? ends.first : ends.second).second;
      if (crosses && pattern_ == Pattern::rooted) h.bytes = rules_.attach;
    }
    if (outside >= 0) laid->order.erase(laid->order.begin());
  }

  // Multiplicative prices: each ring makes its links dearer, the narrow ones most.
  void lower_bound(int rounds) {
    Loads price(capacity_.size());
    for (size_t l : links_) price[l] = 1 / capacity_[l];
    const int64_t reserve = rules_.steps / 2;
    for (int i = 0; i < rounds && left_ > reserve; i++) {
      double least = 0;
      Loads loads(capacity_.size());
      add(cheapest(price, {-1, -1}, &least), 1, &loads);
      double worth = 0;
      for (size_t l : links_) worth += price[l] * capacity_[l];
      bound_ = std::min(bound_, worth / least);
      const double most = congestion_of(machine_, loads), rate = 0.5 / (1 + i / 20.0);
      for (size_t l : links_) price[l] *= (1 + rate * loads[l] / capacity_[l] / most) / worth;
    }
  }

  double potential(const Loads &loads, double each) const {
    double sum = 0;
    for (size_t l : links_) sum += std::exp(kSharpness * std::min(loads[l] * each / capacity_[l] - 1, 8.0));
    return sum;
  }

  // A link's price: how much the potential grows by one ring more on it.
  Laid lay(size_t channel, const Loads &loads, double each, double noise) {
    Loads price(capacity_.size());
    for (size_t l : links_) {
      const double unit = each / capacity_[l], now = std::min(loads[l] * unit, 8.0), then = std::min(now + unit, 9.0);
      price[l] = std::exp(kSharpness * (then - 1)) - std::exp(kSharpness * (now - 1)) + 1e-9 * unit;
      if (noise > 0) price[l] *= 1 + noise * random();
    }
    return cheapest(price, rules_.ends.empty() ? Ends{-1, -1} : rules_.ends[channel % rules_.ends.size()]);
  }

  // One after the other; then two at a time are taken out and laid anew, the first of them with some noise, and stay if that is
  // no worse. `most` is what the sum can be.
  void improve_set(size_t n, double most, int64_t share) {
    const int64_t stop = left_ - share;
    const double each = most / static_cast<double>(n);
    const auto reached = [&] { return sets_.back().total() >= most * (1 - kSame); };
    for (int start = 0; start < kStarts && !reached() && (start == 0 || left_ > stop); start++) {
      std::vector<Laid> set;
      Loads loads(capacity_.size());
      for (size_t i = 0; i < n; i++) {
        set.push_back(lay(i, loads, each, start == 0 ? 0 : 0.5));
        add(set.back(), 1, &loads);
      }
      keep(set, loads);
      double now = potential(loads, each);
      for (size_t turn = 0; turn < kTurns * n && !reached() && left_ > stop; turn++) {
        const size_t i = turn % n, j = static_cast<size_t>(random() * static_cast<double>(n));
        const Loads old_loads = loads;
        Laid first = set[i], second = set[j];
        add(first, -1, &loads);
        if (i != j) add(second, -1, &loads);
        set[i] = lay(i, loads, each, i == j ? 0.1 : 1);
        add(set[i], 1, &loads);
        if (i != j) {
          set[j] = lay(j, loads, each, 0);
          add(set[j], 1, &loads);
        }
        const double then = potential(loads, each);
        if (then > now * (1 + kSame)) {
          loads = old_loads;
          set[i] = std::move(first);
          if (i != j) set[j] = std::move(second);
          continue;
        }
        now = then;
        keep(set, loads);
      }
    }
  }

  void keep(const std::vector<Laid> &set, const Loads &loads) {
    Packing &kept = sets_.back();
    const double gbps = 1 / congestion_of(machine_, loads);
    if (gbps <= kept.gbps * (1 + kSame)) return;
    kept.channels = set;
    kept.gbps = gbps;
    best_ = std::max(best_, kept.total());
  }

  double random() { // 0 to 1, the same in every run
    seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(seed_ >> 40) / static_cast<double>(1u << 24);
  }

  static constexpr int kStarts = 64, kMostCostly = 64, kRounds = 3, kSizesPerRound = 4;
  static constexpr size_t kTurns = 40;
  static constexpr double kSharpness = 6;
  const Pattern pattern_;
  const Machine &machine_;
  const Routes &routes_;
  const PackRules rules_;
  const Hamilton hamilton_;
  int64_t left_; // steps
  std::vector<double> capacity_;
  std::vector<size_t> links_; // those that some route takes
  double bound_;              // on the sum
  uint64_t seed_ = 1;
  std::vector<Packing> sets_; // the best of each number of channels
  double best_ = 0;           // sum among them
};

// Each unit of Pattern::twice as the two channels that it is: hops alternate.
Packing unfold(const Packing &units) {
  Packing p{{}, units.gbps, 2 * units.bound};
  for (const Laid &unit : units.channels) {
    Laid forth{unit.order, {}, unit.port_in, unit.port_out}, back{unit.order, {}, unit.port_out, unit.port_in};
    for (size_t i = 0; i < unit.hops.size(); i++) (i % 2 == 0 ? forth : back).hops.push_back(unit.hops[i]);
    std::reverse(back.order.begin(), back.order.end());
    std::reverse(back.hops.begin(), back.hops.end());
    p.channels.push_back(std::move(forth));
    p.channels.push_back(std::move(back));
  }
  return p;
}

} // namespace

std::vector<double> loads_of(const Machine &machine, const Routes &routes, const Packing &packing) {
  Loads loads(machine.links().size());
  for (const Laid &laid : packing.channels) add_laid(routes, laid, 1, &loads);
  return loads;
}

Packing lay_orders(Pattern pattern, const Machine &machine, const Routes &routes, const std::vector<std::vector<int>> &orders) {
  Packing p;
  Loads loads(machine.links().size());
  for (const std::vector<int> &order : orders)
    p.channels.push_back({order, hops_of(pattern == Pattern::ring, both_ways(pattern), order)});
  for (int pass = 0; pass < 4; pass++)
    for (Laid &laid : p.channels)
      for (Hop &h : laid.hops) {
        const std::vector<Route> &options = routes.between(h.from, h.to);
        if (pass > 0) add_route(options[static_cast<size_t>(h.route)], -1, &loads);
        double least = std::numeric_limits<double>::infinity();
        for (size_t o = 0; o < options.size(); o++) {
          double most = 0;
          for (int l : options[o].links)
            most = std::max(most, (loads[static_cast<size_t>(l)] + options[o].expansion) / machine.link(l).gbps);
          if (most < least) least = most, h.route = static_cast<int>(o);
        }
        add_route(options[static_cast<size_t>(h.route)], 1, &loads);
      }
  p.gbps = 1 / congestion_of(machine, loads);
  p.bound = p.total();
  return p;
}

Packing pack(Pattern pattern, const Machine &machine, const Routes &routes, const PackRules &rules) {
  if (routes.size() < 2 || !routes.connected()) return {};
  if (pattern != Pattern::twice) return Packer(pattern, machine, routes, rules).run();
  PackRules halved = rules;
  halved.min_channels = (rules.min_channels + 1) / 2;
  halved.max_channels = rules.max_channels / 2;
  halved.bound = rules.bound / 2;
  return unfold(Packer(pattern, machine, routes, halved).run());
}

} // namespace tutti
