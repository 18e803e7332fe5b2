// The ranks that are left of a communicator, as a new one.
#include "bootstrap/member.h"
#include "log/log.h"
#include <algorithm>

namespace tutti::boot {
namespace {

constexpr int kMostRounds = 16; // each one ends with the death of a rank, or with a wait that took all its time
constexpr auto kLook = std::chrono::milliseconds(1);

} // namespace

Result<std::shared_ptr<Member>> Member::shrink(Bootstrap::Shrink *request, const std::shared_ptr<const Config> &config,
                                               JoinStop *stop) {
  std::weak_ptr<Member> weak = weak_from_this();
  council_.restart();
  if (stop)
    stop->arm([weak](const Error &why) {
      const auto m = weak.lock();
      if (!m) return;
      m->council_.stop(why, false);
      std::unique_lock lock(m->m_);
      const auto child = m->shrunk_.lock();
      lock.unlock();
      if (child) child->fail(why);
    });
  Result<std::shared_ptr<Member>> out = Status();
  for (int round = 1;; round++) {
    bool met = true;
    out = shrink_once(request, config, &met);
    if (out.ok() || met || !request->find_out || is_closed() || round == kMostRounds) break;
    log::info(log::Subsys::bootstrap, "comm {:#x}: shrink: once more, for {}", comm(), out.status().error().message);
  }
  if (stop) stop->arm({});
  return out;
}

// *met becomes false where they had decided and did not all meet.
Result<std::shared_ptr<Member>> Member::shrink_once(Bootstrap::Shrink *request, const std::shared_ptr<const Config> &config,
                                                    bool *met) {
  TUTTI_ASSIGN(decision,
               council_.decide(request->find_out, request->excluded, Deadline::in(config->duration("core.shrink_timeout"))));
  request->absent = decision.absent;
  auto child = std::make_shared<Member>(service_, shrunk_identity(identity_, decision.nonce, decision.members), config);
  child->ask_under(asking_);
  hub_.add_child(comm(), decision.nonce, rank_, child);
  Status s = enter_shrunk(child, decision);
  // A group that others are in has come about; what this rank has met with is a failure of it.
  const bool there = s.ok() ? council_.complete(decision.nonce) : council_.came_about(decision);
  hub_.remove_child(comm(), decision.nonce, rank_);
  {
    std::lock_guard lock(m_);
    shrunk_.reset();
    shrunk_of_.clear();
  }
  if (there) return child;
  if (s.ok()) s = locate(tutti::fail(Code::remote, "another rank that went on has given up meanwhile").phase("shrink"));
  child->fail(s.error(), true);
  child->close();
  *met = false;
  return s;
}

// From here on the end of a member is the child's, too.
void Member::watch_shrunk(const std::shared_ptr<Member> &child, const Decision &d) {
  int lost = -1;
  {
    std::lock_guard lock(m_);
    shrunk_ = child;
    shrunk_of_ = d.members;
    for (const int r : d.members)
      if (lost_[static_cast<size_t>(r)] && r != rank_) lost = r;
  }
  if (lost >= 0)
    child->fail(child->about(-1, Code::remote, name(lost) + " has gone while the ranks that go on were meeting"), true);
}

Status Member::enter_shrunk(const std::shared_ptr<Member> &child, const Decision &d) {
  const Deadline deadline = Deadline::in(child->config_->duration("core.init_timeout"));
  const auto at = std::find(d.members.begin(), d.members.end(), rank_) - d.members.begin();
  TUTTI_TRY(seat_child(child, d.members, static_cast<int>(at)));
  watch_shrunk(child, d);
  if (d.members.size() == 1) return {};
  // All of them have heard of the decision, or will soon, but they make their ranks of the child in their own time.
  const int next = d.members[static_cast<size_t>(child->next())];
  return meet(child, deadline, [&] {
    auto local = hub_.find_child(comm(), d.nonce, next);
    for (; !local && !child->failed() && !deadline.expired(); local = hub_.find_child(comm(), d.nonce, next))
      std::this_thread::sleep_for(kLook);
    return local;
  });
}

} // namespace tutti::boot
