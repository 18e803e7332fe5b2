// Split, finalize, abort, errors: the rest of a communicator's life.
#include "base/thread.h"
#include "comm/handle.h"
#include "comm/stream.h"
#include "log/log.h"
#include <algorithm>
#include <functional>

namespace tutti {
namespace {

// Errors of the caller alone: nothing was started, so the communicator goes on.
bool harmless(Code code) {
  return code == Code::invalid_argument || code == Code::invalid_usage || code == Code::in_progress || code == Code::ok;
}

} // namespace

Status Communicator::init_split(const std::shared_ptr<Core> &parent, int color, int key, bool *all_came) {
  const log::ScopedRank scope(parent->bootstrap->rank());
  auto child = parent->bootstrap->split(color, key, options_.config,
                                        Deadline::in(options_.config->duration("core.init_timeout")), all_came);
  if (!child.ok()) return std::move(child.status());
  if (!*child) return {};
  rank_ = (*child)->rank();
  nranks_ = (*child)->nranks();
  adopt(std::move(*child));
  core_->job = parent->job;
  return set_up();
}

Status Communicator::synchronize() {
  TUTTI_TRY(health());
  return drain();
}

Status Communicator::drain() {
  Engine &e = *core_->engine;
  if (e.completed() >= e.enqueued() && !e.failed()) return e.take_error(e.enqueued());
  Status s = e.wait(e.enqueued());
  holds_.clear();
  return s;
}

Status Communicator::finalize() {
  if (state() == State::finalized) return {};
  const log::ScopedRank scope(rank_);
  TUTTI_TRY(drain());
  Bootstrap &b = *core_->bootstrap;
  TUTTI_TRY(b.barrier(Deadline::in(options_.config->duration("core.finalize_timeout")), "finalize"));
  b.expect_close();
  State ready = State::ready;
  if (!state_.compare_exchange_strong(ready, State::finalized) && ready == State::working)
    state_.store(State::finalized, std::memory_order_release);
  core_->engine->note_event("finalized", "");
  write_map();
  return {};
}

void Communicator::close() {
  write_map();
  if (const auto flight = this->flight()) flight->end();
  state_.store(State::closed, std::memory_order_release);
  std::shared_ptr<Core> core;
  {
    std::lock_guard lock(mutex_);
    core = std::move(core_);
  }
  if (core) {
    forget_core(core);
    if (core->engine && core->bootstrap) core->bootstrap->on_failure({});
    core.reset();
  }
  holds_.clear(); // after the engine that looks at them
}

std::shared_ptr<Core> Communicator::shared_core() const {
  std::lock_guard lock(mutex_);
  return core_;
}

std::shared_ptr<ras::Flight> Communicator::flight() const {
  std::lock_guard lock(mutex_);
  return flight_;
}

std::shared_ptr<Engine> Communicator::shared_engine() const {
  std::lock_guard lock(mutex_);
  if (!core_) return nullptr;
  return {core_, core_->engine.get()}; // its bootstrap has to stay, too
}

void Communicator::quiesce() {
  if (const auto engine = shared_engine(); engine && engine->failed()) (void)engine->quiesce();
}

void Communicator::adopt(std::unique_ptr<Bootstrap> bootstrap) {
  auto core = std::make_shared<Core>();
  core->bootstrap = std::move(bootstrap);
  core->job = core->bootstrap->comm_id();
  std::lock_guard lock(mutex_);
  core_ = std::move(core);
}

void Communicator::abort() {
  aborted_.store(true);
  Error e;
  e.code = Code::remote;
  e.rank = rank_;
  e.peer = rank_;
  e.phase = "abort";
  e.message = fmt::format("rank {} aborted the communicator", rank_);
  join_stop_.stop(e);
  fail(e);
}

void Communicator::fail(const Error &error) {
  {
    std::lock_guard lock(mutex_);
    if (end_.code == Code::ok) end_ = error;
  }
  State s = state();
  while (s != State::closed && s != State::failed && !state_.compare_exchange_weak(s, State::failed)) {
  }
  const auto core = shared_core();
  if (const auto engine = shared_engine()) engine->fail(error);
  if (core) core->bootstrap->report_failure(error);
}

Status Communicator::not_splitting() const {
  if (!splitting.load(std::memory_order_acquire)) return {};
  return tutti::fail(Code::invalid_usage, "a split of this communicator still goes on")
      .hint("poll tuttiCommGetAsyncError of this communicator until it says tuttiSuccess");
}

Status Communicator::known() const {
  if (!from_split_ || state() != State::working) return {};
  return tutti::fail(Code::in_progress, "the communicator is still being set up");
}

Error Communicator::tell(const Status &status) {
  Error e = status.error();
  if (e.rank < 0) e.rank = rank_;
  std::lock_guard lock(mutex_);
  last_error_ = e;
  return e;
}

Code Communicator::note(const Status &status) {
  if (status.ok()) return Code::ok;
  const Error e = tell(status);
  const auto engine = shared_engine();
  const bool engine_failed = engine && engine->failed();
  if (((!harmless(e.code) && !e.survived) || engine_failed) && state() != State::failed && state() != State::closed) {
    log::warn(log::Subsys::coll, "{}", e.line());
    fail(engine_failed && harmless(e.code) ? engine->error().error() : e);
  }
  quiesce();                      // the caller may free its buffers now
  if (state() == State::failed) { // it may never come to destroy
    write_map();
    if (const auto flight = this->flight()) flight->settle();
  }
  return e.code;
}

Error Communicator::last_error() const {
  {
    std::lock_guard lock(mutex_);
    if (last_error_.code != Code::ok) return last_error_;
    if (end_.code != Code::ok) return end_;
  }
  // What others have told, while the owner has made no call that meets it.
  const auto engine = shared_engine();
  return engine && engine->failed() ? engine->error().error() : no_error();
}

Status Communicator::health_of(State state, const Engine *engine) const {
  switch (state) {
  case State::working:
    return tutti::fail(Code::in_progress, "the communicator is still being set up");
  case State::closed:
    return tutti::fail(Code::invalid_usage, "the communicator is closed");
  case State::failed: {
    std::lock_guard lock(mutex_);
    return Status(end_);
  }
  default:
    break;
  }
  if (engine && engine->failed()) return engine->error();
  return {};
}

Status Communicator::health() {
  const State s = state();
  return health_of(s, s == State::ready || s == State::finalized ? core_->engine.get() : nullptr);
}

Status Communicator::health_at_all() {
  const auto engine = shared_engine();
  return health_of(state(), engine.get());
}

Status Communicator::usable() {
  const State s = state();
  if (s == State::ready) return {};
  if (s == State::working)
    return tutti::fail(Code::invalid_usage, "the communicator is still being set up")
        .hint("poll tuttiCommGetAsyncError until it says tuttiSuccess");
  if (s == State::finalized) return tutti::fail(Code::invalid_usage, "the communicator is finalized: no operation may follow");
  return refused_after(health());
}

Status Communicator::background(std::function<Status(Communicator &)> work) {
  join_background();
  const State before = state_.exchange(State::working);
  auto thread = start_thread([self = shared_from_this(), work = std::move(work)] {
    const log::ScopedRank scope(self->rank_);
    Status s = guarded([&] { return work(*self); });
    if (!s.ok()) {
      self->note(s);
      self->fail(s.error());
    }
    // An aborted communicator has no owner left who would close it.
    if (self->aborted_.load()) self->close();
  });
  if (!thread.ok()) {
    state_.store(before, std::memory_order_release);
    return thread.status();
  }
  background_ = std::move(*thread);
  return {};
}

bool Communicator::join_background() {
  if (!background_.joinable()) return false;
  const bool leave = background_.get_id() == std::this_thread::get_id() || aborted_.load();
  if (leave)
    background_.detach();
  else
    background_.join();
  return leave;
}

Engine::Usage Communicator::usage() const {
  Engine::Usage u;
  if (!core_) return u;
  if (core_->engine) u = core_->engine->usage();
  u.fds += core_->bootstrap->fds();
  return u;
}

} // namespace tutti
