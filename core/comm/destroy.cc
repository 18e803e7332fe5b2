#include "comm/destroy.h"
#include "base/thread.h"
#include "comm/handle.h"
#include "log/log.h"
#include <algorithm>
#include <map>

namespace tutti {
namespace {

// How long an abort waits for calls of other threads to notice; those that do not are freed by a later call.
constexpr Nanos kAbortPatience = std::chrono::milliseconds(500);

// The ranks of one communicator in this process, on their way out.
class LocalRanks {
public:
  static LocalRanks &instance() {
    static auto *all = new LocalRanks;
    return *all;
  }
  // One of `count` local ranks leaves; `work` is what is left to do for it. Work that waits for peers goes to a thread, for the
  // caller may be the one that has those peers' calls still to make; the last of the ranks waits for these threads and returns
  // their first error.
  Status leave(uint64_t id, int count, bool waits_for_peers, const std::function<Status()> &work) {
    std::vector<std::shared_ptr<Other>> others;
    {
      std::lock_guard lock(mutex_);
      Leaving &l = leaving_[id];
      if (++l.gone == count) {
        others = std::move(l.others);
        leaving_.erase(id);
      } else if (waits_for_peers && start(l, work))
        return {};
    }
    Status result = work();
    for (auto &o : others) {
      o->thread.join();
      if (result.ok()) result = std::move(o->result);
    }
    return result;
  }
  // One of them was aborted: the others' ends come soon, and nobody waits for them.
  void drop(uint64_t id, int count) {
    std::lock_guard lock(mutex_);
    Leaving &l = leaving_[id];
    if (++l.gone < count) return;
    for (auto &o : l.others) o->thread.detach();
    leaving_.erase(id);
  }

private:
  struct Other {
    std::thread thread;
    Status result; // read after the thread has ended
  };
  struct Leaving {
    int gone = 0;
    std::vector<std::shared_ptr<Other>> others;
  };
  static bool start(Leaving &l, const std::function<Status()> &work) {
    auto other = std::make_shared<Other>();
    auto thread = start_thread([other, work] { other->result = guarded(work); });
    if (!thread.ok()) return false; // no thread to be had: the caller does it
    other->thread = std::move(*thread);
    l.others.push_back(std::move(other));
    return true;
  }
  std::mutex mutex_; // guards leaving_
  std::map<uint64_t, Leaving> leaving_;
};

struct Locals {
  uint64_t id = 0;
  int count = 1;
};
Locals locals_of(const Communicator &c) {
  const auto core = c.shared_core();
  if (!core || !core->bootstrap) return {};
  Locals l{core->bootstrap->comm_id(), 0};
  const auto &mine = core->bootstrap->peer(c.rank()).process;
  for (int r = 0; r < c.nranks(); r++) l.count += core->bootstrap->peer(r).process == mine;
  return l;
}

Status finish(const std::shared_ptr<Communicator> &c) {
  const log::ScopedRank scope(c->rank());
  Status s;
  if (c->state() == Communicator::State::ready) s = c->finalize();
  if (!s.ok()) c->note(s);
  c->close();
  return s;
}

// Handles whose communicator still had a thread inside when it was aborted.
struct Graveyard {
  std::mutex mutex; // guards handles
  std::vector<tuttiComm *> handles;
};
Graveyard &graveyard() {
  static auto *g = new Graveyard;
  return *g;
}

void sweep() {
  std::lock_guard lock(graveyard().mutex);
  std::erase_if(graveyard().handles, [](tuttiComm *h) {
    if (h->inside.load(std::memory_order_acquire) != 0) return false;
    h->c->close();
    free_handle(h);
    return true;
  });
}

} // namespace

Status destroy(const std::shared_ptr<Communicator> &comm) {
  sweep();
  comm->join_background();
  comm->splitting.wait(true);
  const Locals local = locals_of(*comm);
  const auto work = [comm] { return finish(comm); };
  if (local.count <= 1) return work();
  return LocalRanks::instance().leave(local.id, local.count, comm->state() == Communicator::State::ready, work);
}

void abort_handle(tuttiComm *handle) {
  sweep();
  wait_for_visitors(handle);
  const std::shared_ptr<Communicator> c = handle->c;
  c->abort();
  heavy_fence();
  const Deadline patience = Deadline::in(kAbortPatience);
  while (handle->inside.load(std::memory_order_acquire) != 0 && !patience.expired())
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  c->quiesce();
  handle->head.store(tuttiComm::kDead); // the caller, and who is refused from now on, may free its buffers
  handle->head.notify_all();
  if (const Locals local = locals_of(*c); local.count > 1) LocalRanks::instance().drop(local.id, local.count);
  if (handle->inside.load(std::memory_order_acquire) != 0) {
    std::lock_guard lock(graveyard().mutex);
    graveyard().handles.push_back(handle);
    return;
  }
  if (!c->join_background()) c->close(); // else its thread frees what it made once it notices
  free_handle(handle);
}

} // namespace tutti
