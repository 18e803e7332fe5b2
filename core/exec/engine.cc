#include "base/types.h"
#include "exec/bind.h"
#include "exec/driver.h"
#include "exec/engine_impl.h"
#include "log/log.h"
#include "transport/collnet_port.h"
#include "transport/net_port.h"
#include <algorithm>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <thread>

namespace tutti {
namespace {

constexpr uint32_t kPollsAlone = 2000;                    // a core of its own: a peer answers within microseconds
constexpr uint32_t kPollsShared = 4;                      // more ranks than cores: whoever runs must let the others run
constexpr auto kYieldTime = std::chrono::milliseconds(1); // then sleep
// A yield that takes this long has given the core to somebody who is none of our ranks, for a whole slice of the scheduler.
// Then naps are better for a while: who has slept is scheduled at once when it wakes.
constexpr auto kSlowYield = std::chrono::microseconds(200);
constexpr auto kAvoidYields = std::chrono::milliseconds(100);
constexpr auto kShortNap = std::chrono::microseconds(50);
constexpr auto kLongNap = std::chrono::milliseconds(1); // bounds a lost wake-up
constexpr auto kQuiesceTime = std::chrono::seconds(5);  // a thread that drives looks after each batch, if it gets a core
constexpr auto kLookEvery = std::chrono::milliseconds(1);

// What a rank tells the others for the engine, before the transport's part.
struct EngineInfo {
  cpu_set_t cores;
};

} // namespace

Result<std::shared_ptr<Engine>> Engine::create(Bootstrap &bootstrap, const Registry &, std::shared_ptr<const Config> config,
                                               Iface<tutti_net_v1> net) {
  auto engine = std::make_shared<EngineImpl>(bootstrap, std::move(config));
  TUTTI_TRY(engine->open(net));
  return std::shared_ptr<Engine>(std::move(engine));
}

EngineImpl::EngineImpl(Bootstrap &bootstrap, std::shared_ptr<const Config> config)
    : bootstrap_(bootstrap), config_(std::move(config)), timeout_(config_->duration("core.timeout")),
      comm_(bootstrap.comm_id()), rank_(bootstrap.rank()), progress_thread_(config_->flag("exec.progress_thread")),
      queue_(new Queued[kQueue]), recorder_(static_cast<uint32_t>(config_->number("record.operations")), bootstrap.nranks()) {}

Status EngineImpl::open(Iface<tutti_net_v1> net) {
  TUTTI_ASSIGN(transport, Transport::create(bootstrap_, config_, net, [this](const Error &e) { die(e); }));
  transport_ = std::move(transport);
  transport_->set_alone([this](const std::function<void()> &run) { return alone(run); });
  bootstrap_.set_handler(MsgKind::diagnose, [this](Message m) { on_diagnose(std::move(m)); });
  driver::add(this);
  return {};
}

EngineImpl::~EngineImpl() {
  driver::remove(this);
  if (!transport_) return;
  bootstrap_.set_handler(MsgKind::diagnose, nullptr);
  transport_->stop();
}

Bytes EngineImpl::local_info() const {
  EngineInfo info;
  CPU_ZERO(&info.cores);
  ::sched_getaffinity(0, sizeof info.cores, &info.cores);
  const auto bytes = std::as_bytes(std::span(&info, 1));
  Bytes out(bytes.begin(), bytes.end());
  const Bytes links = transport_->local_info();
  out.insert(out.end(), links.begin(), links.end());
  return out;
}

Status EngineImpl::set_peers(std::span<const Bytes> infos) {
  std::vector<Bytes> links;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  int here = 0;
  for (size_t r = 0; r < infos.size(); r++) {
    EngineInfo info;
    if (infos[r].size() < sizeof info)
      return tutti::fail(Code::remote, "rank {} sent {} bytes of engine information", r, infos[r].size());
    std::memcpy(&info, infos[r].data(), sizeof info);
    links.emplace_back(infos[r].begin() + sizeof info, infos[r].end());
    if (bootstrap_.peer(static_cast<int>(r)).host != bootstrap_.peer(rank_).host) continue;
    here++;
    CPU_OR(&cores, &cores, &info.cores);
  }
  crowded_ = here > CPU_COUNT(&cores);
  const auto spin = static_cast<uint32_t>(config_->number("exec.spin"));
  polls_ = spin ? spin : (crowded_ ? kPollsShared : kPollsAlone);
  yields_ = static_cast<uint32_t>(config_->number("exec.yield"));
  return transport_->set_peers(links);
}

Result<const Bound *> EngineImpl::bind(std::shared_ptr<const Plan> plan, const Selection &selection, tutti_dtype dtype,
                                       tutti_redop op) {
  auto bound = bind_plan(*transport_, workspace_, std::move(plan), selection, dtype, op);
  if (!bound.ok()) return failed() ? error() : std::move(bound.status()); // another thread may have ended it meanwhile
  bounds_.push_back(std::move(*bound));
  return static_cast<const Bound *>(bounds_.back().get());
}

void EngineImpl::release(const Bound *bound) {
  {
    std::lock_guard lock(mutex_);
    recorder_.forget(bound);
  }
  std::erase_if(bounds_, [&](const auto &b) { return b.get() == bound; });
}

Status EngineImpl::check_args(const Bound &b, const OpArgs &args) const {
  if (args.preop_factor && b.has_preop && !b.scale)
    return tutti::fail(Code::invalid_argument, "no kernel scales {}", dtype_name(b.dtype));
  if (args.postop_divisor && b.has_postop && !b.divide)
    return tutti::fail(Code::invalid_argument, "no kernel divides {}", dtype_name(b.dtype));
  return {};
}

// The caller's tables and tag may go once enqueue() has returned.
void EngineImpl::copy_tables(Queued &q) {
  BufferShape &in = q.args.in_shape, &out = q.args.out_shape;
  if (!in.bytes && !in.offsets && !out.bytes && !out.offsets && !q.args.in_marks && !q.args.out_marks && !q.args.call.tag)
      [[likely]]
    return;
  if (q.args.call.tag) {
    q.tag.set(q.args.call.tag);
    q.args.call.tag = q.tag.text.data();
  }
  const std::pair<const uint64_t **, uint32_t> tables[] = {{&in.bytes, in.blocks},        {&in.offsets, in.blocks},
                                                           {&out.bytes, out.blocks},      {&out.offsets, out.blocks},
                                                           {&q.args.in_marks, in.blocks}, {&q.args.out_marks, out.blocks}};
  q.tables.clear();
  for (const auto &[table, n] : tables)
    if (*table) q.tables.insert(q.tables.end(), *table, *table + n);
  const uint64_t *at = q.tables.data();
  for (const auto &[table, n] : tables)
    if (*table) *table = std::exchange(at, at + n);
}

Result<uint64_t> EngineImpl::enqueue(const Bound *bound, const OpArgs &args, std::span<const Dependency> after) {
  if (failed()) return stopped();
  TUTTI_TRY(check_args(*bound, args));
  const uint64_t seq = enqueued_ + 1;
  if (seq > kQueue && completed() < seq - kQueue) TUTTI_TRY(reach(seq - kQueue));
  const bool first = completed() == enqueued_;
  if (first) queue_start_ = seq; // nobody reads the queue: its first entry is the one in the cache
  Queued &q = queued(seq);
  q.bound = const_cast<Bound *>(bound); // the engine's own; callers only hold it
  q.args = args;
  q.after.assign(after.begin(), after.end());
  q.posted = false;
  copy_tables(q);
  if (args.preop_factor) {
    std::memcpy(&q.factor, args.preop_factor, dtype_bytes(bound->dtype));
    q.args.preop_factor = &q.factor;
  }
  // Nothing holds it up, and if nobody waits for it the progress thread soon looks: its start is time enough.
  const bool at_once = first && progress_thread_ && after.empty();
  recorder_.enqueue(seq, args, bound, at_once ? 0 : ticks::now());
  count_call(args.call.coll);
  enqueued_ = seq;
  tail_.store(seq, std::memory_order_release);
  if (progress_thread_) driver::work_arrived();
  return seq;
}

Status EngineImpl::take_error(uint64_t seq) {
  if (clean(seq)) [[likely]]
    return {};
  std::lock_guard lock(mutex_);
  if (op_errors_.empty() || op_errors_.front().first > seq) return {};
  Status s = std::move(op_errors_.front().second);
  op_errors_.pop_front();
  first_error_.store(op_errors_.empty() ? ~0ull : op_errors_.front().first, std::memory_order_release);
  return s;
}

Status EngineImpl::reach(uint64_t seq) {
  if (completed() >= seq) return {};
  const auto round = [&] {
    if (!own()) return false;
    const bool moved = drive_round(polls_);
    disown();
    return moved;
  };
  bool moved = round(); // usually one look is enough, and a waiter need not be announced
  if (completed() >= seq) [[likely]] {
    leave_rest();
    return {};
  }
  waiters_.fetch_add(1, std::memory_order_relaxed);
  Idle patience;
  while (completed() < seq && !failed()) {
    if (moved)
      patience = {};
    else
      idle(patience);
    moved = round();
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  if (completed() < seq) return stopped();
  leave_rest();
  return {};
}

// What is still to be done has no waiter any more.
void EngineImpl::leave_rest() {
  if (progress_thread_ && completed() < tail_.load(std::memory_order_relaxed)) driver::work_arrived();
}

Transport::Turn EngineImpl::alone(const std::function<void()> &run) {
  using Turn = Transport::Turn;
  const Deadline patience = Deadline::in(kQuiesceTime);
  alone_wanted_.fetch_add(1, std::memory_order_relaxed);
  Turn turn = Turn::busy;
  while (turn == Turn::busy && !failed() && !patience.expired()) {
    if (!take_over()) {
      ::sched_yield();
      continue;
    }
    run();
    disown();
    turn = Turn::ran;
  }
  alone_wanted_.fetch_sub(1, std::memory_order_relaxed);
  if (turn == Turn::ran) return turn;
  if (failed()) return quiesce() ? Turn::ended : Turn::busy; // which says why
  log::warn(log::Subsys::coll, "a thread still runs {} after {} s", activity(),
            std::chrono::duration_cast<std::chrono::seconds>(kQuiesceTime).count());
  return turn;
}

bool EngineImpl::quiesce() {
  const Deadline patience = Deadline::in(kQuiesceTime);
  if (!quiesced_.load(std::memory_order_acquire)) transport_->revoke(); // first: the owner may not let go in time
  while (!quiesced_.load(std::memory_order_acquire)) {
    if (own()) { // never given back
      if (active_ && active_->store_fence) store_fence();
      active_ = nullptr;
      transport_->revoke(); // what was connected meanwhile
      for (const int peer : transport_->still_reading(patience))
        log::warn(log::Subsys::coll, "rank {} of this process still reads the buffers of {}", peer, activity());
      if (transport_->has_net()) transport_->net()->close();
      if (CollnetPort *groups = transport_->collnet()) groups->close();
      quiesced_.store(true, std::memory_order_release);
      return true;
    }
    if (patience.expired()) {
      log::warn(log::Subsys::coll, "a thread still runs {} after {} s, its buffers may be in use", activity(),
                std::chrono::duration_cast<std::chrono::seconds>(kQuiesceTime).count());
      return false;
    }
    std::this_thread::sleep_for(kShortNap);
  }
  return true;
}

Status EngineImpl::stopped() {
  (void)quiesce(); // says so when it cannot be
  return error();
}

bool EngineImpl::progress() {
  if (completed() >= tail_.load(std::memory_order_acquire) || failed() || !own()) return false;
  const bool moved = drive_round(kPollsShared);
  disown();
  return moved;
}

// Between two rounds without progress: yield, now and then drive others, sleep when it takes long.
void EngineImpl::idle(Idle &state) {
  state.rounds++;
  if (state.rounds % 4 == 0 && driver::drive_another(this)) return;
  const auto now = Clock::now();
  if (state.rounds == 1) state.since = now;
  const bool keep_awake =
      yields_ ? state.rounds < yields_ : now - state.since < kYieldTime && now >= nap_until_.load(std::memory_order_relaxed);
  if (keep_awake) {
    ::sched_yield();
    if (!crowded_ && Clock::now() - now > kSlowYield) nap_until_.store(now + kAvoidYields, std::memory_order_relaxed);
    return;
  }
  const Nanos nap = now - state.since < 20 * kYieldTime ? Nanos(kShortNap) : Nanos(kLongNap);
  std::array<int, 2> fds{-1, -1};
  if ((transport_->has_net() || transport_->collnet()) && own()) {
    if (active_ && active_->has_net) fds[0] = transport_->net()->wait_fd();
    if (active_ && active_->has_groups) fds[1] = transport_->collnet()->wait_fd();
    disown();
  }
  if (fds[0] == NetPort::kEventsWaiting || fds[1] == NetPort::kEventsWaiting) return;
  if (fds[0] < 0 && fds[1] < 0) return std::this_thread::sleep_for(nap);
  pollfd ready[] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}}; // a negative one is passed over
  const timespec limit{0, nap.count()};
  ::ppoll(ready, 2, &limit, nullptr);
}

void EngineImpl::on_blocked() {
  if (unstamped_) look_at_clock();
  const auto now = Clock::now();
  if (blocked_since_ == Clock::time_point{}) {
    blocked_since_ = looked_ = counted_ = now;
    if (!questions_.empty()) forget_questions();
    return;
  }
  blocked_.store(blocked_.load(std::memory_order_relaxed) + (now - counted_), std::memory_order_relaxed);
  counted_ = now;
  if (now - looked_ < kLookEvery) return;
  looked_ = now;
  if (loss_.load(std::memory_order_acquire) == Loss::halted) return await_agreement(now);
  note_waiting();
  look_for_disagreement();
  if (!failed()) inquire(now);
  if (!failed()) expire(now - blocked_since_);
}

void EngineImpl::die(Error error) {
  if (failed()) return;
  error.rank = rank_;
  if (error.phase.empty()) error.phase = "operation";
  fail(error);
  bootstrap_.report_failure(error);
}

void EngineImpl::fail(const Error &error) {
  {
    std::lock_guard lock(mutex_);
    if (failed()) return;
    error_ = Status(error);
    failed_.store(true, std::memory_order_release);
  }
  try {
    note_event("failed", error.line());
  } catch (const std::bad_alloc &) { // others must hear of it all the same
  }
}

Status EngineImpl::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

} // namespace tutti
