#include "comm/group.h"
#include <algorithm>
#include <system_error>
#include <thread>

namespace tutti {

Group &Group::of_this_thread() {
  thread_local Group group;
  return group;
}

void Group::add(std::shared_ptr<Communicator> comm, const Op &op, std::unique_ptr<BlockTables> tables, tuttiStream_t stream) {
  collectives_.push_back({std::move(comm), op, std::move(tables), stream});
  if (collectives_.back().tables) collectives_.back().op.tables = collectives_.back().tables.get();
}

void Group::add(std::shared_ptr<Communicator> comm, const P2pOp &op, tuttiStream_t stream) {
  auto it = std::find_if(messages_.begin(), messages_.end(), [&](const Messages &m) { return m.comm == comm; });
  if (it == messages_.end()) {
    messages_.emplace_back();
    it = messages_.end() - 1;
    it->comm = std::move(comm);
  }
  it->ops.push_back(op);
  it->own_stream |= stream == nullptr;
  if (stream && std::find(it->streams.begin(), it->streams.end(), stream) == it->streams.end()) it->streams.push_back(stream);
}

void Group::add(std::function<Status()> task, std::function<void()> undo, const void *serial) {
  tasks_.push_back({std::move(task), std::move(undo), serial});
}

Status Group::end() {
  if (depth_ == 0) return tutti::fail(Code::invalid_usage, "tuttiGroupEnd without tuttiGroupStart on this thread");
  if (--depth_ > 0) return failure_;
  if (!failure_.ok())
    for (Task &t : tasks_) t.undo();
  Status result = std::move(failure_);
  failure_ = Status();
  if (result.ok()) result = run_tasks();
  if (result.ok() || result.code() == Code::in_progress)
    if (Status s = issue(); !s.ok()) result = s;
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
    for (size_t i : chain) results[i] = tasks_[i].run();
  };
  std::vector<std::thread> threads;
  for (size_t c = 1; c < chains.size(); c++) {
    try {
      threads.emplace_back([&, c] { run(chains[c]); });
    } catch (const std::system_error &e) {
      for (size_t i : chains[c])
        results[i] =
            tutti::fail(Code::system, "group: cannot start a thread for call {} of {}: {}", i + 1, tasks_.size(), e.what());
    }
  }
  if (!chains.empty()) run(chains.front());
  for (auto &t : threads) t.join();
  Status out;
  for (Status &s : results)
    if (!s.ok() && (out.ok() || out.code() == Code::in_progress)) out = std::move(s);
  return out;
}

Status Group::issue() {
  Status first;
  for (Collective &c : collectives_) {
    if (Status s = c.comm->submit(c.op, c.stream); !s.ok()) {
      c.comm->note(s);
      if (first.ok()) first = std::move(s);
    } else if (!c.stream)
      own_streams_.note(*c.comm);
  }
  for (Messages &m : messages_) {
    if (Status s = m.comm->submit_p2p(m.ops, m.streams); !s.ok()) {
      m.comm->note(s);
      if (first.ok()) first = std::move(s);
    } else if (m.own_stream)
      own_streams_.note(*m.comm);
  }
  return first;
}

} // namespace tutti
