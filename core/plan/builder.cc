// Collects what an algorithm emits, and says exactly what is wrong with it.
#include "plan/life.h"
#include "plan/plan.h"
#include "plan/refs.h"
#include <algorithm>
#include <cstring>
#include <new>
#include <unordered_set>

namespace tutti {
namespace {

// Bounds that no sane plan meets; they keep a broken plugin from filling memory.
constexpr uint32_t kMaxChunks = 1u << 24, kMaxGroups = 1u << 12, kMaxLanes = 1u << 16, kMaxLinks = 1u << 16;
constexpr uint32_t kMaxRepeat = 1u << 20, kMaxDepth = 1u << 16;
constexpr uint64_t kMaxMoves = 1ull << 26; // iterations * chunks per message, over the whole plan
constexpr uint32_t kAllOps = TUTTI_STEP_SRC | TUTTI_STEP_RECV | TUTTI_STEP_REDUCE | TUTTI_STEP_POSTOP | TUTTI_STEP_STORE |
                             TUTTI_STEP_SEND | TUTTI_STEP_PREOP;

bool zero(const tutti_ref &r) {
  return r.buf == 0 && r.count == 0 && r.first == 0 && r.stride == 0 && r.modulus == 0;
}

template <class... A> Status malformed(fmt::format_string<A...> text, A &&...a) {
  return fail(Code::internal, "malformed plan: {}", fmt::format(text, std::forward<A>(a)...)).phase("plan");
}

} // namespace

struct PlanBuilder::Impl {
  std::shared_ptr<Plan> plan = std::make_shared<Plan>();
  Status error;
  bool begun = false;
  uint32_t lanes_wanted = 0;
  uint64_t moves = 0;
  std::unordered_set<uint64_t> links; // (receiving, peer, conn)
  tutti_plan_builder table{};

  static tutti_status c_begin(void *impl, const tutti_plan_shape *shape) noexcept {
    return call(impl, [&](Impl &b) { return b.begin(shape); });
  }
  static tutti_status c_lane(void *impl, uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send,
                             uint32_t nsend) noexcept {
    return call(impl, [&](Impl &b) { return b.lane(group, recv, nrecv, send, nsend); });
  }
  static tutti_status c_step(void *impl, const tutti_step *step, const tutti_dep *deps) noexcept {
    return call(impl, [&](Impl &b) { return b.step(step, deps); });
  }
  // The first error stays: what follows it is noise.
  template <class Fn> static tutti_status call(void *impl, Fn fn) noexcept {
    auto &b = *static_cast<Impl *>(impl);
    if (!b.plan || !b.error.ok()) return TUTTI_ERR_INVALID;
    try {
      b.error = fn(b);
    } catch (const std::bad_alloc &) {
      return TUTTI_ERR_NO_MEMORY;
    }
    return b.error.ok() ? TUTTI_OK : TUTTI_ERR_INVALID;
  }

  Status begin(const tutti_plan_shape *shape);
  Status scratch_sizes(const tutti_plan_shape &s);
  Status lane(uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send, uint32_t nsend);
  Status check_link(const tutti_link &l, uint32_t at, bool receiving);
  Status check_group_link(const tutti_link &l, const std::string &where) const;
  Status step(const tutti_step *step, const tutti_dep *deps);
  Status check_ops(const tutti_step &s, const std::string &where) const;
  Status check_refs(const tutti_step &s, const std::string &where);
  Status check_ref(const tutti_ref &r, const tutti_step &s, const char *name, const std::string &where) const;
  Status check_links(const tutti_step &s, const std::string &where) const;
  Status check_deps() const;
};

Status PlanBuilder::Impl::begin(const tutti_plan_shape *shape) {
  if (begun) return malformed("begin() called twice");
  if (!shape) return malformed("begin(): shape is NULL");
  tutti_plan_shape s{};
  std::memcpy(&s, shape, std::min<size_t>(shape->struct_size, sizeof s));
  const uint32_t n = static_cast<uint32_t>(plan->request.nranks);
  const uint32_t in_blocks = coll_in_blocks(plan->request.coll, n), out_blocks = coll_out_blocks(plan->request.coll, n);
  if (s.features != 0) return malformed("shape: features {:#x} is not known to this core", s.features);
  if (s.in_chunks == 0 || s.in_chunks % in_blocks != 0 || s.in_chunks > kMaxChunks)
    return malformed("shape: in_chunks {} is not a multiple of the {} blocks of IN", s.in_chunks, in_blocks);
  if (s.out_chunks == 0 || s.out_chunks % out_blocks != 0 || s.out_chunks > kMaxChunks)
    return malformed("shape: out_chunks {} is not a multiple of the {} blocks of OUT", s.out_chunks, out_blocks);
  if (s.in_chunks / in_blocks != s.out_chunks / out_blocks)
    return malformed("shape: {} chunks per block of IN, but {} per block of OUT", s.in_chunks / in_blocks,
                     s.out_chunks / out_blocks);
  if (s.scratch_chunks > kMaxChunks) return malformed("shape: scratch_chunks {} is over {}", s.scratch_chunks, kMaxChunks);
  if (s.groups == 0 || s.groups > kMaxGroups) return malformed("shape: groups {} is not in 1..{}", s.groups, kMaxGroups);
  if (s.lanes == 0 || s.lanes > kMaxLanes) return malformed("shape: lanes {} is not in 1..{}", s.lanes, kMaxLanes);
  if (plan->request.max_lanes != 0 && s.lanes > plan->request.max_lanes)
    return malformed("shape: lanes {} is over max_lanes {} of the request", s.lanes, plan->request.max_lanes);
  if (s.min_depth < 2 || s.min_depth > kMaxDepth)
    return malformed("shape: min_depth {} is not in 2..{}", s.min_depth, kMaxDepth);
  if (s.window > kMaxDepth) return malformed("shape: window {} is over {}", s.window, kMaxDepth);
  if (s.resident_lanes > s.lanes) return malformed("shape: resident_lanes {} is over lanes {}", s.resident_lanes, s.lanes);
  plan->in_chunks = s.in_chunks;
  plan->out_chunks = s.out_chunks;
  plan->scratch_chunks = s.scratch_chunks;
  plan->groups = s.groups;
  plan->min_depth = s.min_depth;
  plan->window = s.window;
  plan->resident_lanes = s.resident_lanes;
  lanes_wanted = s.lanes;
  begun = true;
  return scratch_sizes(s);
}

Status PlanBuilder::Impl::scratch_sizes(const tutti_plan_shape &s) {
  for (uint32_t c = 0; c < s.scratch_chunks; c++) {
    tutti_chunk_id id{c < s.out_chunks ? uint32_t{TUTTI_BUF_OUT} : uint32_t{TUTTI_BUF_IN}, c};
    if (s.scratch_size) id = s.scratch_size[c];
    if (id.buf > TUTTI_BUF_OUT) return malformed("shape: scratch_size[{}].buf {} is neither IN nor OUT", c, id.buf);
    const uint32_t limit = chunks_of(*plan, id.buf);
    if (id.chunk >= limit)
      return malformed("shape: scratch_size[{}] is {} chunk {}, of {}", c, buf_name(id.buf), id.chunk, limit);
    plan->scratch_size.push_back(id);
  }
  return {};
}

Status PlanBuilder::Impl::lane(uint32_t group, const tutti_link *recv, uint32_t nrecv, const tutti_link *send, uint32_t nsend) {
  const size_t number = plan->lanes.size();
  if (!begun) return malformed("lane() before begin()");
  if (number == lanes_wanted) return malformed("lane {}: the shape announced {}", number, lanes_wanted);
  if (group >= plan->groups) return malformed("lane {}: group {} of {}", number, group, plan->groups);
  if (nrecv > kMaxLinks || nsend > kMaxLinks) return malformed("lane {}: more than {} links", number, kMaxLinks);
  if ((nrecv && !recv) || (nsend && !send)) return malformed("lane {}: link list is NULL", number);
  PlanLane &lane = plan->lanes.emplace_back();
  lane.group = group;
  for (uint32_t i = 0; i < nrecv; i++) TUTTI_TRY(check_link(recv[i], i, true));
  for (uint32_t i = 0; i < nsend; i++) TUTTI_TRY(check_link(send[i], i, false));
  lane.recv.assign(recv, recv + nrecv);
  lane.send.assign(send, send + nsend);
  return {};
}

Status PlanBuilder::Impl::check_link(const tutti_link &l, uint32_t at, bool receiving) {
  const auto where = [&] {
    return fmt::format("lane {}: {} link {}", plan->lanes.size() - 1, receiving ? "receive" : "send", at);
  };
  const int me = plan->request.rank;
  const bool reducing = l.flags & TUTTI_LINK_REDUCING;
  if (reducing ? l.flags != TUTTI_LINK_REDUCING : l.flags & ~uint32_t{TUTTI_LINK_MULTICAST})
    return malformed("{}: flags {:#x} are not known", where(), l.flags);
  if (l.conn >= kP2pConn) return malformed("{}: conn {} is over {}", where(), l.conn, kP2pConn - 1);
  if (!links
           .insert((uint64_t{receiving} << 63) | (uint64_t{reducing} << 62) | (uint64_t{static_cast<uint32_t>(l.peer)} << 16) |
                   l.conn)
           .second)
    return malformed("{}: (peer {}, conn {}) already belongs to this or another lane", where(), l.peer, l.conn);
  if (reducing) return check_group_link(l, where());
  const bool multicast = l.flags & TUTTI_LINK_MULTICAST;
  if (multicast && !(plan->request.flags & TUTTI_REQ_MULTICAST))
    return malformed("{}: flag MULTICAST, but the request does not offer it", where());
  if (l.peer < 0 || l.peer >= plan->request.nranks)
    return malformed("{}: peer {} is not in 0..{}", where(), l.peer, plan->request.nranks - 1);
  if (multicast && !receiving ? l.peer != me : l.peer == me)
    return malformed("{}: peer {} is {}", where(), l.peer,
                     multicast && !receiving ? "not the sender itself" : "the rank itself");
  return {};
}

// One link each way: all posts of a group are in one order, which lanes of their own would not keep.
Status PlanBuilder::Impl::check_group_link(const tutti_link &l, const std::string &where) const {
  const PlanRequest &q = plan->request;
  if (!(q.flags & TUTTI_REQ_COLLNET)) return malformed("{}: flag REDUCING, but the request offers no collnet", where);
  if (l.peer < 0 || static_cast<uint32_t>(l.peer) >= q.channels)
    return malformed("{}: group {} is not in 0..{}", where, l.peer, q.channels - 1);
  if (l.conn != 0) return malformed("{}: conn {} of a link to a group is not 0", where, l.conn);
  if (q.channel[static_cast<size_t>(l.peer)].head != q.rank)
    return malformed("{}: rank {} is no member of group {}: its host's head is rank {}", where, q.rank, l.peer,
                     q.channel[static_cast<size_t>(l.peer)].head);
  return {};
}

Status PlanBuilder::Impl::step(const tutti_step *step, const tutti_dep *deps) {
  if (plan->lanes.empty()) return malformed("step() before lane()");
  if (!step) return malformed("step() without a step");
  PlanLane &lane = plan->lanes.back();
  const std::string where = fmt::format("lane {} step {}", plan->lanes.size() - 1, lane.steps.size());
  tutti_step s = *step;
  if (s.reserved0 != 0 || s.reserved1 != 0) return malformed("{}: reserved fields are not 0", where);
  if (s.dep_first != 0) return malformed("{}: dep_first {} is not 0", where, s.dep_first);
  if (s.repeat == 0 || s.repeat > kMaxRepeat) return malformed("{}: repeat {} is not in 1..{}", where, s.repeat, kMaxRepeat);
  if (s.dep_count && !deps) return malformed("{}: dep_count {} without deps", where, s.dep_count);
  TUTTI_TRY(check_ops(s, where));
  TUTTI_TRY(check_refs(s, where));
  TUTTI_TRY(check_links(s, where));
  s.dep_first = static_cast<uint32_t>(plan->deps.size());
  for (uint32_t i = 0; i < s.dep_count; i++) plan->deps.push_back(deps[i]);
  lane.steps.push_back(s);
  return {};
}

Status PlanBuilder::Impl::check_ops(const tutti_step &s, const std::string &where) const {
  const tutti_coll coll = plan->request.coll;
  if (s.ops & ~kAllOps) return malformed("{}: ops {:#x} has bits that this core does not know", where, s.ops);
  if (has(s, TUTTI_STEP_RECV) != (s.recv_count > 0))
    return malformed("{}: RECV and recv_count {} disagree", where, s.recv_count);
  if (has(s, TUTTI_STEP_SEND) != (s.send_count > 0))
    return malformed("{}: SEND and send_count {} disagree", where, s.send_count);
  const uint32_t operands = s.recv_count + (has(s, TUTTI_STEP_SRC) ? 1u : 0u);
  if (operands == 0) return malformed("{}: has no operand: neither SRC nor RECV", where);
  if (has(s, TUTTI_STEP_REDUCE) != (operands > 1))
    return malformed("{}: {} operands {} REDUCE", where, operands, operands > 1 ? "without" : "with");
  if (!has(s, TUTTI_STEP_STORE) && !has(s, TUTTI_STEP_SEND))
    return malformed("{}: has no effect: neither STORE nor SEND", where);
  if (s.src_pos != 0 && (!has(s, TUTTI_STEP_SRC) || s.src_pos >= operands))
    return malformed("{}: src_pos {} of {} operands", where, s.src_pos, operands);
  if (has(s, TUTTI_STEP_REDUCE) && !coll_reduces(coll)) return malformed("{}: REDUCE in {}", where, coll_name(coll));
  if ((s.ops & (TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP)) && !coll_reduces(coll))
    return malformed("{}: pre- or post-operation in {}, which does not reduce", where, coll_name(coll));
  if (has(s, TUTTI_STEP_PREOP) && (!has(s, TUTTI_STEP_SRC) || s.src.buf != TUTTI_BUF_IN))
    return malformed("{}: PREOP without SRC from IN", where);
  if (has(s, TUTTI_STEP_STORE) && s.dst.buf == TUTTI_BUF_IN)
    return malformed("{}: stores to IN, which is never written", where);
  if (has(s, TUTTI_STEP_SRC) && s.src.buf == TUTTI_BUF_IN && !has_in(*plan))
    return malformed("{}: src is IN, which rank {} does not have", where, plan->request.rank);
  const bool out_src = has(s, TUTTI_STEP_SRC) && s.src.buf == TUTTI_BUF_OUT,
             out_dst = has(s, TUTTI_STEP_STORE) && s.dst.buf == TUTTI_BUF_OUT;
  if ((out_src || out_dst) && !has_out(*plan))
    return malformed("{}: {} is OUT, which rank {} does not have", where, out_dst ? "dst" : "src", plan->request.rank);
  return {};
}

Status PlanBuilder::Impl::check_refs(const tutti_step &s, const std::string &where) {
  const bool src = has(s, TUTTI_STEP_SRC), dst = has(s, TUTTI_STEP_STORE) || !src;
  if (src) TUTTI_TRY(check_ref(s.src, s, "src", where));
  if (dst) TUTTI_TRY(check_ref(s.dst, s, "dst", where));
  if (!src && !zero(s.src)) return malformed("{}: src is set without SRC", where);
  if (!dst && !zero(s.dst)) return malformed("{}: dst is set, but the step neither stores nor needs it for the size", where);
  if (src && dst && s.src.count != s.dst.count)
    return malformed("{}: src has {} chunks, dst {}", where, s.src.count, s.dst.count);
  moves += static_cast<uint64_t>(s.repeat) * sizing_ref(s).count;
  if (moves > kMaxMoves) return malformed("{}: more than {} chunk moves per slice", where, kMaxMoves);
  for (uint32_t i = 0; src && dst && i < s.repeat; i++)
    for (uint32_t j = 0; j < s.src.count; j++) {
      const uint32_t a = static_cast<uint32_t>(ref_first(s.src, i)) + j, b = static_cast<uint32_t>(ref_first(s.dst, i)) + j;
      if (chunk_identity(*plan, s.src.buf, a) != chunk_identity(*plan, s.dst.buf, b))
        return malformed("{}: src {} chunk {} and dst {} chunk {} need not have the same size", where, buf_name(s.src.buf), a,
                         buf_name(s.dst.buf), b);
    }
  return {};
}

Status PlanBuilder::Impl::check_ref(const tutti_ref &r, const tutti_step &s, const char *name, const std::string &where) const {
  if (r.buf > TUTTI_BUF_SCRATCH) return malformed("{}: {}.buf {} is not known", where, name, r.buf);
  if (r.count == 0) return malformed("{}: {}.count is 0", where, name);
  if (r.modulus > INT32_MAX) return malformed("{}: {}.modulus {} is over {}", where, name, r.modulus, INT32_MAX);
  const int64_t limit = chunks_of(*plan, r.buf);
  for (uint32_t i = 0; i < s.repeat; i++) {
    const int64_t c = ref_first(r, i);
    if (c < 0 || c + r.count > limit)
      return malformed("{}: {} is {} chunk {} at iteration {}, of {}", where, name, buf_name(r.buf),
                       c < 0 ? c : c + r.count - 1, i, limit);
  }
  return {};
}

Status PlanBuilder::Impl::check_links(const tutti_step &s, const std::string &where) const {
  const PlanLane &lane = plan->lanes.back();
  const auto in_range = [&](uint32_t first, uint32_t count, size_t have) {
    const int64_t last = first + static_cast<int64_t>(s.repeat - 1) * s.link_stride;
    return count == 0 || (last >= 0 && static_cast<size_t>(std::max<int64_t>(first, last)) + count <= have);
  };
  if (!in_range(s.recv_first, s.recv_count, lane.recv.size()))
    return malformed("{}: receive links {}+{} with link_stride {} leave the lane's {}", where, s.recv_first, s.recv_count,
                     s.link_stride, lane.recv.size());
  if (!in_range(s.send_first, s.send_count, lane.send.size()))
    return malformed("{}: send links {}+{} with link_stride {} leave the lane's {}", where, s.send_first, s.send_count,
                     s.link_stride, lane.send.size());
  return {};
}

Status PlanBuilder::Impl::check_deps() const {
  for (uint32_t l = 0; l < plan->lanes.size(); l++)
    for (uint32_t i = 0; i < plan->lanes[l].steps.size(); i++) {
      const tutti_step &s = plan->lanes[l].steps[i];
      for (uint32_t d = 0; d < s.dep_count; d++) {
        const tutti_dep &dep = plan->deps[s.dep_first + d];
        if (dep.lane >= plan->lanes.size() || dep.step >= plan->lanes[dep.lane].steps.size())
          return malformed("lane {} step {}: dep {} is lane {} step {}, which does not exist", l, i, d, dep.lane, dep.step);
        if (dep.lane == l) return malformed("lane {} step {}: dep {} is in the lane itself", l, i, d);
      }
    }
  return {};
}

PlanBuilder::PlanBuilder(PlanRequest request) : impl_(std::make_unique<Impl>()) {
  impl_->plan->request = std::move(request);
  impl_->table = {sizeof(tutti_plan_builder), 0, impl_.get(), Impl::c_begin, Impl::c_lane, Impl::c_step};
}
PlanBuilder::~PlanBuilder() = default;

const tutti_plan_builder *PlanBuilder::builder() {
  return &impl_->table;
}
const Status &PlanBuilder::error() const {
  return impl_->error;
}

Result<std::shared_ptr<const Plan>> PlanBuilder::finish(std::string algo) {
  if (!impl_->plan) return malformed("finish() called twice");
  TUTTI_TRY(impl_->error);
  if (!impl_->begun) return malformed("begin() was never called");
  if (impl_->plan->lanes.size() != impl_->lanes_wanted)
    return malformed("{} lanes, but the shape announced {}", impl_->plan->lanes.size(), impl_->lanes_wanted);
  TUTTI_TRY(impl_->check_deps());
  std::shared_ptr<Plan> plan = std::move(impl_->plan);
  plan->algo = std::move(algo);
  TUTTI_TRY(find_life(*plan));
  return std::shared_ptr<const Plan>(std::move(plan));
}

} // namespace tutti
