// tutti.h: streams, events, work handles.
#include "comm/handle.h"
#include "comm/stream.h"

using namespace tutti;

namespace {

template <class T> Status check_live(const T *handle, std::string_view what) {
  if (!handle) return fail(Code::invalid_argument, "the {} is NULL", what);
  if (handle->magic != T::kMagic) return fail(Code::invalid_argument, "the {} was destroyed or was never one", what);
  return {};
}

template <class T> tuttiResult_t destroy_handle(T *handle, std::string_view what) {
  if (!handle) return tuttiSuccess;
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_live(handle, what));
    free_handle(handle);
    return {};
  });
}

// What a thread may not do while it still collects.
Status not_in_group(std::string_view what) {
  if (!Group::of_this_thread().open()) return {};
  return fail(Code::invalid_usage, "{} inside a group would wait for operations that begin at tuttiGroupEnd", what);
}

} // namespace

extern "C" {

tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream) {
  return without_comm([&]() -> Status {
    if (!stream) return fail(Code::invalid_argument, "stream is NULL");
    *stream = make_stream();
    return {};
  });
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream) {
  return destroy_handle(stream, "stream");
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(not_in_group("tuttiStreamSynchronize"));
    if (!stream) return Group::of_this_thread().own_streams().wait();
    TUTTI_TRY(check_live(stream, "stream"));
    return wait_handle(*stream);
  });
}

tuttiResult_t tuttiCommSynchronize(tuttiComm_t comm) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (Group::of_this_thread().open()) [[unlikely]]
      return not_in_group("tuttiCommSynchronize");
    return c.synchronize();
  });
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream) {
  return without_comm([&]() -> Status {
    if (stream) {
      TUTTI_TRY(check_live(stream, "stream"));
      return query_handle(*stream);
    }
    TUTTI_ASSIGN(done, Group::of_this_thread().own_streams().query());
    return done ? Status() : fail(Code::in_progress, "not finished yet");
  });
}

tuttiResult_t tuttiEventCreate(tuttiEvent_t *event) {
  return without_comm([&]() -> Status {
    if (!event) return fail(Code::invalid_argument, "event is NULL");
    *event = make_event();
    return {};
  });
}

tuttiResult_t tuttiEventDestroy(tuttiEvent_t event) {
  return destroy_handle(event, "event");
}

tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiComm_t comm, tuttiStream_t stream) {
  if (stream)
    return without_comm([&]() -> Status {
      TUTTI_TRY(check_live(event, "event"));
      TUTTI_TRY(check_live(stream, "stream"));
      TUTTI_TRY(not_in_group("tuttiEventRecord"));
      return record(*event, *stream);
    });
  return on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_TRY(check_live(event, "event"));
    TUTTI_TRY(not_in_group("tuttiEventRecord"));
    TUTTI_TRY(c.health());
    record(*event, c.tail_point());
    return {};
  });
}

tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_live(event, "event"));
    return wait_handle(*event);
  });
}

tuttiResult_t tuttiEventQuery(tuttiEvent_t event) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_live(event, "event"));
    return query_handle(*event);
  });
}

tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event) {
  return without_comm([&]() -> Status {
    if (!stream)
      return fail(Code::invalid_argument, "the stream is NULL, which names no communicator's own stream here")
          .hint("use a stream made by tuttiStreamCreate");
    TUTTI_TRY(check_live(stream, "stream"));
    TUTTI_TRY(check_live(event, "event"));
    return wait_event(*stream, *event);
  });
}

tuttiResult_t tuttiCommGetLastWork(tuttiComm_t comm, tuttiWork_t *work) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!work) return fail(Code::invalid_argument, "work is NULL");
    TUTTI_TRY(c.health());
    *work = make_work(c.last_point());
    return {};
  });
}

tuttiResult_t tuttiWorkTest(tuttiWork_t work) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_live(work, "work handle"));
    return query_handle(*work);
  });
}

tuttiResult_t tuttiWorkWait(tuttiWork_t work) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_live(work, "work handle"));
    TUTTI_TRY(not_in_group("tuttiWorkWait"));
    return wait_handle(*work);
  });
}

tuttiResult_t tuttiWorkDestroy(tuttiWork_t work) {
  return destroy_handle(work, "work handle");
}

} // extern "C"
