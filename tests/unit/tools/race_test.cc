// The racing of `tutti tune`, with made-up times, and what becomes of its results.
#include "tools/tune_load.h"
#include "tools/tune_race.h"
#include "tools/tune_table.h"
#include <cmath>
#include <doctest/doctest.h>
#include <functional>
#include <random>

using namespace tutti::tools::tune;

namespace {

// Runs to the end; returns how many samples were taken.
size_t run(Race &race, const std::function<double(size_t runner, size_t round)> &time) {
  size_t samples = 0;
  while (!race.decided()) {
    std::vector<double> seconds;
    const auto order = race.order();
    for (size_t i : order) seconds.push_back(time(i, race.rounds()));
    samples += seconds.size();
    race.add_round(order, seconds);
  }
  return samples;
}

} // namespace

TEST_CASE("medians of an even number of values lie between the middle two") {
  CHECK(median_of({3, 1, 2}) == 2);
  CHECK(median_of({4, 1, 2, 3}) == 2.5);
  CHECK(std::isnan(median_of({})));
}
TEST_CASE("the fastest wins, and the hopeless cost a sample or two each") {
  Race race(10);
  const size_t samples = run(race, [](size_t i, size_t) { return 1e-6 * static_cast<double>(i == 7 ? 2 : 10 + i); });
  CHECK(race.best() == 7);
  CHECK(samples == 10 + 4); // six take over six times as long, which one sample shows
  CHECK(race.ranking().front() == 7);
  CHECK(race.ranking().back() == 9);
  CHECK(race.seconds(9) == doctest::Approx(19e-6));
}
TEST_CASE("ways that differ by less than the noise are not separated for ever, and the best is known within the bound") {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.05);
  for (int game = 0; game < 50; game++) {
    Race::Rules rules;
    rules.within = 0.03;
    Race race(8, rules);
    const std::vector<double> truth = {1.0, 1.01, 1.05, 1.08, 1.3, 1.6, 2.5, 9};
    run(race, [&](size_t i, size_t) { return truth[i] * noise(random); });
    CHECK(race.rounds() <= rules.most);
    CHECK(truth[race.best()] <= 1.05);
    CHECK(!race.racing(7));
  }
}
TEST_CASE("a machine that becomes slower in the middle does not change who wins: only rounds in common are compared") {
  Race race(3);
  run(race, [](size_t i, size_t round) { return (round < 3 ? 1.0 : 4.0) * (i == 1 ? 1.0 : 1.5); });
  CHECK(race.best() == 1);
  CHECK(race.ratio(0, 1).median == doctest::Approx(1.5));
  CHECK(race.seconds(0) == doctest::Approx(1.5 * race.seconds(1)));
}
TEST_CASE("rounds go there and back") {
  Race race(3);
  CHECK(race.order() == std::vector<size_t>{0, 1, 2});
  race.add_round(race.order(), std::vector<double>{1, 1, 1});
  CHECK(race.order() == std::vector<size_t>{2, 1, 0});
}
TEST_CASE("one that fails is out and has no time; when all fail nobody is best") {
  Race race(2);
  race.add_round(race.order(), std::vector<double>{INFINITY, 1});
  CHECK(!race.racing(0));
  CHECK(race.best() == 1);
  CHECK(std::isnan(race.seconds(0)));
  race.disqualify(1);
  CHECK(race.best() == race.size());
  CHECK(race.decided());
  CHECK(race.ranking().empty());
  Race none(0);
  CHECK(none.decided());
}
TEST_CASE("one that is kept stays although it is slow") {
  Race race(3);
  race.keep(2);
  for (int k = 0; k < 6; k++) {
    std::vector<double> seconds;
    const auto order = race.order();
    for (size_t i : order) seconds.push_back(i == 0 ? 1 : 5);
    race.add_round(order, seconds);
  }
  CHECK((race.racing(2) && !race.racing(1)));
  CHECK(race.ratio(2, 0).rounds == 6);
  CHECK(race.ratio(2, 0).low == 5);
}
TEST_CASE("one that is kept is measured until it is known on which side of the verdict it is") {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1, 0.05);
  size_t rounds[2];
  for (double verdict : {0.0, 1.10}) {
    Race::Rules rules;
    rules.verdict = verdict;
    Race race(2, rules);
    race.keep(1);
    run(race, [&](size_t i, size_t) { return (i == 1 ? 1.12 : 1.0) * noise(random); });
    rounds[verdict > 0] = race.rounds();
  }
  CHECK(rounds[0] < rounds[1]);
}
TEST_CASE("the interval of a ratio narrows with the rounds") {
  std::mt19937 random(2);
  std::normal_distribution<double> noise(1, 0.1);
  Race::Rules rules;
  rules.most = 1000;
  Race race(2, rules);
  race.keep(0), race.keep(1);
  double before = 1e9;
  for (int stop : {8, 64, 512}) {
    while (race.rounds() < static_cast<size_t>(stop))
      race.add_round(race.order(), std::vector<double>{noise(random), noise(random)});
    const Ratio r = race.ratio(1, 0);
    CHECK((r.low <= r.median && r.median <= r.high));
    CHECK(r.high - r.low < before);
    before = r.high - r.low;
  }
}

TEST_CASE("what others compute is what cores worked beyond what the ranks on them did, the worst group counting") {
  CHECK(foreign_load(std::vector<LoadReading>{{1, 1.8, 0.9, 2}, {1, 1.8, 0.9, 2}}) == doctest::Approx(0));
  CHECK(foreign_load(std::vector<LoadReading>{{1, 2.0, 0.5, 2}, {1, 2.0, 0.5, 2}}) == doctest::Approx(0.5));
  CHECK(foreign_load(std::vector<LoadReading>{{1, 1, 1, 1}, {2, 1, 0.25, 1}}) == doctest::Approx(0.75));
  CHECK(foreign_load(std::vector<LoadReading>{{1, 5, 0, 0}}) == 0); // nothing known
  CHECK(foreign_load(std::vector<LoadReading>{{1, 0.9, 1, 1}}) == 0);
}
TEST_CASE("a process that computes sees its own work as its own") {
  LoadWatch watch;
  const auto begin = std::chrono::steady_clock::now();
  volatile double x = 1;
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(50)) x = x * 1.0001;
  const LoadReading r = watch.read();
  CHECK(r.own > 0);
  CHECK(r.room >= 0.05);
}

TEST_CASE("the winner of two visits is good in both, and plain unless it gains something") {
  const auto way = [](const char *algo, const char *proto, uint32_t channels = 1, bool nt = false) {
    return Way{algo, proto, channels, 1024, 16, nt};
  };
  const Way lucky = way("ring", "ll"), steady = way("direct", "simple"), other = way("tree", "simple");
  Point p{"all_reduce", 1024, {{lucky, 8}, {steady, 10}, {other, 12}}, {{lucky, 8}, {steady, 10}, {other, 12}}};
  SUBCASE("a lucky first visit is not enough") {
    settle(p, {{steady, 10}, {lucky, 14}, {other, 12}}, 0.03);
    CHECK(p.ranking[0].way == steady);
    CHECK(p.ranking[0].us == doctest::Approx(10));
    CHECK(p.ranking[1].way == lucky); // sqrt(8 * 14) < 12
    CHECK(p.ranking.size() == 3);
  }
  SUBCASE("two per cent do not pay for stores past the caches or channels, ten do") {
    const Way special = way("direct", "simple", 2, true);
    p.finalists = {{special, 9.8}, {steady, 10}};
    p.ranking = {{special, 9.8}, {other, 12}};
    settle(p, {{special, 9.8}, {steady, 10}}, 0.03);
    CHECK(p.ranking[0].way == steady);
    CHECK(p.ranking.size() == 2); // one form of each
    settle(p, {{special, 8}, {steady, 10}}, 0.03);
    CHECK(p.ranking[0].way == special);
    CHECK(p.ranking[1].us >= p.ranking[0].us);
  }
  SUBCASE("who failed the second visit loses nothing but the chance to win") {
    settle(p, {{other, 12}}, 0.03);
    CHECK(p.ranking[0].way == other);
    settle(p, {}, 0.03);
    CHECK(p.ranking.size() == 3);
  }
}
