// PMIx, opened at run time: no dependency for those who do not use it.
#include "bootstrap/helper.h"
#include "bootstrap/launch.h"
#include "log/log.h"
#ifdef TUTTI_HAVE_PMIX
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <pmix.h>
#endif

namespace tutti::boot {

#ifdef TUTTI_HAVE_PMIX
namespace {

struct Api {
  void *lib = nullptr;
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;
};

Api load() {
  Api a;
  a.lib = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!a.lib) return a;
  const auto sym = [&](auto *fn, const char *name) {
    *fn = reinterpret_cast<std::remove_pointer_t<decltype(fn)>>(dlsym(a.lib, name));
  };
  sym(&a.init, "PMIx_Init");
  sym(&a.finalize, "PMIx_Finalize");
  sym(&a.put, "PMIx_Put");
  sym(&a.commit, "PMIx_Commit");
  sym(&a.fence, "PMIx_Fence");
  sym(&a.get, "PMIx_Get");
  sym(&a.error_string, "PMIx_Error_string");
  if (!a.init || !a.finalize || !a.put || !a.commit || !a.fence || !a.get || !a.error_string) {
    dlclose(a.lib);
    a.lib = nullptr;
  }
  return a;
}

const Api &api() {
  static const Api a = load();
  return a;
}

std::mutex g_m; // guards what follows; held by helper threads, which may hang in the library
bool g_started = false;
pmix_proc_t g_me;

Status failed(std::string_view what, pmix_status_t rc) {
  return fail(Code::system, "pmix: {}: {}", what, api().error_string(rc)).phase("bootstrap");
}

// A number that the launcher keeps about the job or this process; -1 = not told.
int number(const char *key, pmix_rank_t rank) {
  pmix_proc_t who = g_me;
  who.rank = rank;
  pmix_value_t *v = nullptr;
  if (api().get(&who, key, nullptr, 0, &v) != PMIX_SUCCESS || !v) return -1;
  int out = -1;
  if (v->type == PMIX_UINT32)
    out = static_cast<int>(v->data.uint32);
  else if (v->type == PMIX_UINT16)
    out = static_cast<int>(v->data.uint16);
  else if (v->type == PMIX_INT)
    out = v->data.integer;
  else if (v->type == PMIX_PROC_RANK)
    out = static_cast<int>(v->data.rank);
  std::free(v);
  return out;
}

pmix_info_t timeout_info(Deadline deadline) {
  pmix_info_t info;
  std::memset(&info, 0, sizeof info);
  std::strncpy(info.key, PMIX_TIMEOUT, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_INT;
  info.value.data.integer = std::max(1, (deadline.left_ms() + 999) / 1000);
  return info;
}

Result<PmixInfo> start() {
  std::lock_guard lock(g_m);
  if (!g_started) {
    const pmix_status_t rc = api().init(&g_me, nullptr, 0);
    if (rc != PMIX_SUCCESS) return failed("cannot reach the launcher", rc);
    g_started = true;
    static const pid_t owner = getpid(); // a forked child has no connection to the server
    std::atexit([] {
      if (getpid() == owner) api().finalize(nullptr, 0);
    });
  }
  PmixInfo info;
  info.rank = static_cast<int>(g_me.rank);
  info.nranks = number(PMIX_JOB_SIZE, PMIX_RANK_WILDCARD);
  info.local_rank = number(PMIX_LOCAL_RANK, g_me.rank);
  info.local_size = number(PMIX_LOCAL_SIZE, PMIX_RANK_WILDCARD);
  return info;
}

Result<tuttiUniqueId> exchange(const std::string &name, const std::optional<tuttiUniqueId> &mine, Deadline deadline) {
  std::lock_guard lock(g_m);
  if (mine) {
    pmix_value_t v;
    std::memset(&v, 0, sizeof v);
    v.type = PMIX_BYTE_OBJECT;
    v.data.bo.bytes = const_cast<char *>(mine->internal);
    v.data.bo.size = sizeof mine->internal;
    if (pmix_status_t rc = api().put(PMIX_GLOBAL, name.c_str(), &v); rc != PMIX_SUCCESS)
      return failed("cannot publish the unique id", rc);
    if (pmix_status_t rc = api().commit(); rc != PMIX_SUCCESS) return failed("cannot publish the unique id", rc);
  }
  pmix_info_t info[2] = {timeout_info(deadline), {}};
  std::strncpy(info[1].key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
  info[1].value.type = PMIX_BOOL;
  info[1].value.data.flag = true;
  if (pmix_status_t rc = api().fence(nullptr, 0, info, 2); rc != PMIX_SUCCESS)
    return failed(fmt::format("not all ranks came to the exchange of the unique id within {}", seconds(deadline.span())), rc);
  pmix_proc_t root = g_me;
  root.rank = 0;
  pmix_value_t *v = nullptr;
  pmix_info_t limit = timeout_info(deadline);
  if (pmix_status_t rc = api().get(&root, name.c_str(), &limit, 1, &v); rc != PMIX_SUCCESS)
    return failed("rank 0 published no unique id", rc);
  tuttiUniqueId out;
  const bool good = v && v->type == PMIX_BYTE_OBJECT && v->data.bo.size == sizeof out.internal;
  if (good) std::memcpy(out.internal, v->data.bo.bytes, sizeof out.internal);
  if (v && v->type == PMIX_BYTE_OBJECT) std::free(v->data.bo.bytes);
  std::free(v);
  if (good) return out;
  return fail(Code::internal, "pmix: rank 0 published something that is no unique id").phase("bootstrap");
}

Status silent(Deadline deadline) {
  return fail(Code::timeout, "pmix: the launcher's server has not answered within {}", seconds(deadline.span()))
      .phase("bootstrap");
}

} // namespace

bool pmix_available() {
  return ::secure_getenv("PMIX_NAMESPACE") && ::secure_getenv("PMIX_RANK") && api().lib;
}

Result<PmixInfo> pmix_start(Deadline deadline) {
  auto info = within<Result<PmixInfo>>(deadline, &start);
  return info ? std::move(*info) : Result<PmixInfo>(silent(deadline));
}

Status pmix_exchange(std::string_view key, const tuttiUniqueId *mine, tuttiUniqueId *out, Deadline deadline) {
  std::optional<tuttiUniqueId> own;
  if (mine) own = *mine;
  // A little longer than asked for: at the deadline the server names what did not happen, which says more.
  auto id = within<Result<tuttiUniqueId>>(Deadline::in(deadline.left() + std::chrono::seconds(2)),
                                          [name = std::string(key), own, deadline] { return exchange(name, own, deadline); });
  if (!id) return silent(deadline);
  if (!id->ok()) return std::move(id->status());
  *out = id->value();
  return {};
}

#else

bool pmix_available() {
  return false;
}
Result<PmixInfo> pmix_start(Deadline) {
  return fail(Code::system, "built without PMIx");
}
Status pmix_exchange(std::string_view, const tuttiUniqueId *, tuttiUniqueId *, Deadline) {
  return fail(Code::system, "built without PMIx");
}

#endif

} // namespace tutti::boot
