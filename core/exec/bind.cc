#include "exec/bind.h"
#include "base/hash.h"
#include "base/types.h"
#include "exec/kernels.h"
#include "plan/refs.h"
#include "transport/collnet_port.h"
#include "transport/net_port.h"
#include <algorithm>
#include <set>

namespace tutti {
namespace {

constexpr uint32_t kDefaultWindow = 4; // slices in flight when a plan with scratch leaves the choice
constexpr uint32_t kUnlimited = ~0u;
// Links between ranks of plans that use collnet groups are links of their own: when a group is lost in the middle of an
// operation, what lies in them stays there.
constexpr uint16_t kGroupsConn = 0x4000;

class Binder {
public:
  Binder(Transport &transport, Workspace &workspace, Bound &bound)
      : transport_(transport), workspace_(workspace), b_(bound), plan_(*bound.plan), sel_(bound.selection) {}

  Status run() {
    TUTTI_TRY(check());
    TUTTI_TRY(resolve_ops());
    b_.lanes.resize(plan_.lanes.size());
    b_.geo.resize(size_t(2) * b_.groups);
    uint64_t tmp = 0;
    std::vector<uint64_t> tmp_at(b_.lanes.size());
    for (uint32_t i = 0; i < b_.lanes.size(); i++) {
      TUTTI_TRY(bind_lane(i));
      tmp_at[i] = tmp;
      tmp += tmp_bytes(b_.lanes[i]);
    }
    size_t widest = 0;
    for (const Lane &lane : b_.lanes)
      for (const StepCold &cold : lane.cold) widest = std::max<size_t>(widest, cold.step.recv_count);
    b_.received.resize(widest);
    b_.operands.resize(widest + 1);
    b_.payloads.resize(widest);
    b_.scratch_stride = align_up(sel_.slot_bytes, 64);
    const uint64_t scratch =
        plan_.scratch_chunks ? uint64_t(b_.groups) * plan_.scratch_chunks * b_.window * b_.scratch_stride : 0;
    if (scratch + tmp == 0) return {};
    TUTTI_ASSIGN(memory,
                 workspace_.get(scratch + tmp, transport_.budget(), fmt::format("temporary memory of plan {}", plan_.algo)));
    b_.scratch = memory;
    for (uint32_t i = 0; i < b_.lanes.size(); i++) b_.lanes[i].tmp = memory + scratch + tmp_at[i];
    return {};
  }

private:
  std::string where(uint32_t lane) const { return fmt::format("plan {} lane {}", plan_.algo, lane); }
  tutti_kernel kernel(tutti_form form, uint32_t flags = 0) const {
    return sel_.proto.table->kernel(sel_.proto.plugin ? sel_.proto.plugin->state : nullptr, form, b_.dtype, b_.op, flags);
  }
  bool in_data() const { return sel_.proto.table->signal == TUTTI_SIGNAL_IN_DATA; }
  bool descriptors() const { return sel_.proto.table->signal == TUTTI_SIGNAL_DESCRIPTOR; }

  Status check() {
    if (!sel_.proto) return fail(Code::invalid_argument, "plan {}: no protocol chosen", plan_.algo);
    const tutti_proto_v1 &p = *sel_.proto.table;
    if (p.signal > TUTTI_SIGNAL_DESCRIPTOR)
      return fail(Code::invalid_argument, "protocol {} uses signal {}, which this version cannot drive", p.name, p.signal);
    if (sel_.slot_bytes == 0) return fail(Code::invalid_argument, "plan {}: slot size 0", plan_.algo);
    if (sel_.depth < 2 || (sel_.depth & (sel_.depth - 1)) != 0)
      return fail(Code::invalid_argument, "plan {}: link depth {} is not a power of two of at least 2", plan_.algo, sel_.depth);
    if (sel_.depth < plan_.min_depth)
      return fail(Code::invalid_argument, "plan {} needs links of depth {}, {} was chosen", plan_.algo, plan_.min_depth,
                  sel_.depth);
    if (dtype_bytes(b_.dtype) == 0) return fail(Code::invalid_argument, "unknown data type {}", b_.dtype);
    if (sel_.slot_bytes % 8 != 0)
      return fail(Code::invalid_argument, "plan {}: slot size {} is not a multiple of 8, so elements would be cut", plan_.algo,
                  sel_.slot_bytes);
    // The plan was proved to end with min_depth slots ahead of the reader, whenever it tells.
    while (Geometry{sel_.slot_bytes, sel_.depth}.certain() < plan_.min_depth) b_.selection.depth *= 2;
    b_.groups = std::max(1u, plan_.groups);
    const auto n = static_cast<uint32_t>(plan_.request.nranks);
    b_.pieces_in = std::max(1u, plan_.in_chunks / std::max(1u, coll_in_blocks(plan_.request.coll, n)));
    b_.pieces_out = std::max(1u, plan_.out_chunks / std::max(1u, coll_out_blocks(plan_.request.coll, n)));
    if (plan_.request.coll == TUTTI_COLL_SEND_RECV) b_.pieces_in = b_.pieces_out = 1;
    b_.window = plan_.window ? plan_.window : (plan_.scratch_chunks ? kDefaultWindow : kUnlimited);
    b_.step_major = plan_.step_major;
    return {};
  }

  Status resolve_ops() {
    const tutti_host_reduce_v1 &host = *host_reduce_service();
    b_.scale = host.scale(b_.dtype);
    b_.divide = host.divide(b_.dtype);
    nt_ = sel_.flags & TUTTI_CAND_NONTEMPORAL ? uint32_t(TUTTI_KERNEL_NONTEMPORAL) : 0u;
    b_.reduce = host.reduce(b_.dtype, b_.op, 0);
    if (coll_reduces(plan_.request.coll) && !b_.reduce)
      return fail(Code::invalid_argument, "no kernel for {} of {}", redop_name(b_.op), dtype_name(b_.dtype));
    encode_ = kernel(TUTTI_FORM_ENCODE);
    decode_ = kernel(TUTTI_FORM_DECODE);
    decode_nt_ = nt_ ? kernel(TUTTI_FORM_DECODE, nt_) : decode_;
    if (!decode_nt_) decode_nt_ = decode_;
    b_.store_fence = nt_ != 0;
    if (!encode_ || !decode_)
      return fail(Code::invalid_argument, "protocol {} offers no encode or decode kernel", sel_.proto.table->name);
    copy_out_ = host.copy(nt_);
    copy_ = host.copy(0);
    if (!copy_out_) copy_out_ = copy_;
    reduce_n_ = reinterpret_cast<tutti_kernel>(host.reduce_n(b_.dtype, b_.op, 0));
    return {};
  }

  uint32_t route_of(const PlanLane &lane, const tutti_link &l, bool sending) const {
    const NetRoutes &routes = transport_.routes();
    const int me = transport_.bootstrap().rank();
    const uint32_t channel = l.conn < kP2pConn ? lane.group
                             : sending         ? routes.channel_of_pair(me, l.peer)
                                               : routes.channel_of_pair(l.peer, me);
    return routes.route(channel, l.peer, sending);
  }

  Status bind_links(uint32_t lane_index, bool sending, std::vector<BoundLink> *out) {
    const PlanLane &lane = plan_.lanes[lane_index];
    const auto &links = sending ? lane.send : lane.recv;
    const tutti_proto_v1 &p = *sel_.proto.table;
    for (uint32_t i = 0; i < links.size(); i++) {
      const tutti_link &l = links[i];
      if (l.flags & TUTTI_LINK_REDUCING) {
        TUTTI_TRY(bind_group(lane_index, i, sending, out));
        continue;
      }
      const bool multicast = l.flags & TUTTI_LINK_MULTICAST;
      const auto conn = static_cast<uint16_t>(sel_.groups ? l.conn | kGroupsConn : l.conn);
      if (sel_.groups && l.conn >= kGroupsConn)
        return fail(Code::invalid_argument, "{}: conn {} of a plan with groups is over {}", where(lane_index), l.conn,
                    kGroupsConn - 1);
      if (l.flags & ~uint32_t{TUTTI_LINK_MULTICAST})
        return fail(Code::invalid_argument, "{}: links with flags {:#x} are not supported by this version", where(lane_index),
                    l.flags);
      if (l.peer < 0 || l.peer >= transport_.bootstrap().nranks())
        return fail(Code::invalid_argument, "{}: link to rank {} of {}", where(lane_index), l.peer,
                    transport_.bootstrap().nranks());
      if (multicast && (descriptors() || !transport_.shares_memory()))
        return fail(Code::invalid_argument, "{}: a link with several readers needs {}", where(lane_index),
                    descriptors() ? fmt::format("slots that hold payloads, as those of protocol {} do not", p.name)
                                  : "ranks that all share memory");
      const bool net = transport_.link_class(l.peer) == LinkClass::net;
      Geometry g{sel_.slot_bytes * most_chunks(lane, sending, i), sel_.depth};
      if (in_data() && !net) {
        g.line_bytes = p.line_bytes;
        g.payload_bytes = p.payload_bytes;
        g.word_offset = p.flag_offset;
      }
      if (multicast) g.readers = static_cast<uint32_t>(transport_.bootstrap().nranks() - 1);
      if (net) g.route = route_of(lane, l, sending);
      const bool lends = net && descriptors() && transport_.can_lend(l.peer);
      if (descriptors()) g.descriptors = net ? (lends ? kNetLends : 0u) : sel_.flags & TUTTI_CAND_SHARED_ONLY ? 2u : 1u;
      const std::string_view carrier = net && !lends && p.signal != TUTTI_SIGNAL_COUNTER ? "simple" : p.name;
      TUTTI_ASSIGN(ring, transport_.ring(l.peer, conn, sending, g, carrier));
      if (net && sending && transport_.net()->window(*ring) < plan_.min_depth)
        return fail(Code::invalid_argument, "{} needs {} messages under way to rank {}, the network takes {}",
                    where(lane_index), plan_.min_depth, l.peer, transport_.net()->window(*ring));
      if (lends) TUTTI_TRY(bind_way_back(*ring));
      uint64_t mark = fnv1a(net && !lends ? "net" : p.name);
      if (l.conn < kP2pConn) mark ^= plan_.fingerprint(l, !sending);
      out->push_back({ring, mix32(mark) & ~1u, l.peer});
      b_.has_net |= net;
      if (g.descriptors && sending && !net) b_.lending.push_back(ring);
      b_.net_lends |= lends;
      if (multicast && !sending) b_.joining.push_back(ring);
    }
    return {};
  }

  // Both ways of a member are one; what it posts follows from the collective.
  Status bind_group(uint32_t lane_index, uint32_t link, bool sending, std::vector<BoundLink> *out) {
    const PlanLane &lane = plan_.lanes[lane_index];
    const tutti_link &l = (sending ? lane.send : lane.recv)[link];
    CollnetPort *port = transport_.collnet();
    const auto number = static_cast<uint32_t>(l.peer);
    const CollnetGroup *group = port ? port->group(number) : nullptr;
    if (!group) return fail(Code::internal, "{}: this rank is no member of collnet group {}", where(lane_index), number);
    const uint32_t slot = sel_.slot_bytes * most_chunks(lane, sending, link);
    if (port->window(number, slot) < plan_.min_depth)
      return fail(Code::invalid_argument, "{} needs {} posts under way in collnet group {}, {} of {} bytes were granted",
                  where(lane_index), plan_.min_depth, number, port->window(number, slot), slot);
    auto call = std::make_unique<GroupCall>();
    const PlanRequest &q = plan_.request;
    call->coll = q.coll == TUTTI_COLL_REDUCE || q.coll == TUTTI_COLL_BROADCAST ? q.coll : tutti_coll{TUTTI_COLL_ALL_REDUCE};
    call->dtype = b_.dtype;
    call->op = b_.op;
    for (size_t m = 0; q.root >= 0 && m < group->members.size(); m++)
      if (q.node_of_rank[static_cast<size_t>(group->members[m])] == q.node_of_rank[static_cast<size_t>(q.root)])
        call->root = static_cast<int32_t>(m);
    TUTTI_ASSIGN(ring, port->ring(number, sending, slot));
    const uint64_t mark = fnv1a("group") ^ plan_.fingerprint(l, !sending);
    out->push_back({ring, mix32(mark) & ~1u, -1, call.get()});
    b_.group_calls.push_back(std::move(call));
    b_.has_groups = true;
    return {};
  }

  Status bind_way_back(Ring &ring) {
    const RingCold &cold = *ring.cold;
    Geometry g = cold.geometry;
    g.descriptors = kNetAcks;
    TUTTI_ASSIGN(acks, transport_.ring(cold.peer, cold.conn, !cold.sending, g, "pull"));
    transport_.net()->pair(ring, *acks);
    return {};
  }

  Status bind_lane(uint32_t index) {
    const PlanLane &from = plan_.lanes[index];
    Lane &lane = b_.lanes[index];
    lane.group = from.group;
    lane.geo = &b_.geo[size_t(2) * from.group];
    TUTTI_TRY(bind_links(index, false, &lane.recv));
    TUTTI_TRY(bind_links(index, true, &lane.send));
    size_t total = 0;
    for (const tutti_step &s : from.steps) total += unrolled(s) ? s.repeat : 1;
    lane.cold.reserve(total); // steps keep pointers
    for (uint32_t i = 0; i < from.steps.size(); i++) bind_step(index, i);
    look_ahead(&lane);
    lane.steps = lane.plain.data();
    lane.step_count = static_cast<uint32_t>(lane.plain.size());
    return {};
  }

  // The lane starts again with the next slice, and often with the next operation.
  static void look_ahead(Lane *lane) {
    const auto shares_link = [](const BoundStep &a, const BoundStep &b) {
      return b.recv_count && a.recv < b.recv + b.recv_count && b.recv < a.recv + a.recv_count;
    };
    const size_t n = lane->plain.size();
    for (size_t i = 0; i < n; i++)
      for (size_t k = 1; lane->plain[i].recv_count && k <= n; k++) {
        if (!shares_link(lane->plain[i], lane->plain[(i + k) % n])) continue;
        lane->cold[i].next_recv = static_cast<uint32_t>((i + k) % n);
        break;
      }
    for (size_t i = 0; i < n; i++)
      for (size_t at = i; lane->plain[at].recv_count && !lane->cold[at].recv_home && lane->cold[i].staged < kAllAhead;
           at = lane->cold[at].next_recv)
        lane->cold[i].staged += lane->plain[at].repeat;
  }

  // Iterations that one bound step cannot express become steps of their own.
  static bool unrolled(const tutti_step &s) {
    if (s.repeat <= 1) return false;
    const bool both = (s.ops & TUTTI_STEP_SRC) && (s.ops & TUTTI_STEP_STORE);
    return s.link_stride != 0 || (both && (s.src.stride != s.dst.stride || s.src.modulus != s.dst.modulus));
  }

  void bind_step(uint32_t lane_index, uint32_t index) {
    const PlanLane &from = plan_.lanes[lane_index];
    Lane &lane = b_.lanes[lane_index];
    const tutti_step &s = from.steps[index];
    const uint32_t life = index < from.life.size() ? from.life[index] : 0;
    const uint32_t copies = unrolled(s) ? s.repeat : 1;
    for (uint32_t i = 0; i < copies; i++) {
      tutti_step one = s;
      if (copies > 1) {
        one.repeat = 1;
        one.src.first = walk(s.src.first, s.src.stride, s.src.modulus, i);
        one.dst.first = walk(s.dst.first, s.dst.stride, s.dst.modulus, i);
        one.src.stride = one.dst.stride = 0;
        one.recv_first = static_cast<uint16_t>(s.recv_first + s.link_stride * static_cast<int32_t>(i));
        one.send_first = static_cast<uint16_t>(s.send_first + s.link_stride * static_cast<int32_t>(i));
      }
      const auto first_dep = plan_.deps.begin() + s.dep_first;
      std::vector<tutti_dep> deps;
      if (i == 0)
        for (auto d = first_dep; d != first_dep + s.dep_count; ++d) deps.push_back({d->lane, last_copy_of(d->lane, d->step)});
      add_step(lane, one, life, std::move(deps));
    }
  }
  // Position, among the bound steps of a lane, of the last one made from plan step `step`.
  uint32_t last_copy_of(uint32_t lane, uint32_t step) const {
    uint32_t at = 0;
    for (uint32_t i = 0; i <= step; i++) at += unrolled(plan_.lanes[lane].steps[i]) ? plan_.lanes[lane].steps[i].repeat : 1;
    return at - 1;
  }

  void add_step(Lane &lane, const tutti_step &s, uint32_t life, std::vector<tutti_dep> deps) {
    StepCold &cold = lane.cold.emplace_back();
    cold.step = s;
    if (!(s.ops & TUTTI_STEP_RECV)) cold.step.recv_count = 0;
    if (!(s.ops & TUTTI_STEP_SEND)) cold.step.send_count = 0;
    cold.life = life;
    cold.recv_home = (life & kRecvHome) && cold.step.recv_count == 1 && !(s.ops & TUTTI_STEP_SRC) &&
                     (s.ops & TUTTI_STEP_STORE) && s.dst.count == 1 && s.dst.buf != TUTTI_BUF_SCRATCH;
    cold.copy_out = descriptors() && (s.ops & TUTTI_STEP_SEND) ? copy_ : copy_out_; // what is lent is read by others
    cold.encode = encode_;
    cold.decode = decode_;
    if (descriptors()) cold.reduce2 = form(TUTTI_FORM_DECODE_REDUCE_ENCODE, s.dst.buf == TUTTI_BUF_OUT ? nt_ : 0u);
    cold.deps = std::move(deps);
    const uint32_t count = s.ops & TUTTI_STEP_SRC ? s.src.count : s.dst.count;
    cold.tmp_bytes = align_up(uint64_t(sel_.slot_bytes) * count, 64);
    cold.operands = 2u + (in_data() || descriptors() ? cold.step.recv_count : 0u);
    BoundStep b;
    if (cold.step.recv_count) b.recv = &lane.recv[s.recv_first];
    if (cold.step.send_count) b.send = &lane.send[s.send_first];
    b.cold = &cold;
    b.src_first = s.src.first;
    b.dst_first = s.dst.first;
    const tutti_ref &ref = s.ops & TUTTI_STEP_SRC ? s.src : s.dst;
    b.stride = ref.stride;
    b.modulus = ref.modulus;
    b.repeat = std::max(1u, s.repeat);
    b.recv_count = cold.step.recv_count;
    b.src_buf = static_cast<uint8_t>(s.src.buf);
    b.dst_buf = static_cast<uint8_t>(s.dst.buf);
    choose(&b, cold);
    lane.plain.push_back(b);
    if (s.ops & (TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP)) {
      b.handler = run_composed;
      b.kernel = reduce_n_;
      b_.has_preop |= (s.ops & TUTTI_STEP_PREOP) != 0;
      b_.has_postop |= (s.ops & TUTTI_STEP_POSTOP) != 0;
    }
    lane.with_ops.push_back(b);
  }

  bool any_net(const BoundStep &b, const tutti_step &s) const {
    const auto net = [](const BoundLink &l) { return l.ring->net || l.ring->group; };
    return std::any_of(b.recv, b.recv + b.recv_count, net) || std::any_of(b.send, b.send + s.send_count, net);
  }

  void composed(BoundStep *b) const {
    b->handler = run_composed;
    b->kernel = reduce_n_;
  }

  void choose(BoundStep *b, const StepCold &cold) {
    const tutti_step &s = cold.step;
    if (s.recv_count == 0 && s.send_count == 0) {
      b->handler = run_local;
      b->kernel = reduce_n_;
      return;
    }
    composed(b);
    if (s.src.count > 1 || s.dst.count > 1 || any_net(*b, s)) return;
    if (descriptors()) return use(b, run_pull, pull_kernel(s));
    const HandlerSet &set = in_data() ? kLineHandlers : kCounterHandlers;
    const uint32_t user = s.dst.buf == TUTTI_BUF_OUT ? nt_ : 0u;
    const uint32_t shape = s.ops & (TUTTI_STEP_SRC | TUTTI_STEP_RECV | TUTTI_STEP_REDUCE | TUTTI_STEP_STORE | TUTTI_STEP_SEND);
    constexpr uint32_t src = TUTTI_STEP_SRC, recv = TUTTI_STEP_RECV, red = TUTTI_STEP_REDUCE, store = TUTTI_STEP_STORE,
                       snd = TUTTI_STEP_SEND;
    if (s.recv_count > 1 || s.send_count > 1) {
      const bool reduces = (shape & recv) && (shape & red);
      if (reduces && shape & store)
        use(b, set.reduce_n, reduce_n_kernel(shape & snd ? 0u : user)); // what is sent is read again
      if (reduces && !(shape & store)) use(b, set.reduce_n_send, reduce_n_kernel(0));
      if (shape == (src | snd)) use(b, set.send_n, encode_);
      if (shape == (src | store | snd)) use(b, set.send_store, encode_);
      if (shape == (recv | store | snd) && s.recv_count == 1) use(b, set.recv_forward_n, encode_);
      return;
    }
    // COUNTER handlers bring operands into order themselves.
    const uint32_t order = in_data() && s.src_pos ? uint32_t(TUTTI_KERNEL_RECEIVED_FIRST) : 0u;
    // Without STORE the result goes to one place only, the next slot: for lines the kernel that also writes that one.
    const tutti_form passing_on = in_data() ? TUTTI_FORM_DECODE_REDUCE_ENCODE : TUTTI_FORM_DECODE_REDUCE;
    switch (shape) {
    case src | snd:
      return use(b, set.send, encode_);
    case src | store | snd:
      return use(b, set.send_store, encode_);
    case recv | store:
      return use(b, set.recv, user ? decode_nt_ : decode_);
    case recv | snd:
      return use(b, set.recv_send, encode_);
    case recv | store | snd:
      return use(b, set.recv_forward, encode_);
    case src | recv | red | store:
      return use(b, set.recv_reduce, form(TUTTI_FORM_DECODE_REDUCE, user, order));
    case src | recv | red | snd:
      return use(b, set.recv_reduce_send, form(passing_on, 0, order));
    case src | recv | red | store | snd:
      return use(b, set.recv_reduce_forward, form(TUTTI_FORM_DECODE_REDUCE_ENCODE, user, order));
    default:
      return;
    }
  }
  static void use(BoundStep *b, Handler handler, tutti_kernel kernel) {
    if (!handler || !kernel) return;
    b->handler = handler;
    b->kernel = kernel;
  }
  // What combines or copies the received operands. What is sent is read again, by others.
  tutti_kernel pull_kernel(const tutti_step &s) const {
    const uint32_t user = s.dst.buf == TUTTI_BUF_OUT && (s.ops & TUTTI_STEP_STORE) && !(s.ops & TUTTI_STEP_SEND) ? nt_ : 0u;
    const uint32_t operands = s.recv_count + ((s.ops & TUTTI_STEP_SRC) != 0);
    if (s.recv_count == 0 || operands == 1) return user ? decode_nt_ : decode_;
    return operands == 2 ? form(TUTTI_FORM_DECODE_REDUCE, user) : reduce_n_kernel(user);
  }
  tutti_kernel form(tutti_form f, uint32_t user, uint32_t order = 0) const {
    tutti_kernel k = user ? kernel(f, user | order) : nullptr;
    return k ? k : kernel(f, order);
  }
  tutti_kernel reduce_n_kernel(uint32_t flags) const {
    tutti_kernel k = in_data() ? nullptr : form(TUTTI_FORM_REDUCE_N, flags);
    return k ? k : reduce_n_;
  }

  bool uses_tmp(Handler h) const {
    const HandlerSet &set = in_data() ? kLineHandlers : kCounterHandlers;
    if (h == run_composed || h == run_local || h == run_pull || h == set.reduce_n_send) return true;
    return in_data() && (h == set.reduce_n || h == set.recv_send);
  }
  uint64_t tmp_bytes(const Lane &lane) const {
    uint64_t most = 0;
    for (size_t i = 0; i < lane.cold.size(); i++)
      if (uses_tmp(lane.plain[i].handler) || uses_tmp(lane.with_ops[i].handler))
        most = std::max(most, lane.cold[i].tmp_bytes * lane.cold[i].operands);
    return most;
  }

  Transport &transport_;
  Workspace &workspace_;
  Bound &b_;
  const Plan &plan_;
  const Selection &sel_;
  uint32_t nt_ = 0;
  tutti_kernel encode_ = nullptr, decode_ = nullptr, decode_nt_ = nullptr, reduce_n_ = nullptr;
  tutti_copy_fn copy_out_ = nullptr, copy_ = nullptr;
};

// Its own contribution to a group, then the result into OUT, and nothing else.
bool posts_once(const Bound &b) {
  if (!b.has_groups || b.groups != 1 || b.lanes.size() != 1 || b.lanes[0].cold.size() != 2) return false;
  const auto is = [](const tutti_step &s, uint32_t ops) {
    return (s.ops & ~uint32_t{TUTTI_STEP_PREOP | TUTTI_STEP_POSTOP}) == ops && s.repeat == 1;
  };
  const tutti_step &give = b.lanes[0].cold[0].step, &take = b.lanes[0].cold[1].step;
  return is(give, TUTTI_STEP_SRC | TUTTI_STEP_SEND) && give.send_count == 1 && give.src.buf == TUTTI_BUF_IN &&
         give.src.count == 1 && is(take, TUTTI_STEP_RECV | TUTTI_STEP_STORE) && take.recv_count == 1 &&
         b.lanes[0].send[0].ring->group && b.lanes[0].recv[0].ring->group && b.pieces_in == 1;
}

std::string summary_of(const Bound &b) {
  std::set<std::string_view> classes;
  for (const Lane &lane : b.lanes)
    for (const auto *links : {&lane.recv, &lane.send})
      for (const BoundLink &l : *links) classes.insert(l.ring->group ? "collnet" : class_name(l.ring->cold->link_class));
  std::string out;
  for (const std::string_view c : classes) {
    const bool fallback =
        c == "collnet" || (c == "net" && !b.net_lends && b.selection.proto.table->signal != TUTTI_SIGNAL_COUNTER);
    out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", c, fallback ? "simple" : b.selection.proto.table->name);
  }
  return fmt::format("{}; slots {} x {} bytes", out.empty() ? "no links" : out, b.selection.depth, b.selection.slot_bytes);
}

} // namespace

Result<std::unique_ptr<Bound>> bind_plan(Transport &transport, Workspace &workspace, std::shared_ptr<const Plan> plan,
                                         const Selection &selection, tutti_dtype dtype, tutti_redop op) {
  auto bound = std::make_unique<Bound>();
  bound->plan = std::move(plan);
  bound->selection = selection;
  bound->dtype = dtype;
  bound->op = op;
  if (!bound->plan) return fail(Code::invalid_argument, "no plan to bind");
  TUTTI_TRY(Binder(transport, workspace, *bound).run());
  bound->multi = bound->lanes.size() > 1;
  bound->ahead = posts_once(*bound);
  bound->quick = !bound->multi && !bound->step_major && !bound->has_net && !selection.groups;
  bound->summary = summary_of(*bound);
  bound->way = mix32(fnv1a(bound->way_text()));
  return bound;
}

} // namespace tutti
