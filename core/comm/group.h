// tutti/core/comm/group.h: what a thread collects between tuttiGroupStart and the outermost tuttiGroupEnd.
//
// At the end, set-up and tear-down calls run first, each on a thread of its own, for they wait for each other. Then collectives
// are enqueued in the order of the calls, then each communicator's sends and receives as one operation.
#pragma once
#include "comm/communicator.h"

namespace tutti {

class Group {
public:
  static Group &of_this_thread();
  bool open() const { return depth_ > 0; }
  void start() { depth_++; }
  // Runs everything at the outermost end. The first error of any call of the group wins; then nothing is started.
  Status end();
  void fail(const Status &status) {
    if (failure_.ok()) failure_ = status;
  }

  // Collected calls keep their communicators alive.
  void add(std::shared_ptr<Communicator> comm, const Op &op, std::unique_ptr<BlockTables> tables, tuttiStream_t stream);
  void add(std::shared_ptr<Communicator> comm, const P2pOp &op, tuttiStream_t stream);
  // A call that waits for other ranks; `undo` runs when the group failed before it started.
  void add(std::function<Status()> task, std::function<void()> undo);

private:
  struct Collective {
    std::shared_ptr<Communicator> comm;
    Op op;
    std::unique_ptr<BlockTables> tables;
    tuttiStream_t stream;
  };
  struct Messages { // of one communicator
    std::shared_ptr<Communicator> comm;
    std::vector<P2pOp> ops;
    std::vector<tuttiStream_t> streams;
  };
  struct Task {
    std::function<Status()> run;
    std::function<void()> undo;
  };
  Status run_tasks();
  Status issue();

  int depth_ = 0;
  Status failure_;
  std::vector<Collective> collectives_;
  std::vector<Messages> messages_;
  std::vector<Task> tasks_;
};

} // namespace tutti
