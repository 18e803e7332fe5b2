// How good the checker is: every plan with one field changed, on one rank or on all alike. What the reference executor finds
// wrong or hanging in one of 100 random schedules, the checker has to reject.
#include "executor.h"
#include "mutants.h"
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fstream>
#include <map>

using namespace plans;

namespace {

constexpr uint64_t kSchedules = 100;

struct Score {
  uint64_t mutants = 0;   // of another canonical form
  uint64_t malformed = 0; // refused before there is anything to run; counted nowhere else
  uint64_t bad = 0;       // wrong or hanging in at least one schedule
  uint64_t rejected = 0;  // of those, by the checker
  uint64_t harmless = 0;  // right in every schedule
  uint64_t strict = 0;    // of those, rejected by the checker all the same
  void add(const Score &o) {
    mutants += o.mutants, malformed += o.malformed, bad += o.bad, rejected += o.rejected, harmless += o.harmless,
        strict += o.strict;
  }
};

// Do the two have the same fields, so that a mutant of one can be made of the other?
bool same_skeleton(const Plan &a, const Plan &b) {
  if (a.lanes.size() != b.lanes.size() || a.scratch_size.size() != b.scratch_size.size()) return false;
  for (size_t l = 0; l < a.lanes.size(); l++) {
    const PlanLane &x = a.lanes[l], &y = b.lanes[l];
    if (x.recv.size() != y.recv.size() || x.send.size() != y.send.size() || x.steps.size() != y.steps.size()) return false;
    for (size_t i = 0; i < x.steps.size(); i++)
      if (x.steps[i].dep_first != y.steps[i].dep_first || x.steps[i].dep_count != y.steps[i].dep_count) return false;
  }
  return true;
}

class Trial {
public:
  explicit Trial(bool full) : full_(full) {}

  void plan_set(const std::string &algorithm, const Case &c) {
    plans_ = build(algorithm, c);
    if (plans_.empty()) return;
    name_ = algorithm + " " + c.name();
    in_place_ = c.flags & TUTTI_REQ_IN_PLACE;
    score_ = &scores[algorithm];
    REQUIRE_MESSAGE(run_seeds(plans_, in_place_, 0, full_ ? kSchedules : 20) == "", name_);
    forms_.clear();
    for (const auto &p : plans_) forms_.push_back(canonical(*p));
    const bool alike = std::all_of(plans_.begin(), plans_.end(), [&](const auto &p) { return same_skeleton(*p, *plans_[0]); });
    for (size_t r = 0; r < plans_.size(); r++) {
      const auto list = mutants_of(*plans_[r]);
      for (size_t i = 0; i < list.size(); i++) {
        if (!full_ && turn_++ % stride_of(list.size()) != 0) continue;
        mutate(list[i], r, r + 1);
        if (r == 0 && alike) mutate(list[i], 0, plans_.size());
      }
    }
  }

  std::map<std::string, Score> scores;
  std::map<std::string, uint64_t> by_rule;
  std::vector<std::string> survivors;

private:
  // A sample visits some hundred plan sets, a handful of mutants of each; prime, so that all fields have their turn.
  static size_t stride_of(size_t mutants) { return mutants < 400 ? 7 : 31; }

  void mutate(const Mutant &m, size_t first, size_t end) {
    PlanSet mutated = plans_;
    bool differs = false;
    for (size_t r = first; r < end; r++) {
      Plan copy = *plans_[r];
      m.apply(copy);
      const auto again = rebuild(copy);
      if (!again.ok()) {
        score_->malformed++;
        return;
      }
      mutated[r] = *again;
      differs |= canonical(**again) != forms_[r];
    }
    if (!differs) return;
    score_->mutants++;
    judge(m, mutated, end - first > 1 ? "all ranks" : fmt::format("rank {}", first));
  }
  void judge(const Mutant &m, const PlanSet &mutated, const std::string &where) {
    CheckOptions o;
    o.in_place = in_place_;
    const auto found = check_plans(mutated, o);
    const std::string bad = run_seeds(mutated, in_place_, 0, kSchedules);
    if (!found.empty()) by_rule[found[0].rule]++;
    if (bad.empty()) {
      score_->harmless++;
      score_->strict += found.empty() ? 0 : 1;
      return;
    }
    score_->bad++;
    score_->rejected += found.empty() ? 0 : 1;
    if (found.empty()) survivors.push_back(fmt::format("{}, {}: {}: {}", name_, where, m.what, bad));
  }

  const bool full_;
  size_t turn_ = 0;
  PlanSet plans_;
  std::string name_;
  std::vector<std::string> forms_;
  bool in_place_ = false;
  Score *score_ = nullptr;
};

std::string report(const Trial &t, bool full) {
  std::string text = fmt::format("Single-field mutations of every plan of {} ranks{}.\n\n", full ? "2, 3 and 4" : "2 and 3",
                                 full ? "" : ", a sample; all with TEST_FULL=1");
  text += fmt::format("{:<12} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "algorithm", "malformed", "mutants", "bad",
                      "rejected", "%", "harmless", "strict");
  for (const auto &[name, s] : t.scores)
    text +=
        fmt::format("{:<12} {:>9} {:>9} {:>9} {:>9} {:>9.3f} {:>9} {:>9}\n", name, s.malformed, s.mutants, s.bad, s.rejected,
                    s.bad ? 100.0 * static_cast<double>(s.rejected) / static_cast<double>(s.bad) : 100.0, s.harmless, s.strict);
  text +=
      "\nmalformed: refused by the builder, before there is a plan; not counted. mutants: of another canonical form.\n"
      "bad: wrong or hanging in at least one of 100 random schedules. rejected: of those, by the checker. harmless: right in\n"
      "all schedules. strict: of those, rejected all the same (rules that hold for every size and timing, not for these).\n\n";
  text += "first rule broken:";
  for (const auto &[rule, n] : t.by_rule) text += fmt::format(" {} {}", rule, n);
  text += fmt::format("\n\nsurvivors: {}\n", t.survivors.size());
  for (const std::string &s : t.survivors) text += "  " + s + "\n";
  return text;
}

} // namespace

TEST_CASE("the checker rejects every mutation that a reference executor finds wrong") {
  const bool full = std::getenv("TEST_FULL") != nullptr;
  Trial trial(full);
  const std::vector<int> sizes = full ? std::vector{2, 3, 4} : std::vector{2, 3};
  for (const std::string &name : algorithms())
    for_cases(sizes, [&](const Case &c) {
      if (c.channels == 3) return; // two show what several do
      trial.plan_set(name, c);
    });
  const std::string text = report(trial, full);
  std::ofstream(TUTTI_BINARY_DIR "/mutation.txt") << text;
  MESSAGE(text);
  for (const auto &score : trial.scores) {
    const std::string &name = score.first; // clang 14 captures no binding
    const Score &s = score.second;
    CHECK_MESSAGE(s.bad > 50, name);
    CHECK_MESSAGE(static_cast<double>(s.rejected) >= 0.995 * static_cast<double>(s.bad), name);
  }
  for (const char *rule : {"shape", "result", "link", "order", "deadlock"}) CHECK_MESSAGE(trial.by_rule[rule] > 5, rule);
}
