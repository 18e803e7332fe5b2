#include "plan/check_run.h"
#include "plan/refs.h"
#include <algorithm>

namespace tutti {
namespace {

constexpr uint64_t mix(uint64_t x) { // splitmix64's finisher
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
constexpr uint64_t id_of(uint64_t rank, uint64_t group, uint64_t chunk) {
  return mix(mix(rank * 0x2545f4914f6cdd1du + group) ^ (chunk * 0xd6e8feb86659fd93u));
}

} // namespace

uint32_t ContributionSets::leaf(uint32_t rank, uint32_t chunk) {
  const uint64_t key = contribution(rank, chunk);
  const auto [it, fresh] = leaves_.emplace(key, static_cast<uint32_t>(sets_.size()));
  if (fresh) sets_.push_back({{key, 1}});
  return it->second;
}

uint32_t ContributionSets::join(uint32_t a, uint32_t b) {
  const Set &x = sets_[a], &y = sets_[b];
  Set out;
  for (size_t i = 0, j = 0; i < x.size() || j < y.size();) {
    if (j == y.size() || (i < x.size() && x[i].first < y[j].first))
      out.push_back(x[i++]);
    else if (i == x.size() || y[j].first < x[i].first)
      out.push_back(y[j++]);
    else {
      out.emplace_back(x[i].first, x[i].second + y[j].second);
      i++, j++;
    }
  }
  entries_ += out.size();
  sets_.push_back(std::move(out));
  return static_cast<uint32_t>(sets_.size() - 1);
}

CheckRun::CheckRun(Plans plans, const Wiring &wiring, const CheckOptions &options, bool exact, Findings &findings)
    : plans_(plans), w_(wiring), options_(options), findings_(findings), first_(*plans[0]),
      reduces_(coll_reduces(first_.request.coll)), nonuniform_(first_.request.flags & TUTTI_REQ_NONUNIFORM),
      nranks_(static_cast<uint32_t>(first_.request.nranks)), depth_(options.depth ? options.depth : first_.min_depth),
      window_(options.window  ? options.window
              : first_.window ? first_.window
                              : 1),
      slices_(std::max(1u, options.slices)), exact_(exact) {
  depth_ = std::min(depth_, 1u << 10); // deeper than any use, and memory stays bounded
  window_ = std::min(window_, slices_);
  for (uint32_t r = 0; r < plans.size(); r++) {
    for (uint32_t l = 0; l < plans[r]->lanes.size(); l++) lanes_.push_back({r, l, plans[r]->lanes[l].group, 0, 0, 0, 0, false});
    const size_t copy = size_t{first_.groups} * first_.out_chunks + plans[r]->scratch_chunks;
    memory_.emplace_back(copy * window_);
  }
  size_t values = 0;
  for (const Wire &wire : w_.wires) {
    fifos_.push_back({values, 0, 0});
    values += size_t{wire.width} * depth_;
  }
  fifo_values_.resize(values);
  messages_.resize(w_.wires.size() * depth_);
  if (reduces_) sums_.assign(size_t{first_.groups} * first_.in_chunks, 0);
  trees_.assign(size_t{first_.groups} * first_.out_chunks, 0);
  tree_rank_.assign(trees_.size(), 0);
}

void CheckRun::run() {
  for (uint32_t l = 0; l < lanes_.size(); l++) wake(l);
  while (!queue_.empty() && !findings_.full()) {
    const uint32_t lane = queue_.front();
    queue_.pop_front();
    lanes_[lane].queued = false;
    advance(lane);
  }
  if (findings_.full()) return;
  const bool stuck = std::any_of(lanes_.begin(), lanes_.end(), [&](const LaneState &l) { return l.slice < slices_; });
  if (stuck) return report_deadlock();
  for (uint32_t r = 0; r < nranks_; r++)
    for (uint32_t g = 0; g < first_.groups; g++) {
      const auto &lanes = plans_[r]->lanes;
      if (has_out(*plans_[r]) && std::none_of(lanes.begin(), lanes.end(), [g](const PlanLane &l) { return l.group == g; }))
        findings_.add("result", "rank {}: group {} has no lane: its share of OUT is never written", r, g);
    }
}

void CheckRun::wake(uint32_t lane) {
  if (lanes_[lane].queued || lanes_[lane].slice >= slices_) return;
  lanes_[lane].queued = true;
  queue_.push_back(lane);
}

void CheckRun::wake_rank(uint32_t rank) {
  for (uint32_t l = w_.lane_base[rank]; l < w_.lane_base[rank + 1]; l++) wake(l);
}

void CheckRun::advance(uint32_t lane) {
  LaneState &l = lanes_[lane];
  while (l.slice < slices_ && !findings_.full()) {
    if (l.step == 0 && l.iter == 0 && !may_start_slice(l)) return;
    if (plan_of(l).lanes[l.lane].steps.empty()) {
      finish_slice(l);
      continue;
    }
    if (!ready(l, lane)) return;
    execute(l, lane);
  }
}

bool CheckRun::may_start_slice(const LaneState &l) const {
  if (l.slice < window_) return true;
  for (uint32_t i = w_.lane_base[l.rank]; i < w_.lane_base[l.rank + 1]; i++)
    if (lanes_[i].group == l.group && lanes_[i].slice + window_ <= l.slice) return false;
  return true;
}

// All of the step's messages and slots at once: an executor that takes them one by one blocks less.
bool CheckRun::ready(const LaneState &l, uint32_t lane) const {
  const tutti_step &s = step_of(l);
  if (l.iter == 0)
    for (uint32_t d = 0; d < s.dep_count; d++) {
      const tutti_dep &dep = plan_of(l).deps[s.dep_first + d];
      const LaneState &other = lanes_[w_.lane_base[l.rank] + dep.lane];
      if (other.slice < l.slice || (other.slice == l.slice && other.step <= dep.step)) return false;
    }
  const auto shift = static_cast<int64_t>(l.iter) * s.link_stride;
  for (uint32_t i = 0; i < s.recv_count; i++)
    if (fifos_[w_.source(lane, static_cast<uint32_t>(s.recv_first + shift + i))].used == 0) return false;
  for (uint32_t i = 0; i < s.send_count; i++)
    for (uint32_t wire : w_.targets(lane, static_cast<uint32_t>(s.send_first + shift + i)))
      if (fifos_[wire].used == depth_) return false;
  return true;
}

void CheckRun::execute(LaneState &l, uint32_t lane) {
  const tutti_step &s = step_of(l);
  const Plan &p = plan_of(l);
  const tutti_ref &size = sizing_ref(s);
  const auto shift = static_cast<int64_t>(l.iter) * s.link_stride;
  const auto base = static_cast<uint32_t>(ref_first(size, l.iter));
  uint64_t tag = 0;
  for (uint32_t j = 0; j < size.count; j++) tag = tag * 0x9e3779b97f4a7c15u + chunk_identity(p, size.buf, base + j);

  for (uint32_t i = 0; i < s.recv_count; i++) {
    const Fifo &f = fifos_[w_.source(lane, static_cast<uint32_t>(s.recv_first + shift + i))];
    const Message &m = messages_[(&f - fifos_.data()) * size_t{depth_} + f.head];
    l.time = std::max(l.time, m.stamp);
    if (m.tag != tag || m.chunks != size.count) {
      const Wire &wire = w_.wires[static_cast<size_t>(&f - fifos_.data())];
      if (m.chunks == 1 && size.count == 1)
        findings_.add("link", "{}: expects the chunk with identity {} from {} (conn {}), which sends {}", where(l), tag,
                      rank_name(plans_, wire.src), wire.conn, m.tag);
      else
        findings_.add("link", "{}: expects {} chunks from {} (conn {}), which sends {} or others", where(l), size.count,
                      rank_name(plans_, wire.src), wire.conn, m.chunks);
    }
  }
  for (uint32_t j = 0; j < size.count; j++) {
    SymValue v = combine(l, s, lane, j);
    check_use(l, s, v, nonuniform_ ? chunk_identity(p, size.buf, base + j) : v.content);
    if (has(s, TUTTI_STEP_STORE)) write(l, s.dst.buf, static_cast<uint32_t>(ref_first(s.dst, l.iter)) + j, v);
    for (uint32_t i = 0; i < s.send_count; i++)
      for (uint32_t wire : w_.targets(lane, static_cast<uint32_t>(s.send_first + shift + i))) {
        const Fifo &f = fifos_[wire];
        const uint32_t slot = (f.head + f.used) % depth_;
        fifo_values_[f.values + size_t{slot} * w_.wires[wire].width + j] = v;
        messages_[wire * size_t{depth_} + slot] = {tag, size.count, l.time + 1};
      }
  }
  for (uint32_t i = 0; i < s.recv_count; i++) {
    const uint32_t wire = w_.source(lane, static_cast<uint32_t>(s.recv_first + shift + i));
    fifos_[wire].head = (fifos_[wire].head + 1) % depth_;
    fifos_[wire].used--;
    wake(w_.wires[wire].writer);
  }
  for (uint32_t i = 0; i < s.send_count; i++)
    for (uint32_t wire : w_.targets(lane, static_cast<uint32_t>(s.send_first + shift + i))) {
      fifos_[wire].used++;
      wake(w_.wires[wire].reader);
    }
  next(l);
}

// v of the step's chunk number `chunk_at`: operands in their order, combined from left to right.
SymValue CheckRun::combine(const LaneState &l, const tutti_step &s, uint32_t lane, uint32_t chunk_at) {
  taken_.clear();
  const auto shift = static_cast<int64_t>(l.iter) * s.link_stride;
  for (uint32_t i = 0; i < s.recv_count; i++) {
    const uint32_t wire = w_.source(lane, static_cast<uint32_t>(s.recv_first + shift + i));
    const Fifo &f = fifos_[wire];
    const uint32_t width = w_.wires[wire].width;
    taken_.push_back(chunk_at < width ? fifo_values_[f.values + size_t{f.head} * width + chunk_at] : SymValue{});
  }
  if (has(s, TUTTI_STEP_SRC)) {
    const SymValue own =
        read(l, s.src.buf, static_cast<uint32_t>(ref_first(s.src, l.iter)) + chunk_at, has(s, TUTTI_STEP_PREOP));
    taken_.insert(taken_.begin() + s.src_pos, own);
  }
  SymValue v = taken_[0];
  if (taken_.size() > 1) v.tree = mix(taken_.size());
  for (size_t i = 0; taken_.size() > 1 && i < taken_.size(); i++) {
    const SymValue &o = taken_[i];
    v.tree = mix(v.tree ^ o.tree);
    if (o.raw) findings_.add("result", "{}: combines a contribution without its pre-operation", where(l));
    if (o.post) findings_.add("result", "{}: combines a value that has had the post-operation", where(l));
    if (i == 0) continue;
    v.sum += o.sum;
    if (exact_) v.set = sets_.join(v.set, o.set);
    if (sets_.full()) exact_ = false;
  }
  if (has(s, TUTTI_STEP_POSTOP)) {
    if (v.post) findings_.add("result", "{}: applies the post-operation twice", where(l));
    v.post = true;
  }
  return v;
}

SymValue CheckRun::leaf(uint32_t rank, uint32_t group, uint32_t chunk) {
  SymValue v;
  v.sum = id_of(rank, group, chunk);
  v.tree = mix(rank + 1);
  v.content = chunk_identity(*plans_[rank], TUTTI_BUF_IN, chunk);
  v.raw = reduces_;
  if (exact_) v.set = sets_.leaf(rank, chunk);
  return v;
}

size_t CheckRun::cell(const LaneState &l, uint32_t buf, uint32_t chunk) const {
  const size_t outs = size_t{first_.groups} * first_.out_chunks, copy = outs + plan_of(l).scratch_chunks;
  const size_t at = buf == TUTTI_BUF_OUT ? size_t{l.group} * first_.out_chunks + chunk : outs + chunk;
  return (l.slice % window_) * copy + at;
}

SymValue CheckRun::read(const LaneState &l, uint32_t buf, uint32_t chunk, bool preop) {
  const auto &memory = memory_[l.rank];
  SymValue v;
  if (buf == TUTTI_BUF_IN) {
    const auto same = options_.in_place ? out_of_in(plan_of(l), chunk) : std::nullopt;
    const SymValue *over = same ? &memory[cell(l, TUTTI_BUF_OUT, *same)] : nullptr;
    v = over && over->epoch == l.slice + 1 ? *over : leaf(l.rank, l.group, chunk);
  } else {
    v = memory[cell(l, buf, chunk)];
    if (v.epoch != l.slice + 1) {
      const auto same = options_.in_place && buf == TUTTI_BUF_OUT ? in_of_out(plan_of(l), chunk) : std::nullopt;
      v = same ? leaf(l.rank, l.group, *same) : SymValue{};
      if (!same) findings_.add("result", "{}: reads {} chunk {}, which nothing has written", where(l), buf_name(buf), chunk);
    }
  }
  if (preop && !v.raw)
    findings_.add("result", "{}: applies the pre-operation to IN chunk {}, which is no raw contribution any more", where(l),
                  chunk);
  if (preop) v.raw = false;
  return v;
}

void CheckRun::write(const LaneState &l, uint32_t buf, uint32_t chunk, const SymValue &v) {
  SymValue &to = memory_[l.rank][cell(l, buf, chunk)];
  to = v;
  to.epoch = l.slice + 1;
}

void CheckRun::check_use(const LaneState &l, const tutti_step &s, const SymValue &v, uint64_t tag) {
  if (v.raw && s.recv_count == 0) findings_.add("result", "{}: passes on a contribution without its pre-operation", where(l));
  if (v.content != tag)
    findings_.add("link",
                  "{}: moves chunk {} under the size of chunk {}; blocks differ in size and this rank does not know that one",
                  where(l), v.content, tag);
}

void CheckRun::next(LaneState &l) {
  if (++l.iter < step_of(l).repeat) return;
  l.iter = 0;
  l.step++;
  if (!plan_of(l).deps.empty()) wake_rank(l.rank);
  if (l.step == plan_of(l).lanes[l.lane].steps.size()) finish_slice(l);
}

void CheckRun::finish_slice(LaneState &l) {
  const uint32_t slice = l.slice++;
  l.step = 0;
  if (slice == 0) rounds_ = std::max(rounds_, l.time);
  bool last = true;
  for (uint32_t i = w_.lane_base[l.rank]; i < w_.lane_base[l.rank + 1]; i++)
    if (lanes_[i].group == l.group && lanes_[i].slice <= slice) last = false;
  if (last && l.rank < nranks_ && has_out(plan_of(l))) check_results(l, slice);
  wake_rank(l.rank);
}

template <class Fn> void CheckRun::expected(uint32_t rank, uint32_t chunk, Fn fn) const {
  const uint32_t n = nranks_, k = first_.pieces();
  const auto root = static_cast<uint32_t>(first_.request.root);
  switch (first_.request.coll) {
  case TUTTI_COLL_BROADCAST:
    return fn(root, chunk);
  case TUTTI_COLL_SCATTER:
    return fn(root, rank * k + chunk);
  case TUTTI_COLL_ALL_GATHER:
  case TUTTI_COLL_GATHER:
    return fn(chunk / k, chunk % k);
  case TUTTI_COLL_ALL_TO_ALL:
    return fn(chunk / k, rank * k + chunk % k);
  case TUTTI_COLL_REDUCE_SCATTER:
    for (uint32_t q = 0; q < n; q++) fn(q, rank * k + chunk);
    return;
  default:
    for (uint32_t q = 0; q < n; q++) fn(q, chunk);
  }
}

uint64_t CheckRun::expected_sum(uint32_t rank, uint32_t group, uint32_t chunk) {
  uint64_t *cached = nullptr;
  if (reduces_) {
    const uint32_t in_chunk = first_.request.coll == TUTTI_COLL_REDUCE_SCATTER ? rank * first_.pieces() + chunk : chunk;
    cached = &sums_[size_t{group} * first_.in_chunks + in_chunk];
    if (*cached) return *cached;
  }
  uint64_t sum = 0;
  expected(rank, chunk, [&](uint32_t q, uint32_t c) { sum += id_of(q, group, c); });
  if (cached) *cached = sum;
  return sum;
}

void CheckRun::check_results(const LaneState &l, uint32_t slice) {
  LaneState at = l;
  at.slice = slice;
  for (uint32_t c = 0; c < first_.out_chunks && !findings_.full(); c++) {
    SymValue v = memory_[l.rank][cell(at, TUTTI_BUF_OUT, c)];
    if (v.epoch != slice + 1) {
      const auto same = options_.in_place ? in_of_out(plan_of(l), c) : std::nullopt;
      if (!same) {
        findings_.add("result", "rank {} {}: never written", l.rank, chunk_name(l, c));
        continue;
      }
      v = leaf(l.rank, l.group, *same);
    }
    check_result(l, c, v);
  }
}

void CheckRun::check_result(const LaneState &l, uint32_t chunk, const SymValue &v) {
  if (v.sum != expected_sum(l.rank, l.group, chunk)) return report_wrong(l, chunk, v);
  if (!reduces_) return;
  if (!v.post) findings_.add("result", "rank {} {}: the post-operation was not applied", l.rank, chunk_name(l, chunk));
  if (order_ == CombineOrder::none) order_ = CombineOrder::one, order_id_ = v.tree;
  if (order_id_ != v.tree) order_ = CombineOrder::by_chunk;
  if (first_.request.coll != TUTTI_COLL_ALL_REDUCE && first_.request.coll != TUTTI_COLL_BARRIER) return;
  const size_t at = size_t{l.group} * first_.out_chunks + chunk;
  if (trees_[at] == 0) {
    trees_[at] = v.tree;
    tree_rank_[at] = l.rank;
  } else if (trees_[at] != v.tree) {
    findings_.add("result",
                  "rank {} {}: contributions are combined in another order than on rank {}; the two may get different bits",
                  l.rank, chunk_name(l, chunk), tree_rank_[at]);
  }
}

void CheckRun::report_wrong(const LaneState &l, uint32_t chunk, const SymValue &v) {
  const std::string name = fmt::format("rank {} {}", l.rank, chunk_name(l, chunk));
  if (!exact_) return findings_.add("result", "{}: not every contribution is in the result exactly once", name);
  ContributionSets::Set want;
  expected(l.rank, chunk, [&](uint32_t q, uint32_t c) { want.emplace_back(ContributionSets::contribution(q, c), 1); });
  const ContributionSets::Set &got = sets_.at(v.set);
  const auto count_in = [](const ContributionSets::Set &set, uint64_t key) {
    const auto it = std::find_if(set.begin(), set.end(), [key](const auto &e) { return e.first == key; });
    return it == set.end() ? 0u : it->second;
  };
  const size_t named = 3; // of a kind; more say nothing new
  size_t missing = 0, extra = 0;
  for (const auto &[key, once] : want) {
    const uint32_t n = count_in(got, key);
    if (n == 0 && missing++ < named) findings_.add("result", "{}: contribution of rank {} is missing", name, key >> 32);
    if (n > once && extra++ < named)
      findings_.add("result", "{}: contribution of rank {} is in the result {} times", name, key >> 32, n);
  }
  for (const auto &[key, n] : got)
    if (count_in(want, key) == 0 && extra++ < named)
      findings_.add("result", "{}: IN chunk {} of rank {} is in the result {} times and does not belong there", name,
                    key & 0xffffffffu, key >> 32, n);
  if (missing == 0 && extra == 0) findings_.add("result", "{}: holds another group's data", name);
}

std::string CheckRun::chunk_name(const LaneState &l, uint32_t chunk) const {
  return first_.groups > 1 ? fmt::format("chunk {} of group {}", chunk, l.group) : fmt::format("chunk {}", chunk);
}

std::string CheckRun::waits_for(const LaneState &l, uint32_t lane) const {
  const std::string at = fmt::format("{} (slice {}, iteration {})", where(l), l.slice, l.iter);
  if (l.step == 0 && l.iter == 0 && !may_start_slice(l)) return at + " waits for the other lanes of its group";
  const tutti_step &s = step_of(l);
  const auto shift = static_cast<int64_t>(l.iter) * s.link_stride;
  for (uint32_t i = 0; i < s.recv_count; i++) {
    const uint32_t wire = w_.source(lane, static_cast<uint32_t>(s.recv_first + shift + i));
    if (fifos_[wire].used == 0)
      return fmt::format("{} waits for a message from {} (conn {})", at, rank_name(plans_, w_.wires[wire].src),
                         w_.wires[wire].conn);
  }
  for (uint32_t i = 0; i < s.send_count; i++)
    for (uint32_t wire : w_.targets(lane, static_cast<uint32_t>(s.send_first + shift + i)))
      if (fifos_[wire].used == depth_)
        return fmt::format("{} waits for room in its link to {} (conn {})", at, rank_name(plans_, w_.wires[wire].dst),
                           w_.wires[wire].conn);
  return at + " waits for a step of another lane";
}

void CheckRun::report_deadlock() {
  std::string text;
  size_t stuck = 0;
  for (uint32_t i = 0; i < lanes_.size(); i++) {
    if (lanes_[i].slice >= slices_) continue;
    if (stuck++ < 4) text += fmt::format("{}{}", text.empty() ? "" : "; ", waits_for(lanes_[i], i));
  }
  if (stuck > 4) text += fmt::format("; and {} more lanes", stuck - 4);
  findings_.add("deadlock", "at depth {}: {}", depth_, text);
}

} // namespace tutti
