// Every change of one field of a plan.
#pragma once
#include "plans.h"

namespace plans {

struct Mutant {
  std::string what; // "lane 0 step 2: src.first 1 -> 2"
  std::function<void(Plan &)> apply;
};

// All single-field mutations of one rank's plan. By field: each bit of ops and of a link's flags turned; buf set to each other
// buffer; each other number one more, one less, two more, 0, negated and doubled, where that changes it; each dep removed, and
// one on every step of another lane added; each step removed, doubled, or exchanged with the next. Numbers are those of step,
// ref, link, dep, lane and shape: ops repeat src dst recv_first recv_count send_first send_count link_stride src_pos; buf count
// first stride modulus; peer conn flags; lane step; group; pieces groups scratch_chunks scratch_size min_depth window
// resident_lanes.
std::vector<Mutant> mutants_of(const Plan &plan);

// What a plan means, unrolled: for each lane what each iteration of each step reads, combines, writes and sends to whom, after
// what. Plans of equal canonical form do the same, however it is written down.
std::string canonical(const Plan &plan);

} // namespace plans
