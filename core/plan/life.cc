// Which sends may leave from the user's memory, and which receives may land there.
#include "plan/life.h"
#include "plan/accesses.h"
#include "plan/refs.h"

namespace tutti {
namespace {

// The memory that holds v once the step's operands have been read: dst, or src when v is src itself.
const tutti_ref *home_of(const tutti_step &s) {
  if (has(s, TUTTI_STEP_STORE)) return &s.dst;
  return has(s, TUTTI_STEP_SRC) && !has(s, TUTTI_STEP_RECV) ? &s.src : nullptr;
}

template <class Fn> bool all_cells(const Accesses &acc, uint32_t group, const tutti_step &s, const tutti_ref &r, Fn good) {
  for (uint32_t i = 0; i < s.repeat; i++) {
    const auto first = static_cast<uint32_t>(ref_first(r, i));
    for (uint32_t j = 0; j < r.count; j++) {
      bool ok = true;
      acc.each(acc.cell(group, r.buf, first + j), [&](const Access &a) { ok = ok && good(a, i); });
      if (!ok) return false;
    }
  }
  return true;
}

// Scratch is reused `window` slices later, so it is no stable home.
bool sends_from_home(const Accesses &acc, uint32_t group, const tutti_step &s, uint32_t id) {
  const tutti_ref *home = home_of(s);
  if (!has(s, TUTTI_STEP_SEND) || !home || home->buf == TUTTI_BUF_SCRATCH) return false;
  return all_cells(acc, group, s, *home, [&](const Access &a, uint32_t i) {
    return !a.write || (a.step == id ? a.last_iter <= i : acc.before(a.step, id));
  });
}

bool receives_at_home(const tutti_step &s) {
  return has(s, TUTTI_STEP_RECV) && s.recv_count == 1 && has(s, TUTTI_STEP_STORE) && s.dst.buf == TUTTI_BUF_OUT &&
         !has(s, TUTTI_STEP_SRC) && !has(s, TUTTI_STEP_POSTOP);
}

// Whatever else touches the cells comes later. An access of an iteration before the last one is not seen: it counts as early.
bool receives_early(const Accesses &acc, uint32_t group, const tutti_step &s, uint32_t id) {
  return receives_at_home(s) && all_cells(acc, group, s, s.dst, [&](const Access &a, uint32_t i) {
           return a.step == id ? a.last_iter == i : acc.before(id, a.step);
         });
}

Status add_bits(Plan &plan, bool in_place, uint32_t send_home, uint32_t recv_early) {
  TUTTI_ASSIGN(acc, Accesses::of(plan, in_place));
  for (uint32_t l = 0; l < plan.lanes.size(); l++) {
    PlanLane &lane = plan.lanes[l];
    lane.life.resize(lane.steps.size());
    for (uint32_t i = 0; i < lane.steps.size(); i++) {
      const tutti_step &s = lane.steps[i];
      const uint32_t id = acc.step_id(l, i);
      uint32_t &life = lane.life[i];
      if (sends_from_home(acc, lane.group, s, id)) life |= send_home;
      if (receives_at_home(s)) life |= kRecvHome;
      if (receives_early(acc, lane.group, s, id)) life |= recv_early;
    }
  }
  return {};
}

} // namespace

Status find_life(Plan &plan) {
  TUTTI_TRY(add_bits(plan, false, kSendHome, kRecvEarly));
  return add_bits(plan, true, kSendHomeInPlace, kRecvEarlyInPlace);
}

} // namespace tutti
