// How good the checker is: thousands of plans with one field changed. Whatever the checker lets pass must still give the right
// bytes on every rank, under every schedule that the interpreter tries.
#include "plans.h"
#include <array>
#include <cstdlib>
#include <doctest/doctest.h>
#include <map>
#include <random>

using namespace plans;

namespace {

using Random = std::mt19937_64;

template <class T> void nudge(T &field, Random &rng) {
  switch (rng() % 4) {
  case 0:
    field = static_cast<T>(field + 1);
    break;
  case 1:
    field = static_cast<T>(field - 1);
    break;
  case 2:
    field = static_cast<T>(rng() % 4);
    break;
  default:
    field = static_cast<T>(field + 2);
    break;
  }
}

void mutate_ref(tutti_ref &r, Random &rng) {
  switch (rng() % 5) {
  case 0:
    nudge(r.buf, rng);
    break;
  case 1:
    nudge(r.count, rng);
    break;
  case 2:
    nudge(r.stride, rng);
    break;
  case 3:
    nudge(r.modulus, rng);
    break;
  default:
    nudge(r.first, rng);
    break;
  }
}

void mutate_step(Plan &p, PlanLane &lane, size_t at, Random &rng) {
  tutti_step &s = lane.steps[at];
  switch (rng() % 14) {
  case 0:
    s.ops ^= 1u << (rng() % 7);
    break;
  case 1:
    nudge(s.repeat, rng);
    break;
  case 2:
  case 3:
    mutate_ref(s.src, rng);
    break;
  case 4:
  case 5:
    mutate_ref(s.dst, rng);
    break;
  case 6:
    nudge(s.recv_first, rng);
    break;
  case 7:
    nudge(s.send_first, rng);
    break;
  case 8:
    nudge(rng() % 2 ? s.recv_count : s.send_count, rng);
    break;
  case 9:
    nudge(s.link_stride, rng);
    break;
  case 10:
    nudge(s.src_pos, rng);
    break;
  case 11:
    s.dep_count = 0;
    break;
  case 12:
    s.dep_first = static_cast<uint32_t>(p.deps.size());
    s.dep_count = 1;
    p.deps.push_back({static_cast<uint32_t>(rng() % p.lanes.size()), static_cast<uint32_t>(rng() % 3)});
    break;
  default: // another order, one step more, one less
    if (rng() % 3 == 0)
      std::swap(s, lane.steps[rng() % lane.steps.size()]);
    else if (rng() % 2)
      lane.steps.insert(lane.steps.begin() + static_cast<long>(at), tutti_step(s));
    else
      lane.steps.erase(lane.steps.begin() + static_cast<long>(at));
  }
}

void mutate(Plan &p, Random &rng) {
  PlanLane &lane = p.lanes[rng() % p.lanes.size()];
  const uint64_t what = rng() % 16;
  if (what == 0 && !lane.recv.empty()) {
    tutti_link &l = lane.recv[rng() % lane.recv.size()];
    rng() % 2 ? nudge(l.peer, rng) : nudge(l.conn, rng);
  } else if (what == 1 && !lane.send.empty()) {
    tutti_link &l = lane.send[rng() % lane.send.size()];
    rng() % 2 ? nudge(l.peer, rng) : nudge(l.conn, rng);
  } else if (what == 2) {
    nudge(lane.group, rng);
  } else if (what == 3 && lane.recv.size() > 1) {
    std::swap(lane.recv[rng() % lane.recv.size()], lane.recv[rng() % lane.recv.size()]);
  } else if (!lane.steps.empty()) {
    mutate_step(p, lane, rng() % lane.steps.size(), rng);
  }
}

bool still_right(const PlanSet &plans, bool in_place) {
  for (const bool reverse : {false, true})
    for (const uint64_t block : {uint64_t{3000}, uint64_t{408}}) {
      RunOptions o;
      o.block = plans[0]->request.coll == TUTTI_COLL_BARRIER ? 8 : block;
      o.in_place = in_place;
      o.run.slice_bytes = 256;
      o.run.reverse = reverse;
      if (!run_and_verify(plans, o).empty()) return false;
    }
  return true;
}

} // namespace

TEST_CASE("every mutation that changes what a plan does is caught") {
  Random rng(20240607);
  std::map<std::string, int> caught;
  int harmless = 0, missed = 0;
  const int per_case = std::getenv("TUTTI_TEST_LONG") ? 200 : 12;
  for_cases(std::array{2, 3, 4, 5}, [&](const Case &c) {
    if (c.channels == 2) return; // 1 and 3 show everything
    for (std::string_view algorithm : {"ring", "direct"}) {
      const PlanSet plans = build(algorithm, c);
      if (plans.empty()) continue;
      for (int i = 0; i < per_case; i++) {
        // One rank, or all in the same way: a step moved on all ranks is how plans deadlock.
        const size_t victim = rng() % plans.size();
        const bool all = rng() % 4 == 0;
        const uint64_t seed = rng();
        PlanSet mutated = plans;
        bool malformed = false;
        for (size_t r = all ? 0 : victim; r < (all ? plans.size() : victim + 1) && !malformed; r++) {
          Plan copy = *plans[r];
          Random same(seed);
          mutate(copy, same);
          auto rebuilt = rebuild(copy);
          malformed = !rebuilt.ok();
          if (!malformed) mutated[r] = *rebuilt;
        }
        if (malformed) {
          caught["malformed"]++;
          continue;
        }
        CheckOptions o;
        o.in_place = c.flags & TUTTI_REQ_IN_PLACE;
        const auto found = check_plans(mutated, o);
        if (!found.empty()) {
          caught[found[0].rule]++;
          continue;
        }
        if (still_right(mutated, o.in_place)) {
          harmless++;
          continue;
        }
        missed++;
        MESSAGE("missed: " << algorithm << " " << c.name() << "\n"
                           << dump_text(*plans[victim]) << "became\n"
                           << dump_text(*mutated[victim]));
      }
    }
  });
  std::string score;
  for (const auto &[rule, n] : caught) score += fmt::format("{} {}, ", rule, n);
  MESSAGE("caught: " << score << "harmless " << harmless << ", missed " << missed);
  CHECK(missed == 0);
  CHECK(caught["malformed"] + caught["deadlock"] + caught["result"] + caught["link"] + caught["order"] > 5000);
  for (const char *rule : {"malformed", "result", "link", "order", "deadlock"}) CHECK(caught[rule] > 5);
}
