// `tutti perf --overlap`: how much of an operation's time a computation hides. Each of three loops runs iterations that all
// ranks begin together: the operation alone, the computation alone, made to take about as long, and both: the operation is
// enqueued, the calling thread computes, then it waits. An iteration takes as long as on its slowest rank; medians count.
#include "tools/perf_overlap.h"
#include "tools/perf_rank.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

namespace tutti::tools::perf {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr size_t kValues = 1024;
constexpr double kTrial = 200e-6; // seconds: long beside the clock's own time
constexpr int kTrials = 5;        // the fastest is the one that nothing has disturbed

double seconds_since(SteadyClock::time_point t) {
  return std::chrono::duration<double>(SteadyClock::now() - t).count();
}

} // namespace

Compute::Compute() : values_(kValues, 1.0f) {}

void Compute::round() {
  for (float &v : values_) v = v * 0.999f + 0.001f;
  asm volatile("" : : "r"(values_.data()) : "memory"); // the values count as used: the loop stays
}

void Compute::run() {
  for (uint64_t i = 0; i < rounds_; i++) round();
}

void Compute::take(double seconds) {
  double each = 0;
  for (rounds_ = 1;; rounds_ *= 2) {
    double best = 1e9;
    for (int t = 0; t < kTrials; t++) {
      const auto start = SteadyClock::now();
      run();
      best = std::min(best, seconds_since(start));
    }
    each = best / static_cast<double>(rounds_);
    if (best >= kTrial) break;
  }
  rounds_ = std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(seconds / each)));
}

double Rank::median_iteration(const std::function<void()> &body) {
  std::vector<double> mine;
  for (int i = -args_.warmup; i < args_.iters; i++) {
    barrier();
    const auto start = SteadyClock::now();
    body();
    if (i >= 0) mine.push_back(seconds_since(start) / args_.agg);
  }
  const auto raw = gather(mine.data(), mine.size() * sizeof(double));
  std::vector<double> slowest(mine.size(), 0);
  for (size_t at = 0; at < raw.size(); at += sizeof(double)) {
    double v = 0;
    std::memcpy(&v, raw.data() + at, sizeof v);
    double &most = slowest[at / sizeof(double) % mine.size()];
    most = std::max(most, v);
  }
  return stats_of(std::move(slowest)).p50;
}

Overlap Rank::measure_overlap(const Call &call) {
  Overlap o;
  Compute compute;
  o.valid = true;
  o.comm = median_iteration([&] {
    iteration(call);
    wait();
  });
  barrier(); // no rank computes alone while others still wait
  compute.take(o.comm * args_.agg);
  o.compute = median_iteration([&] { compute.run(); });
  o.both = median_iteration([&] {
    iteration(call);
    compute.run();
    wait();
  });
  return o;
}

} // namespace tutti::tools::perf
