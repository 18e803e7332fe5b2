#include "plan/accesses.h"
#include "plan/refs.h"
#include <algorithm>

namespace tutti {

Result<Accesses> Accesses::of(const Plan &plan, bool in_place) {
  Accesses a(plan, in_place && has_in_place_form(plan.request.coll));
  a.number_steps();
  TUTTI_TRY(a.order_steps());
  a.collect();
  return a;
}

uint32_t Accesses::cell(uint32_t group, uint32_t buf, uint32_t chunk) const {
  const Plan &p = *plan_;
  if (buf == TUTTI_BUF_IN && in_place_) {
    if (const auto same = out_of_in(p, chunk)) return cell(group, TUTTI_BUF_OUT, *same);
  }
  const uint32_t outs = p.groups * p.out_chunks, ins = p.groups * p.in_chunks;
  if (buf == TUTTI_BUF_OUT) return group * p.out_chunks + chunk;
  return buf == TUTTI_BUF_IN ? outs + group * p.in_chunks + chunk : outs + ins + chunk;
}

std::string Accesses::cell_name(uint32_t cell) const {
  const Plan &p = *plan_;
  const uint32_t outs = p.groups * p.out_chunks, ins = p.groups * p.in_chunks;
  const auto of_group = [&](uint32_t g) { return p.groups > 1 ? fmt::format(" of group {}", g) : std::string(); };
  if (cell < outs) return fmt::format("OUT chunk {}{}", cell % p.out_chunks, of_group(cell / p.out_chunks));
  cell -= outs;
  if (cell < ins) return fmt::format("IN chunk {}{}", cell % p.in_chunks, of_group(cell / p.in_chunks));
  return fmt::format("SCRATCH chunk {}", cell - ins);
}

void Accesses::number_steps() {
  for (uint32_t l = 0; l < plan_->lanes.size(); l++) {
    lane_base_.push_back(static_cast<uint32_t>(lane_of_.size()));
    lane_of_.insert(lane_of_.end(), plan_->lanes[l].steps.size(), l);
  }
}

void Accesses::add(uint32_t cell, uint32_t step, uint32_t iter, bool write) {
  // Steps come in order, so an earlier access of the same kind by the same step is one of the first two entries.
  uint32_t at = head_[cell];
  for (int look = 0; look < 2 && at != kNone; look++, at = nodes_[at].next) {
    Access &a = nodes_[at].access;
    if (a.step == step && a.write == write) {
      a.last_iter = iter;
      return;
    }
  }
  nodes_.push_back({{step, iter, write}, head_[cell]});
  head_[cell] = static_cast<uint32_t>(nodes_.size() - 1);
}

void Accesses::collect() {
  const Plan &p = *plan_;
  head_.assign(size_t{p.groups} * (size_t{p.in_chunks} + p.out_chunks) + p.scratch_chunks, kNone);
  for (uint32_t l = 0; l < p.lanes.size(); l++)
    for (uint32_t i = 0; i < p.lanes[l].steps.size(); i++) {
      const tutti_step &s = p.lanes[l].steps[i];
      const auto touch = [&](const tutti_ref &r, uint32_t iter, bool write) {
        const auto first = static_cast<uint32_t>(ref_first(r, iter));
        for (uint32_t j = 0; j < r.count; j++) add(cell(p.lanes[l].group, r.buf, first + j), step_id(l, i), iter, write);
      };
      for (uint32_t iter = 0; iter < s.repeat; iter++) {
        if (has(s, TUTTI_STEP_SRC)) touch(s.src, iter, false);
        if (has(s, TUTTI_STEP_STORE)) touch(s.dst, iter, true);
      }
    }
}

// Vector clocks in topological order of lanes' sequences and deps.
Status Accesses::order_steps() {
  const Plan &p = *plan_;
  if (p.deps.empty()) return {};
  const size_t steps = lane_of_.size(), lanes = p.lanes.size();
  if (steps * lanes > (size_t{1} << 28))
    return fail(Code::internal, "malformed plan: {} steps in {} lanes are too many", steps, lanes);
  std::vector<std::vector<uint32_t>> followers(steps);
  std::vector<uint32_t> waits(steps, 0), ready;
  const auto step_of = [&](uint32_t id) -> const tutti_step & { return p.lanes[lane_of_[id]].steps[index_of(id)]; };
  for (uint32_t id = 0; id < steps; id++) {
    const tutti_step &s = step_of(id);
    waits[id] = (index_of(id) > 0 ? 1u : 0u) + s.dep_count;
    if (index_of(id) > 0) followers[id - 1].push_back(id);
    for (uint32_t d = 0; d < s.dep_count; d++)
      followers[step_id(p.deps[s.dep_first + d].lane, p.deps[s.dep_first + d].step)].push_back(id);
    if (waits[id] == 0) ready.push_back(id);
  }
  clock_.assign(steps * lanes, 0);
  size_t done = 0;
  while (!ready.empty()) {
    const uint32_t id = ready.back();
    ready.pop_back();
    done++;
    for (uint32_t next : followers[id]) {
      for (size_t l = 0; l < lanes; l++) clock_[next * lanes + l] = std::max(clock_[next * lanes + l], clock_[id * lanes + l]);
      uint32_t &own = clock_[next * lanes + lane_of_[id]];
      own = std::max(own, index_of(id) + 1);
      if (--waits[next] == 0) ready.push_back(next);
    }
  }
  if (done == steps) return {};
  const auto stuck =
      static_cast<uint32_t>(std::find_if(waits.begin(), waits.end(), [](uint32_t w) { return w > 0; }) - waits.begin());
  return fail(Code::internal, "malformed plan: deps form a cycle; lane {} step {} waits for itself through others",
              lane_of_[stuck], index_of(stuck));
}

std::vector<std::string> unordered_accesses(const Accesses &accesses, const Plan &plan, size_t limit) {
  std::vector<std::string> found;
  if (plan.lanes.size() < 2) return found;
  const auto name = [&](const Access &a) {
    return fmt::format("lane {} step {} ({})", accesses.lane_of(a.step), accesses.index_of(a.step),
                       a.write ? "writes" : "reads");
  };
  const uint32_t scratch_begin = accesses.cells() - plan.scratch_chunks;
  for (uint32_t cell = 0; cell < accesses.cells() && found.size() < limit; cell++) {
    bool told = false;
    accesses.each(cell, [&](const Access &a) {
      if (told) return;
      accesses.each(cell, [&](const Access &b) {
        if (told || accesses.lane_of(a.step) >= accesses.lane_of(b.step)) return;
        const bool race = (a.write || b.write) && !accesses.before(a.step, b.step) && !accesses.before(b.step, a.step);
        const bool mixed =
            cell >= scratch_begin && plan.lanes[accesses.lane_of(a.step)].group != plan.lanes[accesses.lane_of(b.step)].group;
        if (!race && !mixed) return;
        told = true;
        found.push_back(
            mixed ? fmt::format("{} is used by two groups: {} and {}", accesses.cell_name(cell), name(a), name(b))
                  : fmt::format("{}: {} and {} are in no order; a dep is missing", accesses.cell_name(cell), name(a), name(b)));
      });
    });
  }
  return found;
}

} // namespace tutti
