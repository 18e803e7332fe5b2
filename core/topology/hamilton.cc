#include "topology/hamilton.h"
#include <algorithm>
#include <limits>
#include <numeric>

namespace tutti {
namespace {
constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kGain = 1e-12; // below it an exchange is rounding
} // namespace

int64_t Hamilton::steps() const {
  const auto n = static_cast<int64_t>(n_);
  if (n_ <= kMostExact) return (int64_t{1} << n) * n * n / 8 + 64;
  return n_ <= kMostImproved ? 4 * n * n * n : n * n;
}

double Hamilton::cost_of(const std::vector<int> &order, const std::vector<double> &cost) const {
  double sum = 0;
  for (size_t i = 0; i + (shape_ == Shape::chain) < order.size(); i++)
    sum += cost[static_cast<size_t>(order[i]) * n_ + static_cast<size_t>(order[(i + 1) % order.size()])];
  return sum;
}

std::vector<int> Hamilton::cheapest(const std::vector<double> &cost) const {
  if (n_ <= 2) {
    std::vector<int> all(n_);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  if (n_ <= kMostExact) return exact(cost);
  std::vector<int> order = inserted(cost);
  double total = cost_of(order, cost);
  for (int round = 0; n_ <= kMostImproved && round < 64 && improve(&order, &total, cost); round++) {
  }
  return order;
}

// Held and Karp: best[set][last] over sets of places. A ring starts at the last place, which is in no set; a chain anywhere.
std::vector<int> Hamilton::exact(const std::vector<double> &cost) const {
  const size_t m = shape_ == Shape::ring ? n_ - 1 : n_; // places in sets
  const size_t full = size_t{1} << m;
  std::vector<double> best(full * m, kInfinite);
  std::vector<int8_t> before(full * m, -1);
  for (size_t i = 0; i < m; i++) best[(size_t{1} << i) * m + i] = shape_ == Shape::ring ? cost[m * n_ + i] : 0;
  for (size_t set = 1; set < full; set++) {
    for (size_t last = 0; last < m; last++) {
      const double sofar = best[set * m + last];
      if (sofar == kInfinite) continue;
      for (size_t next = 0; next < m; next++) {
        if (set >> next & 1) continue;
        double &b = best[(set | size_t{1} << next) * m + next];
        const double c = sofar + cost[last * n_ + next];
        if (c >= b) continue;
        b = c;
        before[(set | size_t{1} << next) * m + next] = static_cast<int8_t>(last);
      }
    }
  }
  size_t end = 0;
  double least = kInfinite;
  for (size_t i = 0; i < m; i++) {
    const double c = best[(full - 1) * m + i] + (shape_ == Shape::ring ? cost[i * n_ + m] : 0);
    if (c < least) least = c, end = i;
  }
  std::vector<int> order;
  if (shape_ == Shape::ring) order.push_back(static_cast<int>(m));
  for (size_t set = full - 1, at = end; set != 0;) {
    order.push_back(static_cast<int>(at));
    const auto prior = before[set * m + at];
    set &= ~(size_t{1} << at);
    if (prior >= 0) at = static_cast<unsigned char>(prior);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Place after place goes where it lengthens the ring or chain least.
std::vector<int> Hamilton::inserted(const std::vector<double> &cost) const {
  std::vector<int> order{0, 1};
  const auto hop = [&](int a, int b) { return cost[static_cast<size_t>(a) * n_ + static_cast<size_t>(b)]; };
  for (int place = 2; place < static_cast<int>(n_); place++) {
    double least = kInfinite;
    size_t where = 0;
    for (size_t at = shape_ == Shape::ring ? 1 : 0; at <= order.size(); at++) { // between at - 1 and at
      const bool first = at == 0, last = at == order.size() && shape_ == Shape::chain;
      const int before = first ? -1 : order[at - 1], after = last ? -1 : order[at % order.size()];
      const double c =
          (first ? 0 : hop(before, place)) + (last ? 0 : hop(place, after)) - (first || last ? 0 : hop(before, after));
      if (c < least) least = c, where = at;
    }
    order.insert(order.begin() + static_cast<ptrdiff_t>(where), place);
  }
  return order;
}

// One pass: each stretch of up to three places moved to each other spot, as it is and reversed; then each stretch reversed in
// place.
bool Hamilton::improve(std::vector<int> *order, double *total, const std::vector<double> &cost) const {
  bool gained = false;
  const auto take = [&](const std::vector<int> &candidate) {
    const double c = cost_of(candidate, cost);
    if (c >= *total - kGain * *total) return;
    *order = candidate;
    *total = c;
    gained = true;
  };
  const auto n = static_cast<ptrdiff_t>(n_);
  for (ptrdiff_t length = 1; length <= 3; length++)
    for (ptrdiff_t from = 0; from + length <= n; from++)
      for (ptrdiff_t to = 0; to <= n - length; to++) {
        std::vector<int> rest = *order, stretch(order->begin() + from, order->begin() + from + length);
        rest.erase(rest.begin() + from, rest.begin() + from + length);
        for (int turn = 0; turn < 2; turn++) {
          std::vector<int> candidate = rest;
          candidate.insert(candidate.begin() + to, stretch.begin(), stretch.end());
          take(candidate);
          std::reverse(stretch.begin(), stretch.end());
        }
      }
  for (ptrdiff_t from = 0; from < n; from++)
    for (ptrdiff_t to = from + 2; to <= n; to++) {
      std::vector<int> candidate = *order;
      std::reverse(candidate.begin() + from, candidate.begin() + to);
      take(candidate);
    }
  return gained;
}

// Every place of a ring is left once and entered once; of a chain, all but one are left in one direction.
double Hamilton::lower_bound(const std::vector<int> &cheapest, const std::vector<double> &cost) const {
  if (n_ <= kMostExact) return cost_of(cheapest, cost);
  double out = 0, in = 0, dearest_out = 0, dearest_in = 0;
  for (size_t a = 0; a < n_; a++) {
    double o = kInfinite, i = kInfinite;
    for (size_t b = 0; b < n_; b++) {
      if (a == b) continue;
      o = std::min(o, cost[a * n_ + b]);
      i = std::min(i, cost[b * n_ + a]);
    }
    out += o, in += i;
    dearest_out = std::max(dearest_out, o), dearest_in = std::max(dearest_in, i);
  }
  return shape_ == Shape::ring ? std::max(out, in) : std::max(out - dearest_out, in - dearest_in);
}

} // namespace tutti
