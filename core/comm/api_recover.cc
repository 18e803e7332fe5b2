// tutti.h: revoke, shrink, grow.
#include "comm/handle.h"
#include "comm/make.h"
#include "comm/startup.h"
#include <algorithm>

using namespace tutti;

namespace {

Status check_revoke(Communicator &c) {
  switch (c.state()) {
  case Communicator::State::working:
    return fail(Code::invalid_usage, "revoke: the communicator is still being set up").hint("tuttiCommAbort ends that");
  case Communicator::State::finalized:
    return fail(Code::invalid_usage, "revoke: the communicator is finalized: no operation is in flight");
  case Communicator::State::closed:
    return fail(Code::invalid_argument, "the communicator was destroyed");
  default:
    return {};
  }
}

Result<Bootstrap::Shrink> check_shrink(Communicator &c, const int *exclude, int n, const tuttiComm_t *newcomm, int flags) {
  if (!newcomm) return fail(Code::invalid_argument, "shrink: newcomm is NULL");
  if (flags != TUTTI_SHRINK_DEFAULT && flags != TUTTI_SHRINK_ABORT)
    return fail(Code::invalid_argument, "shrink: flags {} is neither TUTTI_SHRINK_DEFAULT (0) nor TUTTI_SHRINK_ABORT (1)",
                flags);
  if (n < 0 || n >= c.nranks())
    return fail(Code::invalid_argument, "shrink: {} ranks to exclude of {}: 0 to {} are possible", n, c.nranks(),
                c.nranks() - 1);
  if ((n > 0) != (exclude != nullptr))
    return fail(Code::invalid_argument, "shrink: exclude is {}, but n is {}", exclude ? "a list" : "NULL", n)
        .hint("NULL and 0 let the ranks that are left find out who is gone");
  if (c.state() == Communicator::State::finalized) return fail(Code::invalid_usage, "shrink: the communicator is finalized");
  if (c.state() == Communicator::State::working || !c.core())
    return fail(Code::invalid_usage, "shrink: the communicator is still being set up, or never was");
  Bootstrap::Shrink out;
  out.find_out = n == 0;
  for (int i = 0; i < n; i++) {
    if (exclude[i] < 0 || exclude[i] >= c.nranks())
      return fail(Code::invalid_argument, "shrink: exclude[{}] is {}; ranks are 0 to {}", i, exclude[i], c.nranks() - 1);
    if (exclude[i] == c.rank())
      return fail(Code::invalid_argument, "shrink: exclude[{}] is {}, the rank that calls", i, exclude[i])
          .hint("ranks that are excluded do not call it");
    out.excluded.push_back(exclude[i]);
  }
  std::sort(out.excluded.begin(), out.excluded.end());
  const auto twice = std::adjacent_find(out.excluded.begin(), out.excluded.end());
  if (twice != out.excluded.end()) return fail(Code::invalid_argument, "shrink: rank {} is excluded twice", *twice);
  return out;
}

Status check_grow(const tuttiComm_t comm, int nranks, const tuttiUniqueId *id, int rank, const tuttiComm_t *newcomm) {
  if (!newcomm) return fail(Code::invalid_argument, "grow: newcomm is NULL");
  if (comm && rank != -1)
    return fail(Code::invalid_argument,
                "grow: rank {} of a rank that is in the communicator already; it keeps its own, and "
                "gives -1",
                rank);
  if (comm) return {};
  if (!id) return fail(Code::invalid_argument, "grow: id is NULL; new ranks give the one of tuttiCommGetUniqueId");
  if (rank < 1 || rank >= nranks)
    return fail(Code::invalid_argument, "grow: rank {} of a new rank is not in 1 to {}", rank, nranks - 1)
        .hint("new ranks come behind the old ones");
  return {};
}

void end_abruptly(Communicator &c) {
  Error e;
  e.code = Code::remote;
  e.rank = e.peer = c.rank();
  e.phase = "shrink";
  e.message = fmt::format("rank {} shrinks the communicator, and ends its operations for that", c.rank());
  c.fail(e);
  c.quiesce();
}

} // namespace

extern "C" {

tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags) {
  return without_comm([&]() -> Status {
    TUTTI_ASSIGN(c, visit(comm));
    if (flags != TUTTI_REVOKE_DEFAULT)
      return fail(Code::invalid_argument, "revoke: flags {} is not TUTTI_REVOKE_DEFAULT (0)", flags);
    TUTTI_TRY(check_revoke(*c));
    if (c->health_at_all().ok()) c->revoke();
    return {};
  });
}

tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int *exclude, int n, tuttiComm_t *newcomm, const tuttiConfig_t *config,
                              int flags) {
  std::shared_ptr<Communicator> child, parent;
  std::shared_ptr<Core> core; // stays, even if the parent is aborted meanwhile
  Bootstrap::Shrink request;
  const tuttiResult_t r = on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_ASSIGN(checked, check_shrink(c, exclude, n, newcomm, flags));
    TUTTI_TRY(c.not_splitting());
    TUTTI_ASSIGN(options, read_options(config, c.options()));
    request = std::move(checked);
    parent = comm->c;
    core = c.core();
    child = std::make_shared<Communicator>(-1, 0, std::move(options));
    return {};
  });
  if (r != tuttiSuccess) return r;
  return without_comm([&]() -> Status {
    *newcomm = nullptr;
    if (flags == TUTTI_SHRINK_ABORT && parent->health_at_all().ok()) end_abruptly(*parent);
    return derive(newcomm, child, parent, [core, request](Communicator &self) { return self.init_shrunk(core, request); });
  });
}

tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId *id) {
  return on_comm(comm, [&](Communicator &c) -> Status {
    TUTTI_TRY(c.usable());
    if (!id) return fail(Code::invalid_argument, "id is NULL");
    TUTTI_ASSIGN(made, Bootstrap::create_id(*c.options().config));
    *id = made;
    return {};
  });
}

tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId *id, int rank, tuttiComm_t *newcomm,
                            const tuttiConfig_t *config) {
  std::shared_ptr<Communicator> child, parent;
  std::shared_ptr<Core> core;
  std::optional<tuttiUniqueId> meet;
  if (id) meet = *id;
  const auto of_old = [&](Communicator &c) -> Status {
    TUTTI_TRY(c.usable());
    TUTTI_TRY(check_grow(comm, nranks, id, rank, newcomm));
    if (nranks <= c.nranks())
      return fail(Code::invalid_argument, "grow: {} ranks are no more than the {} there are", nranks, c.nranks());
    TUTTI_TRY(c.not_splitting());
    TUTTI_ASSIGN(options, read_options(config, c.options()));
    parent = comm->c;
    core = c.core();
    child = std::make_shared<Communicator>(c.rank(), nranks, std::move(options));
    return {};
  };
  const auto of_new = [&]() -> Status {
    TUTTI_TRY(check_grow(comm, nranks, id, rank, newcomm));
    TUTTI_ASSIGN(base, process_options());
    TUTTI_ASSIGN(options, read_options(config, base));
    child = std::make_shared<Communicator>(rank, nranks, std::move(options));
    return {};
  };
  const tuttiResult_t r = comm ? on_comm(comm, of_old) : without_comm(of_new);
  if (r != tuttiSuccess) return r;
  const Init init = [core, parent, meet](Communicator &self) {
    bool all_came = false;
    Status s = self.init_grown(core, meet, &all_came);
    if (parent && !s.ok() && !all_came) parent->note(s); // its ranks are not in step any more
    return s;
  };
  return without_comm([&]() -> Status {
    *newcomm = nullptr;
    return parent ? derive(newcomm, child, parent, init) : create(newcomm, child, init);
  });
}

} // extern "C"
