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
  if (stream && std::find(it->streams.begin(), it->streams.end(), stream) == it->streams.end()) it->streams.push_back(stream);
}

void Group::add(std::function<Status()> task, std::function<void()> undo) {
  tasks_.push_back({std::move(task), std::move(undo)});
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

Status Group::run_tasks() {
  std::vector<Status> results(tasks_.size());
  if (tasks_.size() == 1)
    results[0] = tasks_[0].run();
  else {
    std::vector<std::thread> threads;
    for (size_t i = 0; i < tasks_.size(); i++) {
      try {
        threads.emplace_back([&, i] { results[i] = tasks_[i].run(); });
      } catch (const std::system_error &e) {
        results[i] =
            tutti::fail(Code::system, "group: cannot start a thread for call {} of {}: {}", i + 1, tasks_.size(), e.what());
      }
    }
    for (auto &t : threads) t.join();
  }
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
    }
  }
  for (Messages &m : messages_) {
    if (Status s = m.comm->submit_p2p(m.ops, m.streams); !s.ok()) {
      m.comm->note(s);
      if (first.ok()) first = std::move(s);
    }
  }
  return first;
}

} // namespace tutti
