#include "tools/tune_race.h"
#include <algorithm>
#include <cmath>

namespace tutti::tools::tune {

double median_of(std::vector<double> v) {
  if (v.empty()) return std::nan("");
  const size_t half = v.size() / 2;
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half), v.end());
  if (v.size() % 2) return v[half];
  return (v[half] + *std::max_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(half))) / 2;
}

std::vector<size_t> Race::order() const {
  std::vector<size_t> out;
  for (size_t i = 0; i < runners_.size(); i++)
    if (!runners_[i].out) out.push_back(i);
  if (rounds_ % 2) std::reverse(out.begin(), out.end());
  return out;
}

bool Race::hopeless(const Ratio &r) const {
  if (r.rounds == 0) return false;
  return r.low > Rules::beyond[std::min(r.rounds, std::size(Rules::beyond)) - 1] || (r.rounds >= rules_.least && r.low > 1);
}

void Race::add_round(std::span<const size_t> who, std::span<const double> seconds) {
  for (size_t k = 0; k < who.size(); k++) {
    if (runners_[who[k]].out) continue;
    if (std::isfinite(seconds[k]))
      runners_[who[k]].seconds.push_back(seconds[k]);
    else
      disqualify(who[k]);
  }
  rounds_++;
  const size_t first = best();
  for (size_t i = 0; i < runners_.size(); i++)
    if (!runners_[i].out && !runners_[i].kept && i != first && hopeless(ratio(i, first))) runners_[i].out = true;
}

bool Race::decided() const {
  if (order().empty() || rounds_ >= rules_.most) return true;
  if (rounds_ == 0) return false;
  const size_t first = best();
  for (size_t i : order()) {
    if (i == first) continue;
    const Ratio r = ratio(i, first);
    if (rounds_ < rules_.least || r.low < 1 - rules_.within) return false;
    if (runners_[i].kept && r.low <= rules_.verdict && rules_.verdict < r.high) return false;
  }
  return true;
}

size_t Race::best() const {
  size_t out = size();
  double least = 0;
  for (size_t i = 0; i < runners_.size(); i++) {
    if (runners_[i].out || runners_[i].seconds.empty()) continue;
    const double m = median_of(runners_[i].seconds);
    if (out == size() || m < least) out = i, least = m;
  }
  return out;
}

// The interval from order statistics: the number of ratios below the true median is binomial.
Ratio Race::ratio(size_t i, size_t to) const {
  if (i >= size() || to >= size()) return {};
  const auto &a = runners_[i].seconds, &b = runners_[to].seconds;
  std::vector<double> ratios;
  for (size_t k = 0; k < std::min(a.size(), b.size()); k++) ratios.push_back(a[k] / b[k]);
  if (ratios.empty()) return {};
  std::sort(ratios.begin(), ratios.end());
  const double n = static_cast<double>(ratios.size()), reach = 0.98 * std::sqrt(n);
  const auto low = static_cast<size_t>(std::max(0.0, std::floor(n / 2 - reach)));
  const auto high = static_cast<size_t>(std::min(n - 1, std::ceil(n / 2 + reach) - 1));
  return {median_of(ratios), ratios[low], ratios[std::max(low, high)], ratios.size()};
}

double Race::seconds(size_t i) const {
  if (runners_[i].failed || runners_[i].seconds.empty()) return std::nan("");
  const size_t first = best();
  if (first == size() || first == i) return median_of(runners_[i].seconds);
  return ratio(i, first).median * median_of(runners_[first].seconds);
}

std::vector<size_t> Race::ranking() const {
  std::vector<std::pair<double, size_t>> timed;
  for (size_t i = 0; i < size(); i++)
    if (const double s = seconds(i); std::isfinite(s)) timed.emplace_back(s, i);
  std::sort(timed.begin(), timed.end());
  std::vector<size_t> out;
  for (const auto &[s, i] : timed) out.push_back(i);
  return out;
}

} // namespace tutti::tools::tune
