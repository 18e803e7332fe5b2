// From a checked operation to the engine. The usual path is one look-up with one compare; it allocates and locks nothing.
#include "base/types.h"
#include "comm/communicator.h"
#include "comm/local_plan.h"
#include "comm/plan_check.h"
#include "comm/stream.h"
#include "log/log.h"
#include <algorithm>

namespace tutti {
namespace {

// Where the blocks of an operation differ in size, all ranks know the largest one and go by its class beside that of the whole.
uint32_t block_bucket(const Op &op) {
  return op.tables ? bucket_of(op.block) : 0;
}

// Chunks of the largest message of a size class.
uint64_t chunk_limit(const Plan &plan, const Op &op, uint32_t bucket, uint32_t nranks) {
  const tutti_coll coll = coll_of_row(op.row);
  if (op.row == kRowV) return UINT64_MAX;
  const uint64_t block = op.tables
                             ? uint64_t(1) << block_bucket(op)
                             : (uint64_t(1) << bucket) / std::max(coll_in_blocks(coll, nranks), coll_out_blocks(coll, nranks));
  const uint64_t pieces = std::max<uint64_t>(1, uint64_t(plan.pieces()) * plan.groups);
  return align_up((block + pieces - 1) / pieces, kChunkAlign);
}

} // namespace

Result<std::shared_ptr<const Plan>> Communicator::make_plan(const BoundKey &key, const Choice &choice, bool plain) const {
  const Topology &topology = plain ? plain_topology_ : topology_;
  uint32_t flags = 0;
  if (key.row == kRowV) flags |= TUTTI_REQ_NONUNIFORM;
  if (key.many_slices) flags |= TUTTI_REQ_MANY_SLICES;
  if (key.in_place) flags |= TUTTI_REQ_IN_PLACE;
  const bool carried = choice.proto.table->signal != TUTTI_SIGNAL_DESCRIPTOR; // by the slots that others would read
  if (carried && core_->engine->shares_memory()) flags |= TUTTI_REQ_MULTICAST;
  const auto request_of = [&](int rank) {
    return make_request(topology, coll_of_row(key.row), rank, key.root, choice.channels, flags);
  };
  // One rank's proof holds for all, and its error reaches all.
  const auto promised = rank_ == 0 ? selector_->promised_order(key.row) : std::nullopt;
  if (rank_ == 0 && (promised || (nranks_ <= kMostChecked && options_.config->flag("plan.check")))) {
    TUTTI_ASSIGN(stats, check_plans_once(choice.algo, nranks_, key.in_place, request_of));
    if (promised) TUTTI_TRY(confirm_order(stats, *promised, request_of(0), choice.algo.table->name));
  }
  return build_plan(choice.algo, request_of(rank_));
}

bool Communicator::many_slices(const Plan &plan, const Op &op, uint32_t bucket, const Choice &choice) const {
  return chunk_limit(plan, op, bucket, static_cast<uint32_t>(nranks_)) > choice.slot_bytes;
}

Result<Communicator::Resolved> Communicator::find_bound(const Op &op, uint32_t bucket, uint32_t place) {
  const auto root = op.info.root;
  if (nranks_ == 1) {
    const BoundKey key{op.row, 0, op.dtype, op.redop, -1, false, op.in_place};
    if (const auto it = bounds_.find(key); it != bounds_.end()) return Resolved{it->second};
    TUTTI_ASSIGN(selection, local_selection());
    TUTTI_ASSIGN(plan, local_plan(coll_of_row(op.row)));
    TUTTI_ASSIGN(bound, core_->engine->bind(plan, selection, op.dtype, op.redop));
    return Resolved{bounds_[key] = bound};
  }
  const Choice &way = choice(place);
  if (!way.algo) return tutti::fail(Code::invalid_usage, "{}", way.refusal);
  const BoundKey key{op.row, place, op.dtype, op.redop, root, false, op.in_place};
  const bool groups = collnet_.on && selector_->uses_groups(way.algo, op.row);
  // What groups do not reduce runs as if there were none. They are asked about all that is posted, broadcasts too.
  const bool served = collnet_.reduces(op.dtype, op.redop);
  Resolved out;
  if (groups && (!served || !collnet_.required)) {
    TUTTI_ASSIGN(plain, plain_bound(op, bucket));
    (served ? out.instead : out.bound) = plain;
  }
  if (!out.bound) {
    TUTTI_ASSIGN(bound, bind_way(op, bucket, key, way, false));
    out.bound = bound;
  }
  return out;
}

Result<const Bound *> Communicator::plain_bound(const Op &op, uint32_t bucket) {
  const uint32_t place = plain_selection_.index[op.row][bucket];
  const Choice &way = plain_selection_.choices[place];
  if (!way.algo) return tutti::fail(Code::invalid_usage, "{}", way.refusal);
  return bind_way(op, bucket, {op.row, place, op.dtype, op.redop, op.info.root, false, op.in_place}, way, true);
}

// plain: without collnet groups.
Result<const Bound *> Communicator::bind_way(const Op &op, uint32_t bucket, BoundKey key, const Choice &way, bool plain) {
  TUTTI_ASSIGN(plan, make_plan(key, way, plain));
  if (many_slices(*plan, op, bucket, way)) {
    key.many_slices = true;
    TUTTI_ASSIGN(longer, make_plan(key, way, plain));
    plan = longer;
  }
  auto &known = plain ? plain_bounds_ : bounds_;
  if (const auto it = known.find(key); it != known.end()) return it->second;
  Selection selection{way.proto, way.slot_bytes, std::max(way.depth, std::bit_ceil(plan->min_depth)), way.flags};
  selection.groups = !plain && collnet_.on && selector_->uses_groups(way.algo, op.row);
  TUTTI_ASSIGN(bound, core_->engine->bind(plan, selection, op.dtype, op.redop));
  return known[key] = bound;
}

void Communicator::shape_buffers(const Op &op, OpArgs *args) const {
  const auto n = static_cast<uint32_t>(nranks_);
  if (!op.tables) {
    args->in_shape = {coll_in_blocks(op.row, n), op.block, nullptr, nullptr};
    args->out_shape = {coll_out_blocks(op.row, n), op.block, nullptr, nullptr};
    return;
  }
  // A side without a table is this rank's one block.
  const auto side = [&](const std::vector<uint64_t> &bytes, const std::vector<uint64_t> &offsets,
                        const std::vector<uint64_t> &other) -> BufferShape {
    if (bytes.empty()) return {1, other[static_cast<size_t>(rank_)], nullptr, nullptr};
    return {n, 0, bytes.data(), offsets.data()};
  };
  const BlockTables &t = *op.tables;
  args->in_shape = side(t.in_bytes, t.in_offsets, t.out_bytes);
  args->out_shape = side(t.out_bytes, t.out_offsets, t.in_bytes);
}

// Nothing to move: the number alone keeps ranks in step.
inline bool Communicator::moves_nothing(const Op &op) const {
  const bool untouched = nranks_ == 1 && op.in_place && !op.has_factor;
  return op.bytes == 0 || untouched;
}

Status Communicator::pass_over(const Op &op) {
  if (nranks_ > 1) {
    CallInfo call = op.info;
    call.number = number_;
    core_->engine->skip(call);
  }
  last_seq_ = core_->engine->enqueued();
  return core_->engine->failed() ? core_->engine->error() : Status();
}

inline uint64_t Communicator::key_of(const Op &op, uint32_t bucket) {
  return uint64_t(1) << 63 | uint64_t(op.in_place) << 62 | uint64_t(bucket) << 52 | uint64_t(op.row) << 48 |
         uint64_t(static_cast<uint32_t>(op.info.root + 1) + block_bucket(op)) << 16 | uint64_t(op.dtype) << 8 |
         op.redop; // what has such blocks has no root
}

[[gnu::always_inline]] inline Status Communicator::enqueue_op(const Resolved &way, const Op &op, tuttiStream_t stream) {
  OpArgs args;
  args.in = op.in;
  args.out = op.out;
  shape_buffers(op, &args);
  args.in_place = op.in_place;
  if (op.has_factor) args.preop_factor = op.factor.data();
  args.postop_divisor = nranks_ > 1 ? op.divisor : 0;
  args.instead = way.instead;
  args.call = op.info;
  args.call.number = number_;
  Status s = stream ? enqueue(way.bound, args, {&stream, 1}) : enqueue(way.bound, args, {});
  if (!s.ok()) [[unlikely]]
    number_--; // nothing was sent: the call did not happen
  return s;
}

Status Communicator::submit(const Op &op, tuttiStream_t stream) {
  number_++;
  if (moves_nothing(op)) return pass_over(op);
  const uint32_t bucket = bucket_of(op.bytes);
  Hot &hot = hot_[op.row][bucket];
  const uint64_t key = key_of(op, bucket);
  if (hot.key != key) [[unlikely]] {
    auto [known, fresh] = found_.try_emplace(key);
    if (fresh) {
      auto way = find_bound(op, bucket, selection_.index[op.row][bucket]);
      if (!way.ok()) {
        found_.erase(known);
        number_--; // nothing was sent: the call did not happen
        return std::move(way.status());
      }
      known->second = *way;
    }
    hot = {key, known->second};
  }
  return enqueue_op(hot.way, op, stream);
}

Status Communicator::submit_as_asked(const Op &plain, const CallConfig &asked, tuttiStream_t stream) {
  Op op = plain;
  if (!asked.tag.empty()) op.info.tag = asked.tag.c_str();
  op.info.timeout_ms = asked.timeout_ms;
  if (asked.id == 0) return submit(op, stream); // only what is this rank's own affair
  number_++;
  if (moves_nothing(op)) return pass_over(op);
  const uint32_t bucket = bucket_of(op.bytes);
  auto way = bound_as_asked(op, bucket, key_of(op, bucket), asked);
  if (!way.ok()) {
    number_--; // nothing was sent: the call did not happen
    return std::move(way.status());
  }
  return enqueue_op(*way, op, stream);
}

Status Communicator::enqueue(const Bound *bound, const OpArgs &args, std::span<const tuttiStream_t> streams) {
  if (!streams.empty()) return enqueue_after(bound, args, streams);
  TUTTI_ASSIGN(seq, core_->engine->enqueue(bound, args));
  last_seq_ = seq;
  return {};
}

// On user streams: after what other communicators were given on them. Threads that share a stream take turns.
Status Communicator::enqueue_after(const Bound *bound, const OpArgs &args, std::span<const tuttiStream_t> streams) {
  after_.clear();
  Engine &engine = *core_->engine;
  const uint64_t completed = engine.completed();
  std::erase_if(holds_, [&](const Hold &h) { return h.until <= completed; });
  StreamTurns turns(streams);
  for (size_t i = 0; i < streams.size(); i++) {
    const auto lock = turns.take(i);
    tuttiStream *const s = streams[i];
    if (s->error.code != Code::ok) return Status(s->error);
    s->tail.drop_done();
    for (const Point &p : s->tail.points()) {
      if (p.core == core_) continue; // an engine keeps its own order
      if (p.core->engine->failed() && !p.done()) return stream_failed(p);
      after_.push_back({p.core->engine.get(), p.seq});
      holds_.push_back({p, engine.enqueued() + 1});
    }
  }
  TUTTI_ASSIGN(seq, engine.enqueue(bound, args, after_));
  last_seq_ = seq;
  turns.pass_on({core_, seq}, after_);
  return {};
}

} // namespace tutti
