// TEST_FULL=1 ends with the fault table: how often each fault happened, and how long it took at most until a member knew.
#include "work.h"
#include <algorithm>
#include <doctest/doctest.h>

namespace collnet {
namespace {

struct Row {
  std::string name;
  int times = 0;
  int64_t slowest = -1; // ms; none was taken
};
std::vector<Row> rows;

class Table final : public doctest::IReporter {
public:
  explicit Table(const doctest::ContextOptions &) {}
  void test_case_start(const doctest::TestCaseData &test) override { rows.push_back({test.m_name}); }
  void test_run_end(const doctest::TestRunStats &) override {
    if (!full()) return;
    std::printf("| fault | times | known after, at most |\n| --- | --- | --- |\n");
    for (const Row &r : rows)
      if (r.times > 0)
        std::printf("| %s | %d | %s |\n", r.name.c_str(), r.times,
                    r.slowest < 0 ? "" : (std::to_string(r.slowest) + " ms").c_str());
  }
  void report_query(const doctest::QueryData &) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData &) override {}
  void test_case_end(const doctest::CurrentTestCaseStats &) override {}
  void test_case_exception(const doctest::TestCaseException &) override {}
  void subcase_start(const doctest::SubcaseSignature &) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData &) override {}
  void log_message(const doctest::MessageData &) override {}
  void test_case_skipped(const doctest::TestCaseData &) override {}
};
REGISTER_LISTENER("faults", 1, Table);

} // namespace

void happened() {
  if (!rows.empty()) rows.back().times++;
}
void known_after(int64_t ms) {
  if (!rows.empty()) rows.back().slowest = std::max(rows.back().slowest, ms);
}

} // namespace collnet
