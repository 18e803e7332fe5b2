// tutti/plugins/collnet-aggd/membership.cc: a member's side of a group.
#include "context.h"

namespace tutti::aggd {

constexpr size_t share = 256 << 10;      // bytes that a shard moves each way before the next has its turn
constexpr milliseconds rumour_wait{500}; // longer than two ticks: another daemon's silence is then found by oneself

namespace {

Token token_of(const std::vector<Ticket> &tickets, uint32_t shard) {
  std::vector<uint8_t> bytes(tickets.size() * sizeof(Nonce) + 8);
  for (size_t i = 0; i < tickets.size(); i++)
    std::memcpy(bytes.data() + i * sizeof(Nonce), tickets[i].nonce.data(), sizeof(Nonce));
  bytes[bytes.size() - 8] = static_cast<uint8_t>(shard);
  Token token;
  for (uint8_t half = 0; half < 2; half++) {
    bytes.back() = half;
    const uint64_t h = hash64(bytes);
    std::memcpy(token.data() + half * 8, &h, 8);
  }
  return token;
}

tutti_status status_of(Reason reason) {
  switch (reason) {
  case Reason::none:
    return TUTTI_OK;
  case Reason::unsupported:
  case Reason::version:
    return TUTTI_ERR_UNSUPPORTED;
  case Reason::no_resource:
    return TUTTI_ERR_NO_MEMORY;
  case Reason::auth:
    return TUTTI_ERR_DENIED;
  case Reason::mismatch:
    return TUTTI_ERR_INVALID;
  case Reason::timeout:
    return TUTTI_ERR_TIMEOUT;
  default:
    return TUTTI_ERR_REMOTE;
  }
}

} // namespace

Membership::Membership(Context &ctx, const std::vector<Ticket> &tickets, int32_t member, const tutti_collnet_config &config)
    : NetObject(ctx.host()), ctx_(ctx), members_(static_cast<uint32_t>(tickets.size())), member_(member),
      deadline_(Clock::now() + milliseconds(config.deadline_ms)), elsewhere_(members_) {
  const Options &o = ctx.options();
  if (config.deadline_ms == 0) plugin::fail(TUTTI_ERR_INVALID, "deadline_ms of a group is 0");
  Join join;
  join.job = config.job_id;
  join.members = members_;
  join.member = member;
  for (uint32_t m = 0; m < members_; m++) tickets[m].servers == ctx.servers() ? void(join.local++) : elsewhere_.add(m);
  const uint64_t window = config.window_bytes ? config.window_bytes / ctx.places().size() : o.window;
  join.window = std::bit_floor(static_cast<uint32_t>(std::clamp<uint64_t>(window, least_window, most_window)));
  join.outstanding = config.outstanding ? std::min(config.outstanding, 4096u) : o.outstanding;
  join.chunk = o.chunk;
  join.chunk_min = o.least_chunk;
  join.progress_ms = config.progress_ms ? std::min(config.progress_ms, o.progress_ms) : o.progress_ms;
  join.deadline_ms = config.deadline_ms;
  const Secret secret{ctx.key(), o.key_name()};
  for (uint32_t i = 0; i < ctx.places().size(); i++) {
    join.token = token_of(tickets, i);
    shards.push_back(std::make_unique<Shard>(*this, ctx.places()[i], secret, join, i,
                                             static_cast<uint32_t>(ctx.places().size()), Tuning{join.window, o.silence},
                                             o.connect, milliseconds(config.deadline_ms)));
  }
  ctx.add(this);
}

Membership::~Membership() {
  ctx_.remove(this);
  const bool midway = busy();
  for (auto &s : shards) {
    const Fault left{Reason::member_lost, Field::none, member_, 0, 0, "it ended the group in the middle of an operation"};
    ctx_.see_off(s->leave(midway ? &left : nullptr));
  }
  finish(TUTTI_ERR_CANCELLED);
}

void Membership::finish(tutti_status status) {
  for (; done_ < posted_; done_++) ctx_.complete(queue_[done_ % queue_.size()].cookie, status);
}

void Membership::failed(Fault fault) {
  if (fault.reason == Reason::timeout && !started_ && elsewhere_.count() > 0)
    fault.text += "; other servers than here are named by member " + elsewhere_.list(true) +
                  ", which is right where all have one parent above them";
  if (fault.hearsay && shards.size() > 1) {
    if (rumour_.reason == Reason::none) rumour_ = std::move(fault), rumour_until_ = Clock::now() + rumour_wait;
    return;
  }
  const bool explains = fault_.reason == Reason::member_lost && fault.reason == Reason::aggregator_lost; // members leave then
  if (fault_.reason == Reason::none || explains) fault_ = std::move(fault);
}

// The first to notice is not always the one who knows best.
void Membership::look_around() {
  if (fault_.reason != Reason::none)
    for (auto &s : shards) s->readable = true, s->pump(share);
  if (fault_.reason == Reason::none && rumour_.reason != Reason::none && Clock::now() >= rumour_until_) fault_ = rumour_;
}

// Out of the shards' own calls: they are closed here.
void Membership::close_failed() {
  if (closing_) return;
  look_around();
  if (fault_.reason == Reason::none) return;
  closing_ = true;
  for (auto &s : shards) ctx_.see_off(s->leave(&fault_));
  host().set_error(status_of(fault_.reason), fault_.text.c_str());
  finish(status_of(fault_.reason));
}

void Membership::progress() {
  if (closing_) return;
  for (size_t k = 0; k < shards.size(); k++) {
    const size_t i = (k + static_cast<size_t>(member_)) % shards.size(); // members begin at different daemons
    Shard &s = *shards[i];
    s.pump(share);
    if (s.fd() && !s.fd().watched()) ctx_.watch(s.fd(), &s);
  }
  close_failed();
}

bool Membership::may_move() {
  if (closing_) return false;
  return std::any_of(shards.begin(), shards.end(),
                     [](const auto &s) { return !s->started() || (s->readable) || (s->writable && s->wants_to_write()); });
}

void Membership::tick(Clock::time_point now) {
  if (closing_) return;
  for (auto &s : shards) s->tick(now);
  look_for_stop(now);
  close_failed();
}

// Milliseconds until a daemon has named who holds the others up, or is given up itself.
uint32_t Membership::patience() const {
  uint32_t granted = 0;
  for (const auto &s : shards)
    granted = std::max(granted, s->grant().progress_ms + s->start().all.depth * (500 + s->grant().progress_ms / 8));
  return granted + 1500;
}

// Members that hold the others up are the daemons' to name; this finds daemons that do not even do that.
void Membership::look_for_stop(Clock::time_point now) {
  if (!busy() || results_ != seen_ || moved_ == Clock::time_point{}) {
    moved_ = now;
    seen_ = results_;
    return;
  }
  if (now - moved_ < milliseconds(patience())) return;
  std::string names;
  for (const auto &s : shards)
    if (s->waits()) names += (names.empty() ? "" : ", ") + s->name();
  failed({Reason::aggregator_lost, Field::none, -1, 0, 0,
          names + " gave neither a result nor a reason for " +
              std::to_string(std::chrono::duration_cast<milliseconds>(now - moved_).count()) +
              " ms: it is stopped, or overloaded"});
}

void Membership::rethrow() const {
  plugin::fail(status_of(fault_.reason), fault_.text);
}

bool Membership::ready(tutti_collnet_caps &out) {
  if (fault_.reason == Reason::none) progress();
  if (fault_.reason == Reason::none && !started_) {
    const bool all = std::all_of(shards.begin(), shards.end(), [](const auto &s) { return s->started(); });
    if (all)
      start();
    else if (Clock::now() >= deadline_ + milliseconds(500)) { // the daemons, who know who is missing, have the first word
      std::string waits;
      for (const auto &s : shards)
        if (!s->started()) waits += (waits.empty() ? "" : ", ") + s->name();
      failed({Reason::timeout, Field::none, -1, members_, 0,
              "the group of " + std::to_string(members_) + " members is not complete in time; waiting for " + waits});
      close_failed();
    }
  }
  if (fault_.reason != Reason::none) rethrow();
  if (started_) fill(out);
  return started_;
}

void Membership::start() {
  const Options &o = ctx_.options();
  outstanding_ = o.outstanding;
  chunk_ = o.chunk;
  for (size_t i = 0; i < shards.size(); i++) {
    const Cover &all = shards[i]->start().all;
    outstanding_ = i == 0 ? all.outstanding : std::min(outstanding_, all.outstanding);
    least_chunk_ = std::max(least_chunk_, all.chunk_min);
    chunk_ = i == 0 ? all.chunk : std::min(chunk_, all.chunk);
  }
  queue_.resize(std::min(outstanding_, 4096u));
  outstanding_ = static_cast<uint32_t>(queue_.size());
  started_ = true;
}

void Membership::fill(tutti_collnet_caps &out) const {
  out.colls = 1u << TUTTI_COLL_ALL_REDUCE | 1u << TUTTI_COLL_REDUCE | 1u << TUTTI_COLL_BROADCAST | 1u << TUTTI_COLL_BARRIER;
  out.dtype_ops = (uint64_t{1} << (TUTTI_DT_COUNT * 4)) - 1;
  out.max_bytes = most_post;
  out.max_outstanding = outstanding_;
  out.alignment = 1;
  out.max_members = most_members;
  out.mem_kinds = TUTTI_MEM_HOST;
  out.accumulate = TUTTI_COLLNET_ACC_FLOAT32;
  out.repeat = TUTTI_COLLNET_REPEAT_SIZE;
  out.flags = TUTTI_COLLNET_IN_PLACE | TUTTI_COLLNET_AVERAGES;
  out.progress_ms = patience();
  constexpr uint64_t arithmetic = 1; // goes up with a daemon that gives other bits for the same operands in the same order
  std::array<uint64_t, 2> order{members_ | arithmetic << 32, shards[0]->start().all.shape};
  bool known = true;
  for (const auto &s : shards) {
    const Cover &all = s->start().all;
    out.window_bytes += all.window;
    out.tree_depth = std::max(out.tree_depth, all.depth);
    out.aggregators += all.daemons;
    out.bandwidth_mbps += all.mbps * members_;
    known = known && all.mbps != 0;
    if (all.shape != shards[0]->start().all.shape) { // which tree an element goes through depends on where it stands
      out.repeat = TUTTI_COLLNET_REPEAT_RUN;
      order[1] = hash64({reinterpret_cast<const uint8_t *>(&all.shape), 8}) ^ (order[1] << 1 | order[1] >> 63);
    }
  }
  if (!known) out.bandwidth_mbps = 0;
  out.order_id = hash64({reinterpret_cast<const uint8_t *>(order.data()), sizeof order});
}

void Membership::why(tutti_collnet_why &out) const {
  out.reason = static_cast<uint32_t>(fault_.reason);
  out.field = static_cast<uint32_t>(fault_.field);
  out.member = fault_.member;
  out.limit = fault_.limit;
  out.in_use = fault_.in_use;
  std::strncpy(out.text, fault_.text.c_str(), sizeof out.text - 1);
}

std::string Membership::describe() const {
  std::string out = "member " + std::to_string(member_) + " of " + std::to_string(members_) + " at ";
  for (size_t i = 0; i < shards.size(); i++) out += (i ? ", " : "") + shards[i]->name();
  return out;
}

// ---- posts ---------------------------------------------------------------------------------------------------------------
void Membership::check(const tutti_collnet_op &op) const {
  const bool rooted = op.coll == TUTTI_COLL_REDUCE || op.coll == TUTTI_COLL_BROADCAST;
  if (!rooted && op.coll != TUTTI_COLL_ALL_REDUCE && op.coll != TUTTI_COLL_BARRIER)
    plugin::unsupported("daemons serve no collective ", op.coll);
  const uint32_t element = op.dtype < TUTTI_DT_COUNT ? element_bytes(static_cast<uint8_t>(op.dtype)) : 0;
  if (element == 0 || op.op >= TUTTI_RED_COUNT)
    plugin::unsupported("daemons know no element type ", op.dtype, " or no reduction ", op.op);
  if (op.bytes > most_post) plugin::unsupported(op.bytes, " bytes in one post: at most ", most_post);
  if (op.bytes % element) plugin::fail(TUTTI_ERR_INVALID, op.bytes, " bytes are no whole elements of ", element);
  if (op.coll == TUTTI_COLL_BARRIER && op.bytes != 0) plugin::fail(TUTTI_ERR_INVALID, "a barrier of ", op.bytes, " bytes");
  if (rooted && (op.root < 0 || op.root >= static_cast<int32_t>(members_)))
    plugin::fail(TUTTI_ERR_INVALID, "root ", op.root, " of ", members_);
  if (op.flags & ~uint32_t{TUTTI_COLLNET_AVERAGE}) plugin::unsupported("flags ", op.flags);
  if ((op.flags & TUTTI_COLLNET_AVERAGE) && (op.op != TUTTI_RED_SUM || op.coll == TUTTI_COLL_BROADCAST))
    plugin::fail(TUTTI_ERR_INVALID, "an average of what is no sum");
}

tutti_status Membership::post(const tutti_collnet_op &op, uint64_t cookie) {
  if (fault_.reason != Reason::none) rethrow();
  if (!started_) plugin::fail(TUTTI_ERR_INVALID, "the group is not ready");
  check(op);
  if (posted_ - done_ == outstanding_) return TUTTI_AGAIN;
  Post &p = queue_[posted_ % queue_.size()];
  const bool root = op.root == member_;
  p = {};
  p.header = chunk_header(static_cast<uint8_t>(op.coll), static_cast<uint8_t>(op.dtype), static_cast<uint8_t>(op.op),
                          static_cast<uint8_t>(op.flags & TUTTI_COLLNET_AVERAGE ? flag_average : 0));
  p.header.seq = static_cast<uint32_t>(posted_);
  p.header.total = static_cast<uint32_t>(op.bytes);
  p.header.root = op.coll == TUTTI_COLL_REDUCE || op.coll == TUTTI_COLL_BROADCAST ? op.root : -1;
  p.header.tag = static_cast<uint32_t>(op.tag ^ op.tag >> 32);
  p.send = static_cast<const uint8_t *>(op.send.addr);
  p.recv = static_cast<uint8_t *>(op.recv.addr);
  p.gives = op.coll != TUTTI_COLL_BROADCAST || root;
  p.keeps = op.coll == TUTTI_COLL_BROADCAST && root;
  p.gets = op.coll == TUTTI_COLL_REDUCE ? root : !p.keeps;
  const uint32_t total = p.header.total, least = std::min(least_chunk_, chunk_);
  p.chunk = std::max(64u, std::clamp(total / 16, least, chunk_) / 64 * 64);
  p.chunks = std::max(1u, (total + p.chunk - 1) / p.chunk);
  p.left = p.chunks;
  p.first = chunks_;
  p.cookie = cookie;
  if (total > 0 && ((p.gives && !p.send) || (p.gets && !p.recv)))
    plugin::fail(TUTTI_ERR_INVALID, "a buffer of ", total, " bytes is NULL");
  chunks_ += p.chunks;
  posted_++;
  progress();
  return TUTTI_OK;
}

void Membership::chunk_done(uint64_t number) {
  results_++;
  queue_[number % queue_.size()].left--;
  while (done_ < posted_ && queue_[done_ % queue_.size()].left == 0) { // reported in the order of the posts
    const Post &p = queue_[done_ % queue_.size()];
    if (p.keeps && p.recv && p.recv != p.send) std::memcpy(p.recv, p.send, p.header.total);
    ctx_.complete(p.cookie, TUTTI_OK);
    done_++;
  }
}

} // namespace tutti::aggd
