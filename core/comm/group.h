// tutti/core/comm/group.h: what a thread collects between tuttiGroupStart and the outermost tuttiGroupEnd.
//
// At the end, set-up and tear-down calls run first, each on a thread of its own, for they wait for each other. Then collectives
// are enqueued in the order of the calls, then each communicator's sends and receives as one operation.
#pragma once
#include "comm/communicator.h"
#include "comm/stream.h"

namespace tutti {

class Group {
public:
  static Group &of_this_thread();
  bool open() const { return depth_ > 0; }
  // Neither collects nor has a call configuration: nearly always.
  bool plain() const { return !busy_; }
  const CallConfig *asked() const { return asked_.empty() ? nullptr : asked_.back().get(); }
  void begin_asked(std::shared_ptr<const CallConfig> config) {
    asked_.push_back(std::move(config));
    busy_ = true;
  }
  bool end_asked() { // false: none has begun
    if (asked_.empty()) return false;
    asked_.pop_back();
    busy_ = open() || !asked_.empty();
    return true;
  }
  size_t asked_depth() const { return asked_.size(); }
  OwnStreams &own_streams() { return own_streams_; } // of the same thread: one look-up serves both
  void start() {
    depth_++;
    busy_ = true;
  }
  // Runs everything at the outermost end. The first error of any call of the group wins; then nothing is started.
  Status end();
  void fail(const Status &status) {
    if (failure_.ok()) failure_ = status;
  }

  // For operations of live communicators: called while inside.
  void add(tuttiComm *comm, const Op &op, std::unique_ptr<BlockTables> tables, tuttiStream_t stream);
  void add(tuttiComm *comm, const P2pOp &op, tuttiStream_t stream);
  // A call that waits for other ranks; `undo` runs when the group failed before it started. Tasks with the same `serial` run
  // one after the other, all others at the same time.
  void add(std::function<Status()> task, std::function<void()> undo, const void *serial = nullptr);

private:
  struct Target { // which may be aborted before the group ends
    tuttiComm *handle;
    std::shared_ptr<Communicator> comm; // the handle may then serve another one
  };
  struct Collective {
    Target target;
    Op op;
    std::unique_ptr<BlockTables> tables;
    std::shared_ptr<const CallConfig> asked; // when it was called; nullptr = none
    tuttiStream_t stream;
    bool issued = false;
  };
  struct Messages { // of one communicator
    Target target;
    std::vector<P2pOp> ops;
    std::vector<tuttiStream_t> streams;      // sorted
    std::shared_ptr<const CallConfig> asked; // of the first call that has one
    bool own_stream = false;                 // some call named NULL
    bool issued = false;
  };
  // Calls that have to wait because a queue is full, and what they hold up: later calls of their communicators and streams.
  struct HeldUp {
    std::vector<const Communicator *> comms;
    std::vector<tuttiStream_t> streams;
  };
  struct Task {
    std::function<Status()> run;
    std::function<void()> undo;
    const void *serial;
  };
  Status run_tasks();
  std::vector<std::vector<size_t>> task_chains() const;
  Status issue();
  bool issue_some(Status *first); // in the order of the calls; false when some are left
  template <class Call, class Submit>
  bool issue_one(Call &call, std::span<const tuttiStream_t> streams, bool own_stream, Status *first, Submit &&submit);
  bool must_wait(const Target &target, std::span<const tuttiStream_t> streams);

  std::shared_ptr<const CallConfig> kept_asked() const { return asked_.empty() ? nullptr : asked_.back(); }

  bool busy_ = false; // open, or with a call configuration
  int depth_ = 0;
  std::vector<std::shared_ptr<const CallConfig>> asked_; // that have begun; the last one holds
  Status failure_;
  std::vector<Collective> collectives_;
  std::vector<Messages> messages_;
  std::vector<Task> tasks_;
  HeldUp held_up_;
  OwnStreams own_streams_;
};

} // namespace tutti
