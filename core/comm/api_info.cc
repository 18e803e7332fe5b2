// tutti.h: memory and introspection.
#include "comm/handle.h"
#include "transport/regions.h"
#include <cstring>

using namespace tutti;

extern "C" {

tuttiResult_t tuttiMemAlloc(void **ptr, size_t bytes) {
  return without_comm([&]() -> Status {
    if (!ptr) return fail(Code::invalid_argument, "mem alloc: ptr is NULL");
    TUTTI_ASSIGN(at, regions::allocate(bytes));
    *ptr = at;
    return {};
  });
}

tuttiResult_t tuttiMemFree(void *ptr) {
  if (!ptr) return tuttiSuccess;
  return without_comm([&] { return regions::release(ptr); });
}

tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void *buff, size_t size, void **handle) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!handle) return fail(Code::invalid_argument, "register: handle is NULL");
    TUTTI_ASSIGN(made, c.register_buffer(buff, size));
    *handle = made;
    return {};
  });
}

tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void *handle) {
  return on_comm(comm, [&](Communicator &c) { return c.deregister_buffer(handle); });
}

tuttiResult_t tuttiCommExplain(tuttiComm_t comm, const char *coll, size_t count, tuttiDataType_t type, char *text, size_t cap) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!coll || !text || cap == 0) return fail(Code::invalid_argument, "explain: coll or text is NULL, or cap is 0");
    TUTTI_ASSIGN(json, c.explain(coll, count, type, Group::of_this_thread().asked()));
    if (json.size() + 1 > cap)
      return fail(Code::invalid_argument, "explain: cap {} is short of {} bytes", cap, json.size() + 1);
    std::memcpy(text, json.c_str(), json.size() + 1);
    return {};
  });
}

tuttiResult_t tuttiCommTraffic(tuttiComm_t comm, char *text, size_t cap, size_t *needed) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!text && (cap || !needed)) return fail(Code::invalid_argument, "traffic: text is NULL");
    TUTTI_ASSIGN(json, c.traffic());
    if (needed) *needed = json.size() + 1;
    if (!text) return {};
    if (json.size() + 1 > cap)
      return fail(Code::invalid_argument, "traffic: cap {} is short of {} bytes", cap, json.size() + 1);
    std::memcpy(text, json.c_str(), json.size() + 1);
    return {};
  });
}

tuttiResult_t tuttiCommDump(tuttiComm_t comm, const char *path) {
  return without_comm([&]() -> Status {
    if (!comm) return fail(Code::invalid_argument, "dump: comm is NULL");
    TUTTI_ASSIGN(c, visit(comm));
    const auto flight = c->flight();
    if (!flight) return fail(Code::invalid_usage, "dump: the communicator is still being set up: nothing has been recorded");
    return flight->write(path ? path : "", "call");
  });
}

tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t *bytes, uint64_t *fds) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_TRY(c.health());
    const Engine::Usage u = c.usage();
    if (bytes) *bytes = u.bytes;
    if (fds) *fds = u.fds;
    return {};
  });
}

} // extern "C"
