// What is done when ranks come or go: revoke, shrink, grow.
#include "comm/communicator.h"
#include "log/log.h"
#include <algorithm>
#include <cstring>

namespace tutti {

void Communicator::revoke() {
  Error e;
  e.code = Code::remote;
  e.rank = rank_;
  e.peer = rank_;
  e.phase = "revoke";
  e.message = fmt::format("rank {} revoked the communicator", rank_);
  fail(e);
  quiesce();
}

Status Communicator::refused_after(Status s) {
  if (s.ok() || s.error().phase != "revoke") return s;
  return tutti::fail(Code::invalid_usage, "{}: no operation may follow", s.error().message)
      .peer(s.error().peer)
      .hint("tuttiCommShrink, tuttiCommDestroy and tuttiCommAbort are left");
}

Status Communicator::init_shrunk(const std::shared_ptr<Core> &parent, Bootstrap::Shrink request) {
  const int before = parent->bootstrap->nranks(), old_rank = parent->bootstrap->rank();
  const log::ScopedRank scope(old_rank);
  TUTTI_ASSIGN(child, parent->bootstrap->shrink(&request, options_.config, &join_stop_));
  rank_ = child->rank();
  nranks_ = child->nranks();
  log::info(log::Subsys::init, "comm {:#x}: {} of {} ranks go on in comm {:#x}, rank {} of them was rank {}",
            parent->bootstrap->comm_id(), nranks_, before, child->comm_id(), rank_, old_rank);
  if (!request.absent.empty())
    log::warn(log::Subsys::init,
              "comm {:#x}: the ranks that go on left rank(s) {} behind: there, but without a call of tuttiCommShrink in time",
              parent->bootstrap->comm_id(), fmt::join(request.absent, ", "));
  adopt(std::move(child));
  core_->job = parent->job;
  if (aborted_.load()) fail(last_error()); // too late to stop the meeting, too early to find its result
  Status s = set_up();
  // It has come about, and for others it may be ready already: that a rank has died since is a failure of the new communicator,
  // which all of its ranks meet at their next call.
  if (!s.ok() && !aborted_.load() && core_->bootstrap->failed() && s.code() == Code::remote) {
    log::warn(log::Subsys::init, "{}", s.error().line());
    tell(s);
    return {};
  }
  return s;
}

namespace {

// What an old rank knows of a grow: compared, and the id is somebody's.
struct GrowInfo {
  int32_t nranks = 0, has_id = 0;
  tuttiUniqueId id{};
};

Result<tuttiUniqueId> agree_to_grow(Bootstrap &b, int nranks, const std::optional<tuttiUniqueId> &id, Deadline deadline,
                                    bool *all_came) {
  GrowInfo mine;
  mine.nranks = nranks;
  mine.has_id = id.has_value();
  if (id) mine.id = *id;
  TUTTI_ASSIGN(all, b.allgather(std::as_bytes(std::span(&mine, 1)), deadline, "grow"));
  *all_came = true;
  std::vector<GrowInfo> infos(all.size());
  int owner = -1;
  for (size_t r = 0; r < all.size(); r++) {
    if (all[r].size() != sizeof(GrowInfo)) return fail(Code::internal, "grow: rank {} told {} bytes", r, all[r].size());
    std::memcpy(&infos[r], all[r].data(), sizeof(GrowInfo));
    const GrowInfo &his = infos[r];
    const auto disagree = [&](const Status &s, int peer) {
      Error e = s.error();
      e.peer = peer;
      e.phase = "grow";
      return Status(std::move(e));
    };
    const int rank = static_cast<int>(r);
    if (his.nranks != infos[0].nranks)
      return disagree(
          fail(Code::invalid_usage, "grow: rank 0 wants {} ranks, rank {} wants {}", infos[0].nranks, r, his.nranks), rank);
    if (!his.has_id) continue;
    if (owner >= 0 && std::memcmp(&infos[static_cast<size_t>(owner)].id, &his.id, sizeof his.id) != 0)
      return disagree(fail(Code::invalid_usage, "grow: ranks {} and {} gave different unique ids", owner, r), rank);
    if (owner < 0) owner = rank;
  }
  if (owner < 0)
    return fail(Code::invalid_usage, "grow: none of the {} old ranks gave a unique id", all.size())
        .phase("grow")
        .hint("the rank that called tuttiCommGetUniqueId passes its id");
  return infos[static_cast<size_t>(owner)].id;
}

} // namespace

Status Communicator::init_grown(const std::shared_ptr<Core> &parent, const std::optional<tuttiUniqueId> &id, bool *all_came) {
  std::optional<tuttiUniqueId> meet = id;
  if (parent) {
    const log::ScopedRank scope(rank_);
    TUTTI_ASSIGN(found, agree_to_grow(*parent->bootstrap, nranks_, id,
                                      Deadline::in(options_.config->duration("core.init_timeout")), all_came));
    meet = found;
  }
  return init({&*meet, 1});
}

} // namespace tutti
