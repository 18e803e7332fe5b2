// tutti/core/topology/hamilton.h: the cheapest ring or chain over all of a few places.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

enum class Shape { ring, chain };

// cost[a * n + b] >= 0 is that of the hop from a to b; of a chain, of both ways together (symmetric).
class Hamilton {
public:
  Hamilton(Shape shape, size_t n) : shape_(shape), n_(n) {}
  // Exact by dynamic programming up to kMostExact places, else by insertion and then moves of stretches and reversals until
  // none gains. Deterministic.
  std::vector<int> cheapest(const std::vector<double> &cost) const;
  double cost_of(const std::vector<int> &order, const std::vector<double> &cost) const;
  // No ring or chain is cheaper than this; equal to the cheapest where that is exact.
  double lower_bound(const std::vector<int> &cheapest, const std::vector<double> &cost) const;
  int64_t steps() const; // of one call, roughly

  static constexpr size_t kMostExact = 12; // 2^11 * 11^2 steps
  static constexpr size_t kMostImproved = 80;

private:
  std::vector<int> exact(const std::vector<double> &cost) const;
  std::vector<int> inserted(const std::vector<double> &cost) const;
  bool improve(std::vector<int> *order, double *total, const std::vector<double> &cost) const;

  Shape shape_;
  size_t n_;
};

} // namespace tutti
