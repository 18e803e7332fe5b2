#include "comm/group.h"
#include "base/thread.h"
#include "comm/handle.h"
#include <algorithm>
#include <functional>
#include <thread>

namespace tutti {

Group &Group::of_this_thread() {
  // Every call asks, so no function call: little enough for what loaders keep for libraries opened later.
  [[gnu::tls_model("initial-exec")]] thread_local Group group;
  return group;
}

void Group::add(tuttiComm *comm, const Op &op, std::unique_ptr<BlockTables> tables, tuttiStream_t stream) {
  collectives_.push_back({{comm, comm->c}, op, std::move(tables), kept_asked(), stream});
  if (collectives_.back().tables) collectives_.back().op.tables = collectives_.back().tables.get();
}

void Group::add(tuttiComm *comm, const P2pOp &op, tuttiStream_t stream) {
  auto it = std::find_if(messages_.begin(), messages_.end(), [&](const Messages &m) { return m.target.comm == comm->c; });
  if (it == messages_.end()) {
    messages_.emplace_back();
    it = messages_.end() - 1;
    it->target = {comm, comm->c};
  }
  it->ops.push_back(op);
  if (!it->asked) it->asked = kept_asked();
  it->own_stream |= stream == nullptr;
  if (!stream) return;
  const auto at = std::lower_bound(it->streams.begin(), it->streams.end(), stream, std::less<>());
  if (at == it->streams.end() || *at != stream) it->streams.insert(at, stream);
}

void Group::add(std::function<Status()> task, std::function<void()> undo, const void *serial) {
  tasks_.push_back({std::move(task), std::move(undo), serial});
}

Status Group::end() {
  if (depth_ == 0) return tutti::fail(Code::invalid_usage, "tuttiGroupEnd without tuttiGroupStart on this thread");
  if (--depth_ > 0) return failure_;
  busy_ = !asked_.empty();
  if (!failure_.ok())
    for (Task &t : tasks_) t.undo();
  Status result = std::move(failure_);
  failure_ = Status();
  if (result.ok()) result = guarded([&] { return run_tasks(); });
  if (result.ok() || result.code() == Code::in_progress)
    if (Status s = guarded([&] { return issue(); }); !s.ok()) result = std::move(s);
  tasks_.clear();
  collectives_.clear();
  messages_.clear();
  return result;
}

std::vector<std::vector<size_t>> Group::task_chains() const {
  std::vector<std::vector<size_t>> chains;
  for (size_t i = 0; i < tasks_.size(); i++) {
    const void *serial = tasks_[i].serial;
    const auto same = std::find_if(chains.begin(), chains.end(),
                                   [&](const auto &chain) { return serial && tasks_[chain.front()].serial == serial; });
    if (same == chains.end())
      chains.push_back({i});
    else
      same->push_back(i);
  }
  return chains;
}

Status Group::run_tasks() {
  std::vector<Status> results(tasks_.size());
  const auto chains = task_chains();
  const auto run = [&](const std::vector<size_t> &chain) {
    for (size_t i : chain) results[i] = guarded(tasks_[i].run);
  };
  std::vector<std::thread> threads;
  for (size_t c = 1; c < chains.size(); c++) {
    auto thread = start_thread([&, c] { run(chains[c]); });
    if (thread.ok())
      threads.push_back(std::move(*thread));
    else
      for (size_t i : chains[c])
        results[i] =
            tutti::fail(Code::system, "group, call {} of {}: {}", i + 1, tasks_.size(), thread.status().error().message);
  }
  if (!chains.empty()) run(chains.front());
  for (auto &t : threads) t.join();
  Status out;
  for (Status &s : results)
    if (!s.ok() && (out.ok() || out.code() == Code::in_progress)) out = std::move(s);
  return out;
}

// One thread may have several ranks here. Calls of one that has no room must not keep those of another from being issued: the
// room may come only when both are.
Status Group::issue() {
  Status first;
  while (!issue_some(&first)) {
    // All that can be issued is. The oldest operation here has its counterparts in the queues of the others.
    const Communicator *full = held_up_.comms.front();
    const auto engine = full->shared_engine();
    if (engine) (void)engine->reach(engine->enqueued() - Engine::kQueue / 2); // an error is told by the call that waits for it
  }
  return first;
}

bool Group::must_wait(const Target &target, std::span<const tuttiStream_t> streams) {
  const auto has = [](const auto &all, auto one) { return std::find(all.begin(), all.end(), one) != all.end(); };
  const bool behind = has(held_up_.comms, target.comm.get()) ||
                      std::any_of(streams.begin(), streams.end(), [&](auto s) { return has(held_up_.streams, s); });
  if (!behind && target.comm->has_room()) [[likely]]
    return false;
  held_up_.comms.push_back(target.comm.get());
  held_up_.streams.insert(held_up_.streams.end(), streams.begin(), streams.end());
  return true;
}

template <class Call, class Submit>
bool Group::issue_one(Call &call, std::span<const tuttiStream_t> streams, bool own_stream, Status *first, Submit &&submit) {
  const auto [handle, comm] = call.target;
  Status s;
  {
    const Inside inside(*handle);
    if (live(handle) && handle->c == comm) {
      if (must_wait(call.target, streams)) return false;
      s = Communicator::refused_after(submit(*comm));
      if (!s.ok())
        comm->note(s);
      else if (own_stream)
        own_streams_.note(*comm);
      call.issued = true;
    }
  }
  if (!std::exchange(call.issued, true)) {
    (void)check_handle(handle); // until an abort is over
    s = tutti::fail(Code::invalid_argument, "the communicator was destroyed before the group ended");
  }
  if (!s.ok() && first->ok()) *first = std::move(s);
  return true;
}

bool Group::issue_some(Status *first) {
  held_up_.comms.clear();
  held_up_.streams.clear();
  bool all = true;
  for (Collective &c : collectives_) {
    if (c.issued) continue;
    const std::span<const tuttiStream_t> streams(&c.stream, c.stream ? 1 : 0);
    all &= issue_one(c, streams, !c.stream, first, [&](Communicator &comm) {
      return c.asked ? comm.submit_as_asked(c.op, *c.asked, c.stream) : comm.submit(c.op, c.stream);
    });
  }
  for (Messages &m : messages_) {
    if (m.issued) continue;
    all &= issue_one(m, m.streams, m.own_stream, first,
                     [&](Communicator &comm) { return comm.submit_p2p(m.ops, m.streams, m.asked.get()); });
  }
  return all;
}

} // namespace tutti
