// tutti/core/plan/groups.h: collnet groups as ranks of their own, for those who run all ranks in one process.
#pragma once
#include "plan/wiring.h"

namespace tutti {

// Plans of ranks 0 .. n-1 and, where they have REDUCING links, of one rank more for each group: n, n+1, ... In the members'
// plans those links are ordinary ones to that rank, whose plan receives from each sender, combines in rank order, and sends to
// each receiver. Findings "link" where the members' links do not make a group.
class WithGroups {
public:
  WithGroups(Plans plans, Findings &findings);
  Plans plans() const { return made_.empty() ? given_ : Plans(made_); }

private:
  struct Member {
    uint32_t rank = 0, lane = 0, at = 0; // at: the link in its lane's list
    bool sends = false;
  };
  struct Message {
    uint64_t identity = 0; // of its first chunk
    uint32_t count = 1;
    auto operator<=>(const Message &) const = default;
  };
  static std::vector<Message> messages_of(const Plan &plan, const Member &link);
  void check_members(uint32_t group, std::span<const Member> links, Findings &findings) const;
  std::shared_ptr<const Plan> plan_of(uint32_t group, uint32_t rank, std::span<const Member> links, Findings &findings) const;
  std::shared_ptr<const Plan> rewritten(const Plan &plan) const;

  Plans given_;
  std::vector<std::shared_ptr<const Plan>> made_; // empty: as given
  std::vector<uint32_t> numbers_;                 // of groups in use; the i-th is rank n + i
};

bool has_groups(const Plan &plan);               // some link is to a group
uint32_t widest_group_message(const Plan &plan); // chunks; 0: none is
// "rank 3", or of the ranks that stand for groups "group 0".
std::string rank_name(Plans plans, uint32_t rank);

} // namespace tutti
