// tutti.h: operations.
#include "comm/handle.h"
#include "comm/stream.h"

using namespace tutti;

namespace {

Status check_stream(tuttiStream_t stream) {
  if (!stream || stream->magic == tuttiStream::kMagic) [[likely]]
    return {};
  return fail(Code::invalid_argument, "the stream was destroyed or was never one");
}

Status submit(Communicator &c, const Op &op, tuttiStream_t stream, Group &group) {
  if (Status s = c.submit(op, stream); !s.ok()) return Communicator::refused_after(std::move(s));
  if (!stream) group.own_streams().note(c);
  return {};
}

// What a group collects, or a call configuration shapes. Called while inside; apart, so that other calls carry none of it.
[[gnu::cold, gnu::noinline]] Status submit_specially(tuttiComm_t comm, const Op &op, tuttiStream_t stream,
                                                     std::unique_ptr<BlockTables> *tables) {
  Group &group = Group::of_this_thread();
  if (group.open()) {
    group.add(comm, op, tables ? std::move(*tables) : nullptr, stream);
    return {};
  }
  TUTTI_TRY(Communicator::refused_after(comm->c->submit_as_asked(op, *group.asked(), stream)));
  if (!stream) group.own_streams().note(*comm->c);
  return {};
}

tuttiResult_t collective(const Call &call, tuttiComm_t comm, tuttiStream_t stream) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    Op op;
    TUTTI_TRY(check_stream(stream));
    TUTTI_TRY(c.check(call, &op));
    Group &group = Group::of_this_thread();
    if (group.plain()) [[likely]]
      return submit(c, op, stream, group);
    return submit_specially(comm, op, stream, nullptr);
  });
}

// check(communicator, tables, &op) fills in the tables: the communicator's own for a call that starts at once, else the
// group's.
template <class Check> tuttiResult_t collective_v(tuttiComm_t comm, tuttiStream_t stream, Check check) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    Op op;
    TUTTI_TRY(check_stream(stream));
    Group &group = Group::of_this_thread();
    auto kept = group.open() ? std::make_unique<BlockTables>() : nullptr;
    TUTTI_TRY(check(c, kept ? *kept : c.scratch_tables(), &op));
    if (group.plain()) return submit(c, op, stream, group);
    return submit_specially(comm, op, stream, &kept);
  });
}

tuttiResult_t blocks_v(const Call &call, const size_t *counts, const size_t *displs, tuttiComm_t comm, tuttiStream_t stream) {
  return collective_v(comm, stream, [&](Communicator &c, BlockTables &tables, Op *op) {
    return c.check_blocks(call, counts, displs, tables, op);
  });
}

tuttiResult_t message(bool sending, const void *buffer, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                      tuttiStream_t stream) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    P2pOp op;
    TUTTI_TRY(c.usable());
    TUTTI_TRY(check_stream(stream));
    TUTTI_TRY(c.check_p2p(sending, buffer, count, type, peer, &op));
    Group &group = Group::of_this_thread();
    if (group.open()) {
      group.add(comm, op, stream);
      return {};
    }
    const std::span<const tuttiStream_t> streams(&stream, stream ? 1 : 0);
    TUTTI_TRY(Communicator::refused_after(c.submit_p2p({&op, 1}, streams, group.asked())));
    if (stream) return {};
    group.own_streams().note(c);
    return {};
  });
}

} // namespace

extern "C" {

tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                             tuttiComm_t comm, tuttiStream_t stream) {
  return collective({TUTTI_COLL_ALL_REDUCE, sendbuff, recvbuff, count, type, op}, comm, stream);
}

tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, tuttiRedOp_t op, int root,
                          tuttiComm_t comm, tuttiStream_t stream) {
  return collective({TUTTI_COLL_REDUCE, sendbuff, recvbuff, count, type, op, root}, comm, stream);
}

tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root,
                             tuttiComm_t comm, tuttiStream_t stream) {
  return collective({TUTTI_COLL_BROADCAST, sendbuff, recvbuff, count, type, tuttiSum, root}, comm, stream);
}

tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t stream) {
  return tuttiBroadcast(buff, buff, count, type, root, comm, stream);
}

tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t stream) {
  return collective({TUTTI_COLL_ALL_GATHER, sendbuff, recvbuff, sendcount, type}, comm, stream);
}

tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, tuttiDataType_t type, tuttiRedOp_t op,
                                 tuttiComm_t comm, tuttiStream_t stream) {
  return collective({TUTTI_COLL_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, type, op}, comm, stream);
}

tuttiResult_t tuttiAllGatherV(const void *sendbuff, void *recvbuff, const size_t counts[], const size_t displs[],
                              tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream) {
  return blocks_v({TUTTI_COLL_ALL_GATHER, sendbuff, recvbuff, 0, type}, counts, displs, comm, stream);
}

tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t counts[], const size_t displs[],
                                  tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
  return blocks_v({TUTTI_COLL_REDUCE_SCATTER, sendbuff, recvbuff, 0, type, op}, counts, displs, comm, stream);
}

tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, tuttiComm_t comm,
                            tuttiStream_t stream) {
  return collective({TUTTI_COLL_ALL_TO_ALL, sendbuff, recvbuff, count, type}, comm, stream);
}

tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t sendcounts[], const size_t sdispls[], void *recvbuff,
                             const size_t recvcounts[], const size_t rdispls[], tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t stream) {
  return collective_v(comm, stream, [&](Communicator &c, BlockTables &tables, Op *op) {
    return c.check_v(sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, type, tables, op);
  });
}

tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm,
                          tuttiStream_t stream) {
  return collective({TUTTI_COLL_GATHER, sendbuff, recvbuff, count, type, tuttiSum, root}, comm, stream);
}

tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t type, int root, tuttiComm_t comm,
                           tuttiStream_t stream) {
  return collective({TUTTI_COLL_SCATTER, sendbuff, recvbuff, count, type, tuttiSum, root}, comm, stream);
}

tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
  return message(true, sendbuff, count, type, peer, comm, stream);
}

tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm, tuttiStream_t stream) {
  return message(false, recvbuff, count, type, peer, comm, stream);
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    Op op;
    TUTTI_TRY(check_stream(stream));
    TUTTI_TRY(c.check_barrier(&op));
    Group &group = Group::of_this_thread();
    if (!group.open()) return submit(c, op, stream, group);
    group.add(comm, op, nullptr, stream);
    return {};
  });
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, const void *scalar, tuttiDataType_t type, tuttiComm_t comm) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    int handle = 0;
    TUTTI_TRY(c.create_premul(scalar, type, op ? &handle : nullptr));
    *op = static_cast<tuttiRedOp_t>(handle);
    return {};
  });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
  return on_comm(comm, [&](Communicator &c) { return c.destroy_premul(op); });
}

} // extern "C"
