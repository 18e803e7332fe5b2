// Split, finalize, abort, errors: the rest of a communicator's life.
#include "comm/communicator.h"
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

Status Communicator::init_split(const std::shared_ptr<Core> &parent, int color, int key) {
  const log::ScopedRank scope(parent->bootstrap->rank());
  auto child =
      parent->bootstrap->split(color, key, options_.config, Deadline::in(options_.config->duration("core.init_timeout")));
  if (!child.ok()) return std::move(child.status());
  if (!*child) return {};
  rank_ = (*child)->rank();
  nranks_ = (*child)->nranks();
  adopt(std::move(*child));
  return set_up();
}

Status Communicator::synchronize() {
  TUTTI_TRY(health());
  return drain();
}

Status Communicator::drain() {
  Engine &e = *core_->engine;
  if (e.completed() >= e.enqueued() && !e.failed()) return {};
  Status s = e.wait(e.enqueued());
  holds_.clear();
  return s;
}

Status Communicator::finalize() {
  if (state() == State::finalized) return {};
  const log::ScopedRank scope(rank_);
  TUTTI_TRY(drain());
  Bootstrap &b = *core_->bootstrap;
  TUTTI_TRY(b.barrier(Deadline::in(options_.config->duration("core.timeout")), "finalize"));
  b.expect_close();
  State ready = State::ready;
  if (!state_.compare_exchange_strong(ready, State::finalized) && ready == State::working)
    state_.store(State::finalized, std::memory_order_release);
  return {};
}

void Communicator::close() {
  state_.store(State::closed, std::memory_order_release);
  holds_.clear();
  if (!core_) return;
  forget_core(core_);
  if (core_->engine && core_->bootstrap) core_->bootstrap->on_failure({});
  std::lock_guard lock(mutex_);
  core_.reset();
}

void Communicator::adopt(std::unique_ptr<Bootstrap> bootstrap) {
  auto core = std::make_shared<Core>();
  core->bootstrap = std::move(bootstrap);
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
  std::shared_ptr<Core> core;
  {
    std::lock_guard lock(mutex_);
    core = core_;
  }
  if (!core) return;
  if (core->engine) core->engine->fail(error);
  if (core->bootstrap) core->bootstrap->report_failure(error);
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

Code Communicator::note(Status status) {
  if (status.ok()) return Code::ok;
  Error e = status.error();
  if (e.rank < 0) e.rank = rank_;
  {
    std::lock_guard lock(mutex_);
    last_error_ = e;
  }
  const bool engine_failed = core_ && core_->engine && core_->engine->failed();
  if ((!harmless(e.code) || engine_failed) && state() != State::failed && state() != State::closed) {
    log::warn(log::Subsys::coll, "{}", e.line());
    fail(e);
  }
  return e.code;
}

Error Communicator::last_error() const {
  std::lock_guard lock(mutex_);
  return last_error_.code == Code::ok ? end_ : last_error_;
}

Status Communicator::health() {
  switch (state()) {
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
  if (core_->engine->failed()) return core_->engine->error();
  return {};
}

Status Communicator::usable() {
  const State s = state();
  if (s == State::ready) return {};
  if (s == State::working)
    return tutti::fail(Code::invalid_usage, "the communicator is still being set up")
        .hint("poll tuttiCommGetAsyncError until it says tuttiSuccess");
  if (s == State::finalized) return tutti::fail(Code::invalid_usage, "the communicator is finalized: no operation may follow");
  return health();
}

void Communicator::background(std::function<Status(Communicator &)> work) {
  join_background();
  state_.store(State::working, std::memory_order_release);
  background_ = std::thread([self = shared_from_this(), work = std::move(work)] {
    const log::ScopedRank scope(self->rank_);
    Status s = work(*self);
    if (!s.ok()) {
      self->note(s);
      self->fail(s.error());
    }
    // An aborted communicator has no owner left who would close it.
    if (self->aborted_.load()) self->close();
  });
}

void Communicator::join_background() {
  if (!background_.joinable()) return;
  if (background_.get_id() == std::this_thread::get_id() || aborted_.load())
    background_.detach();
  else
    background_.join();
}

Engine::Usage Communicator::usage() const {
  Engine::Usage u;
  if (!core_) return u;
  if (core_->engine) u = core_->engine->usage();
  u.fds += core_->bootstrap->fds();
  return u;
}

} // namespace tutti
