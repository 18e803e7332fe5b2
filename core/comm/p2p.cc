// Sends and receives: those of a group and communicator become one plan on links of their own, so that they make progress
// together, whatever the peers group.
#include "base/types.h"
#include "comm/communicator.h"
#include "comm/local_plan.h"
#include <algorithm>
#include <numeric>

namespace tutti {
namespace {

// Links of pairs are O(nranks) per rank, so what is not set explicitly shrinks with it.
Selection default_geometry(int nranks) {
  Selection s;
  s.slot_bytes = nranks <= 8 ? 64 << 10 : nranks <= 16 ? 32 << 10 : 8 << 10;
  s.depth = 4;
  return s;
}

// Patterns of sends and receives that are kept. More than an engine's queue is long, so that the one used longest ago has
// always completed.
constexpr size_t kMostP2pBounds = 256;

} // namespace

// The first protocol that configuration allows; the same on both ends of every link.
Selection Communicator::p2p_selection() const {
  Selection s = default_geometry(nranks_);
  const Config &c = *options_.config;
  if (const auto slot = static_cast<uint32_t>(c.number("p2p.slot_bytes"))) s.slot_bytes = slot;
  if (!c.is_default("p2p.depth")) s.depth = static_cast<uint32_t>(c.number("p2p.depth"));
  s.depth = std::bit_ceil(std::max(2u, s.depth));
  s.slot_bytes = static_cast<uint32_t>(align_up(s.slot_bytes, kChunkAlign));
  const uint64_t budget = static_cast<uint64_t>(c.number("memory.cap")) / 4, links = 2 * static_cast<uint64_t>(nranks_);
  while (s.depth > 2 && links * s.slot_bytes * s.depth > budget) s.depth /= 2;
  while (s.slot_bytes > 1024 && links * s.slot_bytes * s.depth > budget)
    s.slot_bytes = static_cast<uint32_t>(align_up(s.slot_bytes / 2, kChunkAlign));
  return s;
}

// p2p_order_ lists ops by (peer, order of the calls); p2p_key_ is the pattern: (peer, sends, receives)...
Result<Communicator::P2pBound *> Communicator::p2p_bound(std::span<const P2pOp> ops) {
  p2p_order_.resize(ops.size());
  std::iota(p2p_order_.begin(), p2p_order_.end(), 0u);
  std::sort(p2p_order_.begin(), p2p_order_.end(),
            [&](uint32_t a, uint32_t b) { return ops[a].peer != ops[b].peer ? ops[a].peer < ops[b].peer : a < b; });
  p2p_key_.clear();
  for (uint32_t i : p2p_order_) {
    if (p2p_key_.empty() || p2p_key_[p2p_key_.size() - 3] != ops[i].peer) p2p_key_.insert(p2p_key_.end(), {ops[i].peer, 0, 0});
    p2p_key_[p2p_key_.size() - (ops[i].sending ? 2 : 1)]++;
  }
  if (const auto it = p2p_bounds_.find(p2p_key_); it != p2p_bounds_.end()) return &it->second;
  std::vector<PairCount> pairs;
  for (size_t i = 0; i < p2p_key_.size(); i += 3) {
    const PairCount p{p2p_key_[i], static_cast<uint32_t>(p2p_key_[i + 1]), static_cast<uint32_t>(p2p_key_[i + 2])};
    if (p.peer == rank_ && p.sends != p.recvs)
      return tutti::fail(Code::invalid_usage, "group: rank {} sends {} message(s) to itself, but receives {}", rank_, p.sends,
                         p.recvs)
          .hint("both sides of a message to oneself belong in one group");
    pairs.push_back(p);
  }
  Selection selection = p2p_selection();
  TUTTI_ASSIGN(local, local_selection());
  selection.proto = local.proto;
  TUTTI_ASSIGN(plan, p2p_plan(rank_, nranks_, pairs));
  TUTTI_ASSIGN(bound, core_->engine->bind(plan, selection, TUTTI_DT_UINT8, TUTTI_RED_SUM));
  if (p2p_bounds_.size() >= kMostP2pBounds) forget_oldest_p2p();
  return &(p2p_bounds_[p2p_key_] = {bound, 0});
}

void Communicator::forget_oldest_p2p() {
  const auto oldest = std::min_element(p2p_bounds_.begin(), p2p_bounds_.end(),
                                       [](const auto &a, const auto &b) { return a.second.last_seq < b.second.last_seq; });
  if (core_->engine->completed() < oldest->second.last_seq) return;
  core_->engine->release(oldest->second.bound);
  p2p_bounds_.erase(oldest);
}

Status Communicator::check_self(std::span<const P2pOp> ops) const {
  const auto next = [&](size_t from, bool sending) {
    while (from < ops.size() && (ops[from].peer != rank_ || ops[from].sending != sending)) from++;
    return from;
  };
  for (size_t s = next(0, true), r = next(0, false); s < ops.size() && r < ops.size();
       s = next(s + 1, true), r = next(r + 1, false))
    if (ops[s].bytes != ops[r].bytes || ops[s].dtype != ops[r].dtype)
      return tutti::fail(Code::invalid_usage, "group: rank {} sends {} {} to itself, but receives {} {}", rank_, ops[s].count,
                         dtype_name(ops[s].dtype), ops[r].count, dtype_name(ops[r].dtype));
  return {};
}

Status Communicator::submit_p2p(std::span<const P2pOp> ops, std::span<const tuttiStream_t> streams, const CallConfig *asked) {
  TUTTI_TRY(check_self(ops));
  TUTTI_ASSIGN(pattern, p2p_bound(ops));
  // Blocks lie anywhere in memory: their offsets count from the lowest one.
  BlockTables &t = p2p_tables_;
  t.in_bytes.clear(), t.in_offsets.clear(), t.out_bytes.clear(), t.out_offsets.clear();
  t.in_types.clear(), t.out_types.clear(), t.in_peers.clear(), t.out_peers.clear();
  uintptr_t in_base = UINTPTR_MAX, out_base = UINTPTR_MAX;
  for (const P2pOp &o : ops)
    if (o.bytes) {
      uintptr_t &base = o.sending ? in_base : out_base;
      base = std::min(base, reinterpret_cast<uintptr_t>(o.buffer));
    }
  for (uint32_t i : p2p_order_) {
    const P2pOp &o = ops[i];
    (o.sending ? t.in_bytes : t.out_bytes).push_back(o.bytes);
    (o.sending ? t.in_types : t.out_types).push_back(o.dtype);
    (o.sending ? t.in_peers : t.out_peers).push_back(o.peer);
    const uintptr_t base = o.sending ? in_base : out_base;
    (o.sending ? t.in_offsets : t.out_offsets).push_back(o.bytes ? reinterpret_cast<uintptr_t>(o.buffer) - base : 0);
  }
  OpArgs args;
  args.in = in_base == UINTPTR_MAX ? nullptr : reinterpret_cast<const void *>(in_base);
  args.out = out_base == UINTPTR_MAX ? nullptr : reinterpret_cast<void *>(out_base);
  args.in_shape = {static_cast<uint32_t>(t.in_bytes.size()), 0, t.in_bytes.data(), t.in_offsets.data()};
  args.out_shape = {static_cast<uint32_t>(t.out_bytes.size()), 0, t.out_bytes.data(), t.out_offsets.data()};
  args.in_marks = t.in_types.data();
  args.out_marks = t.out_types.data();
  args.in_peers = t.in_peers.data();
  args.out_peers = t.out_peers.data();
  args.call.coll = TUTTI_COLL_SEND_RECV;
  args.call.dtype = ops.size() == 1 ? ops[0].dtype : static_cast<tutti_dtype>(TUTTI_DT_UINT8);
  args.call.count = ops.size() == 1 ? ops[0].count : 0;
  args.call.number = ++p2p_number_;
  if (asked && !asked->tag.empty()) args.call.tag = asked->tag.c_str();
  if (asked) args.call.timeout_ms = asked->timeout_ms;
  TUTTI_TRY(enqueue(pattern->bound, args, streams));
  pattern->last_seq = last_seq_;
  return {};
}

} // namespace tutti
