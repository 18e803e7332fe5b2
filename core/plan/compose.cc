// Composition. Every stage is planned alone; then its chunks, ranks and links are renamed into those of the whole.
//
// A unit is a chunk of the composed plan, numbered through the whole collective (chunk_identity). A stage's chunk is a row of
// `factor` units. What one stage leaves for the next lies in SCRATCH, a region per stage and group. Stages keep lanes of their
// own; a step that reads what the stage before wrote waits for the steps that wrote it.
//
// A rank may name stages that it is no member of: it plans them as their first member would, to cut its chunks as all the
// others do, and passes them by: what its last own stage left is what its next one reads.
#include "plan/compose.h"
#include "plan/check.h"
#include "plan/refs.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

namespace tutti {
namespace {

constexpr uint32_t kMaxStages = 8; // a link's conn is conn * kMaxStages + stage, the same on both ends
constexpr uint64_t kMaxUnits = 1u << 20;
constexpr uint32_t kMaxNesting = 4; // compositions inside compositions: one that has itself for a stage would never end
using Units = std::vector<uint32_t>;

// A chunk region of the composed plan: chunk c of the stage's buffer begins at base + c * factor.
struct Region {
  uint32_t buf = 0, base = 0;
};

class Composer {
public:
  Composer(const PlanRequest &request, std::span<const ComposeStage> stages) : q_(request) {
    for (size_t i = 0; i < stages.size(); i++)
      if (stages[i].members.size() > 1) {
        if (position(stages[i], q_.rank) >= 0) own_.push_back(stages_.size());
        stages_.push_back(&stages[i]);
        number_.push_back(static_cast<uint32_t>(i));
      }
    given_ = stages.size();
  }

  Status run(const tutti_plan_builder *out) {
    TUTTI_TRY(check());
    uint32_t channels = q_.channels;
    TUTTI_TRY(plan_stages(channels));
    const auto fewest = [&] {
      uint32_t g = ~0u;
      for (const auto &p : plans_) g = std::min(g, p->groups);
      return g;
    };
    if (fewest() != channels) TUTTI_TRY(plan_stages(fewest()));
    for (size_t k = 0; k < plans_.size(); k++)
      if (plans_[k]->groups != plans_[0]->groups)
        return misfit(k, "cuts the data into {} groups, the first stage into {}", plans_[k]->groups, plans_[0]->groups);
    TUTTI_TRY(count_units());
    TUTTI_TRY(check_result());
    TUTTI_TRY(lay_out_scratch());
    for (size_t i = 0; i < own_.size(); i++) TUTTI_TRY(translate(i));
    return emit(out);
  }

private:
  // invalid_usage: another algorithm may fit. Everything else: no other one would make it right.
  Status about(size_t k, Code code, const std::string &text) const {
    const ComposeStage &s = *stages_[k];
    return fail(code, "stage {} ({} by {} among {} ranks): {}", number_[k], coll_name(s.coll), s.algo.table->name,
                s.members.size(), text)
        .phase("plan");
  }
  template <class... A> Status misfit(size_t k, fmt::format_string<A...> text, A &&...a) const {
    return about(k, Code::invalid_usage, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A> Status malformed(size_t k, fmt::format_string<A...> text, A &&...a) const {
    return about(k, Code::invalid_argument, fmt::format(text, std::forward<A>(a)...));
  }

  Status check_members(size_t k) const {
    const ComposeStage &s = *stages_[k];
    for (int32_t m : s.members)
      if (m < 0 || m >= q_.nranks) return malformed(k, "member {} is not in 0..{}", m, q_.nranks - 1);
    std::vector<int32_t> sorted = s.members;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
      return malformed(k, "member {} is listed twice", *twice);
    if (coll_has_root(s.coll) && (s.root < 0 || static_cast<size_t>(s.root) >= s.members.size()))
      return malformed(k, "root {} is no position in its members", s.root);
    return {};
  }

  Status check() const {
    if (own_.empty()) return fail(Code::invalid_usage, "no stage has rank {} and another one among its members", q_.rank);
    if (q_.max_lanes != 0 && q_.max_lanes < stages_.size())
      return fail(Code::invalid_usage, "{} stages need a lane each, of at most {}", stages_.size(), q_.max_lanes);
    if (given_ > kMaxStages) return fail(Code::invalid_usage, "{} stages, of at most {}", given_, kMaxStages);
    if (q_.coll == TUTTI_COLL_ALL_TO_ALL)
      return fail(Code::invalid_usage, "alltoall cannot be composed: its blocks have no place in common");
    if (q_.flags & TUTTI_REQ_NONUNIFORM) return fail(Code::invalid_usage, "blocks of different sizes cannot be composed");
    bool reduced = false; // by a stage of this rank
    for (size_t k = 0; k < stages_.size(); k++) {
      const ComposeStage &s = *stages_[k];
      if (s.coll == TUTTI_COLL_ALL_TO_ALL || s.coll >= TUTTI_COLL_BARRIER) return misfit(k, "cannot be a stage");
      TUTTI_TRY(check_members(k));
      if (coll_reduces(s.coll) && !coll_reduces(q_.coll)) return misfit(k, "reduces, but {} does not", coll_name(q_.coll));
      if (!coll_reduces(s.coll) || position(s, q_.rank) < 0) continue;
      if (!reduced && k != own_[0])
        return misfit(k, "is the first to reduce, but does not read IN: the pre-operation has no place");
      reduced = true;
    }
    if (coll_reduces(q_.coll) && !reduced)
      return fail(Code::invalid_usage, "{} of stages none of which reduces", coll_name(q_.coll));
    return {};
  }

  static int position(const ComposeStage &s, int rank) {
    const auto it = std::find(s.members.begin(), s.members.end(), rank);
    return it == s.members.end() ? -1 : static_cast<int>(it - s.members.begin());
  }

  PlanRequest stage_request(const ComposeStage &s, uint32_t channels) const {
    PlanRequest r;
    r.coll = s.coll;
    r.rank = std::max(0, position(s, q_.rank));
    r.nranks = static_cast<int>(s.members.size());
    r.root = coll_has_root(s.coll) ? s.root : -1;
    r.channels = channels;
    r.flags = q_.flags & TUTTI_REQ_MANY_SLICES;
    if (r.nranks == q_.nranks) r.flags |= q_.flags & TUTTI_REQ_MULTICAST; // a ring that all others read
    if (own_.size() == 1) r.flags |= q_.flags & TUTTI_REQ_IN_PLACE;       // it reads IN and fills OUT
    r.max_lanes = q_.max_lanes / static_cast<uint32_t>(stages_.size());
    for (int32_t m : s.members) r.node_of_rank.push_back(q_.node_of_rank[static_cast<size_t>(m)]);
    for (uint32_t c = 0; c < channels; c++) {
      PlanRequest::Channel channel; // trees and heads were searched for all ranks, not for these
      for (int32_t rank : q_.channel[c].order)
        if (const int at = position(s, rank); at >= 0) channel.order.push_back(at);
      r.channel.push_back(std::move(channel));
    }
    return r;
  }

  Status plan_stages(uint32_t channels) {
    plans_.clear();
    for (size_t k = 0; k < stages_.size(); k++) {
      const PlanRequest r = stage_request(*stages_[k], channels);
      if (Status s = algo_supports(stages_[k]->algo, r); !s.ok()) return about(k, s.error().code, s.error().message);
      auto plan = build_plan(stages_[k]->algo, r);
      if (!plan.ok()) return about(k, plan.status().error().code, plan.status().error().message);
      plans_.push_back(std::move(*plan));
    }
    return {};
  }

  // The least number of chunks per block that every stage can cut its input from. A stage sees num / den of a block.
  Status count_units() {
    uint64_t num = coll_in_blocks(q_.coll, static_cast<uint32_t>(q_.nranks)), den = 1, k_all = 1;
    for (size_t k = 0; k < stages_.size(); k++) {
      const uint64_t chunks = plans_[k]->in_chunks, m = stages_[k]->members.size();
      const uint64_t k_stage = chunks * den / std::gcd(chunks * den, num);
      if (k_stage <= kMaxUnits) k_all = std::lcm(k_all, k_stage);
      if (std::max(k_stage, k_all) > kMaxUnits) return misfit(k, "needs more than {} chunks", kMaxUnits);
      num *= coll_out_blocks(stages_[k]->coll, static_cast<uint32_t>(m));
      den *= coll_in_blocks(stages_[k]->coll, static_cast<uint32_t>(m));
      const uint64_t g = std::gcd(num, den);
      num /= g, den /= g;
      if (std::max(num, den) > kMaxUnits) return misfit(k, "leaves more than {} blocks or parts of one", kMaxUnits);
    }
    pieces_ = static_cast<uint32_t>(k_all);
    if (pieces_ * uint64_t{coll_in_blocks(q_.coll, static_cast<uint32_t>(q_.nranks))} > kMaxUnits)
      return fail(Code::invalid_usage, "the stages need more than {} chunks", kMaxUnits);
    factor_.assign(plans_.size(), 0);
    for (const size_t k : own_) {
      const size_t units = input(k, q_.rank).size();
      if (units == 0 || units % plans_[k]->in_chunks != 0)
        return misfit(k, "cannot cut its input of {} chunks into {}", units, plans_[k]->in_chunks);
      factor_[k] = static_cast<uint32_t>(units / plans_[k]->in_chunks);
    }
    return {};
  }

  // Units that `rank` holds before stage k, in order.
  const Units &before(size_t k, int rank) {
    const auto key = std::make_pair(k, rank);
    if (const auto it = units_.find(key); it != units_.end()) return it->second;
    Units u;
    if (k == 0) {
      const uint32_t blocks = coll_in_blocks(q_.coll, static_cast<uint32_t>(q_.nranks));
      const bool own = q_.coll == TUTTI_COLL_ALL_GATHER || q_.coll == TUTTI_COLL_GATHER;
      u.resize(size_t{blocks} * pieces_);
      std::iota(u.begin(), u.end(), own ? static_cast<uint32_t>(rank) * pieces_ : 0u);
    } else {
      u = after(k - 1, rank);
    }
    return units_[key] = std::move(u);
  }

  // What stage k, of which `rank` is a member in its own view, cuts into its IN chunks: where there is only one IN, that one.
  const Units &input(size_t k, int rank) {
    const ComposeStage &s = *stages_[k];
    if (s.coll != TUTTI_COLL_BROADCAST && s.coll != TUTTI_COLL_SCATTER) return before(k, rank);
    return before(k, members_of(k, rank)[static_cast<size_t>(s.root)]);
  }

  Units after(size_t k, int rank) {
    const ComposeStage &s = *stages_[k];
    const std::vector<int32_t> members = members_of(k, rank);
    if (members.empty()) return before(k, rank);
    if (s.coll != TUTTI_COLL_ALL_GATHER && s.coll != TUTTI_COLL_GATHER) {
      const Units &u = input(k, rank);
      if (s.coll != TUTTI_COLL_REDUCE_SCATTER && s.coll != TUTTI_COLL_SCATTER) return u;
      const auto share = static_cast<long>(u.size() / members.size());
      const auto at = std::find(members.begin(), members.end(), rank) - members.begin();
      return Units(u.begin() + share * at, u.begin() + share * (at + 1));
    }
    Units u;
    for (const int32_t m : members) {
      const Units &part = before(k, m);
      u.insert(u.end(), part.begin(), part.end());
    }
    return u;
  }

  // Members of stage k as `rank` sees it. A rank that is not in ours is in one like it: the rank that our stage k shares with
  // the next one is to ours what `rank` is to its own. Empty: it is in none.
  std::vector<int32_t> members_of(size_t k, int rank) const {
    std::vector<int32_t> members = stages_[k]->members;
    if (position(*stages_[k], rank) >= 0) return members;
    if (k + 1 == stages_.size()) return {};
    const auto shared =
        std::find_if(members.begin(), members.end(), [&](int32_t m) { return position(*stages_[k + 1], m) >= 0; });
    if (shared == members.end()) return {};
    const int32_t shift = rank - *shared;
    for (int32_t &m : members) {
      m += shift;
      if (m < 0 || m >= q_.nranks) return {};
    }
    return members;
  }

  Status check_result() {
    if (!has_out(q_.coll, q_.rank, q_.root)) return {};
    const Units &have = before(stages_.size(), q_.rank);
    const bool own = q_.coll == TUTTI_COLL_REDUCE_SCATTER || q_.coll == TUTTI_COLL_SCATTER;
    Units want(size_t{coll_out_blocks(q_.coll, static_cast<uint32_t>(q_.nranks))} * pieces_);
    std::iota(want.begin(), want.end(), own ? static_cast<uint32_t>(q_.rank) * pieces_ : 0u);
    if (have == want) return {};
    return misfit(stages_.size() - 1, "leaves {} chunks of the data, in an order or number that is not OUT's ({} chunks)",
                  have.size(), want.size());
  }

  tutti_chunk_id sized_as(uint32_t unit) const {
    const bool in = q_.coll == TUTTI_COLL_REDUCE_SCATTER || q_.coll == TUTTI_COLL_SCATTER;
    return {in ? uint32_t{TUTTI_BUF_IN} : uint32_t{TUTTI_BUF_OUT}, unit};
  }

  int place(size_t i) const { return position(*stages_[own_[i]], q_.rank); }
  bool reads_in(size_t i) const { return has_in(stages_[own_[i]]->coll, place(i), stages_[own_[i]]->root); }
  bool fills_out(size_t i) const { return has_out(stages_[own_[i]]->coll, place(i), stages_[own_[i]]->root); }
  const Units &left_by(size_t i) { return before(own_[i] + 1, q_.rank); }

  // What this rank hands on from one of its stages to the next, by group, and the stages' own SCRATCH. A stage that has no IN
  // or OUT on this rank may still name its chunks for their size: those get a region of their own.
  Status lay_out_scratch() {
    const auto add = [&](const Units &units) {
      const auto begin = static_cast<uint32_t>(scratch_.size());
      for (uint32_t g = 0; g < plans_[0]->groups; g++)
        for (const uint32_t u : units) scratch_.push_back(sized_as(u));
      return begin;
    };
    for (size_t i = 0; i < own_.size(); i++) {
      const size_t k = own_[i];
      const bool handed_over = i > 0 && reads_in(i);
      if (handed_over && (!fills_out(i - 1) || left_by(i - 1) != input(k, q_.rank)))
        return misfit(k, "does not take what the stage before left on rank {}", q_.rank);
      in_at_.push_back(handed_over ? out_at_[i - 1] : i > 0 && names(k, TUTTI_BUF_IN) ? add(input(k, q_.rank)) : 0);
      out_at_.push_back(i + 1 < own_.size() && names(k, TUTTI_BUF_OUT) ? add(left_by(i)) : 0);
      own_scratch_.push_back(static_cast<uint32_t>(scratch_.size()));
      for (const tutti_chunk_id &id : plans_[k]->scratch_size) {
        const Units &u = id.buf == TUTTI_BUF_IN ? input(k, q_.rank) : left_by(i);
        for (uint32_t j = 0; j < factor_[k]; j++) scratch_.push_back(sized_as(u[id.chunk * factor_[k] + j]));
      }
    }
    return {};
  }
  bool names(size_t k, uint32_t buf) const {
    for (const PlanLane &lane : plans_[k]->lanes)
      for (const tutti_step &s : lane.steps)
        if ((s.src.count && s.src.buf == buf) || (s.dst.count && s.dst.buf == buf)) return true;
    return false;
  }

  Region region(size_t i, uint32_t group, uint32_t buf) {
    if (buf == TUTTI_BUF_SCRATCH) return {TUTTI_BUF_SCRATCH, own_scratch_[i]};
    const bool in = buf == TUTTI_BUF_IN;
    if (in ? i == 0 : i + 1 == own_.size()) return {buf, 0};
    const size_t units = in ? input(own_[i], q_.rank).size() : left_by(i).size();
    return {TUTTI_BUF_SCRATCH, (in ? in_at_[i] : out_at_[i]) + group * static_cast<uint32_t>(units)};
  }

  struct OutLane {
    uint32_t group;
    std::vector<tutti_link> recv, send;
    std::vector<tutti_step> steps;
    std::vector<std::vector<tutti_dep>> deps;
    std::vector<uint32_t> last; // by step of the stage's plan: its last step here
  };

  // i: the number of the stage among those of this rank.
  Status map_ref(size_t i, uint32_t group, const tutti_ref &r, uint32_t iter, bool keep_modulus, tutti_ref *m) {
    const Region to = region(i, group, r.buf);
    const int64_t f = factor_[own_[i]], count = r.count * f, first = to.base + ref_first(r, iter) * f, stride = r.stride * f,
                  modulus = keep_modulus ? r.modulus * f : 0;
    if (count > UINT16_MAX) return misfit(own_[i], "needs messages of {} chunks, of at most {}", count, UINT16_MAX);
    if (std::max({first, std::abs(stride), modulus}) > INT32_MAX)
      return misfit(own_[i], "has chunk numbers that are too large when a chunk is cut into {}", f);
    *m = {static_cast<uint16_t>(to.buf), static_cast<uint16_t>(count), static_cast<int32_t>(first),
          static_cast<int32_t>(stride), static_cast<uint32_t>(modulus)};
    return {};
  }

  // Iterations from `iter` on for which the chunk moves on by `stride` without wrapping.
  static uint32_t straight(const tutti_ref &r, uint32_t iter, uint32_t repeat) {
    uint32_t n = 1;
    while (iter + n < repeat && ref_first(r, iter + n) == ref_first(r, iter) + static_cast<int64_t>(n) * r.stride) n++;
    return n;
  }

  Status translate(size_t i) {
    const size_t k = own_[i];
    const Plan &p = *plans_[k];
    const auto first_lane = static_cast<uint32_t>(lanes_.size());
    for (const PlanLane &lane : p.lanes) {
      OutLane out{lane.group, lane.recv, lane.send, {}, {}, {}};
      TUTTI_TRY(rename(k, out.recv));
      TUTTI_TRY(rename(k, out.send));
      for (const tutti_step &s : lane.steps) {
        std::vector<tutti_dep> deps;
        for (uint32_t d = 0; d < s.dep_count; d++)
          deps.push_back({first_lane + p.deps[s.dep_first + d].lane, p.deps[s.dep_first + d].step});
        TUTTI_TRY(add_step(i, lane.group, s, deps, &out));
      }
      lanes_.push_back(std::move(out));
    }
    // Deps inside the stage named its own steps; now that all are placed, name theirs here.
    for (uint32_t l = first_lane; l < lanes_.size(); l++)
      for (auto &deps : lanes_[l].deps)
        for (tutti_dep &d : deps)
          if (d.lane >= first_lane) d.step = lanes_[d.lane].last[d.step];
    stage_lane_.push_back(first_lane);
    if (i > 0) follow(i);
    if (i > 0 && i + 1 == own_.size() && (q_.flags & TUTTI_REQ_IN_PLACE)) follow_reads_of_in(first_lane);
    return {};
  }

  Status rename(size_t k, std::vector<tutti_link> &links) const {
    for (tutti_link &l : links) {
      const uint32_t conn = l.conn * kMaxStages + number_[k];
      if (conn >= kP2pConn) return misfit(k, "numbers its links up to {}, of at most {}", l.conn, kP2pConn / kMaxStages - 1);
      l.peer = stages_[k]->members[static_cast<size_t>(l.peer)];
      l.conn = static_cast<uint16_t>(conn);
    }
    return {};
  }

  // Pre-operation only in this rank's first reduction, post-operation only in the last of all.
  uint32_t ops_of(size_t i, uint32_t ops) const {
    const size_t k = own_[i];
    const auto reduces = [&](const ComposeStage *s) { return coll_reduces(s->coll); };
    const auto first = std::find_if(own_.begin(), own_.end(), [&](size_t own) { return reduces(stages_[own]); });
    const auto last = static_cast<size_t>(stages_.rend() - std::find_if(stages_.rbegin(), stages_.rend(), reduces)) - 1;
    if (first == own_.end() || k != *first) ops &= ~uint32_t{TUTTI_STEP_PREOP};
    if (k != last) ops &= ~uint32_t{TUTTI_STEP_POSTOP};
    return ops;
  }

  Status add_step(size_t stage, uint32_t group, const tutti_step &s, const std::vector<tutti_dep> &deps, OutLane *out) {
    const auto at_origin = [&](const tutti_ref &r) { return r.count == 0 || region(stage, group, r.buf).base == 0; };
    const bool whole = (s.src.modulus == 0 || at_origin(s.src)) && (s.dst.modulus == 0 || at_origin(s.dst));
    for (uint32_t i = 0; i < s.repeat;) {
      uint32_t n = s.repeat;
      if (!whole) { // a region that does not begin at chunk 0 cannot wrap: one step per straight run
        n -= i;
        if (s.src.count) n = std::min(n, straight(s.src, i, s.repeat));
        if (s.dst.count) n = std::min(n, straight(s.dst, i, s.repeat));
      }
      tutti_step t = s;
      t.ops = ops_of(stage, s.ops);
      t.repeat = n;
      if (s.src.count) TUTTI_TRY(map_ref(stage, group, s.src, i, whole, &t.src));
      if (s.dst.count) TUTTI_TRY(map_ref(stage, group, s.dst, i, whole, &t.dst));
      if (s.recv_count) t.recv_first = static_cast<uint16_t>(s.recv_first + static_cast<int>(i) * s.link_stride);
      if (s.send_count) t.send_first = static_cast<uint16_t>(s.send_first + static_cast<int>(i) * s.link_stride);
      t.dep_first = 0;
      t.dep_count = 0;
      out->steps.push_back(t);
      out->deps.push_back(i == 0 ? deps : std::vector<tutti_dep>{});
      i += n;
    }
    out->last.push_back(static_cast<uint32_t>(out->steps.size() - 1));
    return {};
  }

  template <class Fn> static void each_chunk(const tutti_step &s, const tutti_ref &r, Fn fn) {
    for (uint32_t i = 0; i < s.repeat; i++)
      for (uint32_t j = 0; j < r.count; j++) fn(static_cast<uint32_t>(ref_first(r, i)) + j);
  }

  // Steps of this rank's stage k that read what the one before left wait for those that wrote it.
  void follow(size_t k) {
    if (!reads_in(k)) return;
    const uint32_t begin = out_at_[k - 1], end = begin + plans_[0]->groups * static_cast<uint32_t>(left_by(k - 1).size());
    std::vector<std::vector<tutti_dep>> writers(end - begin);
    for (uint32_t l = stage_lane_[k - 1]; l < stage_lane_[k]; l++)
      for (uint32_t i = 0; i < lanes_[l].steps.size(); i++) {
        const tutti_step &s = lanes_[l].steps[i];
        if (has(s, TUTTI_STEP_STORE) && s.dst.buf == TUTTI_BUF_SCRATCH)
          each_chunk(s, s.dst, [&](uint32_t c) {
            if (c >= begin && c < end) writers[c - begin].push_back({l, i});
          });
      }
    for (uint32_t l = stage_lane_[k]; l < lanes_.size(); l++)
      for (uint32_t i = 0; i < lanes_[l].steps.size(); i++) {
        const tutti_step &s = lanes_[l].steps[i];
        if (has(s, TUTTI_STEP_SRC) && s.src.buf == TUTTI_BUF_SCRATCH)
          each_chunk(s, s.src, [&](uint32_t c) {
            if (c >= begin && c < end)
              for (const tutti_dep &d : writers[c - begin]) wait_for(&lanes_[l].deps[i], d);
          });
      }
  }

  // One dep per lane is enough: the latest step.
  static void wait_for(std::vector<tutti_dep> *deps, const tutti_dep &d) {
    for (tutti_dep &have : *deps)
      if (have.lane == d.lane) {
        have.step = std::max(have.step, d.step);
        return;
      }
    deps->push_back(d);
  }

  // In place, OUT is written over IN: only once the first stage has read all of it.
  void follow_reads_of_in(uint32_t first_lane) {
    for (uint32_t l = first_lane; l < lanes_.size(); l++)
      for (uint32_t from = 0; from < stage_lane_[1] && !lanes_[l].steps.empty(); from++)
        if (lanes_[from].group == lanes_[l].group && !lanes_[from].steps.empty())
          wait_for(&lanes_[l].deps[0], {from, static_cast<uint32_t>(lanes_[from].steps.size() - 1)});
  }

  Status emit(const tutti_plan_builder *out) const {
    tutti_plan_shape shape{};
    shape.struct_size = sizeof shape;
    shape.in_chunks = coll_in_blocks(q_.coll, static_cast<uint32_t>(q_.nranks)) * pieces_;
    shape.out_chunks = coll_out_blocks(q_.coll, static_cast<uint32_t>(q_.nranks)) * pieces_;
    shape.scratch_chunks = static_cast<uint32_t>(scratch_.size());
    shape.scratch_size = scratch_.empty() ? nullptr : scratch_.data();
    shape.groups = plans_[0]->groups;
    shape.lanes = static_cast<uint32_t>(lanes_.size());
    for (const auto &p : plans_) shape.min_depth = std::max(shape.min_depth, p->min_depth);
    for (const OutLane &lane : lanes_)
      for (const auto &deps : lane.deps)
        if (deps.size() > UINT16_MAX)
          return fail(Code::invalid_usage, "a step with {} deps, of at most {}", deps.size(), UINT16_MAX);
    const auto refused = [](tutti_status) { return fail(Code::internal, "the plan builder refused the composed plan"); };
    if (const tutti_status s = out->begin(out->impl, &shape); s != TUTTI_OK) return refused(s);
    for (const OutLane &lane : lanes_) {
      tutti_status s = out->lane(out->impl, lane.group, lane.recv.data(), static_cast<uint32_t>(lane.recv.size()),
                                 lane.send.data(), static_cast<uint32_t>(lane.send.size()));
      if (s != TUTTI_OK) return refused(s);
      for (size_t i = 0; i < lane.steps.size(); i++) {
        tutti_step step = lane.steps[i];
        step.dep_count = static_cast<uint16_t>(lane.deps[i].size());
        if (s = out->step(out->impl, &step, lane.deps[i].data()); s != TUTTI_OK) return refused(s);
      }
    }
    return {};
  }

  const PlanRequest &q_;
  std::vector<const ComposeStage *> stages_; // those that do something
  std::vector<size_t> own_;                  // those of them that this rank is in
  std::vector<uint32_t> number_;             // their numbers as given
  size_t given_ = 0;
  std::vector<std::shared_ptr<const Plan>> plans_;
  uint32_t pieces_ = 1;
  std::vector<uint32_t> factor_; // units per chunk, by stage; 0 where this rank is not in it
  std::map<std::pair<size_t, int>, Units> units_;
  std::vector<tutti_chunk_id> scratch_;
  std::vector<uint32_t> in_at_, out_at_, own_scratch_; // by own stage: where its regions of SCRATCH begin
  std::vector<OutLane> lanes_;
  std::vector<uint32_t> stage_lane_; // by own stage: its first lane
};

template <class... A> Status bad_call(fmt::format_string<A...> text, A &&...a) {
  return fail(Code::invalid_argument, "compose(): {}", fmt::format(text, std::forward<A>(a)...)).phase("plan");
}

// The request of a plugin, which may have changed what it was given: nothing in it is followed before it was looked at.
Result<PlanRequest> read_request(const tutti_algo_request &given) {
  tutti_algo_request q{};
  std::memcpy(&q, &given, std::min<size_t>(given.struct_size, sizeof q));
  if (q.nranks < 2 || q.channels == 0) return bad_call("a request of {} ranks and {} channels", q.nranks, q.channels);
  if (q.coll > TUTTI_COLL_BARRIER || q.rank < 0 || q.rank >= q.nranks)
    return bad_call("collective {} of rank {}, of {} ranks", q.coll, q.rank, q.nranks);
  if (coll_has_root(q.coll) ? q.root < 0 || q.root >= q.nranks : q.root != -1)
    return bad_call("root {} for {} of {} ranks", q.root, coll_name(q.coll), q.nranks);
  if (!q.node_of_rank || !q.channel) return bad_call("a request without {}", q.channel ? "nodes" : "channels");
  if (q.channel_stride < sizeof(tutti_channel) || q.channel_stride % alignof(tutti_channel) != 0)
    return bad_call("channels {} bytes apart, of {} bytes", q.channel_stride, sizeof(tutti_channel));
  for (int32_t r = 0; r < q.nranks; r++)
    if (q.node_of_rank[r] < 0 || static_cast<uint32_t>(q.node_of_rank[r]) >= q.node_count)
      return bad_call("node {} of rank {}, of {} nodes", q.node_of_rank[r], r, q.node_count);
  for (uint32_t i = 0; i < q.channels; i++) {
    tutti_channel c;
    std::memcpy(&c, reinterpret_cast<const char *>(q.channel) + size_t{q.channel_stride} * i, sizeof c);
    if (!c.order || (c.tree_nchildren != 0 && !c.tree_children)) return bad_call("channel {} has no order or no children", i);
  }
  return copy_request(q);
}

Result<std::vector<ComposeStage>> read_stages(const tutti_stage *stages, uint32_t nstages, uint32_t stride, int nranks) {
  if (nstages > kMaxStages) return bad_call("{} stages, of at most {}", nstages, kMaxStages);
  if (nstages > 0 && (!stages || stride < sizeof(tutti_stage)))
    return bad_call("stages {} bytes apart, of {} bytes", stages ? stride : 0, sizeof(tutti_stage));
  TUTTI_ASSIGN(registry, Registry::process());
  std::vector<ComposeStage> list;
  for (uint32_t i = 0; i < nstages; i++) {
    tutti_stage s;
    std::memcpy(&s, reinterpret_cast<const char *>(stages) + size_t{stride} * i, sizeof s);
    if (!s.algo || !s.members || s.nmembers < 1 || s.nmembers > nranks || s.reserved0 != 0)
      return bad_call("stage {}: algorithm {}, {} members{} of {} ranks, reserved field {}", i, s.algo ? s.algo : "NULL",
                      s.nmembers, s.members ? "" : " (NULL)", nranks, s.reserved0);
    const auto algo = registry->named<tutti_algo_v1>(TUTTI_ALGO, s.algo);
    if (!algo.ok()) return bad_call("stage {}: {}", i, algo.status().error().message);
    list.push_back({*algo, {s.members, s.members + s.nmembers}, s.root, s.coll});
  }
  return list;
}

thread_local uint32_t t_nesting = 0; // compositions that this thread is in

Status compose_call(const tutti_algo_request *req, const tutti_stage *stages, uint32_t nstages, uint32_t stride,
                    const tutti_plan_builder *out) {
  if (!req || !out) return bad_call("{} is NULL", req ? "the builder" : "the request");
  if (t_nesting >= kMaxNesting)
    return fail(Code::invalid_usage, "more than {} compositions inside one another: does one have itself for a stage?",
                kMaxNesting)
        .phase("plan");
  TUTTI_ASSIGN(request, read_request(*req));
  TUTTI_ASSIGN(list, read_stages(stages, nstages, stride, request.nranks));
  struct Nesting {
    Nesting() { t_nesting++; }
    ~Nesting() { t_nesting--; }
  } nesting;
  return compose(request, list, out);
}

tutti_status c_compose(const tutti_host *host, const tutti_algo_request *req, const tutti_stage *stages, uint32_t nstages,
                       uint32_t stage_stride, const tutti_plan_builder *out) noexcept {
  if (!host) return TUTTI_ERR_INVALID;
  const auto refuse = [host](tutti_status code, const char *why) {
    const auto *diag = static_cast<const tutti_host_diag_v1 *>(host->get_iface(host, TUTTI_HOST_DIAG));
    if (diag) diag->set_error(host, code, why);
    return code;
  };
  try {
    const Status s = compose_call(req, stages, nstages, stage_stride, out);
    if (s.ok()) return TUTTI_OK;
    const Code code = s.error().code;
    return refuse(code == Code::invalid_usage      ? TUTTI_ERR_UNSUPPORTED
                  : code == Code::invalid_argument ? TUTTI_ERR_INVALID
                                                   : TUTTI_ERR_INTERNAL,
                  s.error().message.c_str());
  } catch (const std::bad_alloc &) {
    return TUTTI_ERR_NO_MEMORY;
  } catch (const std::exception &e) {
    return refuse(TUTTI_ERR_INTERNAL, e.what());
  } catch (...) {
    return refuse(TUTTI_ERR_INTERNAL, "unknown exception");
  }
}

} // namespace

Status compose(const PlanRequest &request, std::span<const ComposeStage> stages, const tutti_plan_builder *out) {
  return Composer(request, stages).run(out);
}

const tutti_host_plan_v1 *host_plan_service() {
  static constexpr tutti_host_plan_v1 table{sizeof(tutti_host_plan_v1), 0, c_compose};
  return &table;
}

} // namespace tutti
