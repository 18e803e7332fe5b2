// tutti.h: version, errors, life of communicators, groups.
#include "comm/destroy.h"
#include "comm/handle.h"
#include "comm/make.h"
#include "comm/startup.h"
#include <algorithm>
#include <cstring>

using namespace tutti;

namespace {

Status check_init(const tuttiComm_t *comm, int nranks, int rank) {
  if (!comm) return fail(Code::invalid_argument, "init: comm is NULL");
  if (nranks < 1) return fail(Code::invalid_argument, "init: nranks {} is below 1", nranks);
  if (rank < 0 || rank >= nranks) return fail(Code::invalid_argument, "init: rank {} is not in 0 to {}", rank, nranks - 1);
  return {};
}

tuttiResult_t init_rank(tuttiComm_t *comm, int nranks, std::span<const tuttiUniqueId> ids, int rank,
                        const tuttiConfig_t *config) {
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_init(comm, nranks, rank));
    *comm = nullptr;
    TUTTI_ASSIGN(base, process_options());
    TUTTI_ASSIGN(options, read_options(config, base));
    auto c = std::make_shared<Communicator>(rank, nranks, std::move(options));
    return create(comm, std::move(c),
                  [all = std::vector(ids.begin(), ids.end())](Communicator &self) { return self.init(all); });
  });
}

void fill(char *to, size_t cap, std::string_view from) {
  const size_t n = std::min(from.size(), cap - 1);
  std::memcpy(to, from.data(), n);
  to[n] = 0;
}

} // namespace

extern "C" {

tuttiResult_t tuttiGetVersion(int *version) {
  return without_comm([&]() -> Status {
    if (!version) return fail(Code::invalid_argument, "version is NULL");
    *version = TUTTI_VERSION_CODE;
    return {};
  });
}

const char *tuttiGetErrorString(tuttiResult_t result) {
  static constexpr const char *kTexts[tuttiNumResults] = {
      "success",
      "a device call failed",
      "an operating system call failed",
      "internal error of the library or of a plugin",
      "an argument is out of range",
      "the call does not fit the state, or ranks disagree",
      "another rank failed or went away",
      "not finished yet",
      "a deadline passed",
  };
  return result >= 0 && result < tuttiNumResults ? kTexts[result] : "unknown result code";
}

const char *tuttiGetLastError(tuttiComm_t comm) {
  thread_local std::string text;
  const Status s = guarded([&]() -> Status {
    const auto c = comm ? visit(comm) : Result<std::shared_ptr<Communicator>>(Status());
    const Error e = c.ok() ? (*c)->last_error() : thread_error();
    text = e.code == Code::ok ? std::string() : e.line();
    return {};
  });
  return s.ok() ? text.c_str() : "out of memory";
}

tuttiResult_t tuttiCommGetLastError(tuttiComm_t comm, tuttiErrorInfo *info) {
  return without_comm([&]() -> Status {
    std::shared_ptr<Communicator> c;
    if (comm) {
      TUTTI_ASSIGN(known, visit(comm));
      c = std::move(known);
    }
    if (!info) return fail(Code::invalid_argument, "info is NULL");
    if (info->size < sizeof info->size || info->size > 1 << 16)
      return fail(Code::invalid_argument, "info: size {} is not plausible", info->size)
          .hint("set it to sizeof(tuttiErrorInfo)");
    const Error e = c ? c->last_error() : thread_error();
    tuttiErrorInfo out{};
    out.size = info->size;
    out.code = static_cast<tuttiResult_t>(e.code);
    out.rank = e.rank;
    out.peer = e.peer;
    out.sysErrno = e.sys_errno;
    fill(out.phase, sizeof out.phase, e.phase);
    fill(out.operation, sizeof out.operation, e.operation);
    fill(out.endpoint, sizeof out.endpoint, e.endpoint);
    fill(out.hint, sizeof out.hint, e.hint);
    fill(out.message, sizeof out.message, e.code == Code::ok ? std::string() : e.line());
    std::memcpy(info, &out, std::min(info->size, sizeof out));
    return {};
  });
}

tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id) {
  return without_comm([&]() -> Status {
    if (!id) return fail(Code::invalid_argument, "id is NULL");
    TUTTI_ASSIGN(p, process());
    TUTTI_ASSIGN(made, Bootstrap::create_id(*p.config));
    *id = made;
    return {};
  });
}

tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank) {
  return init_rank(comm, nranks, std::span(&id, 1), rank, nullptr);
}

tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank, const tuttiConfig_t *config) {
  return init_rank(comm, nranks, std::span(&id, 1), rank, config);
}

tuttiResult_t tuttiCommInitRankScalable(tuttiComm_t *comm, int nranks, int rank, int nids, const tuttiUniqueId *ids,
                                        const tuttiConfig_t *config) {
  if (!ids || nids < 1 || nids > nranks)
    return refused(nullptr,
                   fail(Code::invalid_argument, "init: {} ids{} for {} ranks: there is at least one, and a rank for each", nids,
                        ids ? "" : " at NULL", nranks));
  return init_rank(comm, nranks, std::span(ids, static_cast<size_t>(nids)), rank, config);
}

tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int nranks, const int *devices) {
  if (devices) {
    for (int i = 0; i < nranks; i++)
      if (devices[i] < -1)
        return refused(nullptr, fail(Code::invalid_argument, "init: devices[{}] is {}; -1 means none", i, devices[i]));
  }
  if (Status s = check_init(comms, nranks, 0); !s.ok()) return refused(nullptr, std::move(s));
  tuttiUniqueId id;
  if (const tuttiResult_t r = tuttiGetUniqueId(&id); r != tuttiSuccess) return r;
  std::fill(comms, comms + nranks, nullptr);
  tuttiGroupStart();
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.blocking = 1;
  for (int i = 0; i < nranks; i++)
    if (init_rank(comms + i, nranks, std::span(&id, 1), i, &config) != tuttiSuccess) break; // the group remembers
  const tuttiResult_t r = tuttiGroupEnd();
  if (r == tuttiSuccess || r == tuttiInProgress) return r;
  for (int i = 0; i < nranks; i++) // ranks that came up before another failed
    if (comms[i]) {
      tuttiCommAbort(comms[i]);
      comms[i] = nullptr;
    }
  return r;
}

tuttiResult_t tuttiCommInitFromEnv(tuttiComm_t *comm, const tuttiConfig_t *config) {
  Bootstrap::Launch launch;
  const tuttiResult_t r = without_comm([&]() -> Status {
    if (!comm) return fail(Code::invalid_argument, "init: comm is NULL");
    *comm = nullptr;
    TUTTI_ASSIGN(p, process());
    TUTTI_ASSIGN(found, Bootstrap::launch_from_env(*p.config, Deadline::in(p.config->duration("core.init_timeout"))));
    launch = std::move(found);
    return {};
  });
  return r == tuttiSuccess ? init_rank(comm, launch.nranks, std::span(&launch.id, 1), launch.rank, config) : r;
}

tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm, const tuttiConfig_t *config) {
  std::shared_ptr<Communicator> child, parent;
  std::shared_ptr<Core> core; // stays, even if the parent is aborted meanwhile
  const tuttiResult_t r = on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_TRY(c.usable());
    if (!newcomm) return fail(Code::invalid_argument, "split: newcomm is NULL");
    if (color < TUTTI_SPLIT_NOCOLOR)
      return fail(Code::invalid_argument, "split: color {} is neither 0 or more nor TUTTI_SPLIT_NOCOLOR", color);
    TUTTI_TRY(c.not_splitting());
    TUTTI_ASSIGN(options, read_options(config, c.options()));
    parent = comm->c;
    core = c.core();
    child = std::make_shared<Communicator>(-1, 0, std::move(options));
    return {};
  });
  if (r != tuttiSuccess) return r;
  const auto take_part = [parent, core, color, key](Communicator &self) -> Status {
    if (parent->splitting.exchange(true)) return parent->not_splitting();
    bool all_came = false;
    Status s = guarded([&] { return self.init_split(core, color, key, &all_came); });
    parent->splitting.store(false, std::memory_order_release);
    parent->splitting.notify_all();
    if (s.ok()) return s;
    if (all_came && !core->bootstrap->failed())
      parent->tell(s); // only the child has failed
    else
      parent->note(s);
    return s;
  };
  return without_comm([&]() -> Status {
    if (color >= 0) return create(newcomm, child, take_part, parent.get());
    *newcomm = nullptr;
    auto run = [child, take_part]() -> Status {
      if (child->options().blocking) return take_part(*child);
      TUTTI_TRY(child->background(take_part));
      return fail(Code::in_progress, "the split goes on in the background");
    };
    Group &group = Group::of_this_thread();
    if (!group.open()) return run();
    group.add(
        run, [] {}, parent.get());
    return {};
  });
}

tuttiResult_t tuttiCommFinalize(tuttiComm_t comm) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (c.state() == Communicator::State::finalized) return fail(Code::invalid_usage, "the communicator is finalized already");
    TUTTI_TRY(c.usable());
    TUTTI_TRY(c.not_splitting());
    auto run = [comm, self = comm->c]() -> Status {
      const Inside inside(*comm);
      if (!live(comm) || comm->c != self) return fail(Code::invalid_argument, "the communicator was aborted");
      if (!self->options().blocking) {
        TUTTI_TRY(self->background([](Communicator &b) { return b.finalize(); }));
        return fail(Code::in_progress, "finalizing goes on in the background");
      }
      Status s = self->finalize();
      if (!s.ok()) self->note(s);
      return s;
    };
    if (Group &group = Group::of_this_thread(); group.open()) {
      group.add(
          run, [] {}, comm->c.get());
      return {};
    }
    return run();
  });
}

tuttiResult_t tuttiCommDestroy(tuttiComm_t comm) {
  if (!comm) return tuttiSuccess;
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_handle(comm));
    auto run = [comm]() -> Status {
      wait_for_visitors(comm);
      const std::shared_ptr<Communicator> c = comm->c;
      free_handle(comm);
      return destroy(c);
    };
    if (!retire(comm)) return check_handle(comm); // from here on: in a group, a second call finds a handle that is to go
    Group &group = Group::of_this_thread();
    if (!group.open()) return run();
    group.add(run, [comm] { revive(comm); });
    return {};
  });
}

tuttiResult_t tuttiCommAbort(tuttiComm_t comm) {
  if (!comm) return tuttiSuccess;
  return without_comm([&]() -> Status {
    TUTTI_TRY(check_handle(comm));
    if (!retire(comm, tuttiComm::kEnding)) return check_handle(comm);
    abort_handle(comm);
    return {};
  });
}

tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *async_error) {
  return without_comm([&]() -> Status {
    TUTTI_ASSIGN(c, visit(comm));
    if (!async_error) return fail(Code::invalid_argument, "asyncError is NULL");
    const Code code = c->health_at_all().code();
    *async_error = code == Code::ok && c->splitting.load() ? tuttiInProgress : static_cast<tuttiResult_t>(code);
    return {};
  });
}

tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *count) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!count) return fail(Code::invalid_argument, "count is NULL");
    TUTTI_TRY(c.known());
    *count = c.nranks();
    return {};
  });
}

tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    if (!rank) return fail(Code::invalid_argument, "rank is NULL");
    TUTTI_TRY(c.known());
    *rank = c.rank();
    return {};
  });
}

tuttiResult_t tuttiGroupStart(void) {
  return without_comm([]() -> Status {
    Group::of_this_thread().start();
    return {};
  });
}

tuttiResult_t tuttiGroupEnd(void) {
  return last_resort([] {
    Status s = guarded([] { return Group::of_this_thread().end(); });
    if (s.ok()) return tuttiSuccess;
    if (s.code() != Code::in_progress) set_thread_error(s.error());
    return static_cast<tuttiResult_t>(s.code());
  });
}

} // extern "C"
