#include "comm/plan_check.h"
#include "tutti/plugin/cxx/plugin.hpp"
#include <doctest/doctest.h>

using namespace tutti;

namespace {

int asked = 0;

// Two ranks exchange a whole all_reduce; the wrong one forgets what it was sent.
template <bool right> tutti_status plan_pair(void *, const tutti_algo_request *q, const tutti_plan_builder *out) noexcept {
  asked++;
  plugin::PlanWriter w;
  w.shape(*q, 1);
  auto lane = w.lane(0);
  lane.from(1 - q->rank, 0).to(1 - q->rank, 0);
  lane.step().src(plugin::in(0)).preop().send();
  if (right || q->rank == 0)
    lane.step().src(plugin::in(0)).preop().recv().reduce().position(q->rank).postop().store(plugin::out(0));
  else
    lane.step().recv().store(plugin::out(0));
  return w.emit(*out);
}
tutti_status supports(void *, const tutti_algo_request *) noexcept {
  return TUTTI_OK;
}

template <bool right> Status check(const char *name) {
  static const Plugin plugin;
  static const tutti_algo_v1 table = {sizeof(tutti_algo_v1), 0, name, supports, plan_pair<right>, nullptr};
  const auto stats = check_plans_once({&plugin, &table}, 2, false,
                                      [](int rank) { return PlanRequest::simple(TUTTI_COLL_ALL_REDUCE, rank, 2); });
  return stats.ok() ? Status() : stats.status();
}

} // namespace

TEST_CASE("plans of an algorithm are proved once, and a wrong one is named with what is wrong") {
  CHECK(check<true>("pair").ok());
  const int before = asked;
  CHECK(check<true>("pair").ok());
  CHECK(asked == before);
  const Status wrong = check<false>("forgetful");
  REQUIRE(!wrong.ok());
  CHECK(wrong.code() == Code::internal);
  CHECK(wrong.error().message.find("\"forgetful\" plans all_reduce of 2 ranks wrong: result: rank 1") != std::string::npos);
  CHECK(!check<false>("forgetful").ok());
}
